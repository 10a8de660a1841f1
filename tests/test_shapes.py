"""A wrong shape among arguments is named, and nothing is broadcast."""

import inspect

import dm_env
import haiku as hk
import jax.numpy as jnp
import numpy as np
import pytest

from ftwax import continuous, distributions, shapes, trees, types
from ftwax.losses import (
  advantage_actor_critic,
  clipped_surrogate,
  latent_kl,
  pixel_control,
  policy_loss,
  returns,
  reward_prediction,
  rollouts,
  v_trace,
  value_replay,
)
from ftwax.networks import associative, recurrence
from ftwax.networks.dnc import addressing, linkage
from ftwax.population import (
  matchmaking,
  payoff,
  rankings,
  ratings,
  seating,
  selection,
  tournament,
  win_rates,
)
from ftwax.replay.functional import prioritized

T, B, N, R, H, W, K = 4, 3, 5, 2, 2, 6, 3


class _Hyperparameters:
  gae_lambda = 0.9
  clip_epsilon = 0.2
  value_clip = np.inf


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


def _payoff_update(scores, **arguments):
  return payoff.update(payoff.init(N), scores=scores, **arguments)


_HYPERS = _Hyperparameters()
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


@pytest.mark.parametrize(
  'module',
  [
    advantage_actor_critic, clipped_surrogate, latent_kl, pixel_control,
    policy_loss, returns, reward_prediction, rollouts, v_trace, value_replay,
    addressing, linkage, matchmaking, payoff, rankings, ratings, selection,
    tournament,
  ],
)  # fmt: skip
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
