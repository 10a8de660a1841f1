"""Opponents that evaluations meet and training never."""

import functional_fakes
import jax
import numpy as np
import population_helpers
import pytest
import run_helpers

from ftwax import population
from ftwax.agents.actor_critic import acting
from ftwax.cli import launch
from ftwax.environments import capture_the_flag
from ftwax.inference import loading
from ftwax.population import players, population_config
from ftwax.records import loggers
from ftwax.reporting import evaluation_curves, report
from ftwax.runtime import evaluation, prepare

_KNOWS = players.scripted(functional_fakes.name_sign)
_WRONG = players.scripted(functional_fakes.name_other_sign)


def _make_game(seed):
  return population_helpers.make_game(seed)._replace(
    scripts={
      'knows': functional_fakes.name_sign,
      'is_wrong': functional_fakes.name_other_sign,
    }
  )


def _make_experiment(environment=_make_game, **options):
  options = {'num_environments': 16, 'max_num_actor_steps': 480, **options}
  return population_helpers.make_experiment(environment, **options)


def _counted(calls):
  """Returns a player that counts its steps."""

  def act(games, seats, timestep, state):
    jax.debug.callback(lambda: calls.append(1))
    return _WRONG.act(games, seats, timestep, state)

  return _WRONG._replace(act=act)


def test_evaluations_alone_have_seats_for_them():
  parts = prepare.prepare(
    _make_experiment(
      held_out=('knows', 'random'),
      opponents={'is_wrong': _WRONG},
    )
  )
  assert set(parts.opponents) == {'is_wrong'}
  assert parts.seating.opponents.max() == 0
  plan = evaluation.make_plan(parts, 6)
  assert list(plan.opponents) == ['random', 'knows', 'is_wrong']
  assert plan.held_out == ('knows', 'random')
  seated = set(plan.seats[plan.seating.opponents >= 0].tolist())
  assert seated == {4, 5, 6}


@pytest.mark.ci
@pytest.mark.parametrize('runtime', ['local', 'device'])
def test_training_never_meets_them(runtime, tmp_path):
  run = run_helpers.make_run(runtime, tmp_path)
  calls = []
  experiment = _make_experiment(
    held_out={'counted': _counted(calls)}, opponents={'knows': _KNOWS}
  )
  result = run(experiment, 'unmet', eval_every=10**9)
  jax.effects_barrier()
  assert result.counts.actor_steps == 480 and not calls
  result = run(experiment, 'met', eval_every=480, num_eval_episodes=8)
  jax.effects_barrier()
  assert calls
  row = loggers.read_jsonl(loggers.log_path(result.run_dir, 'evaluation'))[-1]
  assert row['held_out_score'] == row['scores/counted'] > 0.5
  assert row['held_out_score'] > row['scores/knows']
  found = evaluation_curves.read(result.run_dir)
  assert found.held_out == ('counted',)
  means, lows, highs = found.held_out_scores[:, -1]
  np.testing.assert_allclose(means.mean(), row['held_out_score'])
  assert (lows < means).all() and (means <= highs).all()
  text = report.make_report(result.run_dir).read_text('utf-8')
  assert 'Against counted, never met in training, members score' in text
  # It is the first figure, and the first section.
  assert text.index('Score against counted') < text.index('"kind":"lines"') + 80
  assert text.index('<h2') == text.index(
    '<h2 id="strength-against-held-out-opponents">'
  )


@pytest.mark.slow
def test_members_of_other_runs_are_held_out(tmp_path):
  run = run_helpers.make_run('device', tmp_path)
  first = run(_make_experiment(), 'first')
  word = f'{first.run_dir}@2'
  found = launch.find_held_out([word, 'knows'])
  assert found['knows'] == 'knows'
  result = run(
    _make_experiment(held_out=found), eval_every=480, num_eval_episodes=6
  )
  row = loggers.read_jsonl(loggers.log_path(result.run_dir, 'evaluation'))[-1]
  np.testing.assert_allclose(
    row['held_out_score'], (row[f'scores/{word}'] + row['scores/knows']) / 2
  )
  # The same agent is known if it is greedy or its folder is another.
  loading.export(first.run_dir, tmp_path / 'shared')
  twin = loading.load(tmp_path / 'shared', 2).player
  with pytest.raises(ValueError, match=r"among the opponents \('twin'\)"):
    prepare.prepare(_make_experiment(held_out=found, opponents={'twin': twin}))
  other = loading.load(first.run_dir, 1).player
  prepare.prepare(_make_experiment(held_out=found, opponents={'other': other}))
  with pytest.raises(ValueError, match=r'member \(9\) must be from 0 to 3'):
    launch.find_held_out([f'{first.run_dir}@9'])


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    (
      {'held_out': ('knows',), 'opponents': {'knows': _WRONG}},
      r"held_out \('knows'\) must never be met in training, and is among the"
      r" opponents \('knows'\) with an opponent_share of 0.5; leave it out",
    ),
    (
      {
        'held_out': ('knows',),
        'opponents': {
          'strong': players.scripted(functional_fakes.name_sign),
        },
      },
      r"among the opponents \('strong'\)",
    ),
    (
      {'held_out': ('random',), 'opponents': {'any': players.uniform}},
      r"among the opponents \('any'\)",
    ),
    (
      {'held_out': ('no',)},
      r"held_out \('no'\) must be a script .* \['random', 'knows', 'is_wr",
    ),
    (
      {
        'held_out': {
          'flag': _WRONG._replace(environment_spec=capture_the_flag.make().spec)
        }
      },
      r"player 'flag' must be trained in a game with the ",
    ),
    (
      {
        'held_out': ('random',),
        'environment': lambda seed: functional_fakes.make_matching(),
        'population': population_config.PopulationConfig(1, exploits=False),
      },
      r'held_out \(random\) must be empty in a game of one team \(0,\)',
    ),
  ],
)
def test_bad_opponents_are_told_in_a_line(options, message):
  with pytest.raises(ValueError, match=message) as error:
    prepare.prepare(_make_experiment(**options))
  assert '\n' not in str(error.value)


def test_opponents_without_games_of_training_may_be_held_out():
  experiment = _make_experiment(
    held_out=('knows',), opponents={'knows': _KNOWS}, opponent_share=0.0
  )
  plan = evaluation.make_plan(prepare.prepare(experiment), 6)
  assert list(plan.opponents) == ['random', 'knows', 'is_wrong']


def test_a_run_without_evaluations_never_meets_them(tmp_path):
  with pytest.raises(ValueError, match=r'eval_every \(None\) must be set with'):
    run_helpers.make_run('auto', tmp_path)(
      _make_experiment(held_out=('knows',))
    )


def test_scripts_of_one_maker_are_told_apart():
  def make(game, strength):
    script = game.scripts[strength]
    return players.identify(population.scripted_player(script))

  small, large = (
    capture_the_flag.make(
      capture_the_flag.CaptureTheFlagConfig(num_steps=steps)
    )
    for steps in (10, 20)
  )
  assert make(small, 'tactician') == make(large, 'tactician')
  assert make(small, 'tactician') != make(small, 'attacker')


def test_players_by_rules_are_told_apart():
  def make(action):
    return players.identify(players.observing(lambda key, seen: action))

  assert make(1) == make(1)
  assert make(1) != make(2)


@pytest.mark.parametrize(
  ('word', 'message'),
  [
    ('runs/a@best', r'held_out \(runs/a@best\) must end in the number .*@0'),
    ('nowhere@0', r"source \('nowhere'\) must be the directory of a run"),
  ],
)
def test_words_that_name_no_member(word, message):
  with pytest.raises(ValueError, match=message):
    launch.find_held_out([word])


def test_agents_are_told_apart_by_their_arrays():
  spec = population_helpers.make_game(0).spec
  actor = acting.make_actor_core(
    population_helpers.CONFIG.make_network(spec), spec
  )
  one, same, other = (
    players.identify(players.frozen(actor, {'w': np.array(values)}, spec))
    for values in ([1.0, 2.0], [1.0, 2.0], [1.0, 3.0])
  )
  assert one == same != other
