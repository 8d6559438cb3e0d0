"""Programs of CUDA Tile C++ on the CPU device with all checks: what they compute is NumPy's."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cujit
from cujit.artifact import Artifact
from cujit.errors import KernelFaultError
from cujit.program import Source
from cujit.toolchain.toolset import Toolchain
from raising import raises
from tile_code import needs_tiles

pytestmark = [needs_tiles, pytest.mark.usefixtures("unoptimised")]

Array = np.ndarray[Any, Any]
PROGRAMS = Path(__file__).with_name("tile_programs.cu")
TYPES = ("__half", "__nv_bfloat16", "float, __nv_tf32")


def _tile_ir(*types: str) -> Artifact:
    return cujit.compile(PROGRAMS, to="tileir", names=[f"product<{each}>" for each in types])


@pytest.fixture(scope="module")
def programs() -> cujit.Module:
    return cujit.jit(Source.tile(_tile_ir(*TYPES)), device=cujit.cpu(check="all"))


def launch(module: cujit.Module, name: str, grid: tuple[int, ...], *arguments: Array | float) -> Array:
    """Run a kernel over arrays and numbers, and give what is in the last array then."""
    arrays = [module.device.array(each) for each in arguments if isinstance(each, np.ndarray)]
    held = iter(arrays)
    block = cujit.inspect(module).kernel(name).required_block
    assert block is not None
    module[name].prepare(grid, block)(*(next(held) if isinstance(each, np.ndarray) else each for each in arguments))
    return arrays[-1].numpy()


def _random(*shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("blocks", [6, 4])
def test_halves_are_multiplied_also_by_fewer_blocks_than_tiles(blocks: int, programs: cujit.Module) -> None:
    a, b = _random(50, 80, dtype=np.float16), _random(80, 90, dtype=np.float16)
    found = launch(programs, "product<__half>", (blocks,), a, b, np.zeros((50, 90), np.float32), 50, 90, 80)
    np.testing.assert_allclose(found, a.astype(np.float32) @ b.astype(np.float32), atol=1e-4)


def test_bfloat16_is_multiplied(programs: cujit.Module) -> None:
    a, b = ((_random(64, 64) * k).view(np.uint32) & 0xFFFF0000 for k in (1, 2))
    bits = [(m >> 16).astype(np.uint16) for m in (a, b)]
    found = launch(programs, "product<__nv_bfloat16>", (4,), *bits, np.zeros((64, 64), np.float32), 64, 64, 64)
    np.testing.assert_allclose(found, a.view(np.float32) @ b.view(np.float32), atol=1e-4)


def test_floats_are_multiplied_in_tf32(programs: cujit.Module) -> None:
    a, b = _random(64, 64), _random(64, 64) + 1
    found = launch(programs, "product<float, __nv_tf32>", (4,), a, b, np.zeros((64, 64), np.float32), 64, 64, 64)
    assert (np.abs(found - a @ b) <= 2.0**-10 * (np.abs(a) @ np.abs(b))).all()
    assert (found != a @ b).any()


def test_fp8_is_multiplied(toolchain: Toolchain) -> None:
    if toolchain.tileiras.version < (13, 5):
        pytest.skip("13.5 is the first that takes FP8 for sm_89")
    module = cujit.jit(Source.tile(_tile_ir("__nv_fp8_e4m3")), device=cujit.cpu(check="all"), arch="compute_89")
    bits = np.random.default_rng(0).integers(0, 0x7F, (2, 64, 64), np.uint8)  # no NaN
    exponent, rest = (bits >> 3).astype(np.int32), (bits & 7).astype(np.float64)
    values = np.where(exponent > 0, (1 + rest / 8) * 2.0 ** (exponent - 7), rest * 2.0**-9)
    found = launch(module, "product<__nv_fp8_e4m3>", (4,), *bits, np.zeros((64, 64), np.float32), 64, 64, 64)
    np.testing.assert_allclose(found, values[0] @ values[1], rtol=2e-3)


def test_batches_are_multiplied(programs: cujit.Module) -> None:
    a, b = _random(3, 40, 32, dtype=np.float16), _random(3, 32, 64, dtype=np.float16)
    found = launch(programs, "product_batched", (2, 2, 3), a, b, np.zeros((3, 40, 64), np.float32), 3, 40, 64, 32)
    np.testing.assert_allclose(found, a.astype(np.float32) @ b.astype(np.float32), atol=1e-4)


def test_rows_get_their_softmax(programs: cujit.Module) -> None:
    x = _random(7, 100)
    weights = np.exp(x - x.max(axis=1, keepdims=True))
    found = launch(programs, "softmax", (7,), x, np.zeros_like(x), 7, 100)
    np.testing.assert_allclose(found, weights / weights.sum(axis=1, keepdims=True), rtol=1e-5)


def test_rows_are_normalized(programs: cujit.Module) -> None:
    x, weight, bias = _random(5, 128) * 3 + 1, _random(128), _random(128) + 2
    found = launch(programs, "layer_norm", (5,), x, weight, bias, np.zeros_like(x), 5, 1e-5)
    centered = x - x.mean(axis=1, keepdims=True)
    scaled = centered / np.sqrt((centered**2).mean(axis=1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(found, scaled * weight + bias, rtol=1e-4, atol=1e-5)


def test_heads_attend(programs: cujit.Module) -> None:
    q, k, v = (_random(2, 64, 32, dtype=np.float16) * n for n in (1, 2, 3))
    scale = 1 / math.sqrt(32)
    found = launch(programs, "attention", (2, 2), q, k, v, np.zeros((2, 64, 32), np.float32), 2, 64, scale)
    scores = q.astype(np.float32) @ k.astype(np.float32).transpose(0, 2, 1) * scale
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    expected = weights / weights.sum(axis=2, keepdims=True) @ v.astype(np.float32)
    np.testing.assert_allclose(found, expected, rtol=5e-3, atol=5e-3)


def test_length_that_is_too_large_is_found_at_its_line(programs: cujit.Module) -> None:
    with raises(KernelFaultError, "fault-memory", "tile_programs.cu") as fault:
        launch(programs, "softmax", (7,), _random(7, 100), np.zeros((7, 100), np.float32), 7, 101)
    found = re.search(r"tile_programs\.cu:(\d+)", str(fault.value))
    assert found is not None
    assert "load_masked(lowest" in PROGRAMS.read_text().splitlines()[int(found[1]) - 1]
