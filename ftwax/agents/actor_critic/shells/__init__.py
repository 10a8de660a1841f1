"""Actors, learners and whole agents with acme's interfaces."""
