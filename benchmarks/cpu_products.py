"""Products of 512³ by tensor-core instructions on the CPU device: speed as a multiple of its tiled product of f32.

The sums are those of an H200, bit for bit, on every processor: the last column begins the digest of the result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from cpu_cases import SOURCES
from measure import medians

import cujit

__all__ = ["run"]

ROUNDS = 9
AIM = 0.5
_SIDE = 512
_TILES, _THREADS = (_SIDE // 32, _SIDE // 32), 128

Array = npt.NDArray[Any]


def _bf16(values: Array) -> tuple[Array, Array]:
    """Cut numbers to bf16: their bits, and what they are worth."""
    bits = values.view(np.uint32) >> 16
    return bits.astype(np.uint16), (bits << 16).astype(np.uint32).view(np.float32)


def _products(device: cujit.Device) -> Iterator[tuple[str, Callable[[], object], Callable[[], Array], Array]]:
    """Give what each product is called, what runs it, what reads its result, and the right one."""
    a, b = np.random.default_rng(7).random((2, _SIDE, _SIDE), np.float32) - np.float32(0.5)
    halves, (bits_a, cut_a), (bits_b, cut_b) = (a.astype(np.float16), b.astype(np.float16)), _bf16(a), _bf16(b)
    own = {"f32": ((a, b), (a, b)), "f16": (halves, halves), "bf16": ((bits_a, bits_b), (cut_a, cut_b))}
    tiled = cujit.jit(cujit.Source.cuda(SOURCES / "matmul.cu"), names=["matmul"], device=device)
    by_mma = cujit.jit(cujit.Source.cuda(SOURCES / "products.cu"), names=["f16", "bf16"], device=device)
    for name, (given, (left, right)) in own.items():
        launch = (
            tiled["matmul"][(_SIDE // 16, _SIDE // 16), (16, 16)] if name == "f32" else by_mma[name][_TILES, _THREADS]
        )
        arguments = [*map(device.array, given), device.zeros((_SIDE, _SIDE), np.float32)]
        yield (
            name,
            lambda launch=launch, arguments=arguments: launch(*arguments, _SIDE),  # type: ignore[misc]
            arguments[-1].numpy,
            left.astype(np.float64) @ right.astype(np.float64),
        )


def run(device: cujit.Device) -> Iterator[str]:
    """Measure them, and give the table's lines."""
    products = list(_products(device))
    took = medians({name: call for name, call, *_ in products}, ROUNDS)
    yield f"{'products 512³ by mma':<30}{'× f32':<8}{'aim':<8}{'met':<5}digest"
    for name, _, result, right in products:
        off = float(np.abs(result() - right).max())
        if off > 1e-4 * np.abs(right).max():
            raise ArithmeticError(f"the product of {name} is off by {off:.3g}")
        speed, digest = took["f32"] / took[name], hashlib.sha256(result().tobytes()).hexdigest()[:12]
        if name != "f32":
            yield f"{name:<30}{speed:<8.3g}{AIM:<8}{'yes' if speed >= AIM else 'NO':<5}{digest}"


if __name__ == "__main__":
    for line in run(cujit.cpu()):
        print(line, flush=True)
