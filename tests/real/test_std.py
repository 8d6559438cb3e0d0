"""libcu++: values, atomics, barriers, pipelines and asynchronous copies, on every device present."""

from __future__ import annotations

import numpy as np

from cujit.devices.device import Device
from real.running import Array, rng, run


def small(*shape: int, least: int = 0, most: int = 100, seed: int = 1) -> Array:
    return rng(seed).integers(least, most, shape, np.int32)


# -- values -----------------------------------------------------------------------------------------------


def test_complex_floats(device: Device) -> None:
    x, y = rng().standard_normal((2, 256, 2), np.float32)
    out = np.zeros_like(x), np.zeros_like(x), np.zeros(256, np.float32)
    _, _, product, quotient, size = run(device, "std_values.cu", "complex_numbers", 2, 128, x, y, *out)
    a, b = (v.astype(np.float64).view(np.complex128).ravel() for v in (x, y))
    np.testing.assert_allclose(product.astype(np.float64).view(np.complex128).ravel(), a * b, rtol=0, atol=4e-6)
    ratio = quotient.astype(np.float64).view(np.complex128).ravel()
    assert (np.abs(ratio - a / b) <= 4e-6 * np.abs(a / b)).all()
    np.testing.assert_allclose(size, np.abs(a) + np.abs(b) ** 2, rtol=4e-6)


def test_functions_of_complex_doubles(device: Device) -> None:
    x = rng().standard_normal((64, 2)) * 3
    out = [np.zeros_like(x) for _ in range(3)]
    got = run(device, "std_values.cu", "complex_functions", 1, 64, x, *out)
    z = x.view(np.complex128).ravel()
    for mine, theirs in zip(got[1:], (np.exp(z), np.sqrt(z), np.log(z)), strict=True):
        np.testing.assert_allclose(mine.view(np.complex128).ravel(), theirs, rtol=1e-13)


def test_arrays_are_sorted_and_tuples_unpacked(device: Device) -> None:
    data = small(128, 5, least=-100)
    out = [np.zeros(128, np.int32) for _ in range(3)]
    got = run(device, "std_values.cu", "sorted_five", 2, 64, data, *out)
    np.testing.assert_array_equal(got[1:], np.sort(data, axis=1).T[[0, 2, 4]])


def test_variants_are_visited(device: Device) -> None:
    data = small(128)
    _, out = run(device, "std_values.cu", "variants", 2, 64, data, np.zeros_like(data))
    shapes = [data * data, data * (data + 1), (0.75 * data * data).astype(np.int32)]
    ones = np.array([int(v).bit_count() for v in data])
    np.testing.assert_array_equal(out, np.choose(data % 3, shapes) + 1000 * (data & 1) + ones)


# -- atomics ----------------------------------------------------------------------------------------------


def test_atomic_references_of_every_scope_count(device: Device) -> None:
    data = small(3, 96)
    words = np.zeros(8 + 4 * 3, np.int32)
    _, words = run(device, "std_atomics.cu", "atomic_refs", 3, 96, data, words)

    def counted(part: Array) -> list[int]:
        return [int(part.sum()), int(part.max()), int(np.bitwise_or.reduce(1 << (part.ravel() & 15))), 2 * part.size]

    expected = [*counted(data), *counted(data)]
    for row in data:
        expected += counted(row)
    np.testing.assert_array_equal(words, expected)


def test_atomic_references_to_floats(device: Device) -> None:
    data = small(256, least=-100).astype(np.float64)  # whole numbers: every order gives the same sum
    _, total, least = run(device, "std_atomics.cu", "atomic_doubles", 2, 128, data, np.zeros(1), np.ones(1, np.float32))
    assert total[0] == data.sum()
    assert least[0] == data.min()


def test_warp_waits_for_a_flag_of_another(device: Device) -> None:
    (out,) = run(device, "std_atomics.cu", "handed_over", 3, 64, np.zeros(3, np.int32))
    np.testing.assert_array_equal(out, [40, 41, 42])


def test_semaphore_lets_two_warps_in_at_a_time(device: Device) -> None:
    entered, most = run(device, "std_atomics.cu", "two_at_a_time", 2, 256, np.zeros(2, np.int32), np.zeros(2, np.int32))
    np.testing.assert_array_equal(entered, 8)
    assert ((most == 1) | (most == 2)).all()


def test_latch_holds_a_warp_until_all_arrive(device: Device) -> None:
    (out,) = run(device, "std_atomics.cu", "behind_a_latch", 1, 128, np.zeros(32, np.int32))
    np.testing.assert_array_equal(out, 3 * 96 * 95 // 2)


# -- barriers, copies and pipelines -----------------------------------------------------------------------


def test_threads_meet_at_a_barrier_of_two_halves(device: Device) -> None:
    data, rounds = small(96, most=9), 6
    _, out = run(device, "std_barrier.cu", "rounds", 1, 96, data, np.zeros_like(data), rounds)
    expected = data
    for _ in range(rounds):
        expected = 3 * expected + np.roll(expected, -1)
    np.testing.assert_array_equal(out, expected)


def test_warp_fills_a_buffer_that_another_empties(device: Device) -> None:
    data = small(9, 32)
    _, out = run(device, "std_barrier.cu", "handed_in_turns", 1, 64, data, np.zeros_like(data), 9)
    np.testing.assert_array_equal(out, data[:, ::-1] + np.arange(9)[:, None])


def test_barrier_waits_for_a_copy(device: Device) -> None:
    data = small(3, 128)
    _, out = run(device, "std_barrier.cu", "copied_behind_a_barrier", 3, 64, data, np.zeros_like(data))
    np.testing.assert_array_equal(out, data[:, ::-1])


def test_group_copies_and_waits(device: Device) -> None:
    data = small(3, 100)
    _, out = run(device, "std_barrier.cu", "copied_by_the_group", 3, 64, data, np.zeros_like(data))
    np.testing.assert_array_equal(out, data[:, ::-1])


def test_pipeline_of_the_block_copies_ahead(device: Device) -> None:
    data = small(7, 64)
    _, out = run(device, "std_barrier.cu", "pipelined", 1, 64, data, np.zeros(64, np.int32), 7)
    np.testing.assert_array_equal(out, np.arange(1, 8) @ data[:, ::-1])


def test_pipeline_of_one_thread_copies_ahead(device: Device) -> None:
    data = small(5, 64, 4)
    _, out = run(device, "std_barrier.cu", "pipelined_alone", 1, 64, data, np.zeros_like(data), 5)
    expected = data[..., ::-1].copy()
    expected[..., 3] += np.arange(5)[:, None]
    np.testing.assert_array_equal(out, expected)
