"""Random control flow, irreducible shapes included: every lane must end where it would have ended alone."""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cujit.artifact import Artifact
from cujit.devices.cpu.backend import CpuBackend
from cujit.devices.device import Device
from cujit.devices.shapes import Dim3, LaunchShape
from property.effort import times

REGISTERS = 4
FUEL = 40
MASK = (1 << 32) - 1

Action = tuple[str, int, int, int]
Node = tuple[list[Action], tuple[int, int, int], int, int]

# What a warp does together; in a graph it is always the same, so that lanes meet wherever they are.
TOGETHER = {
    "add": "redux.sync.add.u32 {d}, {a}, -1;",
    "max": "redux.sync.max.u32 {d}, {a}, -1;",
    "ballot": "and.b32 %r7, {a}, 1; setp.eq.u32 %p3, %r7, 1; vote.sync.ballot.b32 {d}, %p3, -1;",
    "match": "and.b32 %r7, {a}, 3; match.any.sync.b32 {d}, %r7, -1;",
    "all": "and.b32 %r7, {a}, 1; match.all.sync.b32 {d}, %r7, -1;",
}


def random_graph(seed: int, together: Sequence[str] = ()) -> list[Node]:
    """Blocks of a few operations, each ending in a branch on bits of a register to any two blocks.

    ``together`` are operations of ``TOGETHER`` that may be among them.
    """
    rng = random.Random(seed)
    count = rng.randint(2, 9)
    nodes: list[Node] = []
    for _ in range(count):
        actions = [_random_action(rng, together) for _ in range(rng.randint(0, 3))]
        test = (rng.randrange(REGISTERS + 1), rng.choice([1, 2, 3, 4, 8, 32]), rng.randrange(2))
        nodes.append((actions, test, rng.randrange(count + 1), rng.randrange(count + 1)))
    return nodes


def _random_action(rng: random.Random, together: Sequence[str] = ()) -> Action:
    d, a, b = (rng.randrange(REGISTERS) for _ in range(3))
    if together and rng.random() < 0.4:
        return rng.choice(together), d, a, b
    return rng.choice(["add", "xor", "mul.lo", "sub", "addi"]), d, a, b


def as_ptx(nodes: list[Node]) -> str:
    """The kernel: register 0 starts as the thread's number, register ``REGISTERS`` is the same in all threads."""
    lines = [
        ".version 7.8", ".target sm_80", ".address_size 64",
        ".visible .entry walk(.param .u64 out, .param .u32 common)", "{",
        ".reg .b32 %r<20>; .reg .b64 %a<4>; .reg .pred %p<4>;",
        "ld.param.u64 %a1, [out]; ld.param.u32 %r4, [common];",
        "mov.u32 %r10, %ctaid.x; mov.u32 %r11, %ntid.x; mov.u32 %r12, %tid.x; mad.lo.s32 %r0, %r10, %r11, %r12;",
        f"mov.u32 %r1, 7; mov.u32 %r2, %r4; mov.u32 %r3, 1; mov.u32 %r5, {FUEL}; mov.u32 %r13, %r0;",
    ]  # fmt: skip
    for k, (actions, (register, mask, flip), yes, no) in enumerate(nodes):
        lines.append(f"L{k}:")
        lines.append("sub.s32 %r5, %r5, 1; setp.eq.s32 %p1, %r5, 0; @%p1 bra DONE;")
        for name, d, a, b in actions:
            if name.startswith("warp "):
                lines.append(TOGETHER[name[5:]].format(d=f"%r{d}", a=f"%r{a}"))
            elif name == "addi":
                lines.append(f"add.s32 %r{d}, %r{a}, {b + 1};")
            else:
                lines.append(f"{name}.{'b32' if name == 'xor' else 's32'} %r{d}, %r{a}, %r{b};")
        lines.append(f"and.b32 %r6, %r{register}, {mask}; setp.eq.s32 %p2, %r6, 0;")
        targets = [f"L{t}" if t < len(nodes) else "DONE" for t in (yes, no)]
        lines.append(f"@{'!' if flip else ''}%p2 bra {targets[0]};")
        lines.append(f"bra {targets[1]};")
    lines += ["DONE:", "mul.wide.u32 %a2, %r13, 20; add.s64 %a3, %a1, %a2;"]
    lines += [f"st.global.u32 [%a3+{4 * k}], %r{r};" for k, r in enumerate((0, 1, 2, 3, 5))]
    return "\n".join([*lines, "ret;", "}"])


def walk_alone(nodes: list[Node], thread: int, common: int) -> list[int]:
    (found,) = walk_together(nodes, [thread], common)
    return found


def walk_together(nodes: list[Node], threads: Sequence[int], common: int) -> list[list[int]]:
    """Run the threads of a warp: what they do together takes place when all that have not left have come to it."""
    lanes = [_lane(nodes, thread, common) for thread in threads]
    ends: dict[int, list[int]] = {}
    given: dict[int, int | None] = dict.fromkeys(range(len(lanes)))
    while given:
        asked: dict[int, tuple[str, int]] = {}
        for k, value in given.items():
            name, operand, ends[k] = lanes[k].send(value)
            if name:
                asked[k] = name, operand
        given = {k: _exchanged(name, k, {j: v for j, (_, v) in asked.items()}) for k, (name, _) in asked.items()}
    return [ends[k] for k in range(len(lanes))]


def _exchanged(name: str, lane: int, values: dict[int, int]) -> int:
    if name == "add":
        return sum(values.values()) & MASK
    if name == "max":
        return max(values.values())
    if name == "ballot":
        return sum(1 << k for k, v in values.items() if v & 1)
    low = 3 if name == "match" else 1
    same = sum(1 << k for k, v in values.items() if v & low == values[lane] & low)
    return same if name == "match" or same == sum(1 << k for k in values) else 0


def _lane(nodes: list[Node], thread: int, common: int) -> Generator[tuple[str, int, list[int]], int | None, None]:
    """Walk as one thread: it asks for what the warp does together, and tells its registers in the end."""
    registers = [thread, 7, common, 1, common]
    fuel, at = FUEL, 0
    while at < len(nodes):
        fuel -= 1
        if fuel == 0:
            break
        actions, (register, mask, flip), yes, no = nodes[at]
        for name, d, a, b in actions:
            x, y = registers[a], registers[b]
            if name.startswith("warp "):
                got = yield name[5:], x, []
                assert got is not None
                registers[d] = got
                continue
            registers[d] = {
                "add": x + y, "xor": x ^ y, "mul.lo": x * y, "sub": x - y, "addi": x + b + 1
            }[name] & MASK  # fmt: skip
        at = yes if ((registers[register] & mask) == 0) != bool(flip) else no
    yield "", 0, [*registers[:4], fuel]


def launched(nodes: list[Node], block: int, common: int) -> np.ndarray[tuple[int, int], np.dtype[np.uint32]]:
    device = Device(CpuBackend(1))
    out = device.array(np.full((2 * block, 5), 0xDEAD, np.uint32))
    kernel = device.load(Artifact.of(as_ptx(nodes))).kernels["walk"]
    parameters = out.address.to_bytes(8, "little") + common.to_bytes(4, "little")
    kernel.launch(LaunchShape(Dim3(2), Dim3(block)), parameters)
    return out.numpy()


@settings(max_examples=times(20))
@given(st.integers(0, 2**32 - 1), st.sampled_from([32, 40, 64]), st.integers(0, 7))
def test_every_lane_ends_as_it_would_alone(seed: int, block: int, common: int) -> None:
    nodes = random_graph(seed)
    out = launched(nodes, block, common)
    expected = np.array([walk_alone(nodes, t, common) for t in range(2 * block)], np.uint32)
    np.testing.assert_array_equal(out, expected)


@settings(max_examples=times(12))
@given(st.integers(0, 2**32 - 1), st.sampled_from(sorted(TOGETHER)), st.sampled_from([32, 40]), st.integers(0, 7))
def test_lanes_execute_warp_operations_together_anywhere(seed: int, together: str, block: int, common: int) -> None:
    nodes = random_graph(seed, [f"warp {together}"])
    out = launched(nodes, block, common)
    expected = []
    for first in range(0, 2 * block, block):
        for warp in range(first, first + block, 32):
            expected += walk_together(nodes, range(warp, min(warp + 32, first + block)), common)
    np.testing.assert_array_equal(out, np.array(expected, np.uint32))
