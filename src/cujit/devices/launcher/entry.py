"""What a loaded kernel's launches share: its image, what reads its arguments, and the launch written in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cujit.artifact import Artifact
from cujit.devices.arguments.buffers import Buffers
from cujit.devices.arguments.extents import extents_of
from cujit.devices.arguments.packer import LazyPacker, Packer
from cujit.devices.arguments.signatures import signature_of
from cujit.devices.backend import BackendKernel, BackendModule
from cujit.devices.device import Device
from cujit.devices.launcher.binder import LaunchBinder, report_failure
from cujit.devices.launcher.liveness import LivenessFlag
from cujit.devices.launcher.state import EntrySlots, ImageSlots
from cujit.devices.name_table import NameTable
from cujit.devices.options import LaunchOptions
from cujit.devices.shapes import HostExtent, LaunchShape
from cujit.devices.watch import Text
from cujit.errors import ClosedError, CujitError, without_frames
from cujit.forks import cached_property
from cujit.signature import Signature


class LoadedImage(ImageSlots):
    """What a module and its kernels share: where they are, and whether they still are.

    Kernels refer to this and not to their module, so there is no circle and a module goes with its last user.
    """

    device: Device
    _calls: bytes | None
    _given: Artifact | bytes
    _word: bytes
    options: object
    """What it was loaded with."""
    loaded: BackendModule | None
    """The module as the device has it; None when it is closed."""
    portable: Callable[..., Artifact] | None = None
    """Makes PTX of what the image was made of, where that is known."""
    sources: Callable[[], Mapping[str, Text]] = dict
    """Gives ``texts``."""
    _was: BackendModule

    def __init__(self, device: Device, loaded: BackendModule, artifact: Artifact, options: object = None) -> None:
        self.device, self._given, self.options = device, artifact, options
        self.loaded, self._calls = loaded, None
        self._word = LivenessFlag().word

    @property
    def artifact(self) -> Artifact:
        """The image; native code has loaded the bytes alone."""
        given = self._given
        if isinstance(given, bytes):
            given = self._given = Artifact.of(given)
        return given

    @property
    def alive(self) -> LivenessFlag:
        """The word that native code reads before a launch."""
        return LivenessFlag(self._word)

    @property
    def texts(self) -> Mapping[str, Text]:
        """The sources of the image, where they are known, by the names that its lines have for them."""
        return self.sources()

    @property
    def is_empty(self) -> bool:
        """Whether there is no kernel in it."""
        return self.require().is_empty

    @cached_property
    def names(self) -> NameTable:
        """Its kernels by what people call them."""
        return NameTable(self.artifact.names, self.kernels)

    def find(self, name: str) -> str:
        """Return the lowered name of the kernel called ``name``.

        Raises:
            NameNotFoundError: there is none, or there are several; the message lists them.
        """
        if isinstance(name, str) and name in self.kernels:
            return name
        requested = self.artifact.names.get(name) if len(self.kernels) == 1 else None
        return requested if requested is not None and requested in self.kernels else self.names.find(name)

    @cached_property
    def kernels(self) -> Mapping[str, BackendKernel]:
        """The kernels as the device has them, by lowered name; those of a closed image are still listed."""
        return self.about.kernels

    def patterns_of(self, lowered: str) -> dict[object, bytes] | None:
        """Return the patterns that kernels share which a build says the same of; None where the name tells more."""
        signatures = None if isinstance(self._given, bytes) else self._given.signatures
        stated = signatures.get(lowered) if signatures else None
        if stated is None:
            return None if lowered.startswith("_Z") else self.device.patterns.of(None)
        return self.device.patterns.of(stated)

    def display(self, lowered: str) -> str:
        """Return what a kernel is shown as: as the build was asked for it, else as the source spells it."""
        is_plain = self._has_one_name_each and not lowered.startswith("_Z")
        return lowered if is_plain else self.names.display[lowered]

    @cached_property
    def _has_one_name_each(self) -> bool:
        """Whether the build was asked for kernels by their lowered names, if at all."""
        return all(text == name for text, name in self.artifact.names.items())

    def require(self) -> BackendModule:
        """Return the loaded module, unless it was closed."""
        if self.loaded is None:
            raise ClosedError(f"this module on {self.device.name} is closed, so its kernels can't run")
        return self.loaded

    @property
    def about(self) -> BackendModule:
        """The loaded module, also when it is closed: its route and its log are still of use."""
        return self._was if self.loaded is None else self.loaded

    def close(self) -> None:
        """Unload it."""
        self.alive.close()
        if self.loaded is not None:
            self.loaded.close()
            self._was, self.loaded = self.loaded, None


class _ShownName:
    """What messages call a kernel, found out when a message needs it. It refers to no entry: there is no circle."""

    def __init__(self, image: LoadedImage, lowered: str, name: str | None) -> None:
        self._image, self._lowered, self._name = image, lowered, name

    def __str__(self) -> str:
        return self._image.display(self._lowered) if self._name is None else self._name


class LaunchEntry(EntrySlots):
    """What a kernel and its launches share. Launches refer to this and not to their kernel, which keeps them."""

    image: LoadedImage
    lowered: str

    def __init__(
        self,
        image: LoadedImage,
        loaded: BackendKernel,
        name: str | None = None,
        signature: Signature | None = None,
        *,
        takes_ints: bool = False,
    ) -> None:
        self.image = image
        self.lowered = loaded.name
        self.loaded = loaded
        if name is not None:
            self.name = name
        if signature is not None:
            self.signature = signature
        self._takes_ints = takes_ints

    @classmethod
    def of(cls, image: LoadedImage, lowered: str) -> LaunchEntry:
        """Make the entry of a kernel of an image, by its lowered name, before more of it is known."""
        entry = object.__new__(cls)
        entry.image, entry.lowered, entry._takes_ints = image, lowered, False
        return entry

    @cached_property
    def loaded(self) -> BackendKernel:
        """The kernel as the device has it."""
        return self.image.require().kernels[self.lowered]

    @cached_property
    def name(self) -> str:
        """What it is shown as."""
        return self.image.display(self.lowered)

    @cached_property
    def signature(self) -> Signature:
        """What it takes, as far as the build and the image tell."""
        return signature_of(self.image.artifact, self.lowered, self.loaded.signature)

    @property
    def device(self) -> Device:
        """The device that the kernel runs on."""
        return self.image.device

    @cached_property
    def _packers(self) -> LazyPacker:
        shown = _ShownName(self.image, self.lowered, self.__dict__.get("name"))
        return LazyPacker(self.signature, self.device, shown, takes_ints=self._takes_ints)

    @property
    def packer(self) -> Packer:
        """What reads its arguments."""
        return self._packers()

    @cached_property
    def buffers(self) -> Buffers:
        """What makes parameter buffers of what users have of them."""
        return Buffers(self.name, self.signature)

    @cached_property
    def of_ints(self) -> LaunchEntry:
        """The same, with ints for addresses."""
        return LaunchEntry(self.image, self.loaded, self.name, self.signature, takes_ints=True)

    @cached_property
    def binder(self) -> LaunchBinder | None:
        """What prepares its launches for machine code; None where there is none, or the signature does not tell."""
        if any(parameter.size <= 0 for parameter in self.signature):
            return None
        return LaunchBinder.of(self.loaded, self.device, self.signature, self._packers, self.image.alive,
                         takes_ints=self._takes_ints)  # fmt: skip

    @property
    def is_read(self) -> bool:
        """Whether native code has read of the image what plain launches need."""
        return self.device.is_gpu and getattr(self.loaded, "parameters", None) is not None

    def keep_pattern(self, pattern: bytes, learned: object) -> None:
        """Store this pattern for kernels with such parameters, if nothing but the parameters' sizes is known."""
        patterns, parameters = self.image.patterns_of(self.lowered), getattr(self.loaded, "parameters", None)
        if parameters is None or patterns is None or self._takes_ints:
            return
        if self.device.patterns.keep(learned):
            patterns[parameters] = pattern

    def run(self, shape: LaunchShape | None, stream: int, options: LaunchOptions, arguments: Sequence[object]) -> None:
        """Launch by hand: what machine code does, written in Python."""
        try:
            self.image.require()
            parameters = self.packer.pack(arguments, stream)
        except CujitError as e:
            self.report_failure(e)
            raise without_frames(e) from e.__cause__
        if shape is not None:
            extents = extents_of(arguments) if self.loaded.needs_extents else ()
            self.run_packed(shape, stream, options, parameters, extents)

    def run_packed(
        self,
        shape: LaunchShape,
        stream: int,
        options: LaunchOptions,
        parameters: bytes,
        extents: Sequence[HostExtent] = (),
    ) -> None:
        """Launch by hand with a parameter buffer; ``extents`` is the memory of the host that it leads to."""
        try:
            self.image.require()  # who made the buffer may have run anybody's code
            self.loaded.launch(shape, parameters, stream, options, extents)
        except CujitError as e:
            self.report_failure(e)
            raise without_frames(e) from e.__cause__

    def report_failure(self, error: CujitError) -> None:
        """Report a launch that raises."""
        report_failure(self.name, self.device, error)
