"""The error raised when gradients stay non-finite."""


class NonFiniteGradientError(ArithmeticError):
  """Raised after too many consecutive updates with non-finite gradients."""


def check_skipped(skipped_in_a_row: int, max_skipped_updates: int) -> None:
  """Raises a NonFiniteGradientError if too many updates were skipped.

  Args:
    skipped_in_a_row: number of consecutive updates, up to the latest one, whose
      gradient was not finite.
    max_skipped_updates: number of such updates at which the error is raised.
  """
  if skipped_in_a_row >= max_skipped_updates:
    raise NonFiniteGradientError(
      f'gradients must be finite, but {skipped_in_a_row} updates in a row had'
      f' NaN or infinite ones (max_skipped_updates={max_skipped_updates});'
      ' lower the learning rate, or look for observations, rewards and states'
      ' of the core out of range. The parameters are those of the last good'
      ' update.'
    )
