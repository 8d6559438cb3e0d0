"""One instruction over whole arrays, on every device present; and exact rounding to compare with."""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Mapping, Sequence
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pytest

from cujit.artifact import Artifact
from cujit.devices.device import Device
from cujit.devices.shapes import Dim3, LaunchShape

Array = npt.NDArray[Any]
Key = TypeVar("Key", bound=Hashable)

_REGISTERS = {"f4": "f32", "f8": "f64", "f2": "b16"}
_FORMATS = {16: (11, 15), 32: (24, 127), 64: (53, 1023)}


def _register(dtype: np.dtype[Any]) -> str:
    return _REGISTERS.get(dtype.str[1:], f"b{max(16, 8 * dtype.itemsize)}")


def _memory(dtype: np.dtype[Any]) -> str:
    if dtype.kind == "f" and dtype.itemsize > 2:
        return f"f{8 * dtype.itemsize}"
    return f"{'s' if dtype.kind == 'i' else 'u'}{8 * dtype.itemsize}"


def elementwise_ptx(bodies: Sequence[tuple[str, npt.DTypeLike]], dtypes: list[np.dtype[Any]], target: str) -> str:
    """Write a kernel that does each of ``bodies`` for every element: ``d`` from ``a``, ``b``, ``c``."""
    names = "abc"[: len(dtypes)]
    kinds = list(zip(names, dtypes, strict=True))
    version = "8.8" if target == "sm_100" else "8.3"
    parameters = ["n", *(f"pd{k}" for k in range(len(bodies))), *(f"p{x}" for x in names)]
    lines = [
        f".version {version}\n.target {target}\n.address_size 64",
        f".visible .entry k({', '.join(f'.param .u64 {name}' for name in parameters)}) {{",
        ".reg .pred out, p, q;\n.reg .b32 t, u;\n.reg .b64 i, count, at, offset;",
        *(f".reg .{_register(t)} {name};" for name, t in kinds),
        "mov.u32 t, %ctaid.x;\nmov.u32 u, %tid.x;\nmad.lo.u32 t, t, 128, u;\ncvt.u64.u32 i, t;",
        "ld.param.u64 count, [n];\nsetp.ge.u64 out, i, count;\n@out bra DONE;",
    ]
    for name, t in kinds:
        lines.append(f"ld.param.u64 at, [p{name}];\nmul.lo.u64 offset, i, {t.itemsize};\nadd.u64 at, at, offset;")
        lines.append(f"ld.global.{_memory(t)} {name}, [at];")
    for k, (body, result) in enumerate(bodies):
        out = np.dtype(result)
        lines.append(f"{{ .reg .{_register(out)} d;")
        lines.append(body if body.endswith(";") else f"{body} {', '.join(('d', *names))};")
        lines.append(f"ld.param.u64 at, [pd{k}];\nmul.lo.u64 offset, i, {out.itemsize};\nadd.u64 at, at, offset;")
        lines.append(f"st.global.{_memory(out)} [at], d; }}")
    lines.append("DONE:\nret;\n}\n")
    return "\n".join(lines)


class Elementwise:
    """Does instructions for every element: ``elementwise("add.rz.f32", np.float32, x, y)``.

    A body is one mnemonic, or statements that end with a semicolon and may use the predicates ``p`` and ``q`` and the
    32-bit registers ``t`` and ``u``; they leave ``d`` and the sources alone.
    """

    def __init__(self, device: Device) -> None:
        self._device = device

    def __call__(self, body: str, result: npt.DTypeLike, *sources: Array, target: str = "sm_90") -> Array:
        """Do one body for every element."""
        return self.several({"": (body, result)}, *sources, target=target)[""]

    def several(
        self, bodies: Mapping[Key, tuple[str, npt.DTypeLike]], *sources: Array, target: str = "sm_90"
    ) -> dict[Key, Array]:
        """Do bodies in one kernel, each with the type of its result: to compile one costs as much as for one body."""
        if int(target[3:]) > self._device.arch.number and self._device.is_gpu:
            pytest.skip(f"{target} does not run on {self._device}")
        ptx = elementwise_ptx(list(bodies.values()), [s.dtype for s in sources], target)
        outs = [self._device.zeros(len(sources[0]), result) for _, result in bodies.values()]
        inputs = [self._device.array(s) for s in sources]
        addresses = [x.address for x in (*outs, *inputs)]
        parameters = struct.pack(f"<{1 + len(addresses)}Q", len(sources[0]), *addresses)
        shape = LaunchShape(Dim3(-(-len(sources[0]) // 128)), Dim3(128))
        self._device.load(Artifact.of(ptx)).kernels["k"].launch(shape, parameters)
        return {key: np.asarray(out.numpy()) for key, out in zip(bodies, outs, strict=True)}


@pytest.fixture
def elementwise(device: Device) -> Elementwise:
    """Instructions over whole arrays on every device present."""
    return Elementwise(device)


def round_exactly(x: Fraction, mode: str, width: int, negative_zero: bool = False) -> int:
    """Round a number to the bits of a floating-point format, by integer arithmetic alone."""
    precision, bias = _FORMATS[width]
    size, parts = abs(x.numerator), x.denominator
    sign = 1 << (width - 1) if x.numerator < 0 or (not size and negative_zero) else 0
    if not size:
        return sign
    exponent = size.bit_length() - parts.bit_length()
    if (parts << exponent > size) if exponent >= 0 else (parts > size << -exponent):
        exponent -= 1
    unit = max(exponent, 1 - bias) - precision + 1
    if unit > 0:
        parts <<= unit
    else:
        size <<= -unit
    whole, rest = divmod(size, parts)
    outward = mode == ("rm" if sign else "rp")
    twice = 2 * rest - parts
    if rest and (outward or (mode == "rn" and (twice > 0 or (twice == 0 and whole & 1)))):
        whole += 1
    biased = unit + precision - 1 + bias
    # A whole below 2^(precision - 1) is subnormal; one of 2^precision carries into the exponent by itself.
    bits = whole if whole >> (precision - 1) == 0 else ((biased - 1) << (precision - 1)) + whole
    infinity = (2 * bias + 1) << (precision - 1)
    if bits >= infinity:
        bits = infinity if outward or mode == "rn" else infinity - 1
    return sign | bits


@pytest.fixture(scope="session")
def exactly() -> Callable[..., int]:
    """The exact rounding of a Fraction: ``exactly(x, "rz", 32)`` gives the bits."""
    return round_exactly
