"""Shared memory of every shape: each check finds a planted bug, and is silent without it.

An element of each size is stored at one place and loaded from another, by lanes that go by rows, strides, exclusive or,
paddings or at random, in blocks that are, or are not, a multiple of a warp.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

import cujit
from cujit.errors import KernelFaultError
from sweeps import part

_TYPES = {
    "unsigned char": np.uint8,
    "unsigned short": np.uint16,
    "int": np.int32,
    "double": np.float64,
    "int4": np.int32,
}
_PLACES = {
    "row": "t",
    "back": "n - 1 - t",
    "stride": "3 * t",
    "padded": "t / 16 * 17 + t % 16",
    "column": "t % 32 * 33 + t / 32",
    "xor": "t ^ 3",
    "random": "at[t]",
}
_CODE = """
extern "C" __global__ void NAME(const T *x, T *y, const int *at)
{
    __shared__ T s[1100];
    int t = threadIdx.x, n = blockDim.x, other = (t + 37) % n;
    s[place(t, n, at)] = x[t];
    BARRIER
    y[t] = s[place(other, n, at)];
}
"""

pytestmark = pytest.mark.usefixtures("unoptimised")


@functools.cache
def _image(type_: str, place: str) -> cujit.Artifact:
    """Compile both kernels of a shape: one that is right, and one that lacks its barrier."""
    head = f"typedef {type_} T;\n__device__ int place(int t, int n, const int *at) {{ return {_PLACES[place]}; }}\n"
    text = head + "".join(
        _CODE.replace("NAME", name).replace("BARRIER", barrier)
        for name, barrier in (("right", "__syncthreads();"), ("wrong", ""))
    )
    return cujit.compile(cujit.Source.cuda(text, name="shape.cu"), arch="compute_80")


def _launch(type_: str, place: str, name: str, check: str, block: int) -> None:
    device = cujit.cpu(1, check=check)
    count = block * (4 if type_ == "int4" else 1)
    x = device.array(np.arange(count).astype(_TYPES[type_]))
    y, at = (
        device.zeros(count, _TYPES[type_]),
        device.array(np.random.default_rng(5).permutation(block).astype(np.int32)),
    )
    cujit.load(_image(type_, place), device)[name][1, block](x, y, at)
    if name == "right":
        size = count // block
        expected = x.numpy().reshape(block, size)[(np.arange(block) + 37) % block]
        np.testing.assert_array_equal(y.numpy().reshape(block, size), expected)


@pytest.mark.parametrize(("type_", "place"), part(itertools.product(_TYPES, _PLACES), 4))
def test_each_check_finds_only_the_planted_bug(type_: str, place: str) -> None:
    for block, check in ((256, "race"), (100, "all")):
        _launch(type_, place, "right", "all", block)
        with pytest.raises(KernelFaultError) as found:
            _launch(type_, place, "wrong", check, block)
        assert found.value.kind == "race" or (check == "all" and found.value.kind == "init")
