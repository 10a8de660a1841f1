"""The command `ftwax`: one file for each of its commands."""
