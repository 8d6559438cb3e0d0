"""Record what ``ncu`` counts of the kernels of ``counters.cu`` on a GPU: ``tests/goldens/counters.json``.

``python tests/devices/cpu/counters_record.py`` on a machine with a GPU, ``ncu`` and the right to read its counters.
``test_profile.py`` holds the CPU device to what is there, and runs every case.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import cujit

SOURCE = Path(__file__).with_name("counters.cu")
GOLDEN = Path(__file__).parents[2] / "goldens" / "counters.json"
METRICS = (
    *(f"l1tex__t_{what}_pipe_lsu_mem_global_op_{op}.sum" for what in ("requests", "sectors")
      for op in ("ld", "st", "atom", "red")),
    *(f"l1tex__t_{what}_pipe_lsu_mem_local_op_{op}.sum" for what in ("requests", "sectors") for op in ("ld", "st")),
    *(f"l1tex__data_{what}_mem_shared_op_{op}.sum" for what in ("pipe_lsu_wavefronts", "bank_conflicts_pipe_lsu")
      for op in ("ld", "st")),
)  # fmt: skip
_ELEMENTS = {"unsigned char": np.uint8, "float": np.float32, "double": np.float64, "float4": np.float32}


class Case(NamedTuple):
    """One launch: by blocks of 256 threads, or of 32 x 32."""

    name: str
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    numbers: tuple[int, ...]


def cases() -> Iterator[Case]:
    """List every launch; names stay, so that what was recorded stays what it is."""
    many, few, usual = (256,), (64,), (256,)
    for stride in (*range(1, 10), 16, 17, 31, 32, 33):
        yield Case(f"load of floats, stride {stride}", "load<float>", many, usual, (stride, 0))
    yield Case("load of floats, one off", "load<float>", many, usual, (1, 1))
    for type_ in ("unsigned char", "double", "float4"):
        yield Case(f"load of {type_}", f"load<{type_}>", many, usual, (1, 0))
        yield Case(f"store of {type_}, one off", f"store<{type_}>", many, usual, (1, 1))
    for every in (2, 3, 32):
        yield Case(f"one thread of {every}", "some", many, usual, (every,))
    for type_ in ("float", "double", "float4"):
        for stride in (1, 2, 3, 32):
            yield Case(f"shared store of {type_}, stride {stride}", f"shared_store<{type_}>", few, usual, (stride,))
            yield Case(f"shared load of {type_}, stride {stride}", f"shared_load<{type_}>", few, usual, (stride,))
    for words in (1, 8, 32, 1024):
        yield Case(f"atomicAdd on {words} words", "add", many, usual, (words,))
        yield Case(f"atomicAdd on {words} words, with a result", "add_and_tell", many, usual, (words,))
    for padded in ("false", "true"):
        yield Case(f"transpose, padded {padded}", f"transpose<{padded}>", (4, 4), (32, 32), (128,))
    yield Case("local array", "local", few, usual, ())


def module_on(device: cujit.Device) -> cujit.Module:
    """Compile all kernels."""
    names = sorted({case.kernel for case in cases()})
    return cujit.jit(SOURCE.read_text(), names=names, device=device, name=SOURCE.name)


def launch(case: Case, module: cujit.Module, device: cujit.Device) -> None:
    """Make one launch."""
    kernel, _, type_ = case.kernel.rstrip(">").partition("<")
    element: Any = _ELEMENTS.get(type_, np.float32)
    threads = int(np.prod(case.grid) * np.prod(case.block))
    size = 4 * (threads * max((*case.numbers[:1], 1)) + 8) if kernel in ("load", "store") else 4 * threads
    arrays = {
        "load": lambda: [device.zeros(size, element), device.zeros(size, element)],
        "store": lambda: [device.zeros(size, element)],
        "some": lambda: [device.zeros(size, element), device.zeros(size, element)],
        "shared_store": lambda: [device.zeros(size, element)],
        "shared_load": lambda: [device.zeros(size, element)],
        "add": lambda: [device.zeros(1024, np.uint32)],
        "add_and_tell": lambda: [device.zeros(1024, np.uint32), device.zeros(size, np.uint32)],
        "transpose": lambda: [device.zeros(size, element), device.zeros(size, element)],
        "local": lambda: [device.array(np.arange(32, dtype=np.int32) * 7 % 32), device.zeros(size, element)],
    }[kernel]()
    module[case.kernel][case.grid, case.block](*arrays, *map(np.int32, case.numbers))
    device.synchronize()


def main() -> None:
    """Launch everything under ``ncu``, and write what it says."""
    if "--launch" in sys.argv:
        device = cujit.gpu(0)
        module = module_on(device)
        for case in cases():
            launch(case, module, device)
        return
    command = ["ncu", "--target-processes", "all", "--csv", "--page", "raw", "--print-units", "base", "--metrics",
               ",".join(METRICS), sys.executable, __file__, "--launch"]  # fmt: skip
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    begin = next(k for k, line in enumerate(said) if line.startswith('"ID"'))
    _units, *rows = csv.DictReader(said[begin:])
    all_cases = list(cases())
    if len(rows) != len(all_cases):
        sys.exit(f"ncu saw {len(rows)} launches of {len(all_cases)}")
    found = {}
    for case, row in zip(all_cases, rows, strict=True):
        assert row["Kernel Name"].removeprefix("void ").startswith(case.kernel.partition("<")[0]), row["Kernel Name"]
        counts = {metric: int(float(row[metric].replace(",", ""))) for metric in METRICS}
        found[case.name] = {metric: count for metric, count in counts.items() if count}
    version = subprocess.run(["ncu", "--version"], check=True, capture_output=True, text=True).stdout.split()[-2:]
    source = f"{cujit.gpu(0).product} by ncu {' '.join(version)}, all of METRICS; what is not named is 0"
    GOLDEN.write_text(json.dumps({"source": source, "complete": True, "cases": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
