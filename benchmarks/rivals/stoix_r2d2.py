# /// script
# requires-python = "==3.12.*"
# dependencies = [
#   "chex==0.1.89", "colorama", "distrax==0.1.5", "flashbax==0.1.3",
#   "flax==0.10.5", "gymnax==0.0.9", "hydra-core==1.3.2", "jax==0.5.3",
#   "jaxlib==0.5.3", "numpy==1.26.4", "optax==0.2.6", "rlax==0.1.6",
#   "setuptools<81", "stoa-env==0.1.2", "tensorflow-probability==0.25.0",
# ]
#
# [tool.uv]
# exclude-newer = "2026-11-14T00:00:00Z"
# ///
"""The rival: Stoix's `rec_r2d2`, from a clone, with its default settings.

Only the number of environments and the width of the network are not its own.
The greedy policy is scored by its evaluator in 200 episodes, after each tenth
of the run. Steps before learning count. CPU seconds are those of training
alone, without its first two parts, which both compile.
"""

import argparse
import contextlib
import json
import resource
import sys
import types

NUM_PARTS = 10
NUM_EPISODES = 200
NUM_ENVS = 16
TASKS = {
  'cart_pole': ('CartPole-v1', {}),
  'cart_pole_hidden': ('CartPole-v1', {}),
  'chain_15': ('MemoryChain-bsuite', {'memory_length': 15}),
}


def import_stoix(path):
  """Imports a clone; what logs, saves or plays other games is empty."""
  sys.path.insert(0, path)
  empty = {
    'stoix.utils.logger': ('LogEvent', 'StoixLogger'),
    'stoix.utils.checkpointing': ('Checkpointer',),
    'stoix.utils.env_factory': ('EnvFactory',),
    'stoix.wrappers.jax_to_factory': ('JaxEnvFactory',),
  }
  for name, classes in empty.items():
    module = types.ModuleType(name)
    for each in classes:
      setattr(module, each, type(each, (), {}))
    sys.modules[name] = module
  from stoix.systems.q_learning import rec_r2d2

  return rec_r2d2


def hide(env):
  """Returns CartPole with position and angle alone, which needs a memory."""
  from stoa import ArraySpace
  from stoa.core_wrappers.wrapper import Wrapper

  class Hidden(Wrapper):
    def reset(self, rng_key, env_params=None):
      return self._hide(self._env.reset(rng_key, env_params))

    def step(self, state, action, env_params=None):
      return self._hide(self._env.step(state, action, env_params))

    def _hide(self, result):
      state, timestep = result
      return state, timestep.replace(observation=timestep.observation[::2])

    def observation_space(self, env_params=None):
      space = self._env.observation_space(env_params)
      return ArraySpace(shape=(2,), dtype=space.dtype)

  return Hidden(env)


def make_config(path, task, seed, width):
  """Returns the config that its program composes, with our budget."""
  import hydra
  from omegaconf import OmegaConf

  name, kwargs = TASKS[task]
  overrides = [
    f'arch.total_num_envs={NUM_ENVS}',
    f'arch.num_eval_episodes={NUM_EPISODES}',
    f'arch.seed={seed}',
    f'env.scenario.name={name}',
    *(f'+env.kwargs.{key}={value}' for key, value in kwargs.items()),
  ]
  network = 'network.actor_network'
  overrides += [
    f'{network}.{part}.layer_sizes=[{width}]'
    for part in ('pre_torso', 'post_torso', 'action_head')
  ]
  overrides.append(f'{network}.rnn_layer.hidden_state_dim={width}')
  if task == 'cart_pole_hidden':
    overrides.append('+env.wrapper._target_=__main__.hide')
  folder = f'{path}/stoix/configs'
  with hydra.initialize_config_dir(
    f'{folder}/default/anakin', version_base='1.2'
  ):
    config = hydra.compose(
      'default_rec_r2d2',
      [*overrides, f'hydra.searchpath=[file://{folder}]'],
    )
  OmegaConf.set_struct(config, False)
  return config


def cpu_seconds():
  used = resource.getrusage(resource.RUSAGE_SELF)
  return used.ru_utime + used.ru_stime


def run(rec_r2d2, config, num_steps):
  """Trains in parts, and scores the policy after each."""
  import jax
  import jax.numpy as jnp
  from stoix.utils.total_timestep_checker import check_total_timesteps

  per_update = NUM_ENVS * config.system.rollout_length
  before_learning = NUM_ENVS * config.system.warmup_steps
  num_updates = round((num_steps - before_learning) / per_update / NUM_PARTS)
  config.arch.total_timesteps = NUM_PARTS * num_updates * per_update
  config.arch.num_evaluation = NUM_PARTS
  config.num_devices = 1
  config = check_total_timesteps(config)
  config.arch.num_updates_per_eval = num_updates
  env, eval_env = rec_r2d2.environments.make(config=config)
  key, key_e, net_key = jax.random.split(
    jax.random.PRNGKey(config.arch.seed), num=3
  )
  learn, network, state, rnn = rec_r2d2.learner_setup(
    env, (key, net_key), config
  )
  evaluate, _, _ = rec_r2d2.evaluator_setup(
    eval_env=eval_env,
    key_e=key_e,
    eval_act_fn=rec_r2d2.get_rec_distribution_act_fn(config, network.apply),
    params=state.params.online,
    config=config,
    use_recurrent_net=True,
    scanned_rnn=rnn,
  )
  curve, seconds = [], []
  for part in range(1, NUM_PARTS + 1):
    before = cpu_seconds()
    state = learn(state).learner_state
    jax.block_until_ready(state)
    seconds.append(cpu_seconds() - before)
    key_e, key = jax.random.split(key_e)
    params = rec_r2d2.unreplicate_batch_dim(state.params.online)
    metrics = evaluate(params, key[None]).episode_metrics
    score = float(jnp.mean(metrics['episode_return']))
    curve.append((before_learning + part * num_updates * per_update, score))
    print(curve[-1], f'{seconds[-1]:.1f} s', file=sys.stderr, flush=True)
  steps = (NUM_PARTS - 2) * num_updates * per_update
  return {
    'score': curve[-1][1],
    'curve': curve,
    'steps_per_cpu_second': steps / sum(seconds[2:]),
  }


def main():
  parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
  parser.add_argument('--stoix', required=True, help='path of a clone')
  parser.add_argument('--task', choices=TASKS, required=True)
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--num_steps', type=int, default=40_000)
  parser.add_argument('--width', type=int, default=64)
  args = parser.parse_args()
  with contextlib.redirect_stdout(sys.stderr):
    rec_r2d2 = import_stoix(args.stoix)
    config = make_config(args.stoix, args.task, args.seed, args.width)
    result = run(rec_r2d2, config, args.num_steps)
  print(json.dumps(result))


if __name__ == '__main__':
  main()
