"""The state that a loaded kernel's launches share: the image, the argument readers, and the launch
function in Python.
"""

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
    """The state that a module and its kernels share: their device and image, and whether the image is still loaded.

    Kernels refer to this object instead of their module. Without a reference cycle, a module is deleted with its last
    user.
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
        """The image as an Artifact. If native code loaded only the bytes, the Artifact is created on first access."""
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
        """The known sources of the image, by their names in the image's line information."""
        return self.sources()

    @property
    def is_empty(self) -> bool:
        """Whether there is no kernel in it."""
        return self.require().is_empty

    @cached_property
    def names(self) -> NameTable:
        """The kernels of the image by the names that users write."""
        return NameTable(self.artifact.names, self.kernels)

    def find(self, name: str) -> str:
        """Return the lowered name of the kernel called ``name``.

        Raises:
            NameNotFoundError: no kernel, or more than one kernel, has the name. The message lists the kernels.
        """
        if isinstance(name, str) and name in self.kernels:
            return name
        requested = self.artifact.names.get(name) if len(self.kernels) == 1 else None
        return requested if requested is not None and requested in self.kernels else self.names.find(name)

    @cached_property
    def kernels(self) -> Mapping[str, BackendKernel]:
        """The back end's kernels by lowered name. Kernels of a closed image are still listed."""
        return self.about.kernels

    def patterns_of(self, lowered: str) -> dict[object, bytes] | None:
        """Return the launch patterns that kernels with equal facts from the build share.

        Without such facts, return None if the lowered name contains parameter types.
        """
        signatures = None if isinstance(self._given, bytes) else self._given.signatures
        stated = signatures.get(lowered) if signatures else None
        if stated is None:
            return None if lowered.startswith("_Z") else self.device.patterns.of(None)
        return self.device.patterns.of(stated)

    def display(self, lowered: str) -> str:
        """Return the display name of a kernel: the name in the build request, otherwise the name in the source."""
        is_plain = self._has_one_name_each and not lowered.startswith("_Z")
        return lowered if is_plain else self.names.display[lowered]

    @cached_property
    def _has_one_name_each(self) -> bool:
        """Whether the build requested all kernels by their lowered names, or requested none."""
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
    """The display name of a kernel in messages, found on first use. It refers to no entry, so there is no reference
    cycle.
    """

    def __init__(self, image: LoadedImage, lowered: str, name: str | None) -> None:
        self._image, self._lowered, self._name = image, lowered, name

    def __str__(self) -> str:
        return self._image.display(self._lowered) if self._name is None else self._name


class LaunchEntry(EntrySlots):
    """The state that a kernel and its launches share. Launches refer to this object instead of the kernel, because the
    kernel keeps its launches.
    """

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
        """The display name of the kernel."""
        return self.image.display(self.lowered)

    @cached_property
    def signature(self) -> Signature:
        """The kernel's signature, as far as the build and the image specify it."""
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
        """The packer that reads the kernel's arguments."""
        return self._packers()

    @cached_property
    def buffers(self) -> Buffers:
        """The object that converts users' parameter buffers to the kernel's parameter buffers."""
        return Buffers(self.name, self.signature)

    @cached_property
    def of_ints(self) -> LaunchEntry:
        """The same, with ints for addresses."""
        return LaunchEntry(self.image, self.loaded, self.name, self.signature, takes_ints=True)

    @cached_property
    def binder(self) -> LaunchBinder | None:
        """The binder that prepares launches for machine code, or None without machine code or if a parameter's size is
        unknown.
        """
        if any(parameter.size <= 0 for parameter in self.signature):
            return None
        return LaunchBinder.of(self.loaded, self.device, self.signature, self._packers, self.image.alive,
                         takes_ints=self._takes_ints)  # fmt: skip

    @property
    def is_read(self) -> bool:
        """Whether native code has read from the image the facts that plain launches need."""
        return self.device.is_gpu and getattr(self.loaded, "parameters", None) is not None

    def keep_pattern(self, pattern: bytes, learned: object) -> None:
        """Store a launch pattern for all kernels with equal parameters, if the kernel shares its patterns."""
        patterns, parameters = self.image.patterns_of(self.lowered), getattr(self.loaded, "parameters", None)
        if parameters is None or patterns is None or self._takes_ints:
            return
        if self.device.patterns.keep(learned):
            patterns[parameters] = pattern

    def run(self, shape: LaunchShape | None, stream: int, options: LaunchOptions, arguments: Sequence[object]) -> None:
        """Launch the kernel in Python, with the same steps as the machine code."""
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
        """Launch the kernel in Python with a parameter buffer. ``extents`` is the host memory that the buffer refers
        to.
        """
        try:
            self.image.require()  # who made the buffer may have run anybody's code
            self.loaded.launch(shape, parameters, stream, options, extents)
        except CujitError as e:
            self.report_failure(e)
            raise without_frames(e) from e.__cause__

    def report_failure(self, error: CujitError) -> None:
        """Report a launch that raises."""
        report_failure(self.name, self.device, error)
