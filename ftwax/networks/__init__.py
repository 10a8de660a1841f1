"""Torsos, recurrent cores, memory and heads as pure functions."""
