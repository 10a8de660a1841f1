"""What the page `docs/play` needs from the library: maps and networks."""

import pathlib
import shutil

from ftwax.environments import capture_the_flag
from ftwax.inference import browser_members
from ftwax.reporting import page

NUM_MAPS = 32

# Files of the library that the page uses, too.
SHARED = (
  page.STATIC / 'style.css',
  page.STATIC / 'drawing.js',
  page.STATIC / 'mark.svg',
  pathlib.Path(capture_the_flag.__file__).with_name('capture_the_flag.js'),
  browser_members.SCRIPT,
)


def complete(page: pathlib.Path) -> None:
  """Adds to the folder of the page what it takes from the library."""
  for source in SHARED:
    shutil.copy(source, page)
  data = browser_members.make_data(NUM_MAPS)
  script = browser_members.to_script(data)
  (page / 'data.js').write_text(script, 'utf-8')
