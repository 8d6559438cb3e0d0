"""Kernels as functions of JAX: traced, compiled, with gradients, in batches, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cujit.errors import ArgumentError, OptionError, UnsupportedError
from frameworks.kernels import AXPY, SUMS
from raising import raises

SOURCE = (
    AXPY
    + SUMS
    + """
extern "C" __global__ void widths(const float *x, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = blockDim.x;
}
extern "C" __global__ void bits(double number, int2 *out) {
    *out = make_int2(__double2loint(number), __double2hiint(number));
}
"""
)


@pytest.fixture(scope="session")
def ops(jax: Any) -> Any:
    """Functions of all shapes."""
    import cujit.jax

    axpy_back = cujit.jax.operator(
        "cujit_tests::axpy_back",
        SOURCE,
        kernel="axpy_back<{grad}>",
        outputs=lambda grad, *, a: (grad, grad),
        arguments=lambda of_x, of_y, grad, *, a: (a, grad, of_x, of_y, grad.size),
        vmap_method="broadcast_all",
    )
    axpy = cujit.jax.operator(
        "cujit_tests::axpy",
        SOURCE,
        kernel="axpy<{x}>",
        outputs=lambda x, y, *, a: x,
        arguments=lambda out, x, y, *, a: (a, x, y, out, x.size),
        backward=lambda kept, grad, *, a: axpy_back(grad, a=a),
        vmap_method="broadcast_all",
    )
    sums = cujit.jax.operator(
        "cujit_tests::sums",
        SOURCE,
        kernel="sums<{width}>",
        outputs=lambda x, *, width: jax.ShapeDtypeStruct(x.shape[:1], x.dtype),
        arguments=lambda out, x, *, width: (x, out, x.shape[0]),
        grid=lambda out, x, *, width: x.shape[0],
        block=32,
        shared_bytes=lambda out, x, *, width: 4 * width,
    )
    return SimpleNamespace(axpy=axpy, axpy_back=axpy_back, sums=sums)


@pytest.fixture
def define(jax: Any) -> Any:  # noqa: ARG001 — it is skipped where there is none
    """Define the same function once more, with other arguments."""
    import cujit.jax

    def again(**more: Any) -> Any:
        said: dict[str, Any] = {
            "kernel": "scale",
            "outputs": lambda x: x,
            "arguments": lambda out, x: (out, 5.0, x.size),
            "input_output_aliases": {0: 0},
        }
        return cujit.jax.operator("cujit_tests::again", SOURCE, **(said | more))

    return again


def test_importing_cujit_does_not_import_jax() -> None:
    code = "import sys, cujit; cujit.jit, cujit.load; assert 'jax' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.usefixtures("platform")
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "uint32"])
def test_template_instance_depends_on_the_element_type(jax: Any, ops: Any, dtype: str) -> None:
    x = jax.numpy.arange(100).astype(dtype)
    found = ops.axpy(x, x, a=2.0)
    assert found.dtype == x.dtype
    assert (found == 2 * x + x).all()


@pytest.mark.usefixtures("platform")
def test_number_becomes_a_template_argument(jax: Any, ops: Any) -> None:
    for width in (32, 16):
        x = jax.numpy.arange(320.0).reshape(-1, width)
        padded = jax.numpy.concatenate([x, jax.numpy.zeros((32 // width, width))])  # a block has 32 threads
        assert (ops.sums(padded, width=width)[: len(x)] == x.sum(1)).all()


def test_operator_runs_on_the_device_of_its_arrays(jax: Any, ops: Any, platform: str) -> None:
    x = jax.numpy.ones(4)
    assert {d.platform for d in ops.axpy(x, x, a=1.0).devices()} == {"gpu" if platform == "cuda" else "cpu"}


@pytest.mark.usefixtures("platform")
def test_operator_compiles_with_other_operations(jax: Any, ops: Any) -> None:
    jnp = jax.numpy

    def compute(x: Any, y: Any) -> Any:
        return jnp.cos(ops.axpy(jnp.sin(x).T, y, a=3.0)) + 1  # the kernel gets rows, whatever XLA would have chosen

    x, y = jnp.arange(500.0).reshape(20, 25), jnp.ones((25, 20))
    np.testing.assert_allclose(jax.jit(compute)(x, y), jnp.cos(3 * jnp.sin(x).T + y) + 1, rtol=1e-6)

    def step(carry: Any, row: Any) -> Any:
        return jax.lax.cond(row[0] < 40, lambda: ops.axpy(row, carry, a=1.0), lambda: carry), row.sum()

    last, _ = jax.lax.scan(step, jnp.zeros(4), jnp.arange(48.0).reshape(12, 4))
    assert last.tolist() == jnp.arange(40.0).reshape(10, 4).sum(0).tolist()


@pytest.mark.usefixtures("platform")
def test_outputs_are_new_arrays(jax: Any, ops: Any, define: Any) -> None:
    x = jax.numpy.ones(300)
    scaled = define()(x)  # begins as a copy of x, and is written to
    assert (x.tolist(), scaled.tolist()) == ([1.0] * 300, [5.0] * 300)
    ops.axpy(x, x, a=4.0)
    assert x.tolist() == [1.0] * 300


@pytest.mark.usefixtures("platform")
def test_empty_input_launches_nothing(jax: Any, ops: Any) -> None:
    empty = jax.numpy.zeros(0)
    assert ops.axpy(empty, empty, a=2.0).shape == (0,)
    assert ops.sums(jax.numpy.zeros((0, 32)), width=32).shape == (0,)


@pytest.mark.usefixtures("platform")
@pytest.mark.parametrize("compiled", [False, True])
def test_second_kernel_is_the_way_back(jax: Any, ops: Any, compiled: bool) -> None:
    x, y = jax.numpy.arange(100.0), jax.numpy.ones(100)

    def loss(axpy: Any, x: Any, y: Any) -> Any:
        return (axpy(x, y) ** 2).sum()

    found, expected = (
        jax.grad(lambda x, y, axpy=axpy: loss(axpy, x, y), argnums=(0, 1))
        for axpy in (lambda x, y: ops.axpy(x, y, a=3.0), lambda x, y: 3 * x + y)
    )
    for mine, theirs in zip((jax.jit(found) if compiled else found)(x, y), expected(x, y), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)
    rows = x.reshape(5, 20)
    np.testing.assert_allclose(
        jax.vmap(found)(rows, rows)[0], jax.vmap(expected)(rows, rows)[0], rtol=1e-6
    )  # gradients of each row


def test_residuals_reach_the_backward_function(jax: Any, define: Any) -> None:
    operator = define(
        kernel="axpy<{x}>",
        outputs=lambda x, y, *, a=2.0: x,
        arguments=lambda out, x, y, *, a: (a, x, y, out, x.size),
        residuals=lambda out, x, y, *, a: (out, y * a),
        backward=lambda kept, grad, *, a: [grad * kept[0], None],
        input_output_aliases=None,
    )
    of_x, of_y = jax.grad(lambda x, y: operator(x, y).sum(), argnums=(0, 1))(jax.numpy.ones(3), jax.numpy.ones(3))
    assert (of_x.tolist(), of_y.tolist()) == ([3.0] * 3, [0.0] * 3)


def test_way_back_gets_each_gradient_and_each_number(jax: Any, define: Any) -> None:
    seen = []

    def backward(kept: Any, first: Any, second: Any, *, a: float, b: float) -> Any:
        seen.append((kept.tolist(), a, b))
        return a * first + b * second

    operator = define(
        kernel="axpy_back<{x}>",
        outputs=lambda x, *, a, b: (x, x),
        arguments=lambda first, second, x, *, a, b: (a - b, x, first, second, x.size),
        residuals=lambda first, second, x, *, a, b: first + second + b,
        backward=backward,
        input_output_aliases=None,
    )
    x = jax.numpy.ones(2)
    first, second = operator(x, b=3.0, a=7.0)  # in another order than the function has
    assert (first.tolist(), second.tolist()) == ([4.0] * 2, [1.0] * 2)
    _, gradient = jax.vjp(lambda x: operator(x, b=3.0, a=7.0), x)
    assert [found.tolist() for found in gradient((x, 10 * x))] == [[37.0] * 2]
    assert seen == [([8.0] * 2, 7.0, 3.0)]


def test_missing_backward_function_makes_a_gradient_an_error(jax: Any, ops: Any) -> None:
    with raises(UnsupportedError, "unsupported", "cujit_tests::axpy_back", "backward=…"):
        jax.grad(lambda x: ops.axpy_back(x, a=2.0)[0].sum())(jax.numpy.ones(4))


@pytest.mark.usefixtures("platform")
@pytest.mark.parametrize("method", ["sequential", "sequential_unrolled", "expand_dims", "broadcast_all"])
def test_batch_is_one_launch_or_many(jax: Any, define: Any, method: str) -> None:
    shapes = []

    def arguments(out: Any, _x: Any) -> Any:
        shapes.append(out.shape)
        return out, 5.0, out.size

    batched = jax.vmap(define(vmap_method=method, arguments=arguments))(jax.numpy.ones((3, 4)))
    assert batched.tolist() == [[5.0] * 4] * 3
    assert set(shapes) == {(4,) if method.startswith("sequential") else (3, 4)}


@pytest.mark.usefixtures("platform")
def test_grid_is_by_threads_by_blocks_or_by_a_function(jax: Any, define: Any) -> None:
    for more in ({"grid": 2}, {"grid": (2, 1)}, {"grid": lambda out, x: 1}, {"over": lambda out, x: out.size}):
        assert define(**more)(jax.numpy.ones(512)).tolist() == [5.0] * 512


@pytest.mark.usefixtures("platform")
def test_blocks_have_the_specified_number_of_threads(jax: Any, define: Any) -> None:
    said = {"kernel": "widths", "arguments": lambda out, x: (x, out, x.size), "input_output_aliases": None}
    for more, width in (({"block": 64}, 64), ({"grid": 2, "block": 160}, 160), ({"grid": 2}, 256)):
        assert define(**said, **more)(jax.numpy.ones(300)).tolist() == [width] * 300


@pytest.mark.usefixtures("platform")
def test_blocks_have_the_specified_shared_memory(jax: Any, define: Any) -> None:
    said: dict[str, Any] = {"kernel": "shared", "arguments": lambda out, x: (out, x.size)}
    more: dict[str, Any]
    for more, size in (({}, 0), ({"shared_bytes": 1024}, 1024), ({"shared_bytes": lambda out, x: 16 * x.size}, 4096)):
        assert define(**said, **more)(jax.numpy.ones(256)).tolist() == [size] * 256


@pytest.mark.usefixtures("platform")
def test_calls_are_cached_up_to_a_limit(jax: Any, define: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from cujit.jax import operators

    monkeypatch.setattr(operators, "_MOST_PLANS", 3)
    asked = []

    def arguments(out: Any, x: Any) -> Any:
        asked.append(x.size)
        return out, 5.0, x.size

    operator = define(arguments=arguments)
    for size in (1, 2, 3, 1, 2, 3, 4, 1):
        operator(jax.numpy.ones(size)).block_until_ready()
    assert asked == [1, 1, 2, 2, 3, 3, 1, 2, 3, 4, 4, 1, 1]  # a new call looks at its arguments first


@pytest.mark.parametrize("number", [0.0, -0.0, 1, 1.0, True, 0.1, float("inf"), 2**53 + 1, np.float32(0.1)])
def test_number_arrives_bit_for_bit(jax: Any, define: Any, number: Any) -> None:
    seen = []

    def arguments(out: Any, _x: Any, *, number: Any) -> Any:
        seen.append(number)
        return float(number), out

    operator = define(
        kernel="bits",
        outputs=lambda x, *, number: jax.ShapeDtypeStruct((2,), "int32"),
        arguments=arguments,
        over=lambda out, x, *, number: 1,
        input_output_aliases=None,
    )
    found = np.asarray(operator(jax.numpy.ones(1), number=number))
    assert found.tobytes() == np.float64(number).tobytes()
    plain = number.item() if isinstance(number, np.generic) else number
    assert {(type(n), repr(n)) for n in seen} == {(type(plain), repr(plain))}


@pytest.mark.usefixtures("platform")
def test_many_threads_call_it_with_many_shapes(jax: Any, ops: Any) -> None:
    def run(n: int) -> bool:
        x = jax.numpy.arange(n, dtype="float32")
        return bool((ops.axpy(x, x, a=float(n)) == n * x + x).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(run, [1 + n % 50 for n in range(400)]))


def test_artifact_is_accepted(jax: Any) -> None:
    import cujit.jax

    shipped = cujit.jax.operator(
        "cujit_tests::shipped",
        cujit.load(cujit.compile(SOURCE, arch="compute_90").data, cujit.cpu()).artifact,  # which knows no types
        kernel="widths",
        outputs=lambda x: x,
        arguments=lambda out, x: (x, out, x.size),
        block=32,
    )
    assert shipped(jax.numpy.ones(3)).tolist() == [32.0] * 3


def test_arrays_may_be_named_and_numbers_have_defaults(jax: Any, define: Any) -> None:
    operator = define(outputs=lambda x, *, by=3.0: x, arguments=lambda out, x, *, by: (out, by, x.size))
    x = jax.numpy.ones(2)
    assert [operator(x)[0], operator(x=x, by=2.0)[0], operator(x, by=np.int32(4))[0]] == [3.0, 2.0, 4.0]


def test_mismatch_is_refused_at_trace_time(jax: Any, ops: Any, define: Any) -> None:
    x = jax.numpy.ones(8)
    refused: list[tuple[Callable[[], Any], tuple[str, ...]]] = [
        (lambda: ops.axpy(x, a=2.0), ("cujit_tests::axpy(x, y, *, a)", "argument: 'y'")),
        (lambda: ops.axpy(x, x, x, a=2.0), ("too many positional arguments",)),
        (lambda: ops.axpy(x, x), ("cujit_tests::axpy(x, y, *, a)", "argument: 'a'")),
        (lambda: ops.axpy(x, x, a=x), ("an array", "static_argnames='a'")),
        (lambda: jax.jit(lambda a: ops.axpy(x, x, a=a))(2.0), ("an array", "static_argnames='a'")),
        (lambda: ops.axpy(x, x, a="2"), ("a str", "static_argnames='a'")),
        (lambda: ops.axpy(x, x.astype("int4"), a=2), ("array y", "int4", "x.astype(jnp.int8)")),
        (lambda: ops.axpy(x.astype("complex64"), x, a=2), ("cujit_tests::axpy", "{x}", "complex64")),
    ]
    for call, values in refused:
        with raises(ArgumentError, "argument", *values):
            call()
    with raises(ArgumentError, "argument", "cujit_tests::again", "output 0", "int4"):
        define(outputs=lambda x: jax.ShapeDtypeStruct(x.shape, "int4"), input_output_aliases=None)(x)
    for more, values in (
        ({"outputs": lambda x: 3}, ("output 0", "int", "jax.ShapeDtypeStruct(shape, dtype)")),
        ({"outputs": lambda x: ()}, ("outputs", "nothing")),
        ({"input_output_aliases": {3: 0}}, ("cujit_tests::again", "3:0", "input_output_aliases={0: 0}")),
    ):
        with raises(OptionError, "option", *values):
            define(**more)(x)


@pytest.mark.usefixtures("platform")
def test_kernel_mismatch_is_an_xla_error_with_name_and_cause(jax: Any, ops: Any, define: Any) -> None:
    x = jax.numpy.ones(8)

    def fails(_out: Any, _x: Any) -> Any:
        raise KeyError("of my own")

    refused: list[tuple[Callable[[], Any], str]] = [
        (
            lambda: ops.axpy(x, x.astype("float16"), a=2.0),
            "^INVALID_ARGUMENT: cujit_tests::axpy: ArgumentError: axpy<float>: argument 3",
        ),
        (lambda: define(kernel="absent")(x), "cujit_tests::again: (NameNotFoundError|CompileError): .*absent"),
        (lambda: define(input_output_aliases=None, arguments=lambda out, x: (x, 1.0, 8))(x), "may write to argument 1"),
        (lambda: define(arguments=lambda out, x: (out, 1.0))(x), "cujit_tests::again: ArgumentError: .*scale"),
        (lambda: define(arguments=fails)(x), "(?s)cujit_tests::again: Traceback.*KeyError: 'of my own'"),
        (lambda: define(block=5000)(x), "^INTERNAL: cujit_tests::again: LaunchError: .*5000"),
    ]
    for call, message in refused:
        with pytest.raises(jax.errors.JaxRuntimeError, match=message):
            call().block_until_ready()
    assert ops.axpy(x, x, a=2.0).tolist() == [3.0] * 8  # and life goes on


@pytest.mark.parametrize(
    ("more", "values"),
    [
        ({"grid": 1, "over": lambda out, x: 1}, ("option-conflict", "over=", "grid=")),
        ({"kernel": "scale<{z}>"}, ("option", "'scale<{z}>'", "z", "x")),
        ({"kernel": "scale<{x"}, ("option", "'scale<{x'", '"axpy<{x}>"')),
        ({"outputs": lambda *x: x[0]}, ("option", "outputs", "(*x)")),
        ({"outputs": lambda *, x: x}, ("option", "outputs", "(*, x)")),
        ({"vmap_method": "fast"}, ("option", "vmap_method", "'fast'", "sequential")),
    ],
)
def test_invalid_operator_is_refused(define: Any, more: dict[str, Any], values: tuple[str, ...]) -> None:
    with raises(OptionError, *values):
        define(**more)


@pytest.mark.usefixtures("jax")
def test_name_without_a_namespace_is_refused() -> None:
    import cujit.jax

    with raises(OptionError, "option", "namespace::name", "'scale'"):
        cujit.jax.operator("scale", SOURCE, kernel="scale", outputs=lambda x: x, arguments=lambda out, x: (out,))


def test_redefinition_replaces_the_operator(jax: Any, define: Any) -> None:
    for by in (2.0, 3.0):
        operator = define(arguments=lambda out, x, by=by: (out, by, x.size))
        assert operator(jax.numpy.ones(2)).tolist() == [by] * 2


def test_operator_has_its_specified_name_and_parameters(ops: Any) -> None:
    import inspect

    assert ops.axpy.__doc__ == "Run cujit_tests::axpy, a kernel as a function of JAX."
    assert (ops.axpy.__name__, str(inspect.signature(ops.axpy))) == ("axpy", "(x, y, *, a)")


@pytest.mark.gpu
def test_operator_runs_in_the_stream_of_xla(jax: Any, ops: Any) -> None:
    try:
        device = jax.devices("cuda")[0]
    except RuntimeError:
        pytest.skip("JAX has no GPU here")
    with jax.default_device(device):
        x = jax.numpy.ones((3000, 3000))

        def compute(x: Any) -> Any:
            for _ in range(8):
                x = x @ x / 3000  # long enough that a kernel in another stream would come before
            return ops.axpy(x, x, a=1.0)

        assert (jax.jit(compute)(x) == 2.0).all()
