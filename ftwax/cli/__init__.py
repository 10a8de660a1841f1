"""The `ftwax` command, with one file for each subcommand."""
