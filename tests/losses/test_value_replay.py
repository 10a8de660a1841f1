import jax
import jax.numpy as jnp
import loss_streams
import numpy as np

from ftwax.losses import value_replay

T = 9


def test_loss_and_gradient_equal_the_oracle():
  for seed in range(4):
    transitions = loss_streams.random_transitions(seed, T)
    targets = loss_streams.returns_by_definition(
      *map(
        np.asarray,
        (
          transitions.r_t,
          transitions.discount_t,
          transitions.v_t,
          transitions.mask_tm1,
        ),
      ),
      T,
    )
    errors = transitions.mask_tm1 * (transitions.v_tm1 - targets)
    np.testing.assert_allclose(
      value_replay.value_replay_loss(transitions), 0.5 * errors**2, atol=1e-5
    )

    def loss(values, transitions=transitions):
      replaced = transitions._replace(v_tm1=values[:-1], v_t=values[1:])
      return jnp.sum(value_replay.value_replay_loss(replaced))

    values = jnp.append(transitions.v_tm1, transitions.v_t[-1])
    gradient = jax.grad(loss)(values)
    np.testing.assert_allclose(gradient[:-1], errors, atol=1e-5)
    assert gradient[-1] == 0.0
