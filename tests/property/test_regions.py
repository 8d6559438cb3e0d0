"""Random kernels with barriers: cut at their barriers they compute what they compute with a stack for each warp."""

from __future__ import annotations

import ctypes
import random

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from cujit.devices.cpu.analysis.body import Body
from cujit.devices.cpu.analysis.fission import Fission, fission
from cujit.devices.cpu.analysis.uniformity import analyse
from cujit.devices.cpu.frontend.layout import ModuleLayout
from cujit.devices.cpu.ir.refusals import Refusals
from cujit.devices.cpu.native.library import compile_kernel
from cujit.devices.cpu.pipeline import ir_of, prepare
from cujit.devices.cpu.run.grid import Workers
from cujit.devices.cpu.run.launch import Launch
from cujit.devices.shapes import Dim3, LaunchShape
from cujit.formats.ptx.parser import parse
from property.effort import times

VALUES = 4
"""Registers that random operations work on; threads hand them to each other through shared memory."""
BLOCKS = 2
SHARED_BYTES = 8192
SHAPES = [Dim3(32), Dim3(64), Dim3(96), Dim3(40), Dim3(16, 16), Dim3(8, 10), Dim3(32, 3), Dim3(5, 7, 2)]

HEAD = """
.version 7.8
.target sm_80
.address_size 64
.visible .entry walk(.param .u64 out, .param .u32 common)
{
.shared .align 4 .b8 box[4096];
.reg .b32 %r<40>; .reg .b64 %a<6>; .reg .pred %p<6>;
ld.param.u64 %a1, [out]; ld.param.u32 %r4, [common];
mov.u32 %r10, %tid.x; mov.u32 %r11, %tid.y; mov.u32 %r12, %tid.z; mov.u32 %r13, %ntid.x; mov.u32 %r14, %ntid.y;
mad.lo.s32 %r24, %r12, %r14, %r11; mad.lo.s32 %r15, %r24, %r13, %r10;
mov.u32 %r25, %ntid.z; mul.lo.s32 %r26, %r25, %r14; mul.lo.s32 %r16, %r26, %r13;
mov.u32 %r17, %ctaid.x; shr.u32 %r22, %r15, 5;
mov.u32 %r0, %r15; mov.u32 %r1, %r10; mov.u32 %r2, %r11; add.s32 %r3, %r4, 1;
shl.b32 %r27, %r15, 2; mov.u32 %r19, box; add.s32 %r18, %r19, %r27;
st.shared.u32 [%r18], 0; bar.sync 0;
"""
TAIL = """
DONE: mad.lo.s32 %r20, %r17, %r16, %r15; mul.wide.s32 %a2, %r20, 16; add.s64 %a3, %a1, %a2;
st.global.u32 [%a3], %r0; st.global.u32 [%a3+4], %r1; st.global.u32 [%a3+8], %r2; st.global.u32 [%a3+12], %r3;
ret;
}
"""


class Writer:
    """Writes one random kernel, statement by statement; those that synchronise are run by all that have not exited."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lines: list[str] = []
        self._labels = 0

    def text(self) -> str:
        self.statements(2)
        return "\n".join([HEAD, *self.lines, TAIL])

    def statements(self, depth: int) -> None:
        for _ in range(self.rng.randint(2, 4)):
            plain = [self.work, self.exchange, self.exchange, self.divergent]
            deep = [self.common_loop, self.common_branch, self.apart, self.leave]
            kind = self.rng.choice([*plain, *(deep if depth else [])])
            kind(depth - 1)

    def _value(self) -> str:
        return f"%r{self.rng.randrange(VALUES)}"

    def _label(self) -> str:
        self._labels += 1
        return f"L{self._labels}"

    def _counter(self) -> str:
        self._labels += 1
        return f"%n{self._labels}"

    def work(self, _: int = 0) -> None:
        for _ in range(self.rng.randint(1, 3)):
            d, a, b = self._value(), self._value(), self._value()
            op = self.rng.choice(["add.s32", "xor.b32", "mul.lo.s32", "sub.s32", "and.b32", "min.s32", "shr.u32"])
            self.lines.append(f"{op} {d}, {a}, {self.rng.choice([1, 3, 4]) if op == 'shr.u32' else b};")

    def exchange(self, _: int = 0) -> None:
        """Give a value to shared memory, and take another thread's."""
        far = self.rng.choice([1, 3, 16, 32])
        self.lines += [
            f"st.shared.u32 [%r18], {self._value()}; bar.sync 0;",
            f"add.s32 %r20, %r15, {far}; rem.u32 %r20, %r20, %r16; shl.b32 %r20, %r20, 2; add.s32 %r20, %r20, %r19;",
            f"ld.shared.u32 {self._value()}, [%r20]; bar.sync 0;",
        ]

    def _condition(self) -> str:
        bits = self.rng.choice([1, 2, 5, 16])
        return f"and.b32 %r21, {self._value()}, {bits}; setp.eq.s32 %p1, %r21, 0;"

    def divergent(self, _: int = 0) -> None:
        """Branch as each thread's value says; or loop as often as that."""
        end = self._label()
        if self.rng.randrange(2):
            self.lines.append(f"{self._condition()} @%p1 bra {end};")
            self.work()
        else:
            again, value = self._label(), self._value()
            self.lines.append(f"and.b32 %r23, {value}, 3; {again}:")
            self.work()
            self.lines.append(f"sub.s32 %r23, %r23, 1; setp.gt.s32 %p2, %r23, 0; @%p2 bra {again};")
        self.lines.append(f"{end}:")

    def common_loop(self, depth: int) -> None:
        again = self._label()
        counter = f"%r{30 + depth}"
        self.lines.append(f"and.b32 {counter}, %r4, 1; add.s32 {counter}, {counter}, 1; {again}:")
        self.statements(depth)
        self.lines.append(f"sub.s32 {counter}, {counter}, 1; setp.gt.s32 %p3, {counter}, 0; @%p3 bra {again};")

    def common_branch(self, depth: int) -> None:
        self._either(f"and.b32 %r21, %r4, {self.rng.choice([1, 2])}; setp.eq.s32 %p1, %r21, 0;", depth)

    def _either(self, condition: str, depth: int) -> None:
        other, end = self._label(), self._label()
        self.lines.append(f"{condition} @%p1 bra {other};")
        self.statements(depth)
        self.lines.append(f"bra {end}; {other}:")
        self.statements(depth)
        self.lines.append(f"{end}:")

    def apart(self, _: int) -> None:
        """Warps come to different barriers, equally often."""
        other, end = self._label(), self._label()
        self.lines.append(f"and.b32 %r21, %r22, 1; setp.eq.s32 %p1, %r21, 0; @%p1 bra {other};")
        self.exchange()
        self.lines.append(f"bra {end}; {other}:")
        self.work()
        self.exchange()
        self.lines.append(f"{end}:")

    def leave(self, _: int) -> None:
        """Some threads go to the end."""
        test = self.rng.choice(["setp.gt.u32 %p4, %r15, 37;", "setp.lt.u32 %p4, %r15, 9;", "setp.eq.s32 %p4, %r22, 1;"])
        self.lines.append(f"{test} @%p4 bra DONE;")


def prepared(text: str) -> Body:
    module = parse(text)
    refusals = Refusals()
    body = prepare(module.entries[0], ModuleLayout(module, refusals), refusals)
    assert not refusals.items
    return body


def parts_of(body: Body, block: Dim3) -> Fission | None:
    return fission(body, analyse(body.program, body.graph, block), block)


def results(body: Body, block: Dim3, common: int, *, stacks: bool) -> npt.NDArray[np.uint32]:
    out = np.full((BLOCKS * block.volume, VALUES), 0xDEAD, np.uint32)
    code = compile_kernel(ir_of(body, block, stacks=stacks), "run")
    parameters = ctypes.create_string_buffer(int(out.ctypes.data).to_bytes(8, "little") + common.to_bytes(4, "little"))
    launch = Launch(
        parameters=ctypes.addressof(parameters), grid_x=BLOCKS, grid_y=1, grid_z=1,
        shared_bytes=SHARED_BYTES, together=1, cluster_x=1, cluster_y=1, cluster_z=1,
    )  # fmt: skip
    workers = Workers(1)
    workers.run(code.address, launch, workers.share(LaunchShape(Dim3(BLOCKS), block)), SHARED_BYTES, 0)
    return out


def compare(seed: int, block: Dim3, common: int) -> Fission | None:
    """Run a random kernel both ways; give how it was cut."""
    body = prepared(Writer(seed).text())
    parts = parts_of(body, block)
    if parts is not None:
        wanted = results(body, block, common, stacks=True)
        np.testing.assert_array_equal(results(body, block, common, stacks=False), wanted)
    return parts


@settings(max_examples=times(12))
@given(st.integers(0, 2**32 - 1), st.sampled_from(SHAPES), st.integers(0, 3))
def test_kernel_split_at_barriers_computes_the_same(seed: int, block: Dim3, common: int) -> None:
    compare(seed, block, common)


def _kernel(*statements: str) -> Body:
    return prepared("\n".join([HEAD, *statements, TAIL]))


def _handed_over(far: int = 1) -> str:
    return (
        f"st.shared.u32 [%r18], %r0; bar.sync 0; add.s32 %r20, %r15, {far}; rem.u32 %r20, %r20, %r16; "
        "shl.b32 %r20, %r20, 2; add.s32 %r20, %r20, %r19; ld.shared.u32 %r1, [%r20]; bar.sync 0;"
    )


def test_consecutive_barriers_give_shared_regions() -> None:
    parts = parts_of(_kernel(_handed_over()), Dim3(64))
    assert parts is not None
    assert len(parts.regions) == 4
    assert parts.blockwide.together
    assert not parts.blockwide.leaves


def test_thread_index_values_are_recomputed_after_a_barrier() -> None:
    parts = parts_of(_kernel(_handed_over()), Dim3(64))
    assert parts is not None
    assert not {"%r10", "%r18", "%r19"} & {reg.name for reg in parts.kept}


def test_barrier_after_exit_of_whole_warps_is_split() -> None:
    body = _kernel("setp.eq.s32 %p4, %r22, 1; @%p4 bra DONE;", _handed_over())
    parts = parts_of(body, Dim3(64))
    assert parts is not None
    assert parts.blockwide.leaves
    assert parts.blockwide.together  # those that leave do not count
    wanted = results(body, Dim3(64), 0, stacks=True)
    np.testing.assert_array_equal(results(body, Dim3(64), 0, stacks=False), wanted)


def test_warps_at_different_barriers_take_turns() -> None:
    arms = [
        "setp.eq.s32 %p1, %r22, 0; @%p1 bra A;", _handed_over(), "bra B;",
        "A:", _handed_over(3), "add.s32 %r1, %r1, 7; B:",
    ]  # fmt: skip
    body = _kernel(*arms)
    parts = parts_of(body, Dim3(96))
    assert parts is not None
    assert not parts.blockwide.together
    wanted = results(body, Dim3(96), 0, stacks=True)
    np.testing.assert_array_equal(results(body, Dim3(96), 0, stacks=False), wanted)


def test_lanes_at_different_barriers_are_not_split() -> None:
    arms = ["and.b32 %r21, %r15, 1; setp.eq.s32 %p1, %r21, 0; @%p1 bra A;", "bar.sync 0; bra B;", "A: bar.sync 0; B:"]
    assert parts_of(_kernel(*arms), Dim3(64)) is None


def test_barriers_with_their_own_numbers_are_not_split() -> None:
    assert parts_of(_kernel("bar.sync 1;"), Dim3(64)) is None
    assert parts_of(_kernel("bar.sync 0, 64;"), Dim3(64)) is None


def test_loop_that_waits_for_memory_is_not_split() -> None:
    loop = "W: ld.volatile.shared.u32 %r20, [%r18]; setp.ne.s32 %p1, %r20, 0; @%p1 bra W;"
    assert parts_of(_kernel(loop), Dim3(64)) is None
