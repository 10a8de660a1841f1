"""Populations of agents: who plays whom, who is how strong, who copies whom."""
