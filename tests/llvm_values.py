"""What is known of a value of LLVM's by how it was made: how great it may be, what it never is, how it is aligned.

Where nothing is known it may be anything: what is said here is true, as far as ``Function`` tells who counts.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["NAME", "Function", "functions_of"]

NAME = r"%\"[^\"]*\"|%[-\w.$]+"
"""The name of a value."""

_DEFINITION = re.compile(r"^[^\n]*?@(\"[^\"]*\"|[-\w.$]+)\(([^\n]*)\)[^\n]*\{$", re.MULTILINE)
_VALUE = re.compile(rf"^  ({NAME}) = (.*?)(?:, !\w+ !\d+)*$", re.MULTILINE)
_CALL = re.compile(r"^  (?:(?:%\S+) = )?(?:tail )?call [^@\n]*@(\"[^\"]*\"|[-\w.$]+)\((.*)\)", re.MULTILINE)
_INTRINSIC = re.compile(r"call (\S+|<[^>]*>) @llvm\.([a-z]+(?:\.sat)?)\.[^(]*\((.*)\)")
_PARTS = re.compile(r"(?:<[^>]*>|\([^)]*\)|\[[^\]]*\]|\"[^\"]*\"|[^,<(\[\"])+")
_TYPE = re.compile(r"^(?:<(\d+) x )?(?:i(\d+)|half|bfloat|float|double|ptr)>? ")
_CONSTANT = re.compile(r"-?\d+|true|false|zeroinitializer|splat \(i\d+ -?\d+\)|<i\d+ .*>")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(?![\w.])")

RESERVED = 512
"""Bytes that memory given as a pointer is aligned to: the size of the largest vector."""

_OF_OTHERS = ("%launch", "%shared", "%state", "%params", "%local", "%place", "%module")
"""Pointers to memory that is not of the function's own. Addresses of PTX are integers, and come by ``inttoptr``."""


_Asked = frozenset[tuple[str, str]]
"""Values whose alignment is being looked for, with their functions."""


class _Made(NamedTuple):
    """One operation: its operands without types, and the bits of an integer of the first."""

    op: str
    width: int
    operands: Sequence[str]
    text: str


@dataclass(frozen=True, eq=False)
class Function:
    """A function that LLVM printed, with the other ones of its module."""

    name: str
    text: str
    others: Sequence[Function]

    @functools.cached_property
    def _values(self) -> dict[str, str]:
        return dict(_VALUE.findall(self.text))

    @functools.cached_property
    def parameters(self) -> Sequence[str]:
        """Names of the parameters, in order."""
        head = _DEFINITION.search(self.text)
        return [part.split(" ")[-1] for part in _split(head[2])] if head else []

    def _made(self, value: str) -> _Made | None:
        text = self._values.get(value)
        return None if text is None else _parsed(text)

    # -- how great ---------------------------------------------------------------------------------------

    @functools.cached_property
    def _greatest(self) -> dict[str, int]:
        return {}

    def most(self, value: str, width: int) -> int:
        """Tell the greatest that a value of ``width`` bits, or an element of it, may be without a sign."""
        whole = (1 << width) - 1
        if _CONSTANT.fullmatch(value):
            return max(n & whole for n in _numbers(value))
        if value == "poison":  # what is chosen of it is replaced
            return 0
        made = self._made(value)
        if made is None:
            return whole
        if value not in self._greatest:
            self._greatest[value] = whole  # for whoever asks meanwhile: the value of a turn before
            self._greatest[value] = min(whole, self._most_of(value, made, width))
        return self._greatest[value]

    def _most_of(self, name: str, made: _Made, width: int) -> int:
        if made.op == "phi":
            return self._most_of_phi(name, made, width)
        if made.op in ("zext", "trunc", "sext", "freeze"):
            source = self.most(made.operands[0], made.width)
            return source if source < 1 << min(width, made.width) - (made.op == "sext") else (1 << width) - 1
        if made.op in ("cttz", "ctlz", "ctpop"):
            return made.width - (made.op == "cttz")  # of a mask, where some lane is left
        if made.op in ("shufflevector", "insertelement"):
            return max(self.most(x, width) for x in made.operands[:2])
        if made.op in ("select", "extractelement"):
            return max(self.most(x, width) for x in (made.operands[1:] if made.op == "select" else made.operands[:1]))
        if made.op in ("lshr", "udiv"):
            by = _exact(made.operands[1])
            return self.most(made.operands[0], width) // (1 << by if made.op == "lshr" else max(1, by))
        if made.op not in _BOUNDS:
            return (1 << width) - 1
        most = _BOUNDS[made.op](*(self.most(x, width) for x in made.operands))
        return most if most < 1 << width else (1 << width) - 1

    def _most_of_phi(self, name: str, made: _Made, width: int) -> int:
        """Of a counter from 0 by 1 its end, looked for as ``icmp``; else of what comes."""
        first, *others = _incoming(made)
        if first == "0" and len(others) == 1 and self._values.get(others[0]) == f"add i{width} {name}, 1":
            ends = re.findall(
                rf"icmp (?:eq|ne|ult|uge) i\d+ (?:{re.escape(name)}|{re.escape(others[0])}), (\d+)", self.text
            )
            return max(map(int, ends)) - 1 if ends else (1 << width) - 1
        return max(self.most(x, width) for x in (first, *others))

    # -- what it never is --------------------------------------------------------------------------------

    def never(self, value: str, number: int, width: int) -> bool:
        """Tell whether no element of a value is a number: 0 or -1."""
        if _CONSTANT.fullmatch(value):
            return number not in _numbers(value)
        if number == -1 and self.most(value, width) < (1 << width) - 1:
            return True
        made = self._made(value)
        if made is None:
            return False
        if made.op == "umax":
            return number == 0 and any(_exact(x) for x in made.operands)
        if made.op == "select":
            test, yes, no = made.operands
            return self.never(yes, number, width) and (self._tests(test, no, number) or self.never(no, number, width))
        if made.op in ("shufflevector", "insertelement"):
            return all(x == "poison" or self.never(x, number, width) for x in made.operands[:2])
        return made.op == "zext" and number == 0 and self.never(made.operands[0], 0, made.width)

    def _tests(self, test: str, value: str, number: int) -> bool:
        """Whether a condition is true at least where a value is a number."""
        made = self._made(test)
        if made is None:
            return False
        if made.op == "or":
            return any(self._tests(x, value, number) for x in made.operands)
        same = made.op == "icmp eq" and made.operands[0] == value
        return same and _CONSTANT.fullmatch(made.operands[1]) is not None and {*_numbers(made.operands[1])} == {number}

    # -- what divides it ---------------------------------------------------------------------------------

    def align(self, pointer: str, asked: _Asked = frozenset()) -> int:
        """Tell how far a place is aligned, in bytes: reserved memory, a part of it, or what callers give."""
        made, asked_too = self._made(pointer), asked | {(self.name, pointer)}
        if (self.name, pointer) in asked:  # around a loop: what is left is what it began with
            return 0
        if made is None:
            unknown = RESERVED if pointer.startswith("%") and pointer not in _OF_OTHERS else 1
            return self._given(pointer, lambda caller, x: caller.align(x, asked_too), unknown)
        if made.op == "alloca":
            return int(made.text.rpartition("align ")[2])
        if made.op == "phi":
            return math.gcd(*(self.align(x, asked_too) for x in _incoming(made)))
        if made.op != "getelementptr" or len(made.operands) != 3:
            return 1
        step = _bytes_of(made.operands[0]) * self.factor(made.operands[2], asked_too)
        return math.gcd(self.align(made.operands[1], asked_too), step)

    def factor(self, value: str, asked: _Asked = frozenset()) -> int:
        """Tell a number that divides an integer; 0 of 0."""
        made, asked_too = self._made(value), asked | {(self.name, value)}
        if (self.name, value) in asked:
            return 0
        if _CONSTANT.fullmatch(value):
            return math.gcd(*_numbers(value))
        if made is None:
            return self._given(value, lambda caller, x: caller.factor(x, asked_too), 1)
        if made.op == "phi":
            return math.gcd(*(self.factor(x, asked_too) for x in _incoming(made)))
        if made.op == "shl":
            return self.factor(made.operands[0], asked_too) << _exact(made.operands[1])
        if made.op not in ("mul", "add", "sub", "or", "zext"):
            return 1
        parts = [self.factor(x, asked_too) for x in made.operands]
        return math.prod(parts) if made.op == "mul" else math.gcd(*parts)

    def _given(self, parameter: str, ask: Callable[[Function, str], int], unknown: int) -> int:
        """Ask of a parameter what is true of all that the callers in the module give."""
        if parameter not in self.parameters:
            return unknown
        index = self.parameters.index(parameter)
        given = [(f, arguments[index]) for f in self.others for name, arguments in f.calls if name == self.name]
        return math.gcd(*(ask(f, x) for f, x in given)) if given else unknown

    @functools.cached_property
    def calls(self) -> Sequence[tuple[str, Sequence[str]]]:
        """The functions that this one calls, with what it gives them."""
        return [
            (name.strip('"'), [_bare(x) for x in _split(arguments)]) for name, arguments in _CALL.findall(self.text)
        ]


def functions_of(text: str) -> list[Function]:
    """Take the functions out of a module."""
    functions: list[Function] = []
    for part in text.split("\ndefine ")[1:]:
        body = part.partition("\n}")[0]
        head = _DEFINITION.search(body)
        functions.append(Function(head[1].strip('"') if head else "", body, functions))
    return functions


_BOUNDS: dict[str, Callable[[int, int], int]] = {
    "and": lambda a, b: min(a, b),
    "or": lambda a, b: (1 << max(a, b).bit_length()) - 1,
    "xor": lambda a, b: (1 << max(a, b).bit_length()) - 1,
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "shl": lambda a, b: a << min(b, 512),
    "urem": lambda a, b: min(a, b - 1) if b else a,
    "umin": lambda a, b: min(a, b),
    "umax": lambda a, b: max(a, b),
    "usub.sat": lambda a, _: a,
}
"""The greatest that an operation makes of the greatest operands."""


def _parsed(text: str) -> _Made:
    call = _INTRINSIC.match(text)
    op, rest = (call[2], call[3]) if call else (text.partition(" ")[0], text.partition(" ")[2])
    if op == "icmp":
        condition, _, rest = rest.partition(" ")
        op = f"icmp {condition}"
    if op == "phi":
        rest = rest[_end_of_type(rest) :]
    parts = _split(re.sub(rf"^({_TYPE.pattern[1:]}\S+) to .*$", r"\1", rest))
    type_ = _TYPE.match(parts[0]) if parts else None
    return _Made(op, int((type_ and type_[2]) or 0), [_bare(part) for part in parts], text)


def _incoming(phi: _Made) -> list[str]:
    return [part.strip("[ ]").split(",")[0] for part in phi.operands]


def _end_of_type(text: str) -> int:
    found = _TYPE.match(text)
    return found.end() if found else 0


def _split(text: str) -> list[str]:
    return [part.strip() for part in _PARTS.findall(text) if part.strip()]


def _bare(operand: str) -> str:
    return operand[_end_of_type(operand) :]


def _numbers(constant: str) -> list[int]:
    if constant in ("zeroinitializer", "false"):
        return [0]
    if constant == "true":
        return [1]
    numbers = [int(n) for n in _NUMBER.findall(re.sub(r"\bi\d+ ", "", constant))]
    return numbers or [0]


def _exact(value: str) -> int:
    """The number that a value is, where all elements are one; else 0."""
    numbers = {*_numbers(value)} if _CONSTANT.fullmatch(value) else {0}
    return numbers.pop() if len(numbers) == 1 else 0


def _bytes_of(type_: str) -> int:
    """Bytes from one element to the next of a type; 1 where it is none of those that are known."""
    found = re.fullmatch(r"(?:[<\[](\d+) x )?(?:i(\d+)|(float)|(double)|(ptr))[>\]]?", type_)
    if found is None:
        return 1
    bits = int(found[2] or (32 if found[3] else 64))
    return int(found[1] or 1) * max(1, bits // 8)
