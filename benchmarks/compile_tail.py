"""What the slowest kernels take to compile on the CPU device: ``compile_tail.py [NAME]``.

Each shape is like one that was slow in foreign code, and is compiled in a process of its own, without the cache, under
``LIMIT_S``: CPU seconds from PTX to the end of a first launch, and the most memory that the process had.

Some shapes are compiled in several lengths as well. If the seconds are ``lines ** exponent``, which is fitted to the
logarithms, an exponent of 1 tells that they are proportional to the lines.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

import cujit

__all__ = ["GROWING", "SHAPES"]

LIMIT_S = 180
"""Seconds after which a shape is given up."""

_HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p) {\n"


def _product(mnemonic: str, register: str, a: int, b: int, c: int, lines: int) -> str:
    """Write a tensor-core product: tiles of registers loaded, multiplied and stored, a loop around, some ``lines``."""
    tiles = lines // (2 * c + 2)
    accumulators = [[f"c{t % 64}_{k}" for k in range(c)] for t in range(tiles)]
    names = sorted({name for tile in accumulators for name in tile})
    inputs = [f"a{k}" for k in range(a)] + [f"b{k}" for k in range(b)]
    bits, kind = (64, "f64") if register == "f64" else (32, "b32")
    text = [_HEAD, f".reg .{kind} {', '.join(names + inputs)};", ".reg .b64 at; .reg .b32 i; .reg .pred q;"]
    text += ["ld.param.u64 at, [p]; mov.u32 i, 0;"]
    text += [f"ld.global.{kind} {name}, [at + {8 * k}];" for k, name in enumerate(names + inputs)]
    text.append("LOOP:")
    for t, tile in enumerate(accumulators):
        text += [f"ld.global.{kind} {inputs[t % len(inputs)]}, [at + {8 * (t % 32)}];"]
        own = ", ".join(tile)
        left, right = ", ".join(inputs[:a]), ", ".join(inputs[a:])
        text.append(f"{mnemonic} {{{own}}}, {{{left}}}, {{{right}}}, {{{own}}};")
        text += [f"st.global.{kind} [at + {bits // 8 * k}], {name};" for k, name in enumerate(tile)]
        text += [f"setp.eq.u32 q, i, {t + 7}; @q bra DONE;"]
    text += ["add.u32 i, i, 1; setp.lt.u32 q, i, 2; @q bra LOOP;", "DONE:", "ret; }"]
    return "\n".join(text)


def _long(lines: int) -> str:
    """Write arithmetic of each lane with a branch in every tenth line."""
    text = [_HEAD, ".reg .b64 at; .reg .b32 r<64>; .reg .pred q;", "ld.param.u64 at, [p]; mov.u32 r0, %tid.x;"]
    text += [f"mad.lo.u32 r{k}, r0, {k}, {k + 3};" for k in range(1, 64)]
    for n in range(lines):
        d, a, b = 1 + n % 63, (n * 7) % 64, (n * 13 + 5) % 64
        if n % 10 == 9:
            text.append(f"setp.lt.u32 q, r{a}, r{b}; @q bra L{n};\nL{n}:")
        else:
            text.append(f"{('add.u32', 'xor.b32', 'mul.lo.u32', 'sub.u32')[n % 4]} r{d}, r{a}, r{b};")
    return "\n".join([*text, "st.global.u32 [at], r7;", "ret; }"])


_QUICKSORT = """
extern "C" __global__ void k(int *p) {
    __shared__ int low[64][32], high[64][32], top[64];
    int t = threadIdx.x % 64;
    top[t] = 1; low[t][0] = 0; high[t][0] = 31;
    int *x = p + 32 * t;
    while (top[t] > 0) {
        int at = --top[t], l = low[t][at], h = high[t][at];
        __syncwarp();
        while (l < h) {
            int pivot = x[(l + h) / 2], i = l, j = h;
            do {
                while (x[i] < pivot) i++;
                while (x[j] > pivot) j--;
                if (i <= j) { int s = x[i]; x[i] = x[j]; x[j] = s; i++; j--; }
            } while (i <= j);
            if (j - l < h - i) { if (i < h) { low[t][top[t]] = i; high[t][top[t]++] = h; } h = j; }
            else { if (l < j) { low[t][top[t]] = l; high[t][top[t]++] = j; } l = i; }
        }
    }
}"""

_SCAN = """
#include <cub/block/block_load.cuh>
#include <cub/block/block_scan.cuh>
struct Pair { int key; float value; };
struct ByKey {
    __device__ Pair operator()(const Pair &a, const Pair &b) const {
        return Pair{b.key, a.key == b.key ? a.value + b.value : b.value};
    }
};
extern "C" __global__ void k(int *p) {
    using Scan = cub::BlockScan<Pair, 64, cub::BLOCK_SCAN_WARP_SCANS>;
    __shared__ typename Scan::TempStorage storage;
    Pair items[9];
    for (int i = 0; i < 9; i++) items[i] = Pair{p[9 * threadIdx.x + i] / 4, (float)i};
    Scan(storage).InclusiveScan(items, items, ByKey());
    for (int i = 0; i < 9; i++) p[9 * threadIdx.x + i] = (int)items[i].value;
}"""


def _compiled(source: str) -> str:
    return bytes(cujit.compile(source, arch="sm_90", to="ptx").data).decode().rstrip("\0")


_INT8 = "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
_DOUBLE = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"
SHAPES: dict[str, Callable[[], str]] = {
    "int8": lambda: _product(_INT8, "b32", 4, 2, 4, 2400),
    "double": lambda: _product(_DOUBLE, "f64", 1, 1, 2, 4400),
    "quicksort": lambda: _compiled(_QUICKSORT),
    "scan": lambda: _compiled(_SCAN),
    "long": lambda: _long(20_000),
}
"""What writes the PTX of each shape, by name."""

LENGTHS = (2_500, 5_000, 10_000, 20_000)
GROWING: dict[str, Callable[[int], str]] = {
    "int8": lambda lines: _product(_INT8, "b32", 4, 2, 4, lines),
    "double": lambda lines: _product(_DOUBLE, "f64", 1, 1, 2, lines),
    "long": _long,
}
"""What writes the PTX of a shape in about a number of lines."""


def _text(name: str) -> str:
    """Write a shape; a number behind its name is of lines."""
    shape, _, lines = name.partition(":")
    return GROWING[shape](int(lines)) if lines else SHAPES[shape]()


def _measure(name: str) -> None:
    """Compile one shape, and print what it took."""
    text = _text(name)
    device = cujit.cpu()
    data = device.zeros(1 << 16, "u1")
    begin = time.process_time()
    cujit.load(text, device)["k"][1, 64](data)
    seconds = time.process_time() - begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{name:12} {len(text.splitlines()):6} lines of PTX {seconds:7.1f} s CPU {peak:7.0f} MB at most")


def _apart(name: str) -> tuple[int, float] | None:
    """Measure one shape in a process of its own, and print that; give lines and seconds."""
    try:
        done = subprocess.run(
            [sys.executable, __file__, name], check=True, timeout=LIMIT_S, stdout=subprocess.PIPE, text=True
        )
    except subprocess.TimeoutExpired:
        print(f"{name:12} not done in {LIMIT_S} s")
        return None
    print(done.stdout, end="", flush=True)
    _, lines, _, _, _, seconds, *_ = done.stdout.split()
    return int(lines), float(seconds)


def _fit(name: str) -> None:
    """Measure a shape in all lengths, and print how the seconds grow with the lines."""
    found = [each for length in LENGTHS if (each := _apart(f"{name}:{length}"))]
    if len(found) > 1:
        lines, seconds = zip(*found, strict=True)
        exponent, _ = np.polyfit(np.log(lines), np.log(seconds), 1)
        print(f"{name:12} seconds grow as lines ** {exponent:.2f}", flush=True)


def main() -> None:
    """Measure every shape in a process of its own, or the one that is named in this one."""
    os.environ["CUJIT_CACHE"] = "0"
    if len(sys.argv) > 1:
        _measure(sys.argv[1])
        return
    for name in SHAPES:
        _apart(name)
    for name in GROWING:
        _fit(name)


if __name__ == "__main__":
    main()
