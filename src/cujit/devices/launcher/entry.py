"""What a loaded kernel's launches share: its image, what reads its arguments, and the launch written in Python."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from cujit.artifact import Artifact
from cujit.devices.arguments.buffers import Buffers
from cujit.devices.arguments.packer import Packer
from cujit.devices.backend import BackendKernel, BackendModule
from cujit.devices.device import Device
from cujit.devices.launcher.alive import Alive
from cujit.devices.launcher.binder import Binder, tell_failure
from cujit.devices.options import LaunchOptions
from cujit.devices.shapes import LaunchShape
from cujit.devices.watch import Text
from cujit.errors import ClosedError, CujitError
from cujit.forks import cached_property
from cujit.signature import Signature


class _Cache(Protocol):
    def clear(self) -> None: ...


class LoadedImage:
    """What a module and its kernels share: where they are, and whether they still are.

    Kernels refer to this and not to their module, so there is no circle and a module goes with its last user.
    """

    def __init__(self, device: Device, loaded: BackendModule, artifact: Artifact, options: object = None) -> None:
        self.device = device
        self.artifact = artifact
        self.options = options
        """What it was loaded with."""
        self.portable: Callable[..., Artifact] | None = None
        """Makes PTX of what the image was made of, where that is known."""
        self.texts: Mapping[str, Text] = {}
        """The sources of the image, where they are known, by the names that its lines have for them."""
        self.loaded: BackendModule | None = loaded
        self.alive = Alive()
        self.caches: weakref.WeakSet[_Cache] = weakref.WeakSet()

    def require(self) -> BackendModule:
        """Give the loaded module, unless it was closed."""
        if self.loaded is None:
            raise ClosedError(f"this module on {self.device.name} was closed; its kernels no longer run")
        return self.loaded

    def close(self) -> None:
        """Unload it."""
        self.alive.close()
        for cache in list(self.caches):
            cache.clear()
        if self.loaded is not None:
            self.loaded.close()
            self.loaded = None


class LaunchEntry:
    """What a kernel and its launches share. Launches refer to this and not to their kernel, which keeps them."""

    def __init__(
        self, image: LoadedImage, loaded: BackendKernel, name: str, signature: Signature, *, takes_ints: bool = False
    ) -> None:
        self.image = image
        self.loaded = loaded
        self.name = name
        self.signature = signature
        self._takes_ints = takes_ints

    @property
    def device(self) -> Device:
        """Where it runs."""
        return self.image.device

    @cached_property
    def packer(self) -> Packer:
        """What reads its arguments."""
        return Packer(self.signature, self.device, self.name, takes_ints=self._takes_ints)

    @cached_property
    def buffers(self) -> Buffers:
        """What makes parameter buffers of what users have of them."""
        return Buffers(self.name, self.signature)

    @cached_property
    def of_ints(self) -> LaunchEntry:
        """The same, with ints for addresses."""
        return LaunchEntry(self.image, self.loaded, self.name, self.signature, takes_ints=True)

    @cached_property
    def binder(self) -> Binder | None:
        """What prepares its launches for machine code; None where there is none, or the signature does not tell."""
        if any(parameter.size <= 0 for parameter in self.signature):
            return None
        return Binder.of(self.loaded, self.device, self.packer, self.image.alive)

    def run(self, shape: LaunchShape | None, stream: int, options: LaunchOptions, arguments: Sequence[object]) -> None:
        """Launch by hand: what machine code does, written in Python."""
        try:
            self.image.require()
            parameters = self.packer.pack(arguments, stream)
        except CujitError as e:
            self.tell(e)
            raise
        if shape is not None:
            self.run_packed(shape, stream, options, parameters)

    def run_packed(self, shape: LaunchShape, stream: int, options: LaunchOptions, parameters: bytes) -> None:
        """Launch by hand with a parameter buffer."""
        try:
            self.image.require()  # who made the buffer may have run anybody's code
            self.loaded.launch(shape, parameters, stream, options)
        except CujitError as e:
            self.tell(e)
            raise

    def tell(self, error: CujitError) -> None:
        """Tell of a launch that raises."""
        tell_failure(self.name, self.device, error)
