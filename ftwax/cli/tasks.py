"""Tasks with settings of their own.

`ftwax train NAME` starts from them; each is an experiment with its flags.
"""

_GAMES = (
  'mpe2:simple_spread',
  'mpe2:simple_adversary',
  'mpe2:simple_tag',
  'jaxmarl:MPE_simple_spread_v3',
  'jaxmarl:overcooked',
  'jaxmarl:smax_3m',
  'craftax:Craftax-Classic-Symbolic-v1',
  'craftax:Craftax-Symbolic-v1',
)

_SIMULATED = (
  'brax:inverted_pendulum',
  'brax:inverted_double_pendulum',
  'playground:CartpoleBalance',
  'playground:CartpoleSwingup',
  'playground:PendulumSwingup',
)

# Words after `ftwax train`, by the name of the task in its library.
TASKS: dict[str, tuple[str, ...]] = {
  'capture_the_flag': ('capture_the_flag',),
  'CartPole-v1': ('ppo_cartpole',),
  'Pendulum-v1': ('continuous_control', '--task=Pendulum-v1'),
  'Hopper-v5': ('continuous_control', '--task=Hopper-v5'),
  'Breakout-MinAtar': ('minatar', '--game=breakout'),
  'pgx:connect_four': ('pgx_games', '--game=connect_four'),
  'pgx:kuhn_poker': ('pgx_games', '--game=kuhn_poker'),
  'pgx:leduc_holdem': ('pgx_games', '--game=leduc_holdem'),
  **{task: ('continuous_control', f'--task={task}') for task in _SIMULATED},
  **{game: ('any_game', f'--game={game}') for game in _GAMES},
}
