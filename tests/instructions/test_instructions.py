"""Every instruction of the table, on every device, against what a GPU computed (``tests/goldens/instructions.npz``)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cujit.devices.base import Device
from instructions.runner import key_of, run_rows
from instructions.table import ROWS, Row, inputs_of

GOLDENS = Path(__file__).parents[1] / "goldens" / "instructions.npz"
Array = npt.NDArray[Any]

FAMILIES = sorted({row.name.partition(".")[0] for row in ROWS})


@pytest.fixture(scope="module")
def goldens() -> dict[str, Array]:
    """What the GPU computed, by row."""
    with np.load(GOLDENS) as file:
        return {name: file[name] for name in file.files}


def as_floats(words: Array, result: str) -> Array:
    """Read words as what they are."""
    return words.view({"f32": np.float32, "f64": np.float64}[result])


def difference(row: Row, got: Array, expected: Array) -> str:
    """Tell where a result differs from the GPU's, or nothing."""
    if row.exact:
        wrong = got != expected
        if row.result in ("f32", "f64"):
            a, b = as_floats(got, row.result), as_floats(expected, row.result)
            wrong &= ~(np.isnan(a) & np.isnan(b))
    else:
        wrong = out_of_bounds(row, as_floats(got, row.result), as_floats(expected, row.result))
    if not wrong.any():
        return ""
    k = int(np.flatnonzero(wrong)[0])
    inputs = ", ".join(hex(int(a[k])) for a in inputs_of(row))
    count = int(wrong.sum())
    return f"{row.name}({inputs}) is {int(got[k]):#x} and not {int(expected[k]):#x}; {count} of {wrong.size} differ"


def out_of_bounds(row: Row, got: Array, expected: Array) -> Array:
    """Compare by the documented bound; special values must agree."""
    with np.errstate(all="ignore"):
        allowed = np.maximum(np.abs(expected.astype(np.float64)) * row.relative, row.absolute)
        # Results below the normal range are granular to the smallest subnormal.
        allowed = np.maximum(allowed, 2.0**-148 if row.result == "f32" else 2.0**-1073)
        near = np.abs(got.astype(np.float64) - expected.astype(np.float64)) <= allowed
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    wrong = ~(near | same)
    if row.limit:
        wrong &= np.abs(inputs_of(row)[0].view(got.dtype)) <= row.limit
    return np.asarray(wrong)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_device_computes_what_the_gpu_computed(family: str, device: Device, goldens: dict[str, Array]) -> None:
    rows = [(k, row) for k, row in enumerate(ROWS) if row.name.partition(".")[0] == family]
    results = run_rows(device, rows)
    found = [difference(row, results[k], goldens[key_of(row)]) for k, row in rows]
    assert not any(found), "\n".join(line for line in found if line)


def test_the_goldens_cover_every_row(goldens: dict[str, Array]) -> None:
    assert {key_of(row) for row in ROWS} == set(goldens) - {"origin"}
