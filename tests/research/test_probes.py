import numpy as np
import probes
import pytest


def test_probes_find_what_states_tell_and_nothing_else():
  rng = np.random.default_rng(0)
  states = rng.normal(size=(2000, 5)) * [1.0, 10.0, 0.1, 1.0, 1.0] + 3.0
  told = states[:, 1] - 100.0 * states[:, 2] > states.mean(axis=0) @ [
    0, 1, -100, 0, 0,
  ]  # fmt: skip
  answers = np.stack([told, rng.random(2000) < 0.25], axis=1)
  probe = probes.fit(states[:1000], answers[:1000])
  scores = probes.score(probe, states[1000:], answers[1000:])
  assert scores.accuracy[0] > 0.95 and scores.auc[0] > 0.98
  assert scores.majority[1] == pytest.approx(0.75, abs=0.05)
  assert scores.accuracy[1] <= scores.majority[1] + 0.02
  assert scores.auc[1] == pytest.approx(0.5, abs=0.08)


def test_the_area_under_the_curve_counts_pairs():
  probe = probes.Probe(np.zeros(1), np.ones(1), np.ones((1, 1)), np.zeros(1))
  states = np.array([[1.0], [2.0], [2.0], [3.0]])
  answers = np.array([[False], [True], [False], [True]])
  # Of four pairs three are in order and one is a tie.
  assert probes.score(probe, states, answers).auc == pytest.approx([0.875])
  assert np.isnan(probes.score(probe, states, answers & False).auc[0])


def test_principal_axes():
  rng = np.random.default_rng(0)
  states = rng.normal(size=(500, 3)) * [0.1, 5.0, 1.0]
  axes = probes.principal_axes(states)
  np.testing.assert_allclose(np.abs(axes[:, 0]), [0, 1, 0], atol=0.1)
  np.testing.assert_allclose(np.abs(axes[:, 1]), [0, 0, 1], atol=0.1)
