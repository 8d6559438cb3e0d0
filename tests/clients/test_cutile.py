"""Kernels of cuTile Python, assembled by cujit, on the CPU device with all checks: what they compute is NumPy's."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cujit
from cujit.emulator.images import ptx_of
from cujit.emulator.results import RefusedCall
from cujit.errors import CompileError, KernelFaultError
from cujit.program import Source
from cujit.toolchain.libraries import find_program
from raising import raises

pytestmark = pytest.mark.skipif(
    find_spec("cuda.tile") is None or find_program("tileiras", ()) is None,
    reason="cuda-tile or tileiras is not installed: `make clients`",
)

Array = np.ndarray[Any, Any]
_CHECKED = cujit.cpu(check="all")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Export the Tile IR of all kernels, in a process of its own: cuda-tile looks for a driver."""
    directory = tmp_path_factory.mktemp("tiles")
    program = Path(__file__).with_name("cutile_kernels.py")
    subprocess.run([sys.executable, program, directory], check=True, timeout=300)
    return directory


@pytest.fixture
def launch(made: Path) -> Callable[..., Array]:
    """Return a function that runs a kernel over arrays and numbers, and gives what is in the last array then."""

    def run(name: str, grid: tuple[int, ...], *arguments: Array | float, arch: str | None = None) -> Array:
        module = cujit.jit(Source.tile(made / f"{name}.tileir"), device=_CHECKED, arch=arch)
        block = cujit.inspect(module).kernel(name).required_block
        given: list[object] = []
        arrays = [_CHECKED.array(a) for a in arguments if isinstance(a, np.ndarray)]
        held = iter(arrays)
        for argument in arguments:
            if isinstance(argument, np.ndarray):
                given += [next(held), *argument.shape, *(s // argument.itemsize for s in argument.strides)]
            else:
                given.append(argument)
        assert block is not None
        module[name].prepare(grid, block)(*given)
        return arrays[-1].numpy()

    return run


def _random(*shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(dtype)


def test_arrays_with_partial_tiles_are_added(launch: Callable[..., Array]) -> None:
    a, b = _random(1000), _random(1000) + 1
    assert (launch("add", (8,), a, b, np.zeros(1000, np.float32)) == a + b).all()


@pytest.mark.parametrize(
    ("name", "grid"), [("product_f16", (2, 3)), ("product_persistent", (4,)), ("product_by_maps", (2, 2))]
)
def test_matrices_of_half_are_multiplied(name: str, grid: tuple[int, ...], launch: Callable[..., Array]) -> None:
    columns = 96 if name == "product_by_maps" else 90
    a, b = _random(50, 80, dtype=np.float16), _random(80, columns, dtype=np.float16)
    found = launch(name, grid, a, b, np.zeros((50, columns), np.float32))
    np.testing.assert_allclose(found, a.astype(np.float32) @ b.astype(np.float32), atol=1e-4)


def test_matrices_of_bfloat16_are_multiplied(launch: Callable[..., Array]) -> None:
    a, b = ((_random(64, 64) * k).view(np.uint32) & 0xFFFF0000 for k in (1, 2))
    bits = [(m >> 16).astype(np.uint16) for m in (a, b)]
    found = launch("product_bf16", (2, 2), *bits, np.zeros((64, 64), np.float32))
    np.testing.assert_allclose(found, a.view(np.float32) @ b.view(np.float32), atol=1e-4)


def test_matrices_of_float_are_multiplied_in_tf32(launch: Callable[..., Array]) -> None:
    a, b = _random(64, 64), _random(64, 64) + 1
    found = launch("product_tf32", (2, 2), a, b, np.zeros((64, 64), np.float32))
    bound = 2.0**-10 * (np.abs(a) @ np.abs(b))  # each factor has 10 bits behind the point
    assert (np.abs(found - a @ b) <= bound).all()
    assert (found != a @ b).any()


def test_matrices_of_fp8_are_multiplied(launch: Callable[..., Array]) -> None:
    bits = np.random.default_rng(0).integers(0, 0x7F, (2, 64, 64), np.uint8)  # no NaN
    exponent, rest = (bits >> 3).astype(np.int32), (bits & 7).astype(np.float64)
    values = np.where(exponent > 0, (1 + rest / 8) * 2.0 ** (exponent - 7), rest * 2.0**-9)
    found = launch("product_fp8", (2, 2), *bits, np.zeros((64, 64), np.float32), arch="compute_89")
    np.testing.assert_allclose(found, values[0] @ values[1], rtol=2e-3)


def test_batches_are_multiplied(launch: Callable[..., Array]) -> None:
    a, b = _random(3, 40, 32, dtype=np.float16), _random(3, 32, 64, dtype=np.float16)
    found = launch("product_batched", (2, 2, 3), a, b, np.zeros((3, 40, 64), np.float32))
    np.testing.assert_allclose(found, a.astype(np.float32) @ b.astype(np.float32), atol=1e-4)


def test_rows_get_their_softmax(launch: Callable[..., Array]) -> None:
    x = _random(7, 100)
    weights = np.exp(x - x.max(axis=1, keepdims=True))
    found = launch("softmax", (7,), x, np.zeros_like(x))
    np.testing.assert_allclose(found, weights / weights.sum(axis=1, keepdims=True), rtol=1e-5)


def test_rows_are_normalized(made: Path) -> None:
    x, weight, bias = _random(5, 128) * 3 + 1, _random(128), _random(128) + 2
    kernel = cujit.jit(Source.tile(made / "layer_norm.tileir"), device=_CHECKED)["layer_norm"]
    arrays = [_CHECKED.array(a) for a in (x, weight, bias, np.zeros_like(x))]
    block = cujit.inspect(kernel.artifact).kernel("layer_norm").required_block
    assert block is not None
    kernel.prepare(5, block)(*[v for a in arrays for v in (a, *a.shape, *((128, 1) if a.ndim == 2 else (1,)))], 1e-5)
    centered = x - x.mean(axis=1, keepdims=True)
    scaled = centered / np.sqrt((centered**2).mean(axis=1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(arrays[3].numpy(), scaled * weight + bias, rtol=1e-4, atol=1e-5)


def test_heads_attend(made: Path) -> None:
    q, k, v = (_random(2, 64, 32, dtype=np.float16) * n for n in (1, 2, 3))
    kernel = cujit.jit(Source.tile(made / "attention.tileir"), device=_CHECKED)["attention"]
    arrays = [_CHECKED.array(a) for a in (q, k, v, np.zeros((2, 64, 32), np.float32))]
    block = cujit.inspect(kernel.artifact).kernel("attention").required_block
    assert block is not None
    scale = 1 / math.sqrt(32)
    kernel.prepare((2, 2), block)(*[x for a in arrays for x in (a, *a.shape, 64 * 32, 32, 1)], scale)
    scores = q.astype(np.float32) @ k.astype(np.float32).transpose(0, 2, 1) * scale
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    expected = weights / weights.sum(axis=2, keepdims=True) @ v.astype(np.float32)
    np.testing.assert_allclose(arrays[3].numpy(), expected, rtol=5e-3, atol=5e-3)


def test_oversized_shape_is_found_at_its_python_line(made: Path) -> None:
    kernel = cujit.jit(Source.tile(made / "add.tileir"), device=_CHECKED)["add"]
    arrays = [_CHECKED.array(np.zeros(100, np.float32)) for _ in range(3)]
    with raises(KernelFaultError, "fault-memory") as fault:
        kernel.prepare(1, 128)(*[x for a in arrays for x in (a, 101, 1)])
    assert "cutile_kernels.py" in str(fault.value)


def test_type_that_an_architecture_lacks_is_refused_at_its_line(made: Path) -> None:
    with raises(CompileError, "compile", "f8E4M3FN") as refused:
        cujit.compile(Source.tile(made / "product_fp8.tileir"), arch="sm_80")
    first, *_ = refused.value.diagnostics
    lines = Path(__file__).with_name("cutile_kernels.py").read_text().splitlines()
    assert lines[first.line - 1].startswith("def product")


@pytest.mark.parametrize("arch", ["compute_90", "compute_100", "compute_120"])
def test_ptx_with_tensor_maps_of_a_driver_is_refused(arch: str, made: Path) -> None:
    with raises(CompileError, "compile", "hidden parameters") as refused:
        cujit.compile(Source.tile(made / "product_by_maps.tileir"), arch=arch)
    assert "sm_80" in str(refused.value.help)


def test_emulator_refuses_a_cubin_with_driver_tensor_maps(made: Path) -> None:
    cubin = cujit.compile(Source.tile(made / "product_by_maps.tileir"), arch="sm_90")
    with pytest.raises(RefusedCall, match="hidden parameters"):
        ptx_of(cubin.data)
