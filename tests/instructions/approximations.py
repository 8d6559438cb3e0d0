"""How far approximate instructions are from the true value: the figures of the table in ``docs/cpu.md``.

``tests/goldens/approximations.npz`` has inputs and what an H200 made of them: 700 random ones and the worst.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["FORMS", "GOLDEN", "Figures", "figures", "parts_of", "values_of"]

GOLDEN = Path(__file__).parents[1] / "goldens" / "approximations.npz"
"""Recorded in November 2026 with driver 580."""

Array = npt.NDArray[Any]

FUNCTIONS: dict[str, Callable[..., Array]] = {
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "rcp": np.reciprocal,
    "rsqrt": lambda x: np.reciprocal(np.sqrt(x)),
    "sqrt": np.sqrt,
    "tanh": np.tanh,
    "div": np.divide,
}
_PLAIN = ("ex2", "lg2", "sin", "cos", "rcp", "rsqrt", "sqrt")
FORMS = (
    *(f"{name}.approx{z}.f32" for name in _PLAIN for z in ("", ".ftz")),
    "tanh.approx.f32",
    "div.approx.f32",
    "div.approx.ftz.f32",
    "div.full.f32",
    "div.full.ftz.f32",
    "rcp.approx.ftz.f64",
    "rsqrt.approx.f64",
    "rsqrt.approx.ftz.f64",
    "ex2.approx.f16",
    "tanh.approx.f16",
    "ex2.approx.ftz.bf16",
    "tanh.approx.bf16",
)
# The least exponent, the bits of the significand, and the largest number.
_FORMATS = {
    "f32": (-126, 24, 3.4028235e38),
    "f64": (-1022, 53, 1.797e308),
    "f16": (-14, 11, 65504.0),
    "bf16": (-126, 8, 3.38e38),
}


class Figures(NamedTuple):
    """Largest and mean error, in units: of an H200, of a device, and between the two; and the share of equal bits."""

    h200: tuple[float, float]
    device: tuple[float, float]
    between: tuple[float, float]
    equal: float


def values_of(codes: Array, type_: str) -> Array:
    """Numbers that codes stand for, as f64."""
    if type_ == "bf16":
        return (codes.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return codes.view({"f16": np.float16, "f32": np.float32, "f64": np.float64}[type_]).astype(np.float64)


def parts_of(form: str, inputs: list[Array]) -> dict[str, tuple[Array, Any]]:
    """Say which inputs count, by ranges with a unit of their own, and what the unit is.

    Where the name of a range is empty, it is the distance of neighbours at the true value (of the upper halves of f64,
    which is all that ``.ftz.f64`` makes). Results that are not normal do not count, nor inputs that are flushed.
    """
    name, type_ = form.split(".")[0], form.split(".")[-1]
    least, bits, largest = _FORMATS[type_]
    with np.errstate(all="ignore"):
        values = [values_of(x, type_) for x in inputs]
        true = FUNCTIONS[name](*values)
        size = np.abs(true)
        usual = np.isfinite(true) & (size >= 2.0**least) & (size < largest) & np.isfinite(values[0])
        if "ftz" in form or name == "tanh":
            usual &= np.all([np.abs(x) >= 2.0**least for x in values], axis=0)
        if form.startswith("div.approx"):
            usual &= (np.abs(values[1]) <= 2.0**126) & (np.abs(values[1]) >= 2.0**-126)
        ulp = np.ldexp(1.0, np.frexp(np.where(usual, size, 1.0))[1] - bits)
    ulp = ulp * 2.0**32 if form.endswith(".ftz.f64") else ulp
    if name in ("sin", "cos"):
        return {"to ±π": (usual & (np.abs(values[0]) <= np.pi), 2.0**-24)}
    if name == "lg2":
        near = (values[0] > 0.5) & (values[0] < 2)
        return {"0.5 to 2": (usual & near, 2.0**-24), "elsewhere": (usual & ~near, ulp)}
    return {"": (usual, ulp)}


def figures(form: str, part: str, inputs: list[Array], h200: Array, device: Array) -> Figures:
    """Compute the figures of one row."""
    type_ = form.split(".")[-1]
    use, unit = parts_of(form, inputs)[part]
    with np.errstate(all="ignore"):
        true = FUNCTIONS[form.split(".")[0]](*(values_of(x, type_) for x in inputs))[use]
    there, here = values_of(h200, type_)[use], values_of(device, type_)[use]
    unit = np.broadcast_to(unit, use.shape)[use]
    errors = [np.abs(x - y) / unit for x, y in ((there, true), (here, true), (there, here))]
    worst = [(float(e.max()), float(e.mean())) for e in errors]
    return Figures(worst[0], worst[1], worst[2], float((h200 == device)[use].mean()))
