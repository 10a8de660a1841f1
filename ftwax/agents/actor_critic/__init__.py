"""The actor and learner that all named agents share.

`acting` and `learning` are pure functions over JAX arrays; `ftwax.acme` wraps
them in acme's interfaces.
"""
