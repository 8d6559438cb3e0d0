"""Each rule sees what it is for, by real kernels, and is silent where that was put right."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cujit
from cujit.devices.cpu.run.source_map import SourceLine
from cujit.errors import ArchError
from cujit.profile import (
    Advice,
    Measures,
    Profile,
    ProfiledInstruction,
    ProfiledKernel,
    advice_for,
    bounds,
    plot,
)
from cujit.values import replace
from raising import raises

CODE = r"""
#define T threadIdx.x
#define I (blockIdx.x * blockDim.x + threadIdx.x)
extern "C" {
__global__ void columns(const float *x, float *y) { y[T * 128 + blockIdx.x] = x[I]; }
__global__ void rows(const float *x, float *y) { y[I] = x[I]; }
struct Atom { float x, y, z; };
__global__ void members(const Atom *x, float *y) { y[I] = x[I].y; }
__global__ void arrays(const float *x, float *y) { y[I] = x[4096 + I]; }
__global__ void scattered(const float *x, const int *at, float *y) { y[I] = x[at[I]]; }
__global__ void shifted(const float *x, float *y) { y[I] = x[I + 1]; }
__global__ void stencil(const float *x, float *y) {
    int i = I + 32;
    y[i] = x[i - 1] + x[i] + x[i + 1];
}
__global__ void piecewise(const float *x, float *y) {
    int i = 4 * I;
    y[I] = x[i] * x[i + 1] + x[i + 2] * x[i + 3];
}
__global__ void bytes(const unsigned char *x, float *y) {
    unsigned sum = 0;
    for (int k = 0; k < 16; k++) sum += x[16 * I + k];
    y[I] = sum;
}
__global__ void whole(const float4 *x, float *y) {
    float4 v = x[I];
    y[I] = v.x * v.y + v.z * v.w;
}
__global__ void product(const float *a, const float *b, float *c) {
    int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < 64; k++)
        sum += a[row * 64 + k] * b[k * 64 + column];
    c[row * 64 + column] = sum;
}
__global__ void tiled(const float *a, const float *b, float *c) {
    __shared__ float s[16][16], t[16][16];
    int y = threadIdx.y, x = threadIdx.x, row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
    float sum = 0;
    for (int k = 0; k < 64; k += 16) {
        s[y][x] = a[row * 64 + k + x];
        t[y][x] = b[(k + y) * 64 + column];
        __syncthreads();
        for (int j = 0; j < 16; j++)
            sum += s[y][j] * t[j][x];
        __syncthreads();
    }
    c[row * 64 + column] = sum;
}
__global__ void indexed(const int *at, float *y) {
    float own[32];
    for (int k = 0; k < 32; k++) own[k] = k * y[k];
    y[I] = own[at[I] % 32];
}
__global__ void constants(const int *at, float *y) {
    float own[4];
    for (int k = 0; k < 4; k++) own[k] = k * y[I];
    y[I] = own[0] + own[1] * own[2] + own[3] * at[I];
}
__global__ void turned(const float *x, float *y) {
    __shared__ float s[32][32];
    s[threadIdx.y][T] = x[threadIdx.y * 32 + T];
    __syncthreads();
    y[threadIdx.y * 32 + T] = s[T][threadIdx.y];
}
__global__ void padded(const float *x, float *y) {
    __shared__ float s[32][33];
    s[threadIdx.y][T] = x[threadIdx.y * 32 + T];
    __syncthreads();
    y[threadIdx.y * 32 + T] = s[T][threadIdx.y];
}
__global__ void pairs(const float *x, float *y) {
    __shared__ float s[64];
    s[T] = x[T];
    s[T + 32] = x[T + 32];
    __syncthreads();
    y[T] = s[T * 2];
}
__global__ void gapped(const float *x, float *y) {
    __shared__ float s[64];
    s[T] = x[T];
    s[T + 32] = x[T + 32];
    __syncthreads();
    y[T] = s[T + T / 16];
}
__global__ void alternate(const float *x, float *y) {
    float v = x[I];
    for (int k = 0; k < 8; k++) v = v * v + 1;
    if (T % 2) y[I] = v;
}
__global__ void edge(const float *x, float *y) {
    for (int k = I; k < 1 << 15; k += 2048) y[k] = x[k];
    if (blockIdx.x == 0) y[T * 64] = 0;
}
__global__ void seldom(const float *x, float *y) {
    __shared__ float s[64];
    s[T] = x[T];
    s[T + 32] = x[T + 32];
    __syncthreads();
    volatile float *v = s;
    float sum = 0;
    for (int k = 0; k < 16; k++) sum += v[T];
    y[T] = sum + v[T * 2];
}
__global__ void moments(const float *x, float *y) {
    float sum = 0, squares = 0, most = 0;
    for (int k = T; k < 1024; k += 128) sum += x[k + blockIdx.x * 1024];
    for (int k = T; k < 1024; k += 128) most = fmaxf(most, x[k + blockIdx.x * 1024] - sum);
    for (int k = T; k < 1024; k += 128) squares += x[k + blockIdx.x * 1024] * most;
    y[I] = squares;
}
__global__ void looked_up(const int *at, float *y) {
    __shared__ float s[1024];
    for (int k = T; k < 1024; k += 32) s[k] = k;
    __syncthreads();
    y[I] = s[at[I] * 32 % 1024];
}
__global__ void sum_all(const int *x, int *y) { atomicAdd(y, x[I]); }
__global__ void sum_warps(const int *x, int *y) {
    int sum = __reduce_add_sync(~0u, x[I]);
    if (T % 32 == 0) atomicAdd(y, sum);
}
__global__ void histogram(const int *x, int *y) { atomicAdd(y + x[I] % 64, 1); }
__global__ void add_shared(const int *x, int *y) {
    __shared__ int s[4];
    if (T < 4) s[T] = 0;
    __syncthreads();
    atomicAdd(s + x[I] % 4, x[I]);
    __syncthreads();
    if (T < 4) atomicAdd(y + T, s[T]);
}
__global__ void count_shared(const int *x, int *y) {
    __shared__ int s[4];
    if (T < 4) s[T] = 0;
    __syncthreads();
    atomicAdd(s + x[I] % 4, 1);
    __syncthreads();
    if (T < 4) atomicAdd(y + T, s[T]);
}
__global__ void interleaved(const float *x, float *y) {
    __shared__ float s[256];
    s[T] = x[I];
    __syncthreads();
    for (int d = 1; d < 256; d *= 2) {
        if (T % (2 * d) == 0) s[T] += s[T + d];
        __syncthreads();
    }
    if (T == 0) y[blockIdx.x] = s[0];
}
__global__ void sequential(const float *x, float *y) {
    __shared__ float s[256];
    s[T] = x[I];
    __syncthreads();
    for (int d = 128; d > 0; d /= 2) {
        if (T < d) s[T] += s[T + d];
        __syncthreads();
    }
    if (T == 0) y[blockIdx.x] = s[0];
}
__global__ void widened(const float *x, float *y) { y[I] = x[I] * 0.1 + 1.5; }
__global__ void narrow(const float *x, float *y) { y[I] = x[I] * 0.1f + 1.5f; }
__global__ void careful(const float *x, float *y) {
    double sum = 0;
    for (int k = 0; k < 3; k++)
        sum += x[I + k * 4096];
    y[I] = sum;
}
__global__ void softmax(const float *x, float *y) {
    float most = x[T], sum = 0;
    for (int k = T; k < 1024; k += 32) most = fmaxf(most, x[k + blockIdx.x * 1024]);
    for (int d = 16; d; d /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
    for (int k = T; k < 1024; k += 32) sum += __expf(x[k + blockIdx.x * 1024] - most);
    for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    for (int k = T; k < 1024; k += 32) y[k + blockIdx.x * 1024] = __expf(x[k + blockIdx.x * 1024] - most) / sum;
}
__global__ void axpy(float a, const float *x, float *y, int n) {
    int i = I;
    if (i < n) y[i] += a * x[i];
}
}
"""
F = np.random.default_rng(2).random(1 << 17, np.float32)
AT = np.random.default_rng(3).integers(0, 1 << 15, 1 << 13).astype(np.int32)
Y = np.zeros(1 << 15, np.float32)
ZEROS = np.zeros(256, np.int32)

SLOW: dict[str, tuple[object, object, tuple[object, ...], str, str, str]] = {
    "columns": (16, 128, (F, Y), "uncoalesced", "each warp's store at advice.cu:{} moves 32 sectors for 128 bytes: "
                "adjacent threads access addresses 512 bytes apart", "swap the indices"),
    "members": (16, 128, (F, Y), "uncoalesced", "each warp's load at advice.cu:{} moves 12 sectors for 128 bytes: "
                "adjacent threads access addresses 12 bytes apart", "(an array for each member of a structure), or "
                "stage the data through shared memory"),
    "scattered": (16, 128, (F, AT, Y), "uncoalesced", "adjacent threads access addresses at irregular distance",
                  "sort the accesses by address"),
    "shifted": (16, 128, (F, Y), "misaligned", "each warp's load at advice.cu:{} moves 5 sectors for 128 bytes: "
                "adjacent threads access adjacent addresses", "multiple of 32 bytes"),
    "piecewise": (16, 128, (F, Y), "narrow", "4 loads of 4 bytes at advice.cu:{} move 64 sectors per warp for 512 "
                  "bytes", "access 16 aligned bytes at once, for example as float4"),
    "bytes": (16, 128, (F, Y), "narrow", "16 loads of 1 byte at advice.cu:{} move 256 sectors per warp for 512 bytes",
              "access 16 aligned bytes at once, for example as uint4"),
    "product": ((4, 4), (16, 16), (F, F, Y), "redundant", "a block accesses each of its sectors 7.", "load each tile"),
    "indexed": (16, 128, (AT, Y), "local_memory", "an array with computed indices", "unroll the loops"),
    "turned": (1, (32, 32), (F, Y), "bank_conflicts", "each warp's load at advice.cu:{} takes 32 wavefronts of shared "
               "memory instead of 1: adjacent threads access addresses 128 bytes apart",
               "pad each row by one 4-byte element, so that a stride of 132 bytes uses all 32 banks"),
    "pairs": (1, 32, (F, Y), "bank_conflicts", "takes 2 wavefronts of shared memory instead of 1: adjacent "
              "threads access addresses 8 bytes apart", "let adjacent threads access adjacent words"),
    "gapped": (1, 32, (F, Y), "bank_conflicts", "each warp's load at advice.cu:{} takes 2 wavefronts of shared memory "
               "instead of 1: adjacent threads access addresses at irregular distance", "spread the addresses"),
    "looked_up": (16, 128, (AT, Y), "bank_conflicts", "adjacent threads access addresses at irregular distance",
                  "spread the addresses"),
    "sum_all": (16, 128, (AT, ZEROS), "contended_atomics", "in each warp's atomic operation at advice.cu:{}, 32 "
                "threads update the same word", "add up within the warp first (__reduce_add_sync or shuffles), or give "
                "each block a copy in shared memory"),
    "add_shared": (16, 128, (AT, ZEROS), "contended_atomics", "threads update one bank of shared memory", "shuffles"),
    "interleaved": (16, 256, (F, Y), "divergence", "warps diverge at advice.cu:{}, 752 of 1,024 times",
                    "let all threads of a warp take the same branch"),
    "widened": (16, 128, (F, Y), "double_precision", "advice.cu:{} computes 2,048 operations in double precision",
                "2.0f"),
    "rows": (16, 100, (F, Y), "partial_warps", "warps have 25 of 32 threads on average: the block size is 100",
             "launch"),
}  # fmt: skip
"""Grid, block and arguments of what is slow; the rule that sees it, what that says, and what it advises."""

GOOD: dict[str, tuple[object, object, tuple[object, ...]]] = {
    "rows": (16, 128, (F, Y)),
    "arrays": (16, 128, (F, Y)),
    "stencil": (16, 128, (F, Y)),
    "whole": (16, 128, (F, Y)),
    "count_shared": (16, 128, (AT, ZEROS)),
    "alternate": (16, 128, (F, Y)),
    "edge": (16, 128, (F, Y)),
    "seldom": (1, 32, (F, Y)),
    "moments": (16, 128, (F, Y)),
    "tiled": ((4, 4), (16, 16), (F, F, Y)),
    "constants": (16, 128, (AT, Y)),
    "padded": (1, (32, 32), (F, Y)),
    "sum_warps": (16, 128, (AT, ZEROS)),
    "sequential": (16, 256, (F, Y)),
    "narrow": (16, 128, (F, Y)),
    "careful": (16, 128, (F, Y)),
    "softmax": (16, 32, (F, Y)),
    "axpy": (8, 256, (2.0, F, Y, 1990)),
}

Launch = Callable[[str, object, object, tuple[object, ...]], ProfiledKernel]


@pytest.fixture(scope="module")
def launch() -> Launch:
    profile = Profile()
    device = cujit.cpu(profile=profile)
    module = cujit.jit(CODE, device=device, name="advice.cu", arch="sm_80")

    def launched(name: str, grid: Any, block: Any, arguments: tuple[object, ...]) -> ProfiledKernel:
        profile.clear()
        module[name][grid, block](*(device.array(a) if isinstance(a, np.ndarray) else a for a in arguments))
        (kernel,) = profile.kernels
        return kernel

    return launched


@pytest.mark.parametrize("name", SLOW)
def test_slow_kernel_gets_advice_with_line_cause_and_fix(launch: Launch, name: str) -> None:
    grid, block, arguments, rule, says, cure = SLOW[name]
    advice = next(each for each in advice_for(launch(name, grid, block, arguments)) if each.rule == rule)
    lines = CODE.splitlines()
    if advice.line is not None:
        begin = next(k for k, line in enumerate(lines, 1) if f" {name}(" in line)
        assert begin <= advice.line.line
        assert not any("__global__" in line for line in lines[begin : advice.line.line])
        says = says.format(advice.line.line)
    assert (advice.line is None) == (rule == "partial_warps")
    assert says in str(advice)
    assert cure in advice.cure
    assert str(advice) == f"{advice.finding}: {advice.cause}; {advice.cure}"


@pytest.mark.parametrize("name", GOOD)
def test_good_kernel_gets_no_advice(launch: Launch, name: str) -> None:
    assert [str(each) for each in advice_for(launch(name, *GOOD[name]))] == []


def test_atomics_at_random_words_are_not_contention(launch: Launch) -> None:
    assert "contended_atomics" not in {each.rule for each in advice_for(launch("histogram", 16, 128, (AT, ZEROS)))}


def test_kernel_without_lines_gets_advice_by_ptx_line() -> None:
    profile = Profile()
    image = cujit.compile(CODE, arch="compute_80")
    device = cujit.cpu(profile=profile)
    cujit.load(image, device)["columns"][16, 128](device.array(F), device.array(Y))
    (advice,) = advice_for(profile.kernels[0])
    number = int(re.search(r"at PTX line (\d+)", advice.finding)[1])  # type: ignore[index]
    assert advice.line is None
    assert image.text.splitlines()[number - 1].strip().startswith("st.global")


def test_advice_is_plain_data(launch: Launch) -> None:
    kernel = launch("columns", *SLOW["columns"][:3])
    (advice,) = advice_for(kernel)
    assert json.loads(json.dumps(advice.to_json()))["measure"] == "sectors_per_request"
    assert advice == advice_for(ProfiledKernel.from_json(kernel.to_json()))[0]
    assert isinstance(advice, Advice)
    assert advice.to_json()["line"] == str(advice.line)


def counted(access: str, *, block_sectors: int = 1000, **measures: int) -> ProfiledKernel:
    """Make a kernel of one instruction, that a hundred whole warps came to."""
    some = Measures(**{"warps": 100, "active": 3200, "threads": 3200} | measures)
    row = ProfiledInstruction(9, access, SourceLine("k.cu", 1), "memory", "b32", access, "", 4, None, some)
    return ProfiledKernel("k", 1, (row,), 0, block_sectors, 1, 100, 3200)


@pytest.mark.parametrize(
    ("rule", "access", "same", "name", "good", "bad"),
    [
        ("uncoalesced", "ld", {"requests": 100, "sectors": 1000}, "asked_bytes", 901 * 32, 900 * 32),
        ("redundant", "ld", {"requests": 100, "sectors": 400, "asked_bytes": 12800}, "block_sectors", 101, 100),
        ("local_memory", "ld", {"local_requests": 1, "requests": 90, "sectors": 90}, "local_sectors", 9, 10),
        ("bank_conflicts", "ld", {"shared_requests": 1, "wavefronts": 100}, "bank_conflicts", 9, 10),
        ("contended_atomics", "atom", {"requests": 100}, "contended", 399, 400),
        ("divergence", "bra", {"divergent_branches": 1}, "active", 2400, 2399),
    ],
)
def test_rule_applies_from_its_threshold_on(
    rule: str, access: str, same: dict[str, int], name: str, good: int, bad: int
) -> None:
    assert advice_for(counted(access, **same, **{name: good})) == ()
    assert [each.rule for each in advice_for(counted(access, **same, **{name: bad}))] == [rule]


def test_most_important_advice_is_first() -> None:
    (less,), (more,) = (counted("atom", requests=100, contended=n).instructions for n in (400, 1600))
    kernel = ProfiledKernel("k", 1, (less, replace(more, source=SourceLine("k.cu", 2))), 0, 1000, 1, 100, 3200)
    assert [str(each.line) for each in advice_for(kernel)] == ["k.cu:2", "k.cu:1"]


def test_advice_with_the_highest_estimate_is_first() -> None:
    atomics = counted("atom", requests=100, contended=1600)
    conflicts = counted("ld", shared_requests=100, wavefronts=400, bank_conflicts=300)
    rules = ("contended_atomics", "bank_conflicts")
    both = replace(atomics, instructions=(*conflicts.instructions, *atomics.instructions))
    assert tuple(each.rule for each in advice_for(both)) == rules
    many = counted("ld", shared_requests=100_000, wavefronts=400_000, bank_conflicts=300_000)
    both = replace(atomics, instructions=(*atomics.instructions, *many.instructions))
    assert tuple(each.rule for each in advice_for(both)) == rules[::-1]


def test_estimate_depends_on_the_gpu_and_is_labeled_as_one() -> None:
    kernel = replace(counted("ld", shared_requests=10_000, wavefronts=320_000, bank_conflicts=310_000), blocks=100)
    (wide,), (narrow,) = advice_for(kernel), advice_for(kernel, "T4")
    assert 0 < wide.saves < narrow.saves < 1  # fewer multiprocessors have more conflicts each
    assert wide.estimate == f"estimate for H200: saves about {wide.saves:.0%} of the run time"
    assert wide.to_json()["estimate"] == wide.estimate
    assert Advice("rule", None, "warps", "", "", "").estimate == ""


def test_updates_that_ptxas_combines_save_almost_nothing() -> None:
    (alike,) = advice_for(counted("red", requests=100, contended=3200))
    assert alike.estimate == "estimate for H200: saves almost none of the run time"
    (parted,) = advice_for(counted("red", requests=100, contended=1600))
    assert parted.saves > 0.5


def test_unknown_gpu_is_refused() -> None:
    with raises(ArchError, "arch", "Riva 128"):
        advice_for(counted("ld"), "Riva 128")


def test_loads_of_one_line_share_a_piece_of_advice() -> None:
    kernel = counted("ld", requests=100, sectors=3200, asked_bytes=12800)
    (row,) = kernel.instructions
    for source, places in ((row.source, ["k.cu:1"]), (None, ["PTX line 9", "PTX line 10"])):
        rows = tuple(replace(row, ptx_line=line, source=source) for line in (9, 10))
        found = [each.finding for each in advice_for(replace(kernel, instructions=rows))]
        assert found == [f"each warp's load at {place} moves 32 sectors for 128 bytes" for place in places]


@pytest.mark.parametrize(("stride", "cure"), [(128, "have adjacent threads"), (132, "swap the indices")])
def test_structures_up_to_128_bytes_are_recognized(stride: int, cure: str) -> None:
    kernel = counted("ld", requests=100, sectors=3200, asked_bytes=12800)
    (row,) = kernel.instructions
    (advice,) = advice_for(replace(kernel, instructions=(replace(row, stride_bytes=(stride, stride)),)))
    assert advice.cure.startswith(cure)


def test_distant_threads_get_no_memory_advice() -> None:
    """A gigabyte between neighbours, of which one piece is accessed: nobody lists what lies in between."""
    source = SourceLine("far.cu", 3)
    measures = Measures(warps=1, active=32, threads=32, requests=1, sectors=32, asked_bytes=128)
    row = ProfiledInstruction(
        9, "ld.global.f32 %f1, [%rd1]", source, "memory", "f32", "ld", "global", 4, (1 << 40, 1 << 40), measures
    )
    begin = time.process_time()
    (advice,) = advice_for(ProfiledKernel("far", 1, (row,), 32, 32, 1, 1, 32))
    assert advice.rule == "uncoalesced"
    assert time.process_time() - begin < 0.5


@pytest.mark.parametrize(
    "use", [advice_for, lambda kernel: bounds(kernel, "H200"), lambda k: plot("no.svg", k, "H200")]
)
@pytest.mark.parametrize("what", [7, None, "transpose", Profile()])
def test_object_that_is_not_a_profiled_kernel_is_refused(use: Callable[[Any], object], what: object) -> None:
    with raises(cujit.errors.ArgumentError, "argument", "profile.kernels[0]"):
        use(what)
