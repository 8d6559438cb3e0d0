"""Forty kernels before and after each rule's advice: ``python benchmarks/advice_pairs.py`` times them and prints JSON.

Of each rule, two pairs serve to tune an estimate of what advice saves, and two, ``frozen``, only to test it. The median
time of each kernel is in ms. ``--log2 N`` sets the number of threads, 2 to the power of N; ``--device`` the device.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import cujit

__all__ = ["PAIRS", "Pair", "arrays", "launches", "source"]

_BLOCK = 256
_HEAD = """
#define T threadIdx.x
#define I (blockIdx.x * blockDim.x + threadIdx.x)
#define B (I - T)
"""
_PARAMETERS = "(const float *x, const int *at, float *y, int n)"


class Pair(NamedTuple):
    """Two bodies of a kernel with ``n`` threads. ``x`` and ``y`` have 4 n elements, ``at`` has n in random order, then
    n in order.

    ``alike`` is whether both compute the same; else the second does the same work on data in another order.
    """

    rule: str
    name: str
    before: str
    after: str
    frozen: bool = False
    alike: bool = True
    block: int = _BLOCK


_ROWS = "int k16 = T % 16, r16 = T / 16, bx = blockIdx.x % 64, by = blockIdx.x / 64;"
_TILE = "__shared__ float t[1056];"
_TURN = """for (int j = 0; j < 4; j++) t[(T % 32) * PITCH + T / 32 + 8 * j] = x[4 * B + T + 256 * j];
    __syncthreads();
    for (int j = 0; j < 4; j++) y[4 * B + T + 256 * j] = t[(T / 32 + 8 * j) * PITCH + T % 32];"""
_COLUMNS = """for (int j = 0; j < 4; j++) t[(T / 32 + 8 * j) * PITCH + T % 32] = x[4 * B + T + 256 * j];
    __syncthreads();
    float s = 0; for (int k = 0; k < 32; k++) s += t[T % 32 * PITCH + k] * (k + T / 32);
    y[I] = s;"""
_FOURS = """__shared__ float t[1024];
    for (int j = 0; j < 4; j++) t[AT] = x[I + j * n];
    __syncthreads();
    float s = 0; for (int j = 0; j < 4; j++) s = s * 0.5f + t[AT];
    y[I] = s;"""
_SUM = """__shared__ float t[256]; t[T] = x[I]; __syncthreads();
    for (int s = 1; s < 256; s *= 2) { STEP __syncthreads(); }
    if (T == 0) y[blockIdx.x] = t[0];"""
_HALVES = "int h = 128 / s; if (T < h) t[T] += t[T + h];"
_LOADED = "float a[16]; for (int k = 0; k < 16; k++) a[k] = x[I + k * (n / 8)];"
_SORT = """float a[8]; for (int k = 0; k < 8; k++) a[k] = x[(at[I] + 5 * k) % n];
    UNROLL for (int i = 0; i < 7; i++)
        UNROLL for (int j = 0; j < 7; j++) { float p = a[j], q = a[j + 1]; a[j] = fminf(p, q); a[j + 1] = fmaxf(p, q); }
    y[I] = a[0] + 2 * a[3] + 4 * a[7];"""
_WINDOW = "float own = x[I], s = 0;"
_STAGED = _WINDOW + " __shared__ float t[256]; t[T] = own; __syncthreads();"
_ODD = "float v = x[I]; if (WHICH) { LOOP v = v * 0.5f + 1; } else { LOOP v = sqrtf(v + 2); } y[I] = v;".replace(
    "LOOP", "for (int k = 0; k < 64; k++)"
)
_FOUR_WAYS = """float v = x[I] + 1; for (int k = 0; k < 16; k++) switch (WHICH) {
    case 0: v = sinf(v); break; case 1: v = sqrtf(v + 1); break;
    case 2: v = expf(-v * v); break; default: v = logf(v * v + 2); }
    y[I] = v;"""
_ROW = """float s = 0; int q = n / 4, i = I % q;
    #pragma unroll 1
    for (int k = 0; k < 16; k++) s += x[AT];
    y[I] = s;"""
_PITCHED = "int i = blockIdx.x * PITCH + T; y[I] = x[i] + x[2 * n + i];"
_SAXPY = "if (I < n) y[I] = 2 * x[I] + x[n + I];"
_SERIES = "if (I < n) { float v = x[I]; for (int k = 0; k < 64; k++) v = v * 0.5f + k; y[I] = v; }"
_PRODUCT = "float s = 0; for (int k = 0; k < 64; k++) s += x[r * 64 + k] * x[k * 1024 + c]; y[r * 1024 + c] = s;"

PAIRS = (
    Pair(
        "uncoalesced", "columns", "y[I % 1024 * (n / 1024) + I / 1024] = x[I];",
        f"""__shared__ float t[16][17]; {_ROWS} int h = n / 1024;
    t[r16][k16] = x[(by * 16 + r16) * 1024 + bx * 16 + k16]; __syncthreads();
    y[(bx * 16 + r16) * h + by * 16 + k16] = t[k16][r16];""",
    ),
    Pair("uncoalesced", "members", "y[I] = x[4 * I + 1];", "y[I] = x[n + I];", frozen=True, alike=False),
    Pair("uncoalesced", "scattered", "y[I] = x[at[I]];", "y[I] = x[at[n + I]];", alike=False),
    Pair(
        "uncoalesced", "row of a thread",
        _ROW.replace("AT", "i * 16 + k"), _ROW.replace("AT", "k * q + i"),
        frozen=True, alike=False,
    ),
    Pair("misaligned", "shifted load", "y[I] = x[I + 1];", "y[I] = x[I + 32];", alike=False),
    Pair("misaligned", "odd rows", _PITCHED.replace("PITCH", "257"), _PITCHED.replace("PITCH", "264"),
         frozen=True, alike=False),
    Pair("misaligned", "shifted store", "y[I + 3] = x[I];", "y[I + 32] = x[I];", alike=False),
    Pair("misaligned", "two arrays", "y[I] = x[I + 5] + x[2 * n + I + 7];", "y[I] = x[I + 8] + x[2 * n + I + 8];",
         frozen=True, alike=False),
    Pair("narrow", "four floats", "int i = 4 * I; y[I] = x[i] * x[i + 1] + x[i + 2] * x[i + 3];",
         "float4 v = ((const float4 *)x)[I]; y[I] = v.x * v.y + v.z * v.w;"),
    Pair("narrow", "two floats", "int i = 2 * I; y[I] = x[i] - x[i + 1];",
         "float2 v = ((const float2 *)x)[I]; y[I] = v.x - v.y;", frozen=True),
    Pair("narrow", "bytes",
         "const unsigned char *c = (const unsigned char *)x; unsigned s = 0;\n"
         "#pragma unroll\nfor (int k = 0; k < 16; k++) s += c[16 * I + k]; y[I] = s;",
         "uint4 v = ((const uint4 *)x)[I]; unsigned o = 0x01010101u;\n"
         "y[I] = __dp4a(v.x, o, __dp4a(v.y, o, __dp4a(v.z, o, __dp4a(v.w, o, 0u))));"),
    Pair("narrow", "stores",
         "float v = x[I]; int i = 4 * I; y[i] = v; y[i + 1] = v + 1; y[i + 2] = v + 2; y[i + 3] = v + 3;",
         "float v = x[I]; ((float4 *)y)[I] = make_float4(v, v + 1, v + 2, v + 3);", frozen=True),
    Pair("redundant", "all of a block", _WINDOW + " for (int k = 0; k < 256; k++) s += own * x[B + k]; y[I] = s;",
         _STAGED + " for (int k = 0; k < 256; k++) s += own * t[k]; y[I] = s;"),
    Pair("redundant", "product", f"{_ROWS} int r = by * 16 + r16, c = bx * 16 + k16; {_PRODUCT}",
         f"""{_ROWS} __shared__ float a[16][17], b[16][17]; int r = by * 16 + r16, c = bx * 16 + k16; float s = 0;
    for (int k = 0; k < 64; k += 16) {{
        a[r16][k16] = x[r * 64 + k + k16]; b[r16][k16] = x[(k + r16) * 1024 + c]; __syncthreads();
        for (int i = 0; i < 16; i++) s += a[r16][i] * b[i][k16];
        __syncthreads(); }}
    y[r * 1024 + c] = s;""", frozen=True),
    Pair("redundant", "distances", _WINDOW + " for (int k = 0; k < 256; k++) s += fabsf(own - x[B + k]); y[I] = s;",
         _STAGED + " for (int k = 0; k < 256; k++) s += fabsf(own - t[k]); y[I] = s;"),
    Pair("redundant", "rows of a product",
         f"int r = blockIdx.x / 32 * 8 + T / 32, c = blockIdx.x % 32 * 32 + T % 32; {_PRODUCT}",
         """int r = blockIdx.x / 32 * 8 + T / 32, c = blockIdx.x % 32 * 32 + T % 32; float s = 0;
    __shared__ float a[8][64], b[64][32];
    for (int k = T / 32; k < 64; k += 8) b[k][T % 32] = x[k * 1024 + c];
    a[T / 32][T % 32] = x[r * 64 + T % 32]; a[T / 32][T % 32 + 32] = x[r * 64 + T % 32 + 32]; __syncthreads();
    for (int k = 0; k < 64; k++) s += a[T / 32][k] * b[k][T % 32];
    y[r * 1024 + c] = s;""", frozen=True),
    Pair("local_memory", "choice", f"{_LOADED} y[I] = a[at[I] & 15];",
         f"{_LOADED} int c = at[I] & 15; float v = 0;\n#pragma unroll\n"
         "for (int k = 0; k < 16; k++) v = c == k ? a[k] : v; y[I] = v;"),
    Pair("local_memory", "counts",
         "int h[8] = {}, c = at[I]; for (int k = 0; k < 16; k++) { h[c & 7]++; c = c * 5 + 3 + (c >> 4); }\n"
         "float s = 0; for (int k = 0; k < 8; k++) s = s * 3 + h[k]; y[I] = s;",
         "unsigned long long h = 0; int c = at[I];\n"
         "for (int k = 0; k < 16; k++) { h += 1ull << 8 * (c & 7); c = c * 5 + 3 + (c >> 4); }\n"
         "float s = 0; for (int k = 0; k < 8; k++) s = s * 3 + (h >> 8 * k & 255); y[I] = s;", frozen=True),
    Pair("local_memory", "sort", _SORT.replace("UNROLL", "\n#pragma unroll 1\n"),
         _SORT.replace("UNROLL", "\n#pragma unroll\n")),
    Pair("local_memory", "backwards",
         _LOADED + " float s = 0;\n#pragma unroll 1\nfor (int k = 15; k >= 0; k--) s = s * 0.5f + a[k]; y[I] = s;",
         _LOADED + " float s = 0;\n#pragma unroll\nfor (int k = 15; k >= 0; k--) s = s * 0.5f + a[k]; y[I] = s;",
         frozen=True),
    Pair("bank_conflicts", "turned tile", _TILE + _TURN.replace("PITCH", "32"), _TILE + _TURN.replace("PITCH", "33")),
    Pair("bank_conflicts", "strided sum", _SUM.replace("STEP", "int i = 2 * s * T; if (i < 256) t[i] += t[i + s];"),
         _SUM.replace("STEP", _HALVES), frozen=True),
    Pair("bank_conflicts", "rows of a tile", _TILE + _COLUMNS.replace("PITCH", "32"),
         _TILE + _COLUMNS.replace("PITCH", "33")),
    Pair("bank_conflicts", "four of a thread", _FOURS.replace("AT", "4 * T + j"), _FOURS.replace("AT", "256 * j + T"),
         frozen=True),
    Pair("contended_atomics", "sum", "atomicAdd((int *)y, at[I] & 3);",
         "int s = __reduce_add_sync(~0u, at[I] & 3); if (T % 32 == 0) atomicAdd((int *)y, s);"),
    Pair("contended_atomics", "four bins", "atomicAdd((int *)y + (at[I] & 3), 1);",
         "int c = at[I] & 3; for (int k = 0; k < 4; k++) { int s = __popc(__ballot_sync(~0u, c == k));\n"
         "if (T % 32 == k) atomicAdd((int *)y + k, s); }", frozen=True),
    Pair("contended_atomics", "largest", "atomicMax((int *)y, at[I]);",
         "int s = __reduce_max_sync(~0u, at[I]); if (T % 32 == 0) atomicMax((int *)y, s);"),
    Pair("contended_atomics", "two sums", "atomicAdd((int *)y + (T & 1), at[I] & 7);",
         "int v = at[I] & 7; for (int k = 0; k < 2; k++) { int s = __reduce_add_sync(~0u, (T & 1) == k ? v : 0);\n"
         "if (T % 32 == k) atomicAdd((int *)y + k, s); }", frozen=True),
    Pair("divergence", "odd threads", _ODD.replace("WHICH", "T % 2"), _ODD.replace("WHICH", "T / 32 % 2"), alike=False),
    Pair("divergence", "lengths",
         "float v = x[I]; for (int k = 0; k < T % 32 * 8; k++) v = sqrtf(v + k); y[I] = v;",
         "float v = x[I]; for (int k = 0; k < T / 32 * 35; k++) v = sqrtf(v + k); y[I] = v;", frozen=True, alike=False),
    Pair("divergence", "thinning sum", _SUM.replace("STEP", "if (T % (2 * s) == 0) t[T] += t[T + s];"),
         _SUM.replace("STEP", _HALVES)),
    Pair("divergence", "four ways", _FOUR_WAYS.replace("WHICH", "T % 4"), _FOUR_WAYS.replace("WHICH", "T / 64"),
         frozen=True, alike=False),
    Pair("partial_warps", "blocks of 16", _SAXPY, _SAXPY, block=16),
    Pair("partial_warps", "blocks of 40", _SERIES, _SERIES, frozen=True, block=40),
    Pair("partial_warps", "blocks of 8", _SERIES, _SERIES, block=8),
    Pair("partial_warps", "blocks of 33", _SAXPY, _SAXPY, frozen=True, block=33),
    Pair("double_precision", "constants", "float v = x[I]; for (int k = 0; k < 16; k++) v = v * 0.5 + 0.1; y[I] = v;",
         "float v = x[I]; for (int k = 0; k < 16; k++) v = v * 0.5f + 0.1f; y[I] = v;"),
    Pair("double_precision", "one constant", "y[I] = x[I] * 0.1 + x[n + I];", "y[I] = x[I] * 0.1f + x[n + I];",
         frozen=True),
    Pair("double_precision", "root", "float v = x[I]; for (int k = 0; k < 8; k++) v = sqrt(v + 1.5); y[I] = v;",
         "float v = x[I]; for (int k = 0; k < 8; k++) v = sqrtf(v + 1.5f); y[I] = v;"),
    Pair("double_precision", "total", "double s = 0; for (int k = 0; k < 64; k++) s = s * 0.75 + x[I]; y[I] = s;",
         "float s = 0, v = x[I]; for (int k = 0; k < 64; k++) s = s * 0.75f + v; y[I] = s;", frozen=True),
)  # fmt: skip


def source(pair: Pair) -> str:
    """Write the kernels ``before`` and ``after`` of a pair."""
    bodies = {"before": pair.before, "after": pair.after}
    return _HEAD + "\n".join(
        f'extern "C" __global__ void {name}{_PARAMETERS} {{\n    {body}\n}}' for name, body in bodies.items()
    )


def arrays(n: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Make what both kernels of a pair get."""
    order = np.arange(n, dtype="i4")
    shuffled = np.random.default_rng(44).permutation(order)
    return (np.arange(4 * n) % 7).astype("f4"), np.concatenate([shuffled, order]), np.zeros(4 * n, "f4")


def launches(pair: Pair, device: Any, n: int) -> dict[str, Any]:
    """Give each kernel of a pair with its launch shape."""
    module = cujit.jit(source(pair), device=device, options={"lineinfo": True})
    blocks = {"before": pair.block, "after": _BLOCK}
    return {name: module[name][-(-n // block), block] for name, block in blocks.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Time all pairs and print JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log2", type=int, default=24)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, default=1.0, help="longest time of a kernel")
    given = parser.parse_args(arguments)
    n, begin = 1 << given.log2, time.perf_counter()
    device = cujit.cpu() if given.device == "cpu" else cujit.gpu(int(given.device.partition(":")[2] or 0))
    x, at, y = map(device.array, arrays(n))
    found = []
    for pair in PAIRS:
        row: dict[str, Any] = {"rule": pair.rule, "name": pair.name, "frozen": pair.frozen}
        for name, launch in launches(pair, device, n).items():
            timing = cujit.time(launch, x, at, y, n, repeat=30, limit_s=given.seconds)
            row |= {f"{name}_ms": timing.median_ms, f"{name}_spread": timing.spread}
        found.append(row)
        print(f"{pair.rule}, {pair.name}: {row['before_ms'] / row['after_ms']:.2f}", file=sys.stderr, flush=True)
    about = {"device": device.name, "threads": n, "seconds": time.perf_counter() - begin, "version": cujit.__version__}
    print(json.dumps({**about, "pairs": found}, indent=1))


if __name__ == "__main__":
    main()
