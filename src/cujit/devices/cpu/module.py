"""PTX loaded on the CPU device: checked as a whole when loaded, and compiled per kernel and block shape at first
launch.

If the cache contains the machine code, the PTX is neither parsed, checked, nor compiled.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from cujit.cache.key import Part
from cujit.cache.settings import values_of
from cujit.devices.backend import BackendKernel, BackendModule, Target
from cujit.devices.cpu.ir.facts import KernelFacts
from cujit.devices.cpu.ir.refusals import RefusedKernel
from cujit.devices.cpu.native.library import native_code
from cujit.devices.cpu.observe.watching import KernelWatcher, WatchedKernel
from cujit.devices.cpu.preparation import Preparation
from cujit.devices.cpu.run.grid import NO_BOUNDS, Bounds, Share, Workers, no_memory, settle
from cujit.devices.cpu.run.launch import (
    TEMPLATE,
    USUAL_CACHE_BYTES,
    WORKSPACE_BYTES,
    Control,
    HostBlock,
    Launch,
    cache_bytes,
    zeroed_block,
)  # fmt: skip
from cujit.devices.cpu.run.mappings import aligned
from cujit.devices.cpu.run.site import FaultSite
from cujit.devices.cpu.run.source_map import Lines
from cujit.devices.cpu.run.streams import Captures
from cujit.devices.cpu.stages import DUMP_VARIABLE, dumped
from cujit.devices.jit import NativeFunction, aside
from cujit.devices.objects import CompileTask
from cujit.devices.options import PLAIN, LaunchOptions, check_cooperative
from cujit.devices.perf import PERF_VARIABLE, wanted_lines
from cujit.devices.shapes import WARP, Dim3, HostExtent, LaunchShape, Limits, Resources, keeps_limits
from cujit.errors import (
    ClosedError,
    CujitError,
    LaunchError,
    LoadError,
    NameNotFoundError,
    OptionError,
    ToolTimeoutError,
    spell,
)
from cujit.errors.hints import Hint
from cujit.forks import Lock, once
from cujit.toolchain.stopping import Ended
from cujit.values import NamedTuple, replace

if TYPE_CHECKING:
    from cujit.devices.cpu.observe.checked_launch import CheckedLaunch
    from cujit.devices.cpu.run.dwarf import MachineLines
    from cujit.errors.stories import Story

_RESIDENT_THREADS = 2048
"""Threads that count as running side by side on one core, as on one processor of a GPU (same source)."""

_MOST_SHAPES = 32
"""Block shapes whose machine code a kernel keeps, the ones used last; each takes about a megabyte."""


_POINTER_BYTES = 8

_LEAST_COMPILE_CPU_S, _LEAST_COMPILE_S = 2.0, 10.0
"""How long compiling for a launch may take at least, however soon the launch itself has to end.

Seconds of CPU time; and of wall time where the machine is busy, so that no launch fails because of other programs.
"""

_OPTIMIZE = "CUJIT_CPU_OPTIMIZE"
"""Variable of the environment: 0 has kernels compiled without LLVM's optimiser, for who suspects it."""
_CODE_SETTINGS = _OPTIMIZE, PERF_VARIABLE, DUMP_VARIABLE
"""The variables that a compile looks at."""


class CpuKernel(BackendKernel):
    """One entry of a PTX module."""

    submit = "cpu"
    _machine_lines: WeakKeyDictionary[NativeFunction, MachineLines] | None = None

    def __init__(self, module: CpuModule, facts: KernelFacts, workers: Workers) -> None:
        self.name = facts.name
        self.signature = facts.signature
        self._module = module
        self._facts = facts
        self._bounds = Bounds.of(facts.directives) if facts.directives else NO_BOUNDS
        self._workers = workers
        self._watches = tuple(
            watcher.watch(facts.name, module.preparation.body(facts.name), module.lines) for watcher in module.watchers
        )
        self.needs_extents = bool(self._watches)
        self._scheduled = any(watch.needs_stacks for watch in self._watches)
        self._control = Control()
        self._compiled: OrderedDict[Dim3, NativeFunction] = OrderedDict()
        self._last: tuple[Dim3, NativeFunction] | None = None
        self._lock = Lock()

    @property
    def resources(self) -> Resources:
        """The resource usage of the kernel. A CPU has no register count."""
        return Resources(
            registers=None,
            shared_bytes=self._facts.shared_size,
            local_bytes=self._facts.local_size,
            constant_bytes=None,
            max_threads=self._bounds.max_threads,
        )

    def fits(self, shape: LaunchShape, limits: Limits) -> bool:
        """Return whether sizes keep all limits. Otherwise ``check`` reports the limits that they exceed."""
        return keeps_limits(shape, limits, self.resources)

    @property
    def contracts(self) -> bool:
        """Whether sums of the kernel are contracted."""
        return self._module.preparation.body(self.name).contracts

    @property
    def own_cluster(self) -> Dim3 | None:
        """The cluster that the kernel was compiled for, in blocks."""
        return self._bounds.cluster

    def compile(self, shape: LaunchShape, options: LaunchOptions) -> None:
        """Make the machine code for the block of a launch, if it is not there."""
        self._require(self._facts.parameters_size)
        self._function(self._bounds.shape(shape, options.cluster).block, options)

    def launch(
        self,
        shape: LaunchShape,
        parameters: bytes | bytearray,
        stream: int = 0,
        options: LaunchOptions = PLAIN,
        extents: Sequence[HostExtent] = (),
    ) -> None:
        """Run the kernel over ``shape``. The launch is complete on return, unless ``stream`` is captured into a graph.

        Launches never wait in streams here, so the launch order in ``options`` is ignored.
        """
        self._require(len(parameters))
        shape = self._bounds.shape(shape, options.cluster)
        function = self._function(shape.block, options)
        captures = self._module.captures
        meets_in = stream if captures.of(stream) is None else None
        captures.do(
            stream, functools.partial(self._run, shape, bytes(parameters), function, options, meets_in, extents)
        )

    def _run(
        self,
        shape: LaunchShape,
        parameters: bytes,
        function: NativeFunction,
        options: LaunchOptions,
        meets_in: int | None,
        extents: Sequence[HostExtent],
    ) -> None:
        self._require(len(parameters))
        buffer = ctypes.create_string_buffer(parameters, max(len(parameters), 1))
        options = self._meeting(shape, options, meets_in)
        share = self._share(shape, options)
        launch = self._job(shape, options, function, share)
        launch.parameters = ctypes.addressof(buffer)
        if options.cooperative:
            workspace = ctypes.create_string_buffer(WORKSPACE_BYTES)
            launch.workspace = ctypes.addressof(workspace)
        with contextlib.ExitStack() as stack:
            for watch in self._watches:
                stack.enter_context(watch.running(launch, shape, extents))
            if self._scheduled:
                share = Share(share.blocks, 0, aligned(share.chunk, launch.together))
            self._workers.run(
                function.address,
                launch,
                share,
                *self._memory(shape, launch),
                self._site(shape, function),
            )

    def _meeting(self, shape: LaunchShape, options: LaunchOptions, stream: int | None) -> LaunchOptions:
        """Return options that run the blocks of a plain launch concurrently if ``grid.sync()`` would work on a GPU.

        A grid counts its arrivals in memory that the driver assigns to a stream at its first cooperative launch. The
        stream keeps this memory. A kernel without it traps. A launch in a graph (``stream`` is None) has it only if it
        is cooperative, and doesn't share it. Source: an H200, driver of CUDA 13.0. On a GPU, a grid with more blocks
        than run concurrently never completes the synchronization. Here, such a grid gets no memory.
        """
        if stream is None:
            return options
        if options.cooperative:
            self._workers.met.add(stream)
        elif self._facts.meets and stream in self._workers.met and shape.grid.volume <= self.together(shape):
            return replace(options, cooperative=True)
        return options

    def cancel(self) -> None:
        """End the launches of this kernel that run now, from another thread or a handler of signals."""
        self._control.cancels += 1

    def check_options(self, shape: LaunchShape, options: LaunchOptions) -> None:
        """Check clusters, which run side by side in one thread, and cooperative grids.

        Raises:
            LaunchError: a limit is broken; the message names it with both numbers.
        """
        if self._bounds.is_free and options is PLAIN:
            return
        shape = self._bounds.shape(shape, options.cluster)
        self._bounds.check(self.title, shape, options)
        if options.cooperative:
            check_cooperative(self.title, shape, self.together(shape, options.cluster or self.own_cluster))

    def together(self, shape: LaunchShape, cluster: Dim3 | None = None) -> int:
        """Count the blocks that run at a time and can wait for each other, in whole clusters."""
        size = cluster.volume if cluster is not None else 1
        block = self._bounds.shape(shape).block
        return self._workers.count * self.active_blocks(block.volume) // size * size

    def target(self, shape: LaunchShape, stream: int, options: LaunchOptions, size: int) -> Target | None:
        """Return the data that the thread pool needs, or None if Python must make the launch. Machine code inserts the
        parameters.

        Only Python checks whether a stream is captured into a graph. The default stream can't be captured. A grid that
        synchronizes its blocks needs separate memory for each launch.
        """
        if stream or options.cooperative or self._facts.meets or self._facts.prints or len(self._watches) > 1:
            return None
        self._require(size)
        shape = self._bounds.shape(shape, options.cluster)
        function, share = self._function(shape.block, options), self._share(shape, options)
        job = self._job(shape, options, function, share)
        job.blocks, job.chunk = share.blocks, share.chunk
        watched = [(watch, watch.checked(job, shape, function.address, size)) for watch in self._watches]
        if any(checked is None for _, checked in watched):
            return None
        pool, memory = self._workers.pool(), self._memory(shape, job)
        fields = {
            "template": ctypes.addressof(job),
            "job": function.address,
            "helpers": share.helpers,
            "shared_bytes": memory.shared_bytes,
            "local_bytes": memory.local_bytes,
            "pool": pool.address,
            "run": pool.entry,
            **TEMPLATE,
        }
        failed = functools.partial(_failed, memory, functools.partial(self._site, shape, function))
        for watch, checked in watched:
            if checked is not None:
                fields |= checked.fields()
                failed = functools.partial(self._left, watch, checked, shape, options, size, failed)
        return Target(fields, failed, (job, function, pool, self._module, self._control))

    def _left(
        self,
        watch: WatchedKernel,
        checked: CheckedLaunch,
        shape: LaunchShape,
        options: LaunchOptions,
        size: int,
        failed: Callable[[int], None],
        address: int,
    ) -> None:
        """Finish a launch that native code left to Python: make the launch if it didn't run, otherwise raise its
        failure.
        """
        launch = Launch.from_address(address)
        with watch.left(launch, shape, checked) as made:
            if made:
                failed(address)
        if not made:
            self.launch(shape, ctypes.string_at(launch.parameters, size), 0, options)

    def _require(self, size: int) -> None:
        """Refuse a closed module, and a parameter buffer of too few bytes."""
        if self._module.closed:
            raise ClosedError(f"the module of {self.title} is closed")
        if size < self._facts.parameters_size:
            raise LaunchError(f"{self.title} requires {self._facts.parameters_size} bytes of parameters, not {size}")

    def _memory(self, shape: LaunchShape, launch: Launch) -> _Memory:
        """Return the memory that one thread of the pool needs for the blocks that it interleaves."""
        warps = -(-shape.block.volume // WARP) if self._facts.suspends or self._scheduled else 1
        local_bytes = self._facts.local_size * WARP * warps * launch.together
        if launch.checks:
            from cujit.devices.cpu.observe.checking import room_for  # start-up: for launches that are checked

            local_bytes = room_for(launch, local_bytes)
        return _Memory(launch.shared_bytes, local_bytes)

    def _job(self, shape: LaunchShape, options: LaunchOptions, function: NativeFunction, share: Share) -> Launch:
        """Describe a launch but for its parameters."""
        timeout_s = self._timeout_s(options)
        code, code_bytes = function.code
        cluster = options.cluster or self.own_cluster or Dim3(0, 0, 0)
        return Launch(
            module=self._module.memory.address,
            module_size=self._module.memory.size,
            grid_x=shape.grid.x,
            grid_y=shape.grid.y,
            grid_z=shape.grid.z,
            dynamic_bytes=shape.shared_bytes,
            shared_bytes=self._facts.shared_size + shape.shared_bytes,
            cache_bytes=min(cache_bytes(), USUAL_CACHE_BYTES),
            together=share.chunk if options.cooperative else max(cluster.volume, 1),
            cluster_x=cluster.x,
            cluster_y=cluster.y,
            cluster_z=cluster.z,
            code=code,
            code_bytes=code_bytes,
            timeout_ns=0 if timeout_s is None else max(int(timeout_s * 1e9), 1),
            control=ctypes.addressof(self._control),
        )

    def _share(self, shape: LaunchShape, options: LaunchOptions) -> Share:
        """Return the division of the grid among threads. A cluster is never divided.

        The blocks of a cooperative grid wait for each other, so each thread starts all of its blocks and interleaves
        them. A watched cooperative grid runs on one thread.
        """
        cluster = options.cluster or self.own_cluster
        size = 1 if cluster is None else cluster.volume
        share = self._workers.share(shape)
        if not options.cooperative:
            return share._replace(chunk=aligned(share.chunk, size))
        part = aligned(-(-share.blocks // (1 if self._watches else share.helpers + 1)), size)
        return Share(share.blocks, -(-share.blocks // part) - 1, part)

    def _site(self, shape: LaunchShape, function: NativeFunction) -> FaultSite:
        lines = self._module.lines

        def explain(launch: Launch) -> str | None:
            from cujit.devices.cpu.native.structures import FaultKind  # start-up: for what went wrong

            if launch.fault_kind == FaultKind.TRAP and self._facts.meets and not launch.workspace:
                return _NOT_COOPERATIVE
            return next(filter(None, (watch.explain(launch) for watch in self._watches)), None)

        def story_of(launch: Launch) -> Story | None:
            return next(filter(None, (watch.story_of(launch) for watch in self._watches)), None)

        return FaultSite(
            self.title,
            shape.block,
            lines.text_of,
            lines.origin_of,
            explain,
            story_of,
            functools.partial(self._line_of, shape.block, function),
            tuple(
                (k, offset)
                for k, (each, offset) in enumerate(zip(self.signature, self.signature.offsets, strict=True))
                if each.size == _POINTER_BYTES
            ),
            self._facts.dynamic,
        )

    def _line_of(self, block: Dim3, function: NativeFunction, address: int) -> int:
        """Return the PTX line of a machine instruction, or 0 if the line is unknown."""
        from cujit.devices.cpu.pipeline import ir_of  # start-up: machine code from the cache needs none of it
        from cujit.devices.cpu.run.dwarf import PTX_ALONE, MachineLines  # for launches that ended

        if self._machine_lines is None:
            self._machine_lines = WeakKeyDictionary()
        if function not in self._machine_lines:
            observers = [watch.observer() for watch in self._watches]
            body = self._module.preparation.body(self.name)
            write = functools.partial(ir_of, body, block, observers, stacks=self._scheduled, origin=PTX_ALONE)
            self._machine_lines[function] = MachineLines(write, function.code)
        return self._machine_lines[function].line_of(address)

    def _timeout_s(self, options: LaunchOptions) -> float | None:
        return self._workers.timeout_s if options.timeout_s is None else options.timeout_s

    def _function(self, block: Dim3, options: LaunchOptions) -> NativeFunction:
        """Return the machine code for a block, made now if it is not there.

        Raises:
            ToolTimeoutError: it was not made in the time of a launch, nor in the least time of a compile.
        """
        last = self._last  # read once, as other threads write it
        if last is not None and last[0] == block:
            return last[1]
        timeout_s = self._timeout_s(options)
        if timeout_s is None:
            return self._made(block)
        begin, cpu_begin_s = time.monotonic(), time.process_time()
        limit_s = max(timeout_s, min(_LEAST_COMPILE_CPU_S, _LEAST_COMPILE_S))

        def is_late() -> bool:
            took_s, cpu_s = time.monotonic() - begin, time.process_time() - cpu_begin_s
            return took_s > timeout_s and (cpu_s > _LEAST_COMPILE_CPU_S or took_s > _LEAST_COMPILE_S)

        try:
            return aside(lambda: self._made(block), is_late)
        except Ended:
            raise ToolTimeoutError(
                f"the CPU device couldn't compile {self.title} for blocks of {_by(block)} threads in {limit_s:g} s",
                tool="LLVM",
                help=Hint(
                    f"call kernel.compile({tuple(block)}) on a device without timeout_s, or pass a larger timeout_s",
                    shell="set a larger --timeout",
                ),
            ) from None

    def _made(self, block: Dim3) -> NativeFunction:
        with self._lock:
            if block not in self._compiled:
                start = time.perf_counter()
                self._compiled[block] = self._compile(block)
                self.compile_s += time.perf_counter() - start
                if len(self._compiled) > _MOST_SHAPES:
                    self._compiled.popitem(last=False)
            self._compiled.move_to_end(block)
            self._last = block, self._compiled[block]
            return self._compiled[block]

    def _compile(self, block: Dim3) -> NativeFunction:
        """Return the machine code for one block shape. Watched code is not cached."""
        optimizes, lines, dumps, ptx = True, "", False, ""
        if any(values_of(_CODE_SETTINGS, os.environ)):
            optimizes, lines, dumps = _optimizes(), wanted_lines(), bool(dumped())
        parts = [Part.text("block", _by(block)), *self._module.preparation.parts]
        if not optimizes:
            parts.append(Part.text("optimized", "no"))
        if lines:
            ptx = self._module.preparation.path()
            parts.append(Part.text("lines", f"{lines} {ptx}"))
        work = CompileTask(
            "cpu kernel",
            self.name,
            tuple(parts),
            functools.partial(self._write, block, ptx, of_source=lines == "source"),
            level=2 if optimizes else 0,
            passes=optimizes,
            kernel=True,
            keep=not self._watches and not dumps,
            called=functools.partial(self._called, block),
            companion=functools.partial(self._module.preparation.code_of, block) if optimizes and not lines else None,
        )
        return native_code(work, "run")

    def _write(self, block: Dim3, ptx: str, *, of_source: bool) -> str:
        """Write the IR for one block shape; with debug information where a file has the PTX."""
        from cujit.devices.cpu.pipeline import ir_of  # for what is in no cache

        origin = None
        if ptx:
            # Start-up: machine code from the cache needs none of it.
            from cujit.devices.cpu.run.dwarf import origin_of

            origin = origin_of(self.name, self._module.lines, ptx, of_source=of_source)
        observers = [watch.observer() for watch in self._watches]
        body = self._module.preparation.body(self.name)
        return ir_of(body, block, observers, stacks=self._scheduled, origin=origin)

    def _called(self, block: Dim3, symbol: str) -> str:
        # Start-up: machine code from the cache needs none of it.
        from cujit.devices.cpu.run.dwarf import name_in_profiles

        return name_in_profiles(self.name, block, symbol)

    def active_blocks(self, block_threads: int, shared_bytes: int = 0) -> int:
        """Return the number of blocks that one core can hold, based on the threads per block."""
        del shared_bytes
        return max(1, _RESIDENT_THREADS // max(block_threads, 1))

    def best_block(self, shared_bytes: int = 0) -> int:
        """Return the threads per block: the size that the kernel requires, otherwise 256 or the kernel's maximum if it
        is less.
        """
        del shared_bytes
        return min(256, self._bounds.max_threads) if self._bounds.block is None else self._bounds.block.volume


_NOT_COOPERATIVE = (
    "the kernel executed trap, as grid.sync() does in a launch that is not cooperative: "
    "kernel.prepare(grid, block, cooperative=True)"
)


def _by(block: Dim3) -> str:
    return f"{block.x} x {block.y} x {block.z}"


def _optimizes() -> bool:
    """Return whether LLVM optimizes kernels, which the environment decides when a kernel is compiled.

    Raises:
        OptionError: the variable is neither 0 nor 1.
    """
    setting = os.environ.get(_OPTIMIZE) or "1"
    if setting not in ("0", "1"):
        raise OptionError(f"{_OPTIMIZE} is {spell(setting)}, expected 0 or 1", help=f"unset {_OPTIMIZE}")
    return setting == "1"


class _Memory(NamedTuple):
    """Bytes of shared memory of a block, and of the local memory that a thread of the pool needs."""

    shared_bytes: int
    local_bytes: int


@once
def _no_variables() -> HostBlock:
    """Return the memory of every module without variables."""
    return zeroed_block(1)


def _failed(memory: _Memory, site: Callable[[], FaultSite], launch: int) -> None:
    """Raise an error that explains why a launch ended early, if it did. ``launch`` is the address of the ``Launch``."""
    ended = Launch.from_address(launch)
    settle(ended, site())
    if ended.next < ended.blocks:
        raise no_memory(*memory)


class CpuModule(BackendModule):
    """A PTX module in memory."""

    def __init__(
        self,
        text: str,
        workers: Workers,
        route: str,
        captures: Captures | None = None,
        name: str = "<ptx>",
        watchers: Sequence[KernelWatcher] = (),
        places: Sequence[tuple[str, str]] = (),
        *,
        contract: bool = False,
    ) -> None:
        self.watchers = watchers
        self.preparation = Preparation(text, name, stays=bool(watchers), contract=contract)
        self.lines = Lines(self.preparation.ptx, text, places)
        self.route = route
        self.captures = captures or Captures()
        self.log = ""
        facts = self.preparation.known_facts()
        self.variables = facts.variables
        """Where each variable lies in the memory, and its size, in bytes."""
        try:
            self.memory = zeroed_block(facts.size) if facts.size or watchers else _no_variables()
        except CujitError as e:
            took = f"{facts.size:,} bytes of memory, more than there is"
            raise LoadError(f"the variables of this module need {took}", help=e.help) from e
        for offset, piece in facts.pieces_at(self.memory.address):
            self.memory.write(piece, offset)
        self.closed = False
        refused = (RefusedKernel(kernel.name, kernel.signature, kernel.items) for kernel in facts.refused)
        self.refused = {kernel.name: kernel for kernel in refused}
        """The kernels that are not executed; they are among ``kernels``, too."""
        self.kernels: Mapping[str, BackendKernel] = {
            **{kernel.name: CpuKernel(self, kernel, workers) for kernel in facts.kernels},
            **self.refused,
        }

    def variable(self, name: str) -> tuple[int, int]:
        """Find a ``__device__`` or ``__constant__`` variable: its address and its size in bytes."""
        if name not in self.variables:
            have = ", ".join(self.variables) or "none"
            raise NameNotFoundError(
                f"this module doesn't contain the variable {spell(name)}", help=f"choose one of its variables: {have}"
            )
        offset, size = self.variables[name]
        return self.memory.address + offset, size

    def close(self) -> None:
        """Release the module; again is harmless."""
        self.closed = True
