"""One instruction over whole arrays, on the CPU device."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cujit.artifact import Artifact
from cujit.devices.base import Device, Dim3, LaunchShape
from cujit.devices.cpu import CpuDevice

Array = npt.NDArray[Any]
Elementwise = Callable[..., Array]

_LETTERS = "abc"
_REGISTERS = {"f4": "f32", "f8": "f64", "f2": "b16"}


def _register(dtype: np.dtype[Any]) -> str:
    return _REGISTERS.get(dtype.str[1:], f"b{max(16, 8 * dtype.itemsize)}")


def _memory(dtype: np.dtype[Any]) -> str:
    if dtype.kind == "f" and dtype.itemsize > 2:
        return f"f{8 * dtype.itemsize}"
    return f"{'s' if dtype.kind == 'i' else 'u'}{8 * dtype.itemsize}"


def elementwise_ptx(body: str, result: npt.DTypeLike, dtypes: list[np.dtype[Any]]) -> str:
    """Write a kernel that does ``body`` for every element: ``d`` from ``a``, ``b``, ``c``.

    ``body`` is one mnemonic, or statements that end with a semicolon and may use the predicates ``p`` and ``q``.
    """
    out = np.dtype(result)
    names = _LETTERS[: len(dtypes)]
    if not body.rstrip().endswith((";", "}")):
        body = f"{body} {', '.join(('d', *names))};"
    kinds = list(zip(names, dtypes, strict=True))
    lines = [
        ".version 8.8\n.target sm_100\n.address_size 64\n.visible .entry k(.param .u64 n, .param .u64 pd"
        + "".join(f", .param .u64 p{name}" for name in names)
        + ") {",
        ".reg .pred out, p, q;\n.reg .b32 t, u;\n.reg .b64 i, count, at, offset;",
        f".reg .{_register(out)} d;",
        *(f".reg .{_register(t)} {name};" for name, t in kinds),
        "mov.u32 t, %ctaid.x;\nmov.u32 u, %tid.x;\nmad.lo.u32 t, t, 128, u;\ncvt.u64.u32 i, t;",
        "ld.param.u64 count, [n];\nsetp.ge.u64 out, i, count;\n@out bra DONE;",
    ]
    for name, t in kinds:
        lines.append(f"ld.param.u64 at, [p{name}];\nmul.lo.u64 offset, i, {t.itemsize};\nadd.u64 at, at, offset;")
        lines.append(f"ld.global.{_memory(t)} {name}, [at];")
    lines.append(body)
    lines.append(f"ld.param.u64 at, [pd];\nmul.lo.u64 offset, i, {out.itemsize};\nadd.u64 at, at, offset;")
    lines.append(f"st.global.{_memory(out)} [at], d;\nDONE:\nret;\n}}\n")
    return "\n".join(lines)


@pytest.fixture(scope="session")
def cpu() -> Device:
    """The CPU device."""
    return CpuDevice()


@pytest.fixture(scope="session")
def elementwise(cpu: Device) -> Elementwise:
    """Do one instruction for every element: ``elementwise("add.rz.f32", np.float32, x, y)``."""

    def run(body: str, result: npt.DTypeLike, *sources: Array) -> Array:
        sources = tuple(np.ascontiguousarray(s) for s in sources)
        module = cpu.load(Artifact.of(elementwise_ptx(body, result, [s.dtype for s in sources])))
        count = len(sources[0])
        out = np.zeros(count, result)
        addresses = [out.ctypes.data, *(s.ctypes.data for s in sources)]
        parameters = struct.pack(f"<{1 + len(addresses)}Q", count, *addresses)
        module.kernels["k"].launch(LaunchShape(Dim3(-(-count // 128)), Dim3(128)), parameters)
        return out

    return run
