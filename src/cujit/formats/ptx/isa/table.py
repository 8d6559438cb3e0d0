"""What the PTX ISA manual says of each instruction and special register, and how to look it up.

The tables themselves are in ``scalar``, ``memory`` (with ``copies``) and ``parallel`` (with
``matrix``): a row per form, written nearly as the manual prints it::

    "add {.RND} {.ftz} {.sat} .f32"

A word in braces may be left out, ``|`` separates choices, a word in capitals stands for a set of ``SETS``, and
``...`` for modifiers that the table does not list yet.

How far it was checked: each form of the closed rows was given to ptxas 13.5, in statements with plain operands. It
takes all of them but those of PTX 1.0 to 1.3 without a rounding (tried with ``.version 1.3``), ``cvta`` to 32 bits
(the same), and ``wmma`` without ``.aligned`` beside words that came after it. What of a row's product is no instruction
``never`` lists. A section
number may be off: not every page of the manual was read beside the rows. That every instruction of NVRTC's output has
a row is tested for six architectures.  Versions and architectures are those of assemblers and not
the manual's: of ptxas 11.7 to 13.5, the earliest version that any release takes for a target (``since``;
recorded by ``tests/toolkits/record_boundaries.py`` with each modifier of each closed form alone, and some 380
statements more).
What a single modifier needs beyond its form is in ``later``.
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
    """One place for a modifier in a form: what may stand there, and whether it may be left out."""

    choices: frozenset[str]
    optional: bool = False

    @property
    def is_type(self) -> bool:
        """Whether only operand types stand here."""
        return self.choices <= TYPES


@dataclass(frozen=True)
class InstructionRow:
    """One form of an instruction.

    ``form`` is the form as the table has it, ``modifiers`` its places after the opcode, types included;
    ``section`` is the manual's; ``ptx`` and ``sm`` are the first ISA version and the first architecture with
    the form (its opcode with the plainest modifiers; single modifiers may have come later), ``since`` has all targets.
    ``is_open`` forms take any further modifiers: the table has their name but not yet their modifiers.

    Source: PTX ISA manual 9.1, chapter 9.7, as far as the module says.
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
        """The operand types that the form takes, place by place."""
        return tuple(modifier.choices for modifier in self.modifiers if modifier.is_type)

    def matches(self, modifiers: tuple[str, ...]) -> bool:
        """Return whether the form accepts these modifiers. Like ptxas, it accepts any order, except for types and a few
        others.

        Words that are part of the instruction's name come first.
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
        """Return whether words are in the order of their places, by ``ORDERED``."""
        groups = ([k for k, word in taken if word in group] for group in ORDERED.get(self.opcode, ()))
        return all(places == sorted(places) for places in groups)

    def _after(self, words: tuple[str, ...], leading: frozenset[str]) -> dict[int, Modifier] | None:
        """The places that are left behind the words of the name; None where one stands too late or has no place."""
        places = iter(enumerate(self.modifiers))
        for word in words:
            place = next((p for _, p in places if not (p.optional and word not in p.choices)), None)
            if word not in leading or place is None or word not in place.choices:
                return None
        return dict(places)


def lookup(instruction: Instruction) -> InstructionRow | None:
    """Find the form that ``instruction`` is of, or None if the ISA has no such form."""
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
    """Find the oldest form that ``instruction`` is of, or None if the ISA has no such form; ``since`` is that of all.

    What its single modifiers need beyond that, ``later`` has.
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
    """Read one place of a form: ``.RND``, ``.lo|hi`` or ``{.sat}``."""
    optional = word.startswith("{")
    choices: set[str] = set()
    for choice in word.strip("{}").removeprefix(".").split("|"):
        choices.update(SETS.get(choice, (choice,)))
    return Modifier(frozenset(choices), optional)


def special_register(name: str) -> SpecialRegister | None:
    """Find a special register by its name in PTX, such as ``%tid``, ``%tid.x`` or ``%envreg2``, or None."""
    base, _, component = name.partition(".")
    found = SPECIAL_REGISTERS.get(base)
    if found is None or (component and component not in found.components):
        return None
    return found
