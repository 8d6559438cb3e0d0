"""One kernel on the CPU device: compiled for each block shape when it is first launched in it."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from cujit.cache.key import Part
from cujit.devices.base import Dim3, LaunchShape, Resources
from cujit.devices.cpu import deadlock
from cujit.devices.cpu.checks import CheckedKernel, room_for
from cujit.devices.cpu.facts import KernelFacts
from cujit.devices.cpu.faults import Site, settle
from cujit.devices.cpu.grid import Share, Workers, no_memory
from cujit.devices.cpu.launch import SHARED_ALIGN, WORKSPACE_BYTES, Launch, cache_bytes
from cujit.devices.cpu.memory import aligned
from cujit.devices.cpu.native.library import compile_kernel, native_code
from cujit.devices.cpu.program import WARP
from cujit.devices.jit import NativeFunction
from cujit.devices.launcher.finish import Finish
from cujit.devices.launcher.options import (
    PLAIN,
    LaunchOptions,
    check_cluster,
    check_cooperative,
    check_own_cluster,
)
from cujit.devices.launcher.seam import PreparedKernel, Target
from cujit.devices.objects import Work
from cujit.errors import ClosedError, LaunchError

if TYPE_CHECKING:
    from cujit.devices.cpu.body import Body
    from cujit.devices.cpu.emit.observer import Observer
    from cujit.devices.cpu.module import CpuModule

__all__ = ["MAX_THREADS", "CpuKernel", "ir_of"]

MAX_THREADS = 1024
"""Threads of a block. Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"."""

_RESIDENT_THREADS = 2048
"""Threads that count as running side by side on one core, as on one processor of a GPU (same source)."""

_LARGEST_CLUSTER = 16
"""Blocks of a cluster. Source: CUDA C++ Programming Guide, "Thread Block Clusters": 8, or 16 on request."""

_MOST_SHAPES = 32
"""Block shapes whose machine code a kernel keeps, the ones used last; each takes about a megabyte."""


class CpuKernel(PreparedKernel):
    """One entry of a PTX module."""

    finish = Finish.CPU

    def __init__(self, module: CpuModule, facts: KernelFacts, workers: Workers) -> None:
        self.name = facts.name
        self.signature = facts.signature
        self._module = module
        self._facts = facts
        self._workers = workers
        self._watches = tuple(
            watcher.watch(facts.name, module.preparation.body(facts.name), module.lines) for watcher in module.watchers
        )
        self._compiled: OrderedDict[Dim3, NativeFunction] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def resources(self) -> Resources:
        """What the kernel uses; a CPU has no registers to count."""
        return Resources(
            registers=None,
            shared_bytes=self._facts.shared_size,
            local_bytes=self._facts.local_size,
            constant_bytes=None,
            max_threads=self._max_threads(),
        )

    def _max_threads(self) -> int:
        said = (self._directive("maxntid"), self._directive("reqntid"))
        return min([MAX_THREADS, *(size.volume for size in said if size is not None)])

    @property
    def own_cluster(self) -> Dim3 | None:
        """The cluster that the kernel was compiled for, in blocks."""
        return self._directive("reqnctapercluster")

    def _directive(self, name: str) -> Dim3 | None:
        """Read a directive of the entry that gives sizes."""
        values = self._facts.directives.get(name)
        return Dim3(*values) if values else None

    def launch(
        self, shape: LaunchShape, parameters: bytes | bytearray, stream: int = 0, options: LaunchOptions = PLAIN
    ) -> None:
        """Run the kernel over ``shape``; done when it returns, unless ``stream`` is captured into a graph.

        Nothing waits in streams here: what ``options`` say of the order of launches is ignored.
        """
        self._require(len(parameters))
        function = self._function(shape.block)
        job = functools.partial(self._run, shape, bytes(parameters), function, options)
        self._module.captures.do(stream, job)

    def _run(self, shape: LaunchShape, parameters: bytes, function: NativeFunction, options: LaunchOptions) -> None:
        self._require(len(parameters))
        buffer = ctypes.create_string_buffer(parameters, max(len(parameters), 1))
        workspace = ctypes.create_string_buffer(WORKSPACE_BYTES)
        launch = self._job(shape, options)
        launch.parameters, launch.workspace = ctypes.addressof(buffer), ctypes.addressof(workspace)
        with contextlib.ExitStack() as stack:
            for watch in self._watches:
                stack.enter_context(watch.running(launch, shape))
            self._workers.run(
                function.address, launch, self._share(shape, options), *self._memory(shape, launch), self._site(shape)
            )

    def check_options(self, shape: LaunchShape, options: LaunchOptions) -> None:
        """Check clusters and cooperative grids, which run side by side in one thread.

        Raises:
            LaunchError: a limit is broken; the message names it with both numbers.
        """
        must_be_set = "explicitcluster" in self._facts.directives and not self.own_cluster
        check_own_cluster(self.title, options.cluster, self.own_cluster, must_be_set=must_be_set)
        cluster = options.cluster or self.own_cluster
        if cluster is not None:
            check_cluster(self.title, shape, cluster, _LARGEST_CLUSTER)
        if options.cooperative:
            check_cooperative(self.title, shape, self.together(shape, cluster))

    def together(self, shape: LaunchShape, cluster: Dim3 | None = None) -> int:
        """Count the blocks that run at a time and can wait for each other, in whole clusters."""
        size = cluster.volume if cluster is not None else 1
        return self._workers.count * self.active_blocks(shape.block.volume) // size * size

    def target(self, shape: LaunchShape, stream: int, options: LaunchOptions, size: int) -> Target | None:
        """Say what the pool needs; machine code puts the parameters in.

        A stream may be captured into a graph, which only Python looks for; the default stream may not. A grid whose
        blocks meet needs memory of its own for each launch, also one that is not cooperative: GPUs give it that, too.
        """
        if stream or options.cooperative or self._facts.meets or self._facts.prints or self._watches:
            return None
        self._require(size)
        job, share, function = self._job(shape, options), self._share(shape, options), self._function(shape.block)
        job.blocks, job.chunk = share.blocks, share.chunk
        entry, memory = self._workers.entry(), self._memory(shape, job)
        fields = {
            "template": ctypes.addressof(job),
            "job": function.address,
            "helpers": share.helpers,
            "shared_bytes": memory.shared_bytes,
            "local_bytes": memory.local_bytes,
            "pool": entry.pool,
            "run": entry.run,
        }
        failed = functools.partial(_failed, memory, self._site(shape))
        return Target(self.finish, fields, failed, (job, function, entry, self._module))

    def _require(self, size: int) -> None:
        """Refuse a closed module, and a parameter buffer of too few bytes."""
        if self._module.closed:
            raise ClosedError(f"the module of {self.title} is closed")
        if size < self._facts.parameters_size:
            raise LaunchError(f"{self.title} takes {self._facts.parameters_size} bytes of parameters, not {size}")

    def _memory(self, shape: LaunchShape, launch: Launch) -> _Memory:
        """Count what one of the pool's threads needs for the blocks that it runs side by side."""
        warps = -(-shape.block.volume // WARP) if self._facts.suspends else 1
        local_bytes = self._facts.local_size * WARP * warps * launch.together
        memory = _Memory(launch.shared_stride * launch.together, local_bytes)
        return _Memory(*room_for(launch, *memory)) if launch.checks else memory

    def _job(self, shape: LaunchShape, options: LaunchOptions) -> Launch:
        """Describe a launch but for its parameters."""
        shared_bytes = self._facts.shared_size + 16 + shape.shared_bytes
        cluster = options.cluster or self.own_cluster or Dim3(0, 0, 0)
        return Launch(
            module=self._module.memory.address,
            module_size=self._module.memory.size,
            grid_x=shape.grid.x,
            grid_y=shape.grid.y,
            grid_z=shape.grid.z,
            dynamic_bytes=shape.shared_bytes,
            shared_bytes=shared_bytes,
            shared_stride=aligned(shared_bytes, SHARED_ALIGN),
            cache_bytes=cache_bytes(),
            together=shape.grid.volume if options.cooperative else max(cluster.volume, 1),
            cluster_x=cluster.x,
            cluster_y=cluster.y,
            cluster_z=cluster.z,
        )

    def _share(self, shape: LaunchShape, options: LaunchOptions) -> Share:
        """Spread the grid: a cooperative one is one thread's, a cluster is never divided."""
        if options.cooperative:
            return Share(shape.grid.volume, 0, shape.grid.volume)
        cluster = options.cluster or self.own_cluster
        share = self._workers.share(shape)
        return share if cluster is None else share._replace(chunk=aligned(share.chunk, cluster.volume))

    def _site(self, shape: LaunchShape) -> Site:
        lines = self._module.lines

        def words_of(line: int) -> str:
            source = lines.source_of(line)
            return f"PTX line {line}: {lines.text_of(line)}" + (f" ({source})" if source else "")

        def explain(launch: Launch) -> str | None:
            checked = (watch.explain(launch) for watch in self._watches if isinstance(watch, CheckedKernel))
            return next(filter(None, checked), None) or deadlock.explain(launch, words_of)

        return Site(self.name, shape.block, lines.text_of, lambda line: str(lines.source_of(line) or ""), explain)

    def _function(self, block: Dim3) -> NativeFunction:
        with self._lock:
            if block not in self._compiled:
                self._compiled[block] = self._compile(block)
                if len(self._compiled) > _MOST_SHAPES:
                    self._compiled.popitem(last=False)
            self._compiled.move_to_end(block)
            return self._compiled[block]

    def _compile(self, block: Dim3) -> NativeFunction:
        """Get the machine code for one block shape; that which is watched is in no cache."""
        preparation = self._module.preparation
        if self._watches:
            observers = [watch.observer() for watch in self._watches]
            return compile_kernel(ir_of(preparation.body(self.name), block, observers), "run", keep=False)
        parts = (Part.text("block", f"{block.x} x {block.y} x {block.z}"), *preparation.parts)
        work = Work("cpu kernel", self.name, parts, lambda: ir_of(preparation.body(self.name), block), kernel=True)
        return native_code(work, "run")

    def active_blocks(self, block_threads: int, shared_bytes: int = 0) -> int:
        """Count the blocks that one core holds at a time, by their threads."""
        del shared_bytes
        return max(1, _RESIDENT_THREADS // max(block_threads, 1))

    def best_block(self, shared_bytes: int = 0) -> int:
        """Choose the threads per block: 256, or the most that the kernel takes."""
        del shared_bytes
        return min(256, self._max_threads())


class _Memory(NamedTuple):
    """Bytes of shared and of local memory that a thread of the pool needs."""

    shared_bytes: int
    local_bytes: int


def _failed(memory: _Memory, site: Site, launch: int) -> None:
    """Say why not all blocks ran; ``launch`` is the address of the ``Launch``."""
    settle(Launch.from_address(launch), site)
    raise no_memory(*memory)


def ir_of(body: Body, block: Dim3, observers: Sequence[Observer] = (), *, stacks: bool = False) -> str:
    """Write the LLVM IR of a kernel, and of the functions that it calls, for one block shape.

    ``observers`` add code of their own to it. Warps that wait at barriers get ``stacks`` of their own where they are
    wanted, where somebody watches, and where the kernel cannot be cut at its barriers.
    """
    from cujit.devices.cpu.emit.frame import emit_function, emit_regions  # for what is in no cache
    from cujit.devices.cpu.emit.rules import all_rules
    from cujit.devices.cpu.emit.warp import WarpEmitter
    from cujit.devices.cpu.regions import cut
    from cujit.devices.cpu.shapes import analyse

    rules = all_rules()
    divergence = analyse(body.program, body.graph, block)
    parts = None if stacks or observers else cut(body, divergence, block)
    if parts is not None:
        return emit_regions(
            parts,
            lambda region, passage: WarpEmitter(
                body, region.divergence, block, rules, graph=region.graph, passage=passage
            ),
            "run",
        )
    functions = {
        name: WarpEmitter(
            each,
            analyse(each.program, each.graph, block),
            block,
            rules,
            is_function=True,
            observers=observers,
        )
        for name, each in body.functions.items()
    }
    return emit_function(WarpEmitter(body, divergence, block, rules, observers=observers), "run", functions)
