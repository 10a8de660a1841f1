"""Which nodes of a run share a host of the cluster."""

import pytest

from ftwax.runtime.cluster import archives, bundles

_NAMES = ['counter', 'replay', 'learner', 'actor/0', 'actor/1', 'evaluator']


def test_a_learner_its_replay_server_and_the_counter_share_a_host():
  made = bundles.make(_NAMES, {})
  assert made.of_node == {
    'counter': 0,
    'replay': 0,
    'learner': 0,
    'actor/0': 1,
    'actor/1': 2,
    'evaluator': 3,
  }
  assert made.resources == [{'CPU': 1.0}] * 4


def test_each_learner_has_a_host_with_its_own_replay_server():
  names = ['counter', 'keeper', 'replay/0', 'replay/1']
  names += ['learner/0', 'learner/1']
  made = bundles.make(names, {'learner': {'GPU': 1}, 'replay': {'memory': 1e9}})
  assert made.of_node == {
    'counter': 0,
    'keeper': 0,
    'replay/0': 0,
    'learner/0': 0,
    'replay/1': 1,
    'learner/1': 1,
  }
  bundle = {'CPU': 1.0, 'GPU': 1.0, 'memory': 1e9}
  assert made.resources == [bundle, bundle]


def test_resources_replace_defaults():
  made = bundles.make(_NAMES, {'actor': {'CPU': 0, 'simulator': 2}})
  assert made.resources[1] == {'simulator': 2}


def test_wrong_resources_are_refused():
  with pytest.raises(
    ValueError, match="resources of 'actr' must belong to nodes"
  ):
    bundles.make(_NAMES, {'actr': {'CPU': 1}})
  with pytest.raises(ValueError, match=r"\['actor/0'\] must include one above"):
    bundles.make(_NAMES, {'actor': {'CPU': 0}})


def test_a_directory_is_packed_and_unpacked(tmp_path):
  (tmp_path / 'from' / 'a').mkdir(parents=True)
  (tmp_path / 'from' / 'a' / 'b.txt').write_text('text')
  (tmp_path / 'to').mkdir()
  archives.unpack(archives.pack(tmp_path / 'from'), tmp_path / 'to')
  assert (tmp_path / 'to' / 'a' / 'b.txt').read_text() == 'text'
