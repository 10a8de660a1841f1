"""Playing through the application, as pages do it."""

import json

import jax
import numpy as np
import pytest
import web_helpers
from starlette import websockets

from ftwax.environments.capture_the_flag import rules
from ftwax.reporting import saved_games


@pytest.fixture(scope='module')
def playable():
  return web_helpers.make_capture_the_flag()


@pytest.fixture
def made(playable, tmp_path):
  client, saved = web_helpers.make_client(playable, tmp_path / 'games')
  with client:
    yield client, saved


def _connect(client):
  return web_helpers.connect(client)


def _refusal(client, host, headers):
  with pytest.raises(websockets.WebSocketDisconnect) as refused:
    with client.websocket_connect(f'ws://{host}/room', headers=headers):
      pass
  return refused.value.reason


def _play_to_the_end(socket):
  states = []
  while True:
    message = socket.receive_json()
    if 'state' in message:
      states.append(message['state'])
    if 'end' in message:
      return states, message


def test_a_person_plays_by_the_rules_and_the_game_is_saved(made, playable):
  client, saved = made
  with _connect(client) as socket:
    web_helpers.receive(socket, 'hello')
    socket.send_json({'do': 'speed', 'speed': 15})
    socket.send_json({'do': 'seat', 'seat': 1, 'player': 'still'})
    socket.send_json({'do': 'sit', 'seat': 0})
    socket.send_json({'do': 'play'})
    facts = web_helpers.receive(socket, 'facts')['facts']
    socket.send_json({'do': 'keys', 'down': [3]})  # East.
    states, end = _play_to_the_end(socket)
  cells = [state[9] for state in states]
  free = [0, 3]  # Floor and stands.
  for before, after in zip(cells, cells[1:], strict=False):
    is_open = facts['tiles'][before + 1] in free and before + 1 != states[0][10]
    assert after in (before, before + is_open)
  assert cells[-1] > cells[0]
  record = saved.read(end['saved'])
  assert record['states'] == states and len(states) == 13
  assert end['elo'] == {'player': {'rating': 1000, 'games': 1}}


def test_arrows_move_on_the_map_whatever_the_figure_faces(playable):
  quarters = dict(zip(rules.MOVES, (None, 0, 2, 3, 1), strict=True))
  for facing, go in np.ndindex(4, 4):
    state = [0] * 9 + [20, 30, facing, 1, 0, 0, 0, 0]  # Of two players.
    choices = playable.page.steer(state, 0, {'go': go, 'tag': 1})
    turned = facing + rules.TURN_QUARTERS[choices.get('turn', 0)]
    move = rules.MOVES[choices['move']]
    assert (turned + quarters[move]) % 4 == go and choices['tag'] == 1
  assert playable.page.steer(state, 0, {'move': 2}) == {'move': 2}


def test_a_saved_game_is_played_again_to_the_same_states(made, playable):
  client, saved = made
  with _connect(client) as socket:
    socket.send_json({'do': 'speed', 'speed': 15})
    socket.send_json({'do': 'play'})
    _, end = _play_to_the_end(socket)
  record = saved.read(end['saved'])
  keys = jax.random.split(jax.random.PRNGKey(record['seed']), 3)
  reset, step = playable.functions
  state, *_ = reset(keys[0])
  for shown, seats in zip(
    record['states'], [*record['actions'], None], strict=True
  ):
    assert np.asarray(playable.page.to_page(state)).tolist() == shown
    if seats is not None:
      rows = [{k: np.int32(v) for k, v in seat.items()} for seat in seats]
      state, *_ = step(state, jax.tree.map(lambda *x: np.stack(x), *rows))


def test_a_saved_game_is_one_page(made):
  client, saved = made
  code = 'ftwax.games.catch = "</script>";'
  game = {
    'game': 'catch', 'script': 'catch', 'code': code,
    'facts': {'rows': 3, 'columns': 3},
    'seats': [
      {'name': '</script><b>', 'kind': 'person', 'team': 0, 'rating': 0}
    ],
    'states': [[0, 0, 1], [0, 1, 1]], 'outcome': [0.0],
  }  # fmt: skip
  name = saved.save(game)
  assert [row['name'] for row in client.get('/games').json()] == [name]
  page = client.get(f'/games/{name}')
  assert page.status_code == 200 and '</script><b>' not in page.text
  # The script of the library draws it, not the one that the file brings.
  assert code not in page.text and r'"<\/script>";' not in page.text
  assert 'ftwax.games.catch = ' in page.text
  assert 'src=' not in page.text and 'href=' not in page.text
  policy = page.headers['content-security-policy']
  assert "default-src 'none'" in policy and 'sandbox' in policy
  shared = client.get(f'/games/{name}?download=1')
  assert 'attachment' in shared.headers['content-disposition']


@pytest.mark.filterwarnings('ignore::ftwax.records.files.DamagedRecordWarning')
@pytest.mark.parametrize(
  'name', ['20260101-000000-catch', '..%2Fsecret', 'x', '20260101-000001-bad']
)
def test_a_game_that_is_not_there_or_damaged_is_told(made, tmp_path, name):
  client, _ = made
  (tmp_path / 'games').mkdir()
  (tmp_path / 'games' / '20260101-000001-bad.json').write_text('{"format":')
  response = client.get(f'/games/{name}')
  assert response.status_code == 404
  assert client.get('/games').json() == []


def test_two_people_who_ask_for_one_seat(made):
  client, _ = made
  with _connect(client) as first, _connect(client) as second:
    first.send_json({'do': 'name', 'name': 'Ada'})
    first.send_json({'do': 'sit', 'seat': 0})
    web_helpers.receive_phase(first, 'ready')
    while (
      not (room := web_helpers.receive(second, 'phase'))['seats'][0]['name']
      == 'Ada'
    ):
      pass
    second.send_json({'do': 'sit', 'seat': 0})
    error = web_helpers.receive(second, 'error')['error']
    assert error == 'Seat 1 is taken by Ada; choose another seat.'
    assert room['you'] != 'Ada'
    second.send_json({'do': 'name', 'name': 'Ada'})
    assert web_helpers.receive(second, 'phase')['you'] == 'Ada 2'


def test_a_person_who_goes_leaves_the_game_running(made):
  client, saved = made
  with _connect(client) as first:
    first.send_json({'do': 'speed', 'speed': 15})
    with _connect(client) as second:
      second.send_json({'do': 'sit', 'seat': 1})
      second.send_json({'do': 'seat', 'seat': 0, 'player': 'still'})
      second.send_json({'do': 'play'})
      web_helpers.receive_phase(second, 'playing')
      for _ in range(2):
        web_helpers.receive(second, 'state')
      second.send_json({'do': 'stand'})
      while not web_helpers.receive(second, 'phase')['seats'][1]['name']:
        pass
    states, end = _play_to_the_end(first)
  # Who leaves before the end has the result of the seat.
  assert len(states) > 2 and end['elo']['player 2']['games'] == 1
  seat = saved.read(end['saved'])['seats'][1]
  assert (seat['name'], seat['kind']) == ('player 2', 'person')


def test_who_breaks_off_a_game_has_lost_it(made):
  client, saved = made
  with _connect(client) as socket:
    socket.send_json({'do': 'sit', 'seat': 1})
    socket.send_json({'do': 'play'})
    for _ in range(3):
      web_helpers.receive(socket, 'state')
    for request in ('stand', 'restart'):
      socket.send_json({'do': request})
    while 'gave up' not in web_helpers.receive(socket, 'phase')['text']:
      pass
    socket.send_json({'do': 'sit', 'seat': 1})
    web_helpers.receive_phase(socket, 'playing')
    for _ in range(3):
      web_helpers.receive(socket, 'state')
  # The last person goes.
  with _connect(client) as socket:
    web_helpers.receive_phase(socket, 'ready')
  outcomes = [game['outcome'] for _, game in saved.readable()]
  rating, num_games = saved.rate('player')
  assert outcomes == [[1.0, -1.0]] * 2 and num_games == 2 and rating < 1000


def test_an_empty_room_forgets(made):
  client, _ = made
  with _connect(client) as socket:
    first = web_helpers.receive(socket, 'phase')
    socket.send_json({'do': 'seat', 'seat': 1, 'player': 'still'})
    socket.send_json({'do': 'speed', 'speed': 15})
    while web_helpers.receive(socket, 'phase')['speed'] != 15:
      pass
    web_helpers.receive_phase(socket, 'ready')
  with _connect(client) as socket:
    again = web_helpers.receive(socket, 'phase')
    assert again == first
    web_helpers.receive_phase(socket, 'ready')


NONSENSE = [
  'no json', '[]', '"x"', '{"do": 3}', '{"do": "close"}', '{"do": "_run"}',
  '{"do": "sit"}', '{"do": "sit", "seat": 99}', '{"do": "sit", "seat": true}',
  '{"do": "seat", "seat": 0, "player": {}}', '{"do": "speed", "speed": 1e9}',
  '{"do": "keys", "down": [77]}', '{"do": "keys", "down": "x"}',
  '{"do": "name", "name": "   "}', '[' * 4000, 'x' * 5000,
]  # fmt: skip


def test_nonsense_is_answered_by_a_sentence(made):
  client, _ = made
  with _connect(client) as socket:
    for text in NONSENSE:
      socket.send_text(text)
      assert web_helpers.receive(socket, 'error')['error'].endswith('.')
    socket.send_bytes(b'\x00')
  assert client.get('/').status_code == 200


def test_a_thousand_messages_a_second_cut_off_one_page_alone(made):
  client, _ = made
  with _connect(client) as good:
    with _connect(client) as bad:
      for _ in range(1000):
        bad.send_text(json.dumps({'do': 'keys', 'down': []}))
      with pytest.raises(websockets.WebSocketDisconnect) as closed:
        while True:
          bad.receive_json()
    assert 'too many messages' in closed.value.reason
    good.send_json({'do': 'speed', 'speed': 5})
    while web_helpers.receive(good, 'phase')['speed'] != 5:
      pass


def test_pages_of_others_are_refused(playable, tmp_path):
  client, _ = web_helpers.make_client(playable, tmp_path)
  with client:
    evil = client.get('/', headers={'host': 'evil.example'})
    assert evil.status_code == 403 and 'answers to' in evil.text
    origin = {'origin': 'http://evil.example'}
    assert client.get('/games', headers=origin).status_code == 403
    for headers in (origin, {}):
      assert 'own pages' in _refusal(client, '127.0.0.1', headers)
    for site in ('cross-site', 'same-site'):  # A script tag sends no origin.
      script = {'sec-fetch-site': site, 'sec-fetch-mode': 'no-cors'}
      assert client.get('/games', headers=script).status_code == 403
    link = {'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate'}
    assert client.get('/', headers=link).status_code == 200
    assert (
      "script-src 'self'" in client.get('/').headers['content-security-policy']
    )


def test_other_addresses_need_the_token(playable, tmp_path):
  client, _ = web_helpers.make_client(
    playable, tmp_path, host='192.0.2.1', token='secret'
  )
  client.base_url = 'http://192.0.2.1'
  with client:
    assert 'lacks the token' in client.get('/').text
    assert client.get('/?token=wrong').status_code == 403
    assert client.get('/?token=secret').status_code == 200
    assert client.get('/games').status_code == 200  # By the cookie.
    client.cookies.clear()
    assert client.get('/games').status_code == 403
    headers = {'origin': 'http://192.0.2.1'}
    assert 'token' in _refusal(client, '192.0.2.1', headers)


def test_catch_alone_is_played_to_its_end(tmp_path):
  client, saved = web_helpers.make_client(web_helpers.make_catch(), tmp_path)
  with client, _connect(client) as socket:
    socket.send_json({'do': 'speed', 'speed': 15})
    socket.send_json({'do': 'sit', 'seat': 0})
    socket.send_json({'do': 'keys', 'down': [1]})
    socket.send_json({'do': 'play'})
    states, end = _play_to_the_end(socket)
  assert [state[1] for state in states] == list(range(10))
  assert states[-1][2] == 4  # Right all along.
  assert end['elo'] == {'player': {'rating': 1000, 'games': 0}}
  assert saved.read(end['saved'])['outcome'] == [0.0]


def test_elo_of_a_person_climbs_by_wins():
  def game(outcome):
    seats = [
      {'name': 'Ada', 'kind': 'person', 'team': 0, 'rating': 1000},
      {'name': 'member 0', 'kind': 'player', 'team': 1, 'rating': 1400},
    ]
    return {'seats': seats, 'outcome': [outcome, -outcome]}

  once, _ = saved_games.rate([game(1.0)], 'Ada')
  assert once == pytest.approx(1000 + 32 * (1 - 1 / 11), abs=0.01)
  twice, count = saved_games.rate([game(1.0), game(-1.0)], 'Ada')
  assert 1000 < twice < once and count == 2
  assert saved_games.rate([game(1.0)], 'Bob') == (1000.0, 0)
