"""Kernels as operators of torch: eager, compiled, with gradients, in graphs, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from cujit.errors import ArgumentError, OptionError, UnsupportedError
from frameworks.kernels import AXPY, SUMS
from raising import raises

SOURCE = (
    AXPY
    + SUMS
    + """
extern "C" __global__ void widths(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = blockDim.x;
}
"""
)


@pytest.fixture(scope="session")
def ops(torch: Any) -> Any:
    """Operators of all shapes."""
    import cujit.torch

    axpy_back = cujit.torch.operator(
        "cujit_tests::axpy_back",
        SOURCE,
        kernel="axpy_back<{grad}>",
        schema="(float a, Tensor grad) -> (Tensor, Tensor)",
        outputs=lambda a, grad: (torch.empty_like(grad), torch.empty_like(grad)),
        arguments=lambda of_x, of_y, a, grad: (a, grad, of_x, of_y, grad.numel()),
    )

    axpy = cujit.torch.operator(
        "cujit_tests::axpy",
        SOURCE,
        kernel="axpy<{x}>",
        schema="(float a, Tensor x, Tensor y) -> Tensor",
        outputs=lambda a, x, y: torch.empty_like(x),
        arguments=lambda out, a, x, y: (a, x, y, out, x.numel()),
        backward=lambda ctx, grad: (None, *axpy_back(ctx.a, grad.contiguous())),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "a", inputs[0]),
    )
    scale = cujit.torch.operator(
        "cujit_tests::scale_",
        SOURCE,
        kernel="scale",
        schema="(Tensor(a!) x, float by=2.0) -> ()",
        arguments=lambda x, by: (x, by, x.numel()),
    )
    sums = cujit.torch.operator(
        "cujit_tests::sums",
        SOURCE,
        kernel="sums<{width}>",
        schema="(Tensor x, int width) -> Tensor",
        outputs=lambda x, width: x.new_empty(x.shape[0]),
        arguments=lambda out, x, width: (x, out, x.shape[0]),
        grid=lambda out, x, width: x.shape[0],
        block=32,
        shared_bytes=lambda out, x, width: 4 * width,
    )
    return SimpleNamespace(axpy=axpy, axpy_back=axpy_back, scale=scale, sums=sums)


@pytest.fixture
def define(torch: Any) -> Any:
    """Define the same operator once more, with other arguments."""
    import cujit.torch

    def again(schema: str = "(Tensor x) -> Tensor", **more: Any) -> Any:
        said: dict[str, Any] = {
            "kernel": "scale",
            "outputs": lambda x: torch.empty_like(x),
            "arguments": lambda out, x: (out, 1.0, x.numel()),
        }
        return cujit.torch.operator("cujit_tests::again", SOURCE, schema=schema, **(said | more))

    return again


def test_importing_cujit_does_not_import_torch() -> None:
    code = "import sys, cujit; cujit.jit, cujit.load; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int32", "int64"])
def test_template_instance_depends_on_the_element_type(torch: Any, ops: Any, place: str, dtype: str) -> None:
    x = torch.arange(1000, device=place).to(getattr(torch, dtype))
    assert torch.equal(ops.axpy(2.0, x, x), 2 * x + x)


def test_number_becomes_a_template_argument(torch: Any, ops: Any, place: str) -> None:
    for width in (32, 16):
        x = torch.arange(320.0, device=place).reshape(-1, width)
        padded = torch.cat([x, torch.zeros(32, device=place).reshape(-1, width)])  # a block has 32 threads
        assert torch.equal(ops.sums(padded, width)[: len(x)], x.sum(1))


def test_tensor_of_the_host_is_not_copied(torch: Any, ops: Any) -> None:
    x = torch.ones(8)
    same = x.numpy()
    ops.scale(x, 3.0)
    assert same.tolist() == [3.0] * 8


def test_written_argument_has_a_new_version(torch: Any, ops: Any, place: str) -> None:
    x = torch.ones(300, device=place)
    before = x._version
    assert ops.scale(x) is None  # by default: 2
    assert x.tolist() == [2.0] * 300
    assert x._version == before + 1
    with torch.inference_mode():
        ops.scale(inference := torch.ones(2, device=place))
        assert inference.tolist() == [2.0, 2.0]


def test_empty_input_launches_nothing(torch: Any, ops: Any, place: str) -> None:
    empty = torch.empty(0, device=place)
    assert ops.axpy(2.0, empty, empty).shape == (0,)
    assert ops.sums(torch.empty(0, 32, device=place), 32).shape == (0,)
    ops.scale(empty)


@pytest.mark.filterwarnings("default")  # 2.14 warns of what its own opcheck does
def test_opcheck_finds_nothing_wrong(torch: Any, ops: Any, place: str) -> None:
    x, y = (torch.randn(100, device=place, requires_grad=True) for _ in range(2))
    for operator, given in (
        (ops.axpy, (2.0, x, y)),
        (ops.axpy_back, (2.0, x.detach())),
        (ops.scale, (x.detach().clone(), 3.0)),
        (ops.sums, (torch.ones(8, 32, device=place), 32)),
    ):
        assert set(torch.library.opcheck(operator, given).values()) == {"SUCCESS"}


@pytest.mark.filterwarnings("default")  # of torch's compiler
def test_operator_compiles_without_a_graph_break(torch: Any, ops: Any, place: str) -> None:
    def compute(x: Any, y: Any) -> Any:
        z = ops.axpy(3.0, x.sin(), y).cos()
        ops.scale(z, 0.5)
        return z + 1

    x, y = torch.randn(500, device=place), torch.randn(500, device=place)
    expected = (3 * x.sin() + y).cos() * 0.5 + 1
    compiled = torch.compile(compute, fullgraph=True)
    torch.testing.assert_close(compiled(x, y), expected)
    torch.testing.assert_close(compiled(x[:7], y[:7]), expected[:7])


@pytest.mark.filterwarnings("default")  # of torch's compiler
@pytest.mark.parametrize("compiled", [False, True])
def test_second_kernel_is_the_way_back(torch: Any, ops: Any, place: str, compiled: bool) -> None:
    x, y = (torch.randn(100, device=place, requires_grad=True) for _ in range(2))

    def loss(x: Any, y: Any) -> Any:
        return (ops.axpy(3.0, x, y) ** 2).sum()

    (torch.compile(loss, fullgraph=True) if compiled else loss)(x, y).backward()
    of_x, of_y = torch.autograd.grad(((3 * x + y) ** 2).sum(), (x, y))
    torch.testing.assert_close(x.grad, of_x)
    torch.testing.assert_close(y.grad, of_y)


def test_missing_backward_function_makes_backward_an_error(torch: Any, ops: Any, place: str) -> None:
    x = torch.ones(4, device=place, requires_grad=True)
    with raises(UnsupportedError, "unsupported", "cujit_tests::axpy_back", "backward=…"):
        ops.axpy_back(2.0, x)[0].sum().backward()
    with raises(UnsupportedError, "unsupported", "cujit_tests::scale_", "with torch.no_grad(): …"):
        ops.scale(x)
    with torch.no_grad():
        ops.scale(x)
    assert x.tolist() == [2.0] * 4


def test_omitted_default_has_its_gradient(torch: Any, define: Any) -> None:
    operator = define(
        "(Tensor x, float by=2.0) -> Tensor",
        outputs=lambda x, by: x.clone(),
        arguments=lambda out, x, by: (out, by, x.numel()),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "by", inputs[1]),
        backward=lambda ctx, grad: (grad * ctx.by, None),
    )
    x = torch.ones(4, requires_grad=True)
    operator(x).sum().backward()
    assert x.grad.tolist() == [2.0] * 4


def test_grid_is_by_threads_by_blocks_or_by_a_function(torch: Any, define: Any, place: str) -> None:
    for more in ({"grid": 2}, {"grid": (2, 1)}, {"over": lambda out, x: out.numel()}):
        operator = define(arguments=lambda out, x: (out.fill_(1.0), 5.0, x.numel()), **more)
        assert operator(torch.ones(512, device=place)).tolist() == [5.0] * 512


def test_blocks_have_the_specified_number_of_threads(torch: Any, define: Any, place: str) -> None:
    said: dict[str, Any] = {"kernel": "widths", "outputs": None, "arguments": lambda by, x: (x, x.numel())}
    for more, width in (({"block": 64}, 64), ({"grid": 2, "block": 160}, 160), ({"grid": 2}, 256)):
        operator = define("(float by, Tensor(a!) x) -> ()", **said, **more)  # a number goes before the tensor
        operator(1.0, x := torch.zeros(300, device=place))
        assert x.tolist() == [width] * 300


def test_blocks_have_the_specified_shared_memory(torch: Any, define: Any, place: str) -> None:
    said: dict[str, Any] = {"kernel": "shared", "outputs": None, "arguments": lambda x: (x, x.numel())}
    more: dict[str, Any]
    for more, size in (({}, 0), ({"shared_bytes": 1024}, 1024), ({"shared_bytes": lambda x: 16 * x.numel()}, 4096)):
        operator = define("(Tensor(a!) x) -> ()", **said, **more)
        operator(x := torch.ones(256, device=place))
        assert x.tolist() == [size] * 256


def test_artifact_is_accepted(torch: Any) -> None:
    import cujit.torch

    scale = cujit.torch.operator(
        "cujit_tests::shipped",
        cujit.compile(SOURCE, arch="compute_90"),
        kernel="scale",
        schema="(Tensor(a!) x) -> ()",
        arguments=lambda x: (x, 4.0, x.numel()),
    )
    scale(x := torch.ones(3))
    assert x.tolist() == [4.0] * 3


@pytest.mark.gpu
def test_operator_runs_in_the_current_stream_and_in_graphs(torch: Any, ops: Any) -> None:
    if not torch.cuda.is_available():
        pytest.skip("torch has no GPU here")
    x, y = torch.ones(1 << 20, device="cuda"), torch.ones(1 << 20, device="cuda")
    ops.axpy(1.0, x, y)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        x.fill_(5.0)
        out = ops.axpy(2.0, x, y)  # after the fill, if it is in the same stream
    stream.synchronize()
    assert out[-1].item() == 11.0
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = ops.axpy(2.0, x, y)
        ops.scale(out, 2.0)
    x.fill_(1.0)
    graph.replay()
    assert out[-1].item() == 6.0


@pytest.mark.gpu
def test_tensors_of_two_places_are_refused(torch: Any, ops: Any) -> None:
    if not torch.cuda.is_available():
        pytest.skip("torch has no GPU here")
    with raises(ArgumentError, "argument-type", "argument 3"):
        ops.axpy(2.0, torch.ones(4, device="cuda"), torch.ones(4))


def test_mismatch_is_refused(torch: Any, ops: Any) -> None:
    x = torch.ones(8)
    with raises(ArgumentError, "argument-type", "argument 2", "C-contiguous"):
        ops.axpy(2.0, x[::2], x[::2])
    with raises(ArgumentError, "argument-type", "argument 3", "float64", "float32"):
        ops.axpy(2.0, x, x.double())
    with raises(ArgumentError, "device-mismatch", "cujit_tests::axpy", "cpu", "meta"):
        ops.axpy(2.0, x, x.to("meta"))
    with raises(ArgumentError, "argument", "cujit_tests::axpy_back", "{grad}", "torch.complex64"):
        ops.axpy_back(2.0, x.to(torch.complex64))


@pytest.mark.parametrize(
    ("schema", "more", "values"),
    [
        ("Tensor x", {}, ("option-rejected", "'Tensor x'", "(Tensor x, float a) -> Tensor")),
        ("(Tensor x, *, float by) -> Tensor", {}, ("option", "by", "*")),
        ("(Tensor(a!) x) -> Tensor(a!)", {}, ("option", "returns", "arguments")),
        ("(float x) -> Tensor", {}, ("option", "Tensor x")),
        ("(Tensor x) -> Tensor", {"outputs": None}, ("option", "outputs=lambda …: torch.empty(…)")),
        ("(Tensor x) -> ()", {}, ("option", "Tensor(a!) y")),
        ("(Tensor(a) x) -> ()", {}, ("option", "Tensor(a!) y")),
        ("(Tensor x) -> Tensor", {"grid": 1, "over": lambda x: 1}, ("option-conflict", "over=", "grid=")),
        ("(Tensor(a!) x) -> ()", {"backward": lambda ctx: None}, ("option", "backward")),
        ("(Tensor x) -> Tensor", {"kernel": "scale<{z}>"}, ("option", "'scale<{z}>'", "z", "x")),
        ("(Tensor x) -> Tensor", {"kernel": "scale<{x"}, ("option", "'scale<{x'", '"axpy<{x}>"')),
    ],
)
def test_invalid_operator_is_refused(define: Any, schema: str, more: dict[str, Any], values: tuple[str, ...]) -> None:
    with raises(OptionError, *values):
        define(schema, **more)


@pytest.mark.usefixtures("torch")
def test_name_without_a_namespace_is_refused() -> None:
    import cujit.torch

    with raises(OptionError, "option", "namespace::name", "'scale'"):
        cujit.torch.operator("scale", SOURCE, kernel="scale", schema="(Tensor x) -> ()", arguments=lambda x: (x,))


def test_operator_of_another_library_is_not_replaced(torch: Any) -> None:
    import cujit.torch

    library = torch.library.Library("cujit_tests", "FRAGMENT")
    library.define("taken(Tensor x) -> Tensor")
    library.impl("taken", lambda x: x + 1, "CPU")
    said: dict[str, Any] = {"outputs": lambda x: x, "arguments": lambda out, x: (x, 1.0, x.numel())}
    with raises(OptionError, "option", "cujit_tests::taken(Tensor x) -> Tensor"):
        cujit.torch.operator("cujit_tests::taken", SOURCE, kernel="scale", schema="(Tensor x) -> Tensor", **said)
    assert torch.ops.cujit_tests.taken(torch.ones(2)).tolist() == [2.0] * 2


def test_redefinition_replaces_the_operator(torch: Any, define: Any) -> None:
    for by in (2.0, 3.0):
        operator = define(outputs=lambda x: x.clone(), arguments=lambda out, x, by=by: (out, by, x.numel()))
        assert operator(torch.ones(2)).tolist() == [by] * 2
    operator = define("(Tensor(a!) x) -> ()", outputs=None, arguments=lambda x: (x, 4.0, x.numel()))
    operator(x := torch.ones(2))
    assert x.tolist() == [4.0] * 2
