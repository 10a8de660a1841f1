"""An adder and an iterator on a real Reverb server."""

import contextlib

from ftwax.acme import adders, datasets, servers


@contextlib.contextmanager
def making():
  """Yields what makes a server's client, adder and iterator.

  All are closed at the end.
  """
  with contextlib.ExitStack() as closed_last:

    def make(tables, template, num_environments, batch_size, options):
      server = servers.make_server(tables)
      closed_last.callback(server.stop)
      client = server.localhost_client()
      adder = adders.TrajectoryAdder(
        client, template, num_environments, 20.0, options
      )
      iterator = datasets.TrajectoryIterator(
        client, template, batch_size, 20.0, 1, options
      )
      closed_last.callback(iterator.close)
      closed_last.callback(adder.close)
      return client, adder, iterator

    yield make
