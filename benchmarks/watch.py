"""Play in the browser: key to state, drawing; and the cost of a page to a run.

    uv run benchmarks/watch.py [--pairs=5] [--num_steps=250_000]

Needs Chromium, a quiet machine, and about ten minutes. A person plays two
against two with members of the population that comes with the library; a key
counts until the state that it led to has come. The steps/s are of IMPALA on
catch, alone and with `--watch` and its page open in Chromium on the same
machine, in turn.
"""

import argparse
import contextlib
import json
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from playwright import sync_api

_ROOT = pathlib.Path(__file__).parents[1]
_NUM_KEYS = 100

# Compilation and the first rounds do not count.
_FIRST_SHARE = 0.3


@contextlib.contextmanager
def start(*command):
  """Runs `python -m ftwax ...` and returns its output; ends it."""
  process = subprocess.Popen(
    [sys.executable, '-m', 'ftwax', *command],
    cwd=_ROOT,
    stdout=subprocess.PIPE,
    text=True,
  )
  try:
    yield process.stdout
  finally:
    process.terminate()
    process.wait()


def read_link(output):
  """Returns the address that a process prints."""
  for line in output:
    found = re.search(r'http://\S+', line)
    if found:
      return found[0]
  raise RuntimeError('no link was printed')


def measure_play(browser):
  """Returns milliseconds from key to state, and pictures a second."""
  with tempfile.TemporaryDirectory() as saved:
    with start('play', 'capture_the_flag', f'--save_dir={saved}') as output:
      page = browser.new_page()
      page.goto(read_link(output))
      page.wait_for_selector('#play:enabled')
      page.click('#sit0')
      page.click('#play')
      page.wait_for_selector('#play:has-text("Pause")', timeout=120_000)
      rates = []
      for _ in range(_NUM_KEYS):
        page.keyboard.press('ArrowUp')
        time.sleep(random.uniform(0.1, 0.2))
        rates.append(page.evaluate('ftwax.stage.rate'))
      latencies = page.evaluate('ftwax.latency')
      page.close()
  return latencies, rates[len(rates) // 4 :]


def measure_run(run_dir, num_steps, browser=None):
  """Returns the steps/s of a run, with its page open if there is a browser."""
  command = [
    'train', 'catch', f'--max_num_actor_steps={num_steps}',
    f'--run_dir={run_dir}', '--num_environments=32', '--replay=functional',
    '--eval_every=0',
  ]  # fmt: skip
  with contextlib.ExitStack() as stack:
    if browser is None:
      output = stack.enter_context(start(*command))
    else:
      output = stack.enter_context(start(*command, '--watch'))
      page = browser.new_page()
      stack.callback(page.close)
      page.goto(read_link(output))
      page.wait_for_selector('.chart .main-svg', timeout=120_000)
    output.read()  # Until it ends.
  lines = (run_dir / 'logs' / 'train.jsonl').read_text().splitlines()
  rows = [json.loads(line) for line in lines]
  first, last = rows[int(len(rows) * _FIRST_SHARE)], rows[-1]
  steps = last['actor_steps'] - first['actor_steps']
  return steps / (last['seconds'] - first['seconds'])


def main():
  """Prints the medians."""
  parser = argparse.ArgumentParser()
  parser.add_argument('--pairs', type=int, default=5)
  parser.add_argument('--num_steps', type=int, default=250_000)
  options = parser.parse_args()
  with sync_api.sync_playwright() as playwright:
    browser = playwright.chromium.launch(
      executable_path=shutil.which('chromium'), args=['--no-sandbox']
    )
    latencies, rates = measure_play(browser)
    print(
      f'key to state: median {statistics.median(latencies):.0f} ms of'
      f' {len(latencies)}, at most {max(latencies):.0f} ms'
    )
    print(
      f'drawing: median {statistics.median(rates):.1f} pictures/s, at least'
      f' {min(rates):.1f}'
    )
    ratios = []
    for pair in range(options.pairs):
      speeds = {}
      with tempfile.TemporaryDirectory() as directory:
        order = (None, browser) if pair % 2 == 0 else (browser, None)
        for viewer in order:
          run_dir = pathlib.Path(directory) / str(len(speeds))
          watched = int(viewer is not None)
          speeds[watched] = measure_run(run_dir, options.num_steps, viewer)
      ratios.append(speeds[1] / speeds[0])
      print(
        f'steps/s alone {speeds[0]:,.0f}, with the page open {speeds[1]:,.0f}:'
        f' {ratios[-1]:.3f}',
        flush=True,
      )
    if ratios:
      print(f'median ratio {statistics.median(ratios):.3f}')


if __name__ == '__main__':
  main()
