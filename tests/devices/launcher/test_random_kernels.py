"""Kernels with random parameters store what came: the bytes are what ctypes packs, by hand and by machine code."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cujit.devices.device import Device
from cujit.devices.launcher.launch import attach
from cujit.loading import load

# Of each PTX type: what ctypes packs it as, and the register that it is loaded into.
TYPES: dict[str, tuple[Any, str]] = {
    "s8": (ctypes.c_int8, "h"),
    "u8": (ctypes.c_uint8, "h"),
    "s16": (ctypes.c_int16, "h"),
    "u16": (ctypes.c_uint16, "h"),
    "s32": (ctypes.c_int32, "r"),
    "u32": (ctypes.c_uint32, "r"),
    "s64": (ctypes.c_int64, "d"),
    "u64": (ctypes.c_uint64, "d"),
    "f32": (ctypes.c_float, "r"),
    "f64": (ctypes.c_double, "d"),
}
LETTERS = dict(zip(TYPES, "ahstijxyfd", strict=True))
"""Of each type: the letter of C++ in lowered names, which tell the types where machine code does not."""

BYTES = 12
"""Size of a structure among the parameters, in bytes."""


def values(kind: str) -> st.SearchStrategy[Any]:
    if kind == "bytes":
        return st.binary(min_size=BYTES, max_size=BYTES)
    if kind[0] == "f":
        return st.floats(width=32 if kind == "f32" else 64, allow_nan=False)
    bits, signed = int(kind[1:]), kind[0] == "s"
    return st.integers(-(1 << bits - 1) if signed else 0, (1 << bits - signed) - 1)


def lowered(kinds: list[str]) -> str:
    """Spell the name of ``k(unsigned char*, …)``; a structure that comes again is the second thing to come again."""
    text = "_Z1kPh"
    for kind in kinds:
        text += LETTERS.get(kind, "S0_" if "1S" in text else "1S")
    return text


def source(kinds: list[str]) -> str:
    """Write PTX that stores parameter i, its bytes as they are, 16 * i bytes into the memory of the first one."""
    parameters, body = [".param .u64 to"], ["ld.param.u64 %d0, [to];"]
    for i, kind in enumerate(kinds):
        if kind == "bytes":
            parameters.append(f".param .align 4 .b8 p{i}[{BYTES}]")
            for at in range(0, BYTES, 4):
                body += [f"ld.param.b32 %r1, [p{i}+{at}];", f"st.global.b32 [%d0+{16 * i + at}], %r1;"]
            continue
        size, register = f"b{kind[1:]}", f"%{TYPES[kind][1]}1"
        parameters.append(f".param .{kind} p{i}")
        body += [f"ld.param.{size} {register}, [p{i}];", f"st.global.{size} [%d0+{16 * i}], {register};"]
    return (
        ".version 7.0\n.target sm_75\n.address_size 64\n"
        f".visible .entry {lowered(kinds)}({', '.join(parameters)}) {{\n"
        ".reg .b16 %h<2>;\n.reg .b32 %r<2>;\n.reg .b64 %d<2>;\n" + "\n".join(body) + "\nret;\n}\n"
    )


def stored(kinds: list[str], arguments: list[Any]) -> bytes:
    """Pack the arguments with ctypes, 16 bytes for each."""
    packed = (v if kind == "bytes" else bytes(TYPES[kind][0](v)) for kind, v in zip(kinds, arguments, strict=True))
    return b"".join(data.ljust(16, b"\xee") for data in packed)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_kernel_of_random_parameters_stores_what_ctypes_packs(device: Device, data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from([*TYPES, "bytes"]), min_size=1, max_size=12), "parameters")
    with load(source(kinds), device) as module:
        launch = module[lowered(kinds)][1, 1]
        for by_machine in (False, True):
            if by_machine:
                attach(launch)
            for _ in range(3):
                arguments = [data.draw(values(kind)) for kind in kinds]
                to = device.array(np.full(16 * len(kinds), 0xEE, np.uint8))
                launch(to, *arguments)
                assert to.numpy().tobytes() == stored(kinds, arguments)
