"""The integers that an operand position allows, if the assembler does not accept all integers there.

A row is for a family of instructions, in the notation of ``semantics``. The first row that matches an instruction is
used. Positions count the operands that are read. A position below 0 counts from the end.

Source: the integers that ptxas 13.5 accepts in the position of each operand, for every form of the instruction table.
Some thirty integers from -1 to 2^32 were tested (``tests/devices/cpu/test_operand_types.py``).
"""

from __future__ import annotations

import functools
from collections.abc import Container, Mapping
from typing import TypeAlias

from cujit.formats.ptx.isa.semantics import choices_of
from cujit.values import dataclass, group_by


@dataclass(frozen=True)
class LowWord:
    """Numbers that the assembler checks only by their low 32 bits."""

    numbers: range

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and number & 0xFFFFFFFF in self.numbers


@dataclass(frozen=True)
class AtMost:
    """Numbers with low 32 bits that do not exceed the low 32 bits of the number in another position."""

    place: int


@dataclass(frozen=True)
class OfThree:
    """Numbers that are checked only if three operands are read."""

    numbers: range


@dataclass(frozen=True)
class Elements:
    """The numbers that each position of a group allows."""

    each: tuple[Container[int], ...]


Allowed: TypeAlias = Container[int] | AtMost | OfThree | Elements
_Numbers: TypeAlias = Mapping[int, Allowed]

_BIT, _SIGN = (0, 1), (-1, 1)
_BARRIER = LowWord(range(16))
_THREADS = range(0, 1 << 63, 32)
_SIZE = range(0, 1 << 20, 16)
"""Bytes of a bulk copy."""
_ENDS = LowWord(range(16))
"""Bytes of a bulk copy that it ignores."""
_MASK = range(1 << 16)
"""Blocks of a cluster, a bit for each."""
_SPARSE = "mma .sp|sp::ordered_metadata"
_BYTES = range(4)


def _scales(before: int, chosen: Container[int]) -> _Numbers:
    """Return the numbers that select the byte and the thread of the scale of each factor.

    ``before`` is the number of operands before the scales.
    """
    return {before + 1: Elements((chosen, _BIT)), before + 3: Elements((chosen, _BYTES))}


_TABLE: tuple[tuple[str, _Numbers], ...] = (
    ("bfe", {1: range(256), 2: range(256)}),
    ("bfi", {2: range(256), 3: range(256)}),
    ("createpolicy .range", {1: AtMost(2)}),
    ("applypriority .tensor", {}),
    ("applypriority .bulk", {1: _SIZE}),
    ("applypriority|discard", {1: (128,)}),
    ("pmevent .mask", {0: range(1 << 16)}),
    ("pmevent", {0: range(16)}),
    ("setmaxnreg", {0: range(24, 257, 8)}),
    ("st .bulk", {1: range(0, (1 << 24) + 1, 8), 2: (0,)}),
    ("fence .tensormap::generic .acquire", {1: (128,)}),
    # barriers
    ("bar|barrier .arrive", {0: _BARRIER, 1: range(32, 1 << 63, 32)}),
    ("bar|barrier .red", {0: _BARRIER, 1: OfThree(_THREADS)}),
    ("bar|barrier .warp|cluster", {}),
    ("bar|barrier", {0: _BARRIER, 1: _THREADS}),
    ("mbarrier .multicast::cluster::32b", {-1: range(1 << 32)}),
    ("mbarrier .init", {1: range(1, 1 << 20)}),
    ("mbarrier .noComplete", {1: range(1, 1 << 63)}),
    ("mbarrier .parity", {1: _BIT}),
    # copies
    ("cp .tensor .multicast::cluster .L2::cache_hint", {-2: _MASK}),
    ("cp .tensor .multicast::cluster", {-1: _MASK}),
    ("cp .tensor", {}),
    ("cp .bulk .ignore_oob", {2: _SIZE, 3: _ENDS, 4: _ENDS}),
    ("cp .bulk .multicast::cluster", {2: _SIZE, 4: _MASK}),
    ("cp .bulk .prefetch", {1: _SIZE}),
    ("cp .bulk", {2: _SIZE}),
    ("cp .ca .L2::cache_hint", {2: (4, 8, 16), -2: range(17)}),
    ("cp .cg .L2::cache_hint", {2: (16,), -2: range(17)}),
    ("cp .ca", {2: (4, 8, 16), 3: range(17)}),
    ("cp .cg", {2: (16,), 3: range(17)}),
    # tensor maps
    ("tensormap .cp_fenceproxy", {2: (128,)}),
    ("tensormap .box_dim|global_dim|global_stride|element_stride", {1: range(5)}),
    ("tensormap .elemtype", {1: range(13)}),
    ("tensormap .interleave_layout", {1: range(3)}),
    ("tensormap .swizzle_mode|swizzle_atomicity", {1: range(4)}),
    ("tensormap .fill_mode", {1: _BIT}),
    # matrices
    ("mma .sp::ordered_metadata .scale_vec::4X", {4: (0,), **_scales(5, (0,))}),
    ("mma .sp::ordered_metadata .kind::mxf4|kind::mxf4nvf4", {4: (0,), **_scales(5, (0, 2))}),
    ("mma .sp::ordered_metadata .block_scale", {4: (0,), **_scales(5, _BYTES)}),
    (f"{_SPARSE} .m16n8k8", {4: range(4)}),
    (f"{_SPARSE} .m16n8k16 .f16|bf16", {4: range(4)}),
    (f"{_SPARSE} .m16n8k32 .f32 .f16", {4: range(4)}),
    (f"{_SPARSE} .m16n8k16|m16n8k32", {4: _BIT}),
    (f"{_SPARSE} .m16n8k64 .s4|u4", {4: _BIT}),
    (_SPARSE, {4: (0,)}),
    ("mma .scale_vec::4X", _scales(3, (0,))),
    ("mma .kind::mxf4|kind::mxf4nvf4", _scales(3, (0, 2))),
    ("mma .block_scale", _scales(3, _BYTES)),
    ("tcgen05 .mma .ws|block_scale", {}),
    ("tcgen05 .mma", {-1: range(16)}),
    ("wgmma .sp .e4m3|e5m2", {4: (0,), 5: _BIT, 6: _SIGN, 7: _SIGN}),
    ("wgmma .sp .tf32", {4: _BIT, 5: _BIT, 6: _SIGN, 7: _SIGN}),
    ("wgmma .sp .f16|bf16", {4: _BIT, 5: _BIT, 6: _SIGN, 7: _SIGN, 8: _BIT, 9: _BIT}),
    ("wgmma .sp", {4: (0,), 5: _BIT}),
    ("wgmma .mma_async .tf32|e4m3|e5m2", {3: _BIT, 4: _SIGN, 5: _SIGN}),
    ("wgmma .mma_async .f16|bf16", {3: _BIT, 4: _SIGN, 5: _SIGN, 6: _BIT, 7: _BIT}),
    ("wgmma .mma_async", {3: _BIT}),
    ("wgmma .wait_group", {0: range(1 << 63)}),
)


@functools.cache
def _rows() -> Mapping[str, list[tuple[tuple[frozenset[str], ...], _Numbers]]]:
    return group_by(
        (opcode, (choices_of(form), numbers)) for form, numbers in _TABLE for opcode in form.split()[0].split("|")
    )


@functools.lru_cache(maxsize=4096)
def numbers_of(opcode: str, modifiers: tuple[str, ...]) -> _Numbers:
    """Return the numbers that positions allow, by position. Other positions allow all numbers."""
    rows = _rows().get(opcode, ())
    return next((n for words, n in rows if not any(choices.isdisjoint(modifiers) for choices in words)), {})
