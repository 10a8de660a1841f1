"""Messages that no client sends, at the ports of a server of gRPC."""

import contextlib
import random
import socket
import struct
from collections.abc import Iterator

import grpc

_PREFACE = b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'
_DATA, _HEADERS, _SETTINGS, _PING, _CONTINUATION = 0, 1, 4, 6, 9

_CALLS = (
  '/courier.CourierService/Call',
  '/courier.CourierService/ListMethods',
  '/no.such.Service/Method',
)
# Reverb 0.7.3 crashes where these do not parse.
_REVERB_CALLS = (
  '/deepmind.reverb.ReverbService/Checkpoint',
  '/deepmind.reverb.ReverbService/MutatePriorities',
  '/deepmind.reverb.ReverbService/Reset',
  '/deepmind.reverb.ReverbService/ServerInfo',
)
_REVERB_STREAMS = (
  '/deepmind.reverb.ReverbService/InsertStream',
  '/deepmind.reverb.ReverbService/SampleStream',
  '/deepmind.reverb.ReverbService/InitializeConnection',
)
_MAX_BYTES = 64 * 2**20
_TIMEOUT_S = 1.0


def send_bytes(port: int, seed: int) -> None:
  """Sends bytes that are random, or HTTP/2 in part, and hangs up."""
  rng = random.Random(seed)
  for message in _make_messages(rng):
    with (
      contextlib.suppress(OSError),  # Who is hung up on cannot send.
      socket.create_connection(('127.0.0.1', port), _TIMEOUT_S) as connection,
    ):
      connection.sendall(message)
      if rng.random() < 0.5:
        connection.shutdown(socket.SHUT_WR)
        connection.recv(2**16)


def _make_messages(rng: random.Random) -> Iterator[bytes]:
  settings = _frame(_SETTINGS, b'')
  yield b''
  yield rng.randbytes(1)
  yield rng.randbytes(2**10)
  yield rng.randbytes(2**22)
  yield b'GET / HTTP/1.1\r\nHost: x\r\n\r\n'
  yield _PREFACE[: rng.randrange(len(_PREFACE))]
  yield _PREFACE + settings[:5]
  yield _PREFACE + settings + _frame(_HEADERS, rng.randbytes(100), stream=1)
  yield _PREFACE + settings + _frame(_PING, b'1') * 10_000
  # Longer than all that follows, and longer than HTTP/2 allows.
  yield _PREFACE + settings + _frame(_DATA, b'1', length=2**24 - 1)
  yield _PREFACE + settings + _frame(_DATA, rng.randbytes(2**24 - 1), stream=1)
  headers = _frame(_HEADERS, b'\x82', stream=1)
  yield (
    _PREFACE
    + settings
    + headers
    + 10_000 * _frame(_CONTINUATION, rng.randbytes(100), stream=1)
  )
  for _ in range(50):
    kind, stream = rng.randrange(12), rng.randrange(2**31)
    payload = rng.randbytes(rng.randrange(200))
    yield (
      _PREFACE + settings + _frame(kind, payload, stream, rng.randrange(256))
    )


def _frame(
  kind: int,
  payload: bytes,
  stream: int = 0,
  flags: int = 0,
  length: int | None = None,
) -> bytes:
  length = len(payload) if length is None else length
  return (
    struct.pack('>I', length)[1:]
    + struct.pack('>BBI', kind, flags, stream)
    + payload
  )


def send_calls(port: int, seed: int) -> None:
  """Calls methods with bytes that are no message of theirs."""
  rng = random.Random(seed)
  options = [('grpc.max_send_message_length', -1)]
  with grpc.insecure_channel(f'localhost:{port}', options) as channel:
    for size in (0, 1, 10, 1000, _MAX_BYTES):
      for method in _CALLS:
        with contextlib.suppress(grpc.RpcError):
          channel.unary_unary(method)(rng.randbytes(size), timeout=_TIMEOUT_S)
      for method in _REVERB_STREAMS:
        messages = [rng.randbytes(size) for _ in range(3)]
        with contextlib.suppress(grpc.RpcError):
          call = channel.stream_stream(method)
          list(call(iter(messages), timeout=_TIMEOUT_S))


def crash_reverb(port: int) -> None:
  """Makes the calls that crash a Reverb server, and no other."""
  with grpc.insecure_channel(f'localhost:{port}') as channel:
    for method in _REVERB_CALLS:
      with contextlib.suppress(grpc.RpcError):
        channel.unary_unary(method)(b'1' * 10, timeout=_TIMEOUT_S)


@contextlib.contextmanager
def connections(port: int, num: int) -> Iterator[None]:
  """Holds many connections, which say nothing."""
  with contextlib.ExitStack() as stack:
    for _ in range(num):
      with contextlib.suppress(OSError):
        stack.enter_context(
          socket.create_connection(('127.0.0.1', port), _TIMEOUT_S)
        )
    yield
