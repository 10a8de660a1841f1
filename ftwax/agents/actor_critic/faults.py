"""What ends a learner: gradients that are not finite, again and again."""


class NonFiniteGradientError(ArithmeticError):
  """Gradients that were not finite, too many times in a row."""


def check_skipped(skipped_in_a_row: int, max_skipped_updates: int) -> None:
  """Raises a NonFiniteGradientError if too many updates were skipped.

  Args:
    skipped_in_a_row: updates whose gradient was not finite, up to now.
    max_skipped_updates: so many end the learner.
  """
  if skipped_in_a_row >= max_skipped_updates:
    raise NonFiniteGradientError(
      f'gradients must be finite and {skipped_in_a_row} updates in a row had'
      f' some that are not (max_skipped_updates={max_skipped_updates}); lower'
      ' the learning rate or look for observations and rewards out of range.'
      ' The parameters are those of the last good update.'
    )
