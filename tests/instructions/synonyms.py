"""Words of instructions that change nothing in what one launch computes, put into scenes that a GPU ran without them.

``ld.global.b32 r, [p];`` becomes ``ld.relaxed.gpu.global.L2::128B.u32 r, [p];``.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from cujit.formats.ptx.isa.later import later_of
from cujit.formats.ptx.isa.sets import SETS, TYPES
from cujit.formats.ptx.isa.since import both
from cujit.formats.ptx.isa.table import InstructionRow, earliest, lookup, rows
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.syntax import FloatLiteral, Immediate, Instruction, Register, Statement
from instructions.rewriting import instructions_of, rewrite
from instructions.scene import every_scene

__all__ = ["Form", "rewritten_scenes"]

Form = tuple[str, tuple[str, ...]]
"""An opcode with its modifiers."""

_ORDERS = frozenset({"relaxed", "acquire", "release", "acq_rel", "weak", "mmio", *SETS["SCOPE"]})
_CACHES = frozenset(
    itertools.chain(*(SETS[name] for name in ("COP", "STORECOP", "EVICT1", "EVICT2", "HINT", "PREFETCH")))
)
_FREE = {
    **dict.fromkeys(("ld", "st", "ldu", "atom", "red"), _ORDERS | _CACHES),
    **dict.fromkeys(("fence", "membar", "mbarrier"), _ORDERS),
    "barrier": frozenset({"aligned", "release", "relaxed", "acquire"}),
    "cp": _CACHES | {"tile", "cta_group::1"},
    "wmma": frozenset({"aligned"}),
    **dict.fromkeys(("add", "sub", "mul"), frozenset({"rn"})),
}
"""Words that may be added, left out or exchanged, by opcode: who sees what and when, and what caches keep, changes
nothing in what a thread reads of its own; others are what holds without them."""
_KEPT = frozenset({"L2::cache_hint"})
"""Words with an operand: they stay where they are."""
_SHARED = frozenset({"shared", "shared::cta", "shared::cluster"})
_TYPES = tuple(
    frozenset(f"{kind}{bits}" for kind in kinds) for kinds, bits in (("bus", 16), ("busf", 32), ("busf", 64))
)
"""Types of one size, alike for what moves values: the registers have that size."""
_BYTES = frozenset({"b8", "u8", "s8"})
_OTHER = {"ld": "ldu"}
"""Opcodes that do the same."""
_MOVES = frozenset({"ld", "st", "ldu", "mov", "selp"})
_MOST_NEW = 2
"""Words that are put into an instruction at a time."""
_HINT = ".entry k() { .reg .b64 hint; createpolicy.fractional.L2::evict_first.b64 hint, 1.0; }"


@functools.cache
def _cells(form: Form) -> frozenset[tuple[str, str]]:
    """The words that a form has, each with the row of the instruction table that it stands in."""
    row = lookup(Instruction(*form))
    return frozenset((row.form, word) for word in form[1]) if row is not None else frozenset()


@functools.cache
def _synonyms(form: Form) -> tuple[Form, ...]:
    """Give forms that do the same as a form, by words that change nothing, those with the fewest new ones first."""
    found: dict[Form, None] = {}
    for row in rows():
        if row.opcode in (form[0], _OTHER.get(form[0])) and not row.is_open:
            found.update(dict.fromkeys(_of_row(form, row)))
    real = (made for made in found if made != form and lookup(Instruction(*made)) is not None)
    return tuple(sorted(real, key=lambda made: len(set(made[1]) - set(form[1]))))


@functools.cache
def _reached(form: Form) -> frozenset[tuple[str, str]]:
    """All words that the synonyms of a form have, as of ``_cells``."""
    return frozenset().union(*map(_cells, _synonyms(form)))


def _of_row(form: Form, row: InstructionRow) -> Iterator[Form]:
    opcode, free = form[0], _FREE.get(form[0], frozenset())
    left = [word for word in form[1] if word not in free or word in _KEPT]
    places: list[list[str]] = []
    for place in row.modifiers:
        fits = (
            place.choices
            if not place.is_type
            else place.choices & _alike(opcode, next((w for w in left if w in TYPES), ""))
        )
        mine = next((word for word in left if _alike(opcode, word) & fits), None)
        if mine is not None:
            left.remove(mine)
            places.append(sorted(_alike(opcode, mine) & place.choices, key=lambda word: (word != mine, word)))
        elif place.optional or place.choices & free:
            places.append([*([""] if place.optional else []), *sorted(place.choices & free)])
        else:
            return
    if left:
        return
    plain = [choices[0] for choices in places]
    for several in itertools.combinations(range(len(places)), min(_MOST_NEW, len(places))):
        for words in itertools.product(*(places[k] for k in several)):
            new = plain.copy()
            for k, word in zip(several, words, strict=True):
                new[k] = word
            yield row.opcode, tuple(word for word in new if word)


def _alike(opcode: str, word: str) -> frozenset[str]:
    """The words that may stand for a word: it alone, but for shared memory of the own block, and types of moves."""
    if word in ("shared", "shared::cta"):
        return _SHARED
    if word in _BYTES and opcode == "st":
        return _BYTES
    types = next((types for types in _TYPES if word in types), None) if opcode in _MOVES else None
    return types or frozenset({word})


@functools.cache
def rewritten_scenes() -> Mapping[str, str]:
    """Write scenes with synonyms, by name and number, as few as hold each word in each row of the table that it can."""
    have = {
        cell for scene in every_scene().values() for one in instructions_of(scene.ptx) for cell in _cells(_form(one))
    }
    texts: dict[str, str] = {}
    for scene in every_scene().values():
        module = parse(scene.ptx)
        is_there = functools.partial(_is_there, module.version, module.target[0].removeprefix("sm_"))
        for number in itertools.count():
            before = len(have)
            text = rewrite(scene.ptx, functools.partial(_changed, have, is_there), first=_HINT)
            if len(have) == before:
                break
            texts[f"{scene.name} {number}"] = text
    return texts


def _form(one: Instruction) -> Form:
    return one.opcode, one.modifiers


def _takes(one: Instruction, form: Form) -> bool:
    """Whether a form takes the operands of an instruction: numbers have types, and a remote arrival has no result."""
    arrives = form[0] == "mbarrier" and form[1][0] in ("arrive", "arrive_drop") and "shared::cluster" in form[1]
    if arrives and one.operands[0] != Register("_"):
        return False
    has_number = any(isinstance(operand, (Immediate, FloatLiteral)) for operand in one.operands)
    return not has_number or [w for w in form[1] if w in TYPES] == [w for w in one.modifiers if w in TYPES]


@functools.cache
def _is_there(version: tuple[int, int], target: str, form: Form) -> bool:
    """Whether a form is in a version of the ISA for a target."""
    row = earliest(Instruction(*form))
    assert row is not None
    needs = functools.reduce(both, (later.since for later in later_of(*form, 0)), row.since)
    first = needs.of(target)
    return first is not None and first <= version


def _changed(have: set[tuple[str, str]], is_there: Callable[[Form], bool], one: Instruction) -> Iterator[Statement]:
    """Give an instruction the synonym that has most words which nothing has yet."""
    if one.opcode == "mov" and not (isinstance(one.operands[1], Register) and one.operands[1].name[0] != "%"):
        yield one  # Special registers and names have types of their own.
        return
    if _reached(_form(one)) <= have:
        yield one
        return
    best = max(
        (form for form in _synonyms(_form(one)) if _takes(one, form) and is_there(form)),
        key=lambda form: len(_cells(form) - have),
        default=None,
    )
    if best is None or not _cells(best) - have:
        yield one
        return
    have |= _cells(best)
    hinted = ("L2::cache_hint" in best[1]) - ("L2::cache_hint" in one.modifiers)
    operands = (*one.operands, Register("hint")) if hinted > 0 else one.operands
    yield replace(one, opcode=best[0], modifiers=best[1], operands=operands)
