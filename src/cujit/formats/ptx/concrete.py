"""The forms of the instruction table, expanded to every combination of modifiers that a row allows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from cujit.formats.ptx.isa.never import never
from cujit.formats.ptx.isa.table import InstructionRow

MOST_WRITTEN_OUT = 1024
"""Combinations of a row of which all are written out."""


def concrete_forms(row: InstructionRow) -> Iterator[tuple[str, ...]]:
    """Yield the modifiers of each form that a row represents, in the order of the row.

    A row may have very many combinations, of cache hints, scopes, vectors, and types. Then only the forms that differ
    from the plainest form in at most two positions are yielded. An open row yields nothing, because the table does not
    know its modifiers.
    """
    if row.is_open:
        return
    places = [_choices(row, k) for k in range(len(row.modifiers))]
    if math.prod(map(len, places)) <= MOST_WRITTEN_OUT:
        combinations: Iterator[tuple[str, ...]] = itertools.product(*places)
    else:
        combinations = _near(places)
    for words in combinations:
        form = tuple(word for word in words if word)
        if not never(row.opcode, form):
            yield form


def _choices(row: InstructionRow, place: int) -> list[str]:
    """Return the words that a position allows, plainest first. An optional position starts with the empty word."""
    modifier = row.modifiers[place]
    return [*([""] if modifier.optional else []), *sorted(modifier.choices, key=lambda word: (word != "b32", word))]


def _near(places: list[list[str]]) -> Iterator[tuple[str, ...]]:
    plain = [choices[0] for choices in places]
    found: dict[tuple[str, ...], None] = {tuple(plain): None}
    for (i, first), (j, second) in itertools.combinations(enumerate(places), 2):
        for word, other in itertools.product(first, second):
            near = plain.copy()
            near[i], near[j] = word, other
            found[tuple(near)] = None
    yield from found
