"""Latency of playing in the browser, and the cost of a live page to a run.

    uv run benchmarks/watch.py [--pairs=15] [--window_s=15]

Needs Chromium, a quiet machine, and about ten minutes. A person plays two
against two with members of the population included in the library; the latency
of a key lasts until the resulting state has arrived. The steps/s are those of a
single run of IMPALA on catch with `--watch`, alternately with and without its
page open in Chromium on the same machine.
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

import numpy as np
import psutil
from playwright import sync_api

_ROOT = pathlib.Path(__file__).parents[1]
_NUM_KEYS = 100

# Compilation and the first rounds are not measured.
_WARM_UP_S = 20.0

# Opening and closing the page is not measured.
_SETTLE_S = 3.0


@contextlib.contextmanager
def start(*command):
  """Runs `python -m ftwax ...`, yields its output, and ends it."""
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
  """Returns the URL that a process prints."""
  for line in output:
    found = re.search(r'http://\S+', line)
    if found:
      return found[0]
  raise RuntimeError('no link was printed')


def measure_play(browser):
  """Returns milliseconds from key to state, and frames per second."""
  with tempfile.TemporaryDirectory() as saved:
    with start('play', 'capture_the_flag', f'--save_dir={saved}') as output:
      page = browser.new_page()
      page.goto(read_link(output))
      page.wait_for_selector('#play:enabled:has-text("Play")')
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


def measure_run(browser, num_pairs, window_s):
  """Yields steps/s without and with the page open, and the page's CPU use.

  Uses a single run, since two runs differ by more than the cost of a page. The
  order alternates, so that a machine that becomes slower favors neither. CPU
  use is in CPU seconds per second, of the server and of Chromium together.
  """
  with tempfile.TemporaryDirectory() as directory:
    run_dir = pathlib.Path(directory) / 'run'
    output = start(
      'train', 'catch', '--max_num_actor_steps=1_000_000_000',
      f'--run_dir={run_dir}', '--num_environments=32', '--runtime=device',
      '--eval_every=0', '--watch',
    )  # fmt: skip
    with output as lines:
      link = read_link(lines)
      browser.new_page().goto(link)
      time.sleep(_WARM_UP_S)
      for pair in range(num_pairs):
        speeds, shares = {}, {}
        for is_open in (False, True) if pair % 2 else (True, False):
          for page in browser.contexts:
            page.close()
          if is_open:
            page = browser.new_page()
            page.goto(link)
            page.wait_for_selector('.chart svg', timeout=120_000)
          time.sleep(_SETTLE_S)
          first, cpu = read_last_row(run_dir), read_page_cpu()
          time.sleep(window_s)
          last, cpu = read_last_row(run_dir), read_page_cpu() - cpu
          steps = last['actor_steps'] - first['actor_steps']
          speeds[is_open] = steps / (last['seconds'] - first['seconds'])
          shares[is_open] = cpu / window_s
        yield speeds[False], speeds[True], shares[True]


def read_page_cpu():
  """Returns the CPU seconds used so far by all processes of the page."""
  seconds = 0.0
  for process in psutil.Process().children(recursive=True):
    with contextlib.suppress(psutil.NoSuchProcess):
      if 'train' not in process.cmdline():
        times = process.cpu_times()
        seconds += times.user + times.system
  return seconds


def read_last_row(run_dir):
  """Returns the newest row of the training log."""
  lines = (run_dir / 'logs' / 'train.jsonl').read_text().splitlines()
  return json.loads(lines[-1])


def main():
  """Prints the medians."""
  parser = argparse.ArgumentParser()
  parser.add_argument('--pairs', type=int, default=15)
  parser.add_argument('--window_s', type=float, default=15.0)
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
    ratios, shares = [], []
    for alone, watched, share in measure_run(
      browser, options.pairs, options.window_s
    ):
      ratios.append(watched / alone)
      shares.append(share)
      print(
        f'steps/s alone {alone:,.0f}, with the page open {watched:,.0f}:'
        f' {ratios[-1]:.3f}',
        flush=True,
      )
    if ratios:
      generator = np.random.default_rng(0)
      draws = generator.choice(ratios, (10_000, len(ratios))).mean(axis=1)
      low, high = np.quantile(draws, (0.025, 0.975))
      print(
        f'mean ratio {np.mean(ratios):.3f} ({low:.3f} to {high:.3f}, 95% by'
        f' bootstrap), median {np.median(ratios):.3f}; the page takes'
        f' {np.mean(shares):.2%} of a core'
      )


if __name__ == '__main__':
  main()
