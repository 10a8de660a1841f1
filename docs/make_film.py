"""Films a game of a shipped population as the pages draw it.

    cd docs/figures
    uv run ../make_film.py capture_the_flag.webp light
    uv run ../make_film.py capture_the_flag_dark.webp dark
    uv run ../make_film.py first_person.webp light 3 1 first_person

The last arguments are the seat whose view is shown, from 0, or -1 for the map;
the seed of the game; and the population. Several seats, with commas between,
are shown beside each other.
Needs Chromium: `apt-get install chromium`.
"""

import io
import pathlib
import shutil
import sys
import tempfile

from PIL import Image
from playwright import sync_api

from ftwax.inference import live_game, playable
from ftwax.reporting import saved_games

_MATCH, _NUM_STEPS = ('member 0', 'member 1'), 150
_WIDTH, _MS_A_STEP, _GAP = 480, 90, 8
_LOOKS = 'select[aria-label="What is shown"]'


def record(population: str, seed: int) -> str:
  """Plays the game; returns a page that shows it."""
  with tempfile.TemporaryDirectory() as folder:
    game = playable.find(population)
    live_game.record_matches(game, [_MATCH], folder, seed)
    saved = saved_games.SavedGames(pathlib.Path(folder) / 'games')
    ((_, played),) = saved.readable()
  return saved_games.to_html(played, saved_games.own_scripts())


def film(html: str, scheme: str, seats: list[str]) -> list[Image.Image]:
  """Returns a picture of each step, sharp on screens of twice the pixels."""
  pictures = []
  with sync_api.sync_playwright() as playwright:
    browser = playwright.chromium.launch(
      executable_path=shutil.which('chromium'), args=['--no-sandbox']
    )
    page = browser.new_page(
      viewport={'width': _WIDTH, 'height': 800},
      device_scale_factor=2 / len(seats),
      color_scheme=scheme,
    )
    page.set_content(html)
    page.wait_for_selector('canvas')
    if len(seats) > 1:  # The map stands beside the view.
      page.select_option(_LOOKS, seats[0])
      page.evaluate("document.querySelector('input[type=checkbox]').click()")
    for step in range(_NUM_STEPS):
      shots = []
      for seat in seats:
        page.select_option(_LOOKS, seat)
        # A jump to a step is drawn at once.
        page.evaluate('step => { ftwax.replay.stop(); ftwax.replay.show(-1);'
                      ' ftwax.replay.show(step); }', step)  # fmt: skip
        page.wait_for_timeout(50)
        shots.append(
          Image.open(io.BytesIO(page.locator('canvas').screenshot()))
        )
      pictures.append(join(shots))
    browser.close()
  return pictures


def join(pictures: list[Image.Image]) -> Image.Image:
  """Returns pictures beside each other, as high as the first."""
  height = pictures[0].height
  scaled = [
    one.resize((round(one.width * height / one.height), height))
    for one in pictures
  ]
  width = sum(one.width + _GAP for one in scaled) - _GAP
  joined = Image.new('RGB', (width, height), 'white')
  left = 0
  for one in scaled:
    joined.paste(one, (left, 0))
    left += one.width + _GAP
  return joined


def main(path: str, scheme: str, *where: str) -> None:
  """Films a game and saves the film."""
  defaults = ('-1', '7', 'capture_the_flag')
  seats, seed, population = (*where, *defaults[len(where) :])
  html = record(population, int(seed))
  first, *rest = film(html, scheme, seats.split(','))
  first.save(
    path, save_all=True, append_images=rest, duration=_MS_A_STEP, loop=0,
    quality=80, method=6,
  )  # fmt: skip


if __name__ == '__main__':
  main(*sys.argv[1:])
