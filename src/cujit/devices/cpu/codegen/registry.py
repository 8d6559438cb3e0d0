"""Which operations are emitted by what: a table that the families fill and the checker reads.

What forms an instruction has, the tables of ``formats.ptx.isa`` say alone: a rule tells no more than what its handler
is for, in their notation. ``"mul .INT"`` are all ``mul`` whose first type is one of ``INT``, with whatever words.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from cujit.devices.cpu.codegen.warp import Handler
from cujit.devices.cpu.ir.program import Op
from cujit.formats.ptx.isa.semantics import UNKNOWN, Form, choices_of
from cujit.formats.ptx.isa.sets import SETS, TYPES
from cujit.values import dataclass


@dataclass(frozen=True)
class Rule:
    """What one handler takes: the first types, in their order, and words of each of which one must be there.

    ``parts`` are regular expressions for the parts of registers (``h1`` of ``%r1.h1``) that the operands, the result
    first, may name; there are none unless it says so.
    """

    form: str
    handler: Handler
    types: tuple[frozenset[str], ...]
    words: tuple[frozenset[str], ...]
    parts: tuple[str, ...]

    @property
    def weight(self) -> int:
        """How much it says of a form."""
        return len(self.types) + len(self.words)

    def takes_parts(self, parts: tuple[str, ...]) -> bool:
        """Whether the operands, the result first, may name these parts of their registers; "" names none."""
        allowed = (*self.parts, *[""] * len(parts))
        return all(not part or re.fullmatch(allowed[k], part) for k, part in enumerate(parts))

    def takes(self, form: Form) -> bool:
        """Whether the handler emits operations of a form."""
        return _takes(form, self.types, self.words)


_Choices = tuple[frozenset[str], ...]


@functools.cache
def _places_of(form: str) -> tuple[_Choices, _Choices]:
    """Read the types of a rule's form, in their order, and its words."""
    places = choices_of(form)
    types = tuple(choices for choices in places if choices <= TYPES)
    return types, tuple(choices for choices in places if choices not in types)


def _takes(form: Form, types: _Choices, words: _Choices) -> bool:
    """Return whether the first types of a form are these, and whether one of each of the words is there."""
    if len(form.types) < len(types) or any(choices.isdisjoint(form.words) for choices in words):
        return False
    return all(t in choices for t, choices in zip(form.types, types, strict=False))


class Rules:
    """The rules by opcode; of those that take a form the one that says most counts."""

    def __init__(self) -> None:
        self._rules: dict[str, list[Rule]] = {}
        self._of_form = functools.lru_cache(maxsize=4096)(self._find)

    def on(self, form: str, handler: Handler, *, parts: tuple[str, ...] = ()) -> None:
        """Register the handler of a form: opcodes and places, as the rows of ``isa`` write them."""
        types, words = _places_of(form)
        rule = Rule(form, handler, types, words, parts)
        for opcode in form.split()[0].split("|"):
            own = self._rules.setdefault(opcode, [])
            own.append(rule)
            own.sort(key=lambda rule: -rule.weight)

    def find(self, op: Op) -> Rule | None:
        """Find the rule that takes an operation."""
        return self._of_form(op.form)

    def handler_of(self, op: Op) -> Handler:
        """Find what emits an operation that has a rule."""
        rule = self.find(op)
        assert rule is not None, op.name
        return rule.handler

    def _find(self, form: Form) -> Rule | None:
        if form.meaning is UNKNOWN or reason(form):
            return None
        return next((rule for rule in self.rules_of(form.opcode) if rule.takes(form)), None)

    def rules_of(self, opcode: str) -> Sequence[Rule]:
        """List the rules of an opcode, first those that say most."""
        return self._rules.get(opcode, ())

    def opcodes(self) -> tuple[str, ...]:
        """List every opcode that has a rule."""
        return tuple(sorted(self._rules))


# -- what is refused ------------------------------------------------------------------------------------------

NOT_YET = "an instruction that the CPU device does not execute yet"

_ONLY_SM107 = "their rounding is not documented, and only sm_107 has them"
_ALLOCATION = "how large the memory of a tensor map is, which maps of the CPU device do not tell"
_REPORT = "reports of copies that fail, and no copy of the CPU device does"

_REASONS = (
    ("tcgen05 .mma .ashift", "no manual says which rows such a product reads, and whether tensor memory changes"),
    ("tcgen05 .mma .kind::ti16", "products of 16-bit integers, of sm_107"),
    ("multimem", "an address of several GPUs' memory at once, and there is one device"),
    ("fabric", "memory of other GPUs over NVLink, and there is one device"),
    ("istypep", "it asks what a .texref, .samplerref or .surfref is; textures are passed by their handles"),
    ("tex .2dms|a2dms", "no texture here has several samples"),
    ("txq .force_unnormalized_coords", "a .samplerref has it, and textures are passed by their handles"),
    ("txq|suq .channel_data_type|channel_order", "its numbers are not documented for CUDA C++"),
    ("tensormap .interleave_layout|swizzle_atomicity", "maps of the CPU device have no such field"),
    ("cp .tile::gather4|tile::scatter4", "rows of a tensor at coordinates of their own, of sm_100"),
    ("cp .im2col::w|im2col::w::128", "im2col of one axis, of sm_100"),
    ("wmma .satfinite .f16|f32", "saturated products of f16, which PTX 6.5 took away"),
    ("add|sub|mul .f16x2|bf16x2 .f32x2|f16x2|bf16x2", "pairs of other formats rounded to halves; " + _ONLY_SM107),
    ("cvt .scaled::n1::ue8m0", "numbers divided by one scale; " + _ONLY_SM107),
    ("spcompress|spdecompress", "numbers chosen from groups of 4; " + _ONLY_SM107),
    ("trace", "marks for a tracer of sm_107, which no manual describes"),
    ("tensormap .alloc_small|alloc_large|alloc_same", _ALLOCATION),
    ("tensormap .query", _ALLOCATION),
    ("ldmatrix .s8 .s4", "4-bit integers, whose place in a row of shared memory no GPU showed yet"),
    ("cp|applypriority .override::global_address", "an address in place of a tensor map's, of sm_107"),
    ("cp .im2col_no_offs::w", "im2col of one axis, of sm_107"),
    ("applypriority .tile::gather4|im2col::w|im2col::w::128", "a mode of tensor copies that is not executed"),
    (f"cp .{'|'.join(sorted({*SETS['REPORT']} - {'mbarrier::report::disabled'}))}", _REPORT),
    ("cp|mbarrier .multicast::cluster::32b", "clusters of more than 16 blocks, of sm_107"),
    ("cp .relaxed", "copies that other threads may watch, in pieces of 16 bytes"),
    ("mbarrier .layout::v1|phase_type::primary|phase_type::conditional", _REPORT),
)


def reason(form: Form) -> str:
    """Return why a form in the instruction table is refused, or an empty string for one that is executed."""
    for refused, why in _REASONS:
        if form.opcode in refused.split()[0].split("|") and _takes(form, *_places_of(refused)):
            return why
    return ""
