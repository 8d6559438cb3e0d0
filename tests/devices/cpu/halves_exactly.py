"""Small floating-point formats in integer arithmetic alone, to compare with."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction

__all__ = ["BF16", "F16", "FORMATS", "Format"]


@dataclass(frozen=True)
class Format:
    """A format: ``special`` says whether its highest exponent is kept for infinity and NaN."""

    exponent_bits: int
    fraction_bits: int
    special: bool = True

    @property
    def bias(self) -> int:
        """What is added to the exponent."""
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def sign(self) -> int:
        """The bit of the sign."""
        return 1 << (self.exponent_bits + self.fraction_bits)

    @property
    def infinity(self) -> int:
        """The code of infinity."""
        return ((1 << self.exponent_bits) - 1) << self.fraction_bits

    def is_nan(self, bits: int) -> bool:
        """Whether the bits are a NaN."""
        return self.special and bits & ~self.sign > self.infinity

    def is_subnormal(self, bits: int) -> bool:
        """Whether the bits are zero or a subnormal number."""
        return not bits & self.infinity

    @functools.cache  # noqa: B019 - of the few formats here, none is dropped
    def value(self, bits: int) -> Fraction:
        """The number that finite bits stand for."""
        size = bits & ~self.sign
        exponent = max(size >> self.fraction_bits, 1)
        fraction = size - ((exponent - 1) << self.fraction_bits)
        value = Fraction(fraction) * Fraction(2) ** (exponent - self.bias - self.fraction_bits)
        return -value if bits & self.sign else value

    @functools.cache  # noqa: B019
    def real(self, bits: int) -> float:
        """The number as a Python float, which holds all of them."""
        if self.is_nan(bits):
            return math.nan
        if self.special and bits & ~self.sign == self.infinity:
            return -math.inf if bits & self.sign else math.inf
        value = float(self.value(bits))
        return -0.0 if not value and bits & self.sign else value

    def units(self, x: Fraction) -> tuple[int, Fraction]:
        """Code of the number next to ``|x|`` toward zero, and what is left as a share of the step to the next code."""
        over, under = abs(x).numerator, x.denominator
        exponent = over.bit_length() - under.bit_length()
        if over << max(-exponent, 0) < under << max(exponent, 0):
            exponent -= 1
        exponent = max(exponent, 1 - self.bias) if over else 1 - self.bias
        up = self.fraction_bits - exponent
        whole, rest = divmod(over << max(up, 0), under << max(-up, 0))
        return whole + ((exponent - 1 + self.bias) << self.fraction_bits), Fraction(rest, under << max(-up, 0))

    def nearest(self, x: Fraction, *, minus: bool = False) -> int:
        """Round to nearest even; ``minus`` is the sign of a zero."""
        code, rest = self.units(x)
        if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and code & 1):
            code += 1
        if self.special:
            code = min(code, self.infinity)
        return code | (self.sign if x < 0 or (x == 0 and minus) else 0)


F16, BF16 = Format(5, 10), Format(8, 7)
FORMATS = {
    "f16": F16,
    "bf16": BF16,
    "e4m3": Format(4, 3, special=False),
    "e5m2": Format(5, 2, special=False),
    "e2m3": Format(2, 3, special=False),
    "e3m2": Format(3, 2, special=False),
    "e2m1": Format(2, 1, special=False),
}
