"""Makes ``tests/goldens/triton``: PTX of kernels by Triton's own compiler, and how to launch each.

Run with a Python that has ``triton`` (no GPU is needed, nor torch); the files say which release made them.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

os.environ["TRITON_DISABLE_LINE_INFO"] = "1"  # before the import: else the PTX names this file's directory

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

GOLDENS = Path(__file__).parents[1] / "goldens" / "triton"
TARGETS = (80, 90)


@triton.jit
def softmax(out, given, row_stride, columns, BLOCK: tl.constexpr):  # noqa: N803
    """Write the softmax of each row; one program a row."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(given + row * row_stride + at, mask=inside, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out + row * row_stride + at, e / tl.sum(e, axis=0), mask=inside)


@triton.jit
def layer_norm(given, out, weight, bias, mean, rstd, stride, columns, eps, BLOCK: tl.constexpr):  # noqa: N803
    """Normalise each row in two passes over it; write mean and reciprocal deviation too."""
    row = tl.program_id(0)
    given += row * stride
    out += row * stride
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for base in range(0, columns, BLOCK):
        at = base + tl.arange(0, BLOCK)
        total += tl.load(given + at, mask=at < columns, other=0.0).to(tl.float32)
    middle = tl.sum(total, axis=0) / columns
    square = tl.zeros([BLOCK], dtype=tl.float32)
    for base in range(0, columns, BLOCK):
        at = base + tl.arange(0, BLOCK)
        x = tl.load(given + at, mask=at < columns, other=0.0).to(tl.float32)
        d = tl.where(at < columns, x - middle, 0.0)
        square += d * d
    scale = 1 / tl.sqrt(tl.sum(square, axis=0) / columns + eps)
    tl.store(mean + row, middle)
    tl.store(rstd + row, scale)
    for base in range(0, columns, BLOCK):
        at = base + tl.arange(0, BLOCK)
        inside = at < columns
        w, b = tl.load(weight + at, mask=inside), tl.load(bias + at, mask=inside)
        x = tl.load(given + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(out + at, (x - middle) * scale * w + b, mask=inside)


@triton.jit
def matmul(a, b, c, m, n, k, stride_a, stride_b, stride_c,
           M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):  # noqa: N803  # fmt: skip
    """Multiply two half-precision matrices with a float accumulator, one tile a program."""
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    at_a = a + rows[:, None] * stride_a + inner[None, :]
    at_b = b + inner[:, None] * stride_b + columns[None, :]
    total = tl.zeros((M, N), dtype=tl.float32)
    for base in range(0, k, K):
        left = tl.load(at_a, mask=(rows[:, None] < m) & (inner[None, :] < k - base), other=0.0)
        right = tl.load(at_b, mask=(inner[:, None] < k - base) & (columns[None, :] < n), other=0.0)
        total = tl.dot(left, right, total)
        at_a += K
        at_b += K * stride_b
    inside = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c + rows[:, None] * stride_c + columns[None, :], total.to(tl.float16), mask=inside)


@triton.jit
def attention(q, k, v, out, stride_head, tokens, scale,
              M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):  # noqa: N803  # fmt: skip
    """Causal flash attention, forward: one block of queries of one head a program."""
    rows = tl.program_id(0) * M + tl.arange(0, M)
    head = tl.program_id(1) * stride_head
    d = tl.arange(0, D)
    queries = tl.load(q + head + rows[:, None] * D + d[None, :], mask=rows[:, None] < tokens, other=0.0)
    most = tl.full([M], -float("inf"), tl.float32)
    norm = tl.zeros([M], tl.float32)
    total = tl.zeros([M, D], tl.float32)
    for base in range(0, (tl.program_id(0) + 1) * M, N):
        columns = base + tl.arange(0, N)
        keys = tl.load(k + head + columns[None, :] * D + d[:, None], mask=columns[None, :] < tokens, other=0.0)
        score = tl.dot(queries, keys) * (scale * 1.44269504)
        score = tl.where((rows[:, None] >= columns[None, :]) & (columns[None, :] < tokens), score, -1.0e6)
        most_now = tl.maximum(most, tl.max(score, 1))
        p = tl.math.exp2(score - most_now[:, None])
        shrink = tl.math.exp2(most - most_now)
        values = tl.load(v + head + columns[:, None] * D + d[None, :], mask=columns[:, None] < tokens, other=0.0)
        total = tl.dot(p.to(tl.float16), values, total * shrink[:, None])
        norm = norm * shrink + tl.sum(p, 1)
        most = most_now
    total = total / norm[:, None]
    tl.store(out + head + rows[:, None] * D + d[None, :], total.to(tl.float16), mask=rows[:, None] < tokens)


@triton.jit
def group_sums(given, keys, sums, counts, most, n, BLOCK: tl.constexpr):  # noqa: N803
    """Add values into the sum of their key by atomics; count and take the largest too."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(given + at, mask=inside, other=0.0)
    key = tl.load(keys + at, mask=inside, other=0)
    tl.atomic_add(sums + key, x, mask=inside)
    tl.atomic_add(counts + key, 1, mask=inside, sem="relaxed")
    tl.atomic_max(most + key, x.to(tl.int32), mask=inside)
    order = tl.cumsum(inside.to(tl.int32), 0)
    tl.atomic_xchg(counts + 64 + tl.program_id(0), tl.max(order, 0))


@triton.jit
def scaled(a, b, of_a, of_b, c, k, stride_a, stride_b, stride_c, factors,
           M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,  # noqa: N803
           PACK: tl.constexpr, BLOCK: tl.constexpr, FORMAT: tl.constexpr):  # noqa: N803  # fmt: skip
    """Multiply two matrices of small floats with a factor for each block of k; whole tiles only."""
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K // PACK)
    blocks = tl.arange(0, K // BLOCK)
    total = tl.zeros((M, N), dtype=tl.float32)
    for base in range(0, k, K):
        left = tl.load(a + rows[:, None] * stride_a + base // PACK + inner[None, :])
        right = tl.load(b + columns[None, :] * stride_b + base // PACK + inner[:, None])
        left_factors = tl.load(of_a + rows[:, None] * factors + base // BLOCK + blocks[None, :])
        right_factors = tl.load(of_b + columns[:, None] * factors + base // BLOCK + blocks[None, :])
        total = tl.dot_scaled(left, left_factors, FORMAT, right, right_factors, FORMAT, total)
    tl.store(c + rows[:, None] * stride_c + columns[None, :], total)


HALF, FLOAT, INT = "*fp16", "*fp32", "i32"
KERNELS: tuple[tuple[Any, dict[str, str], dict[str, int], dict[str, int]], ...] = (
    (softmax, {"out": FLOAT, "given": FLOAT, "row_stride": INT, "columns": INT}, {"BLOCK": 512}, {"num_warps": 4}),
    (
        layer_norm,
        dict.fromkeys(("given", "out", "weight", "bias", "mean", "rstd"), FLOAT)
        | {"stride": INT, "columns": INT, "eps": "fp32"},
        {"BLOCK": 256},
        {"num_warps": 2},
    ),
    (
        matmul,
        dict.fromkeys("abc", HALF) | dict.fromkeys(("m", "n", "k", "stride_a", "stride_b", "stride_c"), INT),
        {"M": 64, "N": 64, "K": 32},
        {"num_warps": 4, "num_stages": 3},
    ),
    (
        attention,
        dict.fromkeys(("q", "k", "v", "out"), HALF) | {"stride_head": INT, "tokens": INT, "scale": "fp32"},
        {"M": 64, "N": 32, "D": 64},
        {"num_warps": 4, "num_stages": 2},
    ),
    (
        group_sums,
        {"given": FLOAT, "keys": "*i32", "sums": FLOAT, "counts": "*i32", "most": "*i32", "n": INT},
        {"BLOCK": 256},
        {"num_warps": 4},
    ),
)


_SIZES = ("m", "n", "k", "stride_a", "stride_b", "stride_c")
BLACKWELL: tuple[tuple[str, Any, dict[str, str], dict[str, Any], dict[str, int]], ...] = (
    *(
        (
            f"matmul-{name}",
            matmul,
            {"a": type_, "b": type_, "c": HALF} | dict.fromkeys(_SIZES, INT),
            {"M": rows, "N": 64, "K": 32},
            {"num_warps": 4, "num_stages": 2},
        )
        for name, type_, rows in (
            ("fp16", HALF, 128), ("fp16-64", HALF, 64), ("bf16", "*bf16", 128), ("tf32", FLOAT, 128),
            ("e4m3", "*fp8e4nv", 128), ("e5m2", "*fp8e5", 128),
        )
    ),
    ("attention", *KERNELS[3]),
    *(
        (
            f"scaled-{name}",
            scaled,
            {"a": type_, "b": type_, "of_a": factor, "of_b": factor, "c": FLOAT}
            | dict.fromkeys(("k", "stride_a", "stride_b", "stride_c", "factors"), INT),
            {"M": 128, "N": 64, "K": 128, "PACK": pack, "BLOCK": block, "FORMAT": format_},
            {"num_warps": 4, "num_stages": 2},
        )
        for name, type_, factor, pack, block, format_ in (
            ("mxfp8", "*fp8e4nv", "*u8", 1, 32, "e4m3"), ("mxfp4", "*u8", "*u8", 2, 32, "e2m1"),
            ("nvfp4", "*u8", "*fp8e4nv", 2, 16, "e2m1"),
        )
    ),
)  # fmt: skip
"""Names of kernels for sm_100, whose products are in tensor memory."""


def compile_kernel(kernel: Any, types: dict[str, str], sizes: dict[str, Any], options: dict[str, int],
                   number: int, name: str = "") -> dict[str, object]:  # fmt: skip
    """Compile one kernel for one architecture, store the PTX, and tell how to launch it."""
    signature = types | dict.fromkeys(sizes, "constexpr")
    # As Triton's own launcher would find of aligned arrays: addresses and row lengths are multiples of 16.
    aligned = {
        (k,): [["tt.divisibility", 16]]
        for k, (name, type_) in enumerate(types.items())
        if type_[0] == "*" or "stride" in name
    }
    source = ASTSource(fn=kernel, signature=signature, constexprs=sizes, attrs=aligned)
    options = options | {"enable_fp_fusion": True}
    built = triton.compile(source, target=GPUTarget("cuda", number, 32), options=options)
    file = f"{name or kernel.__name__}-sm_{number}.ptx"
    (GOLDENS / file).write_text(built.asm["ptx"])
    return {
        "file": file,
        "kernel": built.metadata.name,
        "threads": 32 * built.metadata.num_warps,
        "shared_bytes": built.metadata.shared,
        "arguments": list(types),
        "scratch_pointers": 2,
        "sizes": sizes,
    }


def main() -> None:
    """Make every file."""
    GOLDENS.mkdir(parents=True, exist_ok=True)
    launches = [compile_kernel(*kernel, number) for kernel in KERNELS for number in TARGETS]
    launches += [compile_kernel(*kernel, 100, name) for name, *kernel in BLACKWELL]
    text = json.dumps({"triton": triton.__version__, "launches": launches}, indent=1)
    (GOLDENS / "launches.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
