"""Flags that nothing has are refused before anything slow is imported."""

import dataclasses
import json
import subprocess
import sys

import pytest

from ftwax.agents import named
from ftwax.cli import known_flags, launch

_RUN = """
import json, sys, time
from ftwax.cli import commands

try:
  commands.main(json.loads(sys.argv[1]))
except SystemExit as end:
  slow = sorted({'haiku', 'jax', 'optax'} & set(sys.modules))
  print(json.dumps([end.code, slow, time.process_time()]))
"""


def _check(name, experiment, options=()):
  names = {*launch._paths_by_last_name(experiment), *options}
  assert len(names) > 10 and 'help' not in names  # With it, none is read.
  words = [(f'--{each.replace("_", "-")}=1', f'--no{each}') for each in names]
  known_flags.check(name, [word for pair in words for word in pair])


@pytest.mark.parametrize('name', ['capture_the_flag', 'catch', 'atari'])
def test_all_that_an_experiment_has_passes(name):
  found = launch.find(name)
  rules = found.options.rules()
  parts = [found.options, *([rules] if rules is not None else [])]
  options = [field.name for one in parts for field in dataclasses.fields(one)]
  _check(name, found.build(), options)


@pytest.mark.parametrize('agent', sorted(named.AGENTS))
def test_all_that_an_agent_has_passes(agent):
  experiment = launch.find('CartPole-v1').build()
  _check('CartPole-v1', experiment.replace(agent=named.AGENTS[agent]()))


@pytest.mark.parametrize(
  ('words', 'said'),
  [
    (['CartPole-v1', '--nonsense'], 'there is no flag --nonsense; did'),
    (['catch', '--learning-rat=1'], 'did you mean --learning_rate?'),
    (['CartPole-v1', '--seed=1', '--n_steps=3'], 'mean --sequence_length?'),
    (['capture_the_flag', '--agnt', 'paper'], 'did you mean --agent?'),
  ],
)
def test_a_name_that_nothing_has_costs_no_import_of_jax(words, said):
  done = subprocess.run(
    [sys.executable, '-c', _RUN, json.dumps(['train', *words])],
    capture_output=True, text=True, timeout=60, check=True,
  )  # fmt: skip
  status, slow, seconds = json.loads(done.stdout)
  assert said in done.stderr and f'ftwax train {words[0]}: ' in done.stderr
  assert (status, slow) == (2, []) and seconds < 1.0


def test_files_of_users_may_have_any_flag_and_help_is_for_all():
  known_flags.check('my_file.py:build', ['--nonsense'])
  known_flags.check('CartPole-v1', ['--nonsense', '--help'])
