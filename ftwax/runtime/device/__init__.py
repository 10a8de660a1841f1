"""Environment, actor and learner in one compiled function."""
