"""Operations as text in PTX syntax, and register values decoded by their types."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable
from typing import Any

from cujit.devices.cpu.ir.program import (
    FloatConstant,
    IntConstant,
    MemoryOperand,
    Negation,
    Op,
    Operand,
    OperandGroup,
    Reg,
    Special,
    SymbolAddress,
)
from cujit.values import dataclass

_TYPE = re.compile(r"([sufb])(8|16|32|64|128)|(b?f16)(x2)?|tf32|pred")


@dataclass(frozen=True)
class TracedValue:
    """A value that was read or written: the ``name`` of the register, the PTX ``type``, and the bits.

    ``type`` is ``pred``, ``s32``, ``u64``, ``f32``, ``f16``, ``bf16x2`` …, or ``address``. It is ``b128`` if the
    meaning of the bits is unknown.
    """

    name: str
    type: str
    bits: int

    @property
    def value(self) -> bool | int | float | tuple[float, float]:
        """The value that the bits represent."""
        if self.type == "pred":
            return bool(self.bits)
        if self.type.endswith("x2"):
            low, high = self.bits & 0xFFFF, self.bits >> 16 & 0xFFFF
            return _real(self.type[:-2], low), _real(self.type[:-2], high)
        if self.type[0] == "f" or self.type == "bf16":
            return _real(self.type, self.bits)
        if self.type[0] == "s":
            width = int(self.type[1:])
            return self.bits - (1 << width) if self.bits >> (width - 1) & 1 else self.bits
        return self.bits

    def to_json(self) -> dict[str, Any]:
        """Return the traced value as plain values. Numbers that JSON cannot represent are strings."""
        meant = self.value
        known = not isinstance(meant, float) or math.isfinite(meant)
        shown = meant if known and not isinstance(meant, tuple) else str(meant)
        return {"name": self.name, "type": self.type, "bits": hex(self.bits), "value": shown}

    def __str__(self) -> str:
        value = self.value
        if isinstance(value, bool):
            return f"{self.name} = {str(value).lower()}"
        if self.type == "address" or (self.type[0] == "b" and self.type[1].isdigit()):
            return f"{self.name} = {self.bits:#x}"
        if isinstance(value, int):
            return f"{self.name} = {_integer(value, self.bits)}"
        digits = {"64": 16, "16": 4}.get(self.type[-2:], 8)
        parts = value if isinstance(value, tuple) else (value,)
        words = ", ".join(_shown_real(part, self.type) for part in parts)
        return f"{self.name} = {f'{{{words}}}' if isinstance(value, tuple) else words} (0x{self.bits:0{digits}x})"


def _integer(value: int, bits: int) -> str:
    """Write it in base 10 and 16: one digit is the same in both, and beyond 32 bits it is likely an address."""
    if 0 <= value < 10:
        return str(value)
    return f"{value} ({bits:#x})" if abs(value) >> 32 == 0 else f"{bits:#x}"


def _shown_real(value: float, type_: str) -> str:
    """Write it with all the digits that matter, and a point."""
    text = repr(value) if type_ == "f64" else f"{value:.{4 if '16' in type_ else 9}g}"
    return text if set(text) & set(".en") else text + ".0"


def _real(type_: str, bits: int) -> float:
    if type_ == "bf16":
        type_, bits = "f32", bits << 16
    code = {"f16": "<e", "f32": "<f", "f64": "<d"}[type_]
    return float(struct.unpack(code, bits.to_bytes(struct.calcsize(code), "little"))[0])


# -- what bits mean ---------------------------------------------------------------------------------------


def _types(op: Op) -> list[str]:
    return [m for m in op.modifiers if _TYPE.fullmatch(m)]


def type_for(op: Op, operand: Reg | Special, *, is_result: bool, kinds: dict[Reg, str]) -> str:
    """Return the type of an operand's bits, from the operation's type, otherwise from its other uses (``kinds``)."""
    width = operand.bits if isinstance(operand, Reg) else 64
    if width == 1:
        return "pred"
    types = _types(op)
    type_word = (types[0] if is_result else types[-1]) if types else ""
    kind = _kind(type_word, width)
    if kind == "b" and isinstance(operand, Reg):
        kind = "f" if operand.is_float else kinds.get(operand, "u")
    if width > 64:
        return f"b{width}"
    return f"{kind}{width}" if kind in ("s", "u", "f", "b") else kind


def kinds_of(ops: Iterable[Op]) -> dict[Reg, str]:
    """Guess the kind of each register's values from the operations that specify a type.

    Floats have priority over signed integers, and signed integers over unsigned ones. Compilers keep all 32-bit values
    in one kind of register, and load and store them as untyped bits.
    """
    strength = {"b": 0, "u": 1, "s": 2, "f": 3, "f16": 3, "bf16": 3, "f16x2": 3, "bf16x2": 3}
    found: dict[Reg, str] = {}
    for op in ops:
        types = _types(op)
        if not types:
            continue
        for type_word, operands in ((types[0], op.results), (types[-1], op.sources)):
            for reg in operands:
                if isinstance(reg, Reg) and reg.bits > 1:
                    kind = _kind(type_word, reg.bits)
                    if strength[kind] > strength[found.get(reg, "b")]:
                        found[reg] = kind
    return found


def _kind(type_word: str, width: int) -> str:
    """Return the kind of a type: ``s``, ``u``, ``f``, ``f16``, ``bf16`` (also with ``x2``), or ``b``
    for untyped bits.
    """
    if type_word in ("f16", "bf16"):
        return type_word if width == 16 else "b"
    if type_word in ("f16x2", "bf16x2"):
        return type_word if width == 32 else "b"
    if type_word[:1] == "f":
        return "f" if type_word == f"f{width}" else "b"
    return type_word[:1] if type_word[:1] in ("s", "u") else "b"


# -- how PTX spells it ------------------------------------------------------------------------------------


def spelled(op: Op) -> str:
    """Return an operation in PTX syntax."""
    guard = f"@{'!' if op.guard_negated else ''}{op.guard.name} " if op.guard is not None else ""
    name = op.text or op.name
    if op.opcode == "param":
        return _parameter_move(op, name)
    results = ["_" if reg is None else reg.name for reg in op.results]
    first = [f"{{{', '.join(results)}}}" if len(results) > 2 else "|".join(results)] if results else []
    jumps = [] if name.startswith("ret") else [target.rpartition(":")[2] for target in op.targets]
    return f"{guard}{name} {', '.join([*first, *map(written, op.sources), *jumps])}".rstrip()


def _parameter_move(op: Op, name: str) -> str:
    """Write the move of a parameter of a call to or from a register."""
    results, sources = [reg.name for reg in op.results if reg is not None], list(map(written, op.sources))
    place, other = (results, sources) if name.startswith("st") else (sources, results)
    inside = ", ".join(place).strip("{}").removesuffix("+0")
    return f"{name} [{inside}], {other[0]}" if name.startswith("st") else f"{name} {', '.join(other)}, [{inside}]"


def written(operand: Operand) -> str:
    """Return an operand in PTX syntax."""
    if isinstance(operand, Reg):
        return operand.name
    if isinstance(operand, Special):
        return operand.name if operand.name == "_" else f"%{operand.name}"
    if isinstance(operand, IntConstant):
        return str(operand.value)
    if isinstance(operand, FloatConstant):
        return f"0{'d' if operand.width == 64 else 'f'}{operand.bits:0{operand.width // 4}X}"
    if isinstance(operand, SymbolAddress):
        return operand.slot.name + _plus(operand.offset)
    if isinstance(operand, Negation):
        return f"!{written(operand.item)}"
    if isinstance(operand, OperandGroup):
        return f"{{{', '.join(map(written, operand.items))}}}"
    assert isinstance(operand, MemoryOperand)
    base = "" if operand.base is None else written(operand.base)
    coords = f", {{{', '.join(map(written, operand.coords))}}}" if operand.coords else ""
    return f"[{base + _plus(operand.offset) if base else operand.offset}{coords}]"


def _plus(offset: int) -> str:
    return f"{offset:+d}" if offset else ""
