"""Shared memory at patterns: kernels cut at their barriers compute what they compute with a stack for each warp."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cujit.devices.cpu.analysis.body import Body
from cujit.devices.cpu.analysis.fission import Fission
from cujit.devices.cpu.analysis.patterns import vector_access
from cujit.devices.shapes import Dim3
from property.effort import times
from property.test_regions import TAIL, parts_of, prepared, results

SHAPES = [Dim3(32), Dim3(64), Dim3(128), Dim3(16, 8), Dim3(40), Dim3(8, 10), Dim3(32, 3)]
OPS = ["and.b32", "or.b32", "xor.b32", "shl.b32", "shr.u32", "add.s32", "sub.s32"]
NUMBERS = [1, 2, 3, 4, 7, 8, 12, 16, 24, 31, 32, 60, 64]

# %r15 is the thread's number, %r19 where the box begins, in which each thread puts eight words.
HEAD = """
.version 7.8
.target sm_80
.address_size 64
.visible .entry walk(.param .u64 out, .param .u32 common)
{
.shared .align 4 .b8 gap[4]; .shared .align 4 .b8 box[4096];
.reg .b32 %r<40>; .reg .b32 %i<400>; .reg .b64 %a<6>; .reg .pred %p<10>; .reg .f32 %f<2>;
ld.param.u64 %a1, [out]; ld.param.u32 %r4, [common];
mov.u32 %r10, %tid.x; mov.u32 %r11, %tid.y; mov.u32 %r13, %ntid.x; mov.u32 %r14, %ntid.y;
mad.lo.s32 %r15, %r11, %r13, %r10; mul.lo.s32 %r16, %r13, %r14; mov.u32 %r17, %ctaid.x; mov.u32 %r19, box;
mul.lo.s32 %r0, %r15, 40503; and.b32 %r0, %r0, 1023; xor.b32 %r1, %r0, %r4; shr.u32 %r2, %r0, 3; mov.u32 %r3, %r10;
shl.b32 %r18, %r15, 5; add.s32 %r18, %r18, %r19;
"""
FILL = " ".join(f"st.shared.u32 [%r18+{4 * k}], %r{k % 4};" for k in range(8))
LAST = "bar.sync 0; shl.b32 %r21, %r15, 2; add.s32 %r21, %r21, %r19; ld.shared.u32 %r0, [%r21];"


class Writer:
    """Writes accesses at random patterns of the thread's number, after each other behind barriers."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self._count = 0

    def text(self) -> str:
        steps = [self.read, self.read, self.exchange, self.halving]
        return "\n".join([HEAD, FILL, *(self.rng.choice(steps)() for _ in range(self.rng.randint(2, 5))), LAST, TAIL])

    def _new(self) -> str:
        self._count += 1
        return f"%i{self._count}"

    def read(self) -> str:
        """Load from anywhere."""
        at, lines = self.rng.choice(["%r10", "%r15"]), []
        for _ in range(self.rng.randint(1, 4)):
            new, op = self._new(), self.rng.choice(OPS)
            lines.append(f"{op} {new}, {at}, {self.rng.choice(NUMBERS[:4] if op.startswith('sh') else NUMBERS)};")
            at = new
        word, offset, place, value = self._new(), self._new(), self._new(), self.rng.randrange(4)
        lines.append(f"and.b32 {word}, {at}, 127; shl.b32 {offset}, {word}, 2; add.s32 {place}, {offset}, %r19;")
        lines.append(f"bar.sync 0; ld.shared.u32 %r20, [{place}+{4 * self.rng.randrange(9)}];")
        return " ".join([*lines, f"add.s32 %r{value}, %r{value}, %r20;"])

    def exchange(self) -> str:
        """Put pairs in order that lie apart by a power of two."""
        return "bar.sync 0; " + self._exchange(str(1 << self.rng.randrange(7)))

    def halving(self) -> str:
        """Do so in a loop in which they come closer."""
        label = f"L{self._new()[1:]}"
        start = f"and.b32 %r35, %r4, 3; shl.b32 %r35, {self.rng.choice([1, 3, 8, 12, 16])}, %r35;"
        step = self._exchange("%r35")
        return f"{start} {label}: bar.sync 0; {step} shr.u32 %r35, %r35, 1; setp.ne.s32 %p3, %r35, 0; @%p3 bra {label};"

    def _exchange(self, apart: str) -> str:
        mask, low, twice, first, place, far, other = (self._new() for _ in range(7))
        label = f"E{first[1:]}"
        stores = f"st.shared.u32 [{place}], %r21; st.shared.u32 [{other}], %r20;"
        guarded = self.rng.choice([
            f"@%p1 bra {label}; {stores} {label}:",
            f"@!%p1 bra {label}; st.shared.u32 [{place}], %r21; bra {label}; {label}:",
            f"@%p1 bra {label}; add.s32 %r21, %r21, 1; {stores} {label}:",
            f"@%p1 st.shared.u32 [{place}], %r21;",
            stores,
        ])  # fmt: skip
        return (
            f"sub.s32 {mask}, {apart}, 1; and.b32 {low}, {self.rng.choice([f'{mask}, %r15', f'%r15, {mask}'])}; "
            f"shl.b32 {twice}, %r15, 1; sub.s32 {first}, {twice}, {low}; shl.b32 {first}x, {first}, 2; "
            f"add.s32 {place}, {first}x, %r19; shl.b32 {far}, {apart}, 2; add.s32 {other}, {place}, {far}; "
            f"ld.shared.u32 %r20, [{place}]; ld.shared.u32 %r21, [{other}]; setp.lt.u32 %p1, %r20, %r21; "
            f"{self.rng.choice(['', 'and.b32 %r22, %r15, 8; setp.eq.s32 %p2, %r22, 0; xor.pred %p1, %p1, %p2;'])} "
            f"{guarded}"
        ).replace(f"{first}x", self._new())


def compare(text: str, block: Dim3, common: int) -> Fission:
    """Run a kernel both ways; give how it was cut."""
    body = prepared(text)
    parts = parts_of(body, block)
    assert parts is not None
    wanted = results(body, block, common, stacks=True)
    np.testing.assert_array_equal(results(body, block, common, stacks=False), wanted)
    return parts


@settings(max_examples=times(12))
@given(st.integers(0, 2**32 - 1), st.sampled_from(SHAPES), st.integers(0, 3))
def test_pattern_accesses_compute_the_same(seed: int, block: Dim3, common: int) -> None:
    compare(Writer(seed).text(), block, common)


def _kernel(*statements: str) -> str:
    return "\n".join([HEAD, FILL, "bar.sync 0;", *statements, LAST, TAIL])


def _windows(body: Body, block: Dim3) -> list[tuple[int, ...]]:
    """List where the lanes' elements are in the windows of each access behind the first barrier."""
    parts = parts_of(body, block)
    assert parts is not None
    region = parts.regions[1]
    found = [vector_access(op, region.patterns) for b in region.graph.blocks for op in b.ops]
    return [window.places for window in found if window is not None]


def _load(*index: str) -> str:
    """Load the word that ``%i1`` counts."""
    return " ".join([*index, "shl.b32 %i8, %i1, 2; add.s32 %i9, %i8, %r19; ld.shared.u32 %r1, [%i9];"])


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ("and.b32 %i1, %r15, 3;", [k & 3 for k in range(32)]),
        ("xor.b32 %i1, %r15, 5;", [k ^ 5 for k in range(32)]),
        ("shl.b32 %i1, %r15, 1;", [2 * k for k in range(32)]),
        ("shr.u32 %i1, %r15, 2;", [k >> 2 for k in range(32)]),
        ("and.b32 %i0, %r15, 7; shl.b32 %i2, %r15, 1; sub.s32 %i1, %i2, %i0;", [2 * k - (k & 7) for k in range(32)]),
    ],
    ids=["and", "xor", "twice", "quarter", "pairs"],
)
def test_pattern_of_the_thread_number_is_one_window(index: str, words: list[int]) -> None:
    text = _kernel(_load(index)).replace("%i0", "%i3")
    # The box begins four bytes behind the multiple of a vector that windows begin at.
    assert _windows(prepared(text), Dim3(64)) == [tuple(k + 1 for k in words)]
    compare(text, Dim3(64), 1)


def test_distant_or_unknown_addresses_have_no_window() -> None:
    for index in ("mul.lo.s32 %i1, %r15, 9;", "and.b32 %i1, %r15, %r0;", "xor.b32 %i1, %r0, 1;"):
        assert not _windows(prepared(_kernel(_load(index))), Dim3(64))


def test_register_written_while_lanes_wait_has_no_window() -> None:
    parted = "and.b32 %r21, %r0, 1; setp.eq.s32 %p1, %r21, 0; mov.u32 %i2, 0; W: add.s32 %i2, %i2, 1;"
    parted += (
        "and.b32 %r22, %r15, 3; add.s32 %r23, %r22, %i2; setp.lt.s32 %p2, %i2, %r0; @%p2 bra W; mov.u32 %i1, %r23;"
    )
    assert not _windows(prepared(_kernel(_load(parted))), Dim3(64))


def test_stores_after_a_branch_are_guarded_at_window_loads() -> None:
    place = "and.b32 %i1, %r15, 1; shl.b32 %i2, %r15, 1; sub.s32 %i3, %i2, %i1; "
    place += "shl.b32 %i4, %i3, 2; add.s32 %i5, %i4, %r19;"
    branch = "setp.lt.u32 %p1, %r20, %r1; @%p1 bra E; st.shared.u32 [%i5], %r1; E:"
    loaded = compare(_kernel(place, "ld.shared.u32 %r20, [%i5];", branch), Dim3(64), 1).regions[1]
    assert len(loaded.if_converted) == 1
    assert len(loaded.graph.blocks) == 2
    elsewhere = compare(_kernel(place, "ld.shared.u32 %r20, [%i5+8];", branch), Dim3(64), 1).regions[1]
    assert not elsewhere.if_converted


def test_converging_lanes_get_a_version_for_each_distance() -> None:
    writer = Writer(3)
    writer.rng = random.Random(3)
    parts = compare(_kernel(writer.halving()), Dim3(128), 3)
    looped = [region for region in parts.regions if region.versions]
    assert [list(region.versions) for region in looped] == [[1, 2, 4, 8, 16, 32]]
    for common in range(3):
        compare(_kernel(writer.halving()), Dim3(128), common)


def test_distance_stored_as_float_bits_gets_no_versions() -> None:
    writer = Writer(0)
    distance = "and.b32 %r35, %r4, 3; add.s32 %r35, %r35, 1; mov.b32 %f1, %r35; mov.b32 %f1, %r35; "
    parts = compare(_kernel(distance + writer.read(), "bar.sync 0;" + _pairs()), Dim3(64), 1)
    assert not any(region.versions for region in parts.regions)


def _pairs() -> str:
    """Load words at the distance that ``%f1`` has the bits of."""
    return (
        "mov.b32 %i200, %f1; sub.s32 %i201, %i200, 1; and.b32 %i202, %r15, %i201; shl.b32 %i205, %r15, 1; "
        "sub.s32 %i206, %i205, %i202; shl.b32 %i203, %i206, 2; "
        "add.s32 %i204, %i203, %r19; ld.shared.u32 %r20, [%i204]; add.s32 %r3, %r3, %r20;"
    )
