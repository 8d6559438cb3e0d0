"""Atomic operations of the CPU device, against what the manual says of them, computed here in plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cujit.artifact import Artifact
from cujit.devices.device import Device
from cujit.errors import PtxSyntaxError
from cujit.loading import jit
from instructions.atomic_reference import array_of, bits_of, step, words
from instructions.scene import Scene, difference, entry, run_scene
from instructions.scenes_atomics import SCENES
from raising import raises

Array = npt.NDArray[Any]
BY_NAME = {scene.name: scene for scene in SCENES}
OWN = [name for name in BY_NAME if name.startswith("atom.") and ".v" not in name]
VECTORS = [name for name in BY_NAME if name.startswith("atom.") and ".v" in name]
CONTENDED = [name for name in BY_NAME if name.startswith("red.")]


def assert_same(scene: Scene, got: list[Array], expected: list[Array]) -> None:
    """Compare, floats as floats."""
    found = difference(scene, got, expected)
    assert not found, found


@pytest.mark.parametrize("name", OWN)
def test_atomic_returns_the_old_and_stores_the_new_value(cpu: Device, name: str) -> None:
    scene = BY_NAME[name]
    _, operation, type_ = name.split(".")
    bits = bits_of(type_)
    second, third = (words(a, bits) for a in scene.arrays[3:5])
    expected = [a.copy() for a in scene.arrays]
    for k, flush in enumerate((True, False, True)):
        old = words(scene.arrays[k], bits)
        new = [step(operation, type_, *v, flush=flush) for v in zip(old, second, third, strict=True)]
        expected[k], expected[5 + k] = array_of(new, bits, scene.arrays[k]), array_of(old, bits, scene.arrays[k])
    assert_same(scene, run_scene(cpu, scene), expected)


@pytest.mark.parametrize("name", VECTORS)
def test_vector_atomic_updates_each_element(cpu: Device, name: str) -> None:
    scene = BY_NAME[name]
    _, operation, _, type_ = name.split(".")
    bits = bits_of(type_)
    old, second = words(scene.arrays[0], bits), words(scene.arrays[1], bits)
    new = [step(operation, type_, a, b, flush=True) for a, b in zip(old, second, strict=True)]
    values = array_of(new, bits, scene.arrays[0])
    expected = [values, scene.arrays[1], scene.arrays[0], values]
    assert_same(scene, run_scene(cpu, scene), expected)


@pytest.mark.parametrize("name", CONTENDED)
def test_lanes_at_one_address_all_take_effect(cpu: Device, name: str) -> None:
    scene = BY_NAME[name]
    _, operation, type_ = name.split(".")
    bits = bits_of(type_)
    places, operands = words(scene.arrays[0], bits), words(scene.arrays[1], bits)
    for thread, operand in enumerate(operands):
        for place, here in ((0, True), (1, thread % 4 != 1), (2, True), (3 + thread % 4, True)):
            if here:
                places[place] = step(operation, type_, places[place], operand, flush=place != 2)
    assert_same(scene, run_scene(cpu, scene), [array_of(places, bits, scene.arrays[0]), scene.arrays[1]])


OLD_VALUES = {"add.u32": 7, "exch.b32": 7, "inc.u32": 20, "max.s32": 3, "xor.b64": 5, "add.f32": 2, "min.u64": 9}


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("form", OLD_VALUES)
def test_lanes_at_one_address_see_the_previous_lane(cpu: Device, form: str, space: str) -> None:
    operation, type_ = form.split(".")
    bits = bits_of(type_)
    register = type_ if type_[0] == "f" else f"b{bits}"
    at = "p0" if space == "global" else "mem"
    body = f"""
        .shared .align 8 .b8 mem[8]; .reg .{register} b, d; .reg .b32 i; .reg .b64 a, c; .reg .pred p;
        mov.u32 i, %tid.x; mul.wide.u32 a, i, {bits // 8}; add.u64 c, a, p1; ld.global.{register} b, [c];
        ld.global.{register} d, [p0]; st.shared.{register} [mem], d; setp.ne.u32 p, i, 5;
        @p atom.{space}.{operation}.{type_} d, [{at}], b;
        add.u64 c, a, p2; st.global.{register} [c], d;
        ld.{space}.{register} d, [{at}]; st.global.{register} [p0], d;"""
    kind = np.dtype({"f32": "f4"}.get(type_) or f"u{bits // 8}")
    rng = np.random.default_rng(bits)
    start, operands = np.array([OLD_VALUES[form]]).astype(kind), rng.integers(1, 90, 32).astype(kind)
    got = run_scene(cpu, Scene("turns", entry(body, 3), (start, operands, np.zeros(32, kind)), 1, 32))
    now, seen = words(start, bits)[0], []
    for thread, operand in enumerate(words(operands, bits)):
        seen.append(now if thread != 5 else words(start, bits)[0])
        now = step(operation, type_, now, operand) if thread != 5 else now
    assert words(got[2], bits) == seen
    assert words(got[0], bits) == [now]


def test_atomic_without_active_lanes_touches_no_memory(cpu: Device) -> None:
    body = """.reg .b32 i, d; .reg .b64 a; .reg .pred p, q;
        mov.u32 i, %tid.x; setp.gt.u32 p, i, 99; ld.global.u32 d, [p0]; setp.gt.u32 q, d, 99; mov.u64 a, 16;
        @p red.global.add.u32 [a], 1; @q red.global.add.u32 [a], 1; @q atom.global.exch.b32 d, [a], 1;
        @p atom.global.cas.b32 d, [a], i, 1; st.global.u32 [p0], d;"""
    got = run_scene(cpu, Scene("none", entry(body, 1), (np.array([7], np.uint32),), 1, 32))
    assert got[0].tolist() == [7]


def test_all_blocks_count_at_one_place(cpu: Device) -> None:
    text = """extern "C" __global__ void k(unsigned *n, float *f, unsigned long long *old, unsigned short *h) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        atomicAdd(&n[0], 1u); atomicMax(&n[1], (unsigned)i); atomicAdd(&n[2 + i % 7], 1u); atomicAdd(f, 1.0f);
        atomicAdd(&old[1 + atomicAdd(&old[0], 1ull)], 1ull);
        unsigned short seen = *h, was;
        do { was = seen; seen = atomicCAS(h, was, (unsigned short)(was + 3)); } while (seen != was);
    }"""
    blocks, threads = 40, 96
    total = blocks * threads
    n, f = cpu.array(np.zeros(9, np.uint32)), cpu.array(np.zeros(1, np.float32))
    old, h = cpu.array(np.zeros(total + 1, np.uint64)), cpu.array(np.zeros(1, np.uint16))
    jit(text, names=["k"], device=cpu)["k"][blocks, threads](n, f, old, h)
    assert n.numpy().tolist() == [total, total - 1, *[len(range(k, total, 7)) for k in range(7)]]
    assert f.numpy()[0] == total
    assert old.numpy().tolist() == [total] + [1] * total
    assert h.numpy()[0] == 3 * total % 65536


@pytest.mark.parametrize(("type_", "one", "sum_"), [("f16", 0x3C00, 0x5000), ("bf16", 0x3F80, 0x4200)])
@pytest.mark.parametrize("pair", [False, True])
def test_half_sums_without_results_are_combined(cpu: Device, type_: str, one: int, sum_: int, pair: bool) -> None:
    twice = 0x10001 if pair else 1
    register, type_ = ("b32", f"{type_}x2") if pair else ("b16", type_)
    body = f".reg .{register} b; mov.{register} b, {one * twice}; red.global.add.noftz.{type_} [p0], b;"
    got = run_scene(cpu, Scene("sum", entry(body, 1), (np.zeros(1, np.uint32),), 1, 32))
    assert got[0].tolist() == [sum_ * twice]


@pytest.mark.parametrize("scope", ["cta", "cluster", "gpu", "sys"])
@pytest.mark.parametrize("order", ["relaxed", "acquire", "release", "acq_rel"])
def test_every_order_and_scope_is_accepted(cpu: Device, order: str, scope: str) -> None:
    body = f""".reg .b32 d; .reg .b64 policy; mov.b64 policy, 0;
        atom.{order}.{scope}.global.add.L2::cache_hint.u32 d, [p0], 2, policy;
        fence.acq_rel.{scope}; fence.sc.{scope}; membar.gl; st.global.u32 [p0+4], d;"""
    got = run_scene(cpu, Scene("orders", entry(body, 1), (np.array([40, 0], np.uint32),), 1, 1))
    assert got[0].tolist() == [42, 40]


def test_forms_that_the_manual_lacks_are_refused_by_name(cpu: Device) -> None:
    for statement, why in (
        ("atom.global.mul.u32 d, [p0], 1;", ("atom", ".mul")),
        ("red.global.exch.b32 [p0], 1;", ("red", ".exch")),
    ):
        with raises(PtxSyntaxError, "ptx-syntax", *why):
            cpu.load(Artifact.of(entry(f".reg .b32 d; {statement}", 1)))
