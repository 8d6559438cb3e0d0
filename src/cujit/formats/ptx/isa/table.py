"""The instruction and special-register tables of the PTX ISA manual, and functions that search them.

The rows are in ``scalar``, ``memory`` (with ``copies``), and ``parallel`` (with ``matrix``). Each form has a row,
nearly in the manual's notation, such as ``add {.RND} {.ftz} {.sat} .f32``. A word in braces is optional, ``|``
separates choices, and a word in capitals is the name of a set in ``SETS``. ``...`` represents modifiers that the table
does not list yet.

Each form of the closed rows was checked with ptxas 13.5, in statements with plain operands. ptxas accepts all of them
with three exceptions. The first is forms of PTX 1.0 to 1.3 without a rounding, checked with ``.version 1.3``. The
second is ``cvta`` to 32 bits, checked with the same version. The third is ``wmma`` without ``.aligned`` together with
newer words. ``never`` lists the combinations in a row that are not instructions. A section number may be wrong, because
not every page of the manual was compared with the rows. Tests for six architectures check that every instruction of
NVRTC's output has a row.

Versions and architectures are from assemblers, not from the manual. Each is the earliest version that any release of
ptxas from 11.7 to 13.5 accepts for a target (``since``). ``tests/toolkits/record_boundaries.py`` recorded them, with
each modifier of each closed form alone and some 380 other statements. ``later`` contains the additional requirements of
single modifiers.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from cujit.formats.ptx.isa.memory import MEMORY
from cujit.formats.ptx.isa.never import never
from cujit.formats.ptx.isa.parallel import PARALLEL
from cujit.formats.ptx.isa.scalar import SCALAR
from cujit.formats.ptx.isa.sets import LEADING, ORDERED, SETS, TYPES, Forms
from cujit.formats.ptx.isa.since import Since, either, number_of, since, version_of
from cujit.formats.ptx.special_registers import SPECIAL_REGISTERS, SpecialRegister
from cujit.formats.ptx.syntax import Instruction
from cujit.values import dataclass, group_by, replace

NEWEST_PTX = (9, 5)
"""The newest PTX ISA whose assembler the table was held to: that of nvJitLink 13.5."""


@dataclass(frozen=True)
class Modifier:
    """One modifier position in a form: the allowed words, and whether the modifier is optional."""

    choices: frozenset[str]
    optional: bool = False

    @property
    def is_type(self) -> bool:
        """Whether only operand types are allowed in this position."""
        return self.choices <= TYPES


@dataclass(frozen=True)
class InstructionRow:
    """One form of an instruction.

    ``form`` is the form as written in the table, and ``modifiers`` are the positions after the opcode, including types.
    ``section`` is the section of the manual. ``ptx`` and ``sm`` are the first ISA version and the first architecture
    with the opcode and its plainest modifiers. Single modifiers may be newer. ``since`` contains all targets.
    ``is_open`` forms accept any further modifiers, because the table does not list their modifiers yet.

    Source: PTX ISA manual 9.1, chapter 9.7, with the limits that the module docstring describes.
    """

    form: str
    opcode: str
    modifiers: tuple[Modifier, ...]
    section: str
    ptx: tuple[int, int]
    sm: int
    since: Since
    is_open: bool = False

    @property
    def types(self) -> tuple[frozenset[str], ...]:
        """The operand types that the form accepts, by position."""
        return tuple(modifier.choices for modifier in self.modifiers if modifier.is_type)

    def matches(self, modifiers: tuple[str, ...]) -> bool:
        """Return whether the form accepts these modifiers. Like ptxas, it accepts any order, except for types and a few
        others.

        Words that are part of the instruction's name must be first.
        """
        leading = LEADING.get(self.opcode, frozenset())
        count = sum(word in leading for word in modifiers)
        free = self._after(modifiers[:count], leading)
        if free is None:
            return False
        taken = []
        for word in modifiers[count:]:
            fitting = (k for k, place in free.items() if word in place.choices or (word in TYPES and place.is_type))
            index = next(fitting, None)
            if index is not None and word in free[index].choices:
                taken.append((index, word))
                del free[index]
            elif index is not None or not self.is_open:
                return False
        return all(place.optional for place in free.values()) and self._in_order(taken)

    def _in_order(self, taken: Sequence[tuple[int, str]]) -> bool:
        """Return whether words follow the order of their positions, for the words in ``ORDERED``."""
        groups = ([k for k, word in taken if word in group] for group in ORDERED.get(self.opcode, ()))
        return all(places == sorted(places) for places in groups)

    def _after(self, words: tuple[str, ...], leading: frozenset[str]) -> dict[int, Modifier] | None:
        """Return the positions after the words of the instruction's name. Return None if a word is too late or has no
        position.
        """
        places = iter(enumerate(self.modifiers))
        for word in words:
            place = next((p for _, p in places if not (p.optional and word not in p.choices)), None)
            if word not in leading or place is None or word not in place.choices:
                return None
        return dict(places)


def lookup(instruction: Instruction) -> InstructionRow | None:
    """Return the form that ``instruction`` has, or None if the ISA has no such form."""
    return _lookup(instruction.opcode, instruction.modifiers)


@functools.lru_cache(maxsize=4096)
def _lookup(opcode: str, modifiers: tuple[str, ...]) -> InstructionRow | None:
    if never(opcode, modifiers):
        return None
    return next((row for row in _rows_by_opcode().get(opcode, ()) if row.matches(modifiers)), None)


def section_of(words: str) -> str:
    """Return the section of the manual that describes an instruction, such as ``ld.global.f32``. "" if unknown."""
    opcode, *modifiers = words.split(".")
    row = _lookup(opcode, tuple(modifiers))
    return "" if row is None else row.section


def earliest(instruction: Instruction) -> InstructionRow | None:
    """Return the oldest form that ``instruction`` has, or None if the ISA has no such form.

    ``since`` of the result covers all matching forms. ``later`` contains the additional requirements of single
    modifiers.
    """
    return _earliest(instruction.opcode, instruction.modifiers)


@functools.lru_cache(maxsize=4096)
def _earliest(opcode: str, modifiers: tuple[str, ...]) -> InstructionRow | None:
    fitting = [row for row in _rows_by_opcode().get(opcode, ()) if row.matches(modifiers)]
    oldest = min(fitting, key=lambda row: (row.ptx, row.sm), default=None)
    return None if oldest is None else replace(oldest, since=either(row.since for row in fitting))


@functools.cache
def rows() -> tuple[InstructionRow, ...]:
    """Every form in the table, in the manual's order of chapters."""
    return tuple(_row(forms, form) for forms in (*SCALAR, *MEMORY, *PARALLEL) for form in forms.forms)


@functools.cache
def opcodes() -> frozenset[str]:
    """Every opcode that has a form."""
    return frozenset(form.split(None, 1)[0] for forms in (*SCALAR, *MEMORY, *PARALLEL) for form in forms.forms)


@functools.cache
def _rows_by_opcode() -> dict[str, list[InstructionRow]]:
    return group_by((row.opcode, row) for row in rows())


def _row(forms: Forms, form: str) -> InstructionRow:
    opcode, *words = form.split()
    is_open = bool(words) and words[-1] == "..."
    modifiers = tuple(place_of(word) for word in (words[:-1] if is_open else words))
    sm = number_of(forms.targets.split()[0].partition("@")[0].rstrip("="))
    has = since(forms.ptx, forms.targets)
    return InstructionRow(form, opcode, modifiers, forms.section, version_of(forms.ptx), sm, has, is_open)


def place_of(word: str) -> Modifier:
    """Return the modifier position for one word of a form: ``.RND``, ``.lo|hi``, or ``{.sat}``."""
    optional = word.startswith("{")
    choices: set[str] = set()
    for choice in word.strip("{}").removeprefix(".").split("|"):
        choices.update(SETS.get(choice, (choice,)))
    return Modifier(frozenset(choices), optional)


def special_register(name: str) -> SpecialRegister | None:
    """Return a special register by its PTX name, such as ``%tid``, ``%tid.x``, or ``%envreg2``, or None if there is
    none.
    """
    base, _, component = name.partition(".")
    found = SPECIAL_REGISTERS.get(base)
    if found is None or (component and component not in found.components):
        return None
    return found
