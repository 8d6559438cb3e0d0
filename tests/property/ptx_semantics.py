"""What instructions of PTX compute, in Python's integers, by the words of the PTX manual: ``evaluate(words, values)``.

It knows nothing of cujit. Values and results are bits; a result may have more of them than its register keeps.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from property.exact import FORMATS, Number, add, divide, fma, is_nan, multiply, read, smaller, square_root

__all__ = ["carried", "compared", "evaluate", "updated", "width_of"]

Words = Sequence[str]
_ROUNDINGS = ("rn", "rz", "rm", "rp")
_PACKED = {"f16x2": "f16", "bf16x2": "bf16"}


@functools.cache
def width_of(kind: str) -> int:
    """Give the bits of a type: 32 of ``u32`` and of ``f16x2``."""
    return 32 if kind in _PACKED else 1 if kind == "pred" else int(kind.lstrip("busf"))


def _low(x: int, bits: int) -> int:
    return x & ((1 << bits) - 1)


def _signed(x: int, bits: int) -> int:
    x = _low(x, bits)
    return x - (1 << bits) if x >> (bits - 1) else x


def _number(x: int, kind: str) -> int:
    return _signed(x, width_of(kind)) if kind[0] == "s" else _low(x, width_of(kind))


def _clamped(x: int, kind: str) -> int:
    bits = width_of(kind)
    least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)
    return min(max(x, least), most)


# -- floating point ------------------------------------------------------------------------------------------


def _value(words: Words, kind: str, bits: int) -> Number:
    form = FORMATS[kind]
    return read(form.flushed(_low(bits, width_of(kind))) if "ftz" in words else _low(bits, width_of(kind)), form)


def _rounding(words: Words, usual: str = "rn") -> str:
    return next((word for word in words if word in _ROUNDINGS), usual)


def _written(words: Words, kind: str, value: Number) -> int:
    """Round as the words say; ``sat`` and ``relu`` make a zero of NaN, or keep it."""
    if "sat" in words:
        value = 0.0 if is_nan(value) or value <= 0 else Fraction(1) if value >= 1 else value
    if "relu" in words and not is_nan(value) and value <= 0:
        value = 0.0
    return FORMATS[kind].write(value, _rounding(words), flush="ftz" in words)


def _float(words: Words, kind: str, values: Sequence[int]) -> int:
    opcode, mode = words[0], _rounding(words)
    if opcode in ("abs", "neg", "copysign"):
        return _of_signs(words, kind, values)
    if opcode in ("min", "max"):
        return _least_or_most(words, kind, values)
    x, *more = (_value(words, kind, v) for v in values)
    if opcode == "sub":
        more = [-more[0]]
    exact: dict[str, Callable[..., Number]] = {
        "add": lambda: add(x, more[0], mode),
        "sub": lambda: add(x, more[0], mode),
        "mul": lambda: multiply(x, *more),
        "fma": lambda: fma(x, more[0], more[1], mode),
        "mad": lambda: fma(x, more[0], more[1], mode),
        "div": lambda: divide(x, *more),
        "rcp": lambda: divide(Fraction(1), x),
        "sqrt": lambda: square_root(x),
    }
    return _written(words, kind, exact[opcode]())


def _of_signs(words: Words, kind: str, values: Sequence[int]) -> int:
    form = FORMATS[kind]
    x, *more = (form.flushed(v) if "ftz" in words else v for v in values)
    if words[0] == "copysign":
        return x & form.sign | more[0] & (form.sign - 1)
    return x ^ form.sign if words[0] == "neg" else x & (form.sign - 1)


def _size(x: Number) -> Number:
    return -x if x < 0 else x if x else 0.0


def _least_or_most(words: Words, kind: str, values: Sequence[int]) -> int:
    choose: Callable[..., Any] = min if words[0] == "min" else max
    x, y = _value(words, kind, values[0]), _value(words, kind, values[1])
    if "NaN" in words and (is_nan(x) or is_nan(y)):
        return FORMATS[kind].nan
    if "xorsign" in words:
        found = smaller(_size(x), _size(y), choose)
        sign = (values[0] ^ values[1]) & FORMATS[kind].sign
        return FORMATS[kind].nan if is_nan(found) else FORMATS[kind].write(found) | sign
    return _written(words, kind, smaller(x, y, choose))


# -- integers ------------------------------------------------------------------------------------------------


def _divided(a: int, b: int) -> tuple[int, int]:
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return quotient, a - quotient * b


def _part(words: Words, product: int, bits: int) -> int:
    return product >> bits if "hi" in words else product


def _arithmetic(words: Words, kind: str, values: Sequence[int]) -> int:
    """Compute what takes its operands as numbers of one type."""
    bits = width_of(kind)
    a, b, c, *_ = (*(_number(v, kind) for v in values), 0, 0)
    if words[0] == "mad" and "wide" in words:
        c = values[2]
    do: dict[str, Callable[[], int]] = {
        "add": lambda: a + b,
        "sub": lambda: a - b,
        "mul": lambda: _part(words, a * b, bits),
        "mad": lambda: _part(words, a * b, bits) + c,
        "div": lambda: _divided(a, b)[0],
        "rem": lambda: _divided(a, b)[1],
        "min": lambda: min(a, b),
        "max": lambda: max(a, b),
        "abs": lambda: abs(a),
        "neg": lambda: -a,
        "sad": lambda: c + abs(a - b),
        "slct": lambda: a,
    }
    result = do[words[0]]()
    return _clamped(_wrapped_product(words, result, c, bits), kind) if "sat" in words else result


def _wrapped_product(words: Words, result: int, c: int, bits: int) -> int:
    return _signed(result - c, bits) + c if words[0] == "mad" else result


def _short(words: Words, kind: str, values: Sequence[int]) -> int:
    """Do ``mul24`` and ``mad24``."""
    a, b = (_signed(v, 24) if kind[0] == "s" else _low(v, 24) for v in values[:2])
    product = a * b >> 16 if "hi" in words else a * b
    if words[0] == "mul24":
        return product
    total = _signed(product, 32) + _signed(values[2], 32)
    return _clamped(total, "s32") if "sat" in words else product + values[2]


def _logic(words: Words, kind: str, values: Sequence[int]) -> int:
    bits = width_of(kind)
    a, b, c, *_ = (*values, 0, 0)
    do: dict[str, Callable[[], int]] = {
        "and": lambda: a & b,
        "or": lambda: a | b,
        "xor": lambda: a ^ b,
        "not": lambda: ~a,
        "cnot": lambda: int(_low(a, bits) == 0),
        "mov": lambda: a,
        "shl": lambda: a << min(b, bits),
        "shr": lambda: _number(a, kind) >> min(b, bits),
        "popc": lambda: bin(_low(a, bits)).count("1"),
        "clz": lambda: bits - _low(a, bits).bit_length(),
        "brev": lambda: int(f"{_low(a, bits):0{bits}b}"[::-1], 2),
        "bfind": lambda: _highest(words, _number(a, kind), bits),
        "bfe": lambda: _extracted(kind, a, *_field(bits, (b, c))),
        "bfi": lambda: _inserted(bits, values),
        "szext": lambda: _extended(words, kind, a, b),
        "bmsk": lambda: _masked(words, a, b),
        "shf": lambda: _funnelled(words, a, b, c),
        "prmt": lambda: _permuted(words, a, b, c),
        "lop3": lambda: sum(
            (values[3] >> ((a >> k & 1) << 2 | (b >> k & 1) << 1 | (c >> k & 1)) & 1) << k for k in range(32)
        ),
    }
    return do[words[0]]()


def _highest(words: Words, a: int, bits: int) -> int:
    place = (~a if a < 0 else a).bit_length() - 1
    return bits - 1 - place if "shiftamt" in words and place >= 0 else place


def _field(bits: int, values: Sequence[int]) -> Sequence[int]:
    """Give the place and the length of a field: low bytes, or for 64 bits whole words, as an H200 takes them."""
    return [v if bits == 64 else v & 255 for v in values]


def _extracted(kind: str, a: int, place: int, length: int) -> int:
    last = width_of(kind) - 1
    sign = a >> min(place + length - 1, last) & 1 if kind[0] == "s" and length else 0
    taken = [a >> (place + k) & 1 if k < length and place + k <= last else sign for k in range(last + 1)]
    return sum(bit << k for k, bit in enumerate(taken))


def _inserted(bits: int, values: Sequence[int]) -> int:
    a, b, (place, length) = values[0], values[1], _field(bits, values[2:])
    for k in range(min(length, bits)):
        if place + k < bits:
            b = b & ~(1 << (place + k)) | (a >> k & 1) << (place + k)
    return b


def _extended(words: Words, kind: str, a: int, b: int) -> int:
    bits = b & 31 if "wrap" in words else min(b, 32)
    return 0 if bits == 0 else _signed(a, bits) if kind[0] == "s" else _low(a, bits)


def _masked(words: Words, a: int, b: int) -> int:
    if "wrap" in words:
        a, b = a & 31, b & 31
    return sum(1 << k for k in range(32) if a <= k < a + b)


def _funnelled(words: Words, a: int, b: int, c: int) -> int:
    by = c & 31 if "wrap" in words else min(c, 32)
    both = b << 32 | a
    return both << by >> 32 if "l" in words else both >> by


_MODES: dict[str, Callable[[int], Sequence[int]]] = {
    "f4e": lambda s: [s, s + 1, s + 2, s + 3],
    "b4e": lambda s: [s, (s - 1) % 8, (s - 2) % 8, (s - 3) % 8],
    "rc8": lambda s: [s] * 4,
    "ecl": lambda s: [max(s, k) for k in range(4)],
    "ecr": lambda s: [min(s, k) for k in range(4)],
    "rc16": lambda s: [2 * (s & 1), 2 * (s & 1) + 1] * 2,
}


def _permuted(words: Words, a: int, b: int, c: int) -> int:
    eight = [(b << 32 | a) >> 8 * k & 255 for k in range(8)]
    mode = next((word for word in words if word in _MODES), None)
    if mode:
        return sum(eight[place] << 8 * k for k, place in enumerate(_MODES[mode](c & 3)))
    chosen = [c >> 4 * k & 15 for k in range(4)]
    taken = [255 * (eight[s & 7] >> 7) if s & 8 else eight[s & 7] for s in chosen]
    return sum(byte << 8 * k for k, byte in enumerate(taken))


def _dotted(words: Words, _: str, values: Sequence[int]) -> int:
    a, b, c = values
    first, second = words[-2:]
    if words[0] == "dp4a":
        pairs = [(_number(a >> 8 * k, first[0] + "8"), _number(b >> 8 * k, second[0] + "8")) for k in range(4)]
    else:
        at = 2 if "hi" in words else 0
        pairs = [(_number(a >> 16 * k, first[0] + "16"), _number(b >> 8 * (at + k), second[0] + "8")) for k in (0, 1)]
    return c + sum(x * y for x, y in pairs)


# -- conversions ---------------------------------------------------------------------------------------------


def _converted(words: Words, _: str, values: Sequence[int]) -> int:
    to, source = [word for word in words[1:] if word[0] in "busf" and word[-1].isdigit()]
    if to in _PACKED:
        return _converted((*words[:-2], _PACKED[to], source), "", values[1:]) | (
            _converted((*words[:-2], _PACKED[to], source), "", values[:1]) << 16
        )
    if source not in FORMATS:
        number = _number(values[0], source)
        if to in FORMATS:
            return _written(words, to, Fraction(number) if number else 0.0)
        return _clamped(number, to) if "sat" in words else number
    value = _value(words, source, values[0])
    mode = next((word for word in words if word[:-1] in _ROUNDINGS), "")
    if mode and isinstance(value, Fraction):
        value = _whole(value, mode)
    if is_nan(value) and (source, to) in (("bf16", "f32"), ("f64", "f32")) and "sat" not in words:
        return values[0] << 16 if source == "bf16" else _narrowed_nan(values[0])
    if to in FORMATS:
        return _written(words, to, value)
    if is_nan(value):
        return 1 << (width_of(to) - 1) if "f64" in (source,) or width_of(to) == 64 else 0
    if isinstance(value, float) and math.isinf(value):
        value = Fraction(1 << 70) * (1 if value > 0 else -1)
    return _clamped(int(value), to)


def _narrowed_nan(bits: int) -> int:
    """Keep the sign and the payload of an f64 as an H200 does, made quiet."""
    return bits >> 32 & 0x80000000 | 0x7FC00000 | bits >> 29 & 0x3FFFFF


def _whole(value: Fraction, mode: str) -> Number:
    modes: dict[str, Callable[[Fraction], int]] = {
        "rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil,
    }  # fmt: skip
    rounded = modes[mode](value)
    return Fraction(rounded) if rounded else math.copysign(0.0, value)


def _packed_conversion(words: Words, kind: str, values: Sequence[int]) -> int:
    to = words[3]
    bits = width_of(to)
    both = [_low(_clamped(_signed(v, 32), to), bits) for v in values[:2]]
    return both[1] | both[0] << bits | (_low(values[2], 32 - 2 * bits) << 2 * bits if kind == "b32" else 0)


# -- comparisons ---------------------------------------------------------------------------------------------

_RELATIONS: dict[str, Callable[[Number, Number], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def _holds(words: Words, kind: str, a: int, b: int) -> bool:
    relation = next(w for w in words[1:] if w in (*_RELATIONS, *_UNSIGNED, "num", "nan") or w[:-1] in _RELATIONS)
    if kind in FORMATS:
        x, y = _value(words, kind, a), _value(words, kind, b)
        unordered = is_nan(x) or is_nan(y)
        if relation in ("num", "nan"):
            return unordered == (relation == "nan")
        return len(relation) == 3 if unordered else _RELATIONS[relation[:2]](x, y)
    return _RELATIONS[_UNSIGNED.get(relation, relation)](_number(a, kind), _number(b, kind))


def compared(words: Words, values: Sequence[int]) -> tuple[int, int]:
    """Do ``setp``, and give the two predicates that it writes."""
    kind, a, b, *third = words[-1], *values
    if kind in _PACKED:
        low, high = (_holds(words, _PACKED[kind], a >> n & 0xFFFF, b >> n & 0xFFFF) for n in (0, 16))
        return int(low), int(high)
    truth = _holds(words, kind, a, b)
    join = next((word for word in words[2:-1] if word in ("and", "or", "xor")), "")
    join_with: dict[str, Callable[[bool], int]] = {
        "": int,
        "and": lambda t: int(t and third[0]),
        "or": lambda t: int(t or third[0]),
        "xor": lambda t: int(t != bool(third[0])),
    }
    return join_with[join](truth), join_with[join](not truth)


def _set(words: Words, kind: str, values: Sequence[int]) -> int:
    to = words[-2]
    if kind in _PACKED:
        both = [_holds(words, _PACKED[kind], *(v >> n & 0xFFFF for v in values[:2])) for n in (0, 16)]
        one = FORMATS[_PACKED[to]].write(Fraction(1)) if to in _PACKED else 0xFFFF
        return both[0] * one | both[1] * one << 16
    truth, _ = compared((*words[:-2], kind), values)
    return truth * (FORMATS[to].write(Fraction(1)) if to in FORMATS else -1)


def _chosen(words: Words, kind: str, values: Sequence[int]) -> int:
    a, b, c = values
    if words[0] == "selp":
        return a if c else b
    if kind == "f32":
        x = _value(words, "f32", c)
        return a if not is_nan(x) and x >= 0 else b
    return a if _signed(c, 32) >= 0 else b


def _tested(words: Words, kind: str, values: Sequence[int]) -> int:
    size, form = values[0] & (FORMATS[kind].sign - 1), FORMATS[kind]
    return {
        "finite": size < form.infinity,
        "infinite": size == form.infinity,
        "number": size <= form.infinity,
        "notanumber": size > form.infinity,
        "normal": size == 0 or 1 << form.fraction <= size < form.infinity,
        "subnormal": 0 < size < 1 << form.fraction,
    }[words[1]]


# -- carries, atomics, and all of it -------------------------------------------------------------------------


def carried(words: Words, values: Sequence[int], carry: int) -> tuple[int, int]:
    """Do ``add.cc`` and its like, and give the result and the carry.

    A difference adds the complement and one, so that its carry is set if nothing is borrowed: recorded on an H200.
    """
    opcode, bits = words[0], width_of(words[-1])
    *factors, x, y = (_low(v, bits) for v in values)
    taken = carry if opcode.endswith("c") else int(opcode == "sub")
    if opcode.startswith("sub"):
        y = _low(~y, bits)
    if opcode.startswith("mad"):
        x = _low(_part(words, _number(factors[0], words[-1]) * _number(x, words[-1]), bits), bits)
    total = x + y + taken
    return _low(total, bits), total >> bits


def updated(words: Words, kind: str, old: int, values: Sequence[int]) -> int:
    """Give what an atomic operation leaves in memory."""
    a = values[0]
    name = next(w for w in words[1:] if w in ("add", "and", "or", "xor", "min", "max", "inc", "dec", "exch", "cas"))
    if name == "exch":
        return a
    if name == "cas":
        return values[1] if old == a else old
    if name == "inc":
        return 0 if old >= a else old + 1
    if name == "dec":
        return a if old == 0 or old > a else old - 1
    return evaluate((name, *(w for w in words if w == "ftz"), kind), [old, a])


_SPECIAL: dict[str, Callable[[Words, str, Sequence[int]], int]] = {
    "mul24": _short,
    "mad24": _short,
    "dp4a": _dotted,
    "dp2a": _dotted,
    "cvt": _converted,
    "set": _set,
    "selp": _chosen,
    "slct": _chosen,
    "testp": _tested,
}
_LOGIC = frozenset(
    {"and", "or", "xor", "not", "cnot", "mov", "shl", "shr", "popc", "clz", "brev", "bfind", "bfe", "bfi", "szext"}
    | {"bmsk", "shf", "prmt", "lop3"}
)


def evaluate(words: Words, values: Sequence[int]) -> int:
    """Give the result of an instruction of one result."""
    opcode, kind = words[0], words[1 if words[0] == "prmt" else -1]
    if opcode == "cvt" and "pack" in words:
        return _packed_conversion(words, kind, values)
    if opcode in _SPECIAL:
        return _SPECIAL[opcode](words, kind, values)
    if kind in _PACKED:
        low = _float(words, _PACKED[kind], [v & 0xFFFF for v in values])
        return low | _float(words, _PACKED[kind], [v >> 16 & 0xFFFF for v in values]) << 16
    if opcode in _LOGIC:
        return _logic(words, kind, values)
    return (_float if kind in FORMATS else _arithmetic)(words, kind, values)
