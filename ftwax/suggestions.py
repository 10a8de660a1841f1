"""What a name that does not exist may mean, for messages."""

import difflib
from collections.abc import Collection, Mapping

# Names here of what other libraries call otherwise.
SYNONYMS: Mapping[str, str] = {
  'activation_fn': 'activation',
  'algo': 'agent',
  'algorithm': 'agent',
  'anneal_lr': 'decay',
  'clip_coef': 'clip_epsilon',
  'clip_eps': 'clip_epsilon',
  'clip_range': 'clip_epsilon',
  'ent_coef': 'entropy_cost',
  'entropy_coeff': 'entropy_cost',
  'exploration_loss_coeff': 'entropy_cost',
  'gamma': 'discount',
  'log_std_init': 'initial_log_scale',
  'lr': 'learning_rate',
  'max_grad_norm': 'max_gradient_norm',
  'n_envs': 'num_environments',
  'n_epochs': 'num_epochs',
  'n_steps': 'sequence_length',
  'n_timesteps': 'max_num_actor_steps',
  'net_arch': 'torso',
  'norm_adv': 'normalize_advantages',
  'num_env_runners': 'num_actors',
  'num_envs': 'num_environments',
  'num_envs_per_worker': 'num_environments',
  'num_steps': 'sequence_length',
  'num_workers': 'num_actors',
  'ortho_init': 'initializer',
  'ppo_clip_ratio': 'clip_epsilon',
  'recurrence': 'sequence_length',
  'rnn_type': 'core',
  'rollout': 'sequence_length',
  'rollout_length': 'sequence_length',
  'steps': 'max_num_actor_steps',
  'timesteps': 'max_num_actor_steps',
  'total_timesteps': 'max_num_actor_steps',
  'update_epochs': 'num_epochs',
  'use_rnn': 'core',
  'value_loss_coeff': 'baseline_cost',
  'vf_coef': 'baseline_cost',
  'vf_loss_coeff': 'baseline_cost',
}

# What does on the command line what a flag of another library does.
ELSEWHERE: Mapping[str, str] = {
  'capture_video': 'ftwax film RUN',
  'cuda': 'JAX_PLATFORMS=cpu, since a GPU is used where JAX finds one',
  'env': 'ftwax train ENVIRONMENT',
  'env_id': 'ftwax train ENVIRONMENT',
  'env_name': 'ftwax train ENVIRONMENT',
  'net_arch': '--hidden_sizes=[64,64]',
  'policy_kwargs': '--hidden_sizes=[64,64] or --core=lstm',
  'track': '--loggers=wandb',
  'wandb': '--loggers=wandb',
}

# What sets an option of an agent that one of its parts owns.
OF_PARTS: Mapping[str, str] = {
  'cell_size': 'tasks=(tasks.PixelControl(cell_size=...),)',
  'dropout': 'core=cores.LSTM(dropout=...)',
  'dropout_keep_prob': 'core=cores.LSTM(dropout=1 - ...)',
  'entry_encodings': 'torso=torsos.Torso(encodings=...)',
  'entry_torsos': 'torso=torsos.Torso(entries=...)',
  'forget_bias': 'core=cores.LSTM(forget_bias=...)',
  'frame_entry': 'tasks=(tasks.PixelControl(entry=...),)',
  'hidden_size': 'core=cores.LSTM(hidden_size=...)',
  'image_torso': 'torso=...',
  'layer_norm': 'core=cores.LSTM(layer_norm=True)',
  'learning_rate_decay_steps': '.decayed_over(num_steps)',
  'lstm_hidden_size': 'core=cores.LSTM(hidden_size=...)',
  'max_queue_size': 'queue=replay_options.Queue(max_size=...)',
  'memory': 'core=cores.RPTH(memory=cores.Memory(...))',
  'memory_length': 'core=cores.LRU(memory_length=...)',
  'pixel_control_cost': 'tasks=(tasks.PixelControl(cost=...),)',
  'replay_capacity': 'replay=replay_options.Replay(capacity=...)',
  'reward_prediction_cost': 'tasks=(tasks.RewardPrediction(cost=...),)',
  'rms_prop_epsilon': 'optimizer=optimization.RMSProp(epsilon=...)',
  'slow_period': 'core=cores.RPTH(slow_period=...)',
  'use_pixel_control': "tasks=('pixel_control',)",
  'use_reward_prediction': "tasks=('reward_prediction',)",
  'vector_hidden_sizes': 'torso=torsos.Torso(hidden_sizes=...)',
}


def suggest(name: str, known: Collection[str]) -> str:
  """Returns the end of an error message about an unknown name.

  Args:
    name: the unknown name; one of another library has its name here suggested.
    known: the names that there are, with or without leading dashes.
  """
  if name in OF_PARTS:
    return f'; did you mean {OF_PARTS[name]}?'
  if name.startswith('-') and name.lstrip('-') in ELSEWHERE:
    return f'; did you mean {ELSEWHERE[name.lstrip("-")]}?'
  meant = SYNONYMS.get(name.lstrip('-'), '')
  close = [one for one in known if one.lstrip('-') == meant]
  if meant and not close and name.startswith('-'):
    return f'; did you mean --set agent.{meant}=...?'
  if meant and not close:
    return f'; did you mean {meant} of another part of the experiment?'
  close = close or difflib.get_close_matches(name, known, n=1)
  return f'; did you mean {close[0]}?' if close else '.'
