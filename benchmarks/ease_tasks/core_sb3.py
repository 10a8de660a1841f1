import gymnasium
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
import rlax

NUM_ENVS, NUM_STEPS, NUM_EPOCHS, TOTAL = 8, 64, 10, 10_000


class BottleneckGRU(hk.Module):
  def __init__(self):
    super().__init__()
    self._squeeze = hk.Linear(32)
    self._gru = hk.GRU(64)
    self._policy = hk.Linear(2)
    self._value = hk.Linear(1)

  def initial_state(self, batch_size):
    return self._gru.initial_state(batch_size)

  def __call__(self, observation, is_first, state):
    state = jnp.where(is_first[:, None], 0.0, state)
    features = jax.nn.relu(self._squeeze(observation))
    features, state = self._gru(features, state)
    return (self._policy(features), self._value(features)[:, 0]), state


def forward(observation, is_first, state):
  return BottleneckGRU()(observation, is_first, state)


def unroll(observations, is_first, state):
  core = BottleneckGRU()

  def step(state, inputs):
    output, state = core(*inputs, state)
    return state, output

  return hk.scan(step, state, (observations, is_first))[1]


forward = hk.without_apply_rng(hk.transform(forward))
unroll = hk.without_apply_rng(hk.transform(unroll))
optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-3))
envs = gymnasium.make_vec('CartPole-v1', NUM_ENVS)


@jax.jit
def act(params, key, observation, is_first, state):
  (logits, value), state = forward.apply(params, observation, is_first, state)
  action = jax.random.categorical(key, logits)
  log_prob = rlax.softmax().logprob(action, logits)
  return action, log_prob, value, state


def loss_fn(params, state, data, last_value):
  logits, values = unroll.apply(
    params, data['observation'], data['is_first'], state
  )
  all_values = jnp.concatenate([data['value'], last_value[None]])
  advantages = jax.vmap(
    rlax.truncated_generalized_advantage_estimation,
    in_axes=(1, 1, None, 1),
    out_axes=1,
  )(data['reward'], data['discount'], 0.95, all_values)
  # The step that resets an environment is none of the task.
  mask = 1.0 - data['is_last']
  targets = advantages + data['value']
  advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
  log_probs = rlax.softmax().logprob(data['action'], logits)
  ratios = jnp.exp(log_probs - data['log_prob'])
  clipped = jnp.clip(ratios, 0.8, 1.2)
  surrogate = jnp.minimum(ratios * advantages, clipped * advantages)
  entropy = rlax.softmax().entropy(logits)
  losses = 0.5 * jnp.square(values - targets) - surrogate - 0.01 * entropy
  return jnp.mean(mask * losses)


@jax.jit
def update(params, opt_state, state, data, last_value):
  def epoch(carry, _):
    params, opt_state = carry
    gradients = jax.grad(loss_fn)(params, state, data, last_value)
    updates, opt_state = optimizer.update(gradients, opt_state)
    return (optax.apply_updates(params, updates), opt_state), None

  return jax.lax.scan(epoch, (params, opt_state), length=NUM_EPOCHS)[0]


key = jax.random.PRNGKey(0)
observation, _ = envs.reset(seed=0)
is_first = np.ones(NUM_ENVS, bool)
state = jnp.zeros((NUM_ENVS, 64))
params = forward.init(key, observation, is_first, state)
opt_state = optimizer.init(params)
returns, totals = [], np.zeros(NUM_ENVS)
for _ in range(TOTAL // (NUM_ENVS * NUM_STEPS)):
  first_state, rows = state, []
  for _ in range(NUM_STEPS):
    key, action_key = jax.random.split(key)
    action, log_prob, value, state = act(
      params, action_key, observation, is_first, state
    )
    following, reward, ended, cut, _ = envs.step(np.asarray(action))
    rows.append(
      {
        'observation': observation,
        'is_first': is_first,
        'action': action,
        'log_prob': log_prob,
        'value': value,
        'reward': reward.astype(np.float32),
        'discount': 0.99 * (1.0 - ended).astype(np.float32),
        'is_last': np.zeros(NUM_ENVS, np.float32),
      }
    )
    totals += reward
    done = ended | cut
    returns.extend(totals[done])
    totals[done] = 0.0
    observation, is_first = following, done
  data = jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)
  last_value = act(params, key, observation, is_first, state)[2]
  params, opt_state = update(params, opt_state, first_state, data, last_value)
print(np.mean(returns[-20:]))
