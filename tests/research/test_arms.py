"""What the program on evolution plays to judge members."""

import pytest


@pytest.mark.parametrize(
  ('task', 'is_own'), [('flag_quarter', True), ('catch', False)]
)
def test_members_are_judged_by_the_evaluation_of_the_task(task, is_own):
  import evolution

  made = evolution._make(task, 'copies', 0)
  assert (made.evaluation.environment is not None) == is_own
  assert not made.evaluation.greedy
