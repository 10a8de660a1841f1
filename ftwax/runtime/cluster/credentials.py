"""Certificates with which the hosts of a cluster authenticate each other.

These are the certificates of Ray's own connections, set by the same environment
variables, so a cluster needs only one set; see docs/clusters.md.
"""

import os
import ssl
from typing import NamedTuple

USE_TLS = 'RAY_USE_TLS'
_CERTIFICATE = 'RAY_TLS_SERVER_CERT'
_KEY = 'RAY_TLS_SERVER_KEY'
_AUTHORITY = 'RAY_TLS_CA_CERT'


class Contexts(NamedTuple):
  """TLS contexts of a host. Both sides must present a certificate.

  Attributes:
    server: context of connections that the host accepts.
    client: context of connections that the host opens.
  """

  server: ssl.SSLContext
  client: ssl.SSLContext


def uses_tls() -> bool:
  """Returns whether Ray is configured to use TLS."""
  return os.environ.get(USE_TLS, '0').lower() in ('1', 'true')


def read() -> Contexts | None:
  """Returns this host's TLS contexts; None if Ray uses no TLS.

  Raises:
    ValueError: if a file is not set or cannot be read.
  """
  if not uses_tls():
    return None
  paths = []
  for name in (_CERTIFICATE, _KEY, _AUTHORITY):
    if not os.environ.get(name):
      raise ValueError(
        f'{name} must name a file where {USE_TLS}=1, and is not set; see'
        ' docs/clusters.md for how to make certificates.'
      )
    paths.append(os.environ[name])
  certificate, key, authority = paths
  try:
    return Contexts(
      _make_context(ssl.PROTOCOL_TLS_SERVER, certificate, key, authority),
      _make_context(ssl.PROTOCOL_TLS_CLIENT, certificate, key, authority),
    )
  except (OSError, ssl.SSLError) as error:
    raise ValueError(
      f'{_CERTIFICATE} ({certificate}), {_KEY} ({key}) and {_AUTHORITY}'
      f' ({authority}) must be PEM files that belong together ({error}); see'
      ' docs/clusters.md for how to make them.'
    ) from error


def _make_context(
  protocol: int, certificate: str, key: str, authority: str
) -> ssl.SSLContext:
  context = ssl.SSLContext(protocol)
  context.minimum_version = ssl.TLSVersion.TLSv1_3
  # Hosts are authenticated by the certificate authority, as in Ray, and not by
  # address, since the addresses of a cluster change.
  context.check_hostname = False
  context.verify_mode = ssl.CERT_REQUIRED
  context.load_cert_chain(certificate, key)
  context.load_verify_locations(authority)
  return context
