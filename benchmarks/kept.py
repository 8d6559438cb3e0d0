"""What the kernels of an array library cost, each loaded and launched once and then kept: CPU time, and memory.

The set is 337 elementwise kernels of the size that such libraries write, PTX of some 15 instructions each: operations,
types, and operands that are arrays or one number. It runs in a process of its own with an empty cache, and in another
with what the first left there. ``python benchmarks/kept.py``; with ``--against SRC`` as ratios to another ``src``, and
of divisions of whole numbers too, compiled and run.

Of a first launch with an empty cache, LLVM takes half: of ``add.f32`` 0.5 ms to parse, 1.0 for passes and 4.1 to emit,
where an empty kernel takes 1.6 and an empty function 0.7 to emit. The version of the code for warps in which some lanes
are left out has 2.7 ms of all that. Python takes two fifths, half of them for the IR. LLVM's code generator at level 1
would take 0.92 of its time, and at level 0 a quarter. AMD EPYC, LLVM 22.1, November 2026.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import cujit

__all__ = ["run"]

_COUNT = 337
_PAIRS = 5
_FIRST = 20
"""Kernels before the measurement: threads, tables and LLVM are there then."""

_ELEMENTS = 64
_TYPES = {"f32": (4, "f"), "f64": (8, "fd"), "s32": (4, "r"), "s64": (8, "rd"), "u32": (4, "r"), "u64": (8, "rd")}
_WHOLE = ("s32", "u32", "s64", "u64")
_FLOATS = ("add.rn", "sub.rn", "mul.rn", "div.rn", "min", "max", "abs", "neg", "sqrt.rn", "rcp.rn")
_INTEGERS = ("add", "sub", "mul.lo", "div", "rem", "min", "max")
_UNARY = ("abs", "neg", "sqrt.rn", "rcp.rn")

_TEXT = """.version 8.0
.target sm_80
.address_size 64
.visible .entry {name}(.param .u64 from, .param .u64 with, .param .u64 to, .param .u32 count)
{{
    .reg .pred %p<2>;
    .reg .b32 %r<9>, %f<4>;
    .reg .b64 %a<9>, %rd<4>, %fd<4>;
    ld.param.u64 %a1, [from];
    ld.param.u64 %a2, [with];
    ld.param.u64 %a3, [to];
    ld.param.u32 %r5, [count];
    mov.u32 %r6, %ctaid.x;
    mov.u32 %r7, %ntid.x;
    mov.u32 %r8, %tid.x;
    mad.lo.s32 %r4, %r6, %r7, %r8;
    setp.ge.u32 %p1, %r4, %r5;
    @%p1 bra done;
    mul.wide.u32 %a4, %r4, {size};
    add.s64 %a5, %a1, %a4;
    add.s64 %a6, %a2, {second};
    add.s64 %a7, %a3, %a4;
    ld.global.{type} %{register}1, [%a5];
    ld.global.{type} %{register}2, [%a6];
    {compute}
    st.global.{type} [%a7], %{register}3;
done:
    ret;
}}
"""


def _kernels() -> Iterator[tuple[str, str]]:
    """Write the texts, with the name of each kernel: operations in chains of one, two and three."""
    number = 0
    for length in (1, 2, 3):
        for (name, (size, register)), second in itertools.product(_TYPES.items(), ("%a4", "0")):
            operations = _FLOATS if name.startswith("f") else _INTEGERS
            for chain in itertools.islice(itertools.product(operations, repeat=length), 0, None, length * length):
                lines = [_line(operation, name, register, place) for place, operation in enumerate(chain)]
                number += 1
                values = {"size": size, "second": second, "type": name, "register": register}
                yield f"k{number}", _TEXT.format(name=f"k{number}", compute="\n    ".join(lines), **values)


def _line(operation: str, type_: str, register: str, place: int) -> str:
    first = f"%{register}{3 if place else 1}"
    second = "" if operation in _UNARY else f", %{register}2"
    return f"{operation}.{type_} %{register}3, {first}{second};"


def _measure() -> None:
    """Load and launch each once, and print milliseconds of CPU time for both and KiB kept, each for one kernel."""
    device = cujit.cpu(1)
    kept, took = [], [0.0, 0.0]
    arrays = [device.array(np.ones(_ELEMENTS)) for _ in range(3)]
    arguments = [cujit.Pointer(array.address) for array in arrays]
    for count, (name, text) in enumerate(itertools.islice(_kernels(), _FIRST + _COUNT)):
        if count == _FIRST:
            took, before = [0.0, 0.0], _own_bytes()
        start = time.process_time()
        kernel = cujit.load(text, device)[name]
        loaded = time.process_time()
        kernel[1, _ELEMENTS](*arguments, _ELEMENTS)
        took = [took[0] + loaded - start, took[1] + time.process_time() - loaded]
        kept.append(kernel)
    print(*(each / _COUNT * 1e3 for each in took), (_own_bytes() - before) / _COUNT / 1024)


def _own_bytes() -> int:
    """Count the bytes of memory that this process has for itself."""
    gc.collect()
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))


def _divide() -> None:
    """Print milliseconds of CPU time to compile a division, and microseconds to run it for 4,096 elements."""
    device = cujit.cpu(1)
    count = 4096
    generator = np.random.default_rng(1)
    arrays = [device.array(generator.integers(1, 1 << 62, count)) for _ in range(3)]
    arguments = [*(cujit.Pointer(array.address) for array in arrays), count]
    took = []
    for type_ in ("f32", *_WHOLE):  # the first one for as long as launches take to be compiled themselves
        size, register = _TYPES[type_]
        compute = _line("add" if type_ == "f32" else "div", type_, register, 0)
        compiled, ran = [], []
        for number in range(_PAIRS):
            name = f"k{number}"
            values = {"compute": compute, "size": size, "second": "%a4", "type": type_, "register": register}
            text = _TEXT.format(name=name, **values)
            start = time.thread_time()
            launch = cujit.load(text, device)[name].prepare(count // 128, 128)
            launch.compile()
            compiled.append(time.thread_time() - start)
            launch(*arguments)
            start = time.thread_time()
            for _ in range(500):
                launch(*arguments)
            ran.append(time.thread_time() - start)
        if type_ == "f32":
            end = time.monotonic() + 2
            while time.monotonic() < end:
                launch(*arguments)
        took += [statistics.median(compiled) * 1e3, min(ran) / 500 * 1e6]
    print(*took[2:])


def _child(what: str, folder: str, source: Path | None = None) -> list[float]:
    """Run a measurement in a process of its own, with the cujit of ``source``."""
    environment = {**os.environ, "CUJIT_CACHE_DIR": folder}
    if source is not None:
        environment["PYTHONPATH"] = str(source)
    command = [sys.executable, __file__, what]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [*map(float, done.stdout.split())]


def run() -> list[str]:
    """Measure with an empty cache and with a full one, and give lines."""
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for cache in ("empty", "full"):
            load, launch, kept = _child("kept", folder)
            lines.append(
                f"{_COUNT} kernels of an array library, each launched once, {cache} cache: load {load:.2f} ms, first "
                f"launch {launch:.2f} ms of CPU time, {kept:.0f} KiB kept for each"
            )
    return lines


_WHATS = {
    "empty cache": ("kept", ("load", "first launch", "memory")),
    "full cache": ("kept", ("load", "first launch", "memory")),
    "divisions": ("divide", [f"{t} {how}" for t in _WHOLE for how in ("compiled", "run")]),
}


def against(other: Path) -> list[str]:
    """Measure beside another ``src``, in turn, and give lines of ratios."""
    own = Path(__file__).parents[1] / "src"
    ratios: dict[str, list[list[float]]] = {what: [] for what in _WHATS}
    for turn in range(_PAIRS):
        found = {}
        for source in (own, other) if turn % 2 else (other, own):
            with tempfile.TemporaryDirectory() as folder:
                found[source] = {what: _child(how, folder, source) for what, (how, _) in _WHATS.items()}
        for what in _WHATS:
            ratios[what].append([a / b for a, b in zip(found[own][what], found[other][what], strict=True)])
    return [
        f"{what}, {name}: {statistics.median(values):.2f} of the other's, {min(values):.2f} to {max(values):.2f}"
        for what, (_, names) in _WHATS.items()
        for name, values in zip(names, zip(*ratios[what], strict=True), strict=True)
    ]


def main() -> None:
    """Measure here, or print what a process measures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("child", nargs="?", choices=("kept", "divide"), help=argparse.SUPPRESS)
    parser.add_argument("--against", type=Path, help="the src of another cujit")
    given = parser.parse_args()
    if given.child:
        {"kept": _measure, "divide": _divide}[given.child]()
    else:
        print("\n".join(run() if given.against is None else against(given.against)))


if __name__ == "__main__":
    main()
