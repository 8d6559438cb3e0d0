"""PTX loaded on the CPU device: checked whole at load, compiled per kernel and block shape at the first launch."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections import OrderedDict
from collections.abc import Mapping

from cujit.devices.base import DeviceKernel, DeviceModule, Dim3, LaunchShape, Resources
from cujit.devices.cpu.cfg import Graph, build_graph
from cujit.devices.cpu.emit.frame import emit_function
from cujit.devices.cpu.emit.rules import all_rules, check
from cujit.devices.cpu.emit.warp import WarpEmitter
from cujit.devices.cpu.flatten import flatten
from cujit.devices.cpu.grid import Workers, no_memory
from cujit.devices.cpu.launch import Launch
from cujit.devices.cpu.layout import ModuleLayout
from cujit.devices.cpu.memory import HostBlock
from cujit.devices.cpu.program import KernelProgram
from cujit.devices.cpu.refusals import Refusals
from cujit.devices.cpu.shapes import WARP, analyse
from cujit.devices.inorder import Captures
from cujit.devices.jit import NativeFunction, compile_ir
from cujit.devices.launcher.finish import Finish
from cujit.devices.launcher.options import PLAIN, LaunchOptions, check_cluster, check_cooperative
from cujit.devices.launcher.seam import PreparedKernel, Target
from cujit.errors import ClosedError, LaunchError, NameNotFoundError, UnsupportedError
from cujit.formats.ptx.parameters import signature_of_entry
from cujit.formats.ptx.syntax import Function, Module

__all__ = ["CpuKernel", "CpuModule", "ir_of"]

MAX_THREADS = 1024
"""Threads of a block. Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"."""


_MOST_SHAPES = 32
"""Block shapes whose machine code a kernel keeps, the ones used last; each takes about a megabyte."""


class CpuModule(DeviceModule):
    """A PTX module in memory."""

    def __init__(self, ptx: Module, workers: Workers, route: str, captures: Captures | None = None) -> None:
        self.route = route
        self.captures = captures or Captures()
        self.log = ""
        refusals = Refusals()
        if ptx.address_size != 64:
            refusals.add(0, f".address_size {ptx.address_size}", "addresses of other than 64 bits")
        layout = ModuleLayout(ptx, refusals)
        programs: list[tuple[Function, KernelProgram, Graph]] = []
        for entry in ptx.entries:
            if any(entry.name == other.name for other, _, _ in programs):
                refusals.add(entry.line, f".entry {entry.name}", "a second kernel of that name")
            program = flatten(ptx, entry, layout.slots, refusals)
            check(program, refusals)
            programs.append((entry, program, build_graph(program, refusals)))
        if refusals.items:
            raise _unsupported(refusals)
        self._slots = layout.slots
        self.memory = HostBlock(max(len(layout.image), 1))
        layout.relocate(self.memory.address)
        self.memory.write(layout.image)
        self.closed = False
        self.kernels: Mapping[str, DeviceKernel] = {
            entry.name: CpuKernel(self, entry, program, graph, workers) for entry, program, graph in programs
        }

    def variable(self, name: str) -> tuple[int, int]:
        """Find a ``__device__`` or ``__constant__`` variable: its address and its size in bytes."""
        slot = self._slots.get(name)
        if slot is None or slot.offset is None:
            have = ", ".join(self._slots) or "none"
            raise NameNotFoundError(f"no variable {name!r} in this module", help=f"it has {have}")
        return self.memory.address + slot.offset, slot.size

    def close(self) -> None:
        """Release the module; again is harmless."""
        self.closed = True


class CpuKernel(PreparedKernel):
    """One entry of a PTX module."""

    finish = Finish.CPU

    def __init__(
        self, module: CpuModule, entry: Function, program: KernelProgram, graph: Graph, workers: Workers
    ) -> None:
        self.name = entry.name
        self.signature = signature_of_entry(entry)
        self._module = module
        self._entry = entry
        self._program = program
        self._graph = graph
        self._workers = workers
        self._compiled: OrderedDict[Dim3, NativeFunction] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def resources(self) -> Resources:
        """What the kernel uses; a CPU has no registers to count."""
        return Resources(
            registers=None,
            shared_bytes=self._program.shared_size,
            local_bytes=self._program.local_size,
            constant_bytes=None,
            max_threads=self._max_threads(),
        )

    def _max_threads(self) -> int:
        limits = [MAX_THREADS]
        for name, values in self._entry.directives:
            if name in ("maxntid", "reqntid"):
                limits.append(Dim3(*(int(v) for v in values)).volume)
        return min(limits)

    def launch(
        self, shape: LaunchShape, parameters: bytes | bytearray, stream: int = 0, options: LaunchOptions = PLAIN
    ) -> None:
        """Run the kernel over ``shape``; done when it returns, unless ``stream`` is captured into a graph.

        Nothing waits in streams here, and what ``options`` say of the order of launches is ignored.
        """
        del options
        self._require(len(parameters))
        function = self._function(shape.block)
        self._module.captures.do(stream, functools.partial(self._run, shape, bytes(parameters), function))

    def _run(self, shape: LaunchShape, parameters: bytes, function: NativeFunction) -> None:
        self._require(len(parameters))
        buffer = ctypes.create_string_buffer(parameters, max(len(parameters), 1))
        launch = self._job(shape)
        launch.parameters = ctypes.addressof(buffer)
        self._workers.run(function.address, shape, launch, launch.shared_bytes, self._local_bytes)

    def check_options(self, shape: LaunchShape, options: LaunchOptions) -> None:
        """Refuse blocks that have to run at a time: they run one after the other here."""
        if options.cluster is not None:
            check_cluster(self.title, shape, options.cluster, 1)
        if options.cooperative:
            check_cooperative(self.title, shape, 1)

    def together(self, shape: LaunchShape, cluster: Dim3 | None = None) -> int:
        """Count the blocks that run at a time and can wait for each other: one."""
        del shape, cluster
        return 1

    def target(self, shape: LaunchShape, stream: int, options: LaunchOptions, size: int) -> Target | None:
        """Say what the pool needs; machine code puts the parameters in.

        A stream may be captured into a graph, which only Python looks for; the default stream may not.
        """
        del options
        if stream:
            return None
        self._require(size)
        job, share, function = self._job(shape), self._workers.share(shape), self._function(shape.block)
        job.blocks, job.chunk = share.blocks, share.chunk
        entry = self._workers.entry()
        fields = {
            "template": ctypes.addressof(job),
            "job": function.address,
            "helpers": share.helpers,
            "shared_bytes": job.shared_bytes,
            "local_bytes": self._local_bytes,
            "pool": entry.pool,
            "run": entry.run,
        }
        failed = functools.partial(_no_memory, job.shared_bytes, self._local_bytes)
        return Target(self.finish, fields, failed, (job, function, entry, self._module))

    def _require(self, size: int) -> None:
        """Refuse a closed module, and a parameter buffer of too few bytes."""
        if self._module.closed:
            raise ClosedError(f"the module of {self.title} is closed")
        if size < self._program.parameters_size:
            raise LaunchError(f"{self.title} takes {self._program.parameters_size} bytes of parameters, not {size}")

    @property
    def _local_bytes(self) -> int:
        return self._program.local_size * WARP

    def _job(self, shape: LaunchShape) -> Launch:
        """Describe a launch but for its parameters."""
        return Launch(
            module=self._module.memory.address,
            module_size=self._module.memory.size,
            grid_x=shape.grid.x,
            grid_y=shape.grid.y,
            grid_z=shape.grid.z,
            dynamic_bytes=shape.shared_bytes,
            shared_bytes=self._program.shared_size + 16 + shape.shared_bytes,
        )

    def _function(self, block: Dim3) -> NativeFunction:
        with self._lock:
            if block not in self._compiled:
                self._compiled[block] = compile_ir(ir_of(self._program, self._graph, block), "run")
                if len(self._compiled) > _MOST_SHAPES:
                    self._compiled.popitem(last=False)
            self._compiled.move_to_end(block)
            return self._compiled[block]

    def active_blocks(self, block_threads: int, shared_bytes: int = 0) -> int:
        """Count the blocks that one processor holds at a time: one."""
        del block_threads, shared_bytes
        return 1

    def best_block(self, shared_bytes: int = 0) -> int:
        """Choose the threads per block: 256, or the most that the kernel takes."""
        del shared_bytes
        return min(256, self._max_threads())


def _no_memory(shared_bytes: int, local_bytes: int, _status: int) -> None:
    """Say why not all blocks ran."""
    raise no_memory(shared_bytes, local_bytes)


def ir_of(program: KernelProgram, graph: Graph, block: Dim3) -> str:
    """Write the LLVM IR of a kernel for one block shape."""
    divergence = analyse(program, graph, block)
    return emit_function(WarpEmitter(program, graph, divergence, block, all_rules()), "run")


def _unsupported(refusals: Refusals) -> UnsupportedError:
    items = sorted(refusals.items)
    lines = "\n".join(f"  line {line}: {text}: {why}" for line, text, why in items)
    stand = f"{len(items)} constructs stand" if len(items) > 1 else "one construct stands"
    return UnsupportedError(
        f"the CPU device cannot execute this PTX yet; {stand} in the way:\n{lines}",
        items=items,
        help="run it on a GPU; what the CPU device executes so far is kernels without synchronisation",
    )
