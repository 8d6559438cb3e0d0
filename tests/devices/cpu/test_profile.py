"""Profiles count what a GPU's counters count: by goldens, and by plain models over the addresses of the lanes."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cujit
from cujit.devices.cpu.observe import profile as observing
from cujit.profile import Measures, Profile, ProfiledKernel, ProfiledLine, WarpAccess
from devices.cpu import counters_cases, counters_record
from devices.cpu.launching import as_written
from sweeps import part

CASES = {case.name: case for case in counters_cases.cases()}
GOLDEN = json.loads(counters_record.GOLDEN.read_text())
TYPES = {"unsigned char": np.uint8, "unsigned short": np.uint16, "float": np.float32, "double": np.float64,
         "double2": np.float64}  # fmt: skip
STRIDES = (0, 1, 2, 3, 8, 33, -1)

SWEPT = [("unsigned char", 1), ("unsigned char", 33), ("float", 0), ("float", 1), ("float", -2), ("double", 4)]

LANES = r"""
template <typename T> __global__ void read(const T *x, const int *at, const int *does, T *y) {
    int i = at[threadIdx.x], d = does[threadIdx.x];
    T v = T();
    if (d)
        v = x[i];
    y[threadIdx.x] = v;
}
template <typename T> __global__ void write(T *x, const int *at, const int *does) {
    int i = at[threadIdx.x], d = does[threadIdx.x];
    if (d)
        x[i] = T();
}
template <typename T> __global__ void read_shared(const T *x, const int *at, const int *does, T *y) {
    __shared__ T s[256];
    for (int k = threadIdx.x; k < 256; k += 32) s[k] = x[k];
    __syncthreads();
    int i = at[threadIdx.x], d = does[threadIdx.x];
    T v = T();
    if (d)
        v = s[i];
    y[threadIdx.x] = v;
}
template <typename T> __global__ void write_shared(T *x, const int *at, const int *does) {
    __shared__ T s[256];
    for (int k = threadIdx.x; k < 256; k += 32) s[k] = x[k];
    __syncthreads();
    int i = at[threadIdx.x], d = does[threadIdx.x];
    if (d)
        s[i] = T();
    __syncthreads();
    for (int k = threadIdx.x; k < 256; k += 32) x[k] = s[k];
}
template <typename T> __global__ void row(const T *x, T *y, int first, int many) {
    int t = threadIdx.x + threadIdx.y * blockDim.x, at = 64 * (int)threadIdx.y + first;
    if (t < many) {
        T v = T();
        v += x[at + (int)threadIdx.x * 0];
        v += x[at + (int)threadIdx.x * 1];
        v += x[at + (int)threadIdx.x * 2];
        v += x[at + (int)threadIdx.x * 3];
        v += x[at + (int)threadIdx.x * 8];
        v += x[at + (int)threadIdx.x * 33];
        v += x[at + (int)threadIdx.x * -1];
        y[t] = v;
    }
}
template <typename T> __global__ void shared_row(T *y, int first, int many) {
    __shared__ T s[2048];
    int t = threadIdx.x + threadIdx.y * blockDim.x, at = 64 * (int)threadIdx.y + first;
    for (int k = t; k < 2048; k += 32) s[k] = k;
    __syncthreads();
    if (t < many) {
        T v = T();
        v += s[at + (int)threadIdx.x * 0];
        v += s[at + (int)threadIdx.x * 1];
        v += s[at + (int)threadIdx.x * 2];
        v += s[at + (int)threadIdx.x * 3];
        v += s[at + (int)threadIdx.x * 8];
        v += s[at + (int)threadIdx.x * 33];
        v += s[at + (int)threadIdx.x * -1];
        y[t] = v;
    }
}
template <typename T, int S> __global__ void swept(const T *x, T *y, int step, int gap, int many) {
    T v = T();
    #pragma unroll 1
    for (int k = 0; k < many; k++)
        v += x[
            (int)threadIdx.x * S + (int)threadIdx.y * gap + k * step + 512];
    y[threadIdx.x + threadIdx.y * blockDim.x] = v;
}
template <typename T> __global__ void rounds(const T *x, const int *at, const int *does, T *y, int many) {
    __shared__ T s[512];
    int t = threadIdx.x;
    for (int k = t; k < 512; k += 32) s[k] = x[k];
    __syncthreads();
    T v = T();
    #pragma unroll 1
    for (int k = 0; k < many; k++) {
        int i = at[k * 32 + t], d = does[k * 32 + t];
        v += T(i < 0);
        if (d) {
            v += x[i];
            v += s[i];
        }
    }
    y[t] = v;
}
struct Triple {
    float a, b, c;
};
template <typename T> __global__ void meet(unsigned char *bytes, const int *at, const int *does, unsigned *n,
                                           int far, int apart, int many) {
    T *x = (T *)bytes;
    #pragma unroll 1
    for (int k = 0; k < many; k++) {
        int i = at[k * 32 + threadIdx.x] + blockIdx.x * far, d = does[k * 32 + threadIdx.x];
        if (d)
            x[i] = x[i + apart];
        if (d)
            atomicAdd(n + i % 64, 1u + *(volatile unsigned char *)(x + i + 9));
    }
}
__global__ void update(unsigned *x, const int *at, const int *does) {
    int i = at[threadIdx.x], d = does[threadIdx.x];
    if (d)
        atomicAdd(x + i, threadIdx.x);
}
__global__ void update_shared(unsigned *x, const int *at, const int *does) {
    __shared__ unsigned s[256];
    for (int k = threadIdx.x; k < 256; k += 32) s[k] = x[k];
    __syncthreads();
    int i = at[threadIdx.x], d = does[threadIdx.x];
    if (d)
        atomicAdd(s + i, threadIdx.x);
    __syncthreads();
    x[threadIdx.x] = s[threadIdx.x];
}
__global__ void own(const int *at, const int *does, float *y) {
    float a[64];
    for (int k = 0; k < 64; k++) a[k] = y[k];
    int i = at[threadIdx.x], d = does[threadIdx.x];
    if (d)
        a[i] = 1;
    float sum = 0;
    for (int k = 0; k < 64; k++) sum += a[k];
    y[threadIdx.x] = sum;
}
"""

WHOLE = r"""
extern "C" __global__ void sum(const float *x, float *y, int n) {
    __shared__ float s[128];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? x[i] : 0;
    __syncthreads();
    for (int d = 64; d > 0; d /= 2) {
        if (t < d) s[t] += s[t + d];
        __syncthreads();
    }
    if (t % 32 < 16) y[i] = __expf(x[i]); else y[i] = x[i] / 3;
    if (t == 0) atomicAdd(y, s[0]);
}
extern "C" __global__ void uneven(float *y) {
    __shared__ float s[50];
    s[threadIdx.x] = threadIdx.x;
    __syncthreads();
    if (threadIdx.x % 2) y[threadIdx.x] = s[49 - threadIdx.x] + 1;
    else if (threadIdx.x % 3) y[threadIdx.x] = s[threadIdx.x] * 2;
}
extern "C" __global__ void exchange(int *y) {
    __shared__ int s[128];
    int t = threadIdx.x;
    s[t] = y[t];
    __syncthreads();
    int v = s[t ^ 5];
    if (v < 40) s[t ^ 5] = t;
    __syncthreads();
    y[t] = s[t];
}
extern "C" __global__ void early(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    while (v > 1) v = v / 2;
    y[i] = v;
}
"""


@contextlib.contextmanager
def _unoptimised() -> Iterator[None]:
    """As the fixture of this name, for what is compiled meanwhile: what is counted is the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUJIT_CPU_OPTIMIZE", os.environ.get("CUJIT_CPU_OPTIMIZE", "0"))
        yield


def _launched(
    names: Sequence[str], code: str, threads: int = 1, *, many: bool = False
) -> Callable[..., ProfiledKernel]:
    """Compile kernels; give what launches one and says what it cost. Of ``many``, none is optimised."""
    profile = Profile()
    device = cujit.cpu(threads, profile=profile)
    module = cujit.jit(code, names=list(names), device=device, name="lanes.cu")

    def launch(name: str, grid: Any, block: Any, *arguments: object) -> ProfiledKernel:
        profile.clear()
        placed = [device.array(each) if isinstance(each, np.ndarray) else each for each in arguments]
        with _unoptimised() if many else contextlib.nullcontext():
            module[name][grid, block](*placed)
        (kernel,) = profile.kernels
        return kernel

    return launch


@pytest.fixture(scope="module")
def lanes() -> Callable[..., ProfiledKernel]:
    names = [f"{kernel}<{type_}>" for kernel in ("read", "write", "read_shared", "write_shared") for type_ in TYPES]
    rows = [f"{kernel}<{t}>" for kernel in ("row", "shared_row") for t in ("float", "double")]
    names += ["rounds<unsigned char>", "rounds<float>", *(f"swept<{t}, {s}>" for t, s in SWEPT)]
    return _launched([*names, *rows, "update", "update_shared", "own"], LANES, many=True)


def _line(kernel: ProfiledKernel, text: str) -> Measures:
    """What the line that has a text costs, in the kernel's own part of the source."""
    return _profiled_line(kernel, text).measures


def _costs(kernel: ProfiledKernel) -> dict[str, Measures]:
    """What each line costs, by its text."""
    source = [line.strip() for line in LANES.splitlines()]
    return {source[line.source.line - 1]: line.measures for line in kernel.lines() if line.source is not None}


def _profiled_line(kernel: ProfiledKernel, text: str) -> ProfiledLine:
    number = {line.source.line: line for line in kernel.lines() if line.source is not None}
    source = LANES.splitlines()
    found = [number[k] for k in number if text in source[k - 1]]
    assert len(found) == 1, (text, sorted(number))
    return found[0]


# -- models -------------------------------------------------------------------------------------------------


def _sectors(places: Sequence[int], size: int) -> int:
    return len({byte // 32 for place in places for byte in range(place, place + size)})


def _wavefronts(places: Mapping[int, int], size: int, *, loads: bool = True) -> tuple[int, int]:
    """Wavefronts of lanes at their places, and how many there would be without conflicts."""
    together = max(8, min(32, 128 // size))
    parts = [{lane: place for lane, place in places.items() if lane // together == k} for k in range(32 // together)]
    if loads and together < 32:
        pairs = [{**one, **other} for one, other in zip(parts[::2], parts[1::2], strict=True)]
        parts = [part for k, pair in enumerate(pairs) for part in ([pair] if any(
            all(pair.get(lane ^ by, place) == place for lane, place in pair.items()) for by in (1, 2))
            else parts[2 * k : 2 * k + 2])]  # fmt: skip
    found = passes = 0
    for group in parts:
        words = {place // 4 + k for place in group.values() for k in range(max(size // 4, 1))}
        if words:
            found += max(Counter(word % 32 for word in words).values())
            passes += 1
    return found, passes


places = st.lists(st.integers(0, 255), min_size=32, max_size=32)
clustered = st.lists(st.integers(0, 15), min_size=32, max_size=32)
strided = st.builds(
    lambda first, by: [(first + by * k) % 256 for k in range(32)], st.integers(0, 255), st.integers(0, 40)
)
doing = st.one_of(st.just([1] * 32), st.lists(st.integers(0, 1), min_size=32, max_size=32))
some = settings(max_examples=40, deadline=None)


@some
@given(type_=st.sampled_from(sorted(TYPES)), at=st.one_of(places, clustered, strided), does=doing)
def test_global_accesses_move_the_sectors_that_they_touch(
    lanes: Callable[..., ProfiledKernel], type_: str, at: list[int], does: list[int]
) -> None:
    x = np.zeros(1024, TYPES[type_])
    size = x.itemsize * (2 if type_ == "double2" else 1)
    ran = [place * size for place, d in zip(at, does, strict=True) if d]
    wanted = (int(bool(ran)), _sectors(ran, size), len(ran) * size)
    asked = [np.array(each, np.int32) for each in (at, does)]
    for name, arguments, text in (("read", [x, *asked, x[:64]], "v = x[i];"), ("write", [x, *asked], "x[i] = T();")):
        cost = _line(lanes(f"{name}<{type_}>", 1, 32, *arguments), text)
        assert (cost.requests, cost.sectors, cost.asked_bytes) == wanted
        assert cost.moved_bytes == 32 * cost.sectors


@some
@given(type_=st.sampled_from(sorted(TYPES)), at=st.one_of(places, clustered, strided), does=doing)
def test_shared_accesses_take_the_wavefronts_of_their_banks(
    lanes: Callable[..., ProfiledKernel], type_: str, at: list[int], does: list[int]
) -> None:
    x = np.zeros(1024, TYPES[type_])
    size = x.itemsize * (2 if type_ == "double2" else 1)
    ran = {k: at[k] * size for k in range(32) if does[k]}
    asked = [np.array(each, np.int32) for each in (at, does)]
    for name, arguments, text in (
        ("read_shared", [x, *asked, x[:64]], "v = s[i];"),
        ("write_shared", [x, *asked], "s[i] = T();"),
    ):
        cost = _line(lanes(f"{name}<{type_}>", 1, 32, *arguments), text)
        wavefronts, passes = _wavefronts(ran, size, loads=name == "read_shared")
        assert (cost.shared_requests, cost.wavefronts, cost.bank_conflicts) == (
            bool(ran),
            wavefronts,
            wavefronts - passes,
        )
        assert cost.shared_bytes == len(ran) * size


@some
@given(
    type_=st.sampled_from(["float", "double"]), block=st.sampled_from([32, 16, 8]), first=st.integers(40, 72),
    many=st.sampled_from([32, 31, 17, 1, 0]),
)  # fmt: skip
def test_rows_of_lanes_cost_the_same_as_single_addresses(
    lanes: Callable[..., ProfiledKernel], type_: str, block: int, first: int, many: int
) -> None:
    x = np.zeros(4096, TYPES[type_])
    shape = (block, 32 // block)
    row = _costs(lanes(f"row<{type_}>", 1, shape, x, x[:64], np.int32(first), np.int32(many)))
    shared_row = _costs(lanes(f"shared_row<{type_}>", 1, shape, x[:64], np.int32(first), np.int32(many)))
    store = row["y[t] = v;"]
    assert (store.requests, store.sectors) == (bool(many), _sectors([k * x.itemsize for k in range(many)], x.itemsize))
    for stride in STRIDES:
        where = {t: (t % block * stride + 64 * (t // block) + first) * x.itemsize for t in range(many)}
        text = f"[at + (int)threadIdx.x * {stride}];"
        cost = row[f"v += x{text}"]
        assert (cost.requests, cost.sectors) == (bool(many), _sectors([*where.values()], x.itemsize))
        wavefronts, passes = _wavefronts(where, x.itemsize)
        cost = shared_row[f"v += s{text}"]
        assert (cost.wavefronts, cost.bank_conflicts) == (wavefronts, wavefronts - passes)


@some
@given(
    type_=st.sampled_from(["unsigned char", "float"]), at=st.one_of(places, clustered, strided),
    turns=st.lists(st.tuples(st.sampled_from([0, 8, 1, 31, 200]), st.one_of(doing, st.just([1] * 32))), max_size=9),
)  # fmt: skip
def test_repeated_access_pattern_costs_what_it_costs_there(
    lanes: Callable[..., ProfiledKernel], type_: str, at: list[int], turns: list[tuple[int, list[int]]]
) -> None:
    x = np.zeros(512, TYPES[type_])
    size = x.itemsize
    places_of = [[place + far for place in at] for far, _ in turns]
    asked = [np.array([*each, [0] * 32], np.int32).ravel() for each in (places_of, [does for _, does in turns])]
    kernel = lanes(f"rounds<{type_}>", 1, 32, x, *asked, x[:32], np.int32(len(turns)))
    ran = [{k: (at[k] + far) * size for k in range(32) if does[k]} for far, does in turns]
    line = _profiled_line(kernel, "v += x[i];")
    assert line.measures.sectors == sum(_sectors(list(each.values()), size) for each in ran)
    assert line.distinct_sectors == _sectors([place for each in ran for place in each.values()], size)
    assert _line(kernel, "v += s[i];").wavefronts == sum(_wavefronts(each, size)[0] for each in ran)


@some
@given(
    kind=st.sampled_from(SWEPT), block=st.sampled_from([32, 16, 8, 4]), step=st.integers(-9, 9),
    gap=st.sampled_from([0, 1, 8, 16, 40, -3]), many=st.integers(1, 12),
)  # fmt: skip
def test_moving_rows_cost_what_they_cost_at_each_address(
    lanes: Callable[..., ProfiledKernel], kind: tuple[str, int], block: int, step: int, gap: int, many: int
) -> None:
    x = np.zeros(2048, TYPES[kind[0]])
    size = x.itemsize
    places_of = [[(t % block * kind[1] + t // block * gap + k * step + 512) * size for t in range(32)]
                 for k in range(many)]  # fmt: skip
    arguments = map(np.int32, (step, gap, many))
    kernel = lanes(f"swept<{kind[0]}, {kind[1]}>", 2, (block, 32 // block), x, x[:32].copy(), *arguments)
    cost = next(row.measures for row in kernel.instructions if row.access == "ld" and row.space == "global")
    assert (cost.requests, cost.asked_bytes) == (2 * many, 2 * many * 32 * size)
    assert cost.sectors == 2 * sum(_sectors(each, size) for each in places_of)
    (load,) = (row for row in kernel.instructions if row.access == "ld" and row.space == "global")
    assert load.distinct_sectors == _sectors([place for each in places_of for place in each], size)
    assert load.reuse == load.measures.sectors / load.distinct_sectors
    distinct = _sectors([place for each in places_of for place in each], size) + size
    assert (kernel.distinct_sectors, kernel.block_sectors) == (distinct, 2 * distinct)


@some
@given(at=st.one_of(places, clustered, strided), does=doing)
def test_atomics_at_one_word_are_serialized(
    lanes: Callable[..., ProfiledKernel], at: list[int], does: list[int]
) -> None:
    asked = [np.array(each, np.int32) for each in (at, does)]
    ran = Counter(place for place, d in zip(at, does, strict=True) if d)
    most: Counter[int] = Counter()
    for place, times in ran.items():
        most[place // 8] = max(most[place // 8], times)
    line = _profiled_line(lanes("update", 1, 32, np.zeros(256, np.uint32), *asked), "atomicAdd(x + i")
    cost = line.measures
    assert line.distinct_sectors == _sectors([place * 4 for place in ran], 4)
    assert (cost.requests, cost.sectors) == (bool(ran), most.total())
    assert cost.contended == cost.most_contended == max(ran.values(), default=0)
    banks: Counter[int] = Counter()
    for place, times in ran.items():
        banks[place % 32] += times
    cost = _line(lanes("update_shared", 1, 32, np.zeros(256, np.uint32), *asked), "atomicAdd(s + i")
    assert (cost.shared_requests, cost.wavefronts) == (bool(ran), max(banks.values(), default=0))


@some
@given(at=st.lists(st.integers(0, 63), min_size=32, max_size=32), does=doing)
def test_local_memory_is_interleaved(lanes: Callable[..., ProfiledKernel], at: list[int], does: list[int]) -> None:
    asked = [np.array(each, np.int32) for each in (at, does)]
    cost = _line(lanes("own", 1, 32, *asked, np.zeros(64, np.float32)), "a[i] = 1;")
    ran = [(at[k] * 32 + k) * 4 for k in range(32) if does[k]]
    assert (cost.local_requests, cost.local_sectors) == (bool(ran), _sectors(ran, 4))
    assert (cost.requests, cost.shared_requests) == (0, 0)


def _stride(places: Mapping[int, int]) -> float | None:
    """How far lanes are from their neighbours, if the first two say what most do; NaN of one alone."""
    apart = [(there - here) / (k - j) for (j, here), (k, there) in itertools.pairwise(places.items())]
    if not apart:
        return np.nan
    return apart[0] if apart[0] % 1 == 0 and 2 * apart.count(apart[0]) > len(apart) else None


@some
@given(
    at=st.one_of(places, clustered, strided),
    turns=st.lists(st.tuples(st.sampled_from([1, 2, 3]), doing), min_size=1, max_size=6),
)
def test_stride_is_the_most_common_distance_between_lanes(
    lanes: Callable[..., ProfiledKernel], at: list[int], turns: list[tuple[int, list[int]]]
) -> None:
    x = np.zeros(512, np.float32)
    places_of = [[place // by for place in at] for by, _ in turns]
    asked = [np.array([*each, [0] * 32], np.int32).ravel() for each in (places_of, [does for _, does in turns])]
    kernel = lanes("rounds<float>", 1, 32, x, *asked, x[:32], np.int32(len(turns)))
    ran = [{k: 4 * each[k] for k in range(32) if does[k]} for each, (_, does) in zip(places_of, turns, strict=True)]
    strides = [_stride(each) for each in ran if each]
    some = [each for each in strides if each is not None]
    far = [int(each) for each in some if not np.isnan(each)]
    wanted = (min(far), max(far)) if far and 2 * len(some) > len(strides) else None
    loads = {row.source.line: row for row in kernel.instructions if row.source is not None and row.access == "ld"}
    lines = {text.strip(): number for number, text in enumerate(LANES.splitlines(), 1)}
    assert {loads[lines[text]].stride_bytes for text in ("v += x[i];", "v += s[i];")} == {wanted}


# -- what a GPU counted -------------------------------------------------------------------------------------


@functools.cache
def _profiled() -> tuple[Profile, cujit.Device]:
    profile = Profile()
    return profile, cujit.cpu(profile=profile)


class _Counted(NamedTuple):
    """What a case cost here, all its launches together."""

    metrics: Counter[str]
    kernels: tuple[ProfiledKernel, ...]


_ON_MUCH_STACK = ("pipelines: (64, 64, 64): a product by wgmma that tensor maps feed",)
"""Cases that need LLVM's optimiser."""


@functools.cache
def counted(name: str) -> _Counted:
    profile, device = _profiled()
    profile.clear()
    with contextlib.nullcontext() if name in _ON_MUCH_STACK else _unoptimised():
        CASES[name].run(device)
    kernels = profile.kernels
    metrics: Counter[str] = Counter()
    for kernel in kernels:
        metrics.update(kernel.metrics())
    return _Counted(metrics, kernels)


EXPANDED = ("nbody", "mandelbrot", "softmax", "layer norm", "flash attention", "sum by shuffles")
"""Divisions, roots and exponentials; sums fused with products, and a shuffle that a branch no longer goes around."""


def _check_arithmetic(name: str) -> None:
    """Hold arithmetic to that of a GPU where ptxas makes no more of it."""
    golden, found = GOLDEN["of_code"][name], Counter[str]()
    for kernel in counted(name).kernels:
        found.update(kernel.metrics_of_ptx())
    tensor = {metric: count for metric, count in golden.items() if metric.startswith("sm__ops_path_tensor")}
    assert tensor == {metric: count for metric, count in found.items() if metric.startswith("sm__ops_path_tensor")}
    arithmetic = [metric for metric in found if "_thread_inst_executed_op_" in metric]
    assert len(arithmetic) == 6
    same = all(found[metric] == golden.get(metric, 0) for metric in arithmetic)
    assert same != any(each in name for each in EXPANDED)


@pytest.mark.parametrize("name", part(CASES, 4))
def test_counters_match_a_gpu_or_are_explained(name: str) -> None:
    found = counted(name).metrics
    assert sum(kernel.launches for kernel in counted(name).kernels) == CASES[name].launches
    assert set(found) == set(counters_record.METRICS)
    golden = GOLDEN["cases"][name]
    differ = {metric for metric in counters_record.METRICS if found[metric] != golden.get(metric, 0)}
    assert differ == set(GOLDEN["explained"].get(name, {}).get("metrics", ()))
    if name in GOLDEN["of_code"]:
        _check_arithmetic(name)


def test_explained_differences_are_cases_from_a_gpu() -> None:
    assert set(GOLDEN["cases"]) == set(CASES)
    assert set(GOLDEN["explained"]) | set(GOLDEN["of_code"]) <= set(GOLDEN["cases"])
    assert all(each["why"] and each["metrics"] for each in GOLDEN["explained"].values())


def test_differences_from_a_gpu_do_not_increase() -> None:
    """What is counted right again leaves the list, and the numbers here and in docs/profile.md get smaller."""
    assert len(GOLDEN["cases"]) == 499
    assert len(GOLDEN["explained"]) == 48
    assert sum(each["why"].startswith("not known") for each in GOLDEN["explained"].values()) == 2


# -- the rest of a kernel -----------------------------------------------------------------------------------


def _whole(threads: int) -> list[dict[str, object]]:
    launch = _launched([], WHOLE, threads)
    x = np.random.default_rng(3).random(4000, np.float32) * 9
    kernels = [
        launch("sum", 31, 128, x, np.zeros(4000, np.float32), np.int32(3900)),
        launch("uneven", 3, 50, np.zeros(50, np.float32)),
        launch("exchange", 3, 128, np.arange(128, dtype=np.int32)),
        launch("early", 30, 128, x, np.zeros(4000, np.float32), np.int32(3333)),
    ]
    return [kernel.to_json() for kernel in kernels]


def test_counts_do_not_depend_on_the_number_of_threads() -> None:
    assert _whole(1) == _whole(2) == _whole(5)


PICTURED = r"""
extern "C" __global__ void pictured(const float *x, float *y, int n) {
    __shared__ float s[64];
    int t = threadIdx.x, b = blockIdx.x;
    if (b >= 5)
        y[n * b + t] = x[n * b + (b - 4) * t];
    if (t % 2)
        s[(b + 2) * t % 64] = y[0];
    __syncthreads();
    float own[8];
    for (int k = 0; k < 8; k++)
        own[k] = s[k];
    y[t] = own[n % 8 + t % 2];
}
extern "C" __global__ void anywhere(float *x, int at) {
    __shared__ float s[32];
    float *place = at ? s + 4 : x;
    place[threadIdx.x % 4] = 1;
}
"""


def _pictures(kernel: ProfiledKernel, text: str) -> list[WarpAccess]:
    return [access for row in kernel.instructions if text in row.text for access in row.accesses]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_picture_shows_an_access_of_the_first_block(threads: int) -> None:
    launch = _launched([], PICTURED, threads)
    kernel = launch("pictured", 40, 32, np.zeros(40_000, np.float32), np.zeros(40_000, np.float32), np.int32(512))
    load = next(access for access in _pictures(kernel, "ld.global") if access.block == 5)
    assert (load.space, load.lanes) == ("global", tuple((t, 4 * t, 4) for t in range(32)))
    (store,) = _pictures(kernel, "st.shared")
    assert (store.space, store.block) == ("shared", 0)
    assert store.lanes == tuple((t, 4 * (2 * t % 64), 4) for t in range(1, 32, 2))
    own = _pictures(kernel, "ld.local")[-1]
    assert (own.space, own.lanes) == ("local", tuple((t, 4 * (t % 2), 4) for t in range(32)))
    assert ProfiledKernel.from_json(kernel.to_json()) == kernel


@pytest.mark.parametrize(("at", "space", "begin"), [(0, "global", 0), (1, "shared", 16)])
def test_generic_address_is_pictured_in_its_space(at: int, space: str, begin: int) -> None:
    launch = _launched([], PICTURED)
    (access,) = _pictures(launch("anywhere", 2, 32, np.zeros(32, np.float32), np.int32(at)), "st.")
    assert access == WarpAccess(space, 0, tuple((t, begin + 4 * (t % 4), 4) for t in range(32)))


def test_picture_shows_the_first_launch_until_cleared() -> None:
    profile = Profile()
    device = cujit.cpu(profile=profile)
    kernel = cujit.jit(PICTURED, device=device)["anywhere"]
    spaces = []
    for at in (1, 0):
        kernel[1, 32](device.zeros(32, np.float32), at)
        spaces.append([access.space for access in _pictures(profile.kernels[0], "st.")])
    profile.clear()
    kernel[1, 32](device.zeros(32, np.float32), 0)
    spaces.append([access.space for access in _pictures(profile.kernels[0], "st.")])
    assert spaces == [["shared"], ["global", "shared"], ["global"]]


def test_copy_to_shared_memory_has_a_picture_of_each_end() -> None:
    code = r"""#include <cuda_pipeline.h>
    extern "C" __global__ void copy(const float4 *x, float4 *y) {
        __shared__ float4 s[64];
        __pipeline_memcpy_async(&s[2 * threadIdx.x % 64], &x[threadIdx.x], 16);
        __pipeline_commit();
        __pipeline_wait_prior(0);
        __syncthreads();
        y[threadIdx.x] = s[threadIdx.x];
    }"""
    x = np.zeros((32, 4), np.float32)
    kernel = _launched([], code)("copy", 1, 32, x, x.copy())
    source, target = _pictures(kernel, "cp.async.c")
    assert (source.space, source.lanes[3]) == ("global", (3, 48, 16))
    assert (target.space, target.lanes[3]) == ("shared", (3, 96, 16))


def test_kernel_split_at_barriers_has_equal_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = _whole(1)
    monkeypatch.setattr(observing._Profiler, "begin_region", None)
    assert _whole(1) == cut


def test_executions_divergence_and_arithmetic() -> None:
    launch = _launched([], WHOLE)
    x = np.full(4096, 0.5, np.float32)
    kernel = launch("sum", 32, 128, x, np.zeros(4096, np.float32), np.int32(4096))
    lines = {line.source.line: line.measures for line in kernel.lines() if line.source is not None}
    assert lines[6].barriers == 32 * 4
    assert lines[9].barriers == 32 * 4 * 7
    assert (kernel.blocks, kernel.warps, kernel.threads) == (32, 128, 4096)
    assert lines[11].divergent_branches == 32 * 4
    assert lines[8].flops == 32 * (64 + 32 + 16 + 8 + 4 + 2 + 1)
    assert kernel.totals.contended == 32
    assert kernel.launches == 1
    arithmetic = kernel.arithmetic()
    assert arithmetic["special", "f32"] >= 2 * 32 * 64
    ptx = kernel.metrics_of_ptx()
    assert ptx["smsp__thread_inst_executed.sum"] <= 32 * ptx["smsp__inst_executed.sum"]
    assert ptx["smsp__sass_thread_inst_executed_op_fadd_pred_on.sum"] >= lines[8].flops


def test_distinct_sectors_are_counted_for_launches_and_blocks() -> None:
    launch = _launched(["read<float>"], LANES)
    x, at = np.zeros(1024, np.float32), np.arange(32, dtype=np.int32)
    kernel = launch("read<float>", 10, 32, x, at, np.ones(32, np.int32), x[:32])
    assert kernel.distinct_sectors == 16
    assert kernel.block_sectors == 160
    assert kernel.totals.sectors == 160


MET = {"unsigned char": 1, "float": 4, "Triple": 12}


@pytest.fixture(scope="module")
def meetings() -> tuple[Callable[..., ProfiledKernel], ...]:
    return tuple(_launched([f"meet<{type_}>" for type_ in MET], LANES, threads, many=True) for threads in (1, 3))


@some
@given(
    type_=st.sampled_from(sorted(MET)), at=st.one_of(places, clustered, strided),
    turns=st.lists(st.tuples(st.sampled_from([0, 8, 1, 31, 200]), doing), max_size=5),
    far=st.sampled_from([0, 1, 8, 300, 1 << 17]), apart=st.sampled_from([0, 1, 7, 250, 1 << 18]),
)  # fmt: skip
def test_distinct_sectors_count_once_per_line_and_kernel(
    meetings: tuple[Callable[..., ProfiledKernel], ...], type_: str, at: list[int],
    turns: list[tuple[int, list[int]]], far: int, apart: int,
) -> None:  # fmt: skip
    size, blocks = MET[type_], 5
    x, n = np.zeros((1 << 20) * size, np.uint8), np.zeros(64, np.uint32)
    asked = [np.array([*each, [0] * 32], np.int32).ravel()
             for each in ([[place + by for place in at] for by, _ in turns], [does for _, does in turns])]  # fmt: skip
    numbers = [np.int32(each) for each in (far, apart, len(turns))]
    kernel, other = (launch(f"meet<{type_}>", blocks, 32, x, *asked, n, *numbers) for launch in meetings)
    assert kernel.to_json() == other.to_json()
    assert ProfiledKernel.from_json(kernel.to_json()) == kernel
    ran = {at[k] + by + block * far for by, does in turns for k in range(32) if does[k] for block in range(blocks)}
    loads, stores = ({(i + by) * size // 32 for i in ran} | {((i + by + 1) * size - 1) // 32 for i in ran}
                     for by in (apart, 0))  # fmt: skip
    counts, bytes_ = {i % 64 // 8 for i in ran}, {(i + 9) * size // 32 for i in ran}
    copies = _profiled_line(kernel, "x[i] = x[i + apart];")
    updates = _profiled_line(kernel, "atomicAdd(n + i % 64, 1u")
    assert copies.distinct_sectors == len(loads | stores)
    assert updates.distinct_sectors == len(bytes_) + len(counts)
    assert copies.reuse == (copies.measures.sectors / len(loads | stores) if ran else 0)
    rows = [row for row in kernel.instructions if row.source == copies.source and row.access]
    if size < 12:
        assert {row.access: row.distinct_sectors for row in rows} == {"ld": len(loads), "st": len(stores)}
    (atom,) = (row for row in kernel.instructions if row.access in ("atom", "red"))
    assert atom.distinct_sectors == len(counts)
    asking = sum(4 + len({k // 8 for k in range(32) if does[k]}) for _, does in turns)  # `at` only where it is used
    assert kernel.distinct_sectors == len(loads | stores | bytes_) + len(counts) + asking
    assert kernel.distinct_sectors <= sum(line.distinct_sectors for line in kernel.lines())


def test_distinct_sectors_accumulate_until_cleared() -> None:
    profile = Profile()
    device = cujit.cpu(profile=profile)
    kernel, texts = cujit.jit(WHOLE, device=device, name="whole.cu")["exchange"], WHOLE.splitlines()
    for launches in (1, 2, 3):
        kernel[3, 128](device.array(np.arange(128, dtype=np.int32)))
        (found,) = profile.kernels
        lines = {texts[line.source.line - 1].strip(): line for line in found.lines() if line.source is not None}
        load, shared = lines["s[t] = y[t];"], lines["int v = s[t ^ 5];"]
        assert (load.distinct_sectors, load.reuse) == (16 * launches, 3)
        assert (shared.distinct_sectors, shared.measures.shared_requests) == (0, 12 * launches)
        assert found.distinct_sectors == 16 * launches
    profile.clear()
    kernel[1, 128](device.array(np.arange(128, dtype=np.int32)))
    (found,) = profile.kernels
    assert {line.distinct_sectors for line in found.lines()} == {0, 16}


def test_local_memory_has_no_distinct_sectors() -> None:
    launch = _launched([], CALLS)
    kernel = launch("called", 1, 32, np.zeros(64, np.float32), np.full(32, 5, np.int32))
    walked = {row.source.line: row for row in kernel.lines() if row.source is not None}[3]
    assert walked.measures.local_sectors
    assert (walked.distinct_sectors, walked.reuse) == (0, 0)


def test_unknown_lines_share_their_distinct_sectors() -> None:
    profile = Profile()
    device = cujit.cpu(profile=profile)
    x = device.zeros(4000, np.float32)
    cujit.jit(WHOLE, device=device, lineinfo=False)["early"][2, 32](x, x, 64)
    (kernel,) = profile.kernels
    (line,) = kernel.lines()
    assert (line.source, line.distinct_sectors, line.reuse) == (None, 8, 2)
    assert {row.distinct_sectors for row in kernel.instructions} == {0, 8}


MMA = """.version 8.0
.target sm_90
.address_size 64
.visible .entry product() {
    .reg .b32 %r<8>; .reg .f32 %f<8>;
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3}, {%r0,%r1,%r2,%r3}, {%r4,%r5},
        {%f4,%f5,%f6,%f7};
    fma.rn.f32 %f0, %f1, %f2, %f3;
    ret;
}
"""


@as_written
def test_matrix_products_count_their_flops() -> None:
    profile = Profile()
    cujit.load(MMA, cujit.cpu(profile=profile))["product"][2, 64]()
    (kernel,) = profile.kernels
    assert ProfiledKernel.from_json(kernel.to_json()) == kernel
    assert kernel.totals.tensor_flops == 4 * 2 * 16 * 8 * 16
    assert kernel.metrics_of_ptx()["sm__ops_path_tensor_src_fp16.sum"] == kernel.totals.tensor_flops
    assert kernel.totals.flops == kernel.totals.tensor_flops + 2 * 128
    assert {row.pipe for row in kernel.instructions} == {"tensor", "fma", "control"}


SIGNALS = """.version 9.0
.target sm_100
.address_size 64
.visible .entry signal(.param .u64 x) {
    .reg .b64 %rd<2>; .reg .b32 %r<2>;
    ld.param.u64 %rd0, [x];
    mov.u32 %r0, 7;
    st.async.release.gpu.b32 [%rd0], %r0;
    ret;
}
"""


def test_releasing_stores_run_and_are_not_counted() -> None:
    profile = Profile()
    device = cujit.cpu(profile=profile)
    x = device.zeros(1, np.uint32)
    cujit.load(SIGNALS, device)["signal"][1, 32](x)
    assert x.numpy().tolist() == [7]
    assert profile.kernels[0].totals.requests == 0


CALLS = """
__device__ __noinline__ float walk(float *own, int depth, int at) {
    own[(at + depth) % 64] += 1;
    return depth ? walk(own, depth - 1, at * 5 % 64) + own[at] : own[at];
}
extern "C" __global__ void called(float *y, const int *at) {
    float own[64];
    for (int k = 0; k < 64; k++) own[k] = y[k];
    __syncthreads();
    y[threadIdx.x] = walk(own, 3, at[threadIdx.x]);
}
"""


def test_local_memory_includes_that_of_called_functions() -> None:
    launch = _launched([], CALLS)
    kernel = launch("called", 1, 32, np.zeros(64, np.float32), np.full(32, 5, np.int32))
    walked = {row.source.line: row.measures for row in kernel.lines() if row.source is not None}[3]
    assert (walked.local_requests, walked.local_sectors, walked.requests) == (8, 32, 0)


def test_failed_launch_is_counted() -> None:
    profile = Profile()
    device = cujit.cpu(profile=profile)
    code = 'extern "C" __global__ void fail(int *x) { x[threadIdx.x] = 1; __syncthreads(); __trap(); }'
    with pytest.raises(cujit.errors.KernelFaultError):
        cujit.jit(code, device=device)["fail"][1, 32](device.zeros(32, np.int32))
    assert profile.kernels[0].totals.sectors == 4


def test_launches_add_up_until_they_are_forgotten() -> None:
    profile = Profile()
    device = cujit.cpu(profile=profile)
    kernel = cujit.jit(WHOLE, device=device)["early"]
    x = device.zeros(64, np.float32)
    assert profile.to_json()["kernels"] == []
    kernel[2, 32](x, x, 64)
    once = profile.kernels[0].totals
    kernel[2, 32](x, x, 64)
    assert (profile.kernels[0].launches, profile.kernels[0].totals.sectors) == (2, 2 * once.sectors)
    assert profile.kernels[0].totals - once == once
    written = json.loads(json.dumps(profile.to_json()))["kernels"]
    assert tuple(map(ProfiledKernel.from_json, written)) == profile.kernels
    assert (profile.kernels[0].name, profile.kernels[0].threads) == ("early", 128)
    profile.clear()
    assert profile.to_json()["kernels"] == []
