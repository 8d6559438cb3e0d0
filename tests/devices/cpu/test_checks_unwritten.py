"""Raw values that come into memory are reported when the host or a later kernel sees them, and no sooner."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

import cujit
from cujit.devices.cpu.native.checking import STORES
from cujit.devices.device import Device
from cujit.errors import KernelFaultError
from raising import raises

pytestmark = pytest.mark.usefixtures("unoptimised")

_CODE = r"""
struct Pair { char c; int i; };
__device__ int kept[64];
extern "C" __global__ void raw(int *x, int n) {
    __shared__ int s[64]; int t = threadIdx.x;
    if (t < n) s[t] = t;
    __syncthreads();
    x[t] = s[t];
}
extern "C" __global__ void keep(int n) {
    __shared__ int s[64]; int t = threadIdx.x;
    if (t < n) s[t] = t;
    __syncthreads();
    kept[t] = s[t];
}
extern "C" __global__ void copy(int *x, const int *y) { x[threadIdx.x] = y[threadIdx.x]; }
extern "C" __global__ void where(int *x, const int *y) { if (y[threadIdx.x] == 99) __trap(); }
extern "C" __global__ void set(int *x) { x[threadIdx.x] = 3; }
extern "C" __global__ void later(int *x) {
    __shared__ int s[64]; int t = threadIdx.x;
    x[t] = s[t];
    __syncthreads();
    x[63 - t] = 5;
}
extern "C" __global__ void reads_later(int *x) {
    __shared__ int s[64]; int t = threadIdx.x;
    x[t] = 1;
    for (int k = 0; k < 3; k++) { if (x[t] == 7) __trap(); if (k == 1) x[t] = s[t]; __syncthreads(); }
}
extern "C" __global__ void pairs(Pair *x, const Pair *y) { int t = threadIdx.x; x[t].c = 1; x[t].i = y[t].i; }
extern "C" __global__ void whole(Pair *x, const Pair *y) {
    ((int2 *)x)[threadIdx.x] = ((const int2 *)y)[threadIdx.x];
}
extern "C" __global__ void bytes(char *x, const char *y) { x[threadIdx.x] = y[threadIdx.x]; }
__device__ __noinline__ int second(const int *x) { int own[4]; own[threadIdx.x & 3] = x[threadIdx.x]; return own[1]; }
extern "C" __global__ void calls(int *x) {
    __shared__ int s[64];
    x[threadIdx.x] = second(s) == 0 || threadIdx.x < 99;
}
extern "C" __global__ void heap(int *x, int n) {
    int *p = (int *)malloc(64);
    for (int k = 0; k < n; k++) p[k] = k;
    x[threadIdx.x] = p[15];
    free(p);
}
"""


@pytest.fixture(scope="module")
def device() -> Device:
    return cujit.cpu(1, check="init")


@pytest.fixture(scope="module")
def kernels(device: Device) -> cujit.Module:
    return cujit.jit(_CODE, device=device, name="raw.cu")


def _found(see: Callable[..., object], *arguments: object, kind: str = "init") -> KernelFaultError:
    with pytest.raises(KernelFaultError) as caught:
        see(*arguments)
    assert caught.value.kind == kind
    return caught.value


_SEEING: dict[str, Callable[[cujit.DeviceArray], object]] = {
    "copied": lambda x: x.numpy(),
    "copied to an array": lambda x: x.copy_to(np.empty(64, np.int32)),
    "copied in a stream": lambda x: x.numpy(stream=cast("Device", x.device).stream()),
    "seen by NumPy": lambda x: np.asarray(x),
    "seen by DLPack": lambda x: np.from_dlpack(x),
    "copied to another device": lambda x: cujit.cpu(1).empty(64, np.int32).copy_from(x),
}


@pytest.mark.parametrize("how", _SEEING)
@pytest.mark.parametrize("kind", ["zeros", "empty"])
def test_uninitialized_element_is_found_on_host_access(
    kind: str, how: str, device: Device, kernels: cujit.Module
) -> None:
    x = getattr(device, kind)(64, np.int32)
    kernels["raw"][1, 64](x, 20)
    assert x[:20].numpy().tolist() == list(range(20))
    message = _found(lambda: _SEEING[how](x)).message
    assert message.startswith("element 20, at byte 80 of the 256-byte array allocated at")
    assert "stored by kernel raw\n  at PTX line" in message
    assert message.count("raw.cu:8") == 2
    assert "loaded from shared memory" in message
    kernels["set"][1, 64](x)
    _SEEING[how](x)


def test_copies_keep_uninitialized_values_for_later_kernels(device: Device, kernels: cujit.Module) -> None:
    x, y, z = (device.zeros(64, np.int32) for _ in range(3))
    kernels["raw"][1, 64](x, 20)
    kernels["copy"][1, 64](y, x)
    z.copy_from(y)
    for array in (x, y, z):
        error = _found(functools.partial(kernels["where"][1, 64], x, array))
        assert error.thread == (20, 0, 0)
        assert "a branch depends on it" in error.message
        assert error.message.count("stored by kernel raw") == 1
        assert error.message.count("stored by kernel copy") == (array is not x)
    z[20:].fill(1)
    kernels["where"][1, 64](x, z)
    assert z.numpy()[20:].tolist() == [1] * 44


def test_unwritten_element_is_found_when_the_host_copies_it(device: Device, kernels: cujit.Module) -> None:
    x = device.empty(64, np.int32)
    kernels["set"][1, 63](x)
    assert "element 63, at byte 252 of the 256-byte array" in _found(x.numpy).message
    np.asarray(x)[63] = 5  # who sees memory may write it
    assert x.numpy()[63] == 5


def test_memory_of_the_host_is_looked_at_when_the_kernel_ends(device: Device, kernels: cujit.Module) -> None:
    x = np.zeros((8, 8), np.int32)
    error = _found(lambda: kernels["raw"][1, 64](x, 20))
    assert error.kernel == "raw"
    assert "element (2, 4) of argument 1, a numpy array of int32 (8, 8)" in error.message
    assert "the host can read it when the kernel ends\n  stored by kernel raw" in error.message
    kernels["raw"][1, 64](x, 64)
    kernels["later"][1, 64](x)
    held = np.zeros(64, np.int32)
    adopted = device.adopt(held.ctypes.data, held.nbytes)
    assert (
        "of the 256 bytes adopted" in _found(lambda: kernels["raw"][1, 64](cujit.Pointer(held.ctypes.data), 9)).message
    )
    del adopted


def test_overwritten_values_are_silent_but_reads_are_found(device: Device, kernels: cujit.Module) -> None:
    x = device.zeros(64, np.int32)
    kernels["later"][1, 64](x)
    assert x.numpy().tolist() == [5] * 64
    assert "a branch depends on it" in _found(lambda: kernels["reads_later"][1, 64](x)).message


def test_variables_of_a_module_are_looked_at(kernels: cujit.Module) -> None:
    kernels["keep"][1, 64](7)
    assert "byte 28 of the variable kept (256 bytes)" in _found(lambda: kernels.globals["kept"].read(np.int32)).message
    kernels["keep"][1, 64](64)
    assert kernels.globals["kept"].read(np.int32).tolist() == list(range(64))


def test_padding_is_not_an_element(device: Device, kernels: cujit.Module) -> None:
    pair = np.dtype([("c", "i1"), ("i", "i4")], align=True)
    source = device.array(np.zeros(32, pair))
    for dtype, shape in ((pair, 32), (np.uint8, 32 * 8)):
        x, y = (device.empty(shape, dtype) for _ in range(2))
        kernels["pairs"][1, 32](x, source)
        x.numpy()
        kernels["whole"][1, 32](y, x)
        y.numpy()
    bytes_ = device.empty(32, np.uint8)
    kernels["bytes"][1, 31](bytes_, device.zeros(32, np.uint8))
    assert "element 31" in _found(bytes_.numpy).message
    kernels["bytes"][1, 32](bytes_, device.empty(32, np.uint8))
    assert "element 0" in _found(bytes_.numpy).message


def test_local_memory_of_functions_keeps_uninitialized_values(device: Device, kernels: cujit.Module) -> None:
    out: Any = device.zeros(64, np.int32)
    kernels["calls"][1, 64](out)


def test_memory_of_the_kernels_malloc_is_raw_at_first(device: Device, kernels: cujit.Module) -> None:
    x = device.zeros(32, np.int32)
    kernels["heap"][1, 32](x, 16)
    assert x.numpy().tolist() == [15] * 32
    kernels["heap"][1, 32](x, 15)
    assert "element 0" in _found(x.numpy).message


# -- shared memory of other blocks ----------------------------------------------------------------------------

_CLUSTER = r"""
#define SYNC asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory")
static __device__ unsigned place(const int *p) { return (unsigned)__cvta_generic_to_shared(p); }
extern "C" __global__ void __cluster_dims__(4, 1, 1) pulled(int *out, int early) {
    __shared__ int part[32];
    int sum = 0, word;
    part[threadIdx.x] = threadIdx.x;
    if (!early) SYNC;
    for (int r = 0; r < 4; r++) {
        asm volatile("{ .reg .b32 a; mapa.shared::cluster.u32 a, %1, %2; ld.shared::cluster.b32 %0, [a]; }"
                     : "=r"(word) : "r"(place(&part[threadIdx.x])), "r"(r) : "memory");
        sum += word;
    }
    out[blockIdx.x * 32 + threadIdx.x] = sum;
    SYNC;
}
extern "C" __global__ void __cluster_dims__(4, 1, 1) pushed(int *out, int) {
    __shared__ int part[32];
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    SYNC;
    for (int r = 0; r < 4 && rank == 0; r++)
        asm volatile("{ .reg .b32 a; mapa.shared::cluster.u32 a, %1, %2; st.shared::cluster.b32 [a], %0; }"
                     :: "r"(4 * threadIdx.x), "r"(place(&part[threadIdx.x])), "r"(r) : "memory");
    SYNC;
    out[blockIdx.x * 32 + threadIdx.x] = part[threadIdx.x];
}
"""


@pytest.mark.parametrize("check", ["init", "all"])
def test_unwritten_memory_of_another_cluster_block_is_found(check: str) -> None:
    device = cujit.cpu(1, check=check)
    module = cujit.load(cujit.compile(_CLUSTER, arch="compute_90"), device)
    for _ in range(2):  # what the blocks of a launch before wrote does not count
        for name in ("pulled", "pushed"):
            out = device.empty(256, np.int32)
            module[name][8, 32](out, 0)
            np.testing.assert_array_equal(out.numpy(), np.tile(4 * np.arange(32), 8))
        out = device.empty(256, np.int32)
        if check == "all":
            assert "might not have started" in _found(module["pulled"][8, 32], out, 1, kind="race").message
            continue
        module["pulled"][8, 32](out, 1)
        assert "loaded from shared memory" in _found(out.numpy).message


def test_stores_past_the_limit_are_reported_as_unnamed() -> None:
    device = cujit.cpu(1, check="init", timeout_s=987)  # which no other test uses: no store has a number yet
    stores = "".join(f"    y[{k}] = x[{k}] + {k};\n" for k in range(STORES + 3))
    code = f"""extern "C" __global__ void many(int *y, const int *x) {{\n{stores}}}
    extern "C" __global__ void kept(int *y, const int *x) {{ y[0] = x[0] + 5; }}"""
    x, y, z = (device.empty(STORES + 3, np.int32) for _ in range(3))
    module = cujit.load(cujit.compile(code, arch="compute_80"), device)
    module["many"][1, 1](y, x)
    with raises(KernelFaultError, "fault-init", "many"):
        y[:100].numpy()
    with raises(KernelFaultError, "fault-init", "126"):
        y[-1:].numpy()
    # One of those that are named, and what is made of its value, are named when the others are gone.
    z[:1].copy_from(y[64:65])
    y.copy_from(np.zeros(STORES + 3, np.int32))
    with raises(KernelFaultError, "fault-init", "many") as before:
        z[:1].numpy()
    module["kept"][1, 1](y, z)
    with raises(KernelFaultError, "fault-init", "kept", "many"):
        y[:1].numpy()
    with pytest.raises(KernelFaultError) as after:
        z[:1].numpy()
    assert str(after.value) == str(before.value)
