"""Replay: Reverb tables for many processes, pure functions for the device."""
