from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from cujit.arch.multiprocessor import LIMITS
from cujit.errors import LaunchError
from cujit.occupancy.choosing import (
    NextStep,
    best_block,
    block_sizes,
    clusters_bound,
    next_step,
    shared_bytes_of,
    waves,
)
from cujit.occupancy.residency import Demand, Limiter, Residency, residency
from raising import raises

H200 = LIMITS[90]


# -- the arithmetic, on numbers that can be checked by hand ---------------------------------------------------


def test_registers_limit_by_whole_warps_per_quarter() -> None:
    found = residency(Demand(H200, registers=40), 256)
    # 40 x 32 = 1,280 registers a warp, 16,384 / 1,280 = 12 warps a quarter, 48 / 8 = 6 blocks.
    assert (found.blocks, found.warps, found.occupancy) == (6, 48, 0.75)
    assert found.limited_by == (Limiter.REGISTERS,)


def test_drivers_reserve_counts_as_shared_memory() -> None:
    found = residency(Demand(H200, registers=16, shared_bytes=37 << 10), 128)
    assert found.block_shared_bytes == 38 << 10
    assert found.blocks == 6
    assert found.limited_by == (Limiter.SHARED,)
    assert residency(Demand(H200, registers=16, shared_bytes=37 << 10), 128, 1).blocks == 5


def test_ties_name_every_limiter() -> None:
    found = residency(Demand(LIMITS[86], registers=40), 96)
    assert found.blocks == 16
    assert set(found.limited_by) == {Limiter.WARPS, Limiter.BLOCKS, Limiter.REGISTERS}


def test_barriers_limit_from_hopper_on() -> None:
    assert residency(Demand(H200, registers=16, barriers=16), 32).limited_by == (Limiter.BARRIERS,)
    assert residency(Demand(H200, registers=16, barriers=16), 32).blocks == 4
    assert residency(Demand(LIMITS[80], registers=16, barriers=16), 32).blocks == 32


def test_block_that_does_not_run_has_no_blocks() -> None:
    assert residency(Demand(H200, registers=16), 1025).blocks == 0
    assert residency(Demand(H200, registers=72), 1024).blocks == 0
    assert residency(Demand(H200, registers=16), 32, (227 << 10) + 1).blocks == 0
    assert residency(Demand(H200, registers=16), 32, 227 << 10).blocks == 1


def test_default_shared_memory_of_a_block_is_48_kib() -> None:
    unasked = Demand(H200, registers=16, shared_bytes=1024, dynamic_limit_bytes=47 << 10)
    assert residency(unasked, 32, 47 << 10).blocks == 4
    assert residency(unasked, 32, (47 << 10) + 1).blocks == 0


def test_preferred_split_leaves_less_shared_memory() -> None:
    assert residency(Demand(H200, registers=16, shared_bytes=9000, carveout_percent=25), 32).blocks == 6
    assert residency(Demand(H200, registers=16, shared_bytes=9000), 32).blocks == 23


@pytest.mark.parametrize(
    "numbers",
    [{"registers": -1}, {"shared_bytes": -1}, {"barriers": -1}, {"max_threads": 0}, {"carveout_percent": 101}],
    ids=lambda numbers: next(iter(numbers)),
)
def test_numbers_out_of_range_are_refused(numbers: dict[str, int]) -> None:
    with raises(LaunchError, "launch", next(iter(numbers)), next(iter(numbers.values()))):
        Demand(H200, **({"registers": 16} | numbers))


def test_block_and_shared_memory_out_of_range_are_refused() -> None:
    with raises(LaunchError, "launch", "0", "threads"):
        residency(Demand(H200, registers=16), 0)
    with raises(LaunchError, "launch", "shared_bytes", "-1"):
        residency(Demand(H200, registers=16), 32, -1)


# -- the best block -------------------------------------------------------------------------------------------


def test_best_block_is_the_largest_tied_size() -> None:
    assert best_block(Demand(H200, registers=32)).threads == 1024
    assert best_block(Demand(LIMITS[120], registers=32)).threads == 768
    assert best_block(Demand(H200, registers=32, max_threads=200)).threads == 128


def test_shared_memory_may_grow_with_the_block() -> None:
    fixed = best_block(Demand(H200, registers=32), 8192)
    grown = best_block(Demand(H200, registers=32), lambda threads: 256 * threads)
    assert fixed.occupancy == 1.0
    assert grown.dynamic_bytes == 256 * grown.threads
    assert (grown.threads, grown.blocks) == (896, 1)


def test_block_size_not_divisible_by_32_is_included() -> None:
    assert block_sizes(Demand(H200, registers=32, max_threads=100)) == (32, 64, 96, 100)
    assert block_sizes(Demand(H200, registers=32, max_threads=20)) == (20,)
    assert block_sizes(Demand(H200, registers=32, max_threads=63)) == (32, 63)
    assert block_sizes(Demand(H200, registers=32, max_threads=4096))[-1] == 1024


@pytest.mark.parametrize("wrong", [1.5, "1", lambda threads: threads / 2], ids=["float", "str", "function"])
def test_shared_bytes_are_an_int_or_a_function(wrong: object) -> None:
    with raises(LaunchError, "shared-memory-size", "shared_bytes"):
        shared_bytes_of(wrong, 32)  # type: ignore[arg-type]


# -- one more block -------------------------------------------------------------------------------------------


def kernels(count: int) -> Iterator[tuple[Demand, Residency]]:
    draw = random.Random(7)
    for _ in range(count):
        limits = draw.choice(list(LIMITS.values()))
        demand = Demand(
            limits,
            registers=draw.randint(0, 255),
            shared_bytes=draw.choice([0, draw.randint(0, 48 << 10)]),
            barriers=draw.choice([0, draw.randint(0, 16)]),
            carveout_percent=draw.choice([None, None, draw.randint(0, 100)]),
        )
        if draw.random() < 0.2:
            demand = replace(demand, dynamic_limit_bytes=(48 << 10) - demand.shared_bytes)
        yield demand, residency(demand, draw.randrange(1, 1025), draw.choice([0, draw.randint(0, limits.shared_bytes)]))


def after(demand: Demand, now: Residency, step: NextStep) -> int:
    """Count the blocks once the kernel uses no more than the step says."""
    shared, dynamic = demand.shared_bytes, now.dynamic_bytes
    if step.shared_bytes is not None:
        shared = min(shared, step.shared_bytes)
        dynamic = step.shared_bytes - shared
    changed = replace(
        demand,
        registers=demand.registers if step.registers is None else step.registers,
        barriers=demand.barriers if step.barriers is None else step.barriers,
        shared_bytes=shared,
    )
    return residency(changed, now.threads, dynamic).blocks


def test_step_adds_exactly_one_block() -> None:
    seen = {"registers": 0, "shared_bytes": 0, "barriers": 0}
    for demand, now in kernels(2000):
        step = next_step(demand, now)
        if step is None:
            continue
        assert step.blocks == now.blocks + 1
        assert after(demand, now, step) >= step.blocks, (demand, now, step)
        for name in seen:
            most = getattr(step, name)
            if most is not None:
                seen[name] += 1
                more = replace(step, **{name: most + 1})
                assert after(demand, now, more) < step.blocks, (demand, now, step, name)
                assert after(demand, now, replace(step, **{name: most // 2})) >= step.blocks
    assert min(seen.values()) > 20, seen


def test_no_step_exists_if_slots_are_full() -> None:
    full = Demand(H200, registers=32)
    assert next_step(full, residency(full, 256)) is None
    tied = Demand(LIMITS[86], registers=40)
    assert next_step(tied, residency(tied, 96)) is None


def test_step_never_requires_too_many_registers() -> None:
    demand = Demand(H200, registers=300)
    step = next_step(demand, residency(demand, 32))
    assert step is not None
    assert step.registers == 255


@pytest.mark.parametrize(("number", "most"), [(61, 48 << 10), (75, 64 << 10), (90, 227 << 10)])
def test_step_leaves_a_block_its_maximum_shared_memory(number: int, most: int) -> None:
    demand = Demand(LIMITS[number], registers=16)
    for more in (1, 1000, 100_000):
        step = next_step(demand, residency(demand, 128, most + more))
        assert step is not None
        assert (step.blocks, step.shared_bytes) == (1, most), more


def test_step_prints_its_requirements() -> None:
    demand = Demand(H200, registers=40, shared_bytes=40000)
    assert str(next_step(demand, residency(demand, 256))) == ("37,888 bytes of shared memory or less: 6 blocks, 75.0%")
    both = Demand(H200, registers=40, shared_bytes=37 << 10)
    assert str(next_step(both, residency(both, 256))).startswith("32 registers and ")


# -- a whole device -------------------------------------------------------------------------------------------


def test_waves_count_rounds_and_the_tail() -> None:
    found = waves(1000, 6, 132)
    assert found is not None
    assert found.capacity == 792
    assert (round(found.count, 4), found.rounds) == (1.2626, 2)
    assert found.efficiency == pytest.approx(1000 / 1584)
    assert found.tail == pytest.approx(208 / 792)
    whole = waves(792, 6, 132)
    assert whole is not None
    assert (whole.count, whole.rounds, whole.efficiency, whole.tail) == (1.0, 1, 1.0, 1.0)


def test_waves_of_an_empty_grid() -> None:
    assert waves(10, 0, 132) is None
    with raises(LaunchError, "launch", "0", "grid"):
        waves(0, 6, 132)


def test_clusters_are_bounded_by_their_blocks() -> None:
    assert [clusters_bound(H200, 3, 132, size) for size in (1, 8, 16)] == [396, 49, 24]
    with raises(LaunchError, "cluster-size", "sm_89"):
        clusters_bound(LIMITS[89], 3, 132, 8)
    for size in (0, 17):
        with raises(LaunchError, "cluster-size", size):
            clusters_bound(H200, 3, 132, size)
