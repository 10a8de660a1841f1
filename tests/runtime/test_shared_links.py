"""Links in a run, which could publish other files of the one who shares it."""

import pytest

from ftwax.inference import sharing
from ftwax.records import files


@pytest.mark.parametrize('name', ['config.json', 'videos/game.gif'])
def test_a_link_is_refused(tmp_path, name):
  secret = tmp_path / 'secret'
  secret.write_text('{}')
  run = tmp_path / 'run'
  (run / 'videos').mkdir(parents=True)
  (run / name).symlink_to(secret)
  with pytest.raises(ValueError, match=f'{name} is a link or in one'):
    sharing.write_folder(run, tmp_path / 'out', [0], (), {})
  assert not (tmp_path / 'out').exists()  # A refused export leaves nothing.


@pytest.mark.parametrize('text', ['[' * 100_000, '[]', '{', 'null'])
def test_a_damaged_record_is_named(tmp_path, text):
  path = tmp_path / 'game.json'
  path.write_text(text)
  with pytest.raises(ValueError, match='game.json must hold specs'):
    files.parse_json(path, lambda plain: plain['event_names'][0], 'specs')
