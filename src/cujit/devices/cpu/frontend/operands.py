"""The number, kinds, and types of operands, which are checked once, at load. Instruction handlers rely on this check.

    add.u32 %r1, %r2, 3;      ->    "u32 | b32 c ", which the expression of "T|SS" for u32 matches
    add.u32 %r1, %f2, 3;      ->    "u32 | f32 c ": operand 2, %f2, is .f32, expected .b32, .u32, …

The operands of an operation are spelled as one text: a word and a blank for each operand, with ``|`` between written
and read operands. The text must match one regular expression, which is generated from the operand letters of the form
in ``semantics``. The word of a register is its declared type. The other words are:

    c        an integer            %u32   a special register, by its type      a        address of a variable
    0f 0d    a float of 32 or      %xyz   ``%tid`` or a similar register       [u64]    memory, by type of its address
             64 bits, 1.5 is 0d    _      a result that is discarded           [a;{…}]  memory with coordinates
    {b32,c}  a group               ?      any word

The accepted types follow PTX ISA 9.1, "Type Checking Rules" and "Operand Size Exceeding Instruction-Type Size". They
also follow ptxas 13.5. For it, registers of each type and numbers of each kind were tried as every operand of every row
of the instruction table (``tests/devices/cpu/test_operand_types.py``).
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Callable, Container, Iterable, Iterator

from cujit.devices.cpu.ir.decoding import written
from cujit.devices.cpu.ir.program import (
    FloatConstant,
    IntConstant,
    MemoryOperand,
    Negation,
    Op,
    Operand,
    OperandGroup,
    Reg,
    Special,
    SymbolAddress,
)
from cujit.formats.ptx.isa.immediates import Allowed, AtMost, Elements, LowWord, OfThree, numbers_of
from cujit.formats.ptx.isa.semantics import ANYTHING, Form, Type
from cujit.formats.ptx.isa.table import special_register

_ANY = "?"
"""The word that every letter takes."""

_OF_BITS = {
    8: ("b8", "u8", "s8"),
    16: ("b16", "u16", "s16", "f16"),
    32: ("b32", "u32", "s32", "f32", "f16x2"),
    64: ("b64", "u64", "s64", "f64"),
    128: ("b128",),
}
_REGISTERS = tuple(word for words in _OF_BITS.values() for word in words)
"""The types of registers, but for predicates."""

_SPECIAL = ("%u32", "%b32", "%u64", "%xyz")
_WORDS = (*_REGISTERS, "pred", "c", "0f", "0d", "a", *_SPECIAL, "%pred", "_")
"""What an operand alone may be."""

_ADDRESSES = tuple(word for word in _REGISTERS if word[0] in "bus" and word != "b128")
_HANDLES = ("a", "b64", "u64", "s64")
_COUNT = ("b32", "u32", "s32")
_SMALL = re.compile(r"(?:e2m(1)|u?e[0-9]m[0-9]|s2f6)x([0-9])")


# -- types ------------------------------------------------------------------------------------------------


def _bits(type_: Type) -> int:
    small = _SMALL.fullmatch(type_)
    return int(small[2]) * (4 if small[1] else 8) if small else type_.bits


def _integers(bits: int) -> tuple[str, ...]:
    """Return the words of registers that contain integers. ``f16x2`` is included for 32 bits."""
    return tuple(word for word in _OF_BITS[bits] if word[0] in "bus" or word == "f16x2")


def _registers(type_: Type) -> tuple[str, ...]:
    """Name the registers that an operand of a type may be."""
    bits = _bits(type_)
    if type_ == "pred":
        return ("pred",)
    if type_.kind == "b":
        return _OF_BITS.get(bits, ())
    if type_.kind in ("s", "u", "f") and "x" in type_:
        return ("b32", "f16x2") if bits == 32 else (f"b{bits}",)
    if type_.kind in ("s", "u"):
        return _integers(bits)
    return (f"b{bits}", f"f{bits}") if type_.kind == "f" else (f"b{bits}",)


def _wide(type_: Type) -> tuple[str, ...]:
    """Name the registers that are as wide as a type or wider, for loads, stores and conversions."""
    own = _registers(type_)
    wider = [bits for bits in _OF_BITS if bits > _bits(type_)]
    if type_ == "f16x2" or (type_.kind == "f" and "x" not in type_):
        return (*own, *(f"b{bits}" for bits in wider))
    if not type_.is_one_integer:
        return own
    among = _OF_BITS.__getitem__ if type_.kind == "b" else _integers
    return (*own, *(word for bits in wider for word in among(bits)))


def _numbers(type_: Type) -> tuple[str, ...]:
    """Name the numbers that an operand of a type may be."""
    if type_.is_one_integer:
        return ("c", *{"b32": ("0f",), "b64": ("0d",)}.get(type_, ()))
    return {"f32": ("0f", "0d"), "f64": ("0f", "0d"), "pred": ("c",)}.get(type_, ())


# -- letters ----------------------------------------------------------------------------------------------


def _one(*words: str) -> str:
    return f"(?:{'|'.join(map(re.escape, (*words, _ANY)))}) "


def _scalar(type_: Type) -> str:
    return _one(*_registers(type_), *_numbers(type_))


def _group(
    type_: Type,
    kinds: str,
    count: str,
    *,
    written: bool,
    numbers: Iterable[str] = (),
    also: Iterable[str] = (),
    bits: int = 0,
) -> str:
    """Return an expression for a group of elements that can be combined to represent a type.

    Untyped (``b``) registers can be combined with all other registers. Integers, floats, and ``f16x2`` can be combined
    only with their own kind. ``kinds`` are the kinds that represent the type without an untyped register in the group.
    A group of only ``numbers`` that are also in ``also`` does not match.
    """
    bits = bits or _bits(type_)
    choices = []
    for kind, words in (("u", f"u{bits} s{bits} c"), ("f", f"f{bits} 0f 0d"), ("h", "f16x2" * (bits == 32))):
        taken = [word for word in words.split() if word in _OF_BITS[bits] or (word in numbers and not written)]
        if taken:
            each = [f"b{bits}", *taken]
            whole = [word for word in each if word not in also] if kind in kinds else each[:1]
            choices.append(_elements(each, count, written, [] if whole == each else whole))
    if written:
        return f"(?:{'|'.join(choices)})"
    return rf"\{{(?:{'|'.join(choices)})(?<=}})"


def _elements(words: list[str], count: str, written: bool, needed: list[str]) -> str:
    """Return an expression for ``count`` words, at least one of which is in ``needed`` if ``needed`` is not empty."""
    each = "|".join((*words, *(("_", r"\?") if written else ())))
    least = "|".join(needed)
    if written:
        return (rf"(?=(?:(?:{each}) )*(?:{least}|\?) )" if needed else "") + f"(?:(?:{each}) ){count}"
    return (rf"(?=[^}}]*\b(?:{least})\b)" if needed else "") + f"(?:(?:{each})[,}}]){count}"


def _braced(text: str) -> str:
    return rf"(?:{text}|\?) "


_KINDS = {"b": "ufh", "s": "uh", "u": "uh", "f": "f"}


def _vector(type_: Type, count: str, *, written: bool = False, bits: int = 0) -> str:
    kinds = "h" if type_ == "f16x2" else "" if type_.kind in ("bf", "tf") else _KINDS.get(type_.kind, "")
    return _group(type_, kinds, count, written=written, numbers=_numbers(type_), bits=bits)


def _accessed(form: Form, *, written: bool, wide: bool) -> str:
    """Return an expression for the value of a load or store: one value or a vector."""
    type_, count = form.types[-1 if not written else 0], f"{{{form.vector}}}"
    sizes = [bits for bits in _OF_BITS if bits >= _bits(type_)] if wide else [_bits(type_)]
    if form.vector == 1:
        words = (*(_wide(type_) if wide else _registers(type_)), *(() if written else _numbers(type_)))
        one = _one(*words, *("_" * (written and not wide)))
        return one if written or not wide else rf"(?:{one}|\{{(?:{'|'.join(words)})}} )"
    if type_.kind != "f":
        vectors = [_vector(type_, count, written=written, bits=bits) for bits in sizes]
    else:
        own = _vector(type_, count, written=written)
        if "x" not in type_:  # registers of integers are taken for their bits
            own = _group(type_, "uf", count, written=written, numbers=_numbers(type_))
        vectors = [own, *(_group(type_, "", count, written=written, bits=bits) for bits in sizes[1:])]
    return f"(?:{'|'.join(vectors)})" if written else _braced("|".join(vectors))


_FRAGMENTS = {
    **dict.fromkeys(("s32", "u32"), ("u", ("c",))),
    **dict.fromkeys(("s8", "u8"), ("u", ())),
    "f64": ("uf", ("c", "0f", "0d")),
    "f32": ("f", ("0f", "0d")),
    "f16": ("h", ()),
    **dict.fromkeys(("bf16", "tf32"), ("", ())),
}
"""Kinds of registers, and of numbers alone, that stand for elements of a matrix. Of other types, all kinds do.

``wmma.mma`` takes only integers of them.
"""


def _fragment(form: Form, type_: Type, *, written: bool) -> str:
    """Return an expression for a thread's part of a matrix: registers of 32 bits, or of f64."""
    bits = 64 if type_ == "f64" else 32
    kinds, numbers = _FRAGMENTS.get(type_, ("u" if "mma" in form.words else "ufh", ()))
    group = _group(type_, kinds, "+", written=written, numbers=numbers, also=["0d"] * (bits == 32), bits=bits)
    if written:
        return group
    if not numbers:  # an integer may be among registers, and not alone
        group += rf"|\{{{_elements([*_OF_BITS[bits][:3], 'c'], '+', False, [f'b{bits}'])}(?<=}})"
    return _braced(group)


def _factor(form: Form) -> Type:
    """Return the type of the factors of a product. The first products of ``wmma`` do not specify it.

    Products of scaled floats accept only untyped (``b``) registers, as products of ``bf16`` do.
    """
    if "block_scale" in form.words:
        return Type("bf16")
    if len(form.types) == 2:
        return Type("f16")
    return form.types[1] if len(form.types) > 2 else form.types[0] if form.types else Type("b8")


def _memory(form: Form) -> str:
    """Match memory; only local memory has addresses that are known as numbers."""
    number = "|" if "local" in form.spaces else ""
    is_async = form.opcode in ("st", "red") and "async" in form.words
    registers = (word for word in _ADDRESSES if not is_async or word not in _OF_BITS[8])
    return rf"(?:\[(?:a|{'|'.join(registers)}{number})\]|\?) "


def _texture(form: Form) -> str:
    """Return an expression for memory with coordinates. For a layered texture, one coordinate is the layer number.

    Operands that override the sizes of a tensor map are not checked, because such instructions are not executed.
    """
    if any(word.startswith("override::global_dim") for word in form.words):
        return r"\[[^][]*\] "
    is_surface = form.opcode not in ("tex", "tld4")
    type_ = Type("s32") if is_surface else form.types[-1]
    words = (*_registers(type_), *_numbers(type_))
    kinds = "u" if is_surface else "uf" if type_.kind == "f" else "uh"
    choices = ["|".join(words), _group(type_, kinds, "+", written=False, numbers=_numbers(type_))]
    if not is_surface and (layered := _LAYERED.intersection(form.words)):
        each = (*_OF_BITS[32], *words) if type_.kind != "f" or "a1d" in layered else words
        layer, others = (f"(?:{'|'.join(several)})[,}}]" for several in ((*_COUNT, "c"), each))
        first = others * ("a2dms" in layered)
        choices = [rf"\{{{first}{layer}(?:(?:{others})*|(?:(?:{'|'.join(_COUNT)})[,}}])*)(?<=}})"]
    handle = "|".join(_HANDLES)
    return _braced(rf"\[(?:{handle})(?:;(?:{handle}))?;(?:{'|'.join(choices)})\]")


_LAYERED = frozenset({"a1d", "a2d", "acube", "a2dms"})


def _converted(type_: Type, form: Form) -> tuple[str, ...]:
    """Return the words of registers for a conversion. Wider registers are included, except in conversions of small
    floats.
    """
    is_usual = all(each.kind in ("s", "u", "b", "f") for each in form.types)
    return _wide(type_) if is_usual else _registers(type_)


def _conversion_source(form: Form) -> str:
    type_ = form.types[1]
    special = _SPECIAL if all(each.kind in ("s", "u") for each in form.types) else ()
    taken = [word for word in special if word == "%u64" or _bits(type_) <= 32]
    return _one(*_converted(type_, form), *_numbers(type_), *taken)


def _moved(form: Form, *, special: bool) -> str:
    """Return an expression for the source of ``mov``, including special registers and addresses."""
    type_ = form.types[-1]
    words = [*_registers(type_), *_numbers(type_)]
    if type_.is_one_integer:
        words += ["a"]
    if special:
        words += {"pred": ["%pred"]}.get(type_, [])
        if type_.is_one_integer:
            words += {16: ["%xyz"], 32: ["%xyz", "%u32", "%b32"], 64: ["%u64"]}.get(type_.bits, [])
    return _one(*words)


def _parts(form: Form, *, written: bool) -> str:
    """Return an expression for the parts that ``mov`` joins into one register or splits one register into."""
    whole = form.types[-1]
    if whole.kind != "b" or whole.bits < 16:
        return "(?!)"
    sizes = [whole.bits // n for n in (2, 4, 8) if whole.bits // n in _OF_BITS]
    each = [_vector(Type(f"b{bits}"), f"{{{whole.bits // bits}}}", written=written) for bits in sizes]
    return f"(?:{'|'.join(each)})" if written else _braced("|".join(each))


def _offsets(form: Form) -> str:
    """Match the offsets of im2col mode."""
    has = set(form.words)
    rank = next((int(word[0]) for word in form.words if re.fullmatch("[1-5]d", word)), 0)
    count = rank - 2 if "im2col" in has else 2 if has & {"im2col::w", "im2col::w::128"} else 0
    return _braced(_vector(Type("u16"), f"{{{count}}}")) if count > 0 else ""


def _scale(form: Form) -> str:
    """Match the scale of a conversion: one for both numbers, or two."""
    return _if("scaled::n2::ue8m0" in form.words, "b16") or _if("scaled::n1::ue8m0" in form.words, "b8")


def _mask(form: Form) -> str:
    """Return an expression for the mask of a copy's destination blocks, or of the bytes that the copy writes."""
    is_short = {"multicast::cluster", "cp_mask"} & set(form.words)
    return _if(is_short, *_INT16, "c") or _if("multicast::cluster::32b" in form.words, *_COUNT, "c")


def _lanes_of(form: Form) -> str:
    """Count the words of a mask of lanes, of one block or a pair; of offsets into a texture, any number."""
    return "+" if form.opcode != "tcgen05" else "{8}" if "cta_group::2" in form.words else "{4}"


def _if(condition: object, *words: str) -> str:
    return _one(*words) if condition else ""


_INT16, _INT64 = _integers(16), _integers(64)
_WORD32 = _OF_BITS[32]
_LETTERS: dict[str, Callable[[Form, bool], str]] = {
    "T": lambda form, _: _scalar(form.types[0]),
    "S": lambda form, _: _scalar(form.types[-1]),
    "s": lambda form, _: _scalar(form.types[1]),
    "R": lambda form, _: _one(*_registers(form.types[-1])),
    "D": lambda form, _: _scalar(Type(f"{form.types[-1].kind}{2 * form.types[-1].bits}")),
    "W": lambda *_: _one(*_COUNT, "c"),
    "Q": lambda *_: _one(*_INT64, "c"),
    "Z": lambda *_: _one(*_COUNT, *_INT64, "c"),
    "J": lambda form, _: _moved(form, special=False),
    "O": lambda form, _: _moved(form, special=True),
    "N": lambda form, written: _parts(form, written=written),
    "X": lambda form, _: _one(*_converted(form.types[0], form)),
    "Y": lambda form, _: _conversion_source(form),
    "U": lambda form, _: _one(*_wide(form.types[-1]), *_numbers(form.types[-1])),
    "x": lambda *_: _one(*_wide(Type("u32"))),
    "y": lambda *_: _one(*_wide(Type("s32")), "c"),
    "d": lambda *_: _one(*_COUNT),
    "r": lambda *_: _one(*_WORD32),
    "e": lambda *_: _one("b32"),
    "n": lambda *_: _one(*_OF_BITS[8]),
    "k": lambda form, _: _braced(_vector(form.types[-1], "{4}")),
    "v": lambda form, written: _accessed(form, written=written, wide=False),
    "V": lambda form, written: _accessed(form, written=written, wide=True),
    "A": lambda form, written: _fragment(form, form.types[0], written=written),
    "a": lambda form, written: _fragment(form, form.types[-1], written=written),
    "F": lambda form, written: _fragment(form, _factor(form), written=written),
    "E": lambda *_: rf"(?:{_one(*_WORD32)}|\{{(?:{'|'.join(_WORD32)})}} )",
    "g": lambda *_: _braced(rf"\{{(?:{'|'.join((*_INT16, 'c'))}),(?:{'|'.join((*_INT16, 'c'))})}}"),
    "I": lambda form, _: _offsets(form),
    "l": lambda form, _: _braced(_vector(Type("s32"), _lanes_of(form))),
    "G": lambda *_: f"(?:{_scalar(Type('f32'))}|{_braced(_vector(Type('f32'), '+'))})",
    "B": lambda form, _: _if(
        {"and", "or", "xor"} & set(form.words), "pred", *("c" * (not any("bf" in each for each in form.types)))
    ),
    "H": lambda form, _: _if("L2::cache_hint" in form.words, *_INT64, "c"),
    "K": lambda form, _: _scale(form),
    "M": lambda form, _: _mask(form),
    "P": lambda *_: _one("pred", "c"),
    "p": lambda *_: _one("pred"),
    "C": lambda *_: _one("pred"),
    "c": lambda *_: _one("c"),
    "f": lambda *_: _one("0f", "0d"),
    "_": lambda *_: _one("_"),
    "m": lambda form, _: _memory(form),
    "h": lambda *_: rf"(?:\[(?:{'|'.join(_HANDLES)})\]|\?) ",
    "t": lambda form, _: _texture(form),
}


@functools.lru_cache(maxsize=4096)
def _pattern_of(form: Form) -> re.Pattern[str]:
    """Return the regular expression that spelled operands match if the form accepts them."""
    writes, reads = form.meaning.writes, form.meaning.reads
    return re.compile(rf"(?:{_expanded(writes, form, True)})\| (?:{_expanded(reads, form, False)})")


def _expanded(text: str, form: Form, written: bool) -> str:
    text = re.sub(r"\[(\w+)\]", lambda found: f"({'|'.join(found[1])})", text.removeprefix("="))
    return re.sub(r"[A-Za-z_]", lambda found: f"(?:{_LETTERS[found[0]](form, written)})", text)


# -- checking ---------------------------------------------------------------------------------------------

_OF_THREADS = frozenset({"tid", "ntid", "ctaid", "nctaid"})
"""Special registers that were of 16 bits once. Source: PTX ISA 9.1, "Special Registers", "%tid"."""


def fits(op: Op) -> bool:
    """Return whether an operation has operands that its form accepts. True if these are not known."""
    return op.form.meaning.reads == ANYTHING or _takes(op, _words(op))


def mismatch(op: Op) -> tuple[str, str] | None:
    """Describe the operand that the form does not accept, with a hint. Return None if all operands fit."""
    if fits(op):
        return None
    words = _words(op)
    if _takes(op, [_ANY] * len(words)):  # it is not their number
        for k, word in enumerate(words):
            choices = _choices(op, [_ANY] * len(words), k, word)
            if choices and word not in choices:
                return _description_of(op, k, word, choices)
        for k, word in reversed([*enumerate(words)]):
            if choices := _choices(op, words, k, word):
                return _description_of(op, k, word, choices)
    return "other operands, or another number of them, than it takes", ""


def number_out_of_range(op: Op) -> int | None:
    """Return a number among the operands that is not allowed in its position. Return None if there is none."""
    count = len(op.sources)
    for place, allowed in numbers_of(op.opcode, op.modifiers).items():
        if not -count <= place < count:
            continue
        for number, numbers in _held(op, op.sources[place], allowed):
            if isinstance(number, IntConstant) and number.value not in numbers:
                return number.value
    return None


def _held(op: Op, operand: Operand, allowed: Allowed) -> Iterator[tuple[Operand, Container[int]]]:
    """Pair an operand, or each of its elements, with the numbers that are allowed in its position."""
    if isinstance(allowed, Elements):
        yield from zip(operand.items, allowed.each, strict=False) if isinstance(operand, OperandGroup) else ()
    elif isinstance(allowed, AtMost):
        for most in op.sources[allowed.place : allowed.place + 1]:
            yield operand, LowWord(range((most.value & 0xFFFFFFFF) + 1 if isinstance(most, IntConstant) else 1 << 32))
    elif not isinstance(allowed, OfThree):
        yield operand, allowed
    elif len(op.sources) == 3:
        yield operand, allowed.numbers


# -- spelling ---------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1 << 14)
def _fits(form: Form, spelled: str) -> bool:
    return bool(_pattern_of(form).fullmatch(spelled))


def _takes(op: Op, words: list[str]) -> bool:
    count = len(op.results)
    return _fits(op.form, " ".join([*words[:count], "|", *words[count:], ""]))


def _words(op: Op) -> list[str]:
    return [*("_" if reg is None else reg.type for reg in op.results), *map(_word, op.sources)]


def _word(operand: Operand) -> str:
    if isinstance(operand, Reg):
        return operand.type
    if isinstance(operand, IntConstant):
        return "c"
    if isinstance(operand, MemoryOperand):
        base = "" if operand.base is None else _word(operand.base)
        return f"[{';'.join((base, *map(_word, operand.coords)))}]"
    if isinstance(operand, OperandGroup):
        return f"{{{','.join(map(_word, operand.items))}}}"
    if isinstance(operand, FloatConstant):
        return "0f" if operand.width == 32 else "0d"
    if isinstance(operand, Negation):
        return "pred" if isinstance(operand.item, Reg) and operand.item.type == "pred" else "!"
    return _special(operand.name) if isinstance(operand, Special) else "a"


@functools.cache
def _special(name: str) -> str:
    """Return the word of a special register. Unknown registers are reported elsewhere."""
    if name == "_":
        return "_"
    found = special_register(f"%{name}")
    return _ANY if found is None else "%xyz" if name.partition(".")[0] in _OF_THREADS else f"%{found.type}"


# -- telling ----------------------------------------------------------------------------------------------

_DESCRIPTIONS = {
    "c": "an integer", "0f": "a float of 32 bits", "0d": "a float of 64 bits", "a": "an address", "_": "_",
    "!": "the negation of no predicate", "": "a number", "[]": "memory at a number",
}  # fmt: skip


def _choices(op: Op, words: list[str], place: int, word: str) -> list[str]:
    """List the words that an operation accepts in a position, given the words of its other operands."""
    others = [*_REGISTERS, "pred", "_"] if place < len(op.results) else [word, *_alike(word)]
    return [each for each in others if _takes(op, [*words[:place], each, *words[place + 1 :]])]


def _alike(word: str) -> Iterator[str]:
    """List the words that may replace a word and have the same number of parts."""
    if word[0] == "[":
        _, *coordinates = word[1:-1].split(";")
        yield from (f"[{';'.join((each, *coordinates))}]" for each in (*_REGISTERS, "a"))
        return
    if word[0] == "{":
        yield from (f"{{{','.join([each] * (word.count(',') + 1))}}}" for each in _WORDS)
    yield from _WORDS
    yield from (f"{{{each}}}" for each in _REGISTERS)


def _description_of(op: Op, place: int, word: str, choices: list[str]) -> tuple[str, str]:
    """Describe an operand and its expected kinds, with a hint.

    Operands are numbered from 1, and all results together count as one operand.
    """
    count = len(op.results)
    number, operand = (1, op.results[place]) if place < count else (place - count + 1, op.sources[place - count])
    number += place >= count > 0
    name = "_" if operand is None else _name(operand)
    return f"operand {number}, {name}, is {_described(word)}, expected {_listed(choices)}", _advice(
        operand, name, choices
    )


def _described(word: str) -> str:
    if word in _DESCRIPTIONS or word[0] == "%":
        return _DESCRIPTIONS.get(word, "a special register")
    if word[0] not in "{[":
        return f".{word}"
    parts = dict.fromkeys(_described(part) for part in word[1:-1].split("," if word[0] == "{" else ";"))
    return f"{'elements of' if word[0] == '{' else 'memory at'} {' and '.join(parts)}"


def _listed(choices: list[str]) -> str:
    described = list(dict.fromkeys(map(_described, choices)))
    floats = {_DESCRIPTIONS[word] for word in _FLOATS}
    if floats <= {*described}:
        described = [each for each in described if each not in floats] + ["a float"]
    if described[0].startswith("memory at"):
        return "memory at a variable, or at a register of bits or of integers"
    return " or ".join(filter(None, (", ".join(described[:-1]), described[-1])))


_MOST = 1 << 64
_FLOATS = frozenset({"0f", "0d"})


def _advice(operand: Operand | None, name: str, choices: list[str]) -> str:
    registers = [choice for choice in choices if choice in _REGISTERS or choice == "pred"]
    if isinstance(operand, Reg) and registers:
        return f"declare {name} as {_listed(registers[:3])}"
    if isinstance(operand, IntConstant) and abs(operand.value) <= _MOST and not _FLOATS.isdisjoint(choices):
        return f"write {_as_float(operand.value, choices)}"
    if isinstance(operand, FloatConstant) and "c" in choices:
        return "write an integer"
    if choices == ["_"]:
        return "write _ in its place"
    if isinstance(operand, (IntConstant, FloatConstant, Special, SymbolAddress)) and registers:
        return f"move it to a register of {_listed(registers[:3])} before"
    return ""


def _as_float(number: int, choices: list[str]) -> str:
    letter = "f" if "0f" in choices and choices[0] != "b64" else "d"
    return f"0{letter}{struct.pack(f'>{letter}', number).hex().upper()}"


def _name(operand: Operand) -> str:
    """Write an operand as a person would."""
    if isinstance(operand, FloatConstant) and operand.width == 64:
        return str(struct.unpack(">d", operand.bits.to_bytes(8, "big"))[0])
    return written(operand)
