"""Kernels of cuTile Python, and their Tile IR: ``python cutile_kernels.py DIRECTORY`` writes a file for each.

It needs ``cuda-tile`` alone.
"""

import math
import sys
from pathlib import Path

import cuda.tile as ct
from cuda.tile.compilation import (
    ArrayConstraint,
    CallingConvention,
    ConstantConstraint,
    KernelSignature,
    ScalarConstraint,
    export_kernel,
)

Number = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


@ct.kernel
def add(a, b, c, size: Number):
    """Add two arrays."""
    i = ct.bid(0)
    left = ct.load(a, index=(i,), shape=(size,), padding_mode=ZERO)
    ct.store(c, index=(i,), tile=left + ct.load(b, index=(i,), shape=(size,), padding_mode=ZERO))


@ct.kernel
def product(a, b, c, m: Number, n: Number, k: Number):
    """Multiply two matrices, one tile of the result a block."""
    row, column = ct.bid(0), ct.bid(1)
    total = ct.full((m, n), 0, dtype=ct.float32)
    for step in range(ct.num_tiles(a, axis=1, shape=(m, k))):
        left = ct.load(a, index=(row, step), shape=(m, k), padding_mode=ZERO)
        right = ct.load(b, index=(step, column), shape=(k, n), padding_mode=ZERO)
        total = ct.mma(left, right, total)
    ct.store(c, index=(row, column), tile=total)


@ct.kernel
def product_tf32(a, b, c, m: Number, n: Number, k: Number):
    """Multiply two matrices of floats in TF32."""
    row, column = ct.bid(0), ct.bid(1)
    total = ct.full((m, n), 0, dtype=ct.float32)
    for step in range(ct.num_tiles(a, axis=1, shape=(m, k))):
        left = ct.load(a, index=(row, step), shape=(m, k), padding_mode=ZERO)
        right = ct.load(b, index=(step, column), shape=(k, n), padding_mode=ZERO)
        total = ct.mma(ct.astype(left, ct.tfloat32), ct.astype(right, ct.tfloat32), total)
    ct.store(c, index=(row, column), tile=total)


@ct.kernel
def product_batched(a, b, c, m: Number, n: Number, k: Number):
    """Multiply each pair of matrices of two batches."""
    batch, row, column = ct.bid(2), ct.bid(0), ct.bid(1)
    total = ct.full((m, n), 0, dtype=ct.float32)
    for step in range(ct.num_tiles(a, axis=2, shape=(1, m, k))):
        left = ct.load(a, index=(batch, row, step), shape=(1, m, k), padding_mode=ZERO)
        right = ct.load(b, index=(batch, step, column), shape=(1, k, n), padding_mode=ZERO)
        total = ct.mma(ct.reshape(left, (m, k)), ct.reshape(right, (k, n)), total)
    ct.store(c, index=(batch, row, column), tile=ct.reshape(total, (1, m, n)))


@ct.kernel
def product_persistent(a, b, c, m: Number, n: Number, k: Number):
    """Multiply two matrices by a fixed number of blocks, each of which takes tile after tile."""
    rows, columns = ct.num_tiles(c, axis=0, shape=(m, n)), ct.num_tiles(c, axis=1, shape=(m, n))
    for tile in range(ct.bid(0), rows * columns, ct.num_blocks(0)):
        row, column = tile // columns, tile % columns
        total = ct.full((m, n), 0, dtype=ct.float32)
        for step in range(ct.num_tiles(a, axis=1, shape=(m, k))):
            left = ct.load(a, index=(row, step), shape=(m, k), padding_mode=ZERO)
            right = ct.load(b, index=(step, column), shape=(k, n), padding_mode=ZERO)
            total = ct.mma(left, right, total)
        ct.store(c, index=(row, column), tile=total)


@ct.kernel
def softmax(x, y, size: Number):
    """Write the softmax of each row; a block a row."""
    row = ct.bid(0)
    values = ct.load(x, index=(row, 0), shape=(1, size), padding_mode=ct.PaddingMode.NEG_INF)
    weights = ct.exp(values - ct.max(values, axis=1, keepdims=True))
    ct.store(y, index=(row, 0), tile=weights / ct.sum(weights, axis=1, keepdims=True))


@ct.kernel
def layer_norm(x, weight, bias, y, epsilon, size: Number):
    """Normalize each row; a block a row, of exactly ``size`` elements."""
    row = ct.bid(0)
    values = ct.load(x, index=(row, 0), shape=(1, size))
    centered = values - ct.sum(values, axis=1, keepdims=True) / size
    variance = ct.sum(centered * centered, axis=1, keepdims=True) / size
    scale = ct.reshape(ct.load(weight, index=(0,), shape=(size,)), (1, size))
    shift = ct.reshape(ct.load(bias, index=(0,), shape=(size,)), (1, size))
    ct.store(y, index=(row, 0), tile=centered * ct.rsqrt(variance + epsilon) * scale + shift)


@ct.kernel
def attention(q, k, v, out, scale, m: Number, n: Number, d: Number):
    """Attend to all keys, with the softmax in one pass; a block for ``m`` queries of a head."""
    head, row = ct.bid(1), ct.bid(0)
    query = ct.reshape(ct.load(q, index=(head, row, 0), shape=(1, m, d)), (m, d))
    highest = ct.full((m, 1), -math.inf, dtype=ct.float32)
    sums = ct.full((m, 1), 0.0, dtype=ct.float32)
    total = ct.full((m, d), 0.0, dtype=ct.float32)
    for step in range(ct.num_tiles(k, axis=1, shape=(1, n, d))):
        keys = ct.transpose(ct.reshape(ct.load(k, index=(head, step, 0), shape=(1, n, d)), (n, d)))
        scores = ct.mma(query, keys, ct.full((m, n), 0.0, dtype=ct.float32)) * scale
        higher = ct.maximum(highest, ct.max(scores, axis=1, keepdims=True))
        weights = ct.exp(scores - higher)
        shrink = ct.exp(highest - higher)
        sums = sums * shrink + ct.sum(weights, axis=1, keepdims=True)
        values = ct.reshape(ct.load(v, index=(head, step, 0), shape=(1, n, d)), (n, d))
        total = ct.mma(ct.astype(weights, values.dtype), values, total * shrink)
        highest = higher
    ct.store(out, index=(head, row, 0), tile=ct.reshape(total / sums, (1, m, d)))


def array(dtype, axes, aligned=1):
    """Describe an array in the order of C; a GPU's driver makes tensor maps of one that is aligned to 16 bytes."""
    strides = (*(None,) * (axes - 1), 1)
    return ArrayConstraint(
        dtype, axes, index_dtype=ct.int32, stride_constant=strides, stride_lower_bound_incl=0, alias_groups=(),
        may_alias_internally=False, base_addr_divisible_by=aligned,
        stride_divisible_by=(*(aligned,) * (axes - 1), 1),
    )  # fmt: skip


def _product(dtype, axes=2, m=32, n=32, k=32):
    return [array(dtype, axes), array(dtype, axes), array(ct.float32, axes), *map(ConstantConstraint, (m, n, k))]


F32, F16 = ct.float32, ct.float16
KERNELS = {
    "add": (add, [array(F32, 1)] * 3 + [ConstantConstraint(128)]),
    "product_f16": (product, _product(F16)),
    "product_by_maps": (
        product,
        [array(F16, 2, 16), array(F16, 2, 16), array(F32, 2, 16), *map(ConstantConstraint, (64, 64, 32))],
    ),
    "product_bf16": (product, _product(ct.bfloat16)),
    "product_tf32": (product_tf32, _product(F32)),
    "product_fp8": (product, _product(ct.float8_e4m3fn)),
    "product_batched": (product_batched, _product(F16, 3)),
    "product_persistent": (product_persistent, _product(F16)),
    "softmax": (softmax, [array(F32, 2)] * 2 + [ConstantConstraint(128)]),
    "layer_norm": (
        layer_norm,
        [array(F32, 2), array(F32, 1), array(F32, 1), array(F32, 2), ScalarConstraint(F32), ConstantConstraint(128)],
    ),
    "attention": (
        attention,
        [array(F16, 3)] * 3 + [array(F32, 3), ScalarConstraint(F32), *map(ConstantConstraint, (32, 32, 32))],
    ),
}

if __name__ == "__main__":
    for name, (kernel, parameters) in KERNELS.items():
        signature = KernelSignature(parameters, CallingConvention.cutile_python_v1(), symbol=name)
        export_kernel(kernel, [signature], str(Path(sys.argv[1]) / f"{name}.tileir"), output_format="tileir_bytecode")
