"""The pages in headless Chromium, where the machine has one."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import uvicorn
import web_helpers
from axe_core_python import sync_playwright as axe
from playwright import sync_api
from starlette import applications, responses, routing, staticfiles

from ftwax.environments import capture_the_flag
from ftwax.environments.capture_the_flag import rays, rules
from ftwax.inference import live_game, playable
from ftwax.records import run_directory
from ftwax.reporting import comparison, report, saved_games, sweep_figures
from ftwax.reporting import page as report_page
from ftwax.web import pages, play_room, run_tail

ROOT = pathlib.Path(__file__).parents[2]

_CHROMIUM = shutil.which('chromium') or shutil.which('chromium-browser')

# Pages ask every five seconds, which takes long in a test.
_HURRY = """const wait = setTimeout;
setTimeout = (does, period) => wait(does, period > 1000 ? period / 20 : period);
"""

# The path of the last chart at the top of the live page, and its points.
_LINES = '[...document.querySelectorAll("#top .line")]'
_PATH = f'{_LINES}.at(-1)?.getAttribute("d") || ""'
# The numbers below each chart there.
_TICKS = """[...document.querySelectorAll('#top .chart svg')].map((svg) =>
  [...svg.querySelectorAll('text[text-anchor=middle]')].map((text) =>
    text.textContent).filter((text) => /^\\d/.test(text)))"""
_NUM_POINTS = f'({_PATH}).split(/[ML]/).length - 1'

pytestmark = pytest.mark.skipif(
  _CHROMIUM is None,
  reason='These tests drive Chromium: apt-get install chromium',
)


@contextlib.contextmanager
def _serve(app):
  """Serves an application on loopback and returns its address."""
  listening = socket.create_server(('127.0.0.1', 0))
  server = uvicorn.Server(
    uvicorn.Config(app, log_level='error', ws='websockets-sansio')
  )
  thread = threading.Thread(target=server.run, args=([listening],))
  thread.start()
  try:
    yield f'http://127.0.0.1:{listening.getsockname()[1]}'
  finally:
    server.should_exit = True
    thread.join()
    listening.close()


@pytest.fixture(scope='module')
def browser():
  with sync_api.sync_playwright() as playwright:
    started = playwright.chromium.launch(
      executable_path=_CHROMIUM, args=['--no-sandbox']
    )
    yield started
    started.close()


@pytest.fixture
def page(browser):
  context = browser.new_context()
  context.set_default_timeout(60_000)
  made = context.new_page()
  errors = []
  made.on('pageerror', lambda error: errors.append(error))
  made.on('console', lambda message: _note(message, errors))
  yield made
  context.close()
  assert errors == []


def _note(message, errors):
  # A server that is gone is a test of its own.
  if message.type in ('error', 'warning') and 'net::ERR' not in message.text:
    errors.append(message.text)


@pytest.fixture(scope='module')
def game_table(tmp_path_factory):
  saved = saved_games.SavedGames(tmp_path_factory.mktemp('games'))
  room = play_room.Room(web_helpers.make_capture_the_flag(num_steps=40), saved)
  with _serve(pages.make_play_app(room, saved)) as address:
    yield address, saved


# Words and pictures in the first screen.
_SHOWN = """[...document.querySelectorAll('h1, p, td, button, svg, canvas')]
  .filter((one) => one.checkVisibility() && one.getBoundingClientRect().top
    < innerHeight && (one.textContent.trim() || one.tagName === 'CANVAS'))
  .length"""


# The first families of what is read.
_FAMILIES = """[...new Set([...document.querySelectorAll('h1, h2, h3, p, li')]
  .map((one) => getComputedStyle(one).fontFamily.split(',')[0]))]"""

_OVERFLOW = 'document.scrollingElement.scrollWidth - innerWidth'


def _check_looks(page, name):
  """Checks contrast, names, roles and room, in light and dark, on a phone.

  `FTWAX_SCREENSHOTS=DIRECTORY` keeps what was seen.
  """
  folder = os.environ.get('FTWAX_SCREENSHOTS')
  for width, height in ((1440, 900), (390, 844)):
    page.set_viewport_size({'width': width, 'height': height})
    for scheme in ('dark', 'light'):
      page.emulate_media(color_scheme=scheme)
      page.evaluate('scrollTo(0, 0)')
      if folder:
        page.wait_for_timeout(300)
        page.screenshot(
          path=f'{folder}/{name}_{width}_{scheme}.png', full_page=True
        )
      assert page.evaluate(_SHOWN) > 2
      if width < 1000:  # It takes seconds.
        assert [
          (found['id'], found['nodes'][0]['html'], found['nodes'][0]['any'])
          for found in axe.Axe().run(page)['violations']
        ] == []
    assert page.evaluate(_OVERFLOW) <= 0


def test_a_game_is_played_by_the_keyboard_and_watched_again(page, game_table):
  address, saved = game_table
  page.goto(address)
  page.wait_for_selector('#play:enabled')
  # Who comes sits, and knows the rules.
  page.wait_for_selector('#sit0:has-text("Stand up")')
  rules = page.inner_text('#rules')
  assert "Grab the red team's flag and bring it to your blue frame." in rules
  assert page.inner_text('#advice').startswith('Grab the red flag and bring')
  page.select_option('#player1', 'still')
  page.keyboard.down('ArrowRight')  # Starts the game, too.
  page.wait_for_selector('#result a')
  page.click('#share')
  page.wait_for_selector(
    '#result [role=status]:has-text(" in capture the flag")'
  )
  page.keyboard.up('ArrowRight')
  assert page.evaluate('ftwax.latency.length') == 1
  assert page.inner_text('#problem') == ''
  name = page.get_attribute('#result a', 'href').split('/')[-1]
  record = saved.read(name)
  ahead = [step[0]['move'] == 1 for step in record['actions']]
  assert sum(ahead) > 5
  cells = np.array([state[9] for state in record['states']])
  steps = np.diff(cells)
  assert set(steps[ahead].tolist()) <= {0, 1} and steps[ahead][0] == 1
  assert not steps[~np.array(ahead)].any()  # No key, no move.
  _check_looks(page, 'play')


@pytest.mark.ci
def test_a_game_is_played_in_first_person(page, tmp_path):
  saved = saved_games.SavedGames(tmp_path)
  playable = web_helpers.make_capture_the_flag(
    num_steps=60, observation='rays', compass=False
  )
  room = play_room.Room(playable, saved)
  with _serve(pages.make_play_app(room, saved)) as address:
    page.goto(address)
    page.wait_for_selector('#play:enabled')
    page.wait_for_selector('#sit0:has-text("Stand up")')
    assert page.evaluate('[ftwax.stage.seat, ftwax.stage.looks]') == [0, True]
    assert page.inner_text('.ArrowLeft span') == 'turn left'
    page.select_option('#player1', 'still')
    page.keyboard.press('ArrowRight')  # Starts the game, too, and turns south.
    page.keyboard.down('ArrowUp')
    page.wait_for_selector('#result a')
    page.keyboard.up('ArrowUp')
    name = page.get_attribute('#result a', 'href').split('/')[-1]
    record = saved.read(name)
    _check_looks(page, 'first_person')
  num_players = len(record['seats'])
  turns = [step[0]['turn'] for step in record['actions']]
  assert sorted(set(turns)) == [0, 2] and turns.count(2) == 1
  cells = np.array([state[9] for state in record['states']])
  directions = [state[9 + num_players] for state in record['states']]
  assert directions[0] == 1 and directions[-1] == 2
  width = record['facts']['width']
  assert set(np.diff(cells).tolist()) <= {0, 1, width}


_CAST = """(facts, x, y, angles) => angles.map((angle) =>
  ftwax.games.capture_the_flag.castRay(facts, x, y, angle).distance)"""


def test_replays_switch_between_the_map_and_what_players_see(page, tmp_path):
  config = capture_the_flag.CaptureTheFlagConfig(
    height=9, width=13, num_steps=12, observation='rays', num_rays=31
  )
  game = playable.make('first', capture_the_flag.make(config))
  live_game.record_matches(game, [('wanderer', 'wanderer')], tmp_path)
  saved = saved_games.SavedGames(tmp_path / 'games')
  ((_, played),) = saved.readable()
  path = tmp_path / 'game.html'
  path.write_text(saved_games.to_html(played, saved_games.own_scripts()))
  page.context.set_offline(True)
  page.goto(path.as_uri())
  page.wait_for_selector('canvas')
  choice = page.locator('select[aria-label="What is shown"]')
  assert choice.input_value() == '0'  # As the game's agents see it.
  pictures = []
  for shown in ('0', '2', '-1'):
    choice.select_option(shown)
    for inset in (True, False) if shown != '-1' else (True,):
      if shown != '-1':
        page.locator('input[type=checkbox]').set_checked(inset)
      page.wait_for_timeout(300)
      pictures.append(page.locator('canvas').screenshot())
  assert len(set(pictures)) == 5
  # Rays of the page end where those of the game do.
  facts, state = played['facts'], played['states'][5]
  tiles = np.array(facts['tiles'], np.int8).reshape(9, 13)
  begin = rules.start(jax.random.PRNGKey(0), config)
  begin = begin._replace(
    map=begin.map._replace(tiles=jnp.asarray(tiles)),
    cell=jnp.array(state[9:13]),
    direction=jnp.array(state[13:17]),
  )
  near = np.asarray(rays.cast(begin, config))[:, 0]
  for seat in range(4):
    row, column = divmod(state[9 + seat], config.width)
    angles = state[13 + seat] * np.pi / 2 + rays.angles(config)
    given = json.dumps([facts, column + 0.5, row + 0.5, angles.tolist()])
    cast = page.evaluate(f'({_CAST})(...{given})')
    np.testing.assert_allclose(near[seat], 1 / (1 + np.array(cast)), rtol=1e-4)
  choice.select_option('0')
  _check_looks(page, 'first_person_replay')


_HASTE = '[speed.max, speed.value] = [1000, 1000]'


def test_the_site_has_a_match_in_first_person(page, tmp_path):
  site = web_helpers.make_site_game(tmp_path)
  page.context.set_offline(True)
  page.goto(site.with_name('first_person.html').as_uri())
  assert page.evaluate('[ftwax.stage.seat, ftwax.stage.looks]') == [0, True]
  assert page.evaluate('ftwax.data.config.num_rays') == 49
  assert page.locator('.of-first-person').is_visible()
  assert not page.locator('.of-map').is_visible()
  page.emulate_media(reduced_motion='reduce')
  page.reload()
  page.click('text=easy')
  page.click('#play')
  page.wait_for_selector('#door', state='hidden')
  direction = 'ftwax.stage.to[9 + ftwax.stage.facts.teams.length]'
  before = page.evaluate(direction)
  assert page.inner_text('.ArrowRight span') == 'turn right'
  page.keyboard.press('ArrowRight')
  page.wait_for_function(f'{direction} === {(before + 1) % 4}')
  _check_looks(page, 'site_first_person_population')
  # The pages differ in their data alone, and lead to each other.
  page.click('.of-first-person >> text=the map')
  page.wait_for_selector('.of-map')
  assert page.evaluate('ftwax.stage.looks') is False
  page.click('text=play in first person')
  page.wait_for_selector('.of-first-person')


@pytest.mark.ci
def test_a_match_against_the_population_is_played_and_shared(page, tmp_path):
  site = web_helpers.make_site_game(tmp_path).as_uri()
  page.context.set_offline(True)
  page.add_init_script(
    'let drawn = 1; Math.random = () =>'
    ' (drawn = drawn * 48271 % 2147483647) / 2147483647;'
  )
  page.goto(site)
  # Members play behind the button, before anybody has done anything.
  before = page.locator('#canvas').screenshot()
  for _ in range(60):
    page.wait_for_timeout(500)
    if page.locator('#canvas').screenshot() != before:
      break
  else:
    pytest.fail('Members do not play.')
  assert page.locator('#rules li').count() == 4
  assert 'Grab the red team' in page.inner_text('#rules')
  assert page.locator('#pad button').count() == 5
  _check_looks(page, 'site_play')
  # Without the members' game, which draws as many numbers as there is time.
  page.emulate_media(reduced_motion='reduce')
  page.reload()
  page.evaluate(_HASTE)
  page.click('text=hard')
  page.wait_for_function('document.activeElement.id === "canvas"')
  page.keyboard.press('Space')  # Starts the match, and tags.
  page.wait_for_selector('#door', state='hidden')
  page.wait_for_selector('#advice:has-text("Grab the red flag")')
  page.keyboard.press('Escape')
  assert page.inner_text('#headline') == 'Paused'
  page.keyboard.press('ArrowRight')  # Nothing is played in a pause.
  assert page.inner_text('#headline') == 'Paused'
  # In first person arrows turn, and on the map they move.
  page.select_option('#look select', '0')
  assert page.inner_text('.ArrowRight span') == 'turn right'
  _check_looks(page, 'site_first_person')
  page.select_option('#look select', '-1')
  assert page.inner_text('.ArrowRight span') == 'right'
  page.click('#play:has-text("Continue")')
  # Who then stands still does not win, and a draw is no win.
  page.wait_for_selector('#save')
  ours, theirs = map(int, re.findall(r'\d+', page.inner_text('#headline')))
  assert ours <= theirs
  with page.expect_download() as download:
    page.click('#save')
  page.click('#play:has-text("Next game")')
  page.wait_for_selector('#headline:has-text("The population won, 0 : 2")')
  detail = page.inner_text('#detail')
  assert 'On hard. ' in detail
  _check_looks(page, 'site_match')
  # The file is a saved game, and its actions lead to the states in the game.
  folder = tmp_path / 'games'
  download.value.save_as(folder / download.value.suggested_filename)
  ((_, record),) = saved_games.SavedGames(folder).readable()
  assert [seat['kind'] for seat in record['seats']] == ['person'] + 3 * [
    'player'
  ]
  assert record['outcome'] == ([-1, 1] if ours < theirs else [0, 0])
  assert record['level'] == 'hard'
  assert len(record['states']) == 301 and len(record['actions']) == 300
  text = saved_games.to_html(record, saved_games.own_scripts())
  assert 'ftwax.games.capture_the_flag' in text
  page.click('#share')
  page.wait_for_selector('#copied:has-text("ftwax population")')
  shared = page.url
  page.goto('about:blank')
  page.goto(shared)
  assert page.inner_text('#headline') == 'A match on hard'
  assert 'Each team grabs' in page.inner_text('#rules')
  _check_looks(page, 'site_replay')
  page.evaluate(_HASTE)
  page.click('#play:has-text("Watch the replay")')
  page.wait_for_selector(f'#headline:has-text(", {ours} : {theirs}")')
  page.click('#play:has-text("Next game")')
  page.wait_for_selector('#headline:has-text("The population won, 0 : 2")')
  assert page.inner_text('#detail') == detail  # The same scores.
  page.click('#leave:has-text("Play yourself")')
  page.wait_for_selector('#play:has-text("Play")')
  assert '#' not in page.url


# Where the first player stands.
_CELL = 'ftwax.stage.to[9]'


def test_members_play_in_the_page_until_the_game_is_compiled(
  page, tmp_path, monkeypatch
):
  compiled = threading.Event()

  def prepare(self, *args):
    compiled.wait(60.0)
    raise ValueError('not in this test')

  monkeypatch.setattr(live_game.LiveGame, 'prepare', prepare)
  saved = saved_games.SavedGames(tmp_path)
  room = play_room.Room(playable.find('capture_the_flag'), saved)
  try:
    with _serve(pages.make_play_app(room, saved)) as address:
      page.goto(address)
      page.wait_for_selector('#status:has-text("Warm-up while")')
      page.wait_for_selector('#advice:has-text("Grab the red flag")')
      assert page.locator('#rules li').count() == 4
      before = page.evaluate(_CELL)
      page.keyboard.down('ArrowRight')
      for _ in range(100):
        page.wait_for_timeout(100)
        if page.evaluate(_CELL) != before:
          break
      else:
        raise AssertionError('the key has moved nobody')
      page.keyboard.up('ArrowRight')
      _check_looks(page, 'play_warm_up')
      compiled.set()
      page.wait_for_selector('#problem:has-text("not in this test")')
  finally:
    compiled.set()


# Without the API, which documents modules that need Python 3.10.
_SITE = f"""INHERIT: {ROOT}/mkdocs.yml
docs_dir: {ROOT}/docs
exclude_docs: "*.py\\n*.yml\\n/api/\\n"
hooks: [{ROOT}/docs/hooks.py]
nav: null
"""


# What users type, and the page that they look for.
_SEARCHES = {
  'gamma': 'coming_from',
  'n_steps': 'coming_from',
  'lr': 'how_to/schedules',
  'learning rate schedule': 'how_to/schedules',
  'PBT': 'how_to/population_based_training',
  'self-play': 'tutorials/population',
  'multi-agent': 'how_to/pettingzoo',
  'LSTM': 'which_core',
  'frame stack': 'how_to/atari',
  'checkpoint': 'how_to/go_on_from_a_checkpoint',
  'save model': 'how_to/export_parameters',
  'Optuna': 'how_to/sweeps',
  'early stopping': 'how_to/callbacks',
  'GPU': 'how_to/gpu',
  'agent does not learn': 'how_to/tips',
  'action mask': 'how_to/turns_and_masks',
  'tuned': 'how_to/settings',
}


@pytest.fixture(scope='module')
def site(tmp_path_factory):
  pytest.importorskip('mkdocs')
  directory = tmp_path_factory.mktemp('site')
  config, made = directory / 'mkdocs.yml', directory / 'site'
  config.write_text(_SITE, 'utf-8')
  subprocess.run(
    [sys.executable, '-m', 'mkdocs', 'build', '-q', '-f', config, '-d', made],
    check=True,
    timeout=300,
  )
  files = staticfiles.StaticFiles(directory=made)
  app = applications.Starlette(routes=[routing.Mount('/', files)])
  with _serve(app) as address:
    yield made, address


@pytest.mark.slow
def test_no_page_of_the_site_logs_an_error_or_is_too_wide(page, site):
  directory, address = site
  # The font is shipped, and nothing is fetched from elsewhere.
  foreign = []
  page.on(
    'request',
    lambda request: (
      request.url.startswith(('http', 'ws'))
      and not request.url.startswith(address)
      and foreign.append(request.url)
    ),
  )
  paths = sorted(directory.rglob('*.html'))
  assert len(paths) > 40
  for width in (1440, 390):
    page.set_viewport_size({'width': width, 'height': 844})
    for path in paths:
      page.goto(f'{address}/{path.relative_to(directory)}')
      assert page.evaluate(_OVERFLOW) <= 0, path
  assert foreign == []
  assert page.evaluate(_FAMILIES) == ['Inter']


@pytest.mark.slow
def test_the_site_on_a_disk_is_searched(page, site):
  directory, _ = site
  page.context.set_offline(True)
  page.goto((directory / 'index.html').as_uri())
  page.locator('.md-search__input').press_sequentially('gamma')
  result = '.md-search-result__item a'
  page.wait_for_selector(result, state='attached')
  assert 'coming_from.html' in page.get_attribute(result, 'href')
  assert page.evaluate('document.fonts.check("16px Inter")')


@pytest.mark.slow
def test_searches_by_the_words_of_users_lead_to_the_right_page_first(
  page, site
):
  _, address = site
  for words, expected in _SEARCHES.items():
    page.goto(f'{address}/index.html')
    # The search reads its field when a key is released.
    page.locator('.md-search__input').press_sequentially(words)
    result = '.md-search-result__item a'
    page.wait_for_selector(result, state='attached')
    first = page.get_attribute(result, 'href')
    assert re.search(rf'/{expected}\.html', first), f'{words}: {first}'


def test_a_shared_game_plays_the_same_states_without_a_network(
  page, game_table, tmp_path
):
  _, saved = game_table
  name, record = saved.readable()[0]
  path = tmp_path / f'{name}.html'
  path.write_text(saved_games.to_html(record, saved_games.own_scripts()))
  page.context.set_offline(True)
  page.goto(path.as_uri())
  shown = [page.evaluate('ftwax.replay.stage.to')]
  for _ in record['states'][1:]:
    page.click('button[aria-label="One step forward"]')
    shown.append(page.evaluate('ftwax.replay.stage.to'))
  assert shown == record['states']
  page.focus('input[type=range]')
  page.keyboard.press('Home')
  assert page.evaluate('ftwax.replay.step') == 0
  page.click('button:has-text("Play")')
  page.wait_for_selector('button:has-text("Pause")')
  _check_looks(page, 'saved_game')


def test_a_report_plays_chosen_games_of_any_drawing(page, tmp_path):
  """With the script that `your_own_game.md` documents."""
  text = (ROOT / 'docs' / 'how_to' / 'your_own_game.md').read_text('utf-8')
  (code,) = re.findall(r'```js title.*?\n(.*?)```', text, re.S)
  game = {
    'game': 'rock, paper, scissors', 'script': 'rock_paper_scissors',
    'code': code, 'facts': {'rounds': 2}, 'outcome': [1.0, -1.0],
    'states': [[0, 1, 0, 0, 0], [1, 0, 1, 0, 1], [2, 1, 2, 0, 2]], 'speed': 12,
    'seats': [
      {'name': 'member 0', 'kind': 'player', 'team': 0, 'rating': 0},
      {'name': 'copycat', 'kind': 'player', 'team': 1, 'rating': 0},
    ],
  }  # fmt: skip
  other = {**game, 'states': [[2, 2, 0, 0, 0], [2, 0, 0, 1, 1]]}
  path = tmp_path / 'report.html'
  script = tmp_path / 'rock_paper_scissors.js'
  script.write_text(code)
  part, used = saved_games.make_player(
    [game, other], saved_games.own_scripts([script])
  )
  names = [f'member {index}' for index in range(9)]
  wide = report_page.columns(['Elo of', *names], [['all', *names]])
  path.write_text(report_page.render('Report', [part, wide], used))
  page.context.set_offline(True)
  page.goto(path.as_uri())
  labels = page.locator('#match option').all_inner_texts()
  assert labels == ['member 0 against copycat'] * 2
  assert page.inner_text('.score') == '0 : 0, round 0 of 2'
  page.click('button[aria-label="One step forward"]')
  assert page.evaluate('ftwax.replay.stage.to') == game['states'][1]
  before = page.locator('canvas').screenshot()
  page.select_option('#match', '1')
  assert page.evaluate('ftwax.replay.stage.to') == other['states'][0]
  page.wait_for_timeout(300)
  assert page.locator('canvas').count() == 1
  assert page.locator('canvas').screenshot() != before
  _check_looks(page, 'report_of_games')


# Ways for a page to call home, of which a policy for requests stops a few.
_CALLS = """
  const home = '{home}/' + '{name}';
  try {{ fetch(home); }} catch (e) {{}}
  try {{ new Image().src = home; }} catch (e) {{}}
  try {{ window.open(home); }} catch (e) {{}}
  const form = document.createElement('form');
  form.action = home;
  document.documentElement.append(form);
  try {{ form.submit(); }} catch (e) {{}}
  const frame = document.createElement('iframe');
  frame.src = home;
  document.documentElement.append(frame);
  location = home;
"""


@pytest.fixture
def home():
  """An attacker's server, and what it hears."""
  heard = []

  async def hear(request):
    heard.append(str(request.url))
    return responses.PlainTextResponse('thanks')

  app = applications.Starlette(routes=[routing.Route('/{path:path}', hear)])
  with _serve(app) as address:
    yield address, heard


def _foreign_game(home, name, script):
  calls = _CALLS.format(home=home, name=name)
  return {
    'game': '<b>pit</b>', 'script': script, 'code': calls,
    'facts': {}, 'outcome': [1.0, -1.0], 'speed': 12, 'seed': 0, 'actions': [],
    'states': [{'frame': f'{home}/frame'}] * 2,
    'seats': [
      {'name': f'<script>{calls}</script><img src={home}/name>',
       'kind': 'player', 'team': 0, 'rating': 0},
    ],
  }  # fmt: skip


def test_no_page_of_a_foreign_folder_calls_home(browser, tmp_path, home):
  address, heard = home
  run = web_helpers.make_population_run(tmp_path / 'run', 0)
  games = saved_games.SavedGames(run / 'games')
  # A script of its own, and those of the library, with other code.
  for script in ('pit', 'frames', 'catch'):
    games.save(_foreign_game(address, script, script))
  path = report.make_report(run)
  assert 'Games drawn by pit are left out' in path.read_text('utf-8')
  context = browser.new_context()
  page = context.new_page()
  page.goto(path.as_uri())
  page.wait_for_timeout(500)
  assert page.url == path.as_uri()
  # A page that lies there is not that of the library.
  calls = _CALLS.format(home=address, name='report')
  path.write_text(
    f'<meta http-equiv="refresh" content="0; url={address}/refresh">'
    f'<script>{calls}</script>'
  )
  app = pages.make_watch_app([run_tail.RunTail(run)], None, games)
  with _serve(app) as watched:
    names = [name for name, _ in games.readable()]
    assert len(names) == 3
    for part in ('/', '/runs/0/report', *(f'/games/{name}' for name in names)):
      page.goto(watched + part)
      page.wait_for_timeout(500)
      assert page.url == watched + part
  room = play_room.Room(web_helpers.make_catch(), games)
  with _serve(pages.make_play_app(room, games)) as played:
    for part in ('/', *(f'/games/{name}' for name in names)):
      page.goto(played + part)
      page.wait_for_timeout(500)
      assert page.url == played + part
  assert len(context.pages) == 1
  context.close()
  assert heard == []


def test_the_attackers_server_hears_what_a_page_may_call(page, home):
  address, heard = home
  page.goto('data:text/html,<script>location = "' + address + '/x"</script>')
  page.wait_for_url(f'{address}/x')
  assert heard[0] == f'{address}/x'


def test_pages_of_ended_runs_begin_with_numbers(page, tmp_path):
  runs = [
    web_helpers.make_population_run(tmp_path / f'{rate}{seed}', seed, rate=rate)
    for rate, seed in ((0.1, 0), (0.1, 1), (0.1, 2), (0.2, 0))
  ]
  other = {'environment': 'game:Pit', 'name': 'a_game_of_another_name'}
  runs.append(web_helpers.make_population_run(tmp_path / 'x', 0, **other))
  report.make_report(runs[0])
  found = comparison.group([comparison.read(run) for run in runs])
  comparison.write_page(found, tmp_path / 'comparison.html')
  rng = np.random.default_rng(0)
  cells = [
    sweep_figures.Cell(
      {'agent.learning_rate': rate, 'agent.core': 'lstm'}, (0, 1),
      np.arange(100.0), rng.normal(rate, 1.0, (2, 100)), np.ones((2, 100)),
    )
    for rate in (1e-3, 1e-2)
  ]  # fmt: skip
  sweep_figures.write(cells, tmp_path, 'my_game_sweep')
  for path, num_charts in (
    (runs[0] / 'report.html', 8),
    (tmp_path / 'comparison.html', 3),
    (tmp_path / 'sweep.html', 1),
  ):
    page.set_viewport_size({'width': 390, 'height': 844})
    page.goto(path.as_uri())
    cells = page.locator('td.number, td.text').all()
    # A number is seen before anything is scrolled.
    assert any(
      re.match(r'-?\d', cell.inner_text().strip())
      and cell.bounding_box()['x'] + cell.bounding_box()['width'] < 400
      and cell.bounding_box()['y'] < 844
      for cell in cells[:20]
    )
    _check_looks(page, path.stem)
    page.evaluate('scrollTo(0, document.body.scrollHeight)')
    assert page.locator('.chart').count() >= num_charts
    page.wait_for_selector('.chart svg')


def test_a_server_that_is_gone_is_told(page, tmp_path):
  saved = saved_games.SavedGames(tmp_path)
  room = play_room.Room(web_helpers.make_catch(), saved)
  with _serve(pages.make_play_app(room, saved)) as address:
    page.goto(address)
    page.wait_for_selector('#play:enabled')
  page.wait_for_selector('#problem:has-text("The server does not answer")')


def test_the_live_page_shows_a_growing_curve(page, tmp_path):
  run = web_helpers.make_run(tmp_path / 'run')
  (run / 'output').mkdir()
  (run / 'output' / 'nodes.json').write_text('{"actor/0": "seen 1 s ago"}')
  (run / 'tournament.json').write_text(
    '{"players": ["a", "b"], "ratings": [9, 0], "lows": [5, 0],'
    ' "highs": [12, 0], "num_members": 1, "anchor": 1, "num_games": 9,'
    ' "win_rates": [[null, 0.6], [0.4, null]],'
    ' "half_widths": [[null, 0.1], [0.1, null]]}'
  )
  (run / 'logs' / 'evaluation.jsonl').write_text(
    '{"actor_steps": 10, "scores/random": 0.5, "scores/still": 0.75}\n'
  )
  saved = saved_games.SavedGames(tmp_path / 'games')
  app = pages.make_watch_app([run_tail.RunTail(run)], None, saved)
  page.add_init_script(_HURRY)
  with _serve(app) as address:
    page.goto(address)
    page.wait_for_selector('.chart svg')
    assert page.evaluate(_NUM_POINTS) == 2
    web_helpers.append_rows(run, 30, 40)
    page.wait_for_selector('#runs p:has-text("40 of 100 (40%) steps")')
    log = run / 'logs' / 'train.jsonl'
    os.utime(log, (log.stat().st_mtime - 120.0,) * 2)
    os.utime(run / 'logs' / 'evaluation.jsonl', (0.0, 0.0))
    page.wait_for_selector('#runs p:text-is("Stopped")')
    page.wait_for_selector(
      '#runs p:has-text("In the tournament, it has 9 ± 3 Elo above b. It scores'
      ' 0.60 against b there")'
    )
    page.wait_for_selector('#runs p:has-text("Mean return 0.25 (last 4 of 4")')
    assert page.inner_text('#loading') == ''
    with run_directory.lock(run):
      page.wait_for_selector('#runs p:has-text("Running, ")')
    page.wait_for_selector(r'#runs >> text=/Stopped \d+ s ago/')
    assert page.evaluate(_NUM_POINTS) == 4
    page.hover('.chart')
    page.wait_for_selector('.told:has-text("steps")')
    # The first screen has the return and the scores; the rest is behind tabs.
    first = page.locator('#top h3').all_inner_texts()
    assert first == ['scores in evaluations', 'return']
    # They share their axis: one stands above the other.
    scores, returns = page.evaluate(_TICKS)
    assert scores == returns and (scores[0], scores[-1]) == ('10', '40')
    before = page.evaluate(_PATH)
    page.fill('#smooth', '2')
    page.wait_for_function(f'({_PATH}) !== {before!r}')
    page.fill('#smooth', '0')
    page.wait_for_function(f'({_PATH}) === {before!r}')
    tabs = page.locator('[role=tab]')
    assert tabs.all_inner_texts() == ['Strength', 'Speed']
    tabs.nth(1).click()
    assert page.locator('[role=tabpanel]:visible h3').all_inner_texts() == [
      'steps a second'
    ]
    tabs.nth(0).click()
    assert page.locator('[role=tabpanel]:visible h3').all_inner_texts() == [
      'Elo in the tournament, with 95% intervals'
    ]
    page.wait_for_selector('.chart[aria-label*="a: 9, b: 0"]')
    page.click('#top figure:last-child summary')
    page.wait_for_selector('.charts td:has-text("0.4")')
    page.click('#nodes summary')
    page.wait_for_selector('#nodes td:has-text("seen 1 s ago")')
    _check_looks(page, 'watch')


@pytest.mark.ci
def test_a_run_is_watched_while_it_trains(page, tmp_path):
  process = subprocess.Popen(
    [
      sys.executable, '-m', 'ftwax', 'train', 'catch', '--watch',
      '--runtime=device', '--max_num_actor_steps=100_000_000',
      '--eval_every=0', '--num_environments=2',
      '--set=agent.core=feed_forward', f'--run_dir={tmp_path / "run"}',
    ],
    stdout=subprocess.PIPE,
    text=True,
    # What was kept would compile before anybody sees it.
    env={**os.environ, 'JAX_ENABLE_COMPILATION_CACHE': 'false'},
  )  # fmt: skip
  with process:
    page.add_init_script(_HURRY)
    page.goto(web_helpers.read_link(process.stdout))
    page.wait_for_selector('#runs p:has-text("Compiling")')
    page.wait_for_selector('.chart svg')
    shown = page.evaluate(_NUM_POINTS)
    while page.evaluate(_NUM_POINTS) == shown:
      assert process.poll() is None
      page.wait_for_timeout(200)
    process.send_signal(signal.SIGINT)
    page.wait_for_selector('#problem:has-text("ftwax watch")')
    told = process.stdout.read()
    assert 'Interrupted. Saved at' in told and '`ftwax watch' in told
    assert process.wait() == 130
