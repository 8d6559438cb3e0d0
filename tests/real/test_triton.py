"""Kernels as Triton compiled them (``tests/goldens/triton``, by ``tests/golden-makers/triton_kernels.py``)."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cujit
from cujit.artifact import Artifact
from cujit.devices.arrays.array import DeviceArray
from cujit.devices.device import Device
from cujit.errors import KernelFaultError
from cujit.loading import load
from instructions.scenes_matrix import values_of
from raising import raises
from real.running import Array, rng

GOLDENS = Path(__file__).parents[1] / "goldens" / "triton"
LAUNCHES: dict[str, dict[str, Any]] = {
    launch["file"]: launch for launch in json.loads((GOLDENS / "launches.json").read_text())["launches"]
}
TARGETS = ["sm_80", "sm_90"]


def run(
    device: Device, kernel: str, target: str, grid: tuple[int, ...], lacks: str = "", **given: object
) -> dict[str, Array]:
    """Launch a kernel without a statement that it ``lacks``, with arguments by name; give its arrays afterwards."""
    launch = LAUNCHES[f"{kernel}-{target}.ptx"]
    assert set(given) == set(launch["arguments"])
    held = {name: device.array(x) if isinstance(x, np.ndarray) else x for name, x in given.items()}
    text = (GOLDENS / launch["file"]).read_text()
    assert lacks in text
    artifact = Artifact.of(text.replace(lacks, "") if lacks else text)
    scratch = [None] * launch["scratch_pointers"]  # of global memory and of the profiler: these kernels use neither
    bound = load(artifact, device)[launch["kernel"]].prepare(
        grid, launch["threads"], shared_bytes=launch["shared_bytes"]
    )
    bound(*(held[name] for name in launch["arguments"]), *scratch)
    return {name: x.numpy() for name, x in held.items() if isinstance(x, DeviceArray)}


@pytest.mark.parametrize("target", TARGETS)
def test_softmax(target: str, device: Device) -> None:
    rows, columns = 5, 400
    x = (rng().standard_normal((rows, columns)) * 4).astype(np.float32)
    got = run(device, "softmax", target, (rows,), out=np.zeros_like(x), given=x, row_stride=columns, columns=columns)
    e = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(got["out"], e / e.sum(axis=1, keepdims=True), rtol=2e-6, atol=1e-9)


@pytest.mark.parametrize("target", TARGETS)
def test_layer_norm(target: str, device: Device) -> None:
    rows, columns = 4, 608
    x = rng().standard_normal((rows, columns), np.float32)
    weight, bias = rng(2).standard_normal((2, columns), np.float32)
    blank = np.zeros(rows, np.float32)
    got = run(
        device, "layer_norm", target, (rows,), given=x, out=np.zeros_like(x), weight=weight, bias=bias,
        mean=blank, rstd=blank, stride=columns, columns=columns, eps=1e-5,
    )  # fmt: skip
    wide = x.astype(np.float64)
    mean, rstd = wide.mean(axis=1), 1 / np.sqrt(wide.var(axis=1) + 1e-5)
    np.testing.assert_allclose(got["mean"], mean, atol=1e-6)
    np.testing.assert_allclose(got["rstd"], rstd, rtol=1e-6)
    expected = (wide - mean[:, None]) * rstd[:, None] * weight + bias
    np.testing.assert_allclose(got["out"], expected, atol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_matmul(target: str, device: Device) -> None:
    m, n, k = 96, 112, 80  # edges in every direction; rows are multiples of 16 long
    a, b = (rng(s).integers(-3, 4, shape).astype(np.float16) for s, shape in enumerate([(m, k), (k, n)]))
    got = run(
        device, "matmul", target, (2, 2), a=a, b=b, c=np.zeros((m, n), np.float16), m=m, n=n, k=k,
        stride_a=k, stride_b=n, stride_c=n,
    )  # fmt: skip
    np.testing.assert_array_equal(got["c"], a.astype(np.float32) @ b.astype(np.float32))


def attention(q: Array, k: Array, v: Array) -> Array:
    """Causal attention in f64."""
    score = q.astype(np.float64) @ k.astype(np.float64).transpose(0, 2, 1) * q.shape[2] ** -0.5
    score = np.where(np.tri(q.shape[1], dtype=bool), score, -np.inf)
    p = np.exp(score - score.max(axis=2, keepdims=True))
    return np.asarray(p / p.sum(axis=2, keepdims=True) @ v.astype(np.float64))


@pytest.mark.parametrize("target", TARGETS)
def test_flash_attention(target: str, device: Device) -> None:
    heads, tokens, width = 2, 112, 64
    q, k, v = (rng(s).standard_normal((heads, tokens, width)).astype(np.float16) for s in range(3))
    scale = width**-0.5
    got = run(
        device, "attention", target, (2, heads), q=q, k=k, v=v, out=np.zeros_like(q), stride_head=tokens * width,
        tokens=tokens, scale=scale,
    )  # fmt: skip
    np.testing.assert_allclose(got["out"], attention(q, k, v), atol=4e-3)


@pytest.mark.parametrize("target", TARGETS)
def test_sums_by_atomics(target: str, device: Device) -> None:
    n, keys = 1000, rng(2).integers(0, 64, 1000, np.int32)
    x = rng().integers(-50, 50, n).astype(np.float32)  # whole numbers: every order gives the same sum
    got = run(
        device, "group_sums", target, (4,), given=x, keys=keys, sums=np.zeros(64, np.float32),
        counts=np.zeros(64 + 4, np.int32), most=np.full(64, -99, np.int32), n=n,
    )  # fmt: skip
    np.testing.assert_array_equal(got["sums"], np.bincount(keys, x, 64))
    np.testing.assert_array_equal(got["counts"][:64], np.bincount(keys, minlength=64))
    np.testing.assert_array_equal(got["counts"][64:], [256, 256, 256, n - 768])
    expected = np.full(64, -99)
    np.maximum.at(expected, keys, x.astype(np.int32))
    np.testing.assert_array_equal(got["most"], expected)


# -- tensor memory: never compared with hardware ------------------------------------------------------------

NUMBERS = {"fp16": "f16", "fp16-64": "f16", "bf16": "bf16", "tf32": "tf32", "e4m3": "e4m3", "e5m2": "e5m2"}


def whole_numbers(type_: str, shape: tuple[int, int], seed: int) -> tuple[Array, Array]:
    """Make codes of small whole numbers, and the numbers."""
    codes = {
        "f16": [0, 0x3C00, 0xBC00, 0x4000], "bf16": [0, 0x3F80, 0xBF80, 0x4000],
        "tf32": [0, 0x3F800000, 0xBF800000, 0x40000000], "e4m3": [0, 0x38, 0xB8, 0x40], "e5m2": [0, 0x3C, 0xBC, 0x40],
    }[type_]  # fmt: skip
    chosen = np.array(codes, np.uint64)[rng(seed).integers(0, 4, shape)]
    bits = {"tf32": 32, "e4m3": 8, "e5m2": 8}.get(type_, 16)
    stored = chosen.astype(f"u{bits // 8}")
    return stored, np.asarray(values_of(chosen, type_))


def matmul_in_tensor_memory(device: Device, name: str, m: int, n: int, k: int, lacks: str = "") -> None:
    (a, left), (b, right) = (whole_numbers(NUMBERS[name], shape, seed) for seed, shape in enumerate([(m, k), (k, n)]))
    rows = LAUNCHES[f"matmul-{name}-sm_100.ptx"]["sizes"]["M"]
    got = run(
        device, f"matmul-{name}", "sm_100", (-(-m // rows), -(-n // 64)), lacks, a=a, b=b,
        c=np.zeros((m, n), np.float16), m=m, n=n, k=k, stride_a=k, stride_b=n, stride_c=n,
    )  # fmt: skip
    np.testing.assert_array_equal(got["c"], left @ right)


@pytest.mark.parametrize(("m", "n", "k"), [(128, 64, 64), (200, 112, 80), (48, 16, 48)])
@pytest.mark.parametrize("name", NUMBERS)
def test_matmul_in_tensor_memory(name: str, m: int, n: int, k: int, cpu: Device) -> None:
    matmul_in_tensor_memory(cpu, name, m, n, k)


def packed(codes: Array) -> Array:
    """Put two numbers of four bits into a byte."""
    return np.asarray(codes[:, ::2] | codes[:, 1::2] << 4)


SCALED = ["mxfp8", "mxfp4", "nvfp4"]


def scaled_in_tensor_memory(device: Device, name: str) -> None:
    sizes = LAUNCHES[f"scaled-{name}-sm_100.ptx"]["sizes"]
    m, n, k, block, pack = 256, 128, 256, sizes["BLOCK"], sizes["PACK"]
    given, numbers = [], []
    for seed, rows in enumerate((m, n)):
        some = [0, 0x38, 0xB8, 0x40, 0xC4] if pack == 1 else range(16)
        codes = np.array(some, np.uint8)[rng(seed).integers(0, len(some), (rows, k))]
        near = [0x38, 0x40, 0x30] if name == "nvfp4" else range(125, 130)
        factors = np.array(near, np.uint8)[rng(seed + 2).integers(0, len(near), (rows, k // block))]
        given.append((codes if pack == 1 else packed(codes), factors))
        scales = values_of(factors, "ue4m3" if name == "nvfp4" else "ue8m0")
        numbers.append(values_of(codes, "e4m3" if pack == 1 else "fp4") * np.repeat(scales, block, axis=1))
    (a, of_a), (b, of_b) = given
    got = run(
        device, f"scaled-{name}", "sm_100", (m // 128, n // 64), a=a, b=b, of_a=of_a, of_b=of_b,
        c=np.zeros((m, n), np.float32), k=k, stride_a=k // pack, stride_b=k // pack, stride_c=n, factors=k // block,
    )  # fmt: skip
    np.testing.assert_array_equal(got["c"], numbers[0] @ numbers[1].T)


@pytest.mark.parametrize("name", SCALED)
def test_products_with_scale_factors_in_tensor_memory(name: str, cpu: Device) -> None:
    scaled_in_tensor_memory(cpu, name)


def attention_in_tensor_memory(device: Device) -> None:
    heads, tokens, width = 2, 80, 64
    q, k, v = (rng(s).standard_normal((heads, tokens, width)).astype(np.float16) for s in range(3))
    got = run(
        device, "attention", "sm_100", (2, heads), q=q, k=k, v=v, out=np.zeros_like(q), stride_head=tokens * width,
        tokens=tokens, scale=width**-0.5,
    )  # fmt: skip
    np.testing.assert_allclose(got["out"], attention(q, k, v), atol=4e-3)


def test_flash_attention_in_tensor_memory(cpu: Device) -> None:
    attention_in_tensor_memory(cpu)


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("schedule", [1, 2, 3])
def test_no_schedule_changes_products_in_tensor_memory(schedule: int) -> None:
    attention_in_tensor_memory(cujit.cpu(schedule=schedule))


SILENT: dict[str, Callable[[Device], None]] = {
    "attention": attention_in_tensor_memory,
    **{f"matmul {name}": functools.partial(matmul_in_tensor_memory, name=name, m=130, n=70, k=80) for name in NUMBERS},
    **{f"scaled {name}": functools.partial(scaled_in_tensor_memory, name=name) for name in SCALED},
}


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("name", SILENT)
def test_checks_find_nothing_in_products_in_tensor_memory(name: str) -> None:
    SILENT[name](cujit.cpu(check="all"))


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("name", ["attention", "matmul fp16-64", "scaled nvfp4"])
def test_products_in_tensor_memory_pass_checks_and_schedules(name: str) -> None:
    SILENT[name](cujit.cpu(check="race", schedule=7))


WAIT = """mbarrier.try_wait.parity.shared::cta.b64 complete, [%r383], %r384;
\t@!complete bra.uni waitLoop;"""


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize(
    ("lacks", "check", "words"),
    [("fence.proxy.async.shared::cta;", "race", ("fence.proxy.async", "tcgen05.mma")),
     ("tcgen05.wait::st.sync.aligned;", "tensor-memory", ("tcgen05.st", "tcgen05.mma")),
     ("tcgen05.wait::ld.sync.aligned;", "tensor-memory", ("tcgen05.ld", "wait::ld")),
     (WAIT, "tensor-memory", ("tcgen05.mma", "tcgen05.ld"))],
    ids=["fence", "store", "load", "wait"],
)  # fmt: skip
def test_missing_step_of_a_tensor_memory_product_is_found(lacks: str, check: str, words: tuple[str, ...]) -> None:
    with raises(KernelFaultError, f"fault-{check}", *words):
        matmul_in_tensor_memory(cujit.cpu(check="race"), "fp16", 130, 70, 80, lacks)
