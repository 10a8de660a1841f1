"""Packages and dependencies of ftwax; `pyproject.toml` holds the tools."""

import pathlib
import re
import runpy

import setuptools
from setuptools.command import sdist

_VERSION = runpy.run_path('ftwax/version.py')['__version__']

# The one place that names the repository.
_REPOSITORY = 'https://github.com/ftwax/ftwax'


def _read_readme():
  """Returns README with links and pictures that work on any page."""
  text = pathlib.Path('README.md').read_text(encoding='utf-8')
  tag = f'v{_VERSION}'
  text = re.sub(
    r'(src|srcset)="(?!https?:)', rf'\1="{_REPOSITORY}/raw/{tag}/', text
  )
  return re.sub(r'\]\((?!https?:|#)', f']({_REPOSITORY}/blob/{tag}/', text)


# Launchpad has no wheel for Python 3.11 and newer, and dm-acme requires it:
# the half of ftwax that talks to them installs on Python 3.10 only.
_REVERB_HALF = 'python_version < "3.11"'


def _on_python_310(requirements):
  return [f'{requirement}; {_REVERB_HALF}' for requirement in requirements]


# The functional half: JAX packages alone, on any Python from 3.10.
_FUNCTIONAL = [
  'chex>=0.1.90',
  'cloudpickle>=2.2',
  'dm-env>=1.6',
  'dm-haiku>=0.0.17',
  'flatbuffers>=2.0',  # What `jax.export` writes.
  'gymnasium>=1.2',
  'jax>=0.6.2',
  'numpy>=1.23',
  'optax>=0.2.8',
  'rich>=13',
  'rlax>=0.1.7',
  'scipy>=1.11',
  'safetensors>=0.5',
  'tensorboardX>=2.6',
  'pillow>=10.1',
  'absl-py>=2.1',
  'packaging>=23',
  'tomli>=2; python_version < "3.11"',
]

# The frozen stack around Launchpad, an extra on Python 3.10: exact, since no
# newer versions fit. Some of it has known holes: see SECURITY.md.
_ACME = [
  'jax==0.6.2',
  'jaxlib==0.6.2',
  'dm-acme==0.4.0',
  'dm-launchpad==0.5.0',
  'dm-reverb==0.7.3',
  'tensorflow-cpu==2.8.4',
  'numpy<2',
  'protobuf<3.20',
  'psutil>=5.9',
  'ml-dtypes<0.6',
]

# Atari and the games of several players. ale-py is GPL-2.0, and pygame-ce
# LGPL-2.1: who passes on a program with them must heed these licences.
_ENVS = [
  'ale-py>=0.12.1',
  'mpe2>=1.1',
  'opencv-python-headless>=4.8',
  'pettingzoo>=1.27',
  'pgx>=2.6',
  'pygame-ce>=2.5',
]

# Simulators in JAX; playground brings brax and MuJoCo's MJX.
_PHYSICS = [
  'brax>=0.14.2; python_version >= "3.11"',
  'playground>=0.2; python_version >= "3.11"',
]

# Pages in the browser.
_WEB = [
  'anyio>=4',
  'starlette>=1',
  'uvicorn>=0.40',
  'websockets>=15',
]

# Places the nodes of distributed runs; on Python 3.10 Launchpad does.
_DISTRIBUTED = [
  'ray>=2.60; python_version >= "3.11" and python_version < "3.15"'
]

# Agents as files that other programs run.
_ONNX = [
  'jax2onnx>=0.17; python_version >= "3.11" and python_version < "3.14"',
  'onnxruntime>=1.24; python_version >= "3.11" and python_version < "3.14"',
]

# Data sets of recorded games, and downloading them. It needs NumPy 2, which the
# extra acme does without.
_MINARI = ['minari[hdf5,hf]>=0.5; python_version >= "3.11"']

# What `pytest` needs; tests that need more are skipped without it.
_TEST = [
  'hypothesis>=6.100',
  'matplotlib>=3.8',  # Figures of tutorials, benchmarks and research.
  'pytest>=9',
  'pytest-xdist>=3.6',
]

_DEV = [
  *_TEST,
  'axe-core-python>=0.1',
  'httpx2>=2',
  'jupytext>=1.16',
  'mypy>=1.18',
  'playwright>=1.50',
  'ruff>=0.14',
  'setuptools>=77',
  'trustme>=1.2',
]

# Statistics over seeds; what rliable imports does not know pandas 3 yet.
_BENCHMARKS = ['pandas<3', 'rliable>=1.2']

# The site. mkdocstrings does not yet know newer extensions.
_DOCS = [
  'ipykernel>=6.29',
  'jupytext>=1.16',
  'latex2mathml>=3.77',
  'mkdocs-material>=9.6',
  'mkdocstrings[python]>=0.30',
  'nbclient>=0.11',
  'nbconvert>=7.16',
  'pymdown-extensions<12',
]


# At the top of a clone, for readers; a folder that is installed has none.
_LINKS = ('agents', 'experiments', 'networks')


class _SDist(sdist.sdist):
  """Keeps the links in the archive, which it would leave out."""

  def make_release_tree(self, base_dir, files):
    super().make_release_tree(base_dir, files)
    for name in _LINKS:
      pathlib.Path(base_dir, name).symlink_to(pathlib.Path('ftwax', name))


setuptools.setup(
  name='ftwax',
  version=_VERSION,
  description=(
    'Recurrent, memory-augmented actor-critic agents and populations in JAX.'
  ),
  long_description=_read_readme(),
  long_description_content_type='text/markdown',
  author='The ftwax authors',
  license_expression='Apache-2.0',
  license_files=['LICENSE'],
  keywords=[
    'acme',
    'evolution',
    'For The Win',
    'IMPALA',
    'JAX',
    'LSTM',
    'multi-agent',
    'PPO',
    'population based training',
    'recurrent',
    'reinforcement learning',
    'self-play',
  ],
  url=_REPOSITORY,
  project_urls={
    'Changelog': f'{_REPOSITORY}/blob/main/CHANGELOG.md',
    'Documentation': f'{_REPOSITORY}/tree/main/docs',
    'Issues': f'{_REPOSITORY}/issues',
    'Source': _REPOSITORY,
  },
  classifiers=[
    'Intended Audience :: Science/Research',
    'Programming Language :: Python :: 3.10',
    'Programming Language :: Python :: 3.11',
    'Programming Language :: Python :: 3.12',
    'Programming Language :: Python :: 3.13',
    'Topic :: Scientific/Engineering :: Artificial Intelligence',
  ],
  cmdclass={'sdist': _SDist},
  # Said so that an editable install adds a path: a finder would come after the
  # folder of a script, where a clone looks like a package without a file.
  package_dir={'': '.'},
  # Folders of data are packages to setuptools, which warns about others.
  packages=setuptools.find_namespace_packages(
    include=['ftwax', 'ftwax.*'], exclude=['*.__pycache__']
  ),
  package_data={
    'ftwax': [
      'py.typed',
      'trained/*/*',
      '**/*.js',
      '**/*.css',
      '**/*.html',
      '**/*.svg',
    ]
  },
  entry_points={'console_scripts': ['ftwax = ftwax.cli.commands:main']},
  install_requires=_FUNCTIONAL,
  extras_require={
    'acme': _on_python_310(_ACME),
    'benchmarks': _BENCHMARKS,
    'distributed': _DISTRIBUTED,
    'envs': _ENVS,
    'dev': _DEV,
    'docs': _DOCS,
    'loggers': ['wandb>=0.19'],
    'minari': _MINARI,
    'onnx': _ONNX,
    'physics': _PHYSICS,
    'test': _TEST,
    'web': _WEB,
  },
)
