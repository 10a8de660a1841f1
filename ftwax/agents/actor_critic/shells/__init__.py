"""acme's actor and learner, and whole agents, around the pure functions."""
