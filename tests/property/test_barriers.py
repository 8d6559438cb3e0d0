"""Random structured kernels with barriers in divergent code: every thread must end where an interpreter ends."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cujit.artifact import Artifact
from cujit.devices.cpu.backend import CpuBackend
from cujit.devices.device import Device
from cujit.devices.shapes import Dim3, LaunchShape
from property.effort import times

MASK = (1 << 32) - 1
Statement = tuple[object, ...]


def random_body(rng: random.Random, depth: int) -> list[Statement]:
    """Statements: arithmetic, a barrier that counts, an exchange, a branch or a loop by bits of a register, an exit."""
    found: list[Statement] = []
    for _ in range(rng.randint(1, 4)):
        kind = rng.choice(["mix", "mix", "count", "count", "if", "loop", "leave"] if depth else ["mix", "count"])
        if kind == "mix":
            found.append((kind, rng.randrange(1, 999), rng.randrange(32)))
        elif kind == "count":
            found.append((kind, rng.choice([1, 2, 4, 8, 16])))
        elif kind == "if":
            bit = rng.choice([1, 2, 4, 16])
            found.append(
                (kind, bit, random_body(rng, depth - 1), random_body(rng, depth - 1) if rng.random() < 0.6 else [])
            )
        elif kind == "loop":
            found.append((kind, rng.choice([1, 2, 3]), random_body(rng, depth - 1)))
        elif rng.random() < 0.3:
            found.append((kind, rng.choice([3, 7, 12])))
    return found


class Writer:
    """Writes a body as PTX. ``x`` is a thread's value; loops count in registers of their own."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.labels = 0

    def write(self, body: list[Statement], depth: int = 0) -> None:
        for kind, *given_ in body:
            getattr(self, f"_{kind}")(depth, *given_)

    def _mix(self, _depth: int, by: int, turn: int) -> None:
        self.lines.append(f"mad.lo.u32 x, x, {2 * by + 1}, {by}; shf.l.wrap.b32 x, x, x, {turn};")

    def _count(self, _depth: int, bit: int) -> None:
        self.lines.append(
            f"and.b32 u, x, {bit}; setp.ne.u32 p, u, 0; barrier.red.popc.u32 u, 0, p; mad.lo.u32 x, x, 7, u;"
        )

    def _if(self, depth: int, bit: int, yes: list[Statement], no: list[Statement]) -> None:
        self.labels += 1
        k = self.labels
        self.lines.append(f"and.b32 u, x, {bit}; setp.eq.u32 p, u, 0; @p bra ELSE{k};")
        self.write(yes, depth)
        self.lines.append(f"bra END{k}; ELSE{k}:")
        self.write(no, depth)
        self.lines.append(f"END{k}:")

    def _loop(self, depth: int, mask: int, body: list[Statement]) -> None:
        self.labels += 1
        k = self.labels
        self.lines.append(f"and.b32 c{depth}, x, {mask}; LOOP{k}:")
        self.write(body, depth + 1)
        self.lines.append(f"sub.s32 c{depth}, c{depth}, 1; setp.ge.s32 p, c{depth}, 0; @p bra LOOP{k};")

    def _leave(self, _depth: int, bits: int) -> None:
        self.lines.append(f"and.b32 u, x, {bits}; setp.eq.u32 p, u, {bits}; st.global.u32 [at], x; @p exit;")


def as_ptx(body: list[Statement]) -> str:
    writer = Writer()
    writer.write(body)
    return "\n".join([
        ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 out) {",
        ".reg .b32 x, u, t, c<4>; .reg .b64 at; .reg .pred p;",
        "ld.param.u64 at, [out]; mov.u32 t, %tid.x; mad.wide.u32 at, t, 4, at; mul.lo.u32 x, t, 40503;",
        *writer.lines,
        "st.global.u32 [at], x; ret; }",
    ])  # fmt: skip


class Thread:
    """One thread: ``x``, and its way as a generator that stops at every barrier with the predicate that it brings."""

    def __init__(self, number: int, body: list[Statement]) -> None:
        self.x = number * 40503 & MASK
        self.found = 0
        self.way = self.run(body)

    def run(self, body: list[Statement]) -> Iterator[bool]:
        yield from self.walk(body)

    def walk(self, body: list[Statement]) -> Iterator[bool]:
        for kind, *rest in body:
            if kind == "mix":
                by, turn = int(str(rest[0])), int(str(rest[1]))
                x = self.x * (2 * by + 1) + by & MASK
                self.x = (x << turn | x >> (32 - turn)) & MASK
            elif kind == "count":
                yield bool(self.x & int(str(rest[0])))
                self.x = self.x * 7 + self.found & MASK
            elif kind == "if":
                yield from self.walk(rest[1] if self.x & int(str(rest[0])) else rest[2])  # type: ignore[arg-type]
            elif kind == "loop":
                for _ in range((self.x & int(str(rest[0]))) + 1):
                    yield from self.walk(rest[1])  # type: ignore[arg-type]
            elif self.x & int(str(rest[0])) == rest[0]:
                raise ExitedError


class ExitedError(Exception):
    """A thread that ends early."""


def interpret(body: list[Statement], block: int) -> list[int]:
    """Run every thread to its next barrier; all that are left meet there."""
    threads = [Thread(t, body) for t in range(block)]
    left = threads
    while left:
        there, holding = [], 0
        for thread in left:
            try:
                holding += next(thread.way)
            except (StopIteration, ExitedError):
                continue
            there.append(thread)
        for thread in there:
            thread.found = holding
        left = there
    return [thread.x for thread in threads]


@settings(max_examples=times(12))
@given(st.integers(0, 2**32 - 1), st.sampled_from([32, 40, 64, 96]))
def test_barriers_in_divergent_code_bring_all_threads_together(seed: int, block: int) -> None:
    body = random_body(random.Random(seed), 3)
    device = Device(CpuBackend(1))
    out = device.array(np.full(block, 0xDEAD, np.uint32))
    kernel = device.load(Artifact.of(as_ptx(body))).kernels["k"]
    kernel.launch(LaunchShape(Dim3(1), Dim3(block)), out.address.to_bytes(8, "little"))
    assert out.numpy().tolist() == interpret(body, block)
