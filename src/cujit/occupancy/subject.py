"""Occupancy of a kernel on a GPU that need not be there: from an image, a loaded kernel, or numbers."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from cujit.arch import Arch
from cujit.arch.multiprocessor import MAX_BLOCK_THREADS, SHARED_DEFAULT_BYTES, limits_of
from cujit.artifact import Artifact
from cujit.artifact.opening import naming, open_image
from cujit.devices.device import Device
from cujit.devices.name_table import NameTable
from cujit.devices.shapes import Dim3, Resources
from cujit.errors import ArchError, ArgumentError, FormatError, LaunchError, NameNotFoundError, listed, read_int, spell
from cujit.errors.hints import Hint
from cujit.formats.cubin import Cubin, CubinKernel
from cujit.occupancy.choosing import SharedBytes, best_block, block_sizes, clusters_bound, shared_bytes_of
from cujit.occupancy.cubins import cubins_for
from cujit.occupancy.drawing import plot_path
from cujit.occupancy.products import Mark, Product, find_product, product_of_arch
from cujit.occupancy.residency import Demand, Residency, residency
from cujit.occupancy.result import Occupancy
from cujit.values import NamedTuple, attributes, dataclass, replace
from cujit.values.keywords import has_keywords, take

if TYPE_CHECKING:
    from typing import TypedDict

    from typing_extensions import Unpack

    class DemandKeywords(TypedDict, total=False):
        """The fields of ``DemandWords``."""

        processors: int | None
        registers: int | None
        static_shared_bytes: int | None
        barriers: int | None
        max_threads: int | None
        carveout_percent: int | None
        opt_in: bool


__all__ = ["Image", "LoadedKernel", "Occupancy", "Subject", "of", "plot", "product_of", "subject"]


@runtime_checkable
class LoadedKernel(Protocol):
    """A kernel on a device, as ``cujit.load`` returns it."""

    @property
    def name(self) -> str:
        """The displayed name."""

    @property
    def device(self) -> Device:
        """The device that the module is loaded on."""

    @property
    def resources(self) -> Resources:
        """The resource usage."""


Image = Artifact | bytes | bytearray | memoryview | str | os.PathLike[str]


@dataclass(frozen=True)
class Subject:
    """A kernel and a GPU. ``required_block`` is the kernel's required block size in threads, or None."""

    kernel: str
    lowered_name: str
    product: Product
    demand: Demand
    required_block: int | None = None
    cluster: int | None = None

    def at(
        self,
        block: int | tuple[int, ...],
        *,
        shared_bytes: SharedBytes = 0,
        grid: int | tuple[int, ...] | None = None,
        cluster: int | None = None,
    ) -> Occupancy:
        """Return the occupancy for one block size.

        Raises:
            LaunchError: the kernel was not built for such a block, or a number is out of its range.
        """
        threads = Dim3.of(block, "block").volume
        self._check(threads)
        found = residency(self.demand, threads, shared_bytes_of(shared_bytes, threads))
        return self._result(found, grid, cluster)

    def best(
        self,
        *,
        shared_bytes: SharedBytes = 0,
        grid: int | tuple[int, ...] | None = None,
        cluster: int | None = None,
    ) -> Occupancy:
        """Choose the block of highest occupancy, the largest where several tie.

        Raises:
            LaunchError: a number is out of its range.
        """
        if self.required_block is not None:
            return self.at(self.required_block, shared_bytes=shared_bytes, grid=grid, cluster=cluster)
        return self._result(best_block(self.demand, shared_bytes), grid, cluster)

    @property
    def blocks(self) -> tuple[int, ...]:
        """The block sizes that it may have, in threads: whole warps, and its largest."""
        return (self.required_block,) if self.required_block is not None else block_sizes(self.demand)

    def _result(self, found: Residency, grid: int | tuple[int, ...] | None, cluster: int | None) -> Occupancy:
        blocks = Dim3.of(grid, "grid").volume if grid is not None else None
        if cluster is not None:
            cluster = read_int(cluster, "cluster", LaunchError)
            clusters_bound(found.limits, found.blocks, 1, cluster)
        return Occupancy(self.kernel, self.product, self.demand, found, blocks, cluster or self.cluster)

    def _check(self, threads: int) -> None:
        if self.required_block is not None and threads != self.required_block:
            raise LaunchError(
                f"{self.kernel} requires blocks of {self.required_block} threads, not {threads}", code="block-size"
            )
        if threads > MAX_BLOCK_THREADS:
            raise LaunchError(
                f"the block has {threads} threads, but a GPU supports at most {MAX_BLOCK_THREADS}",
                help="use a smaller block and a larger grid",
                code="block-size",
            )
        if threads > self.demand.max_threads:
            raise LaunchError(
                f"the block has {threads} threads, but {self.kernel} was built for at most {self.demand.max_threads}",
                help=f"use at most {self.demand.max_threads} threads, or build it with __launch_bounds__({threads})",
                code="block-size",
            )


class DemandWords(NamedTuple):
    """Values of a kernel and of a GPU from the user, which replace the values from the image and the table."""

    processors: int | None = None
    registers: int | None = None
    static_shared_bytes: int | None = None
    barriers: int | None = None
    max_threads: int | None = None
    carveout_percent: int | None = None
    opt_in: bool = True


@has_keywords(DemandWords)
def of(
    what: Image | LoadedKernel | None = None,
    block: int | tuple[int, ...] | None = None,
    *,
    kernel: str | None = None,
    on: str | Arch | Device | None = None,
    shared_bytes: SharedBytes = 0,
    grid: int | tuple[int, ...] | None = None,
    cluster: int | None = None,
    **demand: Unpack[DemandKeywords],
) -> Occupancy:
    """Return how many blocks of a kernel an SM can run concurrently. No GPU is needed.

    Args:
        what: a cubin, a fatbin, or a host file with fatbins (as an Artifact, bytes, or a path), or a loaded kernel.
            Without ``what``, specify ``registers`` and ``on``.
        block: threads per block. Default: the block size with the highest occupancy.
        kernel: name of the kernel. Required if there are several kernels.
        on: a GPU model (``"H200"``, ``"RTX 5090"``), an architecture (``"sm_90"``), or a Device. Default: the
            architecture of the image.
        shared_bytes: bytes of dynamic shared memory per block, as a number or a function of the number of threads per
            block.
        grid: number of blocks in the launch.
        cluster: blocks per cluster.
        processors: number of SMs of the GPU.
        registers: registers per thread. The arguments from ``registers`` to ``max_threads`` override the values in
            the image.
        static_shared_bytes: bytes of static shared memory per block.
        barriers: barriers per block.
        max_threads: maximum threads per block.
        carveout_percent: preferred shared-memory carveout, as a percentage of the L1 cache.
        opt_in: whether the kernel opts in to using more than 48 KiB of shared memory per block.

    Raises:
        FormatError: the image contains no SASS, or it is damaged.
        ArchError: the GPU is unknown, or the image has no SASS for it.
        NameNotFoundError: no kernel has this name, or there are several kernels and ``kernel`` is not specified.
        LaunchError: the kernel can't run with this block size, or a number is out of range.
        ArgumentError: the number of registers is unknown.

    Example::

        assert cujit.occupancy.of(cubin, 256, on="H200").fraction == 1
        assert cujit.occupancy.of(block=1024, registers=64, on="sm_90").fraction == 0.5
    """
    found = subject(what, kernel=kernel, on=on, **demand)
    if block is None:
        return found.best(shared_bytes=shared_bytes, grid=grid, cluster=cluster)
    return found.at(block, shared_bytes=shared_bytes, grid=grid, cluster=cluster)


@has_keywords(DemandWords)
def subject(
    what: Image | LoadedKernel | None = None,
    *,
    kernel: str | None = None,
    on: str | Arch | Device | None = None,
    **demand: Unpack[DemandKeywords],
) -> Subject:
    """Return the kernel and the GPU that ``of`` would use, to examine several block sizes.

    Raises:
        CujitError: see ``of``.
    """
    words = take(DemandWords, demand, subject)
    given = attributes(words, "registers barriers max_threads carveout_percent")
    given["shared_bytes"] = words.static_shared_bytes
    changes = {name: read_int(value, name, LaunchError) for name, value in given.items() if value is not None}
    place = _place(on, words.processors)
    if what is None:
        found = _of_numbers(place, kernel, changes)
    elif isinstance(what, LoadedKernel):
        found = _of_loaded(what, place, kernel, changes)
    else:
        found = _of_image(open_image(what, "occupancy.of"), place, words.processors, kernel, changes)
    if words.opt_in:
        return found
    unasked = SHARED_DEFAULT_BYTES - found.demand.shared_bytes
    return replace(found, demand=replace(found.demand, dynamic_limit_bytes=unasked))


def plot(
    path: str | os.PathLike[str],
    what: Image | LoadedKernel | Subject | None = None,
    block: int | tuple[int, ...] | None = None,
    *,
    shared_bytes: SharedBytes = 0,
    dark: bool = False,
    **more: Any,
) -> Path:
    """Plot the occupancy against block size, registers, and shared memory as SVG or PNG, and mark the kernel.

    Args:
        path: path of the plot, which must end in ``.svg`` or ``.png``.
        what: as for ``of``.
        block: as for ``of``.
        shared_bytes: as for ``of``.
        dark: whether to use light colors on a dark background. ``more`` accepts the arguments of ``of``, except
            ``grid`` and ``cluster``.

    Raises:
        MissingError: matplotlib is not installed.
        OptionError: ``path`` has a different extension.
        CujitError: see ``of``.
        FileError: the file can't be written.

    Example::

        import importlib.util

        if importlib.util.find_spec("matplotlib"):      # pip install 'cujit[plot]'
            cujit.occupancy.plot("occupancy.svg", cubin, 256, on="H200")
    """
    from cujit.occupancy.plots import draw  # optional: the extra cujit[plot]

    target = plot_path(path)
    found = what if isinstance(what, Subject) else subject(what, **more)
    shown = found.best(shared_bytes=shared_bytes) if block is None else found.at(block, shared_bytes=shared_bytes)
    draw(target, shown.demand, shown.residency, title=shown.kernel, place=str(shown.product), dark=dark)
    return target


# -- where ----------------------------------------------------------------------------------------------------


def product_of(on: str | Arch | Device) -> Product:
    """Return the GPU with a name or an architecture, or the GPU of a Device.

    Raises:
        ArchError: the GPU is unknown.
        ArgumentError: the device is not a GPU.
    """
    if isinstance(on, Device):
        return _of_device(on)
    return product_of_arch(on) if isinstance(on, Arch) else find_product(on)


def _place(on: str | Arch | Device | None, processors: int | None) -> Product | None:
    if processors is not None:
        processors = read_int(processors, "processors", LaunchError)
    if on is None:
        return None
    found = product_of(on)
    if processors is None:
        return found
    product_of_arch(found.arch, processors)
    return replace(found, processors=processors)


def _of_device(device: Device) -> Product:
    if not device.is_gpu:
        raise ArgumentError(
            f"occupancy applies only to GPUs, but {device.name} is the CPU device",
            help=Hint("write on='H200' or on='sm_90'", shell="write --on H200 or --on sm_90"),
            code="device-mismatch",
        )
    return Product(device.product, device.arch, device.limits.processors, Mark.DEVICE)


# -- what -----------------------------------------------------------------------------------------------------


def _of_numbers(place: Product | None, kernel: str | None, changes: dict[str, int]) -> Subject:
    if place is None or "registers" not in changes:
        missing = "on" if place is None else "registers"
        raise ArgumentError(
            f"without an image, occupancy requires {missing}",
            help=Hint(
                "write cujit.occupancy.of(registers=64, on='H200') or cujit.occupancy.of('k.cubin')",
                shell="run cujit occupancy --registers 64 --on H200, or cujit occupancy k.cubin",
            ),
        )
    demand = Demand(limits_of(place.arch), **changes)
    name = kernel or f"a kernel of {demand.registers} registers"
    return Subject(name, kernel or "", place, demand)


def _of_loaded(loaded: LoadedKernel, place: Product | None, kernel: str | None, changes: dict[str, int]) -> Subject:
    if kernel is not None and kernel not in (loaded.name, getattr(loaded, "lowered_name", "")):
        raise ArgumentError(f"the loaded kernel is {loaded.name}, not {spell(kernel)}", help="remove kernel=")
    resources = loaded.resources
    if not loaded.device.is_gpu and "registers" not in changes:
        raise ArgumentError(
            f"the register usage of {loaded.name} is unknown, because {loaded.device.name} runs it as PTX",
            help=Hint(
                "pass a cubin (cujit.compile(source, arch='sm_90')), or registers= and on=",
                shell="pass a cubin (cujit compile FILE -a sm_90), or --registers and --on",
            ),
        )
    home = _of_device(loaded.device) if loaded.device.is_gpu else place
    place = place or home
    if place is None:
        raise ArgumentError(
            f"no GPU is specified, and {loaded.device.name} is not a GPU", help=Hint("on='H200'", shell="--on H200")
        )
    if loaded.device.is_gpu and place.arch.number != loaded.device.arch.number:
        raise ArchError(
            f"{loaded.name} is loaded as code for {loaded.device.arch}, but {place} has a different architecture",
            help="pass an image with SASS for that GPU",
            code="arch-mismatch",
        )
    known = attributes(resources, "registers shared_bytes max_threads") | {"barriers": resources.barriers or 0}
    demand = Demand(limits_of(place.arch), **known | changes)
    return Subject(loaded.name, getattr(loaded, "lowered_name", loaded.name), place, demand)


def _of_image(
    artifact: Artifact, place: Product | None, processors: int | None, kernel: str | None, changes: dict[str, int]
) -> Subject:
    with naming(artifact):
        cubins = cubins_for(artifact, place.arch if place else None)
    cubin, found, shown = _kernel(artifact, cubins, kernel)
    place = place or product_of_arch(cubin.arch, processors)
    if cubin.is_relocatable:
        raise FormatError(
            f"{artifact.name or 'the cubin'} must be linked first, because linking can change the register "
            f"usage of {shown}",
            help=Hint(
                f"cujit.link([image], arch='{cubin.arch}')", shell=f"run cujit link FILE -a {cubin.arch} -o x.cubin"
            ),
        )
    known = attributes(found, "registers shared_bytes barriers virtual_resources")
    known |= {"max_threads": found.max_threads or MAX_BLOCK_THREADS} | changes
    if known["registers"] is None:
        raise FormatError(
            f"the image doesn't specify the register usage of {shown}",
            help=Hint("specify it with registers=…", shell="specify it with --registers"),
        )
    cluster = math.prod(found.cluster) if found.cluster else 0
    return Subject(
        shown,
        found.name,
        place,
        Demand(limits_of(place.arch), **known),
        math.prod(found.required_block) if found.required_block else None,
        cluster or None,
    )


def _kernel(artifact: Artifact, cubins: list[Cubin], kernel: str | None) -> tuple[Cubin, CubinKernel, str]:
    """The kernel called so, its cubin, and its name as people write it."""
    found = {k.name: (cubin, k) for cubin in cubins for k in cubin.kernels}
    names = NameTable(artifact.names, found)
    if kernel is not None:
        lowered = names.find(kernel)
    elif len(found) == 1:
        lowered = next(iter(found))
    else:
        have = listed(sorted(names.display.values()), 20)
        raise NameNotFoundError(
            f"{artifact.name or 'this image'} contains {len(found)} kernels",
            help=f"choose one: {have}" if found else None,
        )
    return *found[lowered], names.display[lowered]
