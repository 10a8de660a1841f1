"""The one actor-critic pair that every named agent is made from.

`config`, `acting` and `learning` are pure functions over JAX arrays and run
anywhere; `actor`, `learner` and `builder` are acme's shells around them.
"""
