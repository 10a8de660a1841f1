"""What a name that does not exist may mean, for messages."""

import difflib
from collections.abc import Collection, Mapping

# Names here of what other libraries call otherwise.
SYNONYMS: Mapping[str, str] = {
  'anneal_lr': 'learning_rate_decay_steps',
  'clip_coef': 'clip_epsilon',
  'clip_eps': 'clip_epsilon',
  'clip_range': 'clip_epsilon',
  'ent_coef': 'entropy_cost',
  'env': 'environment',
  'env_id': 'environment',
  'gamma': 'discount',
  'lr': 'learning_rate',
  'lstm_hidden_size': 'hidden_size',
  'max_grad_norm': 'max_gradient_norm',
  'n_envs': 'num_environments',
  'n_epochs': 'num_epochs',
  'n_steps': 'sequence_length',
  'net_arch': 'vector_hidden_sizes',
  'norm_adv': 'normalize_advantages',
  'num_envs': 'num_environments',
  'num_steps': 'sequence_length',
  'steps': 'max_num_actor_steps',
  'timesteps': 'max_num_actor_steps',
  'total_timesteps': 'max_num_actor_steps',
  'update_epochs': 'num_epochs',
  'vf_coef': 'baseline_cost',
}


def suggest(name: str, known: Collection[str]) -> str:
  """Returns the end of an error message about an unknown name.

  Args:
    name: the unknown name; one of another library has its name here suggested.
    known: the names that there are, with or without leading dashes.
  """
  meant = SYNONYMS.get(name.lstrip('-'), '')
  close = [one for one in known if one.lstrip('-') == meant]
  if meant and not close and name.startswith('-'):
    return f'; did you mean --set agent.{meant}=...?'
  if meant and not close:
    return f'; did you mean {meant} of another part of the experiment?'
  close = close or difflib.get_close_matches(name, known, n=1)
  return f'; did you mean {close[0]}?' if close else '.'
