"""An image on a GPU as a module: its kernels and its variables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cujit.arch import Arch
from cujit.artifact import Artifact, ImageKind
from cujit.devices.backend import BackendKernel, BackendModule
from cujit.devices.cuda.context import GpuContext
from cujit.devices.cuda.driver_module import DriverModule, load_module
from cujit.devices.cuda.image import choose_image
from cujit.devices.cuda.kernel import CudaKernel
from cujit.devices.cuda.routes import RoutePlace
from cujit.devices.jit_options import JitOptions
from cujit.devices.launcher.cubin import CubinKernelFacts, cubin_facts, number_of
from cujit.devices.launcher.state import LoadedSlots
from cujit.devices.shapes import Limits
from cujit.errors import DriverError, NameNotFoundError, spell
from cujit.forks import cached_property


class CudaModule(LoadedSlots, BackendModule):
    """One image in the primary context of one GPU. ``route`` describes how the image was loaded. ``log`` contains the
    output of the tools that processed the image.

    A cubin for this architecture is passed to the driver unchanged. cujit reads the whole cubin only if the driver
    rejects it, or if a caller needs more than launches do. Any other image is read first, so that an error can describe
    an image that would run.

    Raises:
        LoadError: the image does not run on this GPU.
        DriverError: the driver rejected the image. ``log`` contains the output of the driver's compiler.
    """

    __slots__ = ("_limits", "arch")

    _data: bytes | None
    _module: DriverModule
    _rows: Mapping[str, bytes] | None
    arch: Arch
    """The architecture of a cubin."""

    def __init__(
        self, context: GpuContext, limits: Limits, place: RoutePlace, artifact: Artifact, options: JitOptions
    ) -> None:
        self._limits, self._data, self._rows = limits, None, None
        data = artifact.data
        facts = cubin_facts(data) if artifact.kind is ImageKind.CUBIN and not place.is_emulated else None
        if facts is not None and number_of(data) == place.arch.number:
            self._data, self._rows, self.arch = data, facts.rows, artifact.arch or place.arch
            try:
                self._module = load_module(context, data)
            except DriverError:
                choose_image(artifact, place, options)  # which says what is wrong with the image, if that is it
                raise
        else:
            chosen = choose_image(artifact, place, options)
            self.route = chosen.route
            self._module = load_module(context, chosen.image, options)
            self.log = "\n".join(filter(None, (chosen.log.strip(), self._module.log)))

    @cached_property
    def route(self) -> str:  # type: ignore[override]
        """A description of how the image was loaded."""
        return f"cubin {self.arch}"

    @cached_property
    def kernels(self) -> Mapping[str, BackendKernel]:  # type: ignore[override]
        """The kernels by lowered name, each created on first access."""
        facts = None if self._data is None else cubin_facts(self._data)
        return _Kernels(self._module, self._limits, dict.fromkeys(self._module.kernels()) if facts is None else facts)

    def variable(self, name: str) -> tuple[int, int]:
        """Find a ``__device__`` or ``__constant__`` variable: its address and its size in bytes.

        Raises:
            ClosedError: the module was closed.
            NameNotFoundError: no kernel or variable has that name.
        """
        handle = self._module.handle
        with self._module.context as driver:
            result = driver.bindings.CUresult
            status, *place = driver.attempt("cuModuleGetGlobal", handle, name.encode())
            if status == result.CUDA_ERROR_NOT_FOUND:
                raise NameNotFoundError(
                    f"this module doesn't contain the variable {spell(name)}",
                    help="use the lowered name of the variable; the compiler drops unused variables",
                )
            if status != result.CUDA_SUCCESS:
                raise self._module.context.explained(driver.error("cuModuleGetGlobal", status))
        return int(place[0]), int(place[1])

    def close(self) -> None:
        """Unload the image through the driver. Closing again is harmless."""
        self._module.close()


class _Kernels(Mapping[str, BackendKernel]):
    """The kernels of an image by lowered name, each created on first access."""

    def __init__(self, loaded: DriverModule, limits: Limits, known: Mapping[str, CubinKernelFacts | None]) -> None:
        self._module = loaded
        self._limits = limits
        self._known = known
        self._made: dict[str, CudaKernel] = {}

    def __getitem__(self, name: str) -> CudaKernel:
        made = self._made.get(name)
        if made is None:
            made = CudaKernel(self._module, self._limits, name, self._known[name])
            made = self._made.setdefault(name, made)
        return made

    def __contains__(self, name: Any) -> bool:
        return name in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)
