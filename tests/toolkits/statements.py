"""Statements of PTX, one of each kind that the instruction table tells apart, for assemblers to judge."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cujit.formats.ptx.isa import InstructionRow, rows

__all__ = ["DECLARATIONS", "STATEMENTS", "module_text", "statements_of_the_table"]

# How the types of operands are kept in registers.
_REGISTER = {
    **dict.fromkeys(("b8", "u8", "s8", "b16", "u16", "s16", "f16", "bf16"), "%h"),
    **dict.fromkeys(("e4m3x2", "e5m2x2", "e2m3x2", "e3m2x2", "ue8m0x2"), "%h"),
    **dict.fromkeys(("b32", "u32", "s32", "f16x2", "bf16x2", "u16x2", "s16x2", "tf32", "u8x4", "s8x4"), "%r"),
    **dict.fromkeys(("e4m3x4", "e5m2x4", "e2m3x4", "e3m2x4"), "%r"),
    **dict.fromkeys(("b64", "u64", "s64", "f32x2"), "%rd"),
    "f32": "%f",
    "f64": "%fd",
    "pred": "%p",
    "b128": "%q",
}
_WIDE = {"u16": "%r", "s16": "%r", "u32": "%rd", "s32": "%rd"}

# How many operands follow the result, for the opcodes whose operands are all of the last type.
_UNARY = "abs neg not cnot rcp sqrt rsqrt sin cos lg2 ex2 tanh brev mov"
_BINARY = "add sub mul mul24 div rem min max and or xor addc subc copysign"
_TERNARY = "mad mad24 fma sad madc"
_OPERANDS = {
    **dict.fromkeys(_UNARY.split(), 1),
    **dict.fromkeys(_BINARY.split(), 2),
    **dict.fromkeys(_TERNARY.split(), 3),
}


def statements_of_the_table() -> Iterator[str]:
    """Give each closed arithmetic, load and store form with each of its modifiers, one at a time."""
    seen = set()
    for row in rows():
        if row.is_open:
            continue
        for words in _variants(row):
            statement = _statement(row.opcode, words)
            if statement is not None and statement not in seen:
                seen.add(statement)
                yield statement


def _variants(row: InstructionRow) -> Iterator[tuple[str, ...]]:
    """The plainest choice everywhere, and from there every other choice of each place."""
    plain = [None if m.optional else _plainest(m.choices) for m in row.modifiers]
    yield tuple(word for word in plain if word)
    for index, modifier in enumerate(row.modifiers):
        for choice in sorted(modifier.choices):
            words = [*plain[:index], choice, *plain[index + 1 :]]
            yield tuple(word for word in words if word)


def _plainest(choices: frozenset[str]) -> str:
    for word in ("rn", "f32", "u32", "s32", "b32", "f16", "global", "eq", "gpu"):
        if word in choices:
            return word
    return min(choices)


def _statement(opcode: str, words: tuple[str, ...]) -> str | None:
    name = ".".join((opcode, *words))
    types = [word for word in words if word in _REGISTER]
    if not types:
        return None
    if opcode in _OPERANDS:
        return _arithmetic(opcode, name, words, types)
    if opcode in ("ld", "ldu"):
        return _load(name, words, types[-1])
    if opcode == "st":
        return _store(name, words, types[-1])
    if opcode in ("atom", "red"):
        return _atomic(opcode, name, words, types[-1])
    if opcode == "cvt" and len(types) == 2 and "rs" not in words and "pack" not in words:
        narrow = types[0].endswith("x2") and types[1] == "f32"
        target, source = _REGISTER[types[0]], _REGISTER[types[1]]
        return f"{name} {target}1, {source}2{f', {source}3' if narrow else ''};"
    if opcode in ("set", "setp"):
        source = _REGISTER[types[-1]]
        target = "%p" if opcode == "setp" else _REGISTER[types[0]]
        boolean = ", %p3" if {"and", "or", "xor"} & set(words) else ""
        return f"{name} {target}1, {source}2, {source}3{boolean};"
    return None


def _arithmetic(opcode: str, name: str, words: tuple[str, ...], types: list[str]) -> str | None:
    if opcode == "mov" and ("v2" in words or "v4" in words or types[-1] == "b128"):
        return None
    register = _REGISTER[types[-1]]
    target = last = register
    if "wide" in words:
        target = last = _WIDE[types[-1]]
    if len(types) == 2:  # add.f32.f16 d, a, c: a is narrow
        target = last = _REGISTER[types[0]]
    count = _OPERANDS[opcode]
    sources = [f"{register}{n + 2}" for n in range(count)]
    if count > 1:
        sources[-1] = (
            f"{last}{count + 1}" if opcode in ("mad", "mad24", "fma", "sad", "madc") or len(types) == 2 else sources[-1]
        )
    return f"{name} {target}1, {', '.join(sources)};"


def _address(words: tuple[str, ...]) -> str:
    for space, text in (("const", "c"), ("local", "l"), ("param", "p"), ("param::entry", "p"), ("param::func", "p")):
        if space in words:
            return f"[{text}]"
    return "[s]" if any(word.startswith("shared") for word in words) else "[a]" if "global" in words else "[%rd9]"


def _vector(register: str, words: tuple[str, ...], start: int) -> str:
    count = next((int(word[1:]) for word in words if word in ("v2", "v4", "v8")), 1)
    if count == 1:
        return f"{register}{start}"
    return "{" + ", ".join(f"{register}{start + n}" for n in range(count)) + "}"


def _load(name: str, words: tuple[str, ...], kind: str) -> str | None:
    if "param::func" in words:
        return None
    hint = ", %rd8" if "L2::cache_hint" in words else ""
    return f"{name} {_vector(_REGISTER[kind], words, 1)}, {_address(words)}{hint};"


def _store(name: str, words: tuple[str, ...], kind: str) -> str | None:
    if {"async", "bulk", "const", "param", "param::entry", "param::func"} & set(words):
        return None
    hint = ", %rd8" if "L2::cache_hint" in words else ""
    return f"{name} {_address(words)}, {_vector(_REGISTER[kind], words, 1)}{hint};"


def _atomic(opcode: str, name: str, words: tuple[str, ...], kind: str) -> str | None:
    if {"const", "local", "param", "param::entry", "param::func", "async"} & set(words):
        return None
    register = _REGISTER[kind]
    hint = ", %rd8" if "L2::cache_hint" in words else ""
    compare = f", {register}3" if "cas" in words else ""
    result = "" if opcode == "red" else f"{_vector(register, words, 1)}, "
    count = next((int(word[1:]) for word in words if word in ("v2", "v4", "v8")), 1)
    return f"{name} {result}{_address(words)}, {_vector(register, words, 1 + count)}{compare}{hint};"


def _lines(name: str) -> tuple[str, ...]:
    text = (Path(__file__).parent / name).read_text()
    return tuple(line for line in text.splitlines() if line and not line.startswith("//"))


STATEMENTS = _lines("statements.txt")


DECLARATIONS = _lines("declarations.txt")


def module_text(line: str, version: tuple[int, int], target: str) -> str:
    """Put one statement, or one declaration, into a module."""
    head = f".version {version[0]}.{version[1]}\n.target {target}\n.address_size 64\n"
    if line in DECLARATIONS:
        return f"{head}{line}\n"
    registers = ".reg .b128 %q<4>;" if "%q" in line else ""
    registers += ".reg .b8 %c<4>;" if "%c" in line else ""
    return (
        f"{head}.global .align 128 .b8 a[256]; .const .align 16 .b8 c[64];\n"
        ".visible .entry k(.param .align 64 .b8 p[128])\n{\n"
        ".shared .align 128 .b8 s[256]; .shared .align 8 .b64 mb; .local .align 16 .b8 l[64];\n"
        ".reg .b32 %r<16>; .reg .b16 %h<16>; .reg .f32 %f<16>; .reg .f64 %fd<16>;\n"
        f".reg .b64 %rd<16>; .reg .pred %p<8>; {registers}\n{line}\nret;\n}}\n"
    )
