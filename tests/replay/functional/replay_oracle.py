"""A replay in plain Python: slow, obvious, and with nothing of ours in it."""

import dataclasses

import numpy as np

FIRST, MID, LAST = 0, 1, 2


def wrap(position):
  """Returns `position` as an int32 that has wrapped around."""
  return (position + 2**31) % 2**32 - 2**31


@dataclasses.dataclass
class Step:
  """All that is known of one step of one environment."""

  data: dict
  begin: int
  discounted_return: float
  priority: float = 0.0
  learned: bool = False


class Environment:
  """The steps of one environment; those from `oldest` on are stored."""

  def __init__(self, position):
    self.steps = {}  # By position; never thrown away.
    self.oldest = self.end = position
    self.begin = self.first_open = position
    self.is_fresh = True

  @property
  def size(self):
    return self.end - self.oldest


class Oracle:
  def __init__(self, config, hyperparameters, position=0):
    self.config, self.hp = config, hyperparameters
    self.envs = [Environment(position) for _ in range(config.num_environments)]

  def candidates(self, env):
    ignored = self.config.num_earliest_frames_ignored
    last = env.end - self.config.sequence_length
    return list(range(env.oldest + ignored, last + 1))

  def all_candidates(self):
    return [
      (env_id, position)
      for env_id, env in enumerate(self.envs)
      for position in self.candidates(env)
    ]

  def recent_candidates(self):
    return [
      (env_id, position)
      for env_id, env in enumerate(self.envs)
      for position in self.candidates(env)[-self.hp.recent_data_steps :]
    ]

  def drawable_recent_candidates(self):
    return [c for c in self.recent_candidates() if self.priority(c) > 0]

  def add(self, env_ids, data):
    touched = [
      (self.envs[env_id], {k: v[row] for k, v in data.items()})
      for row, env_id in enumerate(env_ids)
      if 0 <= env_id < len(self.envs)
    ]
    for env, step in touched:
      self.add_one(env, step)
    # New sequences take the largest priority learned of those still stored.
    for env, _ in touched:
      self.drop_stale(env)
    learned = [
      step.priority
      for env in self.envs
      for step in env.steps.values()
      if step.learned
    ]
    first = max(learned + [self.hp.initial_priority**self.hp.priority_exponent])
    for env, _ in touched:
      position = env.end - self.config.sequence_length
      if position in self.candidates(env):
        env.steps[position].priority = first

  def add_one(self, env, step):
    position = env.end
    begins = env.is_fresh or step['step_type'] == FIRST
    if begins:
      env.begin = env.first_open = position
    env.is_fresh = False
    env.steps[position] = Step(step, env.begin, self.hp.default_return)
    env.end += 1
    env.oldest = max(env.oldest, env.end - self.config.max_length)
    ends = step['discount'] == 0 or (
      self.config.return_at_truncation and step['step_type'] == LAST
    )
    if ends and not begins:
      value = 0.0
      for t in range(position - 1, env.first_open - 1, -1):
        arrived = env.steps[t + 1].data
        reward = np.clip(
          float(arrived['reward']), self.hp.min_reward, self.hp.max_reward
        )
        value = reward + self.hp.discount * float(arrived['discount']) * value
        env.steps[t].discounted_return = value
    if ends:
      env.first_open = position

  def drop_stale(self, env):
    candidates = set(self.candidates(env))
    for position, step in env.steps.items():
      if position not in candidates:
        step.priority, step.learned = 0.0, False

  def update_priorities(self, env_ids, positions, priorities):
    for env_id, position, priority in zip(
      env_ids, positions, priorities, strict=True
    ):
      env = self.envs[env_id]
      for candidate in self.candidates(env):
        if wrap(candidate) == position:
          env.steps[candidate].priority = priority**self.hp.priority_exponent
          env.steps[candidate].learned = True

  def remove_up_to(self, env_ids, num_steps):
    for env_id in env_ids:
      if 0 <= env_id < len(self.envs):
        env = self.envs[env_id]
        env.oldest = min(env.oldest + num_steps, env.end)
        self.drop_stale(env)

  def clear(self, env_ids):
    self.remove_up_to(env_ids, self.config.max_length)
    for env_id in env_ids:
      if 0 <= env_id < len(self.envs):
        self.envs[env_id].is_fresh = True

  def can_dequeue(self, env_id, num_steps):
    return 0 <= env_id < len(self.envs) and self.envs[env_id].size >= num_steps

  def priority(self, candidate):
    if not self.config.prioritized:
      return 1.0
    return self.envs[candidate[0]].steps[candidate[1]].priority

  def num_recent(self):
    if not self.config.recent_data:
      return 0
    ratio = self.hp.recent_data_ratio
    recent, all_ = self.recent_candidates(), self.all_candidates()
    if not len(recent) < ratio * len(all_):
      return 0
    if not self.drawable_recent_candidates():
      return 0
    # Whole hundredths, so that the product is exact.
    hundredths = round(100 * ratio) * self.config.batch_size
    return -(-hundredths // 100)

  def probability(self, candidate):
    total = sum(map(self.priority, self.all_candidates()))
    base = self.priority(candidate) / total if total else 0.0
    share = self.num_recent() / self.config.batch_size
    recent = self.drawable_recent_candidates()
    is_recent = candidate in recent
    return share * is_recent / max(len(recent), 1) + (1 - share) * base

  def num_valid(self):
    """Returns how many rows of a sample are valid."""
    drawable = [c for c in self.all_candidates() if self.priority(c) > 0]
    batch_size, num_recent = self.config.batch_size, self.num_recent()
    if self.config.draw == 'distinct':
      if not num_recent:
        return min(batch_size, len(drawable))
      return None  # Depends on which recent ones are drawn.
    if not drawable:
      return num_recent
    return batch_size
