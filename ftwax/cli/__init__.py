"""The `ftwax` command, with one file for each subcommand."""

__all__ = (
  'flags',
  'launch',
)
