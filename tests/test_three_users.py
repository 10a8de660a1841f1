"""Three new users reach what README and three pages promise them."""

import shutil

import pytest
import three_users


def test_what_they_type_stands_on_the_pages():
  for user in three_users.USERS.values():
    lines = user()
    assert len(lines) >= 3 and all(lines)
  learn, evaluate, *_ = three_users.from_stable_baselines3()[1].splitlines()[1:]
  assert learn.startswith('result = ftwax.run(ftwax.ExperimentConfig(')
  assert evaluate.startswith('agent = ftwax.inference.load(')
  short = three_users._shorten(learn)
  assert short.endswith(", 'CartPole-v1', 2000))") and short != learn


@pytest.mark.slow
@pytest.mark.parametrize('user', three_users.USERS)
def test_a_user_arrives_from_an_empty_environment(user, tmp_path, capsys):
  if shutil.which('uv') is None:
    pytest.skip('uv installs the environment: pip install uv')
  num_packages, seconds = three_users.play(user, tmp_path / user)
  with capsys.disabled():
    print(f'\n{user}: {num_packages} packages, {seconds:.0f} CPU seconds')
  assert num_packages <= 60
  assert list((tmp_path / user / 'runs').glob('*/*/config.json'))
