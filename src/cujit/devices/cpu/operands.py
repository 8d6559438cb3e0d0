"""How many operands an instruction has, and of what kinds: checked once, at load, so that handlers may rely on it.

The operands of an operation are spelled as two texts of letters, and those are held to what its form writes and reads.
The letters, and the form's, are those of ``semantics``.
"""

from __future__ import annotations

import functools
import re

from cujit.devices.cpu.program import FloatConstant, Group, IntConstant, Memory, Negation, Op, Operand, Reg, Special
from cujit.devices.cpu.semantics import ANYTHING, Form

__all__ = ["fits", "number_out_of_range"]

_WORDS = {
    "S": "[rscf]", "P": "[pc]", "C": "p", "N": r"(?:g\d+)", "=": r"g\d+", "F": r"(?:g\d+|[rscf])", "E": "(?:g1|[rscf])"
}  # fmt: skip
"""``N`` is a group, ``F`` one or the register that would be alone in it, ``E`` one register, in braces or not."""

_WITH_FLOATS = re.compile(r"(b?f|[bsu])(16|32|64)(x2)?|tf32")
"""Types whose constants may be floats."""


def fits(op: Op) -> bool:
    """Tell whether an operation has operands as its form takes them; where these are not known, it has."""
    if op.form.meaning.reads == ANYTHING:
        return True
    if _has_float(op.sources) and not all(map(_WITH_FLOATS.fullmatch, op.types)):
        return False
    results, sources = _patterns(op.form)
    written = "".join("_" if reg is None else "p" if reg.bits == 1 else "r" for reg in op.results)
    return bool(results.fullmatch(written) and sources.fullmatch("".join(map(_letter, op.sources))))


def number_out_of_range(op: Op) -> int | None:
    """Give a number among the operands that is none of those that may stand there; None if there is none."""
    for place, allowed in op.form.meaning.numbers.items():
        number = op.sources[place] if place < len(op.sources) else None
        if isinstance(number, IntConstant) and number.value not in allowed:
            return number.value
    return None


def _has_float(operands: tuple[Operand, ...]) -> bool:
    return any(
        isinstance(operand, FloatConstant) or (isinstance(operand, Group) and _has_float(operand.items))
        for operand in operands
    )


@functools.lru_cache(maxsize=4096)
def _patterns(form: Form) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Make expressions for the texts of letters that may be written, and that may be read."""
    every = {**_WORDS, **_words_of(form)}
    writes, reads = ("".join(every.get(c, c) for c in text) for text in (form.meaning.writes, form.meaning.reads))
    return re.compile(writes), re.compile(reads)


def _words_of(form: Form) -> dict[str, str]:
    """What capitals stand for that depend on the modifiers.

    ``V`` is as many as the vector has, ``G`` so many in braces, ``B`` the predicate that ``.and`` combines with, ``H``
    a cache policy, ``K`` a scale, ``M`` a mask of blocks, ``I`` the offsets of im2col mode.
    """
    has, width = set(form.words), form.vector
    rank = next((int(word[0]) for word in form.words if re.fullmatch("[1-5]d", word)), 0)
    offsets = f"g{rank - 2}" if "im2col" in has else "g2" if has & {"im2col::w", "im2col::w::128"} else ""
    return {
        "V": f"{{{width}}}",
        "G": f"(?:g{width}{'|[rscf]' if width == 1 else ''})",
        "B": "[pc]" if has & {"and", "or", "xor"} else "",
        "H": "[rscf]" if "L2::cache_hint" in has else "",
        "K": "[rscf]" if "scaled::n2::ue8m0" in has else "",
        "M": "[rscf]" if "multicast::cluster" in has else "",
        "I": offsets,
    }


def _letter(operand: Operand) -> str:
    if isinstance(operand, Reg):
        return "p" if operand.bits == 1 else "r"
    if isinstance(operand, Group):
        return f"g{len(operand.items)}" if all(_letter(item) in "rcfs_" for item in operand.items) else "?"
    if isinstance(operand, Memory):
        return "t" if operand.coords else "m"
    if isinstance(operand, Negation):
        return "p" if isinstance(operand.item, Reg) and operand.item.bits == 1 else "?"
    if isinstance(operand, Special):
        return "_" if operand.name == "_" else "s"
    return "c" if isinstance(operand, IntConstant) else "f" if isinstance(operand, FloatConstant) else "s"
