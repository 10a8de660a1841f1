"""The server, spoken to by sockets."""

import contextlib
import http.client
import re
import socket
import threading
import time

import pytest
import uvicorn
import web_helpers
from starlette import responses

from ftwax.web import connections, safeguards, server


async def _answer(scope, receive, send):
  await responses.PlainTextResponse('here')(scope, receive, send)


@pytest.fixture
def address(monkeypatch):
  monkeypatch.setattr(connections, 'MAX_CONNECTIONS', 20)
  monkeypatch.setattr(connections, 'HEADER_TIMEOUT_S', 0.5)
  listening = socket.create_server(('127.0.0.1', 0))
  config = uvicorn.Config(
    _answer, log_level='error', http=connections.make_protocol()
  )
  running = uvicorn.Server(config)
  thread = threading.Thread(target=running.run, args=([listening],))
  thread.start()
  yield listening.getsockname()
  running.should_exit = True
  thread.join(20)
  assert not thread.is_alive()
  listening.close()


def test_half_sent_headers_hold_no_connection(address):
  with contextlib.ExitStack() as stack:
    for _ in range(100):
      half = stack.enter_context(socket.create_connection(address, timeout=10))
      with contextlib.suppress(ConnectionError):  # Beyond the limit.
        half.sendall(b'GET / HTTP/1.1\r\nHost: x\r\n')
    deadline = time.monotonic() + 10.0
    while not _answers(address):
      assert time.monotonic() < deadline
      time.sleep(0.1)
    # The last of them was closed, too.
    with contextlib.suppress(ConnectionError):
      assert half.recv(1) == b''


def test_silent_connections_do_not_keep_others_out(address, monkeypatch):
  monkeypatch.setattr(connections, 'HEADER_TIMEOUT_S', 60.0)
  with contextlib.ExitStack() as stack:

    def connect():
      one = stack.enter_context(socket.create_connection(address, timeout=10))
      with contextlib.suppress(ConnectionError):
        one.sendall(b'GET / HTTP/1.1\r\nHost: x\r\n')
      return one

    page = stack.enter_context(
      contextlib.closing(http.client.HTTPConnection(*address, timeout=10))
    )
    page.request('GET', '/')
    assert page.getresponse().read() == b'here'
    first, *_ = [connect() for _ in range(60)]
    # The one that was silent for longest made room.
    with contextlib.suppress(ConnectionResetError):  # It had sent something.
      assert first.recv(1) == b''
    for _ in range(5):
      start = time.monotonic()
      assert _answers(address)
      assert time.monotonic() - start < 5.0
      connect()
    page.request('GET', '/')
    assert page.getresponse().read() == b'here'


def test_connections_beyond_the_limit_are_closed_at_once(address):
  with contextlib.ExitStack() as stack:
    pages = [
      stack.enter_context(
        contextlib.closing(http.client.HTTPConnection(*address, timeout=10))
      )
      for _ in range(20)
    ]
    for one in pages:
      one.request('GET', '/')
      assert one.getresponse().read() == b'here'
    last = stack.enter_context(socket.create_connection(address, timeout=10))
    assert last.recv(1) == b''


def _answers(address):
  try:
    with contextlib.closing(
      http.client.HTTPConnection(*address, timeout=10)
    ) as client:
      client.request('GET', '/')
      return client.getresponse().read() == b'here'
  except (ConnectionError, http.client.HTTPException):
    return False


def test_a_connection_that_has_asked_stays(address):
  with contextlib.closing(
    http.client.HTTPConnection(*address, timeout=10)
  ) as client:
    client.connect()
    connection = client.sock
    for _ in range(2):
      client.request('GET', '/')
      assert client.getresponse().read() == b'here'
      time.sleep(0.7)
    assert client.sock is connection


def test_the_printed_link_has_the_token(monkeypatch, capsys):
  run = []

  def note(running, sockets):
    run.append(running)
    sockets[0].close()

  monkeypatch.setattr(uvicorn.Server, 'run', note)
  server.serve(
    lambda host, token: safeguards.Safeguards(_answer, host, token),
    '127.0.0.1',
    0,
  )
  link = re.search(r'http://127.0.0.1:\d+(/\S+)', capsys.readouterr().out)[1]
  client = web_helpers.testclient.TestClient(
    run[0].config.app, web_helpers.BASE_URL
  )
  assert client.get('/').status_code == 403
  assert client.get(link).status_code == 200
