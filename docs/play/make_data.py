"""What the pages `docs/play` need from the library: maps and networks.

`index.html` is the page of the standard population; `first_person.html`, the
page of the one in first person, differs in its data alone.
"""

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


# Page and data of each population.
PAGES = {
  browser_members.STANDARD: ('index.html', 'data.js'),
  browser_members.FIRST_PERSON: ('first_person.html', 'first_person.js'),
}


def complete(page: pathlib.Path) -> None:
  """Adds to the folder of the pages what they take from the library."""
  for source in SHARED:
    shutil.copy(source, page)
  text = (page / 'index.html').read_text('utf-8')
  for population, (name, script) in PAGES.items():
    data = browser_members.make_data(population, NUM_MAPS)
    (page / script).write_text(browser_members.to_script(data), 'utf-8')
    (page / name).write_text(text.replace('"data.js"', f'"{script}"'), 'utf-8')
