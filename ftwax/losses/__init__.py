"""Losses of one stream of steps; batches and populations come by `vmap`."""
