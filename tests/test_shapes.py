"""A wrong shape among arguments is named, and nothing is broadcast."""

import importlib
import inspect
import pkgutil
import types as python_types

import dm_env
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax import (
  continuous,
  distributions,
  losses,
  population,
  shapes,
  trees,
  types,
)
from ftwax.losses import (
  advantage_actor_critic,
  clipped_surrogate,
  cloning,
  latent_kl,
  pixel_control,
  policy_loss,
  q_learning,
  returns,
  reward_prediction,
  rollouts,
  v_trace,
  value_replay,
)
from ftwax.networks import associative, recurrence, recurrent_cores
from ftwax.networks.dnc import addressing, linkage
from ftwax.population import (
  evolution,
  matchmaking,
  payoff,
  population_config,
  rankings,
  ratings,
  seating,
  selection,
  state,
  win_rates,
)
from ftwax.replay.functional import prioritized

T, B, N, R, H, W, K = 4, 3, 5, 2, 2, 6, 3


class _Hyperparameters:
  gae_lambda = 0.9
  clip_epsilon = 0.2
  value_clip = np.inf
  q_lambda = 0.9
  n_step = 2
  rescaling = 1e-3
  huber_delta = 1.0
  replay = python_types.SimpleNamespace(max_error_share=0.9)


def _ones(*shape):
  return jnp.full(shape, 0.5)


def _transitions(prefix=(T,)):
  values = {
    name: _ones(*prefix)
    for name in ('v_tm1', 'v_t', 'r_t', 'discount_t', 'mask_tm1')
  }
  return policy_loss.Transitions(
    logits_tm1=_ones(*prefix, 2),
    behaviour_logits_tm1=_ones(*prefix, 2),
    a_tm1=jnp.zeros(prefix, jnp.int32),
    **values,
  )


def _on_transitions(loss, prefix=(T,), *arguments):
  """Returns a function of the fields of transitions, and these."""
  fields = _transitions(prefix)._asdict()
  del fields['targets']

  def function(**fields):
    return loss(policy_loss.Transitions(**fields), *arguments)

  return function, fields


def _pixel_control(action_values, frames, discount, step_type, previous_action):
  timestep = dm_env.TimeStep(step_type, None, discount, None)
  trajectory = types.Trajectory(
    timestep, previous_action, None, None, None, None
  )
  return pixel_control.pixel_control_loss(action_values, frames, trajectory)


def _latent_kl(loc, next_loc, scale, next_scale, tick, next_tick):
  return latent_kl.latent_kl(
    (loc, next_loc), (scale, next_scale), (tick, next_tick)
  )


def _unroll_step(inputs, start, state):
  unroll = hk.transform(
    lambda: recurrence.unroll_step(lambda x, h: (x, h), inputs, start, state)
  )
  return unroll.apply({}, None)


def _q_learning_loss(**fields):
  targets = q_learning.QTargets(
    fields.pop('target_logits'), fields.pop('weight')
  )
  transitions = policy_loss.Transitions(**fields, targets=targets)
  return q_learning.q_learning_loss(transitions, _Hyperparameters())


def _on_population(function, *arguments):
  """Returns the function with a population as its first argument."""

  def init(key):
    fields = dict.fromkeys(types.TrainingState._fields, ())
    return types.TrainingState(**{**fields, 'params': _ones(2), 'key': key})

  def on_population(**fields):
    made = state.init(jax.random.PRNGKey(0), init, _SIZES, team_size=1)
    return function(made, **fields, **dict(arguments))

  return on_population


def _payoff_update(scores, **arguments):
  return payoff.update(payoff.init(N), scores=scores, **arguments)


_HYPERS = _Hyperparameters()
_SIZES = population_config.PopulationConfig(N)
_STREAM = {
  name: _ones(T) for name in ('v_tm1', 'v_t', 'r_t', 'discount_t', 'rho_tm1')
}
# By the name of the function: itself, and arguments that it takes. A number
# stands for a hyperparameter, which must be one.
CASES = {
  'accumulate': (
    returns.accumulate,
    {'offset_t': _ones(T, B), 'factor_t': _ones(T, B)},
  ),
  'lambda_returns': (
    returns.lambda_returns,
    {
      'r_t': _ones(T),
      'discount_t': _ones(T),
      'v_t': _ones(T),
      'mask_tm1': _ones(T),
      'lambda_': 0.9,
    },
  ),
  'generalized_advantages': (
    returns.generalized_advantages,
    {
      'v_tm1': _ones(T),
      'v_t': _ones(T),
      'r_t': _ones(T),
      'discount_t': _ones(T),
      'mask_tm1': _ones(T),
      'lambda_': 0.9,
    },
  ),
  'vtrace': (
    v_trace.vtrace,
    {
      **_STREAM,
      'lambda_': 0.9,
      'clip_rho_threshold': 1.0,
      'clip_pg_rho_threshold': 1.0,
    },
  ),
  'vtrace_loss': _on_transitions(v_trace.vtrace_loss, (T,), _HYPERS),
  'advantage_actor_critic_loss': _on_transitions(
    advantage_actor_critic.advantage_actor_critic_loss, (T,), _HYPERS
  ),
  'ppo_loss': _on_transitions(clipped_surrogate.ppo_loss, (T,), _HYPERS),
  'make_targets': _on_transitions(
    clipped_surrogate.make_targets, (T, B), _HYPERS
  ),
  'q_learning_loss': (
    _q_learning_loss,
    {
      **_on_transitions(None)[1],
      'logits_t': _ones(T, 2),
      'target_logits': _ones(T, 2),
      'weight': _ones(T),
    },
  ),
  'q_lambda_loss': _on_transitions(q_learning.q_lambda_loss, (T,), _HYPERS),
  'td_errors': (
    q_learning.td_errors,
    {
      'logits_tm1': _ones(T, 2),
      'a_tm1': jnp.zeros(T, jnp.int32),
      'target_tm1': _ones(T),
    },
  ),
  'double_q_values': (
    q_learning.double_q_values,
    {'logits_t': _ones(T, 2), 'target_logits_t': _ones(T, 2)},
  ),
  'n_step_returns': (
    q_learning.n_step_returns,
    {
      'r_t': _ones(T),
      'discount_t': _ones(T),
      'v_t': _ones(T),
      'mask_tm1': _ones(T),
      'n': 2,
    },
  ),
  'huber': (q_learning.huber, {'error': _ones(T), 'delta': 1.0}),
  'priority': (
    q_learning.priority,
    {'error': _ones(T), 'mask': jnp.ones(T, bool), 'max_error_share': 0.9},
  ),
  'rescale': (q_learning.rescale, {'x': _ones(T), 'epsilon': 1e-3}),
  'unscale': (q_learning.unscale, {'x': _ones(T), 'epsilon': 1e-3}),
  'cloning_loss': (
    cloning.cloning_loss,
    {
      'log_prob': _ones(T, B),
      'advantage': _ones(T, B),
      'mask': _ones(T, B),
      'scale': 1.0,
    },
  ),
  'lstm_cell': (
    lambda gates, cell, weights: recurrent_cores.lstm_cell(
      gates, cell, weights=weights
    ),
    {'gates': _ones(B, 4 * K), 'cell': _ones(B, K), 'weights': _ones(B, K)},
  ),
  'layer_norm_lstm_cell': (
    lambda gates, cell, gain, shift, weights: (
      recurrent_cores.layer_norm_lstm_cell(
        gates, cell, gain, shift, weights=weights
      )
    ),
    {
      'gates': _ones(B, 4 * K),
      'cell': _ones(B, K),
      'gain': _ones(5, K),
      'shift': _ones(5, K),
      'weights': _ones(B, K),
    },
  ),
  'value_replay_loss': (
    lambda **fields: value_replay.value_replay_loss(
      _transitions()._replace(**fields)
    ),
    {
      name: _ones(T)
      for name in ('v_tm1', 'v_t', 'r_t', 'discount_t', 'mask_tm1')
    },
  ),
  'normalize_advantages': (
    policy_loss.normalize_advantages,
    {'advantages': _ones(T), 'weights': _ones(T)},
  ),
  'normal_kl': (
    latent_kl.normal_kl,
    {
      'loc_p': _ones(T, K),
      'scale_p': _ones(T, K),
      'loc_q': _ones(T, K),
      'scale_q': _ones(T, K),
    },
  ),
  'latent_kl': (
    _latent_kl,
    {
      'loc': _ones(T, K),
      'next_loc': _ones(T, K),
      'scale': _ones(T, K),
      'next_scale': _ones(T, K),
      'tick': jnp.ones(T, bool),
      'next_tick': jnp.ones(T, bool),
    },
  ),
  'pixel_control_loss': (
    _pixel_control,
    {
      'action_values': _ones(T, 2, 2, 3),
      'frames': _ones(T, 8, 8),
      'discount': _ones(T),
      'step_type': jnp.ones(T, jnp.int32),
      'previous_action': jnp.zeros(T, jnp.int32),
    },
  ),
  'reward_prediction_loss': (
    reward_prediction.reward_prediction_loss,
    {'logits': _ones(B, 3), 'reward': _ones(B), 'threshold': 0.1},
  ),
  'pad': (
    lambda **fields: rollouts.pad(_transitions()._replace(**fields), 8),
    {'v_tm1': _ones(T), 'mask_tm1': _ones(T)},
  ),
  'log_prob': (
    distributions.log_prob,
    {'logits': _ones(T, B, 2), 'action': jnp.zeros((T, B), jnp.int32)},
  ),
  'kl_divergence': (
    distributions.kl_divergence,
    {'logits_p': _ones(T, 2), 'logits_q': _ones(T, 2)},
  ),
  'Normal.log_prob': (
    lambda loc, log_scale, value: continuous.Normal(loc, log_scale).log_prob(
      value
    ),
    {'loc': _ones(T, K), 'log_scale': _ones(T, K), 'value': _ones(T, K)},
  ),
  'Dirichlet.log_prob': (
    lambda logits, value: continuous.Dirichlet(logits).log_prob(value),
    {'logits': _ones(T, K), 'value': _ones(T, K)},
  ),
  'where_rows': (
    trees.where_rows,
    {
      'mask': jnp.ones(B, bool),
      'on_true': _ones(B, K),
      'on_false': _ones(B, K),
    },
  ),
  'reset_state': (
    recurrence.reset_state,
    {'start': jnp.ones(B, bool), 'state': _ones(B, K)},
  ),
  'unroll_step': (
    _unroll_step,
    {
      'inputs': _ones(T, B, K),
      'start': jnp.zeros((T, B), bool),
      'state': _ones(B, K),
    },
  ),
  'associative.unroll': (
    lambda elements, start, state: associative.unroll(
      lambda one, other: one + other, elements, start, state
    ),
    {
      'elements': _ones(T, B, K),
      'start': jnp.zeros((T, B), bool),
      'state': _ones(B, K),
    },
  ),
  'content_weights': (
    addressing.content_weights,
    {
      'memory': _ones(B, N, W),
      'keys': _ones(B, R, W),
      'strengths': _ones(B, R),
      'masks': _ones(B, R, W),
    },
  ),
  'retention': (
    addressing.retention,
    {'free_gates': _ones(B, R), 'read_weights_tm1': _ones(B, R, N)},
  ),
  'usage': (
    addressing.usage,
    {
      'usage_tm1': _ones(B, N),
      'write_weights_tm1': _ones(B, H, N),
      'retention_t': _ones(B, N),
    },
  ),
  'write_allocation': (
    addressing.write_allocation,
    {'usage_t': _ones(B, N), 'write_gates': _ones(B, H)},
  ),
  'write_weights': (
    addressing.write_weights,
    {
      'write_gates': _ones(B, H),
      'allocation_gates': _ones(B, H),
      'allocation_t': _ones(B, H, N),
      'content_t': _ones(B, H, N),
    },
  ),
  'write': (
    addressing.write,
    {
      'memory_tm1': _ones(B, N, W),
      'write_weights_t': _ones(B, H, N),
      'erase': _ones(B, H, W),
      'vectors': _ones(B, H, W),
    },
  ),
  'read': (
    addressing.read,
    {'memory_t': _ones(B, N, W), 'read_weights_t': _ones(B, R, N)},
  ),
  'sharpen': (
    addressing.sharpen,
    {'weights': _ones(B, N), 'sharpness': _ones(B)},
  ),
  'update_precedence': (
    linkage.update_precedence,
    {'precedence_tm1': _ones(B, N), 'write_weights_t': _ones(B, N)},
  ),
  'update_link': (
    linkage.update_link,
    {
      'link_tm1': _ones(B, N, N),
      'write_weights_t': _ones(B, N),
      'precedence_tm1': _ones(B, N),
    },
  ),
  'directional_reads': (
    linkage.directional_reads,
    {'link_t': _ones(B, N, N), 'read_weights_tm1': _ones(B, R, N)},
  ),
  'win_probability': (
    ratings.win_probability,
    {'ratings': _ones(N), 'multiplicities': _ones(T, N)},
  ),
  'pairwise_win_probability': (
    ratings.pairwise_win_probability,
    {'ratings': _ones(N), 'team_size': 2, 'handicap': 1.0},
  ),
  'ratings.update': (
    ratings.update,
    {
      'ratings': _ones(N),
      'multiplicities': _ones(K, N),
      'scores': _ones(K),
      'k_factor': 1.0,
    },
  ),
  'update_in_turn': (
    ratings.update_in_turn,
    {
      'ratings': _ones(N),
      'multiplicities': _ones(T, K, N),
      'scores': _ones(T, K),
      'k_factors': _ones(T),
    },
  ),
  'fit': (
    ratings.fit,
    {'multiplicities': _ones(T, N), 'outcomes': _ones(T)},
  ),
  'fit_to_opponents': (
    win_rates.fit_to_opponents,
    {'scores': np.ones((R, K)), 'games': np.ones((R, K))},
  ),
  'copy_rows': (
    _on_population(evolution.copy_rows),
    {'parent': jnp.arange(N), 'is_redrawn': jnp.zeros(N, bool)},
  ),
  'record_games': (
    _on_population(state.record_games, ('teams', (0, 1)), ('config', _SIZES)),
    {
      'seats': jnp.zeros((T, 2), jnp.int32),
      'outcomes': _ones(T, 2),
      'is_played': jnp.ones(T, bool),
    },
  ),
  'record_returns': (
    _on_population(state.record_returns),
    {'returns': _ones(N, K), 'is_done': jnp.ones((N, K), bool)},
  ),
  'draw_seats': (
    lambda log_density: seating.draw_seats(
      jax.random.PRNGKey(0), log_density, seating.make_seating((0, 1), 2, 4)
    ),
    {'log_density': _ones(2, 2)},
  ),
  'payoff.update': (
    _payoff_update,
    {
      'counts': _ones(T, 2, N),
      'scores': _ones(T, 1),
      'is_played': jnp.ones(T, bool),
    },
  ),
  'forget': (
    lambda is_forgotten: payoff.forget(payoff.init(N), is_forgotten),
    {'is_forgotten': jnp.ones(N, bool)},
  ),
  'nash_average': (
    rankings.nash_average,
    {'win_rates': np.full((N, N), 0.5)},
  ),
  'log_density': (
    matchmaking.log_density,
    {'ratings': _ones(N), 'deviation': 0.2},
  ),
  'welch_p_value': (
    selection.welch_p_value,
    {
      'high': _ones(N, K),
      'is_high': jnp.ones((N, K), bool),
      'low': _ones(N, R),
      'is_low': jnp.ones((N, R), bool),
    },
  ),
  'wilson_interval': (
    win_rates.wilson_interval,
    {'scores': np.ones((N, N)), 'games': np.ones((N, N))},
  ),
  'importance_weights': (
    prioritized.importance_weights,
    {
      'probability': _ones(B),
      'importance_exponent': 0.5,
      'is_valid': jnp.ones(B, bool),
    },
  ),
}

# Their arguments have no shape in common with others', or any shape.
_FREE = {
  'allocation',
  'batch_dot',
  'check_games',
  'check_transitions',
  'check_unroll',
  'clip_reward',
  'combine_affine',
  'count_candidates',
  'begins_candidate',
  'count_seats',
  'flatten',
  'grid_shape',
  'is_timestep',
  'log_prob_tm1',
  'make_mask',
  'make_plain_targets',
  'make_transitions',
  'multiplicities',
  'pair_scores',
  'pseudo_rewards',
  'reward_class',
  'times',
  'transposed_times',
}


_WRONG = {
  'an axis more': lambda x: x[..., None] if np.ndim(x) else np.full(T, x),
  'an axis of one': lambda x: x[:1] if np.ndim(x) else np.full(1, x),
}
# Nothing is wrong with these.
_FINE = {
  ('accumulate', 'offset_t', 'an axis more'),
  ('pad', 'v_tm1', 'an axis more'),
  ('pad', 'mask_tm1', 'an axis more'),
  ('pixel_control_loss', 'frames', 'an axis more'),
  ('reset_state', 'state', 'an axis more'),
  ('unroll_step', 'inputs', 'an axis more'),
  ('unroll_step', 'state', 'an axis more'),
  ('where_rows', 'on_true', 'an axis more'),
  ('where_rows', 'on_false', 'an axis more'),
  ('where_rows', 'on_true', 'an axis of one'),
  ('win_probability', 'multiplicities', 'an axis more'),
  ('win_probability', 'multiplicities', 'an axis of one'),
  ('pairwise_win_probability', 'ratings', 'an axis of one'),
  ('log_density', 'ratings', 'an axis of one'),
  ('importance_weights', 'probability', 'an axis of one'),
  ('huber', 'error', 'an axis more'),
  ('huber', 'error', 'an axis of one'),
  ('rescale', 'x', 'an axis more'),
  ('rescale', 'x', 'an axis of one'),
  ('unscale', 'x', 'an axis more'),
  ('unscale', 'x', 'an axis of one'),
}
_EACH = [
  (name, argument, fault)
  for name in CASES
  for argument in CASES[name][1]
  for fault in _WRONG
  if (name, argument, fault) not in _FINE
]


@pytest.mark.parametrize('name', CASES)
def test_agreed_shapes_are_taken(name):
  function, arguments = CASES[name]
  function(**arguments)


@pytest.mark.parametrize(('name', 'argument', 'fault'), _EACH)
def test_a_wrong_shape_is_named_and_not_broadcast(name, argument, fault):
  function, arguments = CASES[name]
  wrong = {**arguments, argument: _WRONG[fault](arguments[argument])}
  with pytest.raises(ValueError, match=r'must (have the shape|be)') as error:
    function(**wrong)
  # If it is the first one, it sets the sizes that the others must have.
  assert any(other in str(error.value) for other in arguments), error.value


def _modules(package):
  return [
    importlib.import_module(f'{package.__name__}.{module.name}')
    for module in pkgutil.iter_modules(package.__path__)
  ]


@pytest.mark.parametrize(
  'module',
  [*_modules(losses), *_modules(population), addressing, linkage],
)
def test_each_function_of_several_arrays_is_checked(module):
  checked = {name.rpartition('.')[2] for name in CASES} | _FREE
  for name, function in vars(module).items():
    if name.startswith('_') or not inspect.isfunction(function):
      continue
    annotations = list(inspect.get_annotations(function).values())[:-1]
    arrays = [one for one in annotations if 'Array' in str(one)]
    if function.__module__ == module.__name__ and len(arrays) > 1:
      assert name in checked, f'{module.__name__}.{name}'


def test_the_message_names_function_shape_sizes_and_remedy():
  arguments = {**CASES['vtrace'][1], 'r_t': _ones(T, 1)}
  with pytest.raises(
    ValueError,
    match=r'r_t of vtrace must have the shape \[T\] with T = 4, got \[4, 1\];'
    r' give it these axes, since nothing is broadcast',
  ):
    v_trace.vtrace(**arguments)


def test_a_density_of_other_members_is_refused():
  seats = seating.make_seating((0, 1), 2, 4)
  with pytest.raises(ValueError, match=r'log_density of draw_seats must have'):
    seating.draw_seats(jnp.zeros(2, jnp.uint32), _ones(1, 1), seats)


@pytest.mark.parametrize(
  ('words', 'shape'),
  [
    ('', ()),
    ('T', (4,)),
    ('N N', (3, 3)),
    ('2 _', (2, 7)),
    ('...', ()),
    ('...', (1, 2)),
    ('T ... K', (4, 1, 1, 2)),
    ('T ... K', (4, 2)),
  ],
)
def test_shapes_that_fit(words, shape):
  shapes.check('f', x=(np.zeros(shape), words))


@pytest.mark.parametrize(
  ('words', 'shape'),
  [
    ('', (1,)),
    ('T', ()),
    ('N N', (3, 4)),
    ('2 _', (3, 7)),
    ('T ... K', (4,)),
  ],
)
def test_shapes_that_do_not_fit(words, shape):
  with pytest.raises(ValueError, match='x of f must have the shape'):
    shapes.check('f', x=(np.zeros(shape), words))


def test_what_dots_stand_for_is_the_same_for_all():
  shapes.check('f', x=(np.zeros((2, 3)), '...'), y=(np.zeros((2, 3)), '...'))
  with pytest.raises(ValueError, match=r'y of f .* \.\.\. = \[2, 3\], got'):
    shapes.check('f', x=(np.zeros((2, 3)), '...'), y=(np.zeros((2, 1)), '...'))
