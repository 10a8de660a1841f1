"""Configs, specs and arrays come back from their records as they were."""

import json

import jax
import numpy as np
import pytest
from dm_env import specs

from ftwax import continuous, hyperparameters, types
from ftwax.agents import named
from ftwax.environments import (
  capture_the_flag,
  games,
)
from ftwax.networks import cores
from ftwax.records import config_files, game_files, rebuilding


@pytest.mark.parametrize('name', named.AGENTS)
def test_configs_come_back(name):
  config = named.AGENTS[name](sequence_length=7)
  plain = json.loads(json.dumps(config_files.to_json(config)))
  again = rebuilding.rebuild(plain)
  assert type(again) is type(config)
  assert again == config


@pytest.mark.parametrize(
  'core',
  [
    cores.LSTM(8, layer_norm=True, dropout=0.1),
    cores.LSTM(8, dropout=hyperparameters.Uniform(0.1, 0.2)),
    cores.StackedLSTM((8, 4), layer=cores.GRU()),
    cores.RPTH(8, fixed_scale=True, memory_projection=False),
    cores.RPTH(8, slow_period=hyperparameters.UniformInteger(5, 20)),
    cores.RPTH(
      8,
      num_levels=3,
      slow_period=(5, hyperparameters.UniformInteger(20, 60)),
    ),
  ],
)
def test_cores_come_back(core):
  plain = json.loads(json.dumps(config_files.to_json(core)))
  assert rebuilding.rebuild(plain) == core


def test_what_is_not_finite_comes_back():
  plain = json.loads(
    json.dumps(config_files.to_json([float('inf'), None, 'x']))
  )
  assert rebuilding.rebuild(plain) == (float('inf'), None, 'x')


def test_specs_come_back(tmp_path):
  environment = types.EnvironmentSpec(
    observations={
      'image': specs.BoundedArray((4, 4, 3), np.uint8, 0, 255, 'image'),
      'parts': (
        specs.Array((2,), np.float32, 'speed'),
        specs.BoundedArray((2,), np.float32, [-1, -np.inf], [1, np.inf]),
      ),
    },
    actions={
      'move': specs.DiscreteArray(5, np.int32, 'move'),
      'shares': continuous.SimplexArray(3, 'shares'),
    },
    rewards=specs.Array((2,), np.float32, 'reward'),
    discounts=specs.BoundedArray((), np.float32, 0, 1, 'discount'),
  )
  spec = games.GameSpec(environment, (0, 1), ('hit', 'miss'))
  game_files.write(tmp_path, spec)
  again = game_files.read(tmp_path)
  assert again == spec
  kinds = [type(leaf) for leaf in jax.tree.leaves(again.environment)]
  assert kinds == [type(leaf) for leaf in jax.tree.leaves(environment)]
  ctf = games.spec_of(capture_the_flag.make())
  game_files.write(tmp_path, ctf)
  assert game_files.read(tmp_path) == ctf
