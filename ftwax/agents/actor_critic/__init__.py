"""The one pair of actor and learner that every named agent is made from.

`acting` and `learning` are pure functions over JAX arrays; `shells` has acme's
interfaces around them.
"""
