"""Actor-critic agents: one pair, named by its configs."""
