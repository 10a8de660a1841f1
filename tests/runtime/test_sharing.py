"""Uploads of shared agents to a stand-in of a hub on this machine."""

import base64
import http.server
import json
import sys
import threading

import pytest

from ftwax.inference import sharing


class _Hub(http.server.BaseHTTPRequestHandler):
  """As much of a hub's interface as an upload of small files needs."""

  def do_POST(self):
    body = self.rfile.read(int(self.headers['Content-Length'] or 0))
    base = f'http://127.0.0.1:{self.server.server_address[1]}'
    if self.path == '/api/repos/create':
      self.server.created.append(json.loads(body))
      self._answer({'url': f'{base}/me/agent'})
    elif '/preupload/' in self.path:
      files = json.loads(body)['files']
      self._answer(
        {
          'files': [
            {
              'path': file['path'],
              'uploadMode': 'regular',
              'shouldIgnore': False,
              'oid': None,
            }
            for file in files
          ]
        }
      )
    elif '/commit/' in self.path:
      for line in body.splitlines():
        entry = json.loads(line)
        if entry['key'] == 'file':
          value = entry['value']
          content = base64.b64decode(value['content'])
          self.server.files[value['path']] = content
      self._answer(
        {
          'success': True,
          'commitOid': 'a' * 40,
          'commitUrl': f'{base}/me/agent/commit/{"a" * 40}',
        }
      )
    else:
      self._answer({'errors': [], 'warnings': []})

  def do_GET(self):
    self._answer({})

  def log_message(self, *arguments):
    del arguments

  def _answer(self, content):
    text = json.dumps(content).encode()
    self.send_response(200)
    self.send_header('Content-Type', 'application/json')
    self.send_header('Content-Length', str(len(text)))
    self.end_headers()
    self.wfile.write(text)


@pytest.fixture
def hub():
  server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), _Hub)
  server.created, server.files = [], {}
  thread = threading.Thread(target=server.serve_forever)
  thread.start()
  yield server
  server.shutdown()
  thread.join()
  server.server_close()


def test_a_folder_is_uploaded(tmp_path, hub):
  pytest.importorskip('huggingface_hub', reason='the extra hub is not there')
  (tmp_path / 'README.md').write_text('---\nlibrary_name: ftwax\n---\n')
  (tmp_path / 'about.json').write_text('{}')
  address = sharing.push_folder(
    tmp_path,
    'me/agent',
    endpoint=f'http://127.0.0.1:{hub.server_address[1]}',
    token='hf_none',
  )
  assert hub.created[0]['name'] == 'agent'
  assert hub.files == {
    path.name: path.read_bytes() for path in tmp_path.iterdir()
  }
  assert '/me/agent/' in address


def test_without_the_extra_the_remedy_is_named(tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, 'huggingface_hub', None)
  with pytest.raises(ImportError, match=r'huggingface_hub must .*\[hub\]'):
    sharing.push_folder(tmp_path, 'me/agent')
