"""cuRAND's device generators, by references of our own; needs cuRAND's headers (the wheel ``nvidia-curand``)."""

from __future__ import annotations

import numpy as np
import pytest

from cujit.devices.device import Device
from cujit.errors import HeaderNotFoundError
from real.running import Array, compiled, run

SEED = 0x1234567890ABCDEF
THREADS = 128


@pytest.fixture(scope="module", autouse=True)
def _header() -> None:
    try:
        compiled("philox.cu")
    except HeaderNotFoundError as e:
        pytest.skip(e.message.partition(";")[0])


def philox(counter: Array, seed: int) -> Array:
    """Philox4x32-10 of rows of four words. Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"."""
    c = counter.astype(np.uint64)
    key = np.array([seed & 0xFFFFFFFF, seed >> 32], np.uint64)
    low = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        first, second = c[:, 0] * np.uint64(0xD2511F53), c[:, 2] * np.uint64(0xCD9E8D57)
        c = np.stack(
            [second >> np.uint64(32) ^ c[:, 1] ^ key[0], second & low, first >> np.uint64(32) ^ c[:, 3] ^ key[1],
             first & low], axis=1
        )  # fmt: skip
        key = (key + np.array([0x9E3779B9, 0xBB67AE85], np.uint64)) & low
    return c.astype(np.uint32)


def sequence(length: int) -> Array:
    """Give the first words of the sequence of each thread: its number is the counter's upper half."""
    steps = length // 4
    counter = np.zeros((THREADS, steps, 4), np.uint64)
    counter[..., 0] = np.arange(steps)
    counter[..., 2] = np.arange(THREADS)[:, None]
    return philox(counter.reshape(-1, 4), SEED).reshape(THREADS, length)


@pytest.mark.parametrize("skip", [0, 8, 5])
def test_philox_generates_its_known_words(skip: int, device: Device) -> None:
    (out,) = run(device, "philox.cu", "words", 2, 64, np.zeros((THREADS, 4), np.uint32), SEED, skip)
    np.testing.assert_array_equal(out, sequence(16)[:, skip : skip + 4])


def test_uniform_numbers_are_in_the_half_open_interval(device: Device) -> None:
    (out,) = run(device, "philox.cu", "uniform", 2, 64, np.zeros((THREADS, 4), np.float32), SEED)
    assert ((out > 0) & (out <= 1)).all()
    np.testing.assert_allclose(out, (sequence(4) + 0.5) / 2.0**32, rtol=1e-6, atol=2.0**-33)


def test_normal_numbers_are_box_and_mullers(device: Device) -> None:
    (out,) = run(device, "philox.cu", "normal", 2, 64, np.zeros((THREADS, 4), np.float32), SEED)
    u = ((sequence(4) + 0.5) / 2.0**32).reshape(THREADS, 2, 2)
    radius, angle = np.sqrt(-2 * np.log(u[..., 0])), 2 * np.pi * u[..., 1]
    expected = np.stack([np.sin(angle) * radius, np.cos(angle) * radius], axis=-1).reshape(THREADS, 4)
    np.testing.assert_allclose(out, expected, atol=2e-5)


def test_xorwow_skips_ahead(device: Device) -> None:
    (out,) = run(device, "philox.cu", "xorwow", 2, 64, np.zeros(3 * THREADS, np.uint32), SEED)
    np.testing.assert_array_equal(out, xorwow(3 * THREADS))


def xorwow(length: int) -> Array:
    """Marsaglia's xorwow as cuRAND seeds it (``_curand_init_scratch`` in ``curand_kernel.h``)."""
    low = 0xFFFFFFFF
    t0 = 1099087573 * ((SEED & low) ^ 0xAAD26B49) & low
    t1 = 2591861531 * ((SEED >> 32) ^ 0xF7DCEFDD) & low
    d = 6615241 + t1 + t0 & low
    v = [123456789 + t0 & low, 362436069 ^ t0, 521288629 + t1 & low, 88675123 ^ t1, 5783321 + t0 & low]
    out = []
    for _ in range(length):
        t = v[0] ^ v[0] >> 2
        v = [*v[1:], (v[4] ^ v[4] << 4 ^ t ^ t << 1) & low]
        d = d + 362437 & low
        out.append(v[4] + d & low)
    return np.array(out, np.uint32)
