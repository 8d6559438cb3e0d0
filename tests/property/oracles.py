"""Random programs on the CPU device beside their oracles: ``python oracles.py SECONDS SEED`` starts from a seed.

It prints the seed of each program that gives another result, writes its text to a file, and then ends with 1.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import cujit
from cujit.devices.device import Device
from property import programs, ptx_programs
from property.programs import Program
from property.ptx_interpreter import Module as Interpreted
from property.ptx_programs import PtxProgram

__all__ = ["Outcomes", "cpp_outcomes", "cpp_results", "cpp_text", "launcher", "ptx_outcomes", "ptx_results", "ptx_text"]

Array = np.ndarray[Any, Any]
Launch = Callable[[str, int, int, Sequence[Array]], Any]
Outcomes = dict[int, tuple[Array, Array]]


def cpp_text(several: Mapping[int, Program]) -> str:
    """Put programs into one text, each kernel and function by the number of its program."""
    text = programs.HEADERS if any(program.more for program in several.values()) else ""
    for seed, program in several.items():
        own = re.sub(r"\b(call|recurse)(\d)\b", rf"\1\2_{seed}", program.source)
        text += own.replace("void k(", f"void k{seed}(")
    return text


def cpp_results(seed: int, launch: Launch) -> Array:
    """Give what a launch of a C++ program's kernel writes."""
    out = np.zeros(programs.GRID * programs.BLOCK * programs.WORDS + programs.COUNTERS, np.uint32)
    launch(f"k{seed}", programs.GRID, programs.BLOCK, (programs.inputs(), out))
    return out


def ptx_results(seed: int, launch: Launch) -> Array:
    """Give what a launch of a PTX program's kernel writes: its words, then the counters and the threads' own words."""
    arrays = ptx_programs.arguments()
    launch(f"k{seed}", ptx_programs.GRID, ptx_programs.BLOCK, arrays)
    return np.concatenate(arrays[1:])


def launcher(module: cujit.Module) -> Launch:
    """Launch kernels of a loaded module by their names."""
    return lambda name, grid, block, arrays: module[name][grid, block](*arrays)


def cpp_outcomes(seeds: Iterable[int], device: Device, *, more: bool = True) -> Outcomes:
    """Give what the oracle and what the device computes of each program in C++."""
    several = {seed: Program(seed, more=more) for seed in seeds}
    module = cujit.load(cujit.compile(cpp_text(several), arch="compute_90", to="ptx", fmad=False), device)
    return {seed: (program.run(), cpp_results(seed, launcher(module))) for seed, program in several.items()}


def ptx_outcomes(seeds: Iterable[int], device: Device) -> Outcomes:
    """Give what the interpreter and what the device computes of each program in PTX."""
    text = ptx_text(seeds)
    launch, interpreted = launcher(cujit.load(text.encode(), device)), Interpreted(text).launch
    return {seed: (ptx_results(seed, interpreted), ptx_results(seed, launch)) for seed in seeds}


def ptx_text(seeds: Iterable[int]) -> str:
    """Put the PTX programs of seeds into one text."""
    return ptx_programs.module_of([PtxProgram(seed) for seed in seeds])


def main(seconds: float, seed: int) -> int:
    """Run programs of both kinds until the time is over, and give how many differ."""
    device, end, wrong, first = cujit.cpu(1), time.monotonic() + seconds, 0, seed
    while time.monotonic() < end:
        several = range(seed, seed + 4)
        for kind, outcomes in (("ptx", ptx_outcomes(several, device)), ("cu", cpp_outcomes(several, device))):
            for each, (expected, found) in outcomes.items():
                if not np.array_equal(expected, found):
                    wrong += 1
                    text = ptx_text([each]) if kind == "ptx" else cpp_text({each: Program(each, more=True)})
                    Path(f"differs-{each}.{kind}").write_text(text)
                    print(f"seed {each}: {kind} differs in words {np.flatnonzero(expected != found)[:8]}", flush=True)
        seed += 4
    print(f"seeds {first} to {seed - 1} in PTX and in C++: {wrong} differ")
    return wrong


if __name__ == "__main__":
    sys.exit(bool(main(float(sys.argv[1]), int(sys.argv[2]))))
