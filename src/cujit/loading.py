"""Modules as users hold them, and the doors to them: ``load`` and ``jit``."""

from __future__ import annotations

import copyreg
import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from cujit.arch import Arch, ArchKind
from cujit.arch.arch import KNOWN_ARCHES
from cujit.arch.support import dotted
from cujit.artifact import Artifact, ImageKind
from cujit.artifact.opening import open_image, require_content
from cujit.cache.cache import Cache
from cujit.cache.settings import Compiling, values_of
from cujit.compiler.inputs.source import bare, is_bare
from cujit.compiler.jobs import CompileJob
from cujit.compiler.options.limits import WorkLimits, take_limits
from cujit.compiler.runner import LISTENERS, KeyedBy, Runner
from cujit.devices.arrays.array import DeviceArray
from cujit.devices.device import Device
from cujit.devices.jit_options import JitOptions
from cujit.devices.launcher.entry import LaunchEntry, LoadedImage
from cujit.devices.launcher.state import ModuleSlots
from cujit.devices.streams import Allocation, DeviceLike
from cujit.devices.watch import Text, known_to, wanted_options
from cujit.errors import (
    ArchError,
    ArgumentError,
    AttributeNotFoundError,
    LoadError,
    NotCompiledError,
    counted,
    listed,
    spell,
)
from cujit.errors.hints import Hint
from cujit.forks import cached_property
from cujit.kernel import Kernel
from cujit.machine import resolve_device
from cujit.program import RUNNER_DECIDING, Options, Request, Source, compile, runner
from cujit.toolchain.toolset import Compiler
from cujit.values import NamedTuple, replace
from cujit.values.keywords import has_keywords
from cujit.values.native import LOADED
from cujit.values.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy.typing as npt
    from typing_extensions import Unpack

    from cujit.compiler.options.keywords import CallKeywords
    from cujit.devices.globals import Globals


class Module(ModuleSlots, Mapping[str, Kernel]):
    """An Artifact loaded on a device. A Module maps names to kernels.

    ``module["axpy<float>"]`` finds a kernel by name expression, name in the source, or lowered name. Kernels keep their
    module alive. cujit unloads the module when you close the module or no longer use it.

    ``route`` describes how the image was loaded, and ``log`` contains the output of the compilers. ``load_s`` is the
    load time in seconds, including the compilation of PTX.

    You can send modules and kernels to other processes with ``pickle``. The other process loads the Artifact with the
    same ``jit`` options. The other process uses a CPU device with the same checks, or the GPU with the same number. If
    this GPU isn't visible, it uses the first visible GPU. In the other process, variables have their initial values.

    Example::

        module = cujit.load(ptx, device)
        print(module.route, [kernel.name for kernel in module.values()])
    """

    __slots__ = ()

    _image: LoadedImage
    _kernels: dict[str, Kernel]
    load_s: float

    def __init__(self, image: LoadedImage, *, load_s: float = 0.0) -> None:
        self._image, self._kernels, self.load_s = image, {}, load_s

    @property
    def artifact(self) -> Artifact:
        """The image that the kernel was loaded from."""
        return self._image.artifact

    @cached_property
    def log(self) -> str:
        """The logs of all compilers involved."""
        return self._image.about.log

    @cached_property
    def route(self) -> str:
        """How the image was loaded."""
        return self._image.about.route

    def __getitem__(self, name: str) -> Kernel:
        """Find a kernel.

        Args:
            name: a name expression, a name in the source, or a lowered name.

        Raises:
            NameNotFoundError: no kernel or several kernels have this name. The message lists the kernels.
            ClosedError: the module was closed.

        Example::

            same = module[module["axpy<float>"].lowered_name]
        """
        return self._look_up(name)

    def _look_up(self, name: str) -> Kernel:
        """Find a kernel as native code does, for an image without metadata."""
        image = self._image
        given, plain = image._given, image.device.plain_cubins
        if plain is not None and not isinstance(given, bytes) and type(name) is str:
            lowered = given.names.get(name, name)
            kernel: Kernel | None = plain.find(self, lowered, image.patterns_of(lowered))
            if kernel is not None:
                return kernel
        image.require()
        if not isinstance(name, str):
            raise ArgumentError(
                f"the name of a kernel must be a str, not {type(name).__name__} {spell(name)}",
                help="write the name of the kernel before the grid and the block: "
                f"module[{spell(next(iter(self), 'kernel'))}][grid, block](…)",
            )
        lowered = image.find(name)
        if lowered not in self._kernels:
            entry = LaunchEntry.of(self._image, lowered)
            entry.loaded  # noqa: B018 - the driver tells now if it has no such kernel
            self._kernels[lowered] = Kernel(entry)
        return self._kernels[lowered]

    def __iter__(self) -> Iterator[str]:
        names = self._image.names
        return iter([names.display[lowered] for lowered in names.lowered])

    def __len__(self) -> int:
        return len(self._image.names.lowered)

    def __getattr__(self, name: str) -> Kernel:
        """Return the kernel with an identifier as its name: ``module.axpy``. ``module["axpy"]`` finds every kernel."""
        message = f"'Module' has no attribute '{name}'"
        if name.startswith("_"):  # what Python and others look for
            raise AttributeError(message)
        from cujit.errors.other_apis import sentence_for  # start-up: for who looks a kernel up so

        sentence = sentence_for("Module", name)
        if sentence is None and name in self:
            return self[name]
        listing = f"the module has the kernels {listed(self, 12, name)}" if len(self) else "the module has no kernel"
        raise AttributeNotFoundError(message, help=sentence or listing)

    def __dir__(self) -> list[str]:
        """List the kernels with the attributes, for completion at a prompt."""
        return [*super().__dir__(), *(name for name in (() if self.closed else self) if name.isidentifier())]

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def variable(
        self, name: str, dtype: npt.DTypeLike = "uint8", shape: int | tuple[int, ...] | None = None
    ) -> DeviceArray:
        """Return the ``__device__`` or ``__constant__`` variable with this lowered name as an array.

        Args:
            name: lowered name of the variable.
            dtype: dtype of the elements.
            shape: shape of the array. Default: one axis with as many elements as fit.

        Raises:
            NameNotFoundError: no kernel or variable has that name.
            ArgumentError: the shape doesn't match the size of the variable.
            ClosedError: the module was closed.

        Example::

            bias = module.variable("bias", np.float32)
            bias.fill(0.5)
        """
        loaded = self._image.require()
        address, size = loaded.variable(name)
        whole = DeviceArray(self.device, Allocation(address, size, loaded), (size,), np.dtype(np.uint8))
        seen = whole.view(dtype)
        return seen if shape is None else seen.reshape(shape)

    @cached_property
    def globals(self) -> Globals:
        """The ``__device__`` and ``__constant__`` variables by name, to read and to write."""
        from cujit.devices.globals import Globals  # start-up: most kernels are launched without them

        return Globals(self.device, self._image.require, self.artifact)

    @property
    def device(self) -> Device:
        """The device that the module is loaded on."""
        return self._image.device

    def preload(self) -> None:
        """Load the code of all kernels onto the GPU now.

        Without this call, the driver loads the code of a kernel when you look up the kernel (``module["axpy"]``), which
        can wait for running kernels. On the CPU device, this method does nothing. To compile ahead there, call
        ``Kernel.compile`` for each block size.

        Source: CUDA C++ Programming Guide, "Lazy Loading".

        Raises:
            ClosedError: the module was closed.
            DriverError: the driver reported an error.

        Example::

            module.preload()
        """
        for kernel in self._image.require().kernels.values():
            kernel.preload()

    @property
    def closed(self) -> bool:
        """Whether the module was closed."""
        return self._image.loaded is None

    def close(self) -> None:
        """Unload the module. After this call, the module's kernels can't run. Closing the module again has no effect.

        Example::

            module = cujit.load(ptx, device)
            module.close()
            assert module.closed
        """
        self._image.close()
        for kernel in self._kernels.values():
            kernel._drop()

    def __enter__(self) -> Module:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        return Module, (self._image,)

    def __repr__(self) -> str:
        if self.closed:
            return f"<Module on {self.device.name}: closed>"
        return (
            f"<Module on {self.device.name}: {counted(len(self), 'kernel')}, {self.route or self.artifact.kind.value}>"
        )


def load(
    image: Artifact | bytes | bytearray | memoryview | str | os.PathLike[str],
    device: DeviceLike | str | None = None,
    *,
    jit: JitOptions | Mapping[str, object] | None = None,
) -> Module:
    """Load a cubin, PTX, or fatbin on a device. The image can be an Artifact, bytes, or a file path.

    If the PTX is too new for the GPU's driver, the installed nvJitLink assembles the PTX. Without nvJitLink, cujit
    lowers the ``.version`` of the PTX to the driver's version, if every construct in the PTX allows it.
    ``Module.route`` shows how cujit loaded the image.

    Args:
        image: an Artifact, the bytes of an image, the path of a file, or PTX as a multi-line str.
        device: a Device or its name. Default: the first GPU, or the CPU device if there is no GPU.
        jit: options for compiling PTX for a GPU: ``max_registers`` (per thread), ``opt_level`` (0 to 4), ``line_info``,
            ``debug``, ``cache_mode`` (``none``, ``ca``, or ``cg``), and ``split_compile`` (threads). ``max_threads``
            and ``min_blocks`` are launch bounds. ``override_directives`` also applies them to kernels with launch
            bounds. ``assembler`` is ``auto``, ``driver``, ``nvjitlink``, or ``none``. These options don't affect SASS
            or the CPU device.

    Raises:
        FormatError: the image has an unknown format or is damaged.
        LoadError: the image can't run on the device. The message states which images can run.
        NotCompiledError: the image is PTX for a GPU, and ``CUJIT_COMPILE`` doesn't allow the driver to compile it.
        DriverError: the driver rejected the image. ``log`` contains the output of the driver's compiler.
        OptionError: an option is unknown or has an invalid value.

    Example::

        module = cujit.load(fatbin, device)
        print(module.route, list(module))
    """
    place = device if type(device) is Device else resolve_device(device)
    plain = place.plain_cubins
    if plain is not None and jit is None:
        module: Module | None = plain.load(image, image)
        if module is not None:
            return module
    return _load(open_image(image, "load"), place, _AS_BUILT if jit is None else JitOptions.of(jit))


def load_artifact(artifact: Artifact, device: Device) -> Module:
    """Load an Artifact unchanged, as ``load`` does."""
    return _load(artifact, device, _AS_BUILT)


def _load(artifact: Artifact, place: Device, options: JitOptions, compiling: Compiling | None = None) -> Module:
    if artifact.kind is ImageKind.CUBIN and place.plain_cubins is not None:
        module: Module | None = place.plain_cubins.load(artifact.data, artifact)
        if module is not None:
            module._image.options = options
            loaded: Any = module._image.loaded
            loaded.arch = artifact.arch or place.arch
            return module
    if artifact.kind is not ImageKind.CUBIN:  # nobody compiles that one
        _require_loadable(artifact)
        options = options.under(Compiling.from_environment(os.environ) if compiling is None else compiling)
    start = time.perf_counter()
    image = LoadedImage(place, place.backend.load(artifact, options), artifact, options)
    return Module(image, load_s=time.perf_counter() - start)


def _loaded(artifact: Artifact, device: Device, options: JitOptions) -> LoadedImage:
    """Load an image that was pickled in another process."""
    return LoadedImage(device, device.load(artifact, options), artifact, options)


def _parts_of(image: LoadedImage) -> tuple[Callable[..., LoadedImage], tuple[object, ...]]:
    image.require()
    return _loaded, (image.artifact, image.device, image.options)


def _parts_of_kernel(kernel: Kernel) -> tuple[Callable[..., Kernel], tuple[object, ...]]:
    """Return how a kernel is pickled: as its image and its name. It is loaded once with the other kernels of its
    module.
    """
    return _kernel_of, (kernel._image, kernel.lowered_name)


def _kernel_of(image: LoadedImage, lowered: str) -> Kernel:
    return Module(image)[lowered]


ModuleSlots.made = Module
copyreg.pickle(LoadedImage, _parts_of)
copyreg.pickle(Kernel, _parts_of_kernel)


@has_keywords(WorkLimits, hidden=("until",))
def jit(
    source: Source | str | os.PathLike[str],
    *,
    names: Sequence[str] | str = (),
    device: DeviceLike | str | None = None,
    arch: Arch | str | None = None,
    options: Mapping[str, object] | Options | None = None,
    name: str | None = None,
    headers: Mapping[str, str] | None = None,
    cache: Cache | bool | None = None,
    **more: Unpack[CallKeywords],
) -> Module:
    """Compile CUDA C++ for a device and load it there.

    If NVRTC supports the GPU, cujit compiles SASS. For a newer GPU, it compiles PTX for the highest architecture below
    that of the GPU. For the CPU device, cujit compiles PTX. If the architecture has an architecture-specific variant
    (``sm_90a``, ``compute_90a``), cujit compiles for that variant, so sources can use its instructions.
    ``Module.artifact.arch`` shows the architecture. If compiling is forbidden, or if a distribution ships packs, cujit
    uses the best available image: SASS for the architecture, its family, or an older architecture, or PTX.

    Args:
        source: CUDA C++ text, the path of a file, or a ``Source``.
        names: template instances to compile, such as ``"axpy<float>"``.
        device: a Device or its name. Default: the first GPU, or the CPU device if there is no GPU.
        arch: the architecture to compile for, such as ``"sm_90"``. Default: the device's architecture, with the suffix
            ``a`` if this variant exists.
        options: compiler options, as a mapping. ``more`` are compiler options as keyword arguments.
        name: name of a source string in messages.
        headers: in-memory headers by name, for a source string.
        cache: as for ``compile``.
        timeout_s: as for ``compile``.
        isolate: as for ``compile``.
        memory_mib: as for ``compile``.

    Raises:
        CompileError: the source doesn't compile. ``diagnostics`` contains every message.
        ArchError: code for ``arch`` can't run on the GPU, or the compiler no longer supports the GPU.
        NotCompiledError: no cache contains a suitable image, and ``CUJIT_COMPILE`` or the cache forbids compiling.
        CujitError: see ``compile`` and ``load``.

    Example::

        kernel = cujit.jit(CODE, names=["axpy<float>"], device=device)["axpy<float>"]
        kernel.over(x.size)(2.0, x, y, x.size)
    """
    place = device if type(device) is Device else resolve_device(device)
    is_plain = not (options or more) and arch is None and name is None and headers is None
    short = _shortest(source, names, place, cache) if is_plain else None
    if short is not None:
        return short
    if not isinstance(source, Source):
        source = Source.cuda(source, name=name, headers=headers)
    elif name is not None or headers is not None:
        raise ArgumentError("a Source already has a name and headers", help="pass them to cujit.Source.cuda")
    limits = take_limits(more)
    tools, given = runner(cache), Options.of(options, more, jit)
    if watchers := place.backend.watchers:
        given = Options.of(wanted_options(watchers), dict(given))
    written = source
    if "__tile_global__" in source.text:
        from cujit.compiler.tiles import as_tile_ir  # start-up: few kernels work on tiles

        source, given = as_tile_ir(source, names, given, tools.within(WorkLimits.of(**limits)))
    build = functools.partial(compile, source, names=names, options=given, cache=cache, **limits)
    alike = None if arch is not None or watchers else _alike(source, names, given, place)
    made = None if alike is None else tools.hit(*alike)
    if made is None:
        found = _shipped(source, names, given, place, tools) if arch is None else None
        with known_to(watchers, _texts_of(written) if watchers else {}):
            made = found or _built(build, place, arch, tools, source.language)
            module = _module_of(made, source, given, place, tools)
        if alike is not None:
            keyed_by = _learn(alike[0], source, names, given, place, made.arch, tools)
            if is_plain and keyed_by is not None:
                _keep_shortcut(place, cache, tools, keyed_by)
    else:
        module = _module_of(made, source, given, place, tools)
    module._image.portable = functools.partial(_portable, build, made.arch or place.arch)
    module._image.sources = functools.partial(_sources_of, written)
    return module


def _alike(
    source: Source, names: Sequence[str] | str, options: Options, device: Device
) -> tuple[object, str, tuple[str, ...]] | None:
    """Name what a compile has in common with others, for ``Runner.hit``, with its text and its names, sorted.

    It is None unless the source is a text alone, and the names are plain.
    """
    wanted = (names,) if type(names) is str else names
    if not is_bare(source) or type(wanted) not in (list, tuple):
        return None
    if not all(type(name) is str and name.isascii() and name.isprintable() and name.strip() for name in wanted):
        return None
    arch = device.arch
    return (device.is_gpu, arch.number, arch.suffix, options), source.text, tuple(sorted(dict.fromkeys(wanted)))


def _learn(
    alike: object,
    source: Source,
    names: Sequence[str] | str,
    options: Options,
    device: Device,
    arch: Arch | None,
    tools: Runner,
) -> KeyedBy | None:
    """Open the short way of hits for what is alike, unless something else than the best was found.

    Return what makes their keys.
    """
    target = target_for(device, None, tools)
    if arch == target:
        request = Request.of(source, None, target, names, options, tools)
        if request.source is source and request.options == options:  # else the text is another for the compiler
            return tools.learn(alike, request)
    return None


class _Shortcut(NamedTuple):
    """How hits of plain calls are found for a device: by what, and under which values of the environment."""

    tools: Runner
    keyed_by: KeyedBy
    environment: tuple[str | bytes | None, ...]


_MOST_SHORTCUTS = 64


def _keep_shortcut(device: Device, cache: Cache | bool | None, tools: Runner, keyed_by: KeyedBy) -> None:
    if len(device.shortcuts) >= _MOST_SHORTCUTS:
        device.shortcuts.clear()
    environment = values_of(RUNNER_DECIDING, os.environ)
    device.shortcuts[cache] = tuple.__new__(_Shortcut, (tools, keyed_by, environment))  # start-up: no method is written


def _shortest(source: object, names: object, device: Device, cache: object) -> Module | None:
    """Take a hit of a call of a text and names alone, in the fewest steps; None leaves it to ``jit``."""
    if type(source) is not str or not (cache is None or type(cache) is Cache):
        return None
    shortcut: _Shortcut | None = device.shortcuts.get(cache)
    if shortcut is None or LISTENERS or device.backend.watchers:
        return None
    tools, keyed_by, environment = shortcut
    if environment != values_of(RUNNER_DECIDING, os.environ):
        return None
    wanted = (names,) if type(names) is str else tuple(names) if type(names) is list or type(names) is tuple else None
    if wanted is None or (len(wanted) > 1 and any(type(name) is not str for name in wanted)):
        return None
    given = bare(source)
    ordered = tuple(sorted(dict.fromkeys(wanted))) if len(wanted) > 1 else wanted
    made = None if given is None else tools.hit_by(keyed_by, source, ordered)
    if made is None or given is None:
        return None
    module = _module_of(made, given, _NO_OPTIONS, device, tools)
    image = module._image
    image.portable = functools.partial(_portable_of_text, given, wanted, cache, made.arch or device.arch)
    image.sources = functools.partial(_sources_of, given)
    return module


def _portable_of_text(source: Source, names: Sequence[str], cache: Cache | None, arch: Arch, **more: Any) -> Artifact:
    """Compile PTX of the text of a module."""
    return compile(source, names=names, cache=cache, arch=arch.virtual, **more)


_NO_OPTIONS = Options()


def _module_of(made: Artifact, source: Source, options: Options, device: Device, tools: Runner) -> Module:
    made = _with_device_runtime(made, device, tools)
    module = _load(made, device, _AS_BUILT, tools.compiling)
    if not made.signatures and module._image.is_empty:
        require_content(source.name, (), module.globals, is_part=bool(options.get("rdc")))
    return module


def _portable(build: Callable[..., Artifact], arch: Arch, **more: object) -> Artifact:
    """Compile PTX of the source of a module."""
    return build(arch=arch.virtual, **more)


def _sources_of(source: Source) -> dict[str, Text]:
    """Return the sources of a module by the names that the line information of its image uses."""
    own = {source.path: Text(source.name, source.text)} if source.path else {}
    return own | _texts_of(source)


_AS_BUILT = JitOptions()


def _texts_of(source: Source) -> dict[str, Text]:
    """Return the sources that are not files, by the names that the compiler knows."""
    own = {} if source.path else {source.program_name: Text(source.name, source.text)}
    return own | {name: Text(name, text) for name, text in source.headers}


def _shipped(
    source: Source, names: Sequence[str] | str, options: Options, device: Device, tools: Runner
) -> Artifact | None:
    """Find the best of what runs on a device, where what was shipped goes before what could be compiled."""
    if tools.cache is None:
        return None
    is_bound = bool(tools.cache.distribution or tools.compiling.is_forbidden)
    if not (is_bound or tools.cache.is_supplied):
        return None
    wanted = _compatible_arches(device)
    if not is_bound:
        wanted = [arch for arch in wanted if arch.number == device.arch.number and arch.is_real == device.is_gpu]
    for arch in wanted:
        found = tools.find(CompileJob(Request.of(source, None, arch, names, options, tools)))
        if found is not None:
            is_other = arch.number != wanted[0].number or arch.kind is not wanted[0].kind
            why = f"there is none for {wanted[0]}, and {arch} runs on {device.name}" if is_other else ""
            if why:
                from cujit.events.hub import emit  # start-up: for what is not the first choice
                from cujit.events.values import Fallback  # start-up: as above

                emit(Fallback, "devices", source.name, f"code for {arch}", why)
            return replace(found, provenance=replace(found.provenance, reason=why))  # type: ignore[type-var]
    return None


def _with_device_runtime(made: Artifact, device: Device, tools: Runner) -> Artifact:
    """Link what launches kernels from kernels with NVIDIA's library for that; a GPU does not load it otherwise."""
    if not device.is_gpu or made.kind is not ImageKind.CUBIN or not _contains(made.data, b"__cudaCDP2"):
        return made
    from cujit.compiler.linking import link_parts  # start-up: few kernels launch kernels

    return link_parts([made], ImageKind.CUBIN, made.arch, Options(), tools)


def _contains(data: bytes, word: bytes) -> bool:
    """Return whether bytes contain others; native code skips most of an image."""
    native = LOADED.get("contains")
    found: bool = word in data if native is None else native(data, word)
    return found


def _compatible_arches(device: Device) -> Sequence[Arch]:
    """List for what the code may be that runs on a device, the best first; the CPU device takes any PTX."""
    if device.is_gpu:
        return device.arch.served_by()
    fitting = [arch for arch in device.arch.served_by() if arch.is_virtual]
    return [*fitting, *(later for n in sorted(KNOWN_ARCHES) if (later := Arch(ArchKind.VIRTUAL, n)) not in fitting)]


def _built(
    build: Callable[..., Artifact], device: Device, arch: Arch | str | None, tools: Runner, language: str
) -> Artifact:
    """Compile; where that is forbidden, say that nothing else was found for the device either."""
    target = target_for(device, arch, tools, language)
    try:
        return build(arch=target)
    except NotCompiledError as e:
        if arch is not None:
            raise
        others, place = ", ".join(map(str, _compatible_arches(device))), f"{device.name}, {device.arch}"
        if device.is_gpu:
            from cujit.toolchain.driver import open_driver  # where there is a GPU, it is open

            place += f", driver of CUDA {dotted(open_driver().version)}"
        message = f"{e.message}\n  nor is there anything else that runs here ({place}): {others}"
        raise NotCompiledError(message, nearest=e.nearest, searched=e.searched, help=e.help) from None


def target_for(device: Device, arch: Arch | str | None, tools: Runner, language: str = "cuda") -> Arch:
    """Choose for what code is compiled that is to run on a device; ``arch`` is what was asked for, if anything.

    For the CPU device Tile IR is compiled as for sm_80. From sm_90 on its kernels may take tensor maps that a GPU's
    driver makes.

    Raises:
        ArchError: code for ``arch`` does not run there.
        ToolchainNotFoundError: there is no compiler.
    """
    if arch is None:
        own = _FOR_TILES if language == "tile" and not device.is_gpu else device.arch
        return _runnable(_best(own, device.is_gpu, tools.compiler(language)), device)
    return _runnable(Arch.parse(arch), device)


_FOR_TILES = Arch(ArchKind.REAL, 80)


@functools.lru_cache(64)
def _best(own: Arch, is_gpu: bool, compiler: Compiler) -> Arch:
    """Choose what a compiler builds for a device: code for that architecture only (``sm_90a``), if there is such.

    Sources test for that variant, and many compile into traps without it. A GPU newer than the compiler gets PTX of the
    highest architecture below it. One that is older than all of them is named as it is: the compiler then says which
    toolkit was the last to build for it.
    """
    number = own.number
    if number in compiler.arches:
        specific = own.specific(compiler.version)
        return specific if is_gpu else specific.virtual
    below = [n for n in compiler.arches if n <= number]
    return Arch(ArchKind.VIRTUAL, max(below)) if below else own


def _runnable(target: Arch, device: Device) -> Arch:
    """Refuse before compiling what a GPU would not run, as ``a`` and ``f`` code of another family; give a CPU PTX."""
    if device.is_gpu and not target.is_lto and not target.runs_on(device.arch):
        raise ArchError(
            f"code for {target} doesn't run on {device.name}, which is {device.arch}",
            help=f"remove arch, or set it to {device.arch} or {device.arch.virtual}",
            code="arch-mismatch",
        )
    return target.virtual if target.is_real and not device.is_gpu else target


_NOT_LOADABLE = {
    ImageKind.OPTIXIR: "OptiX IR is loaded by optixModuleCreate; cujit.compile(source) makes PTX",
    ImageKind.LTOIR: Hint(
        "LTO-IR must be linked before loading: call cujit.link([...], arch=...) and load the cubin",
        shell="LTO-IR must be linked before loading: run cujit link FILE -o x.cubin and load the cubin",
    ),
    ImageKind.OBJECT: Hint(
        "a host object must be linked first: call cujit.link([...], arch=...), then load the cubin",
        shell="a host object must be linked first: run cujit link FILE -o x.cubin, then load the cubin",
    ),
    ImageKind.LIBRARY: Hint(
        "a library must be linked first: call cujit.link([...], arch=...), then load the cubin",
        shell="a library must be linked first: run cujit link FILE -o x.cubin, then load the cubin",
    ),
    ImageKind.NVVMIR: Hint(
        "LLVM IR must be compiled first: cujit.compile(cujit.Source.nvvm(...))",
        shell="LLVM IR must be compiled first: cujit compile FILE.ll",
    ),
    ImageKind.TILEIR: Hint(
        "Tile IR must be compiled first: call cujit.compile(image, arch='sm_…') or cujit.jit(cujit.Source.tile(image))",
        shell="Tile IR must be compiled first: run cujit compile FILE --arch sm_…",
    ),
    ImageKind.TUNING: "it says which variant is the fastest, and cujit.tune loads that one",
    ImageKind.FILES: "these are files of another compiler's cache, which that compiler loads",
}


def _require_loadable(artifact: Artifact) -> None:
    """Refuse the kinds that run nowhere as they are."""
    if artifact.kind in _NOT_LOADABLE:
        name = f" {artifact.name}" if artifact.name else ""
        raise LoadError(f"can't load the {artifact.kind.value}{name}", help=_NOT_LOADABLE[artifact.kind])
