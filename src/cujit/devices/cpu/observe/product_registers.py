"""Registers of products by ``wgmma``, and what accesses them: a ``wgmma.fence`` has to come in between.

    cvt.rn.f16x2.f32 a0, x, y;           an access of a0
    wgmma.fence.sync.aligned;
    wgmma.mma_async… {d0, …}, {a0, …}, b, …;

Copies and constants are no accesses: compilers put these anywhere, and no register of a GPU need be written. PTX ISA
9.1, "Asynchronous Warpgroup Level Matrix Operations: wgmma.fence".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cujit.devices.cpu.ir.program import Op, items_of, registers_in
from cujit.values import dataclass, field

_CLASSES = 32
"""Classes that are told apart."""


@dataclass(frozen=True)
class ProductRegisters:
    """``products`` tells the class of each product, as a bit; those that have registers in common are of one.

    ``written`` and ``read`` tell of registers, by number, to which classes a write and a read of them matter, as bits.
    """

    products: Mapping[Op, int] = field(default_factory=dict)
    written: Mapping[int, int] = field(default_factory=dict)
    read: Mapping[int, int] = field(default_factory=dict)

    def accessed_by(self, op: Op) -> int:
        """Return the classes whose registers an operation accesses, as bits."""
        if not self.products or op.opcode in ("mov", "wgmma"):
            return 0
        found = 0
        for reg in op.written:
            found |= self.written.get(reg.index, 0)
        for reg in op.read_registers():
            found |= self.read.get(reg.index, 0)
        return found


def product_registers(ops: Iterable[Op]) -> ProductRegisters:
    """Find the registers of the products of a function."""
    ops = list(ops)
    products = [op for op in ops if op.opcode == "wgmma" and "mma_async" in op.modifiers]
    copies = [op for op in ops if op.opcode == "mov"] if products else []
    own = {op: _registers(op) for op in products}
    parents: dict[int, int] = {}
    for registers in own.values():
        for register in registers:
            parents[_root(parents, register)] = _root(parents, registers[0])
    roots = list(dict.fromkeys(_root(parents, registers[0]) for registers in own.values()))
    bit = {root: 1 << k % _CLASSES for k, root in enumerate(roots)}
    written = {register: bit[_root(parents, register)] for registers in own.values() for register in registers}
    read = {reg.index: written[reg.index] for op in products for reg in op.written}
    _follow(copies, written)
    return ProductRegisters({op: written[registers[0]] for op, registers in own.items()}, written, read)


def _registers(op: Op) -> list[int]:
    """List the registers of the sums of a product, and of its first matrix."""
    return [
        reg.index
        for source in op.sources[:2]
        for item in items_of(source)
        for reg in registers_in(item)
        if reg.bits < 64
    ]


def _root(parents: dict[int, int], register: int) -> int:
    while parents.setdefault(register, register) != register:
        register = parents[register]
    return register


def _follow(copies: list[Op], written: dict[int, int]) -> None:
    """A write to what is copied to such a register is one, too."""
    changed = True
    while changed:
        changed = False
        for op in copies:
            classes = 0
            for reg in op.written:
                classes |= written.get(reg.index, 0)
            for reg in op.read_registers():
                if classes & ~written.get(reg.index, 0):
                    written[reg.index] = written.get(reg.index, 0) | classes
                    changed = True
