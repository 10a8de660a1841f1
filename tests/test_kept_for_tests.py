"""The folder of functions that sessions of tests keep."""

import kept_functions


def test_the_folder_is_that_of_versions_and_machine(tmp_path, monkeypatch):
  folder = kept_functions.make_folder(tmp_path)
  (folder / 'function').write_bytes(b'x' * 10)
  assert kept_functions.make_folder(tmp_path) == folder
  assert (folder / 'function').exists()
  monkeypatch.setattr(
    kept_functions.importlib.metadata, 'version', lambda name: f'{name} 99'
  )
  other = kept_functions.make_folder(tmp_path)
  assert other != folder and not folder.exists()


def test_a_large_folder_begins_anew(tmp_path, monkeypatch):
  folder = kept_functions.make_folder(tmp_path)
  (folder / 'function').write_bytes(b'x' * 10)
  monkeypatch.setattr(kept_functions, '_MAX_BYTES', 5)
  assert not any(kept_functions.make_folder(tmp_path).iterdir())
