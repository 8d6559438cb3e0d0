"""Products by ``wmma`` in all shapes are silent on padded rows, and raw operands are found (``make checked``).

``test_checks_flow.py`` has a few of them that run always.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import cujit
from cujit.errors import KernelFaultError
from raising import raises

pytestmark = [
    pytest.mark.skipif("CUJIT_EFFORT" not in os.environ, reason="half a minute: make checked"),
    pytest.mark.usefixtures("unoptimised"),
]
_SUMS = {"half": np.float16, "float": np.float32, "bfloat": np.float32, "tf32": np.float32, "double": np.float64}
_STORED = {"float": np.float16, "signed": np.int8, "unsigned": np.uint8}
_TILES = [
    *(
        f"{kind}_{layout}_{shape}"
        for kind in ("half", "float", "bfloat", "signed", "unsigned")
        for layout in ("rr", "rc", "cr", "cc")
        for shape in ("16_16_16", "8_32_16", "32_8_16")
    ),
    *("tf32_rr_16_16_8", "tf32_cc_16_16_8", "double_rr_8_8_4", "double_cc_8_8_4", "s4_rc_8_8_32", "b1_rc_8_8_128"),
]


@functools.cache
def module() -> cujit.Module:
    source = cujit.Source.cuda(Path(__file__).parent / "wmma_padded.cu")
    return cujit.load(cujit.compile(source, arch="compute_80"), cujit.cpu(1, check="all"))


def stored(kind: str, x: npt.NDArray[Any], is_turned: bool) -> npt.NDArray[Any]:
    """Lay a matrix of small numbers out in memory."""
    x = np.ascontiguousarray(x.T if is_turned else x)
    if kind in ("s4", "b1"):
        bits = 4 if kind == "s4" else 1
        parts = x.reshape(8, -1, 32 // bits) << np.arange(0, 32, bits)
        return np.asarray(parts.sum(axis=2), np.uint32).view(np.int32)
    if kind == "bfloat":
        return (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return x.astype(_STORED.get(kind) or _SUMS[kind])


def product(tile: str, missing: int = -1) -> None:
    """Multiply tiles of which an element may be missing; compare with NumPy's product."""
    kind, layout, *sizes = tile.split("_")
    m, n, k = map(int, sizes)
    rng = np.random.default_rng(1)
    a, b, c = (rng.integers(0, 2 if kind == "b1" else 4, shape) for shape in ((m, k), (k, n), (m, n)))
    left, right = stored(kind, a, layout[0] == "c"), stored(kind, b, layout[1] == "c")
    device, dtype = module().device, _SUMS.get(kind, np.int32)
    d = device.zeros((m, n), dtype)
    operands = [device.array(each) for each in (left, right, c.astype(dtype))]
    module()[tile][1, 32](*operands, d, np.int32(missing))
    np.testing.assert_array_equal(d.numpy(), a @ b + c)


@pytest.mark.parametrize("tile", _TILES)
def test_padded_rows_are_silent_and_a_missing_element_is_found(tile: str) -> None:
    product(tile)
    for missing in (5, 10_005, 20_005):
        with raises(KernelFaultError, "fault-init"):
            product(tile, missing)
