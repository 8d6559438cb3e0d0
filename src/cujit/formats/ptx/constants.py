"""PTX constants, and the constant expressions over them.

Source: PTX ISA 9.1, 4.5 "Constants": integers are 64 bits wide, and signed unless they do not fit or
carry ``U``.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Callable

from cujit.formats.ptx.syntax import FloatLiteral, Immediate
from cujit.formats.ptx.tokens import DIRECTIVE, NUMBER, Cursor

Constant = Immediate | FloatLiteral

WARP_SIZE = Immediate(32)
"""The value of ``WARP_SZ``. Source: PTX ISA 9.1, 4.5.4 "Predefined Constants"."""

_MASK = (1 << 64) - 1
_INTEGER = re.compile(r"(0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9][0-9]*)(U?)", re.ASCII)
_BITS = re.compile(r"0[fF]([0-9a-fA-F]{8})|0[dD]([0-9a-fA-F]{16})", re.ASCII)
_DECIMAL = re.compile(r"\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+", re.ASCII)
_PLAIN = re.compile(r"\s*(?:0|[1-9][0-9]{0,18})\s*", re.ASCII)
_LONGEST_INTEGER = 80  # Characters: 64 binary digits and room for leading zeros.
_DEEPEST = 32


def number(cursor: Cursor) -> Constant:
    """``12``, ``0x1F``, ``017``, ``0b101``, ``7U``, ``0f3F800000``, ``0d3FF0000000000000`` or ``1.5``."""
    word = cursor.expect(NUMBER, "a constant")
    match = _INTEGER.fullmatch(word)
    if match is not None:
        value = _value(match[1]) if len(word) <= _LONGEST_INTEGER else _MASK + 1
        if value > _MASK:
            cursor.fail("expected a constant of at most 64 bits", back=1)
        return Immediate(value, bool(match[2]))
    match = _BITS.fullmatch(word)
    if match is not None:
        return FloatLiteral(int(match[1] or match[2], 16), 32 if match[1] else 64)
    if not _DECIMAL.fullmatch(word):
        cursor.fail(f"expected a constant, found {word[:60]!r}", back=1)
    return FloatLiteral(int.from_bytes(struct.pack(">d", float(word)), "big"), 64)


class _Plain(dict[str, Immediate]):
    """The numbers of a table by how they are written, each read once."""

    def __missing__(self, word: str) -> Immediate:
        if not _PLAIN.fullmatch(word):
            raise ValueError(word)
        self[word] = found = Immediate(int(word))
        return found


@functools.lru_cache(maxsize=16)  # A library has its tables once for each architecture.
def numbers(text: str) -> tuple[Immediate, ...] | None:
    """Return the numbers of ``{202, 29, …}`` if each is decimal and certainly fits 64 bits, otherwise None."""
    try:
        return tuple(map(_Plain().__getitem__, text[1:-1].split(",")))
    except ValueError:
        return None


def _value(digits: str) -> int:
    if digits[:2] in ("0x", "0X"):
        return int(digits[2:], 16)
    if digits[:2] in ("0b", "0B"):
        return int(digits[2:], 2)
    return int(digits, 8 if digits[0] == "0" else 10)


def integer(cursor: Cursor, expected: str) -> int:
    """Read a constant expression with an integer value, and return the value."""
    start = cursor.starts[cursor.index]
    value = constant_expression(cursor, expected)
    if not isinstance(value, Immediate):
        cursor.fail_at(start, f"expected {expected}, found a floating-point constant")
    return value.value


_STARTS = frozenset((NUMBER, "-", "+", "!", "~", "("))


def constant_expression(cursor: Cursor, expected: str = "a constant") -> Constant:
    """``number``, ``-number``, or any expression of PTX ISA 9.1, 4.5.5, folded to its value."""
    kinds, index = cursor.kinds, cursor.index
    if kinds[index] == NUMBER and kinds[index + 1] in ",;]})":
        return number(cursor)
    if kinds[index] not in _STARTS and not cursor.at_word("WARP_SZ"):
        cursor.fail_expected(expected)
    return _conditional(cursor, 0)


def _conditional(cursor: Cursor, depth: int) -> Constant:
    """``a ? b : c`` or less."""
    condition = _binary(cursor, 0, depth)
    if not cursor.skip("?"):
        return condition
    chosen = _conditional(cursor, _deeper(cursor, depth))
    cursor.expect(":")
    other = _conditional(cursor, _deeper(cursor, depth))
    return chosen if _as_integer(cursor, condition).value else other


# Source: PTX ISA 9.1, 4.5.6, the table of operators; loosest first. Two characters arrive as two words.
_LEVELS = ("||", "&&", "|", "^", "&", "== !=", "< <= > >=", "<< >>", "+ -", "* / %")
_LEVEL_OF = {operator: level for level, operators in enumerate(_LEVELS) for operator in operators.split()}


def _binary(cursor: Cursor, loosest: int, depth: int) -> Constant:
    """``a op b op c``, of operators from level ``loosest`` on."""
    left = _unary(cursor, depth)
    while True:
        operator = _operator(cursor)
        level = _LEVEL_OF.get(operator, -1)
        if level < loosest:
            return left
        cursor.index += len(operator)  # Each of its characters is a word.
        right = _binary(cursor, level + 1, depth)
        left = _apply(cursor, operator, _as_integer(cursor, left), _as_integer(cursor, right))


def _operator(cursor: Cursor) -> str:
    """Return the next operator, or "" if the next word is not an operator. The cursor does not move."""
    index = cursor.index
    first, second = cursor.words[index], cursor.words[index + 1 : index + 2]
    if second and cursor.starts[index + 1] == cursor.starts[index] + 1 and first + second[0] in _LEVEL_OF:
        return first + second[0] if second[0] else first
    return first if first in _LEVEL_OF else ""


def _unary(cursor: Cursor, depth: int) -> Constant:
    """``-a``, ``+a``, ``!a``, ``~a``, ``(.s64) a``, ``(a)``, ``WARP_SZ`` or a number."""
    if cursor.skip("-"):
        return _negate(_unary(cursor, _deeper(cursor, depth)))
    if cursor.skip("+"):
        return _unary(cursor, _deeper(cursor, depth))
    if cursor.skip("!"):
        return Immediate(int(not _as_integer(cursor, _unary(cursor, _deeper(cursor, depth))).value))
    if cursor.skip("~"):
        value = _as_integer(cursor, _unary(cursor, _deeper(cursor, depth)))
        return _wrapped(~value.value, _is_unsigned(value))
    if cursor.skip_word("WARP_SZ"):
        return WARP_SIZE
    if not cursor.skip("("):
        return number(cursor)
    if cursor.at(DIRECTIVE):
        return _cast(cursor, depth)
    value_inside = _conditional(cursor, _deeper(cursor, depth))
    cursor.expect(")")
    return value_inside


def _cast(cursor: Cursor, depth: int) -> Constant:
    """``.s64) a`` or ``.u64) a``, the parenthesis being read."""
    if cursor.words[cursor.index] not in (".s64", ".u64"):
        cursor.fail_expected("'.s64' or '.u64'")
    unsigned = cursor.take() == ".u64"
    cursor.expect(")")
    return _wrapped(_as_integer(cursor, _unary(cursor, _deeper(cursor, depth))).value, unsigned)


def _deeper(cursor: Cursor, depth: int) -> int:
    if depth >= _DEEPEST:
        cursor.fail(f"expected a constant expression of at most {_DEEPEST} levels")
    return depth + 1


def _as_integer(cursor: Cursor, value: Constant) -> Immediate:
    if not isinstance(value, Immediate):
        cursor.fail("expected an integer: this operator doesn't accept floating-point constants", back=1)
    return value


def _is_unsigned(value: Immediate) -> bool:
    return value.unsigned or value.value >= 1 << 63


def _wrapped(value: int, unsigned: bool) -> Immediate:
    """The value modulo 2**64, as PTX computes."""
    value &= _MASK
    if unsigned:
        return Immediate(value, True)
    return Immediate(value - (1 << 64) if value >> 63 else value)


def _negate(value: Constant) -> Constant:
    if isinstance(value, FloatLiteral):
        return FloatLiteral(value.bits ^ 1 << value.width - 1, value.width)
    if not value.unsigned and value.value <= 1 << 63:
        return Immediate(-value.value)  # -2**63 is printed so by compilers, and has the right bits.
    return _wrapped(-value.value, True)


def _divide(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return -quotient if (left < 0) != (right < 0) else quotient


_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _divide,
    "%": lambda a, b: a - b * _divide(a, b),
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
}
_COMPARISON: dict[str, Callable[[int, int], int]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "&&": lambda a, b: bool(a and b),
    "||": lambda a, b: bool(a or b),
}


def _apply(cursor: Cursor, operator: str, left: Immediate, right: Immediate) -> Immediate:
    unsigned = _is_unsigned(left) or _is_unsigned(right)
    a, b = left.value, right.value
    if operator == "<<":
        return _wrapped(a << (b & 63), _is_unsigned(left))
    if operator == ">>":
        return _wrapped(a >> (b & 63), _is_unsigned(left))
    if unsigned:
        a, b = a & _MASK, b & _MASK
    if operator in _COMPARISON:
        return Immediate(int(_COMPARISON[operator](a, b)))
    if operator in "/%" and b == 0:
        cursor.fail("expected a divisor other than zero", back=1)
    return _wrapped(_ARITHMETIC[operator](a, b), unsigned)
