"""Ten kernels, naive and optimized: ``python gallery.py`` compares both with NumPy and prints what they cost.

``python gallery.py softmax --device cuda:0`` also times both on a GPU, and ``--report softmax.html`` writes a report.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import cujit
import cujit.profile
import cujit.report

FOLDER = Path(__file__).parent
Array = np.ndarray[Any, Any]
Shape = tuple[int | tuple[int, ...], int | tuple[int, ...]]


class Case(NamedTuple):
    """Arguments of both kernels, the index of the output, its expected values, and a grid and block for each kernel."""

    arguments: Sequence[Array | int]
    output: int
    expected: Array
    naive: Shape
    optimized: Shape


def transpose(n: int) -> Case:
    """Make matrices of n rows and n columns."""
    x = _floats(n, n)
    return Case([x, np.empty_like(x), n], 1, x.T, ((n // 32, n // 8), (32, 8)), ((n // 32, n // 32), (32, 8)))


def reduction(n: int) -> Case:
    """Make n integers."""
    x = _integers(n)
    total = np.zeros(1, np.int32)
    return Case([x, total, n], 1, x.sum(dtype=np.int32)[None], (-(-n // 256), 256), (min(1056, -(-n // 1024)), 256))


def scan(n: int) -> Case:
    """Make n rows of integers."""
    x = _integers(n, 1024)
    return Case([x, np.empty_like(x), n], 1, x.cumsum(1, np.int32), (-(-n // 128), 128), (n, 256))


def histogram(n: int) -> Case:
    """Make n bytes, of which most are small."""
    x = np.minimum(np.random.default_rng(0).exponential(4, n), 255).astype(np.uint8)
    counts = np.bincount(x, minlength=256).astype(np.uint32)
    return Case([x, np.zeros(256, np.uint32), n], 1, counts, (-(-n // 256), 256), (min(1056, -(-n // 4096)), 256))


def matmul(n: int) -> Case:
    """Make two matrices of n rows and n columns."""
    a, b = _floats(n, n), _floats(n, n)
    block = (16, 16)
    return Case([a, b, np.empty_like(a), n], 2, a @ b, ((n // 16, n // 16), block), ((n // 64, n // 64), block))


def softmax(n: int) -> Case:
    """Make n rows of floats."""
    x = _floats(n, 1024)
    y = np.exp(x - x.max(1, keepdims=True))
    return Case([x, np.empty_like(x), n], 1, y / y.sum(1, keepdims=True), (-(-n // 128), 128), (n // 8, (32, 8)))


def layer_norm(n: int) -> Case:
    """Make n rows of floats."""
    x, scale = _floats(n, 1024), _floats(1024)
    y = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + np.float32(1e-5)) * scale
    return Case([x, scale, np.empty_like(x), n], 2, y, (n, 256), (n // 8, (32, 8)))


def attention(n: int) -> Case:
    """Make n queries, keys, and values for each head, and a head for each 128 queries."""
    heads = max(1, n // 128)
    q, k, v = (_floats(heads, n, 64) for _ in range(3))
    weights = np.exp(q @ k.transpose(0, 2, 1) / 8)
    y = weights / weights.sum(2, keepdims=True) @ v
    return Case([q, k, v, np.empty_like(q), n], 3, y, ((n // 64, heads), 64), ((n // 64, heads), 256))


def stencil(n: int) -> Case:
    """Make an image of n rows and n columns."""
    x = _floats(n, n)
    sums = np.pad(x, 3).astype(np.float64)
    for axis in (0, 1):
        sums = np.lib.stride_tricks.sliding_window_view(sums, 7, axis).sum(-1)
    return Case([x, np.empty_like(x), n], 1, sums / 49, ((n // 32, n // 8), (32, 8)), ((n // 32, n // 32), (32, 8)))


def sort(n: int) -> Case:
    """Make n rows of integers."""
    x = _integers(n, 1024)
    return Case([x, n], 0, np.sort(x, 1), (n, 1024), (n, 1024))


class Kernel(NamedTuple):
    """A function that makes a case, its size on the CPU device, its size on a GPU, and what the optimization does."""

    make: Callable[[int], Case]
    small: int
    large: int
    change: str


KERNELS = {
    "transpose": Kernel(
        transpose, 128, 8192,
        "Each block stages a tile in shared memory, so that adjacent threads both load and store adjacent elements. An "
        "additional column avoids bank conflicts.",
    ),
    "reduction": Kernel(
        reduction, 1 << 15, 1 << 26,
        "Each thread adds up several elements, which it loads four at a time. Each warp adds up the sums of its "
        "threads, and each block updates the total once.",
    ),
    "scan": Kernel(
        scan, 128, 1 << 16,
        "A block computes each row instead of a thread. Warps compute running sums with shuffles, and shared memory "
        "passes on the sum of each warp.",
    ),
    "histogram": Kernel(
        histogram, 1 << 16, 1 << 26,
        "Each block counts in shared memory, and adds its counts to the result once. Each thread loads 16 bytes at a "
        "time.",
    ),
    "matmul": Kernel(
        matmul, 64, 2048,
        "Each block stages tiles of both matrices in shared memory, and each thread computes 16 elements in registers.",
    ),
    "softmax": Kernel(
        softmax, 128, 1 << 16,
        "A warp computes each row instead of a thread. The warp reads the row once and keeps it in registers.",
    ),
    "layer_norm": Kernel(
        layer_norm, 32, 1 << 16,
        "A warp computes each row, so that no barrier is necessary. Each thread loads four floats at a time, and no "
        "operation uses double precision.",
    ),
    "attention": Kernel(
        attention, 64, 2048,
        "Each block stages keys and values in shared memory. Four threads share a query, so that the query and the "
        "result fit in registers.",
    ),
    "stencil": Kernel(
        stencil, 64, 8192,
        "Each block loads a tile with its border once. It first adds up rows and then columns, which takes 14 instead "
        "of 49 additions.",
    ),
    "sort": Kernel(
        sort, 4, 1 << 14,
        "Each thread keeps its element in a register. Threads of the same warp exchange elements with shuffles, and "
        "other threads use shared memory. Each thread selects the result without a branch.",
    ),
}  # fmt: skip


def run(name: str, device: cujit.Device, n: int) -> tuple[cujit.Module, Case, list[Any]]:
    """Run both kernels, compare the results with NumPy, and return the module, the case, and the device arguments."""
    case = KERNELS[name].make(n)
    module = cujit.jit(FOLDER / f"{name}.cu", device=device, lineinfo=True)
    for kernel in ("naive", "optimized"):
        arguments = [device.array(each) if isinstance(each, np.ndarray) else each for each in case.arguments]
        grid, block = getattr(case, kernel)
        module[kernel][grid, block](*arguments)
        found = arguments[case.output].numpy().reshape(case.expected.shape)
        np.testing.assert_allclose(found, case.expected, rtol=2e-4, atol=2e-4, err_msg=f"{name}, {kernel}")
    return module, case, arguments


def profiled(name: str) -> tuple[cujit.Module, list[cujit.profile.ProfiledKernel]]:
    """Profile both kernels on the CPU device, and return the module and the profiles."""
    profile = cujit.profile.Profile()
    module, _, _ = run(name, cujit.cpu(profile=profile), KERNELS[name].small)
    return module, [*profile.kernels]


def counters(kernel: cujit.profile.ProfiledKernel) -> dict[str, int]:
    """Return the counters that the gallery shows."""
    totals = kernel.totals
    return {
        "global-memory requests": totals.requests,
        "global-memory sectors": totals.sectors,
        "shared-memory wavefronts": totals.wavefronts,
        "divergent branches": totals.divergent_branches,
    }


def advice_of(kernel: cujit.profile.ProfiledKernel) -> dict[str, str]:
    """Return the first advice of each rule."""
    advice = cujit.profile.advice_for(kernel)
    return {each.rule: f"{each.finding}: {each.cause}. To fix it, {each.cure}." for each in reversed(advice)}


def timed(name: str, device: cujit.Device) -> dict[str, float]:
    """Return the median time of each kernel in milliseconds."""
    module, case, arguments = run(name, device, KERNELS[name].large)
    return {
        kernel: cujit.time(module[kernel][getattr(case, kernel)], *arguments, repeat=20, limit_s=2).median_ms
        for kernel in ("naive", "optimized")
    }


def main(words: Sequence[str] | None = None) -> None:
    """Run the kernels that a command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(KERNELS)}. Default: all.")
    parser.add_argument("--device", help="GPU to time the kernels on, such as cuda:0")
    parser.add_argument("--report", help="HTML file to write a report of the last kernel to")
    parser.add_argument("--json", help="file in which to replace the advice, the counters, and the times")
    given = parser.parse_args(words)
    gpu = cujit.gpu(int(given.device.partition(":")[2] or 0)) if given.device else None
    path = Path(given.json) if given.json else None
    found = json.loads(path.read_text()) if path and path.exists() else {}
    for name in given.names or KERNELS:
        print(f"{name}:")
        module, kernels = profiled(name)
        row = found.setdefault(name, {})
        row["advice"] = advice_of(kernels[0])
        row["counters"] = {kernel.name: counters(kernel) for kernel in kernels}
        if gpu:
            row["times_ms"] = timed(name, gpu)
        _show(row)
        if given.report:
            title = name.replace("_", " ").capitalize()
            Path(given.report).write_text(cujit.report.of(module, profile=kernels, on="H200", title=title).html())
    if path:
        path.write_text(json.dumps(found, indent=1) + "\n")


def _show(row: dict[str, Any]) -> None:
    for rule, text in row["advice"].items():
        print(f"  {rule}: {text}")
    before, after = row["counters"]["naive"], row["counters"]["optimized"]
    for what, count in before.items():
        print(f"  {what}: {count:,} -> {after[what]:,}")
    if "times_ms" in row:
        print(f"  time: {row['times_ms']['naive']:.4g} -> {row['times_ms']['optimized']:.4g} ms")


def _floats(*shape: int) -> Array:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def _integers(*shape: int) -> Array:
    return np.random.default_rng(0).integers(-1000, 1000, shape, np.int32)


if __name__ == "__main__":
    main()
