"""The race check finds races for memory that a kernel writes in a roundabout way, not by the parameter it reads by."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cujit
from cujit.errors import KernelFaultError

# Each block reads what its neighbor writes, if the kernel writes x.
CODE = r"""
#define KERNEL extern "C" __global__ void
#define AT (blockIdx.x * 64 + threadIdx.x)
#define NEXT ((AT + 64) % 256)
__device__ int kept[256];
__device__ __noinline__ void put(int *at, int value) { *at = value; }

KERNEL apart(const int *x, int *y, const long long *p) { y[AT] = x[NEXT]; }
KERNEL table(const int *x, int *y, const long long *p) { ((int *)p[0])[AT] = x[NEXT]; }
KERNEL halves(const int *x, int *y, const long long *p) {
    int2 parts = *(const int2 *)p;
    long long whole;
    asm("mov.b64 %0, {%1, %2};" : "=l"(whole) : "r"(parts.x), "r"(parts.y));
    ((int *)whole)[AT] = x[NEXT];
}
KERNEL either(const int *x, int *y, const long long *p) { (p[1] ? y : (int *)x)[AT] = x[NEXT]; }
KERNEL variable(const int *x, int *y, const long long *p) { kept[AT] = x[NEXT]; y[AT] = kept[NEXT]; }
KERNEL added(const int *x, int *y, const long long *p) { y[AT] = x[NEXT]; atomicAdd((int *)p[0] + AT, 1); }
KERNEL called(const int *x, int *y, const long long *p) { put((int *)x + AT, x[NEXT]); }
KERNEL lettered(const int *x, int *y, const long long *p) {
    unsigned long long at = 0;
    for (int k = 0; k < 8; k++) at |= (unsigned long long)((const volatile unsigned char *)p)[k] << 8 * k;
    ((int *)at)[AT] = y[AT];
    y[AT] = x[NEXT];
}
KERNEL behind(const int *x, int *y, const long long *p) {
    if (blockIdx.x < 3) y[AT] = x[NEXT];
    else y[(int)threadIdx.x - 64] = 1;
}
"""


@functools.cache
def _image() -> cujit.Artifact:
    return cujit.compile(CODE, arch="compute_80")


def _launch(kernel: str, *, same: bool = False, blocks: int = 4) -> None:
    device = cujit.cpu(1, check="race")
    x, y = device.zeros(320, np.int32), device.zeros(320, np.int32)
    p = device.array(np.array([x.address, 0], np.int64))
    cujit.load(_image(), device)[kernel][blocks, 64](x, x if same else y, p)
    device.synchronize()


@pytest.mark.parametrize("kernel", ["table", "halves", "either", "variable", "added", "called", "lettered"])
def test_races_through_indirect_writes_are_found(kernel: str) -> None:
    with pytest.raises(KernelFaultError) as caught:
        _launch(kernel)
    assert caught.value.kind == "race"


def test_races_of_an_array_behind_two_parameters_are_found() -> None:
    _launch("apart")
    _launch("apart", same=True, blocks=1)
    with pytest.raises(KernelFaultError) as caught:
        _launch("apart", same=True)
    assert caught.value.kind == "race"


@pytest.mark.filterwarnings("ignore::cujit.errors.CheckWarning")
def test_store_outside_its_view_races_with_neighboring_readers() -> None:
    device = cujit.cpu(1, check="memory,race")
    both, p = np.zeros(512, np.int32), device.zeros(2, np.int64)
    with pytest.raises(KernelFaultError) as caught:
        cujit.load(_image(), device)["behind"][4, 64](both[:256], both[260:], p)
    assert caught.value.kind == "race"
