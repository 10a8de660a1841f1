"""Films a game of the shipped population as the pages draw it.

    uv run docs/make_film.py docs/figures/capture_the_flag.webp light
    uv run docs/make_film.py docs/figures/capture_the_flag_dark.webp dark
    uv run docs/make_film.py docs/figures/first_person.webp light 0 1

The last arguments are the seat whose view is shown, from 0, and the seed of the
game; without them, the map is shown.
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
_WIDTH, _MS_A_STEP = 480, 90


def record(seed: int) -> str:
  """Plays the game; returns a page that shows it."""
  with tempfile.TemporaryDirectory() as folder:
    game = playable.find('capture_the_flag')
    live_game.record_matches(game, [_MATCH], folder, seed)
    saved = saved_games.SavedGames(pathlib.Path(folder) / 'games')
    ((_, played),) = saved.readable()
  return saved_games.to_html(played, saved_games.own_scripts())


def film(html: str, scheme: str, seat: str) -> list[Image.Image]:
  """Returns a picture of each step, sharp on screens of twice the pixels."""
  pictures = []
  with sync_api.sync_playwright() as playwright:
    browser = playwright.chromium.launch(
      executable_path=shutil.which('chromium'), args=['--no-sandbox']
    )
    page = browser.new_page(
      viewport={'width': _WIDTH, 'height': 800},
      device_scale_factor=2,
      color_scheme=scheme,
    )
    page.set_content(html)
    page.wait_for_selector('canvas')
    canvas = page.locator('canvas')
    page.select_option('select[aria-label="What is shown"]', seat)
    for step in range(_NUM_STEPS):
      # A jump to a step is drawn at once.
      page.evaluate('step => { ftwax.replay.stop(); ftwax.replay.show(-1);'
                    ' ftwax.replay.show(step); }', step)  # fmt: skip
      page.wait_for_timeout(50)
      pictures.append(Image.open(io.BytesIO(canvas.screenshot())))
    browser.close()
  return pictures


if __name__ == '__main__':
  seat, seed = sys.argv[3:] or ('-1', '7')
  first, *rest = film(record(int(seed)), sys.argv[2], seat)
  first.save(
    sys.argv[1], save_all=True, append_images=rest, duration=_MS_A_STEP,
    loop=0, quality=80, method=6,
  )  # fmt: skip
