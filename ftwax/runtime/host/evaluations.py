"""Evaluations for runtimes whose actors run in Python."""

from collections.abc import Sequence

import jax

from ftwax.agents.acme import variables
from ftwax.environments import game_vectors
from ftwax.runtime import evaluation
from ftwax.runtime import experiment as experiment_lib
from ftwax.runtime.host import arena as arena_lib
from ftwax.runtime.host import game_loop, members, seeds


class Evaluator:
  """Evaluates all members with their newest variables."""

  def __init__(
    self,
    experiment: experiment_lib.ExperimentConfig,
    sources: Sequence[variables.VariableSource],
    num_episodes: int,
    entropy: tuple[int, ...],
  ):
    """Makes games and actors for all evaluations of a run.

    Args:
      experiment: an agent or a population, and its task.
      sources: variable source of each member; see `members.member_sources`.
      num_episodes: minimum number of episodes of each member in an evaluation.
      entropy: seeds games and actors, together with the experiment's seed.
    """
    builder = experiment.builder
    spec = experiment.read_game_spec()
    scripts = game_vectors.read_scripts(experiment.evaluation_factory)
    self._plan = plan = evaluation.make_plan(
      experiment, spec, scripts, num_episodes
    )
    own_seeds = seeds.make_seeds(
      (experiment.seed, *entropy), plan.seating.num_games
    )
    key = jax.random.PRNGKey(own_seeds[0])
    made = experiment.make_games(
      experiment.evaluation_factory, own_seeds, experiment.name
    )
    evaluation.check_spec(made.spec, spec)
    self._arena = arena_lib.Arena(
      made,
      plan.seating,
      list(plan.opponents.values()),
      key,
    )
    policy = builder.make_policy(
      experiment.agent.make_network(spec.environment),
      spec.environment,
      evaluation=experiment.evaluation_greedy,
    )
    self._actors = members.make_actors(
      builder,
      key,
      policy,
      sources,
      plan.seating.seats_per_member,
    )

  def run(self) -> evaluation.Outcome:
    """Plays the games of one evaluation."""
    return game_loop.play_plan(self._arena, self._actors, self._plan)

  def close(self) -> None:
    """Closes the games."""
    self._arena.close()
