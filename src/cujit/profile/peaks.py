"""Peak rates of GPUs: clocks, bandwidths, and throughputs of products, each with its source."""

from __future__ import annotations

import re
from collections.abc import Mapping

from cujit.devices.device import Device
from cujit.errors import ArchError, listed
from cujit.occupancy.products import Product, find_product
from cujit.values import dataclass

# The same of every architecture of the table, for each multiprocessor and clock cycle. What ``ncu`` says of an H200
# (``peak_sustained``, tests/goldens/peaks-h200.json) is the same.
WAVEFRONTS = 1
"""Steps of shared memory. Source: CUDA C++ Programming Guide, "Shared Memory": a bank gives 32 bits a clock cycle."""
SECTORS = 16
"""Of the first cache. Source: ``l1tex__t_sectors`` of an H200; what threads get of them is less."""
REQUESTS = 1
"""Instructions of warps that access memory. Source: NVIDIA A100 whitepaper: 32 load/store units; Turing has fewer."""
SLOTS = 4
"""Instructions of warps that begin. Source: NVIDIA's whitepapers from Turing on: four schedulers, one each a cycle."""
SPECIAL = 16
"""Reciprocals, roots, sines, exponentials, logarithms of single precision. Source: as of ``_ARITHMETIC``."""
SHUFFLES = 32
"""Threads that exchange a word. Source: as of ``_ARITHMETIC``."""

# Results for each multiprocessor and clock cycle, of single, double and half precision: additions, multiplications, or
# both in one. Source: CUDA C++ Best Practices Guide 13, "Throughput of Native Arithmetic Instructions", and CUDA C++
# Programming Guide 12.9, "Arithmetic Instructions"; of half precision the higher, where they differ.
_ARITHMETIC: Mapping[int, tuple[int, int, int]] = {
    75: (64, 2, 128),
    80: (64, 32, 256),
    89: (128, 2, 128),
    90: (128, 64, 256),
    100: (128, 64, 256),
    120: (128, 2, 128),
}
_F16 = {"f16": 1.0, "s8": 2.0, "u8": 2.0}
_TF32 = {**_F16, "bf16": 1.0, "tf32": 0.5}
_FP8 = {**_TF32, "e4m3": 2.0, "e5m2": 2.0}
_FP4 = {**_FP8, "e3m2": 2.0, "e2m3": 2.0, "e2m1": 4.0}
_S4 = {"s4": 4.0, "u4": 4.0}

# Operations of tensor cores for each multiprocessor and clock cycle on numbers of half precision, and of other types as
# multiples of it, dense. Sources, a peak each divided by multiprocessors and clock: T4 data sheet, 65 TFLOPS; A100
# whitepaper, "A100 SM Architecture": 1024 fused operations, and data sheet for f64, s4 and b1; H100 whitepaper,
# table 3, at the 1,830 MHz that its tensor cores have there; L40S data sheet, 362 TFLOPS; NVIDIA Blackwell
# Architecture Technical Brief, table 3; NVIDIA RTX Blackwell whitepaper, 419 TFLOPS. GeForce has half of it with sums
# of f32.
_TENSOR: Mapping[int, tuple[int, Mapping[str, float]]] = {
    75: (1024, {**_F16, **_S4}),
    80: (2048, {**_TF32, **_S4, "b1": 16.0, "f64": 0.0625}),
    89: (1024, {**_FP8, **_S4}),
    90: (4096, {**_FP8, "f64": 0.0625}),
    100: (8192, {**_FP4, "f64": 0.015625}),
    120: (1024, _FP4),
}

# Name, highest clock in MHz, memory in GB/s, second cache in MiB (None: not published), and what of it a clock cycle
# moves, in bytes (0: not known).
#
# Sources. H200 and H100: NVIDIA's product pages for bandwidths; of an H200, its driver for the size of the second cache
# and ``lts__t_bytes`` of ``ncu``, whose clock may differ from that of the multiprocessors; clocks from their peaks, 67
# TFLOPS of single precision (132 x 128 x 2 a cycle) and 51 (114 x 128 x 2), and H100 whitepaper, table 3. A100:
# whitepaper, table 4 and page 35 for 5,120 bytes; data sheet for 80 GB, whose PCIe board has 1,935 GB/s. L40S, L4: data
# sheets, and NVIDIA Ada GPU Architecture whitepaper 2.01. T4: data sheet, and NVIDIA Turing GPU Architecture
# whitepaper. RTX 4090: Ada whitepaper. RTX 5090: RTX Blackwell whitepaper, table 3; boards of other makers have higher
# clocks. B200: Blackwell Architecture Technical Brief, table 3; clock from 75 TFLOPS of single precision, and the
# highest of the bandwidths published.
_ROWS: tuple[tuple[str, int, int, int | None, int], ...] = (
    ("T4", 1590, 320, 4, 0),
    ("A100", 1410, 2039, 40, 5120),
    ("A100 40GB", 1410, 1555, 40, 5120),
    ("L4", 2040, 300, 48, 0),
    ("L40S", 2520, 864, 96, 0),
    ("RTX 4090", 2520, 1008, 72, 0),
    ("H100 PCIe", 1755, 2000, 50, 0),
    ("H100 SXM", 1980, 3350, 50, 0),
    ("H200", 1980, 4800, 60, 9024),
    ("B200", 1980, 8000, None, 0),
    ("RTX 5090", 2407, 1792, 96, 0),
)
_KNOWN = {row[0]: row for row in _ROWS}
_MEMORY = re.compile(r"\b(\d+) ?GB\b", re.IGNORECASE)


@dataclass(frozen=True)
class Peaks:
    """Peak rates of a GPU at its highest published clock.

    ``memory_bytes_per_s`` is the memory bandwidth. ``l2_mib`` is the size of the L2 cache, which moves ``l2_bytes`` per
    clock cycle. None and 0 mean not published. ``fp32``, ``fp64``, and ``fp16`` are results per SM and clock cycle.
    ``tensor`` contains operations per SM and clock cycle, by type.

    Example::

    print(cujit.profile.peaks("H200").clock_mhz)
    """

    name: str
    product: Product
    processors: int
    clock_mhz: int
    memory_bytes_per_s: float
    l2_mib: int | None
    l2_bytes: int
    fp32: int
    fp64: int
    fp16: int
    tensor: Mapping[str, float]

    def per_second(self, each: float, blocks: int | None = None) -> float:
        """Return the rate per second of all SMs, if each SM does ``each`` operations in a clock cycle.

        With fewer ``blocks`` than SMs, only as many SMs as blocks are busy.
        """
        busy = self.processors if blocks is None else min(self.processors, max(1, blocks))
        return each * busy * self.clock_mhz * 1e6

    def __str__(self) -> str:
        return f"{self.name} ({self.product.arch})"


def peaks(on: str | Device) -> Peaks:
    """Return the peak rates of a GPU, by its name or as a Device of this machine.

    Raises:
        ArchError: no GPU has this name, or its clock and bandwidths are not in the table. The message lists the table.

    Example::

    assert cujit.profile.peaks("A100 40GB").memory_bytes_per_s < cujit.profile.peaks("A100").memory_bytes_per_s
    """
    name = on.product if isinstance(on, Device) else on
    known = f"known are {listed(_KNOWN, 99)}"
    try:
        product = find_product(name)
    except ArchError as e:
        raise ArchError(e.message, help=known) from None
    memory = _MEMORY.search(name)
    row = _KNOWN.get(f"{product.name} {memory[1]}GB") if memory else None
    row = row or _KNOWN.get(product.name)
    if row is None or product.processors is None:
        raise ArchError(f"the table doesn't contain the clock and the bandwidths of {product}", help=known)
    number = product.arch.number
    half, types = _TENSOR[number]
    return Peaks(
        row[0],
        product,
        product.processors,
        row[1],
        row[2] * 1e9,
        row[3],
        row[4],
        *_ARITHMETIC[number],
        {type_: half * share for type_, share in types.items()},
    )
