"""What tests of runs share."""

import equal_functions
import pytest


@pytest.fixture(scope='module')
def compiles_once():
  """Compiles equal functions of a module's tests once."""
  with pytest.MonkeyPatch.context() as patch:
    equal_functions.share(patch)
    yield
