"""Reductions and stores that signal, or release: every operation and type, against the same in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cujit.devices.device import Device
from devices.cpu.launching import run_ptx
from instructions.scene import GOLDENS, difference, every_scene, golden_of, run_scene

Array = npt.NDArray[Any]

_SIGNAL = "mbarrier::complete_tx::bytes"


def _inc(old: Array, limit: Array) -> Array:
    return np.where(old >= limit, 0, old + 1).astype(old.dtype)


def _dec(old: Array, limit: Array) -> Array:
    return np.where((old == 0) | (old > limit), limit, old - 1).astype(old.dtype)


_OPERATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "inc": _inc, "dec": _dec, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip
_SIGNALLING = (
    *(("add", type_) for type_ in ("u32", "s32", "u64")),
    *((operation, type_) for operation in ("min", "max") for type_ in ("u32", "s32")),
    ("inc", "u32"), ("dec", "u32"), ("and", "b32"), ("or", "b32"), ("xor", "b32"),
)  # fmt: skip


def _dtype(type_: str) -> np.dtype[Any]:
    return np.dtype(f"{'i' if type_[0] == 's' else 'u'}{int(type_[1:]) // 8}")


def _values(type_: str, seed: int) -> Array:
    """Numbers of every size; where they are small, some are alike."""
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 1 << 63, 32, np.uint64) >> rng.integers(0, 63, 32, np.uint64)
    return np.asarray(numbers.astype(_dtype(type_)) * _dtype(type_).type(1 if type_[0] != "s" or seed % 2 else -1))


def _parts(memory: Array, types: list[str]) -> list[Array]:
    """The rows of 32 that lie behind each other in memory, 256 bytes each."""
    rows = memory.view(np.uint8).reshape(len(types), 256)
    return [rows[k].view(_dtype(type_))[:32] for k, type_ in enumerate(types)]


def _memory(types: list[str], seed: int) -> Array:
    memory = np.zeros((len(types), 256), np.uint8)
    for k, part in enumerate(_parts(memory, types)):
        part[:] = _values(types[k], seed + k)
    return memory


def test_signaling_reduction_updates_and_reports_its_bytes(cpu: Device) -> None:
    """Each thread reduces twice into a place of its own; all wait for the bytes of all."""
    types = [type_ for _, type_ in _SIGNALLING]
    old, by = _memory(types, 0), _memory(types, 50)
    lines = [
        f".shared .align 16 .b8 mem[{old.nbytes}]; .shared .align 8 .b64 bar; .reg .b32 s, far, z; .reg .b64 u;",
        "setp.eq.u32 q1, t, 0; mov.u32 z, 0; mov.u32 s, bar; mapa.shared::cluster.u32 far, s, z;",
        "cvt.u64.u32 d3, far; cvta.shared::cluster.u64 d3, d3;",
        "@q1 mbarrier.init.shared.b64 [bar], 1; bar.sync 0;",
        f"@q1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], {2 * 32 * sum(int(t[1:]) // 8 for t in types)};",
    ]
    for k, (operation, type_) in enumerate(_SIGNALLING):
        size, register = (8, "u") if type_[1:] == "64" else (4, "r1")
        at, word = 256 * k, f"b{8 * size}"
        lines.append(f"mad.wide.u32 d0, t, {size}, p0; mad.wide.u32 d1, t, {size}, p1; mov.u32 s, mem;")
        lines.append(f"mad.lo.u32 s, t, {size}, s; ld.global.{word} {register}, [d0+{at}];")
        lines.append(f"st.shared.{word} [s+{at}], {register}; ld.global.{word} {register}, [d1+{at}];")
        lines.append("mapa.shared::cluster.u32 s, s, z; cvt.u64.u32 d2, s; cvta.shared::cluster.u64 d2, d2;")
        # A place in shared memory of the cluster, or, with no space named, the generic address of that place.
        space, place, signal = (".shared::cluster", "s", "far") if k % 2 else ("", "d2", "d3")
        name = f"red.async.relaxed.cluster{space}.{_SIGNAL}.{operation}.{type_}"
        lines += [f"{name} [{place}+{at}], {register}, [{signal}];"] * 2
    lines.append("WAIT: mbarrier.try_wait.parity.shared.b64 q2, [bar], 0; @!q2 bra WAIT;")
    for k in range(2 * len(types)):
        lines.append(
            f"mov.u32 s, mem; mad.lo.u32 s, t, 4, s; mad.wide.u32 d0, t, 4, p0; ld.shared.u32 r1, [s+{128 * k}];"
        )
        lines.append(f"st.global.u32 [d0+{128 * k}], r1;")
    expected = old.copy()
    for (operation, _), a, b in zip(_SIGNALLING, _parts(expected, types), _parts(by, types), strict=True):
        a[:] = _OPERATIONS[operation](_OPERATIONS[operation](a, b), b)
    got = run_ptx(cpu, "\n".join(lines), old, by, directives=".reqnctapercluster 1, 1, 1")[0]
    for (operation, type_), a, b in zip(_SIGNALLING, _parts(got, types), _parts(expected, types), strict=True):
        np.testing.assert_array_equal(a, b, f"{operation} {type_}")


_RELEASING = (
    *(f"st.async.release.{scope}.{type_}" for scope, types in (
        ("gpu", "b16 u16 s16 b32 u32 s32 f32 b64 u64 s64 f64"), ("sys.global", "u32 b64")) for type_ in types.split()),
    *(f"st.async.mmio.release.sys.{type_}" for type_ in ("b16", "global.u32", "f64")),
    *(f"red.async.release.{scope}.add.{type_}" for scope in ("gpu", "sys.global") for type_ in ("u32", "s32", "u64")),
    *(f"red.async.mmio.release.sys.{space}add.{type_}" for space in ("", "global.") for type_ in ("u32", "s32", "u64")),
)  # fmt: skip


def test_releasing_stores_and_sums_support_every_type(cpu: Device) -> None:
    types = [name.rpartition(".")[2].replace("f", "u").replace("b", "u") for name in _RELEASING]
    old, by = _memory(types, 100), _memory(types, 200)
    lines = [".reg .b16 h; .reg .b32 w1; .reg .b64 u; .reg .f32 g; .reg .f64 v;"]
    expected = old.copy()
    for k, name in enumerate(_RELEASING):
        type_ = name.rpartition(".")[2]
        size = int(type_[1:]) // 8
        register = {"f32": "g", "f64": "v"}.get(type_, {2: "h", 4: "w1", 8: "u"}[size])
        lines.append(f"mad.wide.u32 d0, t, {size}, p0; mad.wide.u32 d1, t, {size}, p1;")
        lines.append(f"ld.global.{type_} {register}, [d1+{256 * k}]; {name} [d0+{256 * k}], {register};")
        here, there = _parts(expected, types)[k], _parts(by, types)[k]
        here[:] = there if name.startswith("st") else here + there
    got = run_ptx(cpu, "\n".join(lines), old, by, target="sm_100", version="8.7")[0]
    for name, a, b in zip(_RELEASING, _parts(got, types), _parts(expected, types), strict=True):
        np.testing.assert_array_equal(a, b, name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cluster.remote", {
            "b32 [n], x0, [farbar];\n": "v2.b32 [n], {x0, x1}, [farbar];\n",
            "        st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [n+4], x1, [farbar];\n": "",
        }),
        ("cp.async.mbarrier", {
            "arrive.shared.b64 [bar]; mb": "arrive.shared::cta.b64 [bar]; mb", "noinc.shared::cta": "noinc.shared",
        }),
        ("cluster.multicast", {
            "multicast::cluster\n": "multicast::cluster.L2::cache_hint\n", "mask;\n": "mask, w;\n",
            "mov.b16 mask, 3;": "mov.b16 mask, 3; createpolicy.fractional.L2::evict_normal.b64 w, 1.0;",
            "mov.b16 mask, 2;": "mov.b16 mask, 2; createpolicy.fractional.L2::evict_last.b64 w, 1.0;",
        }),
    ],
)  # fmt: skip
def test_scene_in_other_words_leaves_what_the_gpu_left(name: str, words: dict[str, str], cpu: Device) -> None:
    scene = every_scene()[name]
    text = scene.ptx
    for before, after in words.items():
        assert before in text
        text = text.replace(before, after)
    with np.load(GOLDENS) as file:
        expected = golden_of(scene, file)
    assert expected
    changed = replace(scene, ptx=text)
    found = difference(changed, run_scene(cpu, changed), expected)
    assert not found, found
