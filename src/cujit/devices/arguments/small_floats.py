"""The numbers of CUDA that Python does not have: half, bfloat16 and the ones of 8 bits, from any real number.

They are rounded to nearest even, once, from the exact value; what would overflow is refused by the caller, who asks
``SmallFloat.overflow``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from cujit.values import dataclass

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True)
class SmallFloat:
    """A binary format: its name, its bits, and the smallest size of a number that does not fit.

    ``nan`` is the code of a NaN, ``infinity`` that of infinity; None where the format has none. ``arrays`` are the
    dtypes of arrays of such numbers: NumPy's own where it has one, else those of ml_dtypes, and plain words.
    """

    name: str
    size: int
    exponent_bits: int
    fraction_bits: int
    overflow: float
    nan: int
    infinity: int | None
    arrays: tuple[str, ...]


# Sources: IEEE 754-2019, 3.6 (binary16); CUDA Math API manual, "Bfloat16 Precision Intrinsics" and "FP8 Intrinsics";
# cuda_fp8.hpp of CUDA 13.5, ``__nv_cvt_double_to_fp8`` (thresholds, NaNs; E4M3 has no infinity).
_HALF = SmallFloat("half", 2, 5, 10, 65520.0, 0x7E00, 0x7C00, ("float16",))
_BFLOAT16 = SmallFloat(
    "bfloat16", 2, 8, 7, 2.0**128 - 2.0**119, 0x7FFF, 0x7F80, ("bfloat16", "uint16")
)  # __float2bfloat16_rn makes this NaN
_E4M3 = SmallFloat("fp8 e4m3", 1, 4, 3, math.nextafter(464.0, math.inf), 0x7F, None, ("float8_e4m3fn", "uint8"))
_E5M2 = SmallFloat("fp8 e5m2", 1, 5, 2, 61440.0, 0x7F, 0x7C, ("float8_e5m2", "uint8"))

FORMATS = {
    "__half": _HALF,
    "half": _HALF,
    "_Float16": _HALF,
    "__nv_bfloat16": _BFLOAT16,
    "nv_bfloat16": _BFLOAT16,
    "__bf16": _BFLOAT16,
    "__nv_fp8_e4m3": _E4M3,
    "__nv_fp8_e5m2": _E5M2,
}
"""By the C++ type. They are structures to the compiler and numbers to everybody else."""


def encode(number: float, form: SmallFloat) -> bytes:
    """Round a number that fits to a format: the bytes of its code, the lowest first."""
    sign = (math.copysign(1.0, number) < 0) << (8 * form.size - 1)
    if math.isnan(number):
        return form.nan.to_bytes(form.size, "little")
    if math.isinf(number):
        assert form.infinity is not None  # or the caller had refused
        return (sign | form.infinity).to_bytes(form.size, "little")
    bias = (1 << form.exponent_bits - 1) - 1
    exponent = max(math.frexp(number)[1] - 1, 1 - bias) if number else 1 - bias
    # A power of two scales without rounding, and round() goes to even.
    fraction = round(math.ldexp(abs(number), form.fraction_bits - exponent))
    code = (exponent + bias - 1 << form.fraction_bits) + fraction
    return (sign | code).to_bytes(form.size, "little")


def decode(codes: npt.NDArray[Any], form: SmallFloat) -> npt.NDArray[np.float32]:
    """Return the numbers of an array of codes, unsigned ints of the format's size. float32 represents each number
    exactly.
    """
    magnitudes = codes.astype(np.int64) & (1 << 8 * form.size - 1) - 1
    exponents, fractions = magnitudes >> form.fraction_bits, magnitudes & (1 << form.fraction_bits) - 1
    bias = (1 << form.exponent_bits - 1) - 1
    whole = fractions + np.where(exponents > 0, 1 << form.fraction_bits, 0)
    numbers: npt.NDArray[np.float64] = np.ldexp(
        whole.astype(np.float64), np.maximum(exponents, 1) - bias - form.fraction_bits
    )
    if form.infinity is None:
        numbers[magnitudes == form.nan] = math.nan
    else:
        numbers[magnitudes == form.infinity] = math.inf
        numbers[magnitudes > form.infinity] = math.nan
    np.negative(numbers, out=numbers, where=codes != magnitudes)
    return numbers.astype(np.float32)
