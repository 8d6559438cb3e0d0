"""Integer instructions that have rules of their own, against models in whole numbers."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cujit.artifact import Artifact
from cujit.devices.cpu.pipeline import ir_of
from cujit.devices.cpu.preparation import Preparation
from cujit.devices.device import Device
from cujit.devices.jit import emit_object
from cujit.devices.shapes import Dim3, LaunchShape
from devices.cpu.conftest import Elementwise, elementwise_ptx

Array = npt.NDArray[Any]

WORD = 0xFFFFFFFF
CORNERS = [0, 1, 2, 3, 0x7F, 0x80, 0x8000, 0x00800000, 0x007FFFFF, 0x7FFFFFFF, 0x80000000, 0x80000001, WORD, 0x12345678]


def words(seed: int, count: int = 256) -> Array:
    rng = np.random.default_rng(seed)
    wild = rng.integers(0, 1 << 32, count)
    return np.where(rng.random(count) < 0.5, rng.choice(CORNERS, count), wild).astype(np.uint32)


def compare(got: Array, model: Callable[..., int], *inputs: Array) -> None:
    for values in zip(got.tolist(), *(x.tolist() for x in inputs), strict=True):
        found, given = values[0], values[1:]
        expected = model(*given) & WORD
        assert found == expected, f"of {', '.join(map(hex, given))}: {found:#x} and not {expected:#x}"


def signed(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def nth_bit(mask: int, base: int, offset: int) -> int:
    """``fns`` as the manual's semantics walk."""
    offset = signed(offset)
    if offset == 0:
        return base if mask >> base & 1 else WORD
    at, count, step = base, abs(offset) - 1, 1 if offset > 0 else -1
    while 0 <= at < 32:
        if mask >> at & 1:
            if count == 0:
                return at
            count -= 1
        at += step
    return WORD


def test_fns_finds_the_nth_bit_up_or_down_from_a_base(elementwise: Elementwise) -> None:
    rng = np.random.default_rng(3)
    mask, base = words(1), rng.integers(0, 32, 256).astype(np.uint32)
    offset = rng.integers(-9, 10, 256)
    # The least offset has no magnitude of 32 bits: an H200 gives 0, the manual's code nothing.
    offset[:5] = [33, -33, 31, -31, (1 << 31) - 1]
    offsets = offset.astype(np.int32).view(np.uint32)
    compare(elementwise("fns.b32", np.uint32, mask, base, offsets), nth_bit, mask, base, offsets)


DIVISIONS = ("div.s32", "rem.s32", "div.u32", "rem.u32")


def test_quotients_are_exact_next_to_whole_numbers(elementwise: Elementwise) -> None:
    rng = np.random.default_rng(19)
    divisor = np.concatenate([words(20, 512) | 1, rng.integers(1, 1 << 12, 512).astype(np.uint32)])
    whole = rng.integers(0, 1 << 32, divisor.size) // divisor * divisor
    dividend = (whole + rng.integers(-1, 2, divisor.size)).astype(np.uint32)
    dividend[:4], divisor[:4] = [1 << 31, 1 << 31, WORD, 7], [WORD, 1, WORD, WORD]
    found = elementwise.several({name: (name, np.uint32) for name in DIVISIONS}, dividend, divisor)
    for name in DIVISIONS:

        def model(x: int, y: int, name: str = name) -> int:
            x, y = (signed(x), signed(y)) if "s" in name else (x, y)
            quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
            return quotient if name.startswith("div") else x - quotient * y

        compare(found[name], model, dividend, divisor)


LONG_DIVISIONS = ("div.s64", "rem.s64", "div.u64", "rem.u64")


def test_quotients_of_64_bits_are_exact(elementwise: Elementwise) -> None:
    rng = np.random.default_rng(23)
    corners = [0, 1, 2, 3, 7, (1 << 63) - 1, 1 << 63, (1 << 63) + 1, (1 << 64) - 1, 1 << 32, WORD]
    divisor, dividend = (rng.integers(0, 1 << 64, 512, np.uint64) >> rng.integers(0, 64, 512, np.uint64) for _ in "xy")
    pairs = [(x, y) for x in corners for y in corners]
    dividend[: len(pairs)], divisor[: len(pairs)] = zip(*pairs, strict=True)
    bodies: dict[object, tuple[str, type[np.uint64]]] = {name: (name, np.uint64) for name in LONG_DIVISIONS}
    bodies |= {f"{name} by 10": (f"{name} d, a, 10;", np.uint64) for name in LONG_DIVISIONS}
    found = elementwise.several(bodies, dividend, divisor)
    for key, values in found.items():
        name, by_ten = str(key).split(" ")[0], str(key).endswith("10")
        for x, y, got in zip(dividend.tolist(), divisor.tolist(), values.tolist(), strict=True):
            y = 10 if by_ten else y
            a, b = (signed(x, 64), signed(y, 64)) if "s" in name else (x, y)
            quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else -1
            expected = quotient if name.startswith("div") or not b else a - quotient * b
            assert got == expected % (1 << 64), f"{name} of {x:#x} and {y:#x}"


def _emitted(instruction: str, kind: type[np.uint32 | np.uint64]) -> str:
    """Write the IR of a kernel that does an instruction for every element."""
    preparation = Preparation(elementwise_ptx([(instruction, kind)], [np.dtype(kind)] * 2, "sm_90"), "here")
    preparation.facts()
    return ir_of(preparation.body("k"), Dim3(64))


@pytest.mark.parametrize(("kind", "names"), [(np.uint32, DIVISIONS), (np.uint64, LONG_DIVISIONS)])
def test_divisions_are_not_written_lane_by_lane(kind: type[np.uint32 | np.uint64], names: tuple[str, ...]) -> None:
    plain = len(emit_object(_emitted(f"add.u{8 * kind().itemsize}", kind), kernel=True))
    assert all(len(emit_object(_emitted(name, kind), kernel=True)) < 2 * plain for name in names)


def test_divisions_by_constants_are_left_to_llvm() -> None:
    assert "cujit_udiv_64" in _emitted("div.u64", np.uint64)
    assert "cujit_udiv_64" not in _emitted("div.u64 d, a, 10;", np.uint64)


# The manual's table of modes, bytes from the highest to the lowest.
MODES = {
    "f4e": ["3210", "4321", "5432", "6543"],
    "b4e": ["5670", "6701", "7012", "0123"],
    "rc8": ["0000", "1111", "2222", "3333"],
    "ecl": ["3210", "3211", "3222", "3333"],
    "ecr": ["0000", "1110", "2210", "3210"],
    "rc16": ["1010", "3232", "1010", "3232"],
}


@pytest.mark.parametrize("mode", MODES)
def test_prmt_selects_bytes_by_its_modes(mode: str, elementwise: Elementwise) -> None:
    def model(x: int, y: int, z: int) -> int:
        both = y << 32 | x
        return int.from_bytes(bytes(both >> 8 * int(n) & 255 for n in MODES[mode][z & 3]))

    x, y, z = words(4), words(5), words(6)
    compare(elementwise(f"prmt.b32.{mode}", np.uint32, x, y, z), model, x, y, z)


@pytest.mark.parametrize("name", ["mad.hi.sat.s32", "mad24.hi.sat.s32"])
def test_sums_of_upper_halves_saturate(name: str, elementwise: Elementwise) -> None:
    def model(x: int, y: int, z: int) -> int:
        bits = 24 if "24" in name else 32
        high = signed(x, bits) * signed(y, bits) >> (16 if "24" in name else 32)
        return min(max(signed(high) + signed(z), -(1 << 31)), (1 << 31) - 1)

    x, y, z = words(7), words(8), words(9)
    compare(elementwise(name, np.uint32, x, y, z), model, x, y, z)


@pytest.mark.parametrize("join", ["or", "and"])
@pytest.mark.parametrize("sink", [False, True])
def test_lop3_sets_its_predicate(join: str, sink: bool, elementwise: Elementwise) -> None:
    def model(x: int, y: int, z: int) -> int:
        q = x > y
        p = (x & y & z) != 0
        tested = p and q if join == "and" else p or q
        return int(tested) if sink else (x & y & z) + tested

    x, y, z = words(10), words(11), words(12)
    z[::2] = 0
    result = "_" if sink else "d"
    after = "selp.u32 d, 1, 0, p;" if sink else "selp.u32 t, 1, 0, p; add.u32 d, d, t;"
    body = f"setp.gt.u32 q, a, b; lop3.{join}.b32 {result}|p, a, b, c, 0x80, q; {after}"
    compare(elementwise(body, np.uint32, x, y, z), model, x, y, z)


def test_lop3_tests_a_negated_predicate(elementwise: Elementwise) -> None:
    x, y, z = words(10), words(11), words(12)
    body = "setp.gt.u32 q, a, b; lop3.and.b32 d|p, a, b, c, 0xfe, !q; selp.u32 d, 1, 0, p;"
    compare(elementwise(body, np.uint32, x, y, z), lambda a, b, c: int((a | b | c) != 0 and a <= b), x, y, z)


def hints(statements: Sequence[str]) -> str:
    return "\n".join(
        [
            ".version 8.3\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 p) {",
            ".reg .b64 a, q;\n.reg .b32 t;\nld.param.u64 a, [p];",
            *(f"{s};" for s in statements),
            "mov.u32 t, 7;\nst.global.u32 [a], t;\nret;\n}",
        ]
    )


HINTS = [
    "createpolicy.fractional.L2::evict_last.b64 q, 1.0",
    "createpolicy.fractional.L2::evict_last.b64 q",
    "createpolicy.fractional.L2::evict_first.L2::evict_unchanged.b64 q, 0.5",
    "createpolicy.range.L2::evict_last.L2::evict_first.b64 q, [a], 128, 256",
    "createpolicy.range.global.L2::evict_normal.b64 q, [a], 128, 256",
    "createpolicy.cvt.L2.b64 q, a",
    "applypriority.global.L2::evict_normal [a], 128",
    "applypriority.L2::evict_normal [a], 128",
    "discard.global.L2 [a], 128",
    "discard.L2 [a], 128",
    "prefetch.global.L1 [a]",
    "prefetch.L2 [a]",
    "prefetch.local.L1 [a]",
    "prefetch.global.L2::evict_last [a]",
    "prefetch.global.L2::evict_normal [a]",
    "prefetch.tensormap [a]",
    "prefetch.param.tensormap [p]",
    "prefetchu.L1 [a]",
    "griddepcontrol.launch_dependents",
    "griddepcontrol.wait",
    "setmaxnreg.inc.sync.aligned.u32 64",
    "setmaxnreg.dec.sync.aligned.u32 40",
    "pmevent 7",
    "pmevent.mask 3",
    "nanosleep.u32 20",
]


def test_hints_change_nothing(cpu: Device) -> None:
    module = cpu.load(Artifact.of(hints(HINTS)))
    out = cpu.zeros(32, np.uint32)
    module.kernels["k"].launch(LaunchShape(Dim3(1), Dim3(32)), struct.pack("<Q", out.address))
    assert out.numpy().tolist() == [7] + [0] * 31
