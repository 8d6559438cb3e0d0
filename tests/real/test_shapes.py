"""Legal shapes of synchronisation that CPU compilers for GPU code get wrong, on every device; and deadlocks.

Source: PTX ISA, "Parallel Synchronization and Communication Instructions: bar, barrier" and "bar.warp.sync"; CUDA C++
Programming Guide, "Independent Thread Scheduling" for the locks among lanes.
"""

from __future__ import annotations

import numpy as np
import pytest

from cujit.devices.device import Device
from real.running import Array, rng, run, said

FILE = "shapes.cu"


def blank(*shape: int) -> Array:
    return np.full(shape, -99, np.int32)


# -- barriers ---------------------------------------------------------------------------------------------


def test_barrier_guarded_in_a_loop_of_uneven_length(device: Device) -> None:
    turns = 1 + np.arange(64, dtype=np.int32)
    _, out = run(device, FILE, "guarded_in_a_loop", 1, 64, turns, blank(64))
    shared = 10 * np.arange(64)
    np.testing.assert_array_equal(out, [shared[(t + 1 + np.arange(t + 1)) % 64].sum() for t in range(64)])


@pytest.mark.parametrize("odd_lanes", [0, 1], ids=["warps", "lanes"])
def test_barriers_in_both_arms_of_a_branch(odd_lanes: int, device: Device) -> None:
    (out,) = run(device, FILE, "in_both_arms", 1, 64, blank(64), odd_lanes)
    t = np.arange(64)
    first = t & 1 if odd_lanes else t < 32
    value = np.where(first, 2, -3) * (64 - t)
    np.testing.assert_array_equal(out, np.roll(value, -7))


@pytest.mark.parametrize("stay", [48, 32, 33, 1])
def test_barrier_after_an_early_exit(stay: int, device: Device) -> None:
    (out,) = run(device, FILE, "after_an_early_exit", 1, 64, blank(64), stay)
    np.testing.assert_array_equal(out, [*((np.arange(stay) + 1) % stay), *[-1] * (64 - stay)])


def test_uniform_barriers_in_nested_loops(device: Device) -> None:
    plan = rng().integers(-1, 9, (6, 5), np.int32)
    plan[1, 0] = -1
    _, out = run(device, FILE, "nested_and_uniform", 1, 96, plan, blank(96), 6, 5)
    shared = np.arange(96)
    for row in plan:
        for step in row:
            if step < 0:
                break
            if step > 0:
                shared = np.roll(shared, -step) + 1
            if step > 5:
                shared = shared + shared[::-1]
    np.testing.assert_array_equal(out, shared)


def test_warps_hand_buffers_over_by_named_barriers(device: Device) -> None:
    data = rng().integers(0, 100, (7, 64), np.int32)
    _, out = run(device, FILE, "producers_and_consumers", 2, 128, data, np.zeros_like(data), 7)
    np.testing.assert_array_equal(out, data[:, ::-1] + np.arange(7)[:, None])


def test_half_a_block_waits_at_its_own_barrier(device: Device) -> None:
    (out,) = run(device, FILE, "barriers_by_number", 1, 128, blank(128))
    t = np.arange(64)
    np.testing.assert_array_equal(out, [*(t + 2) % 64, *(64 + (t + 5) % 64)])


def test_barrier_in_a_called_function(device: Device) -> None:
    (out,) = run(device, "shapes_calls.cu", "barrier_in_a_function", 1, 96, blank(96))
    t = np.arange(96)
    np.testing.assert_array_equal(out, (t + 1) % 96 * 1000 + (t + 6) % 96)


@pytest.mark.parametrize("times", [1, 4])
def test_barrier_in_a_recursive_function(times: int, device: Device) -> None:
    (out,) = run(device, "shapes_calls.cu", "barrier_in_recursion", 1, 96, blank(96), times)
    shared, total = np.arange(96), np.zeros(96, int)
    for k in range(times):
        shared = np.roll(shared, -(times - k))
        total += shared << k
    np.testing.assert_array_equal(out, total)


# -- lanes of one warp ------------------------------------------------------------------------------------


def test_lanes_of_one_warp_contend_for_a_lock(device: Device) -> None:
    lock, counter = run(device, FILE, "lock_and_try_again", 3, 64, np.zeros(1, np.int32), np.zeros(1, np.int32))
    assert lock[0] == 0
    assert counter[0] == 3 * 64


def test_lanes_enter_by_ticket(device: Device) -> None:
    one = np.zeros(1, np.int32)
    tickets, serving, order = run(device, FILE, "tickets", 2, 64, one, one, blank(128))
    assert tickets[0] == serving[0] == 128
    np.testing.assert_array_equal(np.sort(order), np.arange(128))


def test_lanes_wait_for_each_other(device: Device) -> None:
    _, out = run(device, FILE, "flags_between_lanes", 1, 32, np.zeros(32, np.int32), blank(32))
    np.testing.assert_array_equal(out, 32 - np.arange(32))


def test_lanes_of_a_warp_meet_from_both_arms(device: Device) -> None:
    (out,) = run(device, FILE, "syncwarp_in_both_arms", 1, 64, blank(64))
    warps = 1 + np.arange(64).reshape(2, 32)
    next_ = np.roll(warps, -1, axis=1)
    odd = next_ + np.roll(next_, -2, axis=1)
    np.testing.assert_array_equal(out.reshape(2, 32), np.where(np.arange(32) & 1, odd, -next_))


def test_shuffle_after_a_loop_that_lanes_leave_separately(device: Device) -> None:
    turns = rng().integers(1, 9, 32, np.int32)
    _, out, inside = run(device, FILE, "shuffle_after_a_loop", 1, 32, turns, blank(32), blank(32))
    x, total = np.arange(1, 33), np.zeros(32, int)
    for k in range(8):
        x = np.where(k < turns, 3 * x + k, x)
        total += np.where(k < turns, (turns > k + 1).sum(), 0)
    np.testing.assert_array_equal(inside, total)
    np.testing.assert_array_equal(out, x[np.arange(32) ^ 5] + (total & 1).sum())


def test_shuffle_written_in_both_arms(device: Device) -> None:
    (out,) = run(device, FILE, "shuffle_in_both_arms", 1, 32, blank(32))
    t = np.arange(32)
    sent = np.where(t % 3 == 0, 10 * t, 100 * t)
    np.testing.assert_array_equal(out, sent[t ^ 1] + np.where(t % 3 == 0, 1, 2))


# -- flags ------------------------------------------------------------------------------------------------


def test_warps_wait_for_flags_in_shared_memory(device: Device) -> None:
    (out,) = run(device, FILE, "flags_between_warps", 2, 256, blank(256))
    value = [1]
    for warp in reversed(range(8)):
        value.insert(0, 3 * value[0] + warp)
    np.testing.assert_array_equal(out, np.repeat(value[:8], 32) + np.tile(np.arange(32), 8))


def test_blocks_wait_for_earlier_blocks(device: Device) -> None:
    data = rng().integers(0, 100, 40, np.int32)
    prefix, ready = np.zeros(40, np.int32), np.zeros(40, np.int32)
    *_, out = run(device, FILE, "flags_between_blocks", 40, 32, data, prefix, ready, blank(40, 32))
    np.testing.assert_array_equal(out, np.broadcast_to((data.cumsum() - data)[:, None], (40, 32)))


# -- what may hang ----------------------------------------------------------------------------------------


def test_spinning_lane_lets_the_lock_holder_proceed() -> None:
    assert said(FILE, "lock_and_spin", 3, 64, np.zeros(1, int), np.zeros(1, int)) == f"[[0], [{3 * 64}]]\n"


def test_deadlock_error_names_threads_barriers_and_lines() -> None:
    message = said(FILE, "deadlock", 1, 64, np.zeros(64, int))
    for words in ("deadlock, block (0, 0, 0)", "threads 0-31 at barrier 1", "threads 32-63 at barrier 2", "line"):
        assert words in message


def test_deadlock_of_lanes_names_both_halves_of_the_warp() -> None:
    message = said(FILE, "deadlock_of_lanes", 1, 32, np.zeros(32, int))
    for words in (
        "block (0, 0, 0)",
        "threads 0-15, with the lanes of mask 0x0001ffff",
        "threads 16-31 at barrier 1",
        "line",
    ):
        assert words in message
