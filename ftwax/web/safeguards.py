"""Restricts access to the server.

A page of another site that is open in the same browser can send requests to
this machine, by a host name that resolves to it (DNS rebinding) or from its own
scripts. The requested host must therefore be one of this server's names, and a
request with an origin must come from a page of this server. Every request also
needs the token in the link, which is then kept in a cookie: other users of this
machine reach its loopback addresses, too.
"""

import hmac
import http.cookies
import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib import parse

from starlette import datastructures, responses, websockets

_COOKIE = 'ftwax_token'

# Forbids other origins; the charts need inline styles.
_POLICY = (
  "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline';"
  " img-src 'self' data: blob:; frame-ancestors 'self'"
)
_HEADERS = {
  'Content-Security-Policy': _POLICY,
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Cache-Control': 'no-cache',
}

_App = Callable[[Any, Any, Any], Awaitable[None]]


def is_loopback(host: str) -> bool:
  """Returns whether an address is only reachable from this machine."""
  if host == 'localhost':
    return True
  try:
    return ipaddress.ip_address(host.strip('[]')).is_loopback
  except ValueError:
    return False


class Safeguards:
  """Middleware that refuses foreign requests; see the module docstring."""

  def __init__(self, app: _App, host: str, token: str | None):
    """Wraps an application.

    Args:
      app: the application.
      host: host that it is served on.
      token: token that requests need; None for no token, in tests.
    """
    self._app = app
    self._token = token
    self._hosts = {host.strip('[]')}
    if is_loopback(host):
      self._hosts |= {'127.0.0.1', 'localhost', '::1'}
    # A server on all addresses has unknown names; the token protects it.
    self._allows_any_host = token is not None and host in ('0.0.0.0', '::')

  async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
    """Serves or refuses a request."""
    if scope['type'] not in ('http', 'websocket'):
      await self._app(scope, receive, send)
      return
    reason = self._refuse(datastructures.Headers(scope=scope), scope)
    if reason and scope['type'] == 'websocket':
      socket = websockets.WebSocket(scope, receive, send)
      await socket.close(1008, reason[:120])
      return
    if reason:
      refusal = responses.PlainTextResponse(reason, 403)
      await refusal(scope, receive, send)
      return

    async def send_with_headers(message: MutableMapping[str, Any]) -> None:
      if message['type'] == 'http.response.start':
        headers = datastructures.MutableHeaders(scope=message)
        for name, value in _HEADERS.items():
          headers.setdefault(name, value)
        if self._token and self._query_token(scope):
          headers.append(
            'Set-Cookie',
            f'{_COOKIE}={self._token}; HttpOnly; SameSite=Strict; Path=/',
          )
      await send(message)

    await self._app(scope, receive, send_with_headers)

  def _refuse(self, headers: datastructures.Headers, scope: Any) -> str:
    """Returns the reason to refuse a request; '' to grant it."""
    host = _hostname(headers.get('host', ''))
    if not self._allows_any_host and host not in self._hosts:
      return (
        f'This server answers to {sorted(self._hosts)}, not to {host!r}; open'
        ' the link that it printed.'
      )
    origin = headers.get('origin')
    # Browsers let any page open WebSockets to any server, so they need an
    # origin.
    needs_origin = scope['type'] == 'websocket'
    if (origin or needs_origin) and (
      parse.urlsplit(origin or '').netloc != headers.get('host')
    ):
      return 'This server answers to its own pages only.'
    # Cookies do not tell the ports of a host apart. Links may be followed.
    site = headers.get('sec-fetch-site', 'none')
    navigates = headers.get('sec-fetch-mode') == 'navigate'
    if site not in ('same-origin', 'none') and not navigates:
      return 'This server answers to its own pages only.'
    if self._token and not self._has_token(headers, scope):
      return 'This link lacks the token; open the link that the server printed.'
    return ''

  def _has_token(self, headers: datastructures.Headers, scope: Any) -> bool:
    cookie: http.cookies.SimpleCookie = http.cookies.SimpleCookie()
    try:
      cookie.load(headers.get('cookie', ''))
    except http.cookies.CookieError:
      pass
    token = cookie[_COOKIE].value if _COOKIE in cookie else ''
    return self._is_token(token) or self._query_token(scope)

  def _query_token(self, scope: Any) -> bool:
    query = parse.parse_qs(scope['query_string'].decode('latin-1'))
    return self._is_token(query.get('token', [''])[0])

  def _is_token(self, text: str) -> bool:
    expected = (self._token or '').encode()
    return hmac.compare_digest(text.encode('utf-8', 'replace'), expected)


def _hostname(host: str) -> str:
  try:
    return parse.urlsplit(f'//{host}').hostname or ''
  except ValueError:
    return ''
