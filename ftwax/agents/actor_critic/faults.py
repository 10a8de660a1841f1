"""The error raised when gradients stay non-finite."""

_REMEDY = (
  'lower the learning rate, or look for observations, rewards and states of'
  ' the core out of range'
)


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
      f' {_REMEDY}. The parameters are those of the last good update.'
    )


def describe_skipped(skipped: int, learner_steps: int) -> str:
  """Describes how many updates of a run were skipped; '' if none was.

  Args:
    skipped: number of updates that one member skipped.
    learner_steps: number of all updates of a member.
  """
  if not skipped:
    return ''
  return (
    f'{skipped:,} of {learner_steps:,} updates were skipped, since their'
    f' gradients were NaN or infinite; {_REMEDY}.'
  )
