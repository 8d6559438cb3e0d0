"""Kernels and launches as users hold them."""

from __future__ import annotations

import math
import os
import time
from typing import TYPE_CHECKING, Literal, overload

from cujit.artifact import Artifact
from cujit.devices.backend import BackendKernel
from cujit.devices.device import Device
from cujit.devices.launcher.entry import LaunchEntry, LoadedImage
from cujit.devices.launcher.launch import PreparedLaunch, make_launch, pattern_of, warm_launches
from cujit.devices.launcher.state import KeepsLaunches, is_same_stream
from cujit.devices.options import PLAIN, CooperativeShape, LaunchOptions, check_flag
from cujit.devices.shapes import Dim3, LaunchShape, Resources, check_launch, cover, launch_shape, problem_size, spread
from cujit.devices.streams import DeviceLike, stream_handle
from cujit.errors import ArgumentError, LaunchError, spell
from cujit.errors.other_apis import with_other_apis, without_grid
from cujit.forks import cached_property
from cujit.machine import cpu, resolve_device
from cujit.signature import Signature
from cujit.threads import future_of

if TYPE_CHECKING:
    from concurrent.futures import Future
    from pathlib import Path

    from cujit.devices.schedules import ScheduleReport
    from cujit.devices.shapes import GridAndBlock


class Launch(PreparedLaunch):
    """A kernel with its grid, block, dynamic shared memory, stream, and options. Call the launch to run the kernel.

    Native code checks the arguments and starts the kernel. Native code handles ints, floats, and bools (but not their
    subclasses), None, ``Pointer``, NumPy scalars, structures, and cujit arrays. Native code also handles PyTorch
    tensors, and arrays from Numba, JAX, and CuPy (if CuPy uses the stream of the launch). Python code handles all other
    arguments: halves, vectors, and subclasses take one to a few microseconds each.

    If an array's ``__cuda_array_interface__`` specifies a stream, as CuPy's does, the kernel waits for that stream.
    Later work of the other library waits for the kernel only if both use the same stream, so pass that stream as
    ``stream``.

    Example::

        launch = kernel[4, 256]
        launch(2.0, x, y, 1000)
    """

    __slots__ = ()

    @property
    def kernel(self) -> Kernel:
        """The kernel of the launch."""
        kernel = self._kernel()
        return kernel if isinstance(kernel, Kernel) else Kernel(self._entry)

    def replay_on_cpu(
        self, *arguments: object, device: DeviceLike | str | None = None, check: str | None = None
    ) -> tuple[object, ...]:
        """Run the same launch with the same arguments on the CPU device, and return the results.

        For each array argument, the result is a NumPy array with the contents after the kernel. Other arguments are
        returned unchanged. cujit copies the arrays first, so the originals don't change. Arguments that share memory
        also share memory in the copy. Module variables have their initial values. The image must contain PTX.

        Args:
            arguments: arguments for the launch.
            device: a CPU device to use instead of ``cujit.cpu()``.
            check: checks for the kernel, as in ``cujit.cpu(check=…)``.

        Raises:
            KernelFaultError: a check reported an error, or the kernel failed.
            LoadError: the image contains no PTX, or its PTX isn't supported by the CPU device.
            ArgumentError: the arguments don't match the parameters, an argument is a bare address of unknown size, or
                ``device`` is a GPU.
            LaunchError: the CPU device doesn't support this kind of launch.
            ClosedError: the module or an array was closed.

        Example::

            _, _, after, _ = kernel[4, 256].replay_on_cpu(2.0, x, y, 1000, check="memory")
            assert after[0] == 2 and y.numpy()[0] == 0
        """
        if device is not None and check is not None:
            remedy = f"device=cujit.cpu(check={spell(check)}), or remove device"
            raise ArgumentError("set checks on the device instead", help=remedy)
        from cujit.devices.launcher.replay import replay  # start-up: for who looks for a mistake

        place = cpu(check=check) if device is None else resolve_device(device)
        return replay(self._entry, self.shape, self.options, arguments, place)

    def under_schedules(
        self,
        *arguments: object,
        schedules: int = 50,
        first_seed: int = 0,
        check: str | None = None,
        start_order: str = "ascending",
        tolerance: float = 1e-3,
        contract: str | None = None,
    ) -> ScheduleReport:
        """Run the launch with many schedules on the CPU device, and report the first two schedules whose results
        differ.

        Schedules vary the execution order and the contraction of floating-point operations, as PTX allows
        (docs/schedules.md). cujit copies the arrays for each run.

        Args:
            arguments: arguments for the launch.
            schedules: number of schedules to run, at least 2. Default: 50.
            first_seed: seed of the first schedule. The other schedules use the seeds that follow. Default: 0.
            check: checks for the kernel, as in ``cujit.cpu(check=…)``. Default: none.
            start_order: ``any`` lets blocks start in any order. Default: ``ascending``.
            tolerance: maximum relative difference between floats to attribute to the order of atomic operations.
                Default: 1e-3.
            contract: ``ptxas`` or ``off``, as in ``cujit.cpu(contract=…)``. Default: both.

        Raises:
            KernelFaultError: a check reported an error, or the kernel failed with one of the schedules.
            OptionError: there are fewer than two schedules, or another argument is invalid.
            LoadError, ArgumentError, LaunchError, ClosedError: as for ``replay_on_cpu``.

        Example::

            assert kernel[4, 256].under_schedules(2.0, x, y, 1000, schedules=20).equal
        """
        from cujit.devices.schedules import ManySchedules, compare  # start-up: for who compares

        how = ManySchedules(schedules, first_seed, check, start_order, tolerance, contract)
        return compare(self._entry, self.shape, self.options, arguments, how)

    def save(self, path: str | os.PathLike[str], *arguments: object) -> Path:
        """Save the launch to a file, with its image, source, grid, block, and current arguments. ``cujit run`` replays
        the launch.

        The file contains copies of the arrays. For a cujit array, the file contains a copy of the entire allocation.
        Arguments that share memory also share it in the file. On a GPU, save before launching, because the memory can't
        be read after a fault. Module variables are saved if the image contains PTX. See docs/reproducer.md.

        Args:
            path: path of the file, such as ``bug.launch``.
            arguments: arguments for the launch.

        Raises:
            ArgumentError: the arguments don't match the parameters, or an argument contains addresses that cujit can't
                follow: a bare address, a structure with pointers, an array of addresses, a texture, or a tensor map.
            LaunchError: the launch covers 0 elements.
            FormatError: the memory and the image together exceed 1 GiB.
            FileError: the file can't be written.
            ClosedError: the module or an array was closed.

        Example::

            kernel[4, 256].save("bug.launch", 2.0, x, y, 1000)
        """
        # start-up: for who saves
        from cujit.artifact.writing import write_file
        from cujit.devices.launcher.saving import saved_launch
        from cujit.formats.saved_launch import write_saved

        saved = saved_launch(self._entry, self.shape, self.stream, self.options, arguments)
        return write_file(path, write_saved(saved))


@with_other_apis
class Kernel(KeepsLaunches):
    """A loaded kernel. ``kernel[grid, block](…)`` or ``kernel.over(n)(…)`` runs it.

    ``name`` is the name in the source, and ``lowered_name`` is the name in the image.

    Example::

        kernel = module["axpy<float>"]
        print(kernel, kernel.resources)         # void axpy<float>(float, const float*, float*, int)
    """

    __slots__ = ()

    _entry: LaunchEntry
    _launches: dict[object, Launch]

    def __init__(self, entry: LaunchEntry) -> None:
        super().__init__(entry, pattern_of(Launch, entry) if entry.is_read else None)

    @property
    def _image(self) -> LoadedImage:
        return self._entry.image

    @property
    def lowered_name(self) -> str:
        """The name in the image."""
        return self._entry.lowered

    @property
    def _loaded(self) -> BackendKernel:
        return self._entry.loaded

    @cached_property
    def _best_blocks(self) -> dict[int, int]:
        return {}

    @property
    def name(self) -> str:
        """The requested name expression, otherwise the name in the source."""
        return self._entry.name

    @property
    def signature(self) -> Signature:
        """The parameters, as described by the build and the image."""
        return self._entry.signature

    @property
    def device(self) -> Device:
        """The device that the kernel runs on."""
        return self._image.device

    @property
    def artifact(self) -> Artifact:
        """The image that the kernel was loaded from."""
        return self._image.artifact

    @property
    def resources(self) -> Resources:
        """The registers, memory, and barriers that the kernel uses.

        Raises:
            ClosedError: the module was closed.
        """
        self._image.require()
        return self._loaded.resources

    @property
    def max_block(self) -> int:
        """The maximum number of threads per block.

        Raises:
            ClosedError: the module was closed.
        """
        return min(self.resources.max_threads, self.device.limits.max_threads)

    def occupancy(self, block: int | tuple[int, ...], shared_bytes: int = 0) -> float:
        """Return the fraction of an SM's thread slots that blocks of this size occupy, from 0 to 1.

        Args:
            block: threads per block, as an int or a tuple.
            shared_bytes: bytes of dynamic shared memory per block.

        Raises:
            LaunchError: the kernel can't run with this block size.
            ClosedError: the module was closed.

        Example::

            assert 0 < kernel.occupancy(256) <= 1
        """
        shape = launch_shape(1, block, shared_bytes, self.name)
        limits = self.device.limits
        check_launch(self.name, shape, limits, self.resources)
        warps = -(-shape.block.volume // limits.warp_size)
        blocks = self._loaded.active_blocks(shape.block.volume, shape.shared_bytes)
        return min(blocks * warps * limits.warp_size / limits.threads_per_processor, 1.0)

    def cooperative_limit(self, block: int | tuple[int, ...], shared_bytes: int = 0) -> int:
        """Return the number of blocks of this size that the device can run at the same time.

        If the blocks of a kernel wait for each other (``grid.sync()``, a counter in global memory), a launch can have
        at most this many blocks. With more blocks, some blocks would wait for a block that never starts. On a GPU, the
        limit is the blocks per SM times the number of SMs, if nothing else is running. 0 means that no block fits.

        Source: CUDA C++ Programming Guide, "Grid Synchronization".

        Args:
            block: threads per block, as an int or a tuple.
            shared_bytes: bytes of dynamic shared memory per block.

        Raises:
            LaunchError: the kernel can't run with this block size.
            ClosedError: the module was closed.

        Example::

            assert kernel.cooperative_limit(256) >= 1
        """
        shape = launch_shape(1, block, shared_bytes, self.name)
        check_launch(self.name, shape, self.device.limits, self.resources)
        return self._loaded.together(shape)

    def cooperative_shape(self, shared_bytes: int = 0) -> CooperativeShape:
        """Return the block size that lets the most threads run at the same time, and the number of blocks that fill the
        device.

        If several block sizes tie, this method returns the largest, so that fewer blocks have to wait for each other.
        The kernel then loops over its elements.

        Args:
            shared_bytes: bytes of dynamic shared memory per block.

        Raises:
            LaunchError: the kernel can't run with so much shared memory.
            ClosedError: the module was closed.

        Example::

            block, blocks = kernel.cooperative_shape()
        """
        shared = launch_shape(1, 1, shared_bytes, self.name).shared_bytes
        warp, largest = self.device.limits.warp_size, self.max_block
        sizes = range(warp, largest + 1, warp) if largest >= warp else (largest,)
        shapes = [CooperativeShape(size, self.cooperative_limit(size, shared)) for size in sizes]
        return max(shapes, key=lambda shape: (shape.block * shape.blocks, shape.block))

    def __getitem__(self, shape: GridAndBlock) -> Launch:
        """Create a launch from ``[grid, block]``, optionally followed by ``shared_bytes`` and ``stream``.

        The grid (in blocks) and the block (in threads) are each an int or a tuple of up to three ints.

        Args:
            shape: ``grid, block``, optionally followed by ``shared_bytes`` and ``stream``.

        Raises:
            LaunchError: a size is malformed or exceeds a limit of the device or the kernel.
            ClosedError: the module was closed.

        Example::

            kernel[4, 256](2.0, x, y, 1000)
            kernel[(4, 1), (256, 1), 0, device.stream()](2.0, x, y, 1000)
        """
        try:
            grid, block = shape  # type: ignore[misc]
            # Of equal keys only exact ints are the same: 1, True and 1.0 are equal.
            if type(grid) is int and type(block) is int:
                return self._launches[shape]
        except Exception:  # not kept yet, or no shape at all
            pass
        return self._fix(shape)

    def _fix(self, shape: object) -> Launch:
        if not isinstance(shape, tuple) or not 2 <= len(shape) <= 4:
            raise LaunchError(
                f"{self.name}[…] accepts grid and block, then shared_bytes and stream, not {spell(shape)}",
                help="write kernel[blocks, threads](…) or kernel.over(n)(…)",
                code="grid-size",
            )
        exact = all(type(n) is int or (type(n) is tuple and all(type(m) is int for m in n)) for n in shape)
        if exact and shape in self._launches:
            return self._launches[shape]
        grid, block, shared_bytes, stream = (*shape, 0, 0)[:4]
        try:
            sizes = launch_shape(grid, block, shared_bytes)
        except LaunchError:
            sizes = launch_shape(grid, block, shared_bytes, self.name)  # which says of which kernel
        launch = self._launch(sizes, stream)
        if exact:
            self._keep(shape, launch)
        return launch

    def prepare(
        self,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        *,
        shared_bytes: int = 0,
        stream: object = 0,
        cluster: int | tuple[int, ...] | None = None,
        cooperative: bool = False,
        overlap: bool = False,
        priority: int | None = None,
        timeout_s: float | None = None,
        int_pointers: bool = False,
    ) -> Launch:
        """Create a launch with all options. ``kernel[grid, block]`` is the short form.

        Args:
            grid: number of blocks, as an int or a tuple of up to three ints.
            block: threads per block, in the same form.
            shared_bytes: bytes of dynamic shared memory per block. Above 48 KiB, cujit sets the required kernel
                attribute.
            stream: a stream from cujit or another library, or a stream handle.
            cluster: blocks per cluster.
            cooperative: whether all blocks must run at the same time, so that they can wait for each other.
            overlap: whether the kernel can start before the previous kernel in the stream ends (programmatic dependent
                launch). To wait for the previous kernel, the kernel calls ``cudaGridDependencySynchronize()``.
            priority: priority of the launch: work with a lower number runs first.
            timeout_s: maximum seconds for a launch on the CPU device. A longer launch stops with a ``KernelFaultError``
                that shows where its blocks were.
            int_pointers: whether a pointer parameter accepts an int as an unchecked address.

        Raises:
            LaunchError: a size is malformed or exceeds a limit of the device or the kernel.
            ClosedError: the module or the stream was closed.

        Example::

            launch = kernel.prepare(4, 256, timeout_s=10)
            launch(2.0, x, y, 1000)
        """
        options = LaunchOptions.of(cluster, cooperative, overlap, priority, timeout_s, self.name)
        takes_ints = check_flag(int_pointers, "int_pointers")
        return self._launch(launch_shape(grid, block, shared_bytes, self.name), stream, options, takes_ints)

    def cooperative(
        self,
        size: int | tuple[int, ...] | None = None,
        *,
        block: int | tuple[int, ...] | None = None,
        shared_bytes: int = 0,
        stream: object = 0,
        cluster: int | tuple[int, ...] | None = None,
    ) -> Launch:
        """Create a cooperative launch: all blocks run at the same time, so that they can wait for each other
        (``grid.sync()``). By default, the blocks fill the device.

        If fewer blocks are enough to cover all elements, cujit launches only those blocks. If there are more elements
        than threads, the kernel must loop.

        Args:
            size: number of elements, as an int or a tuple. Default: as many elements as can run at the same time.
            block: threads per block. Default: the block of ``cooperative_shape``.
            shared_bytes: bytes of dynamic shared memory per block.
            stream: stream of the launch.
            cluster: blocks per cluster. The grid is a multiple of the cluster.

        Raises:
            LaunchError: no block or cluster fits, a size is malformed, or the size is 0.
            ClosedError: the module was closed.

        Example::

            launch = kernel.cooperative(x.size)
            launch(2.0, x, y, x.size)
        """
        wide = self.cooperative_shape(shared_bytes).block if block is None else block
        one = launch_shape(1, wide, shared_bytes, self.name)
        threads = one.block
        check_launch(self.name, one, self.device.limits, self.resources)
        group = self._loaded.own_cluster if cluster is None else Dim3.of(cluster, "cluster")
        most = self._loaded.together(one, group)
        elements = most * threads.volume if size is None else math.prod(problem_size(size, self.name))
        if not elements:
            raise LaunchError(
                f"{self.name}: a cooperative launch must process at least one element",
                help="skip the launch if there are no elements",
                code="cooperative-size",
            )
        step = 1 if group is None else group.volume
        wanted = -(-elements // (threads.volume * step)) * step
        blocks = max(min(most, wanted), step)
        grid = blocks if group is None else (blocks // (group.y * group.z), group.y, group.z)
        return self.prepare(grid, threads, shared_bytes=shared_bytes, stream=stream, cluster=cluster, cooperative=True)

    @overload
    def compile(
        self, block: int | tuple[int, ...], *, cluster: int | tuple[int, ...] | None = None, wait: Literal[True] = True
    ) -> float: ...

    @overload
    def compile(
        self, block: int | tuple[int, ...], *, cluster: int | tuple[int, ...] | None = None, wait: Literal[False]
    ) -> Future[float]: ...

    def compile(
        self, block: int | tuple[int, ...], *, cluster: int | tuple[int, ...] | None = None, wait: bool = True
    ) -> float | Future[float]:
        """Compile the kernel for a block size on the CPU device before the first launch, without running the kernel.

        The method returns the elapsed seconds, which are almost 0 on a GPU or if the code already exists. With
        ``wait=False``, a background thread compiles, and the call returns a ``concurrent.futures.Future``. The
        ``result()`` method of the Future raises any error. A launch during the compile waits until the compile is done.

        Args:
            block: threads per block, as an int or a tuple.
            cluster: blocks per cluster.
            wait: whether to wait; False compiles in the background.

        Raises:
            LaunchError: the kernel can't run with this block size.
            ClosedError: the module was closed.

        Example::

            ready = kernel.compile(256, wait=False)
            print(f"compiled in {ready.result():.3f} s, {kernel.compile_s:.3f} s for all blocks")
        """
        check_flag(wait, "wait")
        blocks = self._loaded.own_cluster if cluster is None else cluster
        launch = self.prepare(1 if blocks is None else blocks, block, cluster=cluster)

        def make() -> float:
            start = time.perf_counter()
            launch.compile()
            return time.perf_counter() - start

        if wait:
            return make()
        return future_of(make, "cujit-compile")

    @property
    def compile_s(self) -> float:
        """Elapsed seconds that the CPU device took to compile this kernel, or to load it from its cache, for all block
        shapes.

        Loading is apart (``Module.load_s``), and has what a GPU's driver compiles; here a GPU says 0.
        """
        return self._loaded.compile_s

    def cancel(self) -> None:
        """Stop all running launches of this kernel from another thread. Each launch raises a ``KernelFaultError`` in
        its own thread.

        Raises:
            UnsupportedError: the device is a GPU, which can't stop a launch.
            ClosedError: the module was closed.

        Example::

            kernel.cancel()                         # none runs: nothing happens
        """
        self._image.require()
        self._loaded.cancel()

    def over(
        self,
        size: int | tuple[int, ...],
        *,
        block: int | tuple[int, ...] | None = None,
        shared_bytes: int = 0,
        stream: object = 0,
    ) -> Launch:
        """Create a launch with one thread per element. ``size`` is an int, or a tuple of up to three ints along x, y,
        and z.

        The last blocks can extend past ``size``, so the kernel must check its index. If the size is 0, nothing is
        launched.

        Args:
            size: number of elements along x, y, and z.
            block: threads per block. Default: the block with the highest occupancy.
            shared_bytes: bytes of dynamic shared memory per block.
            stream: stream of the launch.

        Raises:
            LaunchError: a size is malformed or exceeds a limit.
            ClosedError: the module was closed.

        Example::

            kernel.over(x.size)(2.0, x, y, x.size)
        """
        sizes = problem_size(size, self.name)
        one = launch_shape(1, 1 if block is None else block, shared_bytes, self.name)
        shared = one.shared_bytes
        threads = one.block if block is not None else self._best_block(sizes, shared)
        if 0 in sizes:
            check_launch(self.name, LaunchShape(Dim3(1), threads, shared), self.device.limits, self.resources)
            return make_launch(Launch, self._entry, self, None, stream, PLAIN)
        return self._launch(cover(sizes, threads, shared), stream)

    def _best_block(self, sizes: tuple[int, ...], shared_bytes: int) -> Dim3:
        limits, resources = self.device.limits, self.resources
        check_launch(self.name, LaunchShape(Dim3(1), Dim3(1), shared_bytes), limits, resources)
        if shared_bytes not in self._best_blocks:
            self._best_blocks[shared_bytes] = self._loaded.best_block(shared_bytes)
        return spread(self._best_blocks[shared_bytes], sizes, limits)

    def _launch(
        self, shape: LaunchShape, stream: object, options: LaunchOptions = PLAIN, takes_ints: bool = False
    ) -> Launch:
        """Return a checked launch, or an equal cached one."""
        key: object = (shape, stream_handle(stream, self.device), options, takes_ints)
        if type(stream) is int and key == (shape, 0, PLAIN, False) and not shape.shared_bytes:
            key = shape.grid.shortest, shape.block.shortest  # as native code keeps it
        kept = self._launches.get(key)
        if kept is not None and is_same_stream(kept.stream_owner, stream):
            return kept
        self._image.require()
        if not self._loaded.fits(shape, self.device.limits):
            self._loaded.check(self.name, shape, self.device.limits)
        self._loaded.check_options(shape, options)
        entry = self._entry.of_ints if takes_ints else self._entry
        launch = make_launch(Launch, entry, self, shape, stream, options)
        self._keep(key, launch)
        return launch

    def __call__(self, *arguments: object, **keywords: object) -> None:
        """Raise a LaunchError, because a launch requires a grid.

        Args:
            arguments: ignored.
            keywords: ignored.

        Raises:
            LaunchError: always. The message shows how to specify the grid.

        Example::

            try:
                kernel(2.0, x, y, 1000)
            except cujit.errors.LaunchError as error:
                print(error.help)                   # write kernel[grid, block](…) or kernel.over(n)(…)
        """
        raise without_grid(self.name, arguments, keywords)

    def __str__(self) -> str:
        """Spell it as C++ declares it: ``void axpy<float>(float, const float*, float*, unsigned long)``."""
        return f"void {self.name}" + ("" if self.name.endswith(")") else str(self.signature))

    def __repr__(self) -> str:
        return f"<Kernel {self.name}{self.signature} on {self.device.name}>"


Launch.indexed = KeepsLaunches.made = Kernel


def warm() -> None:
    """Make the type of native launches ahead of the first."""
    warm_launches(Launch)
