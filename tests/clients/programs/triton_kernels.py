"""Triton without torch: softmax, layer norm, a product of matrices by tensor cores, flash attention."""

import numpy as np
import triton
import triton.language as tl
from cuda.bindings import driver


@triton.jit
def softmax(out, given, row_stride, columns, BLOCK: tl.constexpr):
    """Write the softmax of each row; one program a row."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(given + row * row_stride + at, mask=inside, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out + row * row_stride + at, e / tl.sum(e, axis=0), mask=inside)


@triton.jit
def layer_norm(given, out, weight, bias, mean, rstd, stride, columns, eps, BLOCK: tl.constexpr):
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
def matmul(a, b, c, m, n, k, stride_a, stride_b, stride_c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
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
def attention(q, k, v, out, stride_head, tokens, scale, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
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


class Array:
    """Memory of the device, as Triton takes it: with a pointer and a dtype."""

    def __init__(self, data):
        self.shape, self.dtype, self._numpy = (
            data.shape,
            {"float32": "fp32", "float16": "fp16"}[data.dtype.name],
            data.dtype,
        )
        self._bytes = data.nbytes
        error, self._pointer = driver.cuMemAlloc(data.nbytes)
        assert int(error) == 0
        data = np.ascontiguousarray(data)
        driver.cuMemcpyHtoD(self._pointer, data.ctypes.data, data.nbytes)

    def data_ptr(self):
        return int(self._pointer)

    def numpy(self):
        found = np.empty(self.shape, self._numpy)
        (error,) = driver.cuMemcpyDtoH(found.ctypes.data, self._pointer, self._bytes)
        assert int(error) == 0
        return found


random = np.random.default_rng(5)
triton.runtime.driver.active.get_current_device()

x = random.standard_normal((7, 300), np.float32)
out = Array(np.empty_like(x))
softmax[(7,)](out, Array(x), 300, 300, BLOCK=512)
e = np.exp(x - x.max(1, keepdims=True))
np.testing.assert_allclose(out.numpy(), e / e.sum(1, keepdims=True), rtol=1e-5, atol=1e-7)

weight, bias = random.standard_normal(300, np.float32), random.standard_normal(300, np.float32)
out, mean, rstd = Array(x), Array(x[:, 0]), Array(x[:, 0])
layer_norm[(7,)](Array(x), out, Array(weight), Array(bias), mean, rstd, 300, 300, 1e-5, BLOCK=256)
middle = x.mean(1, keepdims=True)
scale = 1 / np.sqrt(x.var(1, keepdims=True) + 1e-5)
np.testing.assert_allclose(out.numpy(), (x - middle) * scale * weight + bias, rtol=1e-4, atol=1e-5)
np.testing.assert_allclose(rstd.numpy(), scale[:, 0], rtol=1e-4)

a, b = (random.standard_normal(shape, np.float32).astype(np.float16) for shape in ((100, 96), (96, 80)))
c = Array(np.empty((100, 80), np.float16))
matmul[(2, 2)](Array(a), Array(b), c, 100, 80, 96, 96, 80, 80, M=64, N=64, K=32)
np.testing.assert_allclose(
    c.numpy().astype(np.float32), a.astype(np.float32) @ b.astype(np.float32), rtol=2e-3, atol=2e-2
)

heads, tokens, depth = 2, 100, 64
q, k, v = (random.standard_normal((heads, tokens, depth), np.float32).astype(np.float16) for _ in range(3))
out = Array(np.empty_like(q))
attention[(2, heads)](Array(q), Array(k), Array(v), out, tokens * depth, tokens, 0.125, M=64, N=32, D=64)
q, k, v = (each.astype(np.float32) for each in (q, k, v))
score = np.where(np.tri(tokens, dtype=bool), q @ k.transpose(0, 2, 1) * 0.125, -np.inf)
weights = np.exp(score - score.max(2, keepdims=True))
np.testing.assert_allclose(out.numpy(), weights / weights.sum(2, keepdims=True) @ v, rtol=2e-2, atol=5e-3)
