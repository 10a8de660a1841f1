"""Several learners of one member, in processes of their own."""

import functools
import os
import signal
import socket
import sys

import jax
import learner_process
import numpy as np
import pytest

from ftwax.runtime.distributed import forkserver, node_commands, processes

_NUM_LEARNERS = 2


def _free_port():
  with socket.create_server(('localhost', 0)) as server:
    return server.getsockname()[1]


@pytest.mark.slow
def test_two_learners_give_the_numbers_of_one(tmp_path):
  address = f'localhost:{_free_port()}'
  environment = {
    **os.environ,
    **node_commands.IMPORT_ENVIRONMENT,
    'JAX_PLATFORMS': 'cpu',
    'XLA_FLAGS': '',
  }
  output = tmp_path / 'output.txt'
  with forkserver.Forkserver(output, environment) as server:
    started = [
      server.start(
        [
          sys.executable,
          learner_process.__file__,
          *(str(index), str(_NUM_LEARNERS), address, str(tmp_path)),
        ],
        {**environment, processes.HOST_VARIABLE: f'127.0.0.{2 + index}'},
        output,
      )
      for index in range(_NUM_LEARNERS)
    ]
    try:
      assert all(process.wait(120.0) for process in started)
    finally:
      for process in started:
        process.send(signal.SIGKILL)
  assert [process.returncode for process in started] == [0, 0], (
    output.read_text()
  )
  alone = jax.tree.leaves(learner_process.learn_alone().state)
  states = [
    [*np.load(tmp_path / f'{index}.npz').values()]
    for index in range(_NUM_LEARNERS)
  ]
  jax.tree.map(np.testing.assert_array_equal, *states)
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-5),
    states[0],
    alone,
  )
