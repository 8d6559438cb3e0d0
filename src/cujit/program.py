"""Functions that compile: ``compile``, ``link``, ``bundle``, and ``build``. None of them needs a driver or a GPU.

Every function accepts options as keywords, as ``options={…}``, or both. ``docs/options.md`` lists the options.
``cache`` is the Cache to use. None means the process's cache (``default_cache()``), and False means no cache.
``timeout_s`` is the maximum number of seconds for the whole call. A longer call raises ToolTimeoutError. With
``isolate=True``, a separate process does the work, and its crash raises ToolCrashError. ``memory_mib`` limits the
address space of that process. See ``docs/limits.md`` for details.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from cujit.arch import Arch
from cujit.artifact import Artifact, ImageKind
from cujit.cache.cache import Cache
from cujit.cache.process import cache_of, settings_of
from cujit.cache.provenance import Outcome, Provenance
from cujit.cache.settings import VARIABLES, Compiling, values_of
from cujit.compiler.inputs.source import Source
from cujit.compiler.jobs import CompileJob
from cujit.compiler.options.limits import WorkLimits, take_limits
from cujit.compiler.options.values import Options
from cujit.compiler.request import Request
from cujit.compiler.runner import DECIDING, LISTENERS, Listener, Runner
from cujit.errors import DeviceNotFoundError, OptionError, ToolchainNotFoundError, spell
from cujit.errors.hints import Hint
from cujit.forks import single_flight_cache
from cujit.toolchain.headers import Settings
from cujit.toolchain.toolset import Toolchain
from cujit.values import replace
from cujit.values.keywords import has_keywords
from cujit.values.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from cujit.compiler.build import Native, Progress
    from cujit.compiler.options.keywords import CallKeywords, Keywords
    from cujit.devices.device import Device

__all__ = [
    "Options",
    "Request",
    "Source",
    "build",
    "bundle",
    "compile",
    "link",
    "request",
    "runner",
    "toolchain",
]


def toolchain() -> Toolchain:
    """Return the toolchain under the current environment. The same settings return the same value."""
    return _toolchain(Settings.from_environment(os.environ))


@single_flight_cache(8)
def _toolchain(settings: Settings) -> Toolchain:
    return Toolchain(settings)


def runner(cache: Cache | bool | None = None) -> Runner:
    """Return the current toolchain with a cache: None or True means the process's cache, False means no cache.

    Raises:
        OptionError: ``cache`` has another value, or an environment variable has an invalid value.
    """
    listeners = _listeners()
    return _runner_of(cache).with_listeners(listeners) if listeners else _runner_of(cache)


def _listeners() -> Sequence[Listener]:
    recorded, sources = values_of(_LISTENED, os.environ)
    if not recorded and not sources:
        return LISTENERS
    found = list(LISTENERS)
    if sources:
        from cujit.compiler.source_files import source_files_of  # start-up: few processes are looked at

        found.insert(0, source_files_of(os.fsdecode(sources)))
    if recorded:
        from cujit.worklist.recording import recording_of  # start-up: few processes are recorded

        found.insert(0, recording_of(os.fsdecode(recorded)))
    return found


_TOOLS = ("CUJIT_COMPILE", "CUDA_HOME", "CUDA_PATH")
_SETTINGS = (*_TOOLS, *VARIABLES)
_LISTENED = ("CUJIT_RECORD", "CUJIT_SOURCES")
RUNNER_DECIDING = tuple(dict.fromkeys((*_SETTINGS, *_LISTENED, *DECIDING)))
"""Variables of the environment that decide on the runner, on who listens to it, and on the keys that it makes."""


def _runner_of(cache: Cache | bool | None) -> Runner:
    if cache is None or cache is True:
        return _runner_under(values_of(_SETTINGS, os.environ), True)
    if cache is False or isinstance(cache, Cache):
        return _runner_under(values_of(_TOOLS, os.environ), cache)
    raise OptionError(f"cache is {spell(cache)}, expected a cujit.Cache, None or False", help="cujit.Cache(Path('…'))")


@single_flight_cache(64)  # each library that ships its kernels has a cache of its own
def _runner_under(values: tuple[str | bytes | None, ...], cache: Cache | bool) -> Runner:
    """Return the runner for the values of _SETTINGS. Without the environment's cache, only _TOOLS are used."""
    found, wanted = _tools_under(values[: len(_TOOLS)])
    if isinstance(cache, Cache):
        return _runner(found, cache, "", max(wanted, cache.compiling))
    if not cache:
        return _runner(found, None, "cache=False", wanted)
    settings = settings_of(values[len(_TOOLS) :])
    if not settings.is_on:
        return _runner(found, None, "CUJIT_CACHE is off", wanted)
    return _runner(found, cache_of(settings), "", wanted)


@single_flight_cache(8)
def _tools_under(values: tuple[str | bytes | None, ...]) -> tuple[Toolchain, Compiling]:
    chosen = {name: os.fsdecode(value) for name, value in zip(_TOOLS, values, strict=True) if value is not None}
    return _toolchain(Settings.from_environment(chosen)), Compiling.from_environment(chosen)


@single_flight_cache(64)  # as above
def _runner(toolchain: Toolchain, cache: Cache | None, off: str, compiling: Compiling) -> Runner:
    return Runner(toolchain, cache, off=off, compiling=compiling)


def request(
    source: Source | Artifact | str | os.PathLike[str],
    *,
    to: ImageKind | str | None = None,
    arch: Arch | str | None = None,
    names: Sequence[str] | str = (),
    options: Mapping[str, object] | Options | None = None,
    **more: Unpack[Keywords],
) -> Request:
    """Return a description of a compile without running it.

    Args:
        source: CUDA C++ or LLVM IR, as for ``compile``.
        to: kind of image, as for ``compile``.
        arch: architecture, as for ``compile``.
        names: template instances, as for ``compile``.
        options: compiler options, as a mapping. ``more`` are compiler options as keyword arguments.

    Raises:
        OptionError: an option, ``to``, or a name is invalid.
        ArchError: the architecture is malformed or unknown.

    Example::

        asked = cujit.request(CODE, names=["axpy<float>"], arch="sm_90", std="c++17")
        assert "--std=c++17" in asked.arguments()
    """
    return Request.of(source, to, _named_arch(arch), names, Options.of(options, more, request), runner())


@has_keywords(WorkLimits, hidden=("until",))
def compile(
    source: Source | Artifact | str | os.PathLike[str],
    *,
    to: ImageKind | str | None = None,
    arch: Arch | str | None = None,
    names: Sequence[str] | str = (),
    options: Mapping[str, object] | Options | None = None,
    cache: Cache | bool | None = None,
    **more: Unpack[CallKeywords],
) -> Artifact:
    """Compile one source for one architecture: CUDA C++ with NVRTC, LLVM IR (``Source.nvvm``) with libNVVM, or Tile
    IR (``Source.tile``) with tileiras.

    If the cache contains the result, cujit returns the cached image. The Artifact's ``provenance`` shows where the
    image came from.

    Args:
        source: CUDA C++ text, the path of a file, a ``Source``, LLVM IR (``Source.nvvm``), or Tile IR. cujit compiles
            CUDA Tile C++ to Tile IR first.
        to: kind of image: ``"ptx"``, ``"cubin"``, ``"ltoir"``, ``"optixir"`` for ``optixModuleCreate``, or
            ``"tileir"`` for the tile kernels of CUDA Tile C++. Default: a cubin for ``sm_…``, LTO-IR for ``lto_…``,
            otherwise PTX.
        arch: architecture to compile for: ``"sm_90"``, ``"compute_80"``, or ``"native"`` for the first GPU. Default:
            the lowest architecture that the compiler supports, because PTX for this architecture runs on every GPU that
            the toolkit supports.
        names: name expressions to compile, such as ``"axpy<float>"``. The Artifact contains the lowered name of each
            name expression.
            Default: the kernels in the source that aren't templates.
        options: compiler options (docs/options.md), as a mapping. ``more`` are compiler options as keyword arguments,
            which take precedence.
        cache: the Cache to use. False disables caching. Default: the process's cache.
        timeout_s: maximum seconds for the whole call (docs/limits.md).
        isolate: whether to compile in a separate process.
        memory_mib: maximum address space of the separate process, in MiB.

    Raises:
        CompileError: the source doesn't compile or doesn't contain one of the names. ``diagnostics`` contains every
            message.
        HeaderNotFoundError: an ``#include`` file was not found. The message lists the searched directories.
        ArchError: the architecture is unknown, or this compiler doesn't support it.
        NotCompiledError: no cache contains the image, and ``CUJIT_COMPILE`` or the cache forbids compiling.
        OptionError: an option is unknown, has a wrong type, or isn't supported by NVRTC.
        ToolchainNotFoundError: NVRTC is not installed.

    Example::

        image = cujit.compile(CODE, arch="compute_80", names=["axpy<float>"], use_fast_math=True)
        assert image.kind is cujit.ImageKind.PTX and "axpy<float>" in image.names
    """
    tools = _within(cache, take_limits(more))
    wanted = Request.of(source, to, _named_arch(arch), names, Options.of(options, more, compile), tools)
    if "__tile_global__" in wanted.source.text and wanted.kind in (ImageKind.PTX, ImageKind.CUBIN):
        from cujit.compiler.tiles import as_tile_ir  # start-up: few kernels work on tiles

        tile, left = as_tile_ir(wanted.source, names, wanted.options, tools)
        if tile is not wanted.source:
            wanted = Request.of(tile, wanted.kind, wanted.arch, names, left, tools)
    return tools.get(CompileJob(wanted))


@has_keywords(WorkLimits, hidden=("until",))
def link(
    inputs: Iterable[object],
    *,
    to: ImageKind | str | None = None,
    arch: Arch | str | None = None,
    device: Device | str | None = None,
    options: Mapping[str, object] | Options | None = None,
    cache: Cache | bool | None = None,
    **more: Unpack[CallKeywords],
) -> Artifact:
    """Link device code: PTX, cubins, LTO-IR, objects, archives, and fatbins, as Artifacts, paths, or bytes.

    nvJitLink links cubins. cujit's own linker links PTX files into one PTX file, and needs no toolkit. If an input is
    LTO-IR, nvJitLink processes it first. The result has the names and signatures of all inputs. See docs/linking.md.

    Args:
        inputs: Artifacts, paths, bytes, or sources. cujit first compiles sources for the same architecture.
        to: kind of image: ``"cubin"``, ``"ptx"``, or ``"ltoir"``, which can have unresolved functions and can be linked
            again. Default without a ``device``: a cubin.
        arch: architecture of the result. Default: the architecture of ``device``, otherwise the highest architecture
            among the images.
        device: device to link for. cujit creates a cubin for a GPU, and PTX for the CPU device.
        options: options for nvJitLink, as a mapping. ``more`` are options as keyword arguments.
        cache: as for ``compile``.
        timeout_s: as for ``compile``.
        isolate: as for ``compile``.
        memory_mib: as for ``compile``.

    Raises:
        LinkError: the images can't be linked. The message names the input and the symbol. For PTX, it lists every
            reason with its line number.
        CompileError: a source doesn't compile.
        ArchError: the architecture is malformed, or the linker doesn't support it.
        FormatError: an input is not an image, or its format is unknown.
        OptionError: an option is unknown, has a wrong type, or isn't supported by nvJitLink, or ``to`` is invalid.
        ToolchainNotFoundError: the link requires nvJitLink, which isn't installed, and there is no GPU driver that can
            link.

    Example::

        caller = cujit.compile("__device__ int twice(int); __global__ void k(int *p) { *p = twice(*p); }", rdc=True)
        callee = cujit.compile("__device__ int twice(int x) { return 2 * x; }", rdc=True)
        k = cujit.load(cujit.link([caller, callee], device=device), device)["k"]
    """
    from cujit.compiler.linking import link_parts, part_of  # start-up: a compile alone needs none of it

    place = None if device is None else _named(device)
    kind = _kind_of_link(to, place)
    parts = [part_of(given) for given in _listed(inputs)]
    limits = take_limits(more)
    chosen = Options.of(options, more, link)
    named = _named_arch(arch)
    target = None if named is None else Arch.parse(named)
    if target is None and place is not None and place.is_gpu:
        target = place.arch
    runner = _within(cache, limits)
    try:
        return link_parts(parts, kind, target, chosen, runner)
    except ToolchainNotFoundError as absent:
        images = [part for part in parts if isinstance(part, Artifact)]
        if kind is not ImageKind.CUBIN or len(images) < len(parts):
            raise
        return _link_by_the_driver(images, target, absent)


def _kind_of_link(to: ImageKind | str | None, device: Device | None) -> ImageKind:
    if to is None:
        return ImageKind.PTX if device is not None and not device.is_gpu else ImageKind.CUBIN
    kind = to.value if isinstance(to, ImageKind) else to
    if kind not in ("cubin", "ptx", "ltoir"):
        raise OptionError(f"a link creates a cubin, PTX or LTO-IR, not {spell(to)}")
    if kind == "cubin" and device is not None and not device.is_gpu:
        raise OptionError(
            "the CPU device doesn't run cubins",
            help=Hint("remove to, or set to='ptx'", shell="remove --to, or use --to ptx"),
        )
    return ImageKind(kind)


def bundle(
    entries: Iterable[object],
    *,
    compress: str | bool | None = None,
    cache: Cache | bool | None = None,
    timeout_s: float | None = None,
    isolate: bool = False,
    memory_mib: int | None = None,
) -> Artifact:
    """Bundle images for several architectures into one fatbin. Images can be Artifacts, Entries, paths, or bytes.

    If an entry is a fatbin, cujit adds its images, so ``bundle([fatbin, image])`` adds an image to a fatbin.
    ``Entry(image, options="-O1")`` specifies options for the tool that later compiles the PTX or LTO-IR.

    Args:
        entries: Artifacts, Entries, paths, or bytes of images.
        compress: ``"none"``, ``"size"``, ``"speed"``, ``"balance"``, ``"concat"`` (compress all images as one),
            ``"default"`` (nvFatbin compresses only PTX), or a bool. True means ``"balance"``. Default: ``"balance"``,
            or no compression if there is LTO-IR, which couldn't be extracted again. ``"balance"`` makes 80 kernels 11
            times smaller and 800 kernels 78 times smaller. Both are smaller than uncompressed kernels in a wheel.
            Bundling takes 1.1 to 1.5 times as long, and loading 1.08 to 1.16 times as long (nvFatbin 13.0 on an H200;
            ``benchmarks/fatbin_size.py``). ``"size"`` takes 30 times as long and reduces the size by another 20 to 33%.
        cache: as for ``compile``.
        timeout_s: as for ``compile``.
        isolate: as for ``compile``.
        memory_mib: as for ``compile``.

    Raises:
        BundleError: a fatbin can't contain an entry, two entries have the same kind and architecture, or an image lacks
            a kernel that another image contains.
        FormatError: an entry is not an image, or its format is unknown.
        OptionError: ``compress`` is invalid.
        ToolchainNotFoundError: nvFatbin is not installed.

    Example::

        more = cujit.bundle([fatbin, cujit.compile(CODE, arch="sm_100", names=["axpy<float>"])])
        assert len(cujit.inspect(more).images) == 4
    """
    runner = _within(cache, {"timeout_s": timeout_s, "isolate": isolate, "memory_mib": memory_mib})
    from cujit.compiler.backends.bundle import check_shadows  # start-up: a compile alone needs none of it
    from cujit.compiler.image_jobs import BundleJob  # start-up: as above
    from cujit.compiler.inputs.entry import Entry  # start-up: as above

    images = [entry for given in _listed(entries) for entry in Entry.all_of(given)]
    check_shadows(images)
    return runner.get(BundleJob.of(images, compress))


@has_keywords(WorkLimits, hidden=("until",))
def build(
    source: Source | Artifact | str | os.PathLike[str] | Sequence[object],
    targets: str | Arch | Iterable[str | Arch] = "all",
    *,
    names: Sequence[str] | str = (),
    options: Mapping[str, object] | Options | None = None,
    compress: str | bool | None = None,
    progress: Progress | None = None,
    jobs: int | None = None,
    native: Native | None = None,
    cache: Cache | bool | None = None,
    **more: Unpack[CallKeywords],
) -> Artifact:
    """Compile one source for several targets and bundle the images into one fatbin.

    If ``source`` is a list of CUDA C++ sources, LLVM IR, and images, cujit compiles and links the list for every
    target. The cache stores each target and the fatbin separately.

    Args:
        source: a source as for ``compile``, or a list of sources and images.
        targets: ``sm_…`` (SASS), ``compute_…`` (PTX), ``lto_…`` (LTO-IR), or a list of these. ``"all"`` means SASS for
            every architecture that the toolkit supports, plus the newest PTX. ``"portable"`` means the oldest PTX, and
            ``"native"`` means the GPUs in this machine.
        names: template instances, as for ``compile``.
        options: compiler options for all targets, as a mapping. ``more`` are compiler options as keyword arguments.
        compress: as for ``bundle``.
        progress: function to call with ``(done, total, target)`` after each target.
        jobs: number of compiler threads. Default: one per core.
        native: function that returns the architectures for ``"native"``. Default: use the architectures of the GPUs in
            this machine.
        cache: as for ``compile``.
        timeout_s: as for ``compile``.
        isolate: as for ``compile``.
        memory_mib: as for ``compile``.

    Raises:
        CompileError: the source doesn't compile. The message contains the errors of all targets.
        DeviceNotFoundError: ``"native"`` was requested, but there is no GPU.
        CujitError: see ``compile`` and ``bundle``.

    Example::

        image = cujit.build(CODE, ["sm_80", "sm_90", "compute_80"], names=["axpy<float>"])
        image.save("axpy.fatbin")
    """
    # Start-up: a compile alone needs none of it.
    from cujit.compiler.build import build_fatbin, parse_targets
    from cujit.compiler.linking import parts_of
    from cujit.compiler.tiles import as_tile_ir

    runner = _within(cache, take_limits(more))
    parts, chosen = parts_of(source), Options.of(options, more, build)
    if len(parts) == 1 and isinstance(parts[0], Source):
        tile, chosen = as_tile_ir(parts[0], names, chosen, runner)
        parts = (tile,)
    arches = parse_targets(targets, present_arches if native is None else native, runner, parts)
    return build_fatbin(parts, arches, names, chosen, runner, compress=compress, progress=progress, jobs=jobs)


def _within(cache: Cache | bool | None, limits: Mapping[str, Any]) -> Runner:
    """Return the runner for the work of one call. Its time limit starts now."""
    tools = runner(cache)
    return tools.within(WorkLimits.of(**limits)) if limits else tools


def _link_by_the_driver(artifacts: Sequence[Artifact], target: Arch | None, absent: ToolchainNotFoundError) -> Artifact:
    """Link with the driver of the first GPU, because nvJitLink is not installed.

    Raises:
        ToolchainNotFoundError: there is no GPU, or the target is another architecture.
        LinkError: the driver can't link the artifacts.
    """
    from cujit.devices.process import process_devices  # start-up: brings the devices, which compiling does not need

    gpus = process_devices().gpus()
    if not gpus or (target is not None and target != gpus[0].arch):
        raise absent
    linked = gpus[0].backend.link(artifacts)
    names = {name: lowered for a in artifacts for name, lowered in a.names.items()}
    signatures = {name: signature for a in artifacts for name, signature in a.signatures.items()}
    provenance = Provenance(Outcome.UNCACHED, reason="the GPU's driver linked it, and no build of that is known")
    from cujit.events.hub import emit  # start-up: for links without a linker
    from cujit.events.values import Fallback  # start-up: as above

    emit(Fallback, "compiler", "a link", f"the driver of {gpus[0].name}", absent.message)
    return replace(linked, names=names, signatures=signatures, provenance=provenance)


def _named(device: Device | str) -> Device:
    from cujit.devices.process import process_devices  # start-up: brings the devices, which compiling does not need

    return process_devices().named(device)


def present_arches() -> Sequence[Arch]:
    """Return the architectures of the GPUs of this machine, for the target ``"native"``.

    No other target queries the driver.
    """
    from cujit.devices.process import process_devices  # start-up: brings the devices, which compiling does not need

    arches = [device.arch for device in process_devices().gpus()]
    if not arches:
        raise DeviceNotFoundError(
            "the target 'native' requires a GPU, but this machine has none",
            help="specify an architecture, such as 'sm_90'",
        )
    return arches


def _named_arch(arch: Arch | str | None) -> Arch | str | None:
    """Replace ``"native"`` by the architecture of the first GPU."""
    return present_arches()[0] if arch == "native" else arch


def _listed(given: Iterable[object]) -> list[object]:
    from cujit.compiler.inputs.entry import Entry  # start-up: a compile alone needs none of it

    if isinstance(given, Artifact | Entry | Source | str | bytes | bytearray | memoryview | os.PathLike):
        return [given]
    try:
        return list(given)
    except TypeError:
        raise OptionError(f"expected a list of images, not {type(given).__name__}") from None
