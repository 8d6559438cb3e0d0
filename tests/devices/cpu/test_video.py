"""Video instructions, against a model in whole numbers: the manual's, but sm_90's where its assembler departs."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cujit.artifact import Artifact
from cujit.devices.device import Device
from cujit.devices.shapes import Dim3, LaunchShape
from cujit.errors import PtxSyntaxError
from raising import raises

Array = npt.NDArray[Any]

COUNT = 128
PARTS = ("", ".b0", ".b1", ".b2", ".b3", ".h0", ".h1")
COMPARE = {
    "eq": int.__eq__, "ne": int.__ne__, "lt": int.__lt__, "le": int.__le__, "gt": int.__gt__, "ge": int.__ge__,
}  # fmt: skip
WORD = 0xFFFFFFFF


def words() -> list[Array]:
    """Three arrays of words: corners, random ones, and small ones."""
    rng = np.random.default_rng(7)
    corners = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, WORD, 0x80FF7F01, 31, 32, 33, 34]
    found = []
    for _ in range(3):
        wild, tame = rng.integers(0, 1 << 32, COUNT), rng.integers(0, 50, COUNT)
        found.append(np.choose(rng.integers(0, 3, COUNT), [rng.choice(corners, COUNT), wild, tame]).astype(np.uint32))
    return found


def kernel(statements: list[str]) -> str:
    """PTX of a kernel that stores what each statement leaves in ``d``, all elements of one after the other."""
    newest = any("8x4" in statement for statement in statements)
    version, target = ("9.2", "sm_120f") if newest else ("8.3", "sm_90")
    lines = [
        f".version {version}\n.target {target}\n.address_size 64",
        ".visible .entry k(.param .u64 po, .param .u64 pi) {",
        ".reg .b32 t, a, b, c, d;\n.reg .b64 o, i, x;\n.reg .pred p;\nld.param.u64 o, [po];\nld.param.u64 i, [pi];",
        "mov.u32 t, %tid.x;\nmul.wide.u32 x, t, 4;\nadd.u64 i, i, x;\nadd.u64 o, o, x;",
        f"ld.global.u32 a, [i];\nld.global.u32 b, [i+{4 * COUNT}];\nld.global.u32 c, [i+{8 * COUNT}];",
    ]
    for k, statement in enumerate(statements):
        lines.append(f"{statement};\nst.global.u32 [o+{4 * COUNT * k}], d;")
    return "\n".join([*lines, "ret;\n}"])


def compute(device: Device, statements: list[str], inputs: list[Array]) -> Array:
    module = device.load(Artifact.of(kernel(statements)))
    source, out = device.array(np.concatenate(inputs)), device.zeros(COUNT * len(statements), np.uint32)
    module.kernels["k"].launch(LaunchShape(Dim3(1), Dim3(COUNT)), struct.pack("<QQ", out.address, source.address))
    return np.asarray(out.numpy()).reshape(len(statements), COUNT)


def check(device: Device, statements: dict[str, Any]) -> None:
    """Compare what each statement computes with its model of three whole numbers."""
    inputs = words()
    for start in range(0, len(statements), 24):
        batch = list(statements)[start : start + 24]
        for statement, got in zip(batch, compute(device, batch, inputs), strict=True):
            for x, y, z, found in zip(*(v.tolist() for v in (*inputs, got)), strict=True):
                expected = statements[statement](x, y, z) & WORD
                assert found == expected, f"{statement} of {x:#x}, {y:#x}, {z:#x}: {found:#x} and not {expected:#x}"


# -- the model --------------------------------------------------------------------------------------------


def signed(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def typed(value: int, type_: str, bits: int = 32) -> int:
    return signed(value, bits) if type_ == "s32" else value & ((1 << bits) - 1)


def extract(word: int, type_: str, part: str) -> int:
    """``partSelectSignExtend`` of the manual."""
    bits = {"": 32, "b": 8, "h": 16}[part[1:2]]
    return typed(word >> (int(part[2:] or 0) * bits), type_, bits)


def clamp(value: int, type_: str, bits: int) -> int:
    least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if type_ == "s32" else (0, (1 << bits) - 1)
    return min(max(value, least), most)


def merge(value: int, part: str, into: int) -> int:
    bits = 8 if part[1] == "b" else 16
    at = int(part[2:]) * bits
    mask = ((1 << bits) - 1) << at
    return (into & ~mask) | ((value << at) & mask)


def finish(name: str, value: int, type_: str, sat: bool, second: str, part: str, c: int) -> int:
    """Saturate, and combine or merge, as the code of sm_90 does."""
    bits = {"": 32, "b": 8, "h": 16}[part[1:2]]
    if sat and name == "vshl":
        value = signed(value, 34)
    if sat and (name in ("vshl", "vshr") or (bits == 32 and type_ == "s32")):
        value = signed(clamp(value, type_, 32))
    elif sat and bits == 32:
        value = signed(max(value, 0)) if name in ("vadd", "vsub") else max(value, 0)
    elif sat:
        most = clamp(1 << 40, type_, bits)
        value = most if value < 0 else min(value, most)
    elif name in ("vadd", "vsub"):
        value = signed(value)
    if second:
        # An unsigned comparison takes numbers below 0 for very large ones.
        other = typed(c, type_)
        key = (lambda v: v % (1 << 64)) if type_ == "u32" else int
        return {"add": value + other, "min": min(value, other, key=key), "max": max(value, other, key=key)}[second]
    return merge(value >> 16 if part == ".h1" else value, part, c) if part else value


def basic(name: str, x: int, y: int) -> int:
    return {
        "vadd": x + y, "vsub": x - y, "vabsdiff": abs(x - y), "vmin": min(x, y), "vmax": max(x, y),
    }[name]  # fmt: skip


def picks() -> Iterator[tuple[str, str, str]]:
    """Parts of the result and of the sources, without end: each of them in turn."""
    for k in itertools.count():
        yield PARTS[k % len(PARTS)], PARTS[(k * 3 + 1) % len(PARTS)], PARTS[(k * 5 + k // 7 + 2) % len(PARTS)]


@pytest.mark.parametrize("name", ["vadd", "vsub", "vabsdiff", "vmin", "vmax"])
def test_scalar_arithmetic_saturates_and_has_a_second_operation(name: str, device: Device) -> None:
    def model(x: int, y: int, z: int, *m: str) -> int:
        d, a, b, sat, part, left, right, second = m
        value = basic(name, extract(x, a, left), extract(y, b, right))
        return finish(name, value, d, bool(sat), second, part, z)

    statements: dict[str, Any] = {}
    seconds = itertools.cycle(("add", "min", "max"))
    forms = itertools.product(("u32", "s32"), ("u32", "s32"), ("u32", "s32"), ("", ".sat"))
    for (d, a, b, sat), (part, left, right), second in zip(forms, picks(), seconds, strict=False):
        head, more = f"{name}.{d}.{a}.{b}{sat}", ", c" if part else ""
        if len(statements) % 3 < 2:
            statements[f"{head} d{part}, a{left}, b{right}{more}"] = bound(model, d, a, b, sat, part, left, right, "")
        else:
            statements[f"{head}.{second} d, a, b, c"] = bound(model, d, a, b, sat, "", "", "", second)
    check(device, statements)


def bound(model: Any, *more: str) -> Any:
    return lambda x, y, z: model(x, y, z, *more)


@pytest.mark.parametrize("name", ["vshl", "vshr"])
def test_scalar_shifts_clamp_or_wrap_their_counts(name: str, device: Device) -> None:
    def model(x: int, y: int, z: int, *m: str) -> int:
        d, a, mode, sat, second, part, left, right = m
        value, count = extract(x, a, left), extract(y, "u32", right)
        count = min(count, 32) if mode == "clamp" else count & 31
        value = signed(value << count, 64) if name == "vshl" else value >> count
        return finish(name, value, d, bool(sat), second, part, z)

    statements: dict[str, Any] = {}
    seconds = itertools.cycle(("add", "min", "max"))
    forms = itertools.product(("u32", "s32"), ("u32", "s32"), ("clamp", "wrap"), ("", ".sat"))
    for (d, a, mode, sat), (part, left, right), second in zip(forms, picks(), seconds, strict=False):
        head, more = f"{name}.{d}.{a}.u32{sat}.{mode}", ", c" if part else ""
        if len(statements) % 3 < 2:
            statements[f"{head} d{part}, a{left}, b{right}{more}"] = bound(
                model, d, a, mode, sat, "", part, left, right
            )
        else:
            statements[f"{head}.{second} d, a, b, c"] = bound(model, d, a, mode, sat, second, "", "", "")
    check(device, statements)


def test_scalar_comparison_gives_one_or_zero(device: Device) -> None:
    def model(x: int, y: int, z: int, *m: str) -> int:
        a, b, compare, second, part, left, right = m
        value = int(COMPARE[compare](extract(x, a, left), extract(y, b, right)))
        return finish("vset", value, a, False, second, part, z)

    statements: dict[str, Any] = {}
    seconds = itertools.cycle(("add", "min", "max"))
    forms = itertools.product(COMPARE, ("u32", "s32"), ("u32", "s32"))
    for (compare, a, b), (part, left, right), second in zip(forms, picks(), seconds, strict=False):
        head, more = f"vset.{a}.{b}.{compare}", ", c" if part else ""
        if len(statements) % 2:
            statements[f"{head} d{part}, a{left}, b{right}{more}"] = bound(model, a, b, compare, "", part, left, right)
        else:
            statements[f"{head}.{second} d, a, b, c"] = bound(model, a, b, compare, second, "", "", "")
    check(device, statements)


def test_multiply_add_scales_and_saturates(device: Device) -> None:
    def model(x: int, y: int, z: int, *m: str) -> int:
        a, b, sat, scale, plus, left, right = m
        total = signed(extract(x, a, left)) * signed(extract(y, b, right)) + signed(z) + bool(plus)
        kind = "s32" if "s32" in (a, b) else "u32"
        if scale:
            total = (total if kind == "s32" else total % (1 << 64)) >> int(scale[4:])
        return clamp(total, kind, 32) if sat else total

    statements: dict[str, Any] = {}
    forms = itertools.product(("u32", "s32"), ("u32", "s32"), ("", ".sat"), ("", ".shr7", ".shr15"), ("", ".po"))
    for k, ((a, b, sat, scale, plus), (_, left, right)) in enumerate(zip(forms, picks(), strict=False)):
        if k % 5 in (1, 3):
            continue
        head = f"vmad.{('u32', 's32')[k % 2]}.{a}.{b}{plus}{sat}{scale}"
        left, right = (left, right) if k % 3 else ("", "")
        statements[f"{head} d, a{left}, b{right}, c"] = bound(model, a, b, sat, scale, plus, left, right)
    check(device, statements)


# -- halves and bytes -------------------------------------------------------------------------------------


def elements(x: int, y: int, count: int, type_: str, selector: str, default: int) -> list[int]:
    bits = 32 // count
    both = y << 32 | x
    numbers = [int(n) for n in reversed(selector[2:])] or [default + k for k in range(count)]
    return [typed(both >> n * bits, type_, bits) for n in numbers]


def lanewise(name: str, x: int, y: int, compare: str) -> int:
    if name == "vset":
        return int(COMPARE[compare](x, y))
    if name == "vavrg":
        return (x + y + 1) >> 1 if x + y >= 0 else (x + y) >> 1
    return basic(name, x, y)


def lane_model(x: int, y: int, z: int, *m: str) -> int:
    name, count_text, d, a, b, sat, add, compare, mask, left, right = m
    count = int(count_text)
    bits = 32 // count
    firsts, seconds = elements(x, y, count, a, left, 0), elements(x, y, count, b, right, count)
    chosen = [int(n) for n in mask[2:]] or list(range(count))
    total = z
    for k in chosen:
        value = lanewise(name, firsts[k], seconds[k], compare)
        value = clamp(value, d, bits) if sat else value
        total = total + value if add else merge(value, f".{'bh'[count == 2]}{k}", total)
    return total


SELECTORS = {
    2: [("", "", ""), (".h0", ".h13", ".h20"), (".h1", ".h00", ".h32"), (".h10", ".h31", ".h11")],
    4: [("", "", ""), (".b0", ".b7654", ".b0123"), (".b31", ".b0000", ".b2460"), (".b320", ".b1357", ".b7070")],
}


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("name", ["vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax", "vset"])
def test_halves_and_bytes_are_selected_computed_and_merged(name: str, count: int, device: Device) -> None:
    statements: dict[str, Any] = {}
    types = list(itertools.product(("u32", "s32"), repeat=2 if name == "vset" else 3))
    modes = ("", ".add") if name == "vset" else ("", ".sat", ".add")
    for k, kinds in enumerate(types):
        mode, (mask, left, right) = modes[k % len(modes)], SELECTORS[count][k % 4]
        compare = list(COMPARE)[len(statements) % 6] if name == "vset" else ""
        head = ".".join((f"{name}{count}", *kinds, *([compare] if compare else [])))
        d, a, b = kinds if len(kinds) == 3 else ("u32", *kinds)
        sat, add = mode if mode == ".sat" else "", mode if mode == ".add" else ""
        model = bound(lane_model, name, str(count), d, a, b, sat, add, compare, mask, left, right)
        statements[f"{head}{mode} d{mask}, a{left}, b{right}, c"] = model
    check(device, statements)


def test_quads_of_bytes_wrap_or_saturate(cpu: Device) -> None:
    def model(x: int, y: int, _: int, *m: str) -> int:
        name, type_, sat = m
        total = 0
        for k in range(4):
            u, v = (typed(w >> 8 * k, type_, 8) for w in (x, y))
            value = -u if name == "neg" else basic(f"v{name}", u, v)
            total |= (clamp(value, type_, 8) & 255 if sat else value & 255) << 8 * k
        return total

    statements: dict[str, Any] = {}
    for kind, type_ in (("u8x4", "u32"), ("s8x4", "s32")):
        for name, sat in (("add", ""), ("add", ".sat"), ("sub", ""), ("sub", ".sat"), ("min", ""), ("max", "")):
            statements[f"{name}{sat}.{kind} d, a, b"] = bound(model, name, type_, sat)
    statements["neg.s8x4 d, a"] = bound(model, "neg", "s32", "")
    check(cpu, statements)


@pytest.mark.parametrize(
    "statement",
    ["vadd.u32.u32.u32 d.b4, a, b, c", "vadd2.u32.u32.u32 d.h32, a, b, c", "vset4.u32.u32.eq d, a.b88, b, c",
     "vadd4.u32.u32.u32 d.b00, a, b, c", "add.u32 d, a.b0, b", "vmad.u32.u32.u32 d.b0, a, b, c"],
)  # fmt: skip
def test_parts_that_no_register_has_are_refused(statement: str, cpu: Device) -> None:
    with raises(PtxSyntaxError, "ptx-syntax", "part"):
        cpu.load(Artifact.of(kernel([statement])))
