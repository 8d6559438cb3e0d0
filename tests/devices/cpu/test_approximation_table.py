"""The table of the page on the CPU device that says how far approximate instructions are from an H200."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cujit.devices.device import Device
from instructions.approximations import FORMS, GOLDEN, figures, parts_of, values_of

Array = npt.NDArray[Any]

_PAGE = Path(__file__).parents[3] / "docs" / "cpu.md"
_DTYPES = {"f16": np.uint16, "bf16": np.uint16, "f32": np.float32, "f64": np.float64}


def rows_of_page() -> dict[str, list[float]]:
    """Numbers of each row: largest and mean of an H200, of the CPU device and between, and percent equal."""
    found = {}
    for line in _PAGE.read_text().splitlines():
        if match := re.match(r"\| `((?:ex2|lg2|sin|cos|rcp|r?sqrt|tanh|div)\.[\w.]+)`(?:, ([^|]+?))? \|(.*)\|$", line):
            found[f"{match[1]} {match[2] or ''}".strip()] = [float(x) for x in re.findall(r"[\d.]+", match[3])]
    return found


def codes(x: Array) -> Array:
    """Bits of an array."""
    return x.view(np.dtype(f"u{x.itemsize}"))


@pytest.mark.parametrize("form", FORMS)
def test_errors_match_the_table(form: str, elementwise: Callable[..., Array], device: Device) -> None:
    type_ = form.split(".")[-1]
    with np.load(GOLDEN) as file:
        group = f"{form.split('.')[0]}.{type_}"
        inputs = [file[f"{group}.{k}"] for k in range(2 if form.startswith("div") else 1)]
        recorded = file[form]
    sources = [x.view(_DTYPES[type_]) for x in inputs]
    found = codes(elementwise(form, _DTYPES[type_], *sources))
    if device.is_gpu:
        np.testing.assert_array_equal(found, recorded)
        return
    for part in parts_of(form, inputs):
        row = rows_of_page()[f"{form} {part}".strip()]
        got = figures(form, part, inputs, recorded, found)
        for (worst, mean), said_worst, said_mean in zip(got[:3], row[:6:2], row[1:6:2], strict=True):
            assert worst == pytest.approx(said_worst, abs=0.006), (form, part, got)
            # The mean of the sample, in which the worst are too many.
            assert mean == pytest.approx(said_mean, rel=0.35, abs=0.05), (form, part, got)
        assert 100 * got.equal == pytest.approx(row[6], abs=10)


@pytest.mark.parametrize("form", FORMS)
def test_infinities_nans_zeros_and_signs_match_an_h200(form: str, elementwise: Callable[..., Array]) -> None:
    type_ = form.split(".")[-1]
    with np.load(GOLDEN) as file:
        group = f"{form.split('.')[0]}.{type_}"
        inputs = [file[f"{group}.{k}"] for k in range(2 if form.startswith("div") else 1)]
        recorded = file[form]
    found = codes(elementwise(form, _DTYPES[type_], *(x.view(_DTYPES[type_]) for x in inputs)))
    there, here = values_of(recorded, type_), values_of(found, type_)
    special = ~np.isfinite(there) | ~np.isfinite(here) | (there == 0) | (here == 0)
    np.testing.assert_array_equal(found[special], recorded[special])
    np.testing.assert_array_equal(np.signbit(there), np.signbit(here))
