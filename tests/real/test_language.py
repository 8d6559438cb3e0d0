"""Device code that calls: recursion, virtual functions, pointers, the heap; and what kernels print and assert."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from cujit.devices.device import Device
from cujit.errors import CujitError
from real.running import Array, rng, run

N = 64


def small(*shape: int, least: int = 0, most: int = 100, seed: int = 1) -> Array:
    return rng(seed).integers(least, most, shape, np.int32)


def ackermann(m: int, n: int) -> int:
    if m == 0:
        return n + 1
    return ackermann(m - 1, ackermann(m, n - 1) if n else 1)


def test_function_calls_itself(device: Device) -> None:
    m, n = small(N, most=3), small(N, most=4, seed=2)
    *_, out = run(device, "language_calls.cu", "recursion", 1, N, m, n, np.zeros(N, np.int32))
    np.testing.assert_array_equal(out, [ackermann(int(a), int(b)) for a, b in zip(m, n, strict=True)])


def test_every_thread_sorts_its_row_by_recursion(device: Device) -> None:
    data = small(N, 20)
    (out,) = run(device, "language_calls.cu", "sort_rows", 2, N // 2, data, 20)
    np.testing.assert_array_equal(out, np.sort(data, axis=1))


def test_virtual_functions_are_called_through_their_tables(device: Device) -> None:
    x = small(N)
    _, out = run(device, "language_calls.cu", "virtual_calls", 1, N, x, np.zeros_like(x))
    first, second = (np.where(bit, 7 * x, x * x) for bit in (x & 1, x >> 1 & 1))
    np.testing.assert_array_equal(out, 1000 * first + second)


def test_functions_are_called_through_a_table_in_memory(device: Device) -> None:
    which = small(N, most=3)
    a, b = rng(2).standard_normal((2, N), np.float32)
    *_, out = run(device, "language_calls.cu", "pointers", 1, N, which, a, b, np.zeros_like(a))
    np.testing.assert_array_equal(out, np.choose(which, [a + b, a - b, np.maximum(a, b)]))


def test_structures_are_passed_and_returned_by_value(device: Device) -> None:
    data, by = small(N, 9), small(N, most=9, seed=2)
    given, made = (x.view(np.dtype([("values", np.int32, 9)])).ravel() for x in (data, np.zeros_like(data)))
    *_, out = run(device, "language_calls.cu", "structures", 1, N, given, by, made)
    expected = [np.roll(np.roll(row, -k) + k, -1) + 1 for row, k in zip(data, by, strict=True)]
    np.testing.assert_array_equal(out["values"], expected)


def test_device_heap_allocates_and_frees(device: Device) -> None:
    length = small(N, most=8)
    _, out = run(device, "language_calls.cu", "heap", 1, N, length, np.zeros_like(length))
    expected = []
    for at, size in enumerate(length):
        total = 0
        for k in reversed(range(size)):
            total = 3 * total + k * at
        expected.append(total)
    np.testing.assert_array_equal(out, expected)


def test_switch_jumps(device: Device) -> None:
    which, x = small(N, most=10), small(N, most=10_000, seed=2)
    *_, out = run(device, "language_calls.cu", "switches", 1, N, which, x, np.zeros_like(x))
    turned = np.array([int(f"{v:032b}"[::-1], 2) for v in x], np.uint32).view(np.int32)
    bits = np.array([int(v).bit_count() for v in x]), np.array([32 - int(v).bit_length() for v in x])
    cases = [3 * x + 1, x ^ 0x55, (x << 3) - 9, x - 9, x // 7, *bits, turned]
    np.testing.assert_array_equal(out, np.choose(np.minimum(which, 8), [*cases, np.full(N, -1)]))


def test_kernel_prints(device: Device, capfd: pytest.CaptureFixture[str]) -> None:
    values = np.array([7, 4321], np.int32)
    run(device, "language_output.cu", "say", 2, 64, values)
    device.synchronize()
    ctypes.CDLL(None).fflush(None)  # a GPU's driver prints by the C library
    lines = sorted(capfd.readouterr().out.splitlines())
    assert lines == [
        "block 0:     7|-7    |7|0001.750|a|first|1099511627776|%",
        "block 1:  4321|-4321 |10e1|1080.250|b|later|1099511627776|%",
    ]


def test_failed_assertion_is_an_error_that_names_it(cpu: Device) -> None:
    data = np.zeros(256, np.int32)
    data[128 + 37] = -1
    with pytest.raises(CujitError) as caught:
        run(cpu, "language_output.cu", "check", 2, 128, data, np.zeros_like(data))
    for word in ("check", "language_output.cu", "values are counted", "block", "thread", "37"):
        assert word in str(caught.value)


def test_trap_is_an_error_that_names_the_thread(cpu: Device) -> None:
    data = np.zeros(256, np.int32)
    data[128 + 37] = -1
    with pytest.raises(CujitError) as caught:
        run(cpu, "language_output.cu", "stop_at", 2, 128, data, np.zeros_like(data))
    for word in ("stop_at", "block", "thread", "37"):
        assert word in str(caught.value)


def test_true_assertion_is_silent(device: Device) -> None:
    data = small(256)
    _, out = run(device, "language_output.cu", "check", 2, 128, data, np.zeros_like(data))
    np.testing.assert_array_equal(out, data + 1)
