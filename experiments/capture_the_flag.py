"""The main job: a small population of FTW agents learns capture the flag.

Run as `uv run experiments/capture_the_flag.py`. Members play two against two on
generated maps, against each other and beside each other, as matchmaking has it;
those that are beaten copy their betters, with other hyperparameters and
internal rewards. At the end all members meet scripted players in a tournament,
and `report.html` in the run's directory tells the whole story.
"""

import functools
from typing import Any

import jax
import numpy as np
from absl import flags

from ftwax import hyperparameters, types
from ftwax.agents import ftw
from ftwax.environments import capture_the_flag
from ftwax.environments.capture_the_flag import opponents
from ftwax.population import population_config as population_config
from ftwax.population import tournament as tournament_lib
from ftwax.reporting import population_curves, report, videos
from ftwax.runtime import experiment, launch, runs
from ftwax.runtime.device import tournament

launch.define_flags(
  max_num_actor_steps=10_000_000,
  num_environments=32,
  eval_every=0,
  runtime='device',
)
_NUM_MEMBERS = flags.DEFINE_integer('num_members', 4, 'Agents that evolve.')
_CORE = flags.DEFINE_enum('core', 'rpth', ftw.CORES, 'The recurrent core.')
_BURN_IN = flags.DEFINE_integer(
  'burn_in_games', 150, 'Games of a member between two chances to copy.'
)
_GAMES_PER_PAIR = flags.DEFINE_integer(
  'games_per_pair', 26, 'Games of each pair of players in the tournament.'
)

# The game's own walls and length, on wider maps.
_GAME = capture_the_flag.CaptureTheFlagConfig(height=11, width=15)


def make_game(seed: int):
  """Returns the game; its maps come from the run's key."""
  del seed
  return capture_the_flag.make(_GAME)


def make_config() -> ftw.FTWConfig:
  """Returns the agent, small enough for four of them on two cores."""
  config = ftw.FTWConfig(
    core=_CORE.value,
    policy_loss='ppo',
    use_pixel_control=False,
    use_reward_prediction=False,
    latent_noise_scale=0.0,
    sequence_length=32,
    batch_size=32,
    optimizer='adam',
    loss_reduction='mean',
    num_epochs=2,
    num_minibatches=4,
    num_events=len(capture_the_flag.EVENT_NAMES),
    internal_rewards_prior=_event_priors(),
  ).with_size(64)
  # The paper's settings, `FTWConfig.paper`, are for 2e9 steps. In a thousandth
  # of these one step an update on V-trace's loss left the policy uniform, and
  # with noise in the latents, or costs that hold them near their prior from the
  # first, it began later.
  return config.replace(
    priors=config.priors._replace(
      learning_rate=hyperparameters.LogUniform(5e-4, 2e-3),
      max_gradient_norm=hyperparameters.Constant(0.5),
      entropy_cost=hyperparameters.LogUniform(2e-3, 1e-2),
      kl_posterior_prior_cost=hyperparameters.LogUniform(1e-9, 1e-7),
      kl_prior_fixed_cost=hyperparameters.LogUniform(1e-9, 1e-7),
    )
  ).fix(pixel_control_cost=0.0, reward_prediction_cost=0.0)


def build_experiment() -> experiment.PopulationExperimentConfig:
  """Returns the experiment that the flags describe."""
  config = make_config()
  return experiment.PopulationExperimentConfig(
    name='capture_the_flag',
    builder=ftw.FTWBuilder(config),
    network_factory=functools.partial(ftw.make_network, config=config),
    environment_factory=make_game,
    population=population_config.PopulationConfig(
      num_members=_NUM_MEMBERS.value,
      num_players=_GAME.num_players,
      burn_in_games=_BURN_IN.value,
    ),
    steps_per_round=_GAME.num_steps,
    **launch.experiment_options(),
  )


def _event_priors() -> tuple[Any, ...]:
  """Returns what each event may be worth at first: its sign is known."""
  worth = {
    'i_captured_the_flag': (0.5, 1.0),
    'i_picked_up_the_flag': (0.1, 0.5),
    'i_returned_the_flag': (0.05, 0.3),
    'teammate_captured_the_flag': (0.0, 0.5),
    'opponent_captured_the_flag': (-0.5, 0.0),
    'i_tagged_opponent_with_flag': (0.05, 0.3),
    'i_tagged_opponent_without_flag': (0.0, 0.1),
    'i_was_tagged_with_flag': (-0.2, 0.0),
    'i_was_tagged_without_flag': (-0.1, 0.0),
  }
  return tuple(
    hyperparameters.Uniform(*worth.get(name, (-0.05, 0.05)))
    for name in capture_the_flag.EVENT_NAMES
  )


def finish(
  made: experiment.PopulationExperimentConfig, result: runs.RunResult
) -> None:
  """Plays the tournament, films a game and writes the report."""
  game = make_game(0)
  network = made.network_factory(game.spec)
  policy = made.builder.make_policy(network, game.spec)
  variables = types.actor_variables(result.state)
  scripts = {
    'random': tournament.make_random_script(game),
    **{
      name: opponents.make_script(name, _GAME) for name in opponents.STRENGTHS
    },
  }
  names = [f'member {i}' for i in range(made.population.num_members)]
  num_members, names = len(names), [*names, *scripts]
  key = jax.random.PRNGKey(made.seed)
  results = tournament.round_robin(
    key,
    game,
    policy,
    variables,
    scripts,
    _GAMES_PER_PAIR.value,
    _GAME.num_steps,
  )
  summary = tournament_lib.summarize(
    results.teams, results.outcomes, len(names), anchor=num_members
  )
  rating = np.mean(summary.ratings[:num_members])
  told = {
    'mean rating of members above the random player': (
      rating - summary.ratings[num_members]
    ),
    **{
      f'members win against {name}': np.mean(
        summary.win_rates[:num_members, num_members + index]
      )
      for index, name in enumerate(scripts)
    },
  }
  frames = tournament.film(
    key,
    game,
    policy,
    variables,
    functools.partial(capture_the_flag.render, config=_GAME, tile_size=32),
    np.argsort(-summary.ratings[:num_members])[:2],
    _GAME.num_steps,
  )
  videos.write_gif(result.run_dir / 'videos' / 'game.gif', frames)
  path = report.make_report(
    result.run_dir,
    report.ReportOptions(
      title='Capture the flag',
      results={name: f'{value:.2f}' for name, value in told.items()},
      event_names=capture_the_flag.EVENT_NAMES,
      log_scaled=population_curves.log_uniform_names(
        made.builder.config.priors
      ),
      anchors=dict(
        zip(scripts, summary.ratings[num_members:].tolist(), strict=True)
      ),
      player_names=names,
      win_rates=summary.win_rates,
      half_widths=0.5 * (summary.highs - summary.lows),
    ),
  )
  for name, value in told.items():
    print(f'{name}: {value:.2f}')
  print(f'Report: {path}')


if __name__ == '__main__':
  launch.run(build_experiment, finish)
