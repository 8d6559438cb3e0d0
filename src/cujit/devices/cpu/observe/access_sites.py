"""The memory that each operation reads and writes, and the operations that one check covers together.

Textures and surfaces are left out, because their instructions handle bounds. ``described`` covers the memory that
descriptors, tensor maps, and masks refer to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cujit.devices.cpu.analysis.body import parameters_behind
from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Builder, Value
from cujit.devices.cpu.codegen.memory import LaneAddresses as Where
from cujit.devices.cpu.instructions.copies.bulk import inside_of
from cujit.devices.cpu.instructions.matrix.move import memory_lines
from cujit.devices.cpu.instructions.memory import place_in
from cujit.devices.cpu.ir.program import IntConstant, MemoryOperand, Negation, Op, Operand, Reg, SymbolAddress, items_of
from cujit.devices.cpu.native.checking import Access, Space
from cujit.formats.ptx.isa.semantics import Effect, Order
from cujit.values import dataclass, replace

if TYPE_CHECKING:
    from cujit.devices.cpu.codegen.warp import WarpEmitter
    from cujit.devices.cpu.ir.cfg import BasicBlock

_LARGEST_STRIDE = 4096
"""Bytes between loads that are looked at together."""

_SPACES = {
    "shared": Space.SHARED, "cluster": Space.CLUSTER, "local": Space.LOCAL, "global": Space.GLOBAL,
    "const": Space.GLOBAL, "param": Space.PARAM, "param::func": Space.GENERIC, "generic": Space.GENERIC,
}  # fmt: skip
_WORD_GRAIN = 2
"""The binary logarithm of the most that has a record of its own in global memory."""
MAYBE_SHARED = (Space.SHARED, Space.CLUSTER, Space.GENERIC)
_ORDERED = (Order.ACQUIRE, Order.RELEASE, Order.ACQ_REL)
UPDATE = Access.READ | Access.WRITE | Access.STRONG | Access.ACQUIRE | Access.RELEASE
_ROWS = {"x1": 8, "x2": 16, "x4": 32}
_MBARRIER_BYTES = 8
_MAP_BYTES = 128


@dataclass(frozen=True)
class MemoryAccess:
    """One access by every active lane: ``size`` bytes at ``where`` in this process.

    ``size`` is an int, an i64, or an i64 per lane. ``element`` and ``align`` are in bytes (0: irrelevant). ``lanes``
    restricts the active lanes. ``values`` are the values that a store writes, part by part.
    """

    where: Where
    size: int | Value
    access: Access
    space: Space
    element: int
    align: int
    lanes: int = -1
    values: tuple[Value, ...] = ()

    @property
    def flags(self) -> int:
        """The kind, space, element size, and alignment of the access in one word: see ``Access``."""
        log = max(self.align.bit_length() - 1, 0)
        return int(self.access) | int(self.space) << 8 | self.element << 16 | log << 24

    def lanes_in(self, e: WarpEmitter, op: Op) -> Value:
        """Return the lanes that access memory: the ones that run. For a warp-wide access, its own lanes if any lane
        runs.
        """
        b, lanes = e.builder, e.builder.word(e.lanes(op))
        if self.lanes == -1:
            return lanes
        some = b.compare("icmp ne", lanes, b.integer(0, 32))
        return b.select(some, b.integer(self.lanes, 32), b.integer(0, 32))

    def by_rows(self, b: Builder, rows: Callable[[], None], each: Callable[[], None]) -> None:
        """Emit ``rows`` if the lanes are in rows, and ``each`` if every lane has a separate address.

        If this is only known at run time, emit both with a branch.
        """
        if not self.where.bases or isinstance(self.size, Value):
            each()
        elif self.where.holds is None:
            rows()
        else:
            b.either(self.where.holds, rows, each, "row")


def orders_by_itself(op: Op) -> bool:
    """Return whether an operation orders accesses without a separate fence. A relaxed operation does not.

    Source: PTX ISA 9.1, "Memory Consistency Model: Synchronizes".
    """
    return op.opcode not in ("ld", "st", "atom", "red") or "async" in op.modifiers or op.order in _ORDERED


def takes_raw(op: Op) -> bool:
    """Return whether raw values in memory become values of the operation's results, which is not a fault yet."""
    if op.opcode in ("ld", "ldu"):
        base = op.memory.base
        return op.space not in ("const", "param") and not (
            isinstance(base, SymbolAddress) and base.slot.space in ("param", "const")
        )
    return op.opcode == "ldmatrix" or (op.opcode == "wmma" and "load" in op.modifiers)


def copies_raw(op: Op) -> bool:
    """Return whether an operation copies to shared memory which part of its source is raw: ``cp.async``."""
    return op.opcode == "cp" and not {"ca", "cg"}.isdisjoint(op.modifiers)


def may_touch_global(op: Op) -> bool:
    """Return whether ``touches_of`` may list an access to global memory, also by addresses that may lead anywhere."""
    return op.opcode in ("cp", "wmma") or (op.opcode in _BY_OPCODE and op.space not in ("shared", "local"))


def touches_of(e: WarpEmitter, op: Op) -> list[MemoryAccess]:
    """Return the memory accesses of an operation, in the order in which they occur."""
    if op.opcode == "cp":
        return _copies(e, op)
    if op.opcode == "wmma":
        return _wmma(e, op) if "load" in op.modifiers or "store" in op.modifiers else []
    find = _BY_OPCODE.get(op.opcode)
    return find(e, op) if find is not None else []


def where_in(e: WarpEmitter, operand: Operand, space: str) -> tuple[Where, Space]:
    """Find where lanes access an operand in brackets, and the space that it is in."""
    assert isinstance(operand, MemoryOperand)
    return place_in(e, operand, space), _SPACES[space]


def element_bytes(op: Op) -> int:
    """Bytes of an element in memory: a pair of halves is one."""
    return op.type.bits // 8


def _order(op: Op, orders: Access) -> Access:
    """Return the additional flags of a strong load or store, or none if it is weak.

    A strong operation orders others through any object that it accesses.
    """
    return Access.STRONG | orders if op.form.is_strong else Access(0)


# -- loads, stores, atomic operations ---------------------------------------------------------------------


def _load(e: WarpEmitter, op: Op) -> list[MemoryAccess]:
    base = op.memory.base
    if isinstance(base, SymbolAddress) and base.slot.space == "param":
        return []
    address, space = where_in(e, op.memory, op.space)
    size = element_bytes(op) * len(op.results)
    return [
        MemoryAccess(
            address, size, Access.READ | Access.TAKES | _order(op, Access.ACQUIRE), space, element_bytes(op), size
        )
    ]


def _store(e: WarpEmitter, op: Op) -> list[MemoryAccess]:
    if "async" in op.modifiers:
        return _store_andsignal(e, op)
    address, space = where_in(e, op.sources[0], op.space)
    if "bulk" in op.modifiers:
        return [MemoryAccess(address, e.source(op, 1, "i64"), Access.WRITE, space, 1, 8)]
    items, element = items_of(op.sources[1]), element_bytes(op)
    size, order = element * len(items), _order(op, Access.RELEASE)
    values = tuple(e.read(item, f"i{8 * element}") for item in items) if not order else ()
    return [MemoryAccess(address, size, Access.WRITE | order, space, element, size, values=values)]


def _atomic(e: WarpEmitter, op: Op) -> list[MemoryAccess]:
    if "async" in op.modifiers:
        return _store_andsignal(e, op)
    address, space = where_in(e, op.sources[0], op.space)
    size = element_bytes(op) * op.form.vector
    return [MemoryAccess(address, size, UPDATE, space, element_bytes(op), size)]


def _store_andsignal(e: WarpEmitter, op: Op) -> list[MemoryAccess]:
    """``st.async``, ``red.async``: to shared memory of the cluster, and an mbarrier there."""
    address, kind = where_in(e, op.sources[0], op.space)
    size = element_bytes(op) * len(items_of(op.sources[1]))
    access = Access.WRITE if op.opcode == "st" else UPDATE
    target = MemoryAccess(address, size, access | Access.ASYNC, kind, element_bytes(op), element_bytes(op))
    signals = "mbarrier::complete_tx::bytes" in op.modifiers
    return [target, *([signal(e, op.sources[2], op.space)] if signals else [])]


def signal(e: WarpEmitter, operand: Operand, space: str) -> MemoryAccess:
    """An mbarrier that something is counted at."""
    address, kind = where_in(e, operand, space)
    return MemoryAccess(address, _MBARRIER_BYTES, UPDATE, kind, _MBARRIER_BYTES, _MBARRIER_BYTES)


def _mbarrier(e: WarpEmitter, op: Op) -> list[MemoryAccess]:
    if "pending_count" in op.modifiers:
        return []
    found = signal(e, op.sources[0], op.space)
    words = frozenset(op.modifiers)
    if "init" in words:
        return [replace(found, access=Access.WRITE)]
    # Who arrives learns nothing of others, and who waits tells them nothing.
    waits, arrives = not words.isdisjoint({"test_wait", "try_wait"}), not words.isdisjoint({"arrive", "arrive_drop"})
    lacks = Access.RELEASE if waits else Access.ACQUIRE if arrives else Access(0)
    return [replace(found, access=found.access & ~lacks)]


# -- matrices ---------------------------------------------------------------------------------------------


def _rows(e: WarpEmitter, op: Op) -> list[MemoryAccess]:
    """``ldmatrix``, ``stmatrix``: each of the first lanes has the address of a row of sixteen bytes."""
    address, space = where_in(e, op.sources[0], op.space)
    count = next(_ROWS[m] for m in op.modifiers if m in _ROWS)
    if "m16n16" in op.modifiers:
        count *= 2
    access = Access.READ if op.opcode == "ldmatrix" else Access.WRITE
    access |= Access.TAKES if takes_raw(op) else Access(0)
    return [MemoryAccess(address, 16, access, space, 2, 16, (1 << count) - 1)]


def _wmma(e: WarpEmitter, op: Op) -> list[MemoryAccess]:
    """Each line of the matrix is a lane's access."""
    found = memory_lines(e, op)
    b = e.builder
    base, stride = b.vector(found.base), b.vector(found.stride)
    address = b.binary("add", base, b.binary("mul", stride, b.lanes(list(range(WARP)), 64)))
    access = Access.READ | Access.TAKES if takes_raw(op) else Access.WRITE
    lanes = (1 << found.lines) - 1
    return [
        MemoryAccess(Where(lanes=address), found.line_bytes, access, _SPACES[op.space], found.element_bytes, 0, lanes)
    ]


# -- copies -----------------------------------------------------------------------------------------------


def _copies(e: WarpEmitter, op: Op) -> list[MemoryAccess]:
    words = frozenset(op.modifiers)
    if not words.isdisjoint({"commit_group", "wait_group", "wait_all", "prefetch", "tensor"}):
        return []
    if "mbarrier" in words:
        return [signal(e, op.sources[0], op.space)]
    return _bulk(e, op) if "bulk" in words else _small_copy(e, op)


def _small_copy(e: WarpEmitter, op: Op) -> list[MemoryAccess]:
    """``cp.async dst, src, size {, source size | ignore}``."""
    size = op.sources[2]
    assert isinstance(size, IntConstant)
    more = op.sources[3 : len(op.sources) - ("L2::cache_hint" in op.modifiers)]
    target, to = where_in(e, op.sources[0], "shared")
    source, from_ = where_in(e, op.sources[1], "global")
    taken: int | Value = size.value
    if more:
        b = e.builder
        taken = b.resize(
            b.intrinsic("umin", _byte_count(e, more[0], size.value), b.integer(size.value, 32)), 64, signed=False
        )
    return [
        MemoryAccess(source, taken, Access.READ | Access.TAKES, from_, 4, size.value if isinstance(taken, int) else 4),
        # Kernels of NVIDIA's read by wgmma what this wrote with no fence in between.
        MemoryAccess(target, size.value, Access.WRITE | Access.ASYNC, to, 4, size.value),
    ]


def _byte_count(e: WarpEmitter, operand: Operand, size: int) -> Value:
    item = operand.item if isinstance(operand, Negation) else operand
    if isinstance(item, Reg) and item.bits == 1:
        return e.builder.select(e.read(operand, "i1"), e.builder.integer(0, 32), e.builder.integer(size, 32))
    return e.read(operand, "i32")


def _bulk(e: WarpEmitter, op: Op) -> list[MemoryAccess]:
    """Return the accesses of ``cp.async.bulk`` and ``cp.reduce.async.bulk``.

    The operands are ``[dst], [src], size {, left, right} {, [mbarrier]}``.
    """
    to, from_ = op.form.spaces
    target, target_space = where_in(e, op.sources[0], to)
    source, source_space = where_in(e, op.sources[1], from_)
    size = e.builder.resize(e.source(op, 2, "i32"), 64, signed=False)
    writes = UPDATE if "reduce" in op.modifiers else Access.WRITE
    writes = (writes & ~(Access.ACQUIRE | Access.RELEASE)) | Access.ASYNC
    if "cp_mask" in op.modifiers:
        return []
    if "ignore_oob" in op.modifiers:
        found = _inside(e, op, MemoryAccess(target, size, writes, target_space, 1, 16), source)
    else:
        found = [MemoryAccess(source, size, Access.READ | Access.ASYNC, source_space, 1, 16)]
        if "multicast::cluster" in op.modifiers:
            return found
        found.append(MemoryAccess(target, size, writes, target_space, 1, 16))
    found.extend(signal(e, barrier, to) for barrier in op.sources[3:] if isinstance(barrier, MemoryOperand))
    return found


def _inside(e: WarpEmitter, op: Op, written: MemoryAccess, source: Where) -> list[MemoryAccess]:
    """Return the accesses of a copy with ``.ignore_oob``.

    The copy writes the whole target. Bytes from out of bounds have no defined value.
    """
    b, (first, count) = e.builder, inside_of(e, op)
    target, source = (Where(lanes=b.binary("add", w.every_lane(b), b.vector(first))) for w in (written.where, source))
    size = b.resize(count, 64, signed=False)
    return [
        MemoryAccess(source, size, Access.READ | Access.ASYNC, Space.GLOBAL, 1, 1),
        replace(written, access=written.access | Access.TAKES),
        replace(written, where=target, size=size, access=written.access | Access.AGAIN, align=1),
    ]


def _control(e: WarpEmitter, op: Op) -> list[MemoryAccess]:
    """Return the accesses of ``clusterlaunchcontrol.try_cancel [a], [mbar]``, which writes a response of 16 bytes.

    ``described`` covers responses to several blocks.
    """
    if "try_cancel" not in op.modifiers or "multicast::cluster::all" in op.modifiers:
        return []
    target, space = where_in(e, op.sources[0], op.space)
    return [MemoryAccess(target, 16, Access.WRITE | Access.ASYNC, space, 1, 16), signal(e, op.sources[1], op.space)]


def _tensor(e: WarpEmitter, op: Op) -> list[MemoryAccess]:
    """Return the accesses of ``tcgen05.alloc``, which writes an address, and ``tcgen05.commit``, which signals an
    mbarrier.

    A commit to several blocks is left out.
    """
    if "alloc" in op.modifiers:
        where, space = where_in(e, op.sources[0], op.space)
        return [MemoryAccess(where, 4, Access.WRITE, space, 4, 4, 1)]
    one = "commit" in op.modifiers and "multicast::cluster" not in op.modifiers
    return [signal(e, op.sources[0], op.space)] if one else []


def _map(e: WarpEmitter, op: Op) -> list[MemoryAccess]:
    """``tensormap.replace``: a part of a map; ``tensormap.cp_fenceproxy``: all of it, to another."""
    spaces = op.form.spaces or ("generic",)
    first, space = where_in(e, op.sources[0], spaces[0])
    if "replace" in op.modifiers:
        return [MemoryAccess(first, _MAP_BYTES, Access.READ | Access.WRITE, space, 1, 64)]
    second, from_ = where_in(e, op.sources[1], spaces[1])
    return [
        MemoryAccess(second, _MAP_BYTES, Access.READ, from_, 1, 128),
        MemoryAccess(first, _MAP_BYTES, Access.WRITE, space, 1, 128),
    ]


_BY_OPCODE: dict[str, Callable[[WarpEmitter, Op], list[MemoryAccess]]] = {
    "ld": _load,
    "ldu": _load,
    "st": _store,
    "atom": _atomic,
    "red": _atomic,
    "mbarrier": _mbarrier,
    "ldmatrix": _rows,
    "stmatrix": _rows,
    "clusterlaunchcontrol": _control,
    "tensormap": _map,
    "tcgen05": _tensor,
}


# -- what is looked at together -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Batch:
    """Operations of one basic block at addresses in one register, without an operation in between that others can
    observe.

    They are loads, shared-memory loads and the stores that follow, or global-memory stores and loads of the same
    memory. ``offset`` is the lowest offset.
    """

    ops: tuple[Op, ...]

    @property
    def offset(self) -> int:
        """The lowest offset of an operation's address from the register."""
        return min(op.memory.offset for op in self.ops)

    @property
    def stores(self) -> tuple[Op, ...]:
        """The stores among the operations."""
        return tuple(op for op in self.ops if op.opcode == "st")


def batches_in(block: BasicBlock, e: WarpEmitter) -> list[Batch]:
    """Return the batches of loads in a basic block that one check, at the first load, can cover."""

    def key_of(op: Op) -> tuple[object, ...] | None:
        if op.opcode != "ld" or not _may_batch(op, e):
            return None
        base = op.memory.base
        slot, offset = (base.slot, base.offset) if isinstance(base, SymbolAddress) else (base, 0)
        return slot, offset, op.space, element_bytes(op), len(op.results)

    return [Batch(tuple(ops)) for ops in _grouped(block, key_of, _is_seen) if len(ops) > 1]


def _grouped(
    block: BasicBlock, key_of: Callable[[Op], tuple[object, ...] | None], ends: Callable[[Op], bool]
) -> list[list[Op]]:
    """Return the accesses of a block, grouped by key. Accesses of a group are no farther apart than the largest stride.

    A key begins with the base register, and a write to that register ends the group. An operation without a key ends
    all groups if ``ends`` returns True for it.
    """
    found: list[list[Op]] = []
    growing: dict[tuple[object, ...], list[Op]] = {}
    for op in block.ops:
        key = key_of(op)
        if key is not None:
            ops = growing.setdefault(key, [])
            if ops and abs(op.memory.offset - ops[0].memory.offset) > _LARGEST_STRIDE:
                ops = growing[key] = []
            if not ops:
                found.append(ops)
            ops.append(op)
        elif ends(op):
            growing.clear()
        growing = {key: ops for key, ops in growing.items() if key[0] not in op.written}
    return found


def updates_in(block: BasicBlock, e: WarpEmitter) -> list[Batch]:
    """Return the batches of shared-memory stores that one check can cover, with or without the loads before them."""
    found: list[list[Op]] = []
    growing: list[Op] = []
    for op in block.ops:
        maybe_shared = op.opcode in ("ld", "st") and op.space not in ("global", "const", "param", "local")
        if maybe_shared and _may_update(op, e, "shared"):
            is_next = growing and _follows(growing, op)
            growing = [*growing, op] if is_next else [op]
            if is_next:
                found.pop()
            found.append(growing)
        elif maybe_shared or (_is_seen(op) and op.opcode != "ld"):
            growing = []
        if growing and growing[0].memory.base in op.written:
            growing = []
    return [Batch(tuple(ops)) for ops in found if len(ops) > 1 and ops[-1].opcode == "st"]


def updates_across(block: BasicBlock, e: WarpEmitter) -> list[Batch]:
    """Return the batches of global-memory stores that one check can cover, each with the loads of the same memory."""

    def key_of(op: Op) -> tuple[object, ...] | None:
        is_update = op.opcode in ("ld", "st") and _may_update(op, e, "global")
        return (op.memory.base, bytes_of(op)) if is_update else None

    found = _grouped(block, key_of, lambda op: _is_seen(op) and not _is_plain_store(op))
    written = [{op.memory.offset for op in ops if op.opcode == "st"} for ops in found]
    groups = [[op for op in ops if op.memory.offset in at] for ops, at in zip(found, written, strict=True)]
    return [Batch(tuple(ops)) for ops in groups if ops]


def _is_plain_store(op: Op) -> bool:
    return op.opcode == "st" and not op.form.is_strong and {"async", "bulk"}.isdisjoint(op.modifiers)


def _follows(ops: list[Op], op: Op) -> bool:
    """Whether an operation accesses as much as others, near them; no load follows a store."""
    first = ops[0]
    return (
        op.memory.base == first.memory.base
        and (op.opcode == "st" or ops[-1].opcode == "ld")
        and bytes_of(op) == bytes_of(first)
        and all(abs(op.memory.offset - each.memory.offset) <= _LARGEST_STRIDE for each in ops)
    )


def _may_update(op: Op, e: WarpEmitter, space: str) -> bool:
    """Return whether an operation accesses memory of a space by one row of lanes that don't overlap."""
    plain = op.guard is None and not op.form.is_strong and op.space == space
    if not plain or not {"async", "bulk"}.isdisjoint(op.modifiers) or not isinstance(op.memory.base, Reg):
        return False
    shape, size = e.shape(op.memory.base), bytes_of(op)
    apart = shape.stride is not None and abs(shape.stride) >= size and shape.row == WARP
    return apart and not op.memory.offset % size and (space == "global" or not shape.guarded)


def bytes_of(op: Op) -> int:
    """Bytes that a lane loads or stores."""
    return element_bytes(op) * (len(op.results) if op.form.is_load else len(items_of(op.sources[1])))


class UpdatedMemory:
    """A set of memory operands, identified by their base registers and offsets.

    A constant that is added to a register is part of the offset.
    """

    def __init__(self, ops: Sequence[Op]) -> None:
        written = Counter(reg.index for op in ops for reg in op.written)
        self._sums = {
            op.result.index: op
            for op in ops
            if op.opcode == "add" and op.result is not None and written[op.result.index] == 1
        }
        self._found: set[tuple[object, int]] = set()

    def add(self, operand: MemoryOperand) -> None:
        """Add a memory operand to the set."""
        self._found.add(self._place_of(operand))

    def __contains__(self, operand: MemoryOperand) -> bool:
        return self._place_of(operand) in self._found

    def _place_of(self, operand: MemoryOperand) -> tuple[object, int]:
        base, offset = operand.base, operand.offset
        while isinstance(base, Reg) and base.index in self._sums:
            first, second = self._sums[base.index].sources
            if not (isinstance(first, Reg) and isinstance(second, IntConstant)):
                break
            base, offset = first, offset + second.value
        return base, offset


def updated_memory(ops: Sequence[Op]) -> UpdatedMemory:
    """Return the memory operands that atomic operations update and return the old value of."""
    found = UpdatedMemory(ops)
    for op in ops:
        if op.opcode == "atom":
            found.add(op.memory)
    return found


def least_grain(ops: Sequence[Op]) -> int:
    """Return the binary logarithm of the smallest global-memory access of the operations, at most that of a word."""
    return min((_grain_of(op) for op in ops if may_touch_global(op)), default=_WORD_GRAIN)


def written_parameters(ops: Sequence[Op]) -> list[tuple[int, ...]] | None:
    """Return, for each address that operations write to, the offsets of the parameters that it is computed from.

    The operations belong to a kernel that calls no function. Return None if an address may have another origin. Module
    variables that are accessed by name are left out.
    """
    behind, offsets = parameters_behind(ops)
    found: set[tuple[int, ...]] = set()
    for op in ops:
        if not may_touch_global(op) or _only_reads(op):
            continue
        if op.opcode not in ("st", "atom", "red"):
            return None
        base = op.memory.base
        if isinstance(base, SymbolAddress):
            continue
        bits = behind.get(base.index, 0) if isinstance(base, Reg) else 0
        if not bits:
            return None
        found.add(tuple(at for k, at in enumerate(offsets) if bits >> k & 1))
    return sorted(found)


def _only_reads(op: Op) -> bool:
    return op.opcode in ("ld", "ldu") or copies_raw(op) or (op.opcode == "wmma" and "load" in op.modifiers)


def _grain_of(op: Op) -> int:
    if "cp_mask" in op.modifiers:
        return 0
    if op.opcode not in ("ld", "ldu", "st", "atom", "red") or "bulk" in op.modifiers:
        return _WORD_GRAIN
    updates = op.opcode in ("atom", "red") or "async" in op.modifiers
    size = element_bytes(op) if updates else bytes_of(op)
    return min(size.bit_length() - 1, _WORD_GRAIN)


def _is_seen(op: Op) -> bool:
    """Return whether others may observe the effect of an operation, or the operation may observe theirs.

    Weak loads don't count.
    """
    if op.opcode == "ld":
        return op.form.is_strong
    return op.form.is_site or op.form.meaning.effect is not Effect.PURE


def _may_batch(op: Op, e: WarpEmitter) -> bool:
    memory, size = op.memory, element_bytes(op) * len(op.results)
    plain = op.guard is None and not op.form.is_strong and op.space in ("shared", "global")
    if not plain or memory.offset % size:
        return False
    base = memory.base
    return e.shape(base).stride is not None if isinstance(base, Reg) else isinstance(base, SymbolAddress)
