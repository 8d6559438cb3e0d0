"""How many operands an instruction has, of what kinds and types: checked once, at load: handlers rely on it.

The operands of an operation are spelled as one text of words, and that is held to what its form writes and reads: see
``letters``.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator

from cujit.devices.cpu.frontend.letters import ANY, REGISTERS, WORDS, pattern_of
from cujit.devices.cpu.ir.program import (
    FloatConstant,
    Group,
    IntConstant,
    Memory,
    Negation,
    Op,
    Operand,
    Reg,
    Special,
    SymbolAddress,
)
from cujit.devices.cpu.ir.semantics import ANYTHING, Form
from cujit.formats.ptx.isa.table import special_register

__all__ = ["fits", "mismatch", "number_out_of_range"]

_OF_THREADS = frozenset({"tid", "ntid", "ctaid", "nctaid"})
"""Special registers that were of 16 bits once. Source: PTX ISA 9.1, "Special Registers", "%tid"."""


def fits(op: Op) -> bool:
    """Tell whether an operation has operands as its form takes them; where these are not known, it has."""
    return op.form.meaning.reads == ANYTHING or _fits(op.form, _spelled(op))


def mismatch(op: Op) -> tuple[str, str] | None:
    """Tell which operand its form does not take, and what to try; None where all fit."""
    if fits(op):
        return None
    words = [*_results(op), *map(_word, op.sources)]
    if _takes(op, [ANY] * len(words)):  # it is not their number
        for k, word in enumerate(words):
            choices = _choices(op, [ANY] * len(words), k, word)
            if choices and word not in choices:
                return _told_of(op, k, word, choices)
        for k, word in reversed([*enumerate(words)]):
            if choices := _choices(op, words, k, word):
                return _told_of(op, k, word, choices)
    return "other operands, or another number of them, than it takes", ""


def number_out_of_range(op: Op) -> int | None:
    """Give a number among the operands that is none of those that may stand there; None if there is none."""
    for place, allowed in op.form.meaning.numbers.items():
        number = op.sources[place] if place < len(op.sources) else None
        if isinstance(number, IntConstant) and number.value not in allowed:
            return number.value
    return None


# -- spelling ---------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1 << 14)
def _fits(form: Form, spelled: str) -> bool:
    return bool(pattern_of(form).fullmatch(spelled))


def _spelled(op: Op) -> str:
    return " ".join([*_results(op), "|", *map(_word, op.sources), ""])


def _results(op: Op) -> list[str]:
    return ["_" if reg is None else reg.type for reg in op.results]


def _word(operand: Operand) -> str:
    if isinstance(operand, Reg):
        return operand.type
    if isinstance(operand, IntConstant):
        return "c"
    if isinstance(operand, Memory):
        base = "" if operand.base is None else _word(operand.base)
        return f"[{';'.join((base, *map(_word, operand.coords)))}]"
    if isinstance(operand, Group):
        return f"{{{','.join(map(_word, operand.items))}}}"
    if isinstance(operand, FloatConstant):
        return "0f" if operand.width == 32 else "0d"
    if isinstance(operand, Negation):
        return "pred" if isinstance(operand.item, Reg) and operand.item.type == "pred" else "!"
    return _special(operand.name) if isinstance(operand, Special) else "a"


@functools.cache
def _special(name: str) -> str:
    """Spell a special register; what is none is told of elsewhere."""
    if name == "_":
        return "_"
    found = special_register(f"%{name}")
    return ANY if found is None else "%xyz" if name.partition(".")[0] in _OF_THREADS else f"%{found.type}"


# -- telling ----------------------------------------------------------------------------------------------

_TOLD = {
    "c": "an integer", "0f": "a float of 32 bits", "0d": "a float of 64 bits", "a": "an address", "_": "_",
    "!": "the negation of no predicate", "": "a number", "[]": "memory at a number",
}  # fmt: skip


def _takes(op: Op, words: list[str]) -> bool:
    count = len(op.results)
    return bool(pattern_of(op.form).fullmatch(" ".join([*words[:count], "|", *words[count:], ""])))


def _choices(op: Op, words: list[str], place: int, word: str) -> list[str]:
    """List what an operation takes in a place, beside ``words``."""
    others = [*REGISTERS, "pred", "_"] if place < len(op.results) else [word, *_alike(word)]
    return [each for each in others if _takes(op, [*words[:place], each, *words[place + 1 :]])]


def _alike(word: str) -> Iterator[str]:
    """List the words that may stand in the place of another and have as many parts."""
    if word[0] == "[":
        _, *coordinates = word[1:-1].split(";")
        yield from (f"[{';'.join((each, *coordinates))}]" for each in (*REGISTERS, "a"))
        return
    if word[0] == "{":
        yield from (f"{{{','.join([each] * (word.count(',') + 1))}}}" for each in WORDS)
    yield from WORDS
    yield from (f"{{{each}}}" for each in REGISTERS)


def _told_of(op: Op, place: int, word: str, choices: list[str]) -> tuple[str, str]:
    """Tell what an operand is and what it should be; operands count from 1, the results as one."""
    count = len(op.results)
    number, operand = (1, op.results[place]) if place < count else (place - count + 1, op.sources[place - count])
    number += place >= count > 0
    name = "_" if operand is None else _name(operand)
    return f"operand {number}, {name}, is {_told(word)}; it takes {_listed(choices)}", _advice(operand, name, choices)


def _told(word: str) -> str:
    if word in _TOLD or word[0] == "%":
        return _TOLD.get(word, "a special register")
    if word[0] not in "{[":
        return f".{word}"
    parts = dict.fromkeys(_told(part) for part in word[1:-1].split("," if word[0] == "{" else ";"))
    return f"{'elements of' if word[0] == '{' else 'memory at'} {' and '.join(parts)}"


def _listed(choices: list[str]) -> str:
    told = list(dict.fromkeys(map(_told, choices)))
    if {_TOLD["0f"], _TOLD["0d"]} <= {*told}:
        told = [each for each in told if each not in (_TOLD["0f"], _TOLD["0d"])] + ["a float"]
    if told[0].startswith("memory at"):
        return "memory at a variable, or at a register of bits or of integers"
    return " or ".join(filter(None, (", ".join(told[:-1]), told[-1])))


_MOST = 1 << 64


def _advice(operand: Operand | None, name: str, choices: list[str]) -> str:
    registers = [choice for choice in choices if choice in REGISTERS or choice == "pred"]
    if isinstance(operand, Reg) and registers:
        return f"declare {name} as {_listed(registers[:3])}"
    if isinstance(operand, IntConstant) and abs(operand.value) <= _MOST and ("0f" in choices or "0d" in choices):
        letter, code = ("f", ">f") if "0f" in choices and choices[0] != "b64" else ("d", ">d")
        return f"write 0{letter}{struct.pack(code, operand.value).hex().upper()}"
    if isinstance(operand, FloatConstant) and "c" in choices:
        return "write an integer"
    if choices == ["_"]:
        return "write _ in its place"
    if isinstance(operand, (IntConstant, FloatConstant, Special, SymbolAddress)) and registers:
        return f"move it to a register of {_listed(registers[:3])} before"
    return ""


def _name(operand: Operand) -> str:
    if isinstance(operand, Reg):
        return operand.name
    if isinstance(operand, IntConstant):
        return str(operand.value)
    if isinstance(operand, FloatConstant):
        wide = operand.width == 64
        return str(struct.unpack(">d", operand.bits.to_bytes(8, "big"))[0]) if wide else f"0f{operand.bits:08X}"
    if isinstance(operand, Special):
        return f"%{operand.name}" if operand.name != "_" else "_"
    if isinstance(operand, Group):
        return f"{{{', '.join(map(_name, operand.items))}}}"
    if isinstance(operand, Memory):
        inside = "" if operand.base is None else _name(operand.base)
        return f"[{inside or operand.offset}]"
    return f"!{_name(operand.item)}" if isinstance(operand, Negation) else operand.slot.name
