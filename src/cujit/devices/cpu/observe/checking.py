"""Kernels under the checks of ``cujit.cpu(check=…)``: what a launch of them needs."""

from __future__ import annotations

import contextlib
import ctypes
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING

from cujit.devices.cpu.ir.program import Memory, Op, Operand, SymbolAddress
from cujit.devices.cpu.native.structures import STACK_BYTES, Entry, Tracker, Watch, checks_bits
from cujit.devices.cpu.observe.kinds import Checks
from cujit.devices.cpu.observe.ledger import CheckedRun, Known, Ledger, Table
from cujit.devices.cpu.run.launch import WORKSPACE_BYTES
from cujit.devices.watch import Sources

if TYPE_CHECKING:
    from cujit.devices.cpu.analysis.body import Body
    from cujit.devices.cpu.codegen.warp import Observer
    from cujit.devices.cpu.run.launch import Launch
    from cujit.devices.cpu.run.lines import Lines
    from cujit.devices.shapes import LaunchShape

__all__ = ["CheckedKernel", "CheckingWatcher", "room_for"]


class CheckingWatcher:
    """Checks every kernel that is loaded on a device; ``ledger`` knows the device's memory."""

    options = ("lineinfo",)

    def __init__(self, checks: Checks) -> None:
        self.checks = checks
        self.ledger = Ledger(keeps_marks=checks.init)
        self.sources = Sources()

    def watch(self, name: str, body: Body, lines: Lines) -> CheckedKernel:
        """Begin with a kernel."""
        del name
        return CheckedKernel(self, body, lines)


class CheckedKernel:
    """One kernel under checks."""

    def __init__(self, watcher: CheckingWatcher, body: Body, lines: Lines) -> None:
        from cujit.devices.cpu.ir.semantics import Effect  # for what is compiled with checks

        self._checks = watcher.checks
        self._ledger = watcher.ledger
        self._lines = lines
        self._program = body.program
        self._uses_stack = bool(body.functions) or any(op.opcode == "alloca" for op in body.program.ops)
        ops = [op for each in body.whole for op in each.program.ops]
        self._fenced = any(op.form.meaning.effect is Effect.ORDERS for op in ops)
        self._dynamic_at = max([body.program.shared_size, *map(_dynamic_at, ops)])
        self._runs: dict[int, CheckedRun] = {}

    def observer(self) -> Observer:
        """Give what instruments the kernel."""
        from cujit.devices.cpu.observe.instrumentation import Checker  # for those who compile

        return Checker(self._checks, fenced=self._fenced)

    @contextlib.contextmanager
    def running(self, launch: Launch, shape: LaunchShape) -> Iterator[None]:
        """Say what there is of memory, for the time of a launch."""
        parameters = ctypes.string_at(launch.parameters, self._program.parameters_size)
        workspace = Known(launch.workspace, WORKSPACE_BYTES, "the memory in which a cooperative grid waits")
        table = self._ledger.table(parameters, [workspace] if launch.workspace else [])
        watch = self._watch(launch, shape, table)
        address = ctypes.addressof(launch)
        self._runs[address] = CheckedRun(shape, table, watch)
        launch.checks = ctypes.addressof(watch)
        try:
            yield
        finally:
            launch.checks = 0
            del self._runs[address]

    def _watch(self, launch: Launch, shape: LaunchShape, table: Table) -> Watch:
        checks = self._checks
        stride = launch.shared_stride
        entries = ctypes.sizeof(Tracker) + (stride if checks.init else 0)
        entries = -(-entries // 8) * 8
        piece = entries + (stride * ctypes.sizeof(Entry) if checks.race else 0)
        cluster = max(launch.cluster_x * launch.cluster_y * launch.cluster_z, 1)
        return Watch(
            spans=ctypes.addressof(table.spans),
            count=len(table.spans) - 1,
            checks=checks.bits,
            shared_limit=self._dynamic_at + shape.shared_bytes,
            shared_stride=stride,
            cluster_blocks=cluster,
            piece_bytes=piece if checks.race or checks.init else 0,
            entries=entries,
            local_bytes=self._program.local_size,
            stack_bytes=STACK_BYTES if self._uses_stack else 0,
            parameter_bytes=self._program.parameters_size,
            serial=secrets.randbits(63),
        )

    def explain(self, launch: Launch) -> str | None:
        """Say what a check found; None for a fault that no check found."""
        from cujit.devices.cpu.observe.findings import explain  # for those who have one

        run = self._runs.get(ctypes.addressof(launch))
        return None if run is None else explain(launch, run, self._lines)


def _dynamic_at(op: Op) -> int:
    """Where dynamic shared memory begins, as far as one operation tells; 0 if it does not."""
    return max([0, *map(_dynamic_in, op.sources)])


def _dynamic_in(operand: Operand) -> int:
    base = operand.base if isinstance(operand, Memory) else operand
    return base.slot.offset or 0 if isinstance(base, SymbolAddress) and base.slot.dynamic else 0


def room_for(launch: Launch, shared_bytes: int, local_bytes: int) -> tuple[int, int]:
    """Add what the checks need to the bytes of shared and local memory of one of the pool's threads."""
    watch = Watch.from_address(launch.checks)
    watch.shared_total, watch.local_total = shared_bytes, local_bytes
    marks = local_bytes if watch.checks & checks_bits()["init"] else 0
    return shared_bytes + watch.piece_bytes * max(launch.together, 1), local_bytes + marks
