"""Every instruction of the table, on every device, against what a GPU computed (``tests/goldens/instructions.npz``)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cujit.devices.device import Device
from instructions.runner import run_rows
from instructions.table import Row, all_rows, inputs_of, key_of

GOLDENS = Path(__file__).parents[1] / "goldens" / "instructions.npz"
Array = npt.NDArray[Any]

FAMILIES = sorted({row.name.partition(".")[0] for row in all_rows()})
GRAINS = {"f16": 2.0**-23, "bf16": 2.0**-132, "f32": 2.0**-148, "f64": 2.0**-1073}
"""Results below the normal range are granular to the smallest subnormal: two of them."""
NUMBERS: dict[str, np.dtype[Any]] = {"f16": np.dtype("f2"), "f32": np.dtype("f4"), "f64": np.dtype("f8")}


@pytest.fixture(scope="module")
def goldens() -> dict[str, Array]:
    """What the GPU computed, by row."""
    with np.load(GOLDENS) as file:
        return {name: file[name] for name in file.files}


def as_floats(words: Array, result: str) -> Array:
    """Read words as what they are; pairs become rows of two."""
    if result.endswith("x2"):
        return as_floats(words.view(np.uint16), result[:-2]).reshape(-1, 2)
    if result == "bf16":
        return (words.astype(np.uint32) << 16).view(np.float32)
    return words.view(NUMBERS[result])


def difference(row: Row, got: Array, expected: Array) -> str:
    """Tell where a result differs from the GPU's, or nothing."""
    wrong = got != expected
    if row.exact:
        wrong &= ~free_choice(row, got, expected)
    else:
        a, b = as_floats(got, row.result), as_floats(expected, row.result)
        parts = [w.view(np.uint16).reshape(a.shape) if a.ndim > 1 else w for w in (got, expected)]
        far = out_of_bounds(row, a, b) | ((np.isnan(a) | np.isnan(b)) & (parts[0] != parts[1]))
        wrong = far.reshape(len(got), -1).any(axis=1)
    if not wrong.any():
        return ""
    k = int(np.flatnonzero(wrong)[0])
    inputs = ", ".join(hex(int(a[k])) for a in inputs_of(row))
    count = int(wrong.sum())
    return f"{row.name}({inputs}) is {int(got[k]):#x} and not {int(expected[k]):#x}; {count} of {wrong.size} differ"


def free_choice(row: Row, got: Array, expected: Array) -> Array:
    """Find where any NaN is right: where several go into an f64 operation to nearest, the CPU device takes either."""
    if not re.match(r"(add|sub|mul|fma)\.rn\.f64", row.name):
        return np.zeros(len(got), bool)
    nans = np.sum([np.isnan(a.view(np.float64)) for a in inputs_of(row)], axis=0)
    return np.asarray((nans > 1) & np.isnan(got.view(np.float64)) & np.isnan(expected.view(np.float64)))


def out_of_bounds(row: Row, got: Array, expected: Array) -> Array:
    """Compare by the documented bound; special values must agree."""
    with np.errstate(all="ignore"):
        allowed = np.maximum(np.abs(expected.astype(np.float64)) * row.relative, row.absolute)
        allowed = np.maximum(allowed, GRAINS[row.result.removesuffix("x2")])
        near = np.abs(got.astype(np.float64) - expected.astype(np.float64)) <= allowed
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    wrong = ~(near | same)
    if row.about == "edges":
        # What is off by a little may be flushed where the other is not.
        wrong &= np.maximum(np.abs(got), np.abs(expected)) > 1.001 * 2.0**-126
    if row.limit:
        wrong &= np.abs(inputs_of(row)[0].view(got.dtype)) <= row.limit
    return np.asarray(wrong)


@pytest.mark.parametrize("family", FAMILIES)
def test_device_computes_what_the_gpu_computed(family: str, device: Device, goldens: dict[str, Array]) -> None:
    rows = [row for row in all_rows() if row.name.partition(".")[0] == family and key_of(row) in goldens]
    if not rows:
        pytest.skip(f"no row of {family} has been recorded on a GPU yet (tests/instructions/record.py)")
    results = run_rows(device, rows)
    found = [difference(row, results[key_of(row)], goldens[key_of(row)]) for row in rows]
    assert not any(found), "\n".join(line for line in found if line)


def test_goldens_cover_every_row(goldens: dict[str, Array]) -> None:
    rows, recorded = {key_of(row) for row in all_rows()}, set(goldens) - {"origin"}
    assert recorded <= rows
    if missing := sorted(rows - recorded):
        pytest.skip(f"{len(missing)} rows wait to be recorded on a GPU (tests/instructions/record.py): {missing[:5]}")
