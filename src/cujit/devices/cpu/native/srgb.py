"""sRGB codes, as textures decode them."""

from __future__ import annotations

import math

__all__ = ["linear"]

# The linear values of codes that are not the transfer function's, rounded to 8 bits.
_ODD = {
    12: 60 / 2**14, 15: 78 / 2**14, 19: 107 / 2**14, 20: 115 / 2**14, 32: 236 / 2**14, 33: 250 / 2**14,
    65: 864 / 2**14, 66: 896 / 2**14, 68: 236 / 2**12, 70: 1000 / 2**14, 97: 1952 / 2**14, 184: 123 / 256,
    186: 126 / 256, 249: 242 / 256, 250: 244 / 256, 251: 246 / 256, 252: 250 / 256, 253: 252 / 256,
}  # fmt: skip


def linear(code: int) -> float:
    """Decode sRGB as an H200 does: to 8 bits, with a line of slope 5/64 for small codes.

    Source: measured on all 256 codes. IEC 61966-2-1, the transfer function.
    """
    if code < 12:
        return code * 5 / 2**14
    value = code / 255
    linear: float = ((value + 0.055) / 1.055) ** 2.4
    unit: float = 2.0 ** (math.frexp(linear)[1] - 8)
    return _ODD.get(code, round(linear / unit) * unit)
