"""The one actor-critic pair that every named agent is made from.

`config`, `acting` and `learning` are pure functions over JAX arrays and run
anywhere; `shells` are acme's interfaces around them.
"""
