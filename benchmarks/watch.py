"""Play in the browser: key to state, drawing; and the cost of a page to a run.

    uv run benchmarks/watch.py [--pairs=5]

Needs Chromium. The steps/s are of IMPALA on catch, alone and with the page
that follows it open in Chromium on the same machine, in turn.
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
_NUM_STEPS = 300_000

# Compilation and the first rounds do not count.
_FIRST_SHARE = 0.3


@contextlib.contextmanager
def serve(*command):
  """Runs `ftwax play` or `ftwax watch` and returns its address."""
  process = subprocess.Popen(
    [sys.executable, '-m', 'ftwax', *command, '--port=0'],
    cwd=_ROOT,
    stdout=subprocess.PIPE,
    text=True,
  )
  try:
    line = process.stdout.readline()
    yield re.search(r'http://\S+', line)[0]
  finally:
    process.terminate()
    process.wait()


def measure_play(browser):
  """Returns milliseconds from key to state, and pictures a second."""
  with tempfile.TemporaryDirectory() as saved:
    with serve('play', 'capture_the_flag', f'--save_dir={saved}') as address:
      page = browser.new_page()
      page.goto(address)
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


def measure_run(run_dir):
  """Returns the steps/s of a run of the main job."""
  subprocess.run(
    [
      sys.executable,
      'experiments/catch.py',
      f'--max_num_actor_steps={_NUM_STEPS}',
      f'--run_dir={run_dir}',
      '--num_environments=32',
      '--replay=functional',
      '--eval_every=0',
    ],
    cwd=_ROOT,
    check=True,
    capture_output=True,
  )
  lines = (run_dir / 'logs' / 'train.jsonl').read_text().splitlines()
  rows = [json.loads(line) for line in lines]
  first, last = rows[int(len(rows) * _FIRST_SHARE)], rows[-1]
  steps = last['actor_steps'] - first['actor_steps']
  return steps / (last['seconds'] - first['seconds'])


def measure_watched_run(browser, run_dir):
  """Returns the steps/s of a run with its page open."""
  with serve('watch', str(run_dir)) as address:
    page = browser.new_page()
    page.goto(address)
    speed = measure_run(run_dir)
    page.wait_for_selector('.chart .main-svg')
    page.close()
  return speed


def main():
  """Prints the medians."""
  parser = argparse.ArgumentParser()
  parser.add_argument('--pairs', type=int, default=5)
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
      with tempfile.TemporaryDirectory() as directory:
        measures = [
          lambda at: measure_run(at / 'alone'),
          lambda at: measure_watched_run(browser, at / 'watched'),
        ]
        order = (0, 1) if pair % 2 == 0 else (1, 0)
        speeds = {i: measures[i](pathlib.Path(directory)) for i in order}
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
