"""Instrumentation for ``check=``: calls of native code before operations, which checks their accesses.

Each function has a ``Place`` in its frame with the position of the warp, and with the addresses and values of the
lanes. Thus a check needs only a few instructions in the kernel and one call.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING

from cujit.devices.cpu.analysis.skips import Skips, find_skips, number_for_all
from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Value, type_width
from cujit.devices.cpu.codegen.memory import LaneAddresses as Where
from cujit.devices.cpu.codegen.nodes import BLOCK, LAUNCH, STATE, WARP_NUMBER
from cujit.devices.cpu.control.regions import PLACE_AT, WATCHED
from cujit.devices.cpu.instructions import blocks, warpwide
from cujit.devices.cpu.ir.program import CLEAR, Op, Reg, SymbolAddress, awaits_copies, is_in_tensor_memory, is_queued
from cujit.devices.cpu.native.checking import CLUSTER_BARRIER, Access, Place, Space, Watch
from cujit.devices.cpu.native.structures import BARRIERS, GROUP_WARPS
from cujit.devices.cpu.observe.access_rows import Row, are_disjoint, row_of
from cujit.devices.cpu.observe.access_sites import (
    MAYBE_SHARED,
    Batch,
    MemoryAccess,
    UpdatedMemory,
    batches_in,
    orders_by_itself,
    touches_of,
    updated_memory,
    updates_across,
    updates_in,
    where_in,
)  # fmt: skip
from cujit.devices.cpu.observe.described import look, look_at_products, orders_mbarriers, orders_proxies
from cujit.devices.cpu.observe.product_registers import ProductRegisters, product_registers
from cujit.devices.cpu.observe.raw import RawValues
from cujit.devices.cpu.observe.stored_lines import is_noted, may_fill_lines, reserve_lines
from cujit.devices.cpu.run.launch import SYSTEM_BYTES, Launch
from cujit.formats.ptx.isa.semantics import Collective, Effect
from cujit.values import replace

if TYPE_CHECKING:
    from cujit.devices.cpu.codegen.warp import WarpEmitter
    from cujit.devices.cpu.ir.cfg import ControlFlowGraph
    from cujit.devices.cpu.observe.watching import Checks

_ORDERING = Access.ACQUIRE | Access.RELEASE
_PLACE = "%check.place"
_POISONED = "%check.poisoned"
_NOBODY = (1 << 64) - 1
_CHECK_ACCESS = "declare void @cujit_check_access(ptr, i32, i64, i32, i32)"


class Checker:
    """The instrumentation of one kernel and the functions that it calls, for one compilation.

    ``fenced`` is whether the code contains fences, so that relaxed operations may order others. ``copies`` is whether
    it contains asynchronous copies.
    """

    def __init__(self, checks: Checks, *, fenced: bool = False, copies: bool = False) -> None:
        self._checks = checks
        self.copies = copies and checks.race
        self.races = checks.race
        self._fenced = fenced
        self._region: int | None = None
        self._batches: dict[ControlFlowGraph, dict[Op, Batch]] = {}
        self._found: dict[Batch, Value] = {}
        self._windows: dict[Op, str] = {}
        self._raw: dict[str, RawValues] = {}
        self._updated: dict[str, UpdatedMemory] = {}
        self._skips: dict[ControlFlowGraph, Skips] = {}
        self._registers: dict[str, ProductRegisters] = {}

    def before(self, e: WarpEmitter, op: Op) -> None:
        """Emit checks of an operation before the operation runs."""
        checks, raw = self._checks, self._raw_of(e)
        if raw is not None:
            self._begin(e)
            raw.decides(e, op)
        if self.copies:
            self._look_at_copies(e, op)
        if checks.accesses:
            self._accesses(e, op)
        if raw is not None:
            raw.before(e, op)
        self._meet(e, op)
        if checks.race and is_for_other_blocks(op):
            self._when_some(e, op, "cujit_check_published")
        if checks.race:
            self._look_at_registers(e, op)
        if checks.sync:
            self._note_skips(e, op)
        if op.opcode == "call.extern" and "free" in op.modifiers and (checks.memory or checks.init):
            self._hand_over(e, "addresses", e.source(op, 0, "i64"))
            self.call(e, "cujit_check_free", _lanes(e, op))

    def _meet(self, e: WarpEmitter, op: Op) -> None:
        """Note that lanes or warps are about to meet."""
        checks = self._checks
        if op.form.is_site and not op.form.is_whole_warp:
            if op.form.collective >= Collective.BLOCK:
                self._arrive(e, op)
            elif checks.sync and "sync" in op.modifiers:
                self._members(e, op)
        if op.opcode == "warpgroup.meet" and checks.race:
            self._when_some(e, op, "cujit_check_arrive", _group(e), *(e.builder.integer(n, 32) for n in (1, 0)))

    def begin_region(self, e: WarpEmitter, number: int) -> None:
        """Emit code that records the start of a warp, or its continuation after a barrier that all
        warps have reached.
        """
        checks = self._checks
        self._region = number
        self._begin(e)
        if number and checks.init:
            with e.builder.at_entry():
                e.builder.store(e.builder.integer(1, 32), e.builder.offset(_PLACE, Place.goes_on.offset))
        if checks.race and number:
            with e.builder.at_entry():
                e.builder.store(BLOCK, "%check.block")
                e.builder.store(e.builder.integer(0, 32), "%check.warp")
                e.builder.call("cujit_check_turn", "void", Value(_PLACE, "ptr"))
        elif checks.init and not number and e.program.local_size:
            self.call(e, "cujit_check_begin")

    def after(self, e: WarpEmitter, op: Op) -> None:
        """Emit code that records the effects of an operation."""
        checks, raw = self._checks, self._raw_of(e)
        if raw is not None:
            raw.after(e, op)
        if (checks.memory or checks.race or checks.init) and is_in_tensor_memory(op):
            look_at_products(self, e)
        if self.copies and is_queued(op):
            self.call(e, "cujit_pending_watch")
        if (
            op.opcode == "call.extern"
            and "malloc" in op.modifiers
            and (checks.memory or checks.init)
            and op.result is not None
        ):
            self._hand_over(e, "addresses", e.read(op.result, "i64"))
            self._hand_over(e, "values", e.builder.load("i64", "%extern.0", lanes=WARP))
            self.call(e, "cujit_check_malloc", _lanes(e, op))
        if op.opcode == CLEAR and checks.init:
            self._cleared(e, op)
        if checks.race and orders_mbarriers(op):
            self._when_some(e, op, "cujit_check_fenced", e.builder.integer(orders_proxies(op), 32))
        if op.form.is_site:
            self._have_met(e, op)

    def _have_met(self, e: WarpEmitter, op: Op) -> None:
        """Note that lanes or warps have met."""
        checks = self._checks
        if op.form.is_barrier:
            self._pass(e, op)
        elif checks.race and op.opcode == "warpgroup.meet":
            self._when_some(e, op, "cujit_check_pass", _group(e))
        elif checks.race and op.form.meaning.effect is not Effect.ARRIVES:
            self._when_some(e, op, "cujit_check_synced")

    # -- asynchronous copies -----------------------------------------------------------------------------

    def _look_at_copies(self, e: WarpEmitter, op: Op) -> None:
        """Emit checks of accesses that may conflict with copies that no thread has waited for. Also
        record the waits.
        """
        b, line = e.builder, e.builder.integer(op.line, 32)
        for touch in touches_of(e, op):
            if touch.space not in MAYBE_SHARED or touch.access & _ORDERING:
                continue
            self._hand_over(e, "addresses", touch.where.every_lane(b))
            size = touch.size
            if isinstance(size, Value):
                self._hand_over(e, "values", size)
                size = 0
            numbers = [b.integer(size, 64), b.integer(touch.flags, 32), line]
            self.call(e, "cujit_pending_touch", touch.lanes_in(e, op), *numbers)
        if awaits_copies(op):
            b.module.declared.setdefault("cujit_check_access", _CHECK_ACCESS)
            self.call(e, "cujit_pending_observe", _lanes(e, op), line, Value("@cujit_check_access", "ptr"))

    # -- accesses ----------------------------------------------------------------------------------------

    def _accesses(self, e: WarpEmitter, op: Op) -> None:
        # Without order for others, unless the operation or its fence has it.
        kept = ~Access(0) if self._fenced or orders_by_itself(op) else ~(Access.ACQUIRE | Access.RELEASE)
        batch = self._batch_of(e, op)
        if batch is not None and op is batch.ops[0]:
            self._found[batch] = self._look(e, batch)
        with contextlib.nullcontext() if batch is None else e.builder.when(self._found[batch], "alone", holds=False):
            for touch in touches_of(e, op):
                self.touch(e, op, replace(touch, access=(touch.access & kept) | self._for_others(e, op)))
        look(self, e, op)

    def _for_others(self, e: WarpEmitter, op: Op) -> Access:
        """Return the flags of an access that matter to other blocks."""
        if not self._checks.race or op.opcode not in ("ld", "st", "atom", "red"):
            return Access(0)
        if op.opcode in ("ld", "st") and not op.form.is_strong:
            return Access.LOOKS if op.opcode == "ld" and self._is_updated(e, op) else Access(0)
        found = Access.INSIDE if op.scope == "cta" else Access(0)
        return found if orders_by_itself(op) else found | Access.RELAXED

    def _is_updated(self, e: WarpEmitter, op: Op) -> bool:
        """Return whether an atomic operation of the program updates the memory that a load reads."""
        name = e.program.name
        if name not in self._updated:
            self._updated[name] = updated_memory(e.program.ops)
        return op.memory in self._updated[name]

    def _cleared(self, e: WarpEmitter, op: Op) -> None:
        """A shared variable that the device sets to zeros counts as written."""
        variable = op.sources[0]
        assert isinstance(variable, SymbolAddress)
        at = blocks.to_process(e, e.symbol(variable))
        self.call(e, "cujit_check_cleared", at, e.builder.integer(variable.slot.size, 64))

    def touch(self, e: WarpEmitter, op: Op, touch: MemoryAccess) -> None:
        """Emit the check of an access that an operand describes."""
        checks, orders = self._checks, touch.access & _ORDERING
        across = checks.race and touch.space is Space.GLOBAL
        if not (self._looks_at_places or orders or across or touch.space in MAYBE_SHARED):
            return
        lanes = touch.lanes_in(e, op)
        with_value = bool(checks.race and touch.values) and touch.space in MAYBE_SHARED
        has_value = with_value or bool(across and touch.values)
        if has_value:
            self._store_data(e, touch.values)
        touch.by_rows(
            e.builder,
            lambda: self._rows(e, op, touch, lanes, with_value=with_value),
            lambda: self._each(e, op, touch, lanes, with_value=with_value),
        )
        if has_value and not with_value:
            e.builder.store(Value("null", "ptr"), "%check.data")
        if checks.race and touch.access & ~_ORDERING == Access.READ | Access.ASYNC:
            self._fence(e, op, touch, lanes)
        if checks.race and op.opcode == "cp" and orders == _ORDERING and "bulk" in op.modifiers:
            self._hand_over(e, "addresses", touch.where.every_lane(e.builder))
            self.call(e, "cujit_check_made", lanes, *(e.builder.integer(n, 32) for n in (touch.flags, op.line)))

    def _fence(self, e: WarpEmitter, op: Op, touch: MemoryAccess, lanes: Value) -> None:
        """Emit a check for a missing fence before the asynchronous proxy reads shared memory."""
        b, size = e.builder, touch.size
        self._hand_over(e, "addresses", touch.where.every_lane(b))
        self._hand_over(e, "values", size if isinstance(size, Value) else b.integer(size, 64))
        self.call(e, "cujit_check_fence", lanes, b.integer(touch.flags, 32), b.integer(op.line, 32))

    def _each(self, e: WarpEmitter, op: Op, touch: MemoryAccess, lanes: Value, *, with_value: bool) -> None:
        """Emit the check of an access whose lanes have separate addresses."""
        b, size = e.builder, touch.size
        self._hand_over(e, "addresses", touch.where.every_lane(b))
        if isinstance(size, Value):
            self._hand_over(e, "values", size)
            size = 0
        where = [b.integer(touch.flags, 32), b.integer(op.line, 32)]
        self.call(e, "cujit_check_access", lanes, b.integer(size, 64), *where)
        if with_value:
            self.call(e, "cujit_check_same", lanes, b.integer(len(touch.values), 64), *where)

    def _rows(self, e: WarpEmitter, op: Op, touch: MemoryAccess, lanes: Value, *, with_value: bool) -> None:
        """Emit the check of an access with lanes in rows."""
        assert isinstance(touch.size, int)
        b, row = e.builder, Row(op, touch.where, touch.size, touch.flags, ((0, op.line),))
        if self._is_across(row):
            self._look_across(e, row, lanes, lambda: self._look_inside(e, row, lanes))
            return
        window = "" if touch.access & _ORDERING or self._checks.race else self._window(e, op, touch.space)
        with b.when(self._is_inside(e, row, window), "row", holds=False) if window else contextlib.nullcontext():
            self._call_joined(e, row, lanes, window)
        if not with_value:
            return
        disjoint = are_disjoint(e, touch, touch.size)
        where = [b.integer(touch.flags, 32), b.integer(op.line, 32)]
        with b.when(disjoint, "same", holds=False) if disjoint is not None else contextlib.nullcontext():
            self._hand_over(e, "addresses", touch.where.every_lane(b))
            self.call(e, "cujit_check_same", lanes, b.integer(len(touch.values), 64), *where)
        if disjoint is not None:
            b.store(Value("null", "ptr"), "%check.data")

    def _races(self, space: Space) -> bool:
        return self._checks.race and space in MAYBE_SHARED

    @property
    def _looks_at_places(self) -> bool:
        """Whether the memory or init check is enabled. They check more than the order of accesses."""
        return bool(self._checks.memory or self._checks.init)

    def _is_across(self, row: Row) -> bool:
        """Return whether rows can race only with other blocks, as weak accesses to global memory."""
        return self._checks.race and row.space is Space.GLOBAL and row.is_weak

    def _look_across(self, e: WarpEmitter, row: Row, lanes: Value, then: Callable[[], None]) -> None:
        """Emit the check of rows for races with other blocks, and the remaining checks (``then``).

        Reads of memory that needs none of these checks skip them.
        """
        quiet = self._window(e, row.op, row.space, ".quiet") if row.flags & Access.READ else ""
        with (
            e.builder.when(self._is_inside(e, row, quiet), "quiet", holds=False) if quiet else contextlib.nullcontext()
        ):
            self._call_rows(e, row, lanes, "cujit_check_global", Value(quiet or "null", "ptr"))
            then()

    def _look_inside(self, e: WarpEmitter, row: Row, lanes: Value) -> None:
        """Emit the memory and init checks of rows that another check covers for races."""
        if not self._looks_at_places:
            return
        window = self._window(e, row.op, row.space)
        with e.builder.when(self._is_inside(e, row, window), "row", holds=False):
            self._call_joined(e, row, lanes, window)

    def _window(self, e: WarpEmitter, op: Op, space: Space, kind: str = "") -> str:
        """Return the name of an operation's window: the beginning and size of the plain memory that the operation last
        accessed.

        All operations on shared memory share one window while the warps of a block run. For other memory, an operation
        may have several windows, one per ``kind``.
        """
        own = self._windows.setdefault(op, f"%check.window.{len(self._windows)}")
        name = "%check.window.shared" if space is Space.SHARED else f"{own}{kind}"
        b = e.builder
        self._begin(e)
        if not b.has_entry(name):
            with b.at_entry():
                if space is Space.SHARED and self._region is not None:
                    b.offset(f"%{WATCHED}", 8, into=name)
                else:
                    b.allocate("[2 x i64]", align=16, into=name)
                    b.store(Value("zeroinitializer", "[2 x i64]"), name)
                b.offset(name, 8, into=f"{name}.size")
        if self._checks.init and space is not Space.SHARED and not b.has_entry(_POISONED):
            with b.at_entry():
                watch = b.load("ptr", b.offset(LAUNCH, Launch.checks.offset, into="%check.watch"))
                b.offset(watch, Watch.poisoned.offset, into=_POISONED)
        return name

    def _is_inside(self, e: WarpEmitter, row: Row, window: str) -> Value:
        """Return whether all rows are inside the window, and aligned if alignment matters, as an i1."""
        b, inside, stride = e.builder, e.builder.integer(1, 1), row.where.stride
        align = row.align if self._looks_at_places else 1
        if stride % align:
            return b.integer(0, 1)
        if self._checks.init and row.space is not Space.SHARED:
            inside = b.compare("icmp eq", b.load("i32", _POISONED), b.integer(0, 32))
        begin, size = b.load("i64", window), b.load("i64", f"{window}.size")
        for base in row.where.bases:
            low = b.binary("add", base, b.integer(stride * (row.lanes - 1), 64)) if stride < 0 else base
            before = b.binary("sub", low, begin)
            inside = b.binary("and", inside, b.compare("icmp ult", before, size))
            room = b.binary("sub", size, before)
            inside = b.binary("and", inside, b.compare("icmp uge", room, b.integer(row.reach, 64)))
            if align > 1:
                odd = b.binary("and", low, b.integer(align - 1, 64))
                inside = b.binary("and", inside, b.compare("icmp eq", odd, b.integer(0, 64)))
        return inside

    def _call_joined(self, e: WarpEmitter, row: Row, lanes: Value, window: str) -> None:
        """Emit the check of an access with rows that may form one long row."""
        b, where = e.builder, row.where
        together = b.integer(1, 1)
        for before, base in zip(where.bases, where.bases[1:], strict=False):
            here = b.compare("icmp eq", b.binary("sub", base, before), b.integer(where.stride * row.lanes, 64))
            together = b.binary("and", together, here)
        whole = replace(row, where=replace(where, bases=where.bases[:1]))
        if len(where.bases) == 1 or where.stride != row.size:
            self._check_rows(e, row, lanes, window)
            return
        b.either(
            together,
            lambda: self._check_rows(e, whole, lanes, ""),
            lambda: self._check_rows(e, row, lanes, window),
            "joined",
        )

    def _check_rows(self, e: WarpEmitter, row: Row, lanes: Value, window: str) -> None:
        """Emit the check of rows. If only races matter, plain rows are checked by specialized functions."""
        if self._races(row.space) and row.is_plain:
            self._call_rows(e, row, lanes, "cujit_check_writes" if row.flags & Access.WRITE else "cujit_check_reads")
        else:
            self._call_rows(e, row, lanes, "cujit_check_row", Value(window or "null", "ptr"))

    def _call_rows(
        self, e: WarpEmitter, row: Row, lanes: Value, name: str, *places: Value, returned: str = "void"
    ) -> list[Value]:
        """Emit a call for each row, and return the results of the calls."""
        b, flags = e.builder, row.flags
        found: list[Value] = []
        for k, base in enumerate(row.where.bases):
            own = b.integer(((1 << row.lanes) - 1) << k * row.lanes, 32)
            mine = lanes if len(row.where.bases) == 1 else b.binary("and", lanes, own)
            far = k * row.lanes * row.where.stride
            first = b.binary("sub", base, b.integer(far, 64)) if far else base
            found.append(self.call(e, name, mine, first, row.site(b, flags), *places, returned=returned))
            flags |= Access.AGAIN
        return found

    # -- raw values ----------------------------------------------------------------------------------------

    def shadow_of(self, e: WarpEmitter, reg: Reg) -> tuple[str, str, int] | None:
        """Return the name, type, and lanes of the shadow variable of a register, or None if there is no shadow
        variable.
        """
        raw = self._raw_of(e)
        return None if raw is None else raw.variable(reg)

    def _raw_of(self, e: WarpEmitter) -> RawValues | None:
        if not self._checks.init:
            return None
        if e.program.name not in self._raw:
            self._raw[e.program.name] = RawValues(e.program, self.call, self._hand_over)
        return self._raw[e.program.name]

    # -- registers of products ---------------------------------------------------------------------------

    def _look_at_registers(self, e: WarpEmitter, op: Op) -> None:
        """Note accesses of registers of products, and look whether a fence comes between them and a product."""
        name = e.program.name
        if name not in self._registers:
            self._registers[name] = product_registers(e.program.ops)
        b, found = e.builder, self._registers[name]
        if op in found.products:
            self.call(
                e, "cujit_check_registers", _lanes(e, op), *(b.integer(n, 32) for n in (found.products[op], op.line))
            )
        elif op.opcode == "wgmma" and "fence" in op.modifiers:
            self._begin(e)
            b.store(b.integer(0, 32), "%check.accessed")
        elif classes := found.accessed_by(op):
            self._begin(e)
            b.store(b.binary("or", b.load("i32", "%check.accessed"), b.integer(classes, 32)), "%check.accessed")
            b.store(b.integer(op.line, 32), "%check.accessed_at")

    # -- batches ------------------------------------------------------------------------------------------

    def _batch_of(self, e: WarpEmitter, op: Op) -> Batch | None:
        """Find the batch that an operation is in."""
        if e.graph not in self._batches:
            batches = [batch for block in e.graph.blocks for batch in batches_in(block, e)]
            found = {op: batch for batch in batches for op in batch.ops if not self._for_others(e, op)}
            finds = (updates_in, updates_across) if self._checks.race else ()
            updates = [each for block in e.graph.blocks for find in finds for each in find(block, e)]
            updates = [each for each in updates if not any(self._for_others(e, op) for op in each.ops)]
            for update in updates:
                for batch in {found[op]: None for op in update.ops if op in found}:
                    left = [op for op in batch.ops if op not in update.ops]
                    found |= dict.fromkeys(left, Batch(tuple(left)))
                found |= dict.fromkeys(update.ops, update)
            self._batches[e.graph] = {op: batch for op, batch in found.items() if len(batch.ops) > 1 or batch.stores}
        return self._batches[e.graph].get(op)

    def _look(self, e: WarpEmitter, batch: Batch) -> Value:
        """Emit one check of a whole batch, and return whether the check found no error."""
        b, op = e.builder, batch.ops[0]
        memory = replace(op.memory, offset=batch.offset)
        where, space = where_in(e, memory, op.space)
        if batch.stores and space is not Space.GLOBAL:
            return self._look_at_update(e, batch, where)

        def looked() -> list[Value]:
            return [
                self._look_at_stores(e, batch, where) if batch.stores else self._look_at_loads(e, batch, where, space)
            ]

        if where.holds is None:
            return looked()[0]
        return b.either(where.holds, looked, lambda: [b.integer(0, 1)], "rows")[0]

    def _look_at_loads(self, e: WarpEmitter, batch: Batch, where: Where, space: Space) -> Value:
        """Emit one check of a batch of loads in rows, and return whether the check found no error."""
        b, op = e.builder, batch.ops[0]
        row, lanes = row_of(batch, batch.ops, where, space), _lanes(e, op)
        across = self._is_across(row)

        def called(window: str) -> list[Value]:
            place = Value(window or "null", "ptr")
            every, *more = self._call_rows(e, row, lanes, "cujit_check_batch", place, returned="i32")
            for one in more:
                every = b.binary("and", every, one)
            return [b.compare("icmp ne", every, b.integer(0, 32))]

        def placed() -> list[Value]:
            window = "" if self._races(space) else self._window(e, op, space)
            if not window:
                return called("")
            return b.either(self._is_inside(e, row, window), lambda: [b.integer(1, 1)], lambda: called(window), "batch")

        def looked() -> list[Value]:
            if not across:
                return placed()
            quiet = self._window(e, op, space, ".quiet")
            return b.either(self._is_inside(e, row, quiet), lambda: [b.integer(1, 1)], lambda: raced(quiet), "quiet")

        def raced(quiet: str) -> list[Value]:
            self._call_rows(e, row, lanes, "cujit_check_global", Value(quiet, "ptr"))
            return placed() if self._looks_at_places else [b.integer(1, 1)]

        return looked()[0]

    def _look_at_update(self, e: WarpEmitter, batch: Batch, where: Where) -> Value:
        """Emit one check of a batch of stores and the loads before them, except loads of the memory that the batch
        stores to.
        """
        b, stored = e.builder, {op.memory.offset for op in batch.stores}
        loads = [op for op in batch.ops if op.opcode == "ld" and op.memory.offset not in stored]
        rows = [row_of(batch, ops, where, Space.SHARED) for ops in (loads, batch.stores) if ops]
        sites = [row.site(b, row.flags) for row in rows]
        nothing = [] if loads else [Value("null", "ptr")]
        lanes = _lanes(e, batch.ops[0])
        done = self.call(e, "cujit_check_update", lanes, where.bases[0], *nothing, *sites, returned="i32")
        return b.compare("icmp ne", done, b.integer(0, 32))

    def _look_at_stores(self, e: WarpEmitter, batch: Batch, where: Where) -> Value:
        """Emit one check of a batch of stores to global memory.

        If other blocks access the memory, the check of the stores finds this. Loads of the same memory need no separate
        check.
        """
        b, lanes = e.builder, _lanes(e, batch.ops[0])
        stores = {op.memory.offset: op for op in reversed(batch.stores)}
        row = row_of(batch, [*stores.values()], where, Space.GLOBAL)
        lines = f"{self._windows.setdefault(row.op, f'%check.window.{len(self._windows)}')}.lines"
        reserve_lines(b, lines)

        def looked() -> list[Value]:
            if not may_fill_lines(row):
                return called()
            noted = is_noted(b, self.place(e), row, lanes, lines)
            return b.either(noted, lambda: [b.integer(1, 1)], called, "noted")

        def called() -> list[Value]:
            place = Value(lines, "ptr")
            (done,) = self._call_rows(e, row, lanes, "cujit_check_stores", place, returned="i32")
            return [b.compare("icmp ne", done, b.integer(0, 32))]

        if not self._looks_at_places:
            return looked()[0]
        inside = self._is_inside(e, row, self._window(e, batch.ops[0], Space.GLOBAL))
        return b.either(inside, looked, lambda: [b.integer(0, 1)], "placed")[0]

    def _store_data(self, e: WarpEmitter, values: tuple[Value, ...]) -> None:
        """Emit code that passes the values of a store to native code, part by part."""
        b = e.builder
        width = type_width(values[0].type) // 8
        self._begin(e)
        data = f"%check.data.{width}.{len(values)}"
        b.reserve(data, f"[{WARP * width * len(values)} x i8]")
        for k, value in enumerate(values):
            at = b.offset(data, k * width * WARP) if k else data
            vector = b.vector(value)
            b.store(vector, at, align=8)
        b.store(Value(data, "ptr"), "%check.data")
        b.store(b.integer(width, 64), "%check.part_bytes")

    # -- synchronisation ---------------------------------------------------------------------------------

    def _members(self, e: WarpEmitter, op: Op) -> None:
        """Emit checks of a ``.sync`` operation: the lanes in its mask, and the lanes that it reads values from.

        The full mask refers to all lanes that have not exited.
        """
        b, lanes, live = e.builder, _lanes(e, op), e.builder.word(e.live())
        members = e.read(op.sources[-1], "i32")
        line, everybody = b.integer(op.line, 32), b.integer(-1, 32)
        full = not members.lanes and b.compare("icmp eq", members, everybody)
        with b.when(full, "named", holds=False) if full else contextlib.nullcontext():
            self._hand_over(e, "values", b.resize(members, 64, signed=False))
            self.call(e, "cujit_check_members", lanes, live, line)
        if op.opcode == "shfl":
            with b.when(b.compare("icmp eq", live, everybody), "origins", holds=False):
                self._hand_over(e, "values", b.resize(members, 64, signed=False))
                self._hand_over(e, "addresses", b.resize(warpwide.origins(e, op), 64, signed=True))
                self.call(e, "cujit_check_origins", lanes, live, line)

    def _arrive(self, e: WarpEmitter, op: Op) -> None:
        checks = self._checks
        number, threads = self._barrier(e, op)
        # Lanes that are loose may come in parts: what counts is whether all of them go on from here (``_pass``).
        together = _is_aligned(op) and e.reconverges
        if checks.sync:
            self._check_barrier(e, op, number, threads, aligned=together)
            alike = self._skips_of(e).barriers.get(op)
            if alike is not None:
                self._call_at_site(e, "cujit_check_site", _lanes(e, op), op, e.builder.integer(alike, 32))
        if checks.race and not (op.scope == "cluster" and op.form.is_barrier):
            waits = op.form.meaning.effect is not Effect.ARRIVES and op.scope != "cluster"
            how = (e.builder.integer(each, 32) for each in (waits, "relaxed" in op.modifiers))
            self._when_some(e, op, "cujit_check_arrive", _clock(e, number), *how)

    def _pass(self, e: WarpEmitter, op: Op) -> None:
        checks = self._checks
        number, _ = self._barrier(e, op)
        loose = not e.reconverges
        if checks.sync and loose and _is_aligned(op):
            self._check_barrier(e, op, number, None, aligned=True)
        if checks.sync and op in self._skips_of(e).skipped:
            self._call_at_site(e, "cujit_check_skipped", _lanes(e, op), op)
        if checks.race:
            self._when_some(e, op, "cujit_check_pass", _clock(e, number))

    def _barrier(self, e: WarpEmitter, op: Op) -> tuple[Value | None, Value | None]:
        """Number and count of threads; the cluster's barrier has neither."""
        return (None, None) if op.scope == "cluster" else blocks.named(e, op, e.lanes_of(op))

    def _check_barrier(
        self, e: WarpEmitter, op: Op, number: Value | None, threads: Value | None, *, aligned: bool
    ) -> None:
        b = e.builder
        lanes, live, none = _lanes(e, op), b.word(e.live()), b.integer(0, 32)
        barrier = (number or none, threads or none)
        self.call(e, "cujit_check_barrier", lanes, live, *barrier, b.integer(aligned, 32), b.integer(op.line, 32))

    def _skips_of(self, e: WarpEmitter) -> Skips:
        """Find the barriers of a function that threads may skip."""
        if e.graph not in self._skips:
            self._skips[e.graph] = find_skips(e.graph, e.block) if e.suspends else Skips()
        return self._skips[e.graph]

    def _note_skips(self, e: WarpEmitter, op: Op) -> None:
        """Note which lanes are about to go past barriers at which others may wait."""
        b, ways = e.builder, self._skips_of(e).ways.get(op)
        if ways is None:
            return
        here = b.vector(e.lanes(op))
        for lanes, barriers in zip((here, b.binary("and", e.mask, b.invert(here))), ways, strict=True):
            for barrier in barriers:
                self._call_at_site(e, "cujit_check_skip", b.word(lanes), barrier)

    def _call_at_site(self, e: WarpEmitter, name: str, lanes: Value, barrier: Op, *more: Value) -> None:
        b, number = e.builder, number_for_all(barrier)
        self.call(e, name, lanes, b.integer(number or 0, 32), b.integer(barrier.line, 32), *more)

    def _when_some(self, e: WarpEmitter, op: Op, name: str, *numbers: Value) -> None:
        """Emit a call for an operation that orders accesses, executed if any lane reaches the operation.

        For a barrier, ``numbers`` contains the number of its clock.
        """
        b = e.builder
        with b.when(b.any_lane(e.lanes_of(op)), "clocked"):
            self.call(e, name, *numbers)

    # -- the place ---------------------------------------------------------------------------------------

    def _hand_over(self, e: WarpEmitter, field: str, value: Value) -> None:
        """Emit code that stores an i64 per lane in a field that native code reads."""
        self._begin(e)
        vector = e.builder.vector(value)
        e.builder.store(vector, f"%check.{field}", align=8)

    def call(self, e: WarpEmitter, name: str, *arguments: Value, returned: str = "void") -> Value:
        """Call native code, which learns which warp of which block it is."""
        return e.builder.call(name, returned, self.place(e), *arguments)

    def place(self, e: WarpEmitter) -> Value:
        """Return a pointer to the place that identifies the warp and its block to native code."""
        self._begin(e)
        e.builder.store(BLOCK, "%check.block")
        e.builder.store(WARP_NUMBER, "%check.warp")
        return Value(_PLACE, "ptr")

    def _begin(self, e: WarpEmitter) -> None:
        """Emit code that sets the constant fields of the place, once per function. The first region sets them for all
        regions.
        """
        if e.builder.has_entry(_PLACE):
            return
        b = e.builder
        if self._region is None:
            b.reserve(_PLACE, f"[{ctypes.sizeof(Place)} x i8]")
        with b.at_entry():
            if self._region is not None:
                b.offset(f"%{WATCHED}", PLACE_AT, into=_PLACE)
            for field in (
                "addresses",
                "values",
                "block",
                "warp",
                "data",
                "part_bytes",
                "raw",
                "ever",
                "raw_lanes",
                "raw_bits",
                "accessed",
                "accessed_at",
            ):
                b.offset(_PLACE, getattr(Place, field).offset, into=f"%check.{field}")
            if self._region:
                return
            for name, value in self._steady(e).items():
                b.store(value, b.offset(_PLACE, getattr(Place, name).offset, into=f"%check.own.{name}"))

    def _steady(self, e: WarpEmitter) -> dict[str, Value]:
        """Return the constant fields of the place, each with its value."""
        b, nothing, in_regions = e.builder, Value("null", "ptr"), self._region is not None
        return {
            "launch": LAUNCH,
            "state": STATE if e.suspends else nothing,
            "shared": b.binary("add", Value("%shared.int", "i64"), b.integer(SYSTEM_BYTES, 64)),
            "cluster": b.binary("add", Value("%cluster.int", "i64"), b.integer(SYSTEM_BYTES, 64)),
            "local_first": Value("%local.first" if in_regions else "%local.int", "i64"),
            "local_step": b.integer(e.program.local_size * WARP if in_regions else 0, 64),
            "local_bytes": b.integer(e.program.local_size, 64),
            "called": b.integer(e.is_function, 32),
            "goes_on": b.integer(0, 32),
            "data": nothing,
            "span": nothing,
            "window": nothing,
            "raw": b.integer(0, 32),
            "ever": b.integer(0, 32),
            "accessed": b.integer(0 if e.is_function else -1, 32),
            "accessed_at": b.integer(0, 32),
            "seen_block": b.integer(_NOBODY, 64),
            "seen_warp": b.integer(-1, 32),
        }


def _lanes(e: WarpEmitter, op: Op) -> Value:
    return e.builder.word(e.lanes(op))


def _clock(e: WarpEmitter, number: Value | None) -> Value:
    """Return the clock number of a barrier of the block, or of the cluster's barrier if ``number`` is None."""
    b = e.builder
    return b.integer(CLUSTER_BARRIER, 32) if number is None else b.binary("and", number, b.integer(BARRIERS - 1, 32))


def _group(e: WarpEmitter) -> Value:
    """Return the number of the clock for meetings of this warp's warpgroup."""
    b = e.builder
    number = b.binary("udiv", WARP_NUMBER, b.integer(GROUP_WARPS, 32))
    return b.binary("add", number, b.integer(CLUSTER_BARRIER + 1, 32))


def is_for_other_blocks(op: Op) -> bool:
    """Return whether an operation is a fence for threads of other blocks."""
    is_fence = op.opcode in ("membar", "fence") and "proxy" not in op.modifiers
    return is_fence and op.scope != "cta"


def _is_aligned(op: Op) -> bool:
    """Return whether all lanes of a warp must execute a barrier together.

    Source: PTX ISA 9.1, "bar": the same as with ``.aligned``.
    """
    return op.form.is_barrier and op.form.is_aligned
