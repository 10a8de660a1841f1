"""The page that follows runs, through the application."""

import json
import pathlib

import pytest
import web_helpers
from starlette import testclient, websockets

from ftwax.inference import playable
from ftwax.records import run_directory
from ftwax.reporting import saved_games
from ftwax.web import pages, play_room, run_tail


@pytest.fixture
def run(tmp_path):
  return web_helpers.make_run(tmp_path / 'run')


def _client(directory, make_room=None):
  saved = saved_games.SavedGames(pathlib.Path(directory) / 'games')
  tails = [run_tail.RunTail(directory)]
  app = pages.make_watch_app(tails, make_room, saved)
  return testclient.TestClient(app, base_url=web_helpers.BASE_URL)


def test_a_growing_log_is_read_as_far_as_it_is_new(run):
  client = _client(run)
  first = client.get('/runs/0/logs').json()['train']
  assert [row['actor_steps'] for row in first['rows']] == [10, 20]
  with open(run / 'logs' / 'train.jsonl', 'a') as file:
    file.write('{"actor_steps": 30}\n{"actor_st')  # A line half written.
  second = client.get(f'/runs/0/logs?train={first["offset"]}').json()['train']
  assert second['rows'] == [{'actor_steps': 30}] and not second['fresh']
  third = client.get(f'/runs/0/logs?train={second["offset"]}').json()['train']
  assert third['rows'] == [] and third['offset'] == second['offset']


def test_a_log_begun_anew_is_read_from_its_start(run):
  tail = _client(run).get('/runs/0/logs?train=99999').json()['train']
  assert tail['fresh'] and len(tail['rows']) == 2


def test_damaged_lines_are_left_out_and_counted(run):
  with open(run / 'logs' / 'train.jsonl', 'ab') as file:
    file.write(b'\x00\xff\n[1]\n{"actor_steps": 40}\n')
  tail = _client(run).get('/runs/0/logs').json()['train']
  assert [row['actor_steps'] for row in tail['rows']] == [10, 20, 40]
  assert tail['damaged'] == 2


def test_long_logs_come_in_parts(run, monkeypatch):
  monkeypatch.setattr(run_tail, '_MAX_BYTES', 80)
  rows, offset, more = [], 0, True
  while more:
    tail = _client(run).get(f'/runs/0/logs?train={offset}').json()['train']
    rows, offset, more = rows + tail['rows'], tail['offset'], tail['more']
  assert [row['actor_steps'] for row in rows] == [10, 20]


def test_facts_of_a_run(run):
  (facts,) = _client(run).get('/runs').json()
  assert facts['experiment'] == 'catch' and facts['seed'] == 3
  assert facts['events'] == ['reward'] and facts['checkpoint'] is None
  assert 'problem' not in facts
  (run / 'checkpoints' / '0000000020').mkdir(parents=True)
  (run / 'checkpoints' / 'tmp-0000000030').mkdir()
  (run / 'output').mkdir()
  (run / 'output' / 'nodes.json').write_text('{"actor/0": "seen 1 s ago"}')
  (facts,) = _client(run).get('/runs').json()
  assert facts['checkpoint'] == '0000000020'
  assert facts['nodes'] == {'actor/0': 'seen 1 s ago'}
  assert facts['report'] is False and 'tournament' not in facts
  assert not facts['running'] and not facts['error']
  with run_directory.lock(run):
    assert _client(run).get('/runs').json()[0]['running']


def test_a_report_and_a_tournament_are_shown(run):
  client = _client(run)
  assert client.get('/runs/0/report').status_code == 404
  (run / 'report.html').write_text('<p>Report</p>')
  results = {
    'players': ['member 0', 'random'], 'ratings': [90.0, 0.0],
    'lows': [80.0, 0.0], 'highs': [100.0, 0.0],
  }  # fmt: skip
  more = {'num_members': 1, 'anchor': 1, 'num_games': 9}
  more |= {'win_rates': [[None, 0.6], [0.4, None]]}
  more |= {'half_widths': [[None, 0.1], [0.1, None]]}
  (run / 'tournament.json').write_text(json.dumps({**results, **more}))
  (facts,) = client.get('/runs').json()
  assert facts['report'] and facts['tournament'] == results
  report = client.get('/runs/0/report')
  # It is made anew, from records, which lack the log of a population here.
  assert report.status_code == 404 and '<p>Report</p>' not in report.text
  assert facts['outcome'][1].startswith('In the tournament, it has 90 ± 10 Elo')
  (run / 'tournament.json').write_text('{}')
  (facts,) = client.get('/runs').json()
  assert "KeyError: 'players'" in facts['problem']


@pytest.mark.parametrize('kind', ['none', 'empty', 'damaged', 'other'])
def test_a_directory_that_holds_no_run_is_told(tmp_path, kind):
  directory = tmp_path / 'run'
  if kind != 'none':
    directory.mkdir()
  if kind in ('damaged', 'other'):
    text = '{"name":' if kind == 'damaged' else '[]'
    (directory / 'config.json').write_text(text)
  client = _client(directory, playable.find)
  (facts,) = client.get('/runs').json()
  assert str(directory) in facts['problem']
  assert client.get('/runs/0/logs').json() == {}
  with client, _room(client) as socket:
    assert str(directory) in socket.receive_json()['error']
    with pytest.raises(websockets.WebSocketDisconnect) as closed:
      socket.receive_json()
  assert closed.value.code == 1011


def test_runs_that_are_not_there_are_told(run):
  client = _client(run)
  assert client.get('/runs/7/logs').status_code == 404
  assert client.get('/runs/7/play').text == 'There is no run 7 here.'


def test_games_are_of_the_newest_checkpoint_when_a_person_enters(run):
  made = []

  def make_room(directory):
    made.append(directory)
    saved = saved_games.SavedGames(run / 'games')
    return play_room.Room(web_helpers.make_catch(), saved)

  client = _client(run, make_room)
  with client:
    for checkpoint in ('10', '10', '20'):
      (run / 'checkpoints' / checkpoint).mkdir(parents=True, exist_ok=True)
      with _room(client) as socket:
        assert web_helpers.receive(socket, 'hello')['hello'] == 'catch'
  assert len(made) == 2


def test_answers_are_compressed(run):
  response = _client(run).get('/drawing/charts.js')
  assert response.headers['content-encoding'] == 'gzip'
  assert 'ftwax.Chart' in response.text


def test_strength_is_fitted_when_there_are_new_games(run):
  client = _client(run)
  assert client.get('/runs').json()[0]['strength'] is None
  row = {
    'actor_steps': 20, 'scores/random': 0.5, 'scores/strong': 0.25,
    'member_scores': [[0.5, 0.25]], 'member_games': [[10, 10]],
  }  # fmt: skip
  path = run / 'logs' / 'evaluation.jsonl'
  path.write_text(json.dumps(row) + '\n')
  found = client.get('/runs').json()[0]['strength']
  assert found['opponents'] == ['random', 'strong']
  assert found['elo'][0][0] == pytest.approx(0.0, abs=2.0)
  assert found['opponent_elo'][1] == pytest.approx(191.0, abs=2.0)
  assert found['elo_errors'][0][0] > 100.0


def test_what_goes_on_in_members_is_told_to_those_who_ask(tmp_path):
  found = playable.find('capture_the_flag')
  assert found.players.names[:5] == [
    'member 0', 'member 1', 'member 2', 'member 3', 'wanderer'
  ]  # fmt: skip
  names = ('member 0', 'tactician', 'attacker', 'wanderer')
  ratings = [found.players.rating(name) for name in names]
  assert ratings == sorted(ratings, reverse=True)
  assert len(set(ratings)) == 4
  client, _ = web_helpers.make_client(found, tmp_path)
  with client, web_helpers.connect(client) as socket:
    socket.send_json({'do': 'look', 'on': True})
    socket.send_json({'do': 'view', 'all': False, 'seat': 2})
    socket.send_json({'do': 'play'})
    view = web_helpers.receive(socket, 'view')
    looks = web_helpers.receive(socket, 'looks')['looks']
  assert view['seat'] == 2 and len(view['view']['cells']) == 49
  assert [set(look) for look in looks] == [{'value'}] * 4


def test_a_game_of_pettingzoo_is_shown_by_its_frames(tmp_path):
  found = playable.find('pettingzoo:butterfly/cooperative_pong-v6')
  client, _ = web_helpers.make_client(found, tmp_path)
  with client, web_helpers.connect(client) as socket:
    hello = web_helpers.receive(socket, 'hello')
    assert hello['script'] == 'frames' and len(hello['keys']) == 2
    socket.send_json({'do': 'sit', 'seat': 0})
    socket.send_json({'do': 'keys', 'down': [0]})
    socket.send_json({'do': 'play'})
    frames = [web_helpers.receive(socket, 'state')['state'] for _ in range(3)]
    assert all(frame.startswith('data:image/png') for frame in frames)
    assert frames[1] != frames[2]
    socket.send_json({'do': 'view', 'all': False})
    view = web_helpers.receive(socket, 'view')['view']
    assert view['frame'].startswith('data:image/png')
  with pytest.raises(ValueError, match='must be a parallel environment'):
    playable.find('pettingzoo:none')


def _room(client):
  return client.websocket_connect(
    'ws://127.0.0.1/runs/0/room', headers={'origin': web_helpers.BASE_URL}
  )


def test_a_run_that_compiles_knows_how_long_the_last_one_did(tmp_path):
  now = web_helpers.make_run(tmp_path / 'b')
  (now / 'logs' / 'train.jsonl').unlink()
  assert _client(now).get('/runs').json()[0]['compiling_s'] is None
  before = web_helpers.make_run(tmp_path / 'a')  # It trained for 20 seconds.
  log = before / 'logs' / 'train.jsonl'
  (before / 'ended.txt').write_text('2026-01-01T00:00:50+00:00\n')
  assert _client(now).get('/runs').json()[0]['compiling_s'] == 30.0
  (before / 'command.txt').write_text('a\nb\n')  # Resumed: nobody knows.
  assert _client(now).get('/runs').json()[0]['compiling_s'] is None
  (before / 'command.txt').write_text('2026-01-01T00:00:00 train\n')
  log.write_text('')  # It ended before its first row.
  (facts,) = _client(now).get('/runs').json()
  assert facts['compiling_s'] is None and 'problem' not in facts
