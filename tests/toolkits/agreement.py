"""Forms of instructions and what lies next to them, for assemblers and the CPU device to judge alike."""

from __future__ import annotations

import functools
import hashlib
import heapq
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from cujit.formats.ptx.concrete import concrete_forms
from cujit.formats.ptx.isa.sets import TYPES
from cujit.formats.ptx.isa.table import rows
from toolkits.minimal import OF_EVERY_TYPE, minimal, module_of

__all__ = ["ONLY_THE_ASSEMBLER", "ONLY_THE_TABLE", "candidates", "exchanged", "is_known", "numbered", "refused"]

Item = TypeVar("Item")
_CONTROL = frozenset({"bra", "brx", "call", "ret", "exit"})
# Words that any instruction may be given wrongly. Not ``cc``: assemblers die of it where there is no result.
_STRANGERS = frozenset(
    word
    for words in (
        "ftz sat rn rz rni rzi rna relu satfinite wide hi lo approx full NaN abs noftz and v2 v4",
        "global shared local volatile relaxed acquire cta gpu weak nc aligned sync uni",
    )
    for word in words.split()
)
_COMPLAINT = re.compile(r"line (\d+); (?:error|fatal)\s*:\s*(.*)")


# Not instructions by the manual (PTX ISA 9.1), and the assembler takes them.
ONLY_THE_ASSEMBLER = {
    r"testp\.f(32|64) ": "it names no property to test",
    r"vote\.sync\.pred ": "it names no mode; refused by newer releases",
    r"fma\.r[zmp]\..*bf16": "the manual has .rn alone for bf16",
    r"rcp\.(.*\.)?ftz\..*f64|rcp\.ftz\.r.\.f64": "the manual has .ftz with .approx alone for f64",
    r"set\..*\.bf16\.f16 ": "the manual compares bf16 with bf16 for a bf16",
    r"(add|sub)c\..*sat|vset\..*\.(hi|lo)\.": "a modifier that has no meaning there",
    r"(st|red|fence)\.(.*\.)?async|red\..*mmio": "newer than the manual, or it lacks a word",
    r"mbarrier\.check_layout\..*\.(cta|cluster)\b": "the manual has no scope for it",
    r"applypriority\..*\.[1345]d\..*tile::gather4": "the manual gathers rows of two-dimensional tensors alone",
    r"cp\..*\.tensor\..*\.(weak|relaxed|cta|cluster|gpu|sys)\b": "the manual has no scope for copies of tensors",
    r"tensormap\.query\..*\.(rank|box_|global_|element_|elemtype|interleave|swizzle|fill)": "it names no field",
    r"cp\.reduce\.(?!.*\.relaxed).*\.(cta|cluster|gpu|sys)\b": "a scope without an order; refused by newer releases",
    r"cp\..*bulk_group.*mbarrier::report": "no mbarrier is told of a store",
    r"(tex|tld4)\..*uni|sust\.p\..*\.(wb|cg|cs|wt)\.": "a modifier that has no meaning there",
    r"fence\.(.*(sync_restrict|async)|proxy.*acq_rel)": "words of forms that the manual keeps apart",
    r"wmma\.(load\.c|store\.d)\.|wmma\.mma\..*k16\..*\.[us]4": "a matrix or a product that the manual has not",
    r"mma\..*\.(row|col)\.(row|col)(\.r[nzmp])?(\.satfinite)?(\.[a-z]+\d\w*){5}[ .]": "it has a fifth type",
    r"mma\..*(kind|m16n8k16\..*tf32)": "the manual has no such shape, or .kind in another place",
    r"mma\..*\.[us][48]\.(and|or|xor)\.|wmma\.load\..*\.v[248]\.": "a modifier that has no meaning there",
    r"stmatrix\..*\.col\.": "a modifier that has no meaning there",
    r"wgmma\.(?!.*\.aligned)": "the manual asks for .aligned",
}  # fmt: skip
# Instructions of old texts, which this assembler no longer takes under any of the versions above.
ONLY_THE_TABLE = {
    r"(div|rcp|sqrt|rsqrt|sin|cos|lg2|ex2|mad)\.(?!.*\b(rn|rz|rm|rp|approx|full)\b)": "of PTX 1.0 to 1.3",
    r"wmma\.(?!.*\.aligned)": "of PTX 6.0 to 6.2, which asks for .aligned since",
    r"wmma\.mma\..*\.satfinite": "of PTX 6.0 to 6.4",
}


def candidates(seed: int, per_row: int, near_per_row: int) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Sample statements: of every row ``per_row`` forms, and ``near_per_row`` with one word more, less or other.

    The sample of a row depends on the seed and the row: no other row changes it.
    """
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for row in rows():
        if row.is_open or row.opcode in _CONTROL:
            continue
        of = f"{seed} {row.form}"
        chosen = _few(concrete_forms(row), per_row, of)
        near = (words for form in chosen for words in _next_to(form, row.opcode, of))
        for words in (*chosen, *_few(near, near_per_row, of)):
            statement = _statement(row.opcode, words)
            if statement is not None:
                found.setdefault(statement, (row.opcode, words))
    return found


def _few(items: Iterable[Item], count: int, of: str) -> list[Item]:
    """Choose some items at random: another item to choose from leaves all chosen ones but one."""
    return heapq.nsmallest(count, items, key=lambda item: hashlib.blake2b(f"{of} {item}".encode()).digest())


def _statement(opcode: str, words: tuple[str, ...]) -> str | None:
    try:
        return minimal(opcode, words)
    except (KeyError, IndexError, StopIteration, RuntimeError, ValueError):
        return None  # operands of such words are not known there


@functools.cache
def _words(opcode: str) -> frozenset[str]:
    """The words to put into a form of an opcode: its own ones and strangers."""
    own = {word for row in rows() if row.opcode == opcode for place in row.modifiers for word in place.choices}
    return frozenset({*own, *_STRANGERS} - {"cc"})


def _next_to(form: tuple[str, ...], opcode: str, of: str) -> Iterator[tuple[str, ...]]:
    words = _words(opcode).difference(form)
    for k, word in enumerate(form):
        yield (*form[:k], *form[k + 1 :])
        others = (other for other in words if (other in TYPES) == (word in TYPES))
        yield from ((*form[:k], other, *form[k + 1 :]) for other in _few(others, 4, f"{of} {form} {k}"))
    yield from ((word, *form) for word in _few(words - TYPES, 4, f"{of} {form}"))


def refused(
    statements: Sequence[str], version: str, target: str, complain: Callable[[str], str | None]
) -> dict[str, str]:
    """Ask which statements an assembler refuses, and why; ``complain`` gives what it writes about a text.

    It stops at a statement that it cannot even parse, and is asked again from there on; where it dies (None), in
    halves. The last statement is one that none takes, so that no code is ever made.
    """
    first = module_of(["MARK"], version, target).splitlines().index("MARK") + 1
    found: dict[str, str] = {}
    todo = [list(statements)]
    while todo:
        left = todo.pop()
        log = complain(module_of([*left, "ret.no.such.form;"], version, target))
        if log is None:
            half = len(left) // 2
            found.update({left[0]: "it died"} if half == 0 else {})
            todo += [left[:half], left[half:]] if half else []
            continue
        complaints = {int(match[1]) - first: match[2] for match in reversed(list(_COMPLAINT.finditer(log)))}
        found.update({left[k]: why for k, why in complaints.items() if 0 <= k < len(left)})
        last = max(complaints, default=-1)
        if last < 0:
            raise ValueError(f"the assembler gave up: {log[:400]}")
        todo += [left[last + 1 :]] if last + 1 < len(left) else []
    return found


_OPERAND = re.compile(r"\{[^{}]*\}|%[a-z]+\d+(?![\w.])|(?<![\w%:.])\d+(?![\w.])")
_OTHERS = (
    *re.findall(r"x\w+(?=;)", OF_EVERY_TYPE), "0", "16", "0f3F800000", "0d3FF0000000000000", "1.5", "%laneid",
)  # fmt: skip


def exchanged(statement: str, seed: int, operands: int = 2, others: int = 2) -> Iterator[str]:
    """Put registers of other types, and numbers, in the place of so many operands of a statement.

    Of a group that is one element, or all of them. What is chosen depends on the seed and the statement alone.
    """
    rng = random.Random(f"{seed} {statement}")
    mnemonic, _, rest = statement.partition(" ")
    places = list(_OPERAND.finditer(rest))
    for place in rng.sample(places, min(len(places), operands)):
        for other in rng.sample(_OTHERS, others):
            items = place[0].strip("{}").split(", ")
            if place[0][0] == "{":
                k = rng.randrange(len(items) + 1)
                items = [other] * len(items) if k == len(items) else [*items[:k], other, *items[k + 1 :]]
                other = f"{{{', '.join(items)}}}"
            yield f"{mnemonic} {rest[: place.start()]}{other}{rest[place.end() :]}"


_NUMBERS = (
    -1, *range(9), 12, 13, 15, 16, 17, 31, 32, 33, 64, 127, 128, 255, 256, 65535, 65536, 1048560, 1048575, 1048576,
    1 << 24, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 32) + 16,
)  # fmt: skip


def numbered(statement: str, seed: int, count: int = 3) -> Iterator[str]:
    """Put ``count`` numbers in the place of each operand of a statement, and of each of two elements."""
    mnemonic, _, rest = statement.partition(" ")
    for place in _OPERAND.finditer(rest):
        items, is_group = place[0].strip("{}").split(", "), place[0][0] == "{"
        for k in range(len(items) if len(items) <= 2 else 0):
            for number in _few(_NUMBERS, count, f"{seed} {statement} {place.start()} {k}"):
                text = ", ".join([*items[:k], str(number), *items[k + 1 :]])
                text = f"{{{text}}}" if is_group else text
                yield f"{mnemonic} {rest[: place.start()]}{text}{rest[place.end() :]}"


def is_known(statement: str, table: dict[str, str]) -> bool:
    return any(re.match(pattern, statement) for pattern in table)
