"""The checks of the CPU device: each finds its bug, says where and what, and leaves correct kernels alone."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cujit
from cujit.artifact import Artifact, ImageKind
from cujit.devices.cpu.observe.instrumentation import Checker
from cujit.devices.cpu.observe.watching import Checks
from cujit.devices.cpu.pipeline import ir_of
from cujit.devices.cpu.preparation import Preparation
from cujit.devices.device import Device
from cujit.devices.process import process_devices
from cujit.devices.shapes import Dim3
from cujit.errors import ArgumentError, KernelFaultError, OptionError
from raising import raises

pytestmark = pytest.mark.usefixtures("unoptimised")

BUGS = r"""
extern "C" __global__ void beyond(float *x, int n) { x[threadIdx.x + n] = 1.0f; }
extern "C" __global__ void before(float *x) { x[(int)threadIdx.x - 1] += 1.0f; }
extern "C" __global__ void nothing(int *x, int *y) { x[threadIdx.x] = y[threadIdx.x]; }
extern "C" __global__ void skewed(char *x) { *(float2 *)(x + 4 + 8 * threadIdx.x) = make_float2(1, 2); }
extern "C" __global__ void counts(int *x, int at) { atomicAdd(x + at, 1); }
extern "C" __global__ void shared_end(int *x, int at) {
    extern __shared__ int s[];
    s[threadIdx.x + at] = 1;
    __syncthreads();
    x[threadIdx.x] = s[threadIdx.x];
}
extern "C" __global__ void local_end(int *x, int at) {
    volatile int t[4];
    for (int k = 0; k < 4; k++) t[k] = k;
    x[threadIdx.x] = t[at];
}
__device__ int first[4], second[4];
extern "C" __global__ void variable(int at) { first[at] = second[1]; }
extern "C" __global__ void freed(int *x) {
    int *p = (int *)malloc(64);
    p[threadIdx.x] = 1;
    free(p);
    x[0] = p[2];
}
extern "C" __global__ void freed_twice(int *x) {
    void *p = malloc(64);
    free(p);
    void *q = malloc(64); // which must not be what was freed
    free(p);
    free(q);
}
extern "C" __global__ void left(long long *x) { x[0] = (long long)malloc(64); }
extern "C" __global__ void left_large(long long *x, long long size) { x[0] = (long long)malloc(size); }
extern "C" __global__ void reads(const unsigned char *x, int *y, int at) { y[0] = ((const int *)x)[at]; }
extern "C" __global__ void taken(long long *x) {
    int *p = (int *)x[0];
    p[15] = 1;
    free(p);
}
extern "C" __global__ void heap_end(int *x, int at) {
    int *p = (int *)malloc(64);
    p[at] = 1;
    x[0] = p[at];
    free(p);
}
extern "C" __global__ void race(float *x) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    x[t] = s[63 - t];
}
extern "C" __global__ void late(float *x) {
    __shared__ float s[64];
    int t = threadIdx.x;
    for (int k = 0; k < 4; k++) {
        s[t] = x[t] + k;
        __syncthreads();
        x[t] = s[63 - t];
    }
}
extern "C" __global__ void in_warp(int *x) {
    __shared__ int s[32];
    int t = threadIdx.x;
    s[t] = t;
    x[t] = s[t ^ 1];
}
extern "C" __global__ void same(int *x) {
    __shared__ int s[1];
    s[0] = threadIdx.x;
    __syncthreads();
    x[threadIdx.x] = s[0];
}
extern "C" __global__ void half_atomic(int *x) {
    __shared__ int s;
    if (threadIdx.x == 0) s = 0;
    atomicAdd(&s, 1);
    __syncthreads();
    x[threadIdx.x] = s;
}
extern "C" __global__ void not_named(int *x) { x[threadIdx.x] = __shfl_sync(0xfffffffe, threadIdx.x, 1); }
extern "C" __global__ void exited(int *x) {
    if (threadIdx.x >= 16) return;
    x[threadIdx.x] = __ballot_sync(0x1ffff, 1);
}
extern "C" __global__ void no_origin(int *x) {
    if (threadIdx.x >= 16) return;
    x[threadIdx.x] = __shfl_down_sync(0xffffffff, threadIdx.x, 16);
}
extern "C" __global__ void parted(int *x) {
    if (threadIdx.x < 16) { __syncthreads(); x[0] = 1; }
    else { x[1] = 2; __syncthreads(); x[2] = 3; }
}
extern "C" __global__ void odd_count(int *x) {
    asm volatile("bar.sync 1, %0;" :: "r"(blockDim.x + 16) : "memory");  // the assembler refuses 48 as it stands
    x[threadIdx.x] = 1;
}
extern "C" __global__ void raw_shared(int *x) {
    __shared__ int s[64];
    int t = threadIdx.x;
    if (t != 5) s[t] = t;
    __syncthreads();
    x[t] = s[63 - t];
}
extern "C" __global__ void raw_branch(int *x) {
    __shared__ int s[64];
    int t = threadIdx.x;
    if (t != 5) s[t] = t;
    __syncthreads();
    if (s[63 - t] == 3) __trap();
}
extern "C" __global__ void raw_local(int *x, int at) {
    volatile int t[8];
    t[at & 3] = 1;
    x[threadIdx.x] = t[at];
}
extern "C" __global__ void copy(int *x, const int *y) { x[threadIdx.x] = y[threadIdx.x]; }
"""


@functools.cache
def device_with(check: str) -> Device:
    return process_devices().cpu(1, check=check)


@functools.cache
def kernels(check: str) -> cujit.Module:
    return cujit.jit(BUGS, device=device_with(check), options={"fmad": True})


def fault(check: str, kernel: str, *arguments: object, threads: int = 64, shared_bytes: int = 0) -> KernelFaultError:
    """Run a kernel that a check stops, and give what it says."""
    with pytest.raises(KernelFaultError) as caught:
        kernels(check)[kernel].prepare(2, threads, shared_bytes=shared_bytes)(*arguments)
    return caught.value


def seen_by_the_host(array: Any) -> str:
    """Give what a check says when the host copies an array."""
    with pytest.raises(KernelFaultError) as caught:
        array.numpy()
    assert caught.value.kind == "init"
    return caught.value.message


def ints(check: str, n: int = 64) -> Any:
    return device_with(check).array(np.arange(n, dtype=np.int32))


def test_trap_is_one_under_every_check() -> None:
    kernel = cujit.jit('extern "C" __global__ void k(int *x) { if (*x == 0) __trap(); }', device=device_with("all"))[
        "k"
    ]
    with pytest.raises(KernelFaultError) as caught:
        kernel[1, 1](ints("all"))
    assert (caught.value.kind, caught.value.kernel) == ("trap", "k")


# -- memory -----------------------------------------------------------------------------------------------


def test_write_past_an_array_names_thread_access_array_and_lines() -> None:
    x = device_with("memory").zeros(64, "float32")
    error = fault("memory", "beyond", x, 4)
    assert error.kind == "memory"
    assert error.kernel == "beyond"
    assert error.block == (0, 0, 0)
    assert error.thread == (60, 0, 0)
    assert error.address == x.address + 256
    assert "Invalid write of 4 bytes at " in error.message
    assert f"just past the end of the 256-byte array allocated at {__file__}:" in error.message
    assert "st.global" in error.message
    assert re.search(r"from .*:2\b", error.message)


def test_array_allocated_by_a_library_names_the_program_line(tmp_path: Path) -> None:
    library = tmp_path / "site-packages" / "library.py"
    library.parent.mkdir()
    library.write_text("def zeros(device): return device.zeros(64, 'float32')\n")
    found: dict[str, Any] = {}
    exec(compile(library.read_text(), str(library), "exec"), found)
    error = fault("memory", "beyond", found["zeros"](device_with("memory")), 4)
    assert f"allocated at {__file__}:" in error.message


def test_kernel_name_is_that_of_its_source() -> None:
    device = device_with("memory")
    kernel = cujit.jit(
        "namespace n { template <class T> __global__ void f(T *p) { p[threadIdx.x] = 1; } }",
        names=["n::f<float>"],
        device=device,
    )["n::f<float>"]
    with raises(KernelFaultError, "fault-memory", "n::f<float>") as caught:
        kernel[1, 32](device.zeros(8, "float32"))
    assert caught.value.kernel == "n::f<float>"


@pytest.mark.parametrize(
    ("lowered", "title"), [("_ZN8__main__3addB2v1B4cw51Ef", "__main__::add"), ("_Z1fIfEvPT_", "f<float>"), ("k", "k")]
)
def test_title_contains_nothing_that_compilers_add(lowered: str, title: str) -> None:
    ptx = f".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry {lowered}() {{ ret; }}"
    module = device_with("memory").backend.load(Artifact(ImageKind.PTX, ptx.encode()))
    assert module.kernels[lowered].title == title


def test_distance_from_the_array_is_reported() -> None:
    x = device_with("memory").zeros(64, "float32")
    assert "16 bytes past the end of the 256-byte array" in fault("memory", "beyond", x, 68).message
    assert "4 bytes before the 256-byte array" in fault("memory", "before", x).message
    assert "Invalid atomic operation on 4 bytes at " in fault("memory", "counts", ints("memory", 8), 8).message


def test_null_pointer_is_one() -> None:
    assert "a null pointer" in fault("memory", "nothing", ints("memory"), None).message


def test_vector_access_must_be_aligned_to_its_size() -> None:
    message = fault("memory", "skewed", device_with("memory").zeros(1024, "int8")).message
    assert "Misaligned write of 8 bytes" in message
    assert "which is 4 bytes past a multiple of 8" in message


def test_shared_memory_has_the_size_of_the_launch() -> None:
    kernels("memory")["shared_end"].prepare(1, 64, shared_bytes=256)(ints("memory"), 0)
    error = fault("memory", "shared_end", ints("memory"), 1, shared_bytes=256)
    assert error.thread == (63, 0, 0)
    assert "byte 256 of shared memory (the block has 256 bytes)" in error.message


def test_local_memory_ends() -> None:
    kernels("memory")["local_end"][1, 64](ints("memory"), 3)
    assert "local memory (each thread has 16 bytes)" in fault("memory", "local_end", ints("memory"), 4).message


def test_variables_of_a_module_end() -> None:
    kernels("memory")["variable"][1, 64](3)
    assert re.search(
        r"bytes past the end of the variable (first|second) \(16 bytes\)", fault("memory", "variable", 9).message
    )


def test_freed_array_is_reported_by_its_name() -> None:
    device = device_with("memory")
    x = device.zeros(64, "int32")
    address = x.address
    x.close()
    del x
    message = fault("memory", "copy", ints("memory"), cujit.Pointer(address)).message
    assert "which was freed" in message
    assert "the freed 256-byte array allocated at" in message


def test_memory_of_the_kernels_malloc_is_known() -> None:
    kernels("memory")["heap_end"][1, 1](ints("memory"), 15)
    for at in (16, 19, -1):
        message = fault("memory", "heap_end", ints("memory"), at, threads=1).message
        assert "Invalid write of 4 bytes at " in message
        assert at < 0 or "past the end of the 64-byte block from the kernel's malloc" in message
    freed = fault("memory", "freed", ints("memory"), threads=1).message
    assert "which was freed: in or just past the end of the 64-byte block from the kernel's malloc" in freed
    assert fault("memory", "freed_twice", ints("memory"), threads=1).kind == "bad_free"
    kernels("memory")["left"][1, 1](x := device_with("memory").zeros(1, "int64"))
    kernels("memory")["heap_end"][1, 1](ints("memory"), 15)
    kernels("memory")["taken"][1, 1](x)
    assert "which was freed" in fault("memory", "taken", x, threads=1).message


def test_nearest_memory_is_named_before_a_malloc_block() -> None:
    """Behind so large a block libc has the rest of a page, in which nothing lies."""
    size = 1 << 26
    kernels("memory")["left_large"][1, 1](x := device_with("memory").zeros(1, "int64"), size)
    end = int(x.numpy()[0]) + size
    adopted = device_with("memory").adopt(end + 512, 64)

    def place(at: int) -> str:
        return fault("memory", "reads", adopted, ints("memory"), at, threads=1).message

    assert "just past the end of the 64 bytes adopted" in place(16)
    assert "8 bytes before the 64 bytes adopted" in place(-2)
    assert "32 bytes past the end of the 67,108,864-byte block from the kernel's malloc" in place(-120)


def test_external_memory_that_a_parameter_points_to_is_valid() -> None:
    host = np.arange(64, dtype=np.int32)
    out = np.zeros(64, np.int32)
    kernels("memory")["copy"][1, 64](cujit.Pointer(out.ctypes.data), cujit.Pointer(host.ctypes.data))
    assert out.tolist() == host.tolist()


def test_external_memory_next_to_an_array_is_valid() -> None:
    """The C library puts what is allocated one after the other side by side."""
    ours, others = [], []
    for _ in range(64):
        ours.append(device_with("memory").zeros(64, "int32"))
        others.append(np.zeros(64, np.int32))
    for other in others:
        kernels("memory")["copy"][1, 64](cujit.Pointer(other.ctypes.data), ours[0])


# -- races ------------------------------------------------------------------------------------------------


def test_race_between_warps_names_both_threads_and_lines() -> None:
    error = fault("race", "race", device_with("race").zeros(64, "float32"))
    assert error.kind == "race"
    assert "with no barrier in between" in error.message
    assert "ld.shared" in error.message
    assert "st.shared" in error.message
    assert len(re.findall(r"from ", error.message)) == 2


def test_missing_barrier_at_the_end_of_a_loop_is_found() -> None:
    message = fault("race", "late", device_with("race").zeros(64, "float32")).message
    assert "with no barrier in between" in message


def test_race_within_a_warp_is_one() -> None:
    message = fault("race", "in_warp", ints("race"), threads=32).message
    assert "with no __syncwarp() or barrier in between" in message


def test_different_values_written_to_one_place_are_a_race() -> None:
    assert "write different values to 4 bytes at byte 0" in fault("race", "same", ints("race"), threads=32).message


def test_atomic_operation_races_with_a_plain_write() -> None:
    assert "atomic operation on" in fault("race", "half_atomic", ints("race")).message


# -- synchronisation --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        ("not_named", "the member mask 0xfffffffe does not include the calling lane, 0"),
        ("exited", "the member mask 0x0001ffff includes lane 16 (exited"),
        ("no_origin", "a shuffle reads lane 16 (exited"),
        ("parted", "only lanes 0-15 of the warp reach a barrier"),
        ("odd_count", "a barrier for 48 threads, which is not a multiple of 32"),
    ],
)
@pytest.mark.verbatim
def test_wrong_synchronisation_is_found(kernel: str, words: str) -> None:
    error = fault("sync", kernel, ints("sync"), threads=32)
    assert error.kind == "sync"
    assert words in error.message


# -- memory that was never written ------------------------------------------------------------------------


def test_unwritten_shared_memory_is_reported() -> None:
    x = ints("init")
    kernels("init")["raw_shared"][1, 64](x)
    assert "element 58" in seen_by_the_host(x)
    assert "byte 20 of shared memory" in fault("init", "raw_branch", x).message


def test_unwritten_local_memory_is_reported() -> None:
    x = ints("init")
    kernels("init")["raw_local"][1, 64](x, 2)
    assert x.numpy()[0] == 1
    kernels("init")["raw_local"][1, 64](x, 6)
    assert "loaded from local memory" in seen_by_the_host(x)


def test_empty_array_read_before_a_write_is_reported() -> None:
    device = device_with("init")
    empty = device.empty(64, "int32")
    out = ints("init")
    for written in (0, 32):
        if written:
            kernels("init")["copy"][1, written](empty, ints("init"))
        kernels("init")["copy"][1, 64](out, empty)
        assert f"element {written}, at byte {4 * written} of the 256-byte array" in seen_by_the_host(out)


def test_whoever_writes_an_array_is_seen() -> None:
    device = device_with("init")
    out = device.zeros(64, "int32")
    for write in (
        lambda a: a.fill(7),
        lambda a: a.copy_from(np.arange(64, dtype=np.int32)),
        lambda a: a.copy_from(np.array(a)),  # what is there, which only the one who writes can tell
        lambda a: np.asarray(a).__setitem__(slice(None), 5),
        lambda a: kernels("init")["copy"][1, 64](a, ints("init")),
    ):
        array = device.empty(64, "int32")
        write(array)
        kernels("init")["copy"][1, 64](out, array)


# -- what users write -------------------------------------------------------------------------------------


def test_checks_are_read_from_a_text() -> None:
    assert Checks.of("memory, race") == Checks(memory=True, race=True)
    assert str(Checks.of("all")) == "memory,race,sync,init"
    assert not Checks.of(None)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        *((text, "option-unknown") for text in ("", "mem", "memory,", "all,race")),
        *((value, "option") for value in (3, True, ("memory",))),
    ],
)
def test_unknown_check_is_refused(value: Any, code: str) -> None:
    with raises(OptionError, code, "'memory,race'"):
        cujit.cpu(check=value)


def test_devices_with_equal_checks_are_equal() -> None:
    assert cujit.cpu(check="race") is cujit.cpu(check="race")
    assert cujit.cpu(check="race") is not cujit.cpu()


def test_code_without_checks_is_unchanged() -> None:
    ptx = cujit.compile(cujit.Source.cuda(BUGS), arch="compute_80").text
    body = Preparation(ptx, "x.ptx")
    body.known_facts()
    plain = ir_of(body.body("race"), Dim3(64), stacks=True)
    assert "cujit_check" not in plain
    watched = ir_of(body.body("race"), Dim3(64), [Checker(Checks.of("all"))])
    assert "cujit_check_row" in watched
    assert "cujit_check" not in ir_of(body.body("race"), Dim3(64), [Checker(Checks())])


def test_replay_runs_under_checks() -> None:
    module = cujit.jit(BUGS, device=process_devices().cpu())
    x = process_devices().cpu().zeros(64, "float32")
    (result, _) = module["beyond"][1, 32].replay_on_cpu(x, 32, check="all")
    assert isinstance(result, np.ndarray)
    assert result.tolist() == [0.0] * 32 + [1.0] * 32
    with raises(KernelFaultError, "fault-memory", "256-byte"):
        module["beyond"][1, 32].replay_on_cpu(x, 40, check="memory")
    with raises(ArgumentError, "argument", "checks"):
        module["beyond"][1, 32].replay_on_cpu(x, 0, check="memory", device=cujit.cpu())
