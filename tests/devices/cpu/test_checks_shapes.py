"""Shared memory of every shape: each check finds a planted bug, and is silent without it.

An element of each size is stored at one place and loaded from another, by lanes that go by rows, strides, exclusive or,
paddings or at random, in blocks that are, or are not, a multiple of a warp.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import cujit
from cujit.errors import KernelFaultError

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
extern "C" __global__ void shape(const T *x, T *y, const int *at, int wrong)
{{
    __shared__ T s[1100];
    int t = threadIdx.x, n = blockDim.x, other = (t + 37) % n;
    if (t != wrong) s[PLACE(t)] = x[t];
    {barrier}
    y[t] = s[PLACE(other)];
}}
"""


@pytest.fixture(scope="module")
def kernels() -> dict[tuple[str, str, bool], cujit.Artifact]:
    made = {}
    for (type_, place), barrier in itertools.product(itertools.product(_TYPES, _PLACES), (False, True)):
        head = f"typedef {type_} T;\n__device__ int place(int t, int n, const int *at) {{ return {_PLACES[place]}; }}\n"
        text = head + "#define PLACE(t) place(t, n, at)" + _CODE.format(barrier="__syncthreads();" if barrier else "")
        made[type_, place, barrier] = cujit.compile(cujit.Source.cuda(text, name="shape.cu"), arch="compute_80")
    return made


def _launch(image: cujit.Artifact, type_: str, check: str, block: int, *, wrong: int = -1) -> None:
    device = cujit.cpu(1, check=check)
    count = block * (4 if type_ == "int4" else 1)
    x = device.array(np.arange(count).astype(_TYPES[type_]))
    y, at = (
        device.zeros(count, _TYPES[type_]),
        device.array(np.random.default_rng(5).permutation(block).astype(np.int32)),
    )
    cujit.load(image, device)["shape"][1, block](x, y, at, wrong)
    if wrong < 0:
        size = count // block
        expected = x.numpy().reshape(block, size)[(np.arange(block) + 37) % block]
        np.testing.assert_array_equal(y.numpy().reshape(block, size), expected)


@pytest.mark.parametrize("place", _PLACES)
@pytest.mark.parametrize("type_", _TYPES)
def test_each_check_finds_the_planted_bug_alone(
    type_: str, place: str, kernels: dict[tuple[str, str, bool], cujit.Artifact]
) -> None:
    for block in (256, 100):
        _launch(kernels[type_, place, True], type_, "all", block)
        for check in ("race", "all"):
            with pytest.raises(KernelFaultError) as found:
                _launch(kernels[type_, place, False], type_, check, block)
            assert found.value.kind == "race" or (check == "all" and found.value.kind == "init")
