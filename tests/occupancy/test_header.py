"""Our arithmetic beside NVIDIA's occupancy header, over random cases of every architecture of the table."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from cujit.arch.multiprocessor import LIMITS, ProcessorLimits
from cujit.occupancy.choosing import best_block
from cujit.occupancy.residency import Demand, Limiter, Residency, residency
from cujit.toolchain.toolset import Toolchain
from occupancy.header import UNLIMITED, Answer, Case, Header, build_header

CASES = 100_000
BEST_CASES = 3_000


@pytest.fixture(scope="module")
def header(shared_toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Header:
    found = build_header(shared_toolchain.headers.paths, tmp_path_factory.mktemp("header"))
    if isinstance(found, str):
        pytest.skip(found)
    return found


def rows(header: Header) -> list[ProcessorLimits]:
    """The architectures that this version of the header knows as we do."""
    return [row for row in LIMITS.values() if header.knows_107 or row.number not in (103, 107)]


def kernels(header: Header, count: int, seed: int) -> Iterator[Case]:
    """Make random kernels, about the edges more often than in between."""
    draw = random.Random(seed)
    table = rows(header)
    for _ in range(count):
        limits = draw.choice(table)
        most = limits.shared_bytes
        yield Case(
            limits,
            block=draw.choice([draw.randint(1, 1100), draw.randrange(32, 1025, 32)]),
            registers=draw.choice([draw.randint(0, 64), draw.randint(0, 257), draw.randrange(0, 256, 8)]),
            shared=draw.choice([0, draw.randint(0, 48 << 10), draw.randint(0, 4096), draw.randint(0, most)]),
            dynamic=draw.choice([0, draw.randint(0, most), draw.randrange(0, most + 2048, 1024)]),
            opt_in=draw.random() < 0.7,
            allowed=draw.choice([0, draw.randint(0, most), limits.block_shared_bytes]),
            carveout=draw.choice([-1, -1, draw.randint(0, 100), 0, 100]),
            barriers=draw.choice([0, 1, draw.randint(0, 16)]),
            virtuals=draw.choice([0, draw.randint(0, 140)]) if header.has_virtual else 0,
            max_threads=draw.choice([1024, draw.randint(1, 1024), draw.randrange(32, 1025, 32)]),
        )


def demand_of(case: Case) -> Demand:
    """The same kernel for us: one that did not opt in is one that was allowed what 48 KiB leave."""
    return Demand(
        case.limits,
        registers=case.registers,
        shared_bytes=case.shared,
        barriers=case.barriers,
        max_threads=case.max_threads,
        carveout_percent=None if case.carveout < 0 else case.carveout,
        dynamic_limit_bytes=case.allowed if case.opt_in else (48 << 10) - case.shared,
        virtual_resources=case.virtuals,
    )


def said_by(answer: Answer) -> dict[Limiter, int]:
    """The header's limits by our names, without those that are none."""
    limits = {
        Limiter.WARPS: answer.warps,
        Limiter.BLOCKS: answer.slots,
        Limiter.REGISTERS: answer.registers,
        Limiter.SHARED: answer.shared,
        Limiter.BARRIERS: answer.barriers,
        Limiter.VIRTUAL: answer.virtuals,
    }
    return {limiter: blocks for limiter, blocks in limits.items() if blocks != UNLIMITED}


BITS = {
    0x01: Limiter.WARPS,
    0x02: Limiter.REGISTERS,
    0x04: Limiter.SHARED,
    0x08: Limiter.BLOCKS,
    0x10: Limiter.BARRIERS,
    0x20: Limiter.VIRTUAL,
}


def factors_of(answer: Answer) -> set[Limiter]:
    """What the header says limits. Where barriers alone do, it also keeps what limited before it looked at them."""
    said = {limiter for bit, limiter in BITS.items() if answer.factors & bit}
    limits = said_by(answer)
    if Limiter.BARRIERS in said:
        return {limiter for limiter in said if limits[limiter] == answer.blocks}
    return said & set(limits)


def test_hundred_thousand_random_cases_are_equal(header: Header) -> None:
    cases = list(kernels(header, CASES, seed=4))
    differ = []
    seen: dict[Limiter, int] = dict.fromkeys(Limiter, 0)
    for case, answer in zip(cases, header.ask(cases), strict=True):
        assert answer.status == 0, case
        assert case.block is not None
        ours = residency(demand_of(case), case.block, case.dynamic)
        if not equal(ours, answer):
            differ.append((case, ours, answer))
        for limiter in ours.limited_by:
            seen[limiter] += ours.blocks > 0
    assert not differ, f"{len(differ)} differ, such as {differ[0]}"
    assert min(seen.values()) > CASES // 1000 or not header.has_virtual, seen


def equal(ours: Residency, answer: Answer) -> bool:
    return (
        ours.blocks == answer.blocks
        and dict(ours.allowed) == said_by(answer)
        and set(ours.limited_by) == factors_of(answer)
        and (ours.block_registers, ours.block_shared_bytes) == (answer.block_registers, answer.block_shared)
    )


def test_best_blocks_are_equal(header: Header) -> None:
    draw = random.Random(5)
    cases = []
    for case in kernels(header, BEST_CASES, seed=6):
        per_thread = draw.choice([0, draw.randint(0, 64), 4])
        cases.append(Case(**{**vars(case), "block": None, "per_thread": per_thread}))
    blocks = set()
    for case, answer in zip(cases, header.best(cases), strict=True):
        assert answer.status == 0

        def shared(threads: int, case: Case = case) -> int:
            return case.dynamic + case.per_thread * threads

        ours = best_block(demand_of(case), shared)
        assert ours.blocks * 10 == answer.grid, case
        assert ours.threads == answer.block or not ours.blocks, case
        blocks.add(answer.block)
    assert len(blocks) > 30
