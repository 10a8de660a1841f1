"""The actor and learner that all named agents share.

`acting` and `learning` are pure functions over JAX arrays; `shells` wraps them
in acme's interfaces.
"""
