"""Environments and adapters; each is a `dm_env.Environment`."""
