"""An image on a GPU as a module: its kernels and its variables."""

from __future__ import annotations

from types import MappingProxyType

from cujit.devices.backend import BackendModule
from cujit.devices.cuda.context import Context
from cujit.devices.cuda.kernel import CudaKernel
from cujit.devices.cuda.library import LoadedLibrary
from cujit.devices.cuda.routes import Chosen
from cujit.devices.jit_options import JitOptions
from cujit.devices.shapes import Limits
from cujit.errors import NameNotFoundError, spell


class CudaModule(BackendModule):
    """One image in the primary context of one GPU; ``route`` says how it came to run, ``log`` who wrote what of it.

    Raises:
        DriverError: the driver refused the image; ``log`` is what its compiler wrote.
    """

    def __init__(self, context: Context, limits: Limits, chosen: Chosen, options: JitOptions) -> None:
        self.route = chosen.route
        self._library = LoadedLibrary(context, chosen.image, options)
        self.log = "\n".join(filter(None, (chosen.log.strip(), self._library.log)))
        self.kernels = MappingProxyType(
            {name: CudaKernel(self._library, limits, handle, name) for name, handle in self._library.kernels().items()}
        )

    def variable(self, name: str) -> tuple[int, int]:
        """Find a ``__device__`` or ``__constant__`` variable: its address and its size in bytes.

        Raises:
            ClosedError: the module was closed.
            NameNotFoundError: there is none of that name.
        """
        library = self._library.handle
        with self._library.context as driver:
            result = driver.bindings.CUresult
            status, *place = driver.attempt("cuLibraryGetGlobal", library, name.encode())
            if status == result.CUDA_ERROR_NOT_FOUND:
                raise NameNotFoundError(
                    f"no variable {spell(name)} in this module",
                    help="variables go by their lowered names; the compiler drops what nothing uses",
                )
            if status != result.CUDA_SUCCESS:
                raise self._library.context.explained(driver.error("cuLibraryGetGlobal", status))
        return int(place[0]), int(place[1])

    def close(self) -> None:
        """Have the driver unload the image; again is harmless."""
        self._library.close()
