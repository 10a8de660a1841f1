"""The builder from which runtimes make every part of an agent."""

from ftwax.agents.actor_critic import builder

Builder = builder.ActorCriticBuilder
