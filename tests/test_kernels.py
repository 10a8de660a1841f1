"""Few kernels on a GPU: bounds, so that launches cannot creep back."""

import kernels
import pytest

# Most kernels of an iteration of 16 to 32 games, at most 3% above what it has.
MAX_KERNELS = {
  'feed-forward': 3_750,
  'gru': 4_550,
  'main experiment': 7_550,
  'rpth': 89_000,
  'whole agent': 14_700,
}
_QUICK = ('feed-forward', 'main experiment')


# It is used until JAX removes it.
@pytest.mark.filterwarnings('ignore:The Pallas Triton backend is deprecated')
@pytest.mark.skipif(
  not kernels.IS_INSTALLED,
  reason='needs the compiler for GPUs; see tests/kernels.py',
)
@pytest.mark.parametrize(
  'name',
  [
    pytest.param(name, marks=[pytest.mark.slow] * (name not in _QUICK))
    for name in MAX_KERNELS
  ],
)
def test_launches_do_not_creep_back(name, monkeypatch):
  total = kernels.count(kernels.compile_case(name, monkeypatch)).total()
  assert 0.95 * MAX_KERNELS[name] < total <= MAX_KERNELS[name]


_PROGRAM = """HloModule jit_f, entry_computation_layout={(f32[3]{0})->f32[3]{0}}

%body.1 (p: (s32[], f32[3])) -> (s32[], f32[3]) {
  %p = (s32[], f32[3]{0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[3]{0} get-tuple-element(%p), index=1
  %gemm.1 = (f32[3]{0}, s8[64]{0}) custom-call(%x), custom_call_target="__cublas"
  %y = f32[3]{0} get-tuple-element(%gemm.1), index=0
  %j = s32[] fusion(%i), kind=kLoop, calls=%wrapped_add
  ROOT %result = (s32[], f32[3]{0}) tuple(%j, %y)
}

%condition.2 (q: (s32[], f32[3])) -> pred[] {
  %q = (s32[], f32[3]{0}) parameter(0)
  %k = s32[] get-tuple-element(%q), index=0
  ROOT %is_on = pred[] fusion(%k), kind=kLoop, calls=%wrapped_compare
}

%few (a: f32[3]) -> f32[3] {
  ROOT %a = f32[3]{0} parameter(0)
}

%more (b: f32[3]) -> f32[3] {
  %b = f32[3]{0} parameter(0)
  %copy-start = (f32[3]{0}, f32[3]{0}, u32[]) copy-start(%b)
  ROOT %copy-done = f32[3]{0} copy-done(%copy-start)
}

ENTRY %main.9 (x.1: f32[3]) -> f32[3] {
  %x.1 = f32[3]{0:T(128)} parameter(0)
  %zero = s32[] constant(0)
  %start = (s32[], f32[3]{0}) tuple(%zero, %x.1)
  %loop = (s32[], f32[3]{0}) while(%start), condition=%condition.2, body=%body.1, backend_config={"known_trip_count":{"n":"7"}}
  %end = f32[3]{0} get-tuple-element(%loop), index=1
  %branch = pred[] fusion(%end), kind=kInput, calls=%wrapped_reduce
  %chosen = f32[3]{0} conditional(%branch, %end, %end), branch_computations={%few, %more}
  ROOT %called = f32[3]{0} call(%chosen), to_apply=%more
}
"""  # noqa: E501


def test_what_is_counted():
  # In the loop a product, the counter and its comparison. Outside of it the
  # predicate, and two copies: one in the larger branch, one in what is called.
  assert kernels.count(_PROGRAM) == {'/7': 7 * 3, '': 3}
  unknown = _PROGRAM.replace('known_trip_count', 'nothing')
  assert kernels.count(unknown).total() == 3
