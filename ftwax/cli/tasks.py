"""Settings that are known to suit tasks, by the start of their names.

`ftwax train TASK` starts from them; flags and `--set` come before them.
"""

import textwrap
from collections.abc import Mapping
from typing import Any, NamedTuple


class Settings(NamedTuple):
  """What suits a task.

  Attributes:
    flags: values of flags in place of their defaults.
    fields: fields of the experiment, by their paths as for `--set`. Those of
      the agent are for PPO, with which they were found.
    decays: whether the agent's numbers in `decay.names` fall to zero by the end
      of the run.
    preset: the method of `PPOConfig` that makes PPO before these fields change
      it; none by default.
  """

  flags: Mapping[str, Any] = {}
  fields: Mapping[str, Any] = {}
  decays: bool = False
  preset: str = ''


_FEED_FORWARD = {
  'agent.core': 'feed_forward',
  'agent.skip_connection': False,
  'agent.torso.hidden_sizes': [64],
}

# For any environment whose actions are vectors.
CONTINUOUS = Settings({'num_environments': 16}, preset='continuous')

_CARTPOLE = Settings(
  {'max_num_actor_steps': 500_000, 'eval_every': 100_000},
  {
    **_FEED_FORWARD,
    'agent.learning_rate': 1e-3,
    'agent.discount': 0.98,
    'agent.entropy_cost': 0.0,
    'agent.gae_lambda': 0.8,
    'agent.sequence_length': 32,
    'agent.batch_size': 8,
    'agent.num_minibatches': 2,
    'agent.decay.names': ['learning_rate', 'clip_epsilon'],
  },
  decays=True,
)

_MINATAR = Settings(
  {'max_num_actor_steps': 10_000_000, 'num_environments': 64, 'eval_every': 0},
  {
    **_FEED_FORWARD,
    'agent.learning_rate': 5e-3,
    'agent.sequence_length': 128,
    'agent.batch_size': 64,
    'agent.num_epochs': 4,
  },
  decays=True,
)

# Episodes of environments in JAX start together: an update sees one part of
# them, a long one. Once a task is solved, normalized advantages are noise.
_SIMULATED = Settings(
  {'num_environments': 64, 'eval_every': 0},
  {
    'agent.sequence_length': 128,
    'agent.batch_size': 64,
    'agent.num_minibatches': 32,
  },
  decays=True,
  preset=CONTINUOUS.preset,
)

_POKER = Settings(fields={'evaluation.greedy': False})  # To bluff takes chance.

# Games in which others play.
_GAME = Settings(
  {
    'max_num_actor_steps': 1_000_000,
    'num_environments': 64,
    'eval_every': 250_000,
    'num_eval_episodes': 100,
  },
  {
    'agent.core': 'feed_forward',
    'agent.core.hidden_size': 128,
    'agent.torso.hidden_sizes': [128],
    'agent.num_epochs': 4,
    'agent.num_minibatches': 4,
    'evaluation.greedy': False,
    'steps_per_round': 512,
  },
  decays=True,
)

# Each row adds to those above it.
_ROWS: tuple[tuple[str, Settings], ...] = (
  ('CartPole-v1', _CARTPOLE),
  ('gymnax:CartPole-v1', _CARTPOLE),
  ('Pendulum-v1', Settings(fields={'agent.discount': 0.9})),
  # A stroke pays off late: with 0.99 the mean return is 41 in place of 145.
  ('Swimmer-v', Settings(fields={'agent.discount': 0.9999})),
  ('gymnax:Asterix-MinAtar', _MINATAR),
  ('gymnax:Breakout-MinAtar', _MINATAR),
  ('gymnax:Freeway-MinAtar', _MINATAR),
  ('gymnax:SpaceInvaders-MinAtar', _MINATAR),
  # With layers that policy and value share it ends at half of the return.
  ('gymnax:Asterix-MinAtar', Settings(fields={'agent.separate_value': True})),
  ('brax:', _SIMULATED),
  ('playground:', _SIMULATED),
  # As in Playground's own training; with less entropy no pendulum swings up.
  # If the cost stays, deviations exceed what actions may be, and in CheetahRun
  # the mean acts worse than samples do.
  (
    'playground:',
    Settings(
      fields={
        'agent.discount': 0.995,
        'agent.entropy_cost': 0.01,
        'agent.decay.names': ['learning_rate', 'entropy_cost'],
      }
    ),
  ),
  (
    'pgx:',
    Settings(
      {
        'max_num_actor_steps': 4_000_000,
        'num_environments': 128,
        'eval_every': 1_000_000,
        'num_eval_episodes': 200,
      },
      {
        'agent.sequence_length': 16,
        'agent.num_epochs': 2,
        'agent.num_minibatches': 4,
        'agent.discount': 1.0,
        'agent.entropy_cost': 0.03,
      },
      decays=True,
    ),
  ),
  ('pgx:kuhn_poker', _POKER),
  ('pgx:leduc_holdem', _POKER),
  ('mpe2:', _GAME),
  (
    'mpe2:',
    Settings(
      {
        'max_num_actor_steps': 300_000,
        'num_environments': 32,
        'eval_every': 100_000,
        'num_members': 2,
      },
      {'agent.discount': 0.95, 'agent.normalize_returns': True},
    ),
  ),
  ('mpe2:simple_spread', Settings({'num_members': 1})),
  ('jaxmarl:', _GAME),
  (
    'jaxmarl:',
    Settings(
      {'max_num_actor_steps': 300_000, 'eval_every': 100_000},
      {'agent.normalize_returns': True},
    ),
  ),
  # Updates of few steps, as of other games, soon stop exploring: after 2M steps
  # 0.89 of games of smax_3m are won, with those 0.81 to 0.84.
  (
    'jaxmarl:smax',
    Settings(
      {'max_num_actor_steps': 6_000_000, 'eval_every': 2_000_000},
      {
        'agent.learning_rate': 2e-3,
        'agent.sequence_length': 128,
        'agent.num_minibatches': 8,
      },
    ),
  ),
  ('jaxmarl:MPE', Settings(fields={'agent.discount': 0.95})),
  (
    'jaxmarl:overcooked',
    Settings(
      {
        'max_num_actor_steps': 1_500_000,
        'eval_every': 500_000,
        'num_eval_episodes': 10,
      },
      {
        'agent.sequence_length': 64,
        'agent.torso.entries': {'': 'mlp'},
        'steps_per_round': 2048,
      },
    ),
  ),
  ('craftax:', _GAME),
  (
    'craftax:',
    Settings(
      {'num_eval_episodes': 64},
      {
        'agent.sequence_length': 32,
        'agent.num_epochs': 2,
        'steps_per_round': 1024,
      },
    ),
  ),
  (
    'craftax:Craftax-Symbolic',
    Settings(
      {'eval_every': 0},
      {
        'agent.core': 'gru',
        'agent.sequence_length': 64,
        'agent.num_epochs': 4,
        'agent.num_minibatches': 8,
        'agent.discount': 0.95,
        'agent.gae_lambda': 0.8,
        'agent.max_gradient_norm': 1.0,
        'steps_per_round': 2048,
      },
    ),
  ),
)

# What `ftwax list tasks` prints: tasks whose settings were tried.
TASKS = (
  'CartPole-v1',
  'Pendulum-v1',
  'Hopper-v5',
  'gymnax:Breakout-MinAtar',
  'brax:inverted_pendulum',
  'brax:inverted_double_pendulum',
  'playground:CartpoleBalance',
  'playground:CartpoleSwingup',
  'playground:PendulumSwingup',
  'playground:CheetahRun',
  'pgx:connect_four',
  'pgx:kuhn_poker',
  'pgx:leduc_holdem',
  'mpe2:simple_spread',
  'mpe2:simple_adversary',
  'mpe2:simple_tag',
  'jaxmarl:MPE_simple_spread_v3',
  'jaxmarl:overcooked',
  'jaxmarl:smax_3m',
  'craftax:Craftax-Classic-Symbolic-v1',
  'craftax:Craftax-Symbolic-v1',
)


def find(name: str, is_continuous: bool = False) -> Settings:
  """Returns the settings of a task; none for one that has no row.

  Args:
    name: name of the environment.
    is_continuous: whether its actions are vectors.
  """
  rows = [row for start, row in _ROWS if name.startswith(start)]
  if is_continuous and not name.startswith(('brax:', 'playground:')):
    rows = [CONTINUOUS, *rows]
  flags: dict[str, Any] = {}
  fields: dict[str, Any] = {}
  for row in rows:
    flags.update(row.flags)
    fields.update(row.fields)
  presets = [row.preset for row in rows if row.preset]
  return Settings(
    flags, fields, any(row.decays for row in rows), (*presets, '')[0]
  )


def describe(settings: Settings) -> list[str]:
  """Returns settings as words of a command line, wrapped to lines."""
  words = [f'PPOConfig.{settings.preset}()'] if settings.preset else []
  words += [f'--{name}={value}' for name, value in settings.flags.items()]
  words += [f'{path}={value}' for path, value in settings.fields.items()]
  if settings.decays:
    words.append('decayed over the run')
  lines = textwrap.wrap(
    ', '.join(word.replace(' ', '\0') for word in words),
    78,
    break_long_words=False,
    break_on_hyphens=False,
    initial_indent='  ',
    subsequent_indent='  ',
  )
  return [line.replace('\0', ' ') for line in lines]
