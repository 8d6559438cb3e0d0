"""Multiply a sparse matrix by a vector in JAX, with gradients, with or without a GPU: ``python jax_operator.py``.

It needs JAX. The matrix is in CSR form: row ``i`` has ``values[starts[i]:starts[i + 1]]``, in those ``columns``. The
gradient of the vector is summed up by atomics, so its kernel begins with zeros, which JAX gives it.
"""

import jax
import jax.numpy as jnp
import numpy as np

import cujit.jax

SOURCE = """
// A thread for each row.
extern "C" __global__ void times(const int *starts, const int *columns, const float *values, const float *x,
                                 float *out, int rows) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0;
    for (int k = starts[row]; k < starts[row + 1]; ++k) sum += values[k] * x[columns[k]];
    out[row] = sum;
}
extern "C" __global__ void times_back(const int *starts, const int *columns, const float *values, const float *x,
                                      const float *grad, float *of_values, float *of_x, int rows) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    for (int k = starts[row]; k < starts[row + 1]; ++k) {
        of_values[k] = grad[row] * x[columns[k]];
        atomicAdd(of_x + columns[k], grad[row] * values[k]);
    }
}
"""

times_back = cujit.jax.operator(
    "examples::times_back",
    SOURCE,
    kernel="times_back",
    outputs=lambda starts, columns, values, x, grad, zeros: (values, zeros),
    arguments=lambda of_values, of_x, starts, columns, values, x, grad, zeros: (
        starts, columns, values, x, grad, of_values, of_x, grad.size),
    over=lambda of_values, of_x, starts, columns, values, x, grad, zeros: grad.size,
    input_output_aliases={5: 1},  # of_x begins as zeros
)  # fmt: skip


def back(arrays: tuple, grad: jax.Array) -> tuple:
    """Go back by the second kernel; numbers of rows and columns have no gradient."""
    return None, None, *times_back(*arrays, grad, jnp.zeros_like(arrays[3]))


times = cujit.jax.operator(
    "examples::times",
    SOURCE,
    kernel="times",
    outputs=lambda starts, columns, values, x: jax.ShapeDtypeStruct((starts.size - 1,), x.dtype),
    arguments=lambda out, starts, columns, values, x: (starts, columns, values, x, out, out.size),
    backward=back,
)


def main() -> None:
    """Compare with the dense matrix, results and gradients."""
    random = np.random.default_rng(1)
    dense = np.where(random.random((300, 200)) < 0.1, random.normal(size=(300, 200)), 0).astype(np.float32)
    places, x = dense.nonzero(), jnp.asarray(random.normal(size=200), jnp.float32)
    starts = jnp.asarray(np.searchsorted(places[0], np.arange(301)), jnp.int32)
    columns, values = jnp.asarray(places[1], jnp.int32), jnp.asarray(dense[places])

    ours = jax.jit(jax.value_and_grad(lambda v, x: (times(starts, columns, v, x) ** 2).sum(), argnums=(0, 1)))
    theirs = jax.value_and_grad(lambda m, x: (m @ x) @ (m @ x), argnums=(0, 1))
    with jax.default_matmul_precision("highest"):
        (sparse, (of_values, of_x)), (whole, (of_dense, of_x_there)) = ours(values, x), theirs(jnp.asarray(dense), x)
    pairs = ((sparse, whole), (of_values, of_dense[places]), (of_x, of_x_there))
    difference = max(float(abs(a - b).max() / abs(b).max()) for a, b in pairs)
    print(f"{jax.default_backend()}: the largest difference from JAX's own, forth and back, is {difference:.1e}")
    assert difference < 1e-5


if __name__ == "__main__":
    main()
