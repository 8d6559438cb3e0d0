"""The façade of compiling: ``compile``, ``link``, ``bundle`` and ``build``. None of them needs a driver or a GPU.

Every function takes options as keywords, as ``options={…}``, or both; ``docs/options.md`` lists them. ``cache`` is the
Cache to use; None is the process's (``default_cache()``), False none. ``timeout_s`` are the seconds that the whole call
may take; past them it is a ToolTimeoutError. With ``isolate=True`` a process apart does the work, and its death is a
ToolCrashError; ``memory_mib`` limits its address space. ``docs/limits.md`` says more.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from cujit.arch import Arch
from cujit.artifact import Artifact, Kind
from cujit.cache.cache import Cache
from cujit.cache.process import cache_of, settings_of
from cujit.cache.provenance import Outcome, Provenance
from cujit.cache.settings import VARIABLES, Compiling, values_of
from cujit.compiler.inputs.source import Source
from cujit.compiler.jobs import CompileJob
from cujit.compiler.options.limits import WorkLimits
from cujit.compiler.options.values import Options
from cujit.compiler.request import Request
from cujit.compiler.runner import LISTENERS, Listener, Runner
from cujit.errors import DeviceNotFoundError, OptionError, ToolchainNotFoundError, spell
from cujit.forks import single_flight_cache
from cujit.toolchain.headers import Settings
from cujit.toolchain.toolset import Toolchain
from cujit.values import replace
from cujit.values.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from cujit.compiler.build import Native, Progress
    from cujit.compiler.options.keywords import Keywords
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
        OptionError: ``cache`` is none of these, or a variable of the environment has a value that it cannot have.
    """
    listeners = _listeners()
    return _runner_of(cache).with_listeners(listeners) if listeners else _runner_of(cache)


def _listeners() -> Sequence[Listener]:
    recorded, sources = values_of(("CUJIT_RECORD", "CUJIT_SOURCES"), os.environ)
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


def _runner_of(cache: Cache | bool | None) -> Runner:
    if cache is None or cache is True:
        return _runner_under(values_of(_SETTINGS, os.environ), True)
    if cache is False or isinstance(cache, Cache):
        return _runner_under(values_of(_TOOLS, os.environ), cache)
    raise OptionError(f"cache is {spell(cache)}; it takes a cujit.Cache, None or False", help="cujit.Cache(Path('…'))")


@single_flight_cache(64)  # each library that ships its kernels has a cache of its own
def _runner_under(values: tuple[str | bytes | None, ...], cache: Cache | bool) -> Runner:
    """Return the runner under the values of _SETTINGS, or of only _TOOLS if no cache of theirs is wanted."""
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
    to: Kind | str | None = None,
    arch: Arch | str | None = None,
    names: Sequence[str] | str = (),
    options: Mapping[str, object] | Options | None = None,
    **more: Unpack[Keywords],
) -> Request:
    """Describe a compile without doing it: what ``compile`` would do, to print.

    Args:
        source: CUDA C++ or LLVM IR, as for ``compile``.
        to: what comes out, as for ``compile``.
        arch: the architecture, as for ``compile``.
        names: the instances of templates, as for ``compile``.
        options: of the compiler, as a mapping; ``more`` are such as keywords.

    Raises:
        OptionError: an option, ``to`` or a name is wrong.
        ArchError: the architecture is malformed or unknown.

    Example::

        asked = cujit.request(CODE, names=["axpy<float>"], arch="sm_90", std="c++17")
        assert "--std=c++17" in asked.arguments()
    """
    return Request.of(source, to, _named_arch(arch), names, Options.of(options, more, request), runner())


def compile(
    source: Source | Artifact | str | os.PathLike[str],
    *,
    to: Kind | str | None = None,
    arch: Arch | str | None = None,
    names: Sequence[str] | str = (),
    options: Mapping[str, object] | Options | None = None,
    cache: Cache | bool | None = None,
    timeout_s: float | None = None,
    isolate: bool = False,
    memory_mib: int | None = None,
    **more: Unpack[Keywords],
) -> Artifact:
    """Compile one source for one architecture: CUDA C++ through NVRTC, LLVM IR (``Source.nvvm``) through libNVVM.

    What the same inputs have made before comes out of the cache; ``provenance`` of the Artifact tells.

    Args:
        source: text of CUDA C++, the path of a file, a ``Source``, or LLVM IR (``Source.nvvm``).
        to: ``"ptx"``, ``"cubin"``, ``"ltoir"``, or ``"optixir"``, which ``optixModuleCreate`` takes; if None, the
            architecture tells: ``sm_…`` makes a cubin, ``lto_…`` LTO-IR, anything else PTX.
        arch: ``"sm_90"``, ``"compute_80"``, or ``"native"``, the first GPU's. Default: the lowest of the compiler,
            since PTX of it runs on every GPU that the toolkit knows.
        names: name expressions (``"axpy<float>"``) whose lowered names the Artifact carries; without any, kernels that
            are no templates are named where the text shows them.
        options: of the compiler (docs/options.md), as a mapping; ``more`` are such as keywords, which win.
        cache: the Cache to use; None is the process's, False none.
        timeout_s: seconds that the whole call may take (docs/limits.md).
        isolate: whether a process apart does the work.
        memory_mib: the address space of that process, in MiB.

    Raises:
        CompileError: the source does not compile, or a name is not in it; ``diagnostics`` has every message.
        HeaderNotFoundError: an ``#include`` was not found; the message lists what was searched.
        ArchError: the architecture is unknown, or this compiler does not build for it.
        NotCompiledError: no cache has it, and ``CUJIT_COMPILE`` or the cache forbids to compile.
        OptionError: an option is unknown, ill-typed or not taken by NVRTC.
        ToolchainNotFoundError: NVRTC is not installed.

    Example::

        image = cujit.compile(CODE, arch="compute_80", names=["axpy<float>"], use_fast_math=True)
        assert image.kind is cujit.Kind.PTX and "axpy<float>" in image.names
    """
    is_bound = isolate is not False or timeout_s is not None or memory_mib is not None
    tools = _within(cache, timeout_s, isolate, memory_mib) if is_bound else runner(cache)
    wanted = Request.of(source, to, _named_arch(arch), names, Options.of(options, more, compile), tools)
    return tools.get(CompileJob(wanted))


def link(
    inputs: Iterable[object],
    *,
    to: Kind | str | None = None,
    arch: Arch | str | None = None,
    device: Device | str | None = None,
    options: Mapping[str, object] | Options | None = None,
    cache: Cache | bool | None = None,
    timeout_s: float | None = None,
    isolate: bool = False,
    memory_mib: int | None = None,
    **more: Unpack[Keywords],
) -> Artifact:
    """Link images of device code: Artifacts, paths or bytes of PTX, cubins, LTO-IR, objects, archives, fatbins.

    A cubin is nvJitLink's work. PTX of PTX is our own linker's, which needs no toolkit; LTO-IR among the inputs goes
    through nvJitLink first. Names and signatures of the inputs are joined. ``docs/linking.md`` has the rules.

    Args:
        inputs: Artifacts, paths or bytes, and sources, which are compiled first for the same architecture.
        to: ``"cubin"``, ``"ptx"``, or ``"ltoir"``, which is linked further and may lack functions. Default: a cubin
            without ``device``.
        arch: the architecture; without it, the device's, or else the highest of the images.
        device: link for a device: a cubin for a GPU, PTX for the CPU device.
        options: of nvJitLink, as a mapping; ``more`` are such as keywords.
        cache: as for ``compile``.
        timeout_s: as for ``compile``.
        isolate: as for ``compile``.
        memory_mib: as for ``compile``.

    Raises:
        LinkError: the images do not link; the message names input and symbol, and of PTX every reason with its line.
        CompileError: a source among the inputs does not compile.
        ArchError: the architecture is malformed, or unknown to the linker.
        FormatError: an input is no image that cujit knows.
        OptionError: an option is unknown, ill-typed or not taken by nvJitLink, or ``to`` is neither.
        ToolchainNotFoundError: nvJitLink is needed and not installed, and there is no GPU whose driver could link.

    Example::

        caller = cujit.compile("__device__ int twice(int); __global__ void k(int *p) { *p = twice(*p); }", rdc=True)
        callee = cujit.compile("__device__ int twice(int x) { return 2 * x; }", rdc=True)
        k = cujit.load(cujit.link([caller, callee], device=device), device)["k"]
    """
    from cujit.compiler.linking import link_parts, part_of  # start-up: a compile alone needs none of it

    place = None if device is None else _named(device)
    kind = _kind_of_link(to, place)
    parts = [part_of(given) for given in _listed(inputs)]
    chosen = Options.of(options, more, link)
    named = _named_arch(arch)
    target = None if named is None else Arch.parse(named)
    if target is None and place is not None and place.is_gpu:
        target = place.arch
    runner = _within(cache, timeout_s, isolate, memory_mib)
    try:
        return link_parts(parts, kind, target, chosen, runner)
    except ToolchainNotFoundError as absent:
        images = [part for part in parts if isinstance(part, Artifact)]
        if kind is not Kind.CUBIN or len(images) < len(parts):
            raise
        return _link_by_the_driver(images, target, absent)


def _kind_of_link(to: Kind | str | None, device: Device | None) -> Kind:
    if to is None:
        return Kind.PTX if device is not None and not device.is_gpu else Kind.CUBIN
    kind = to.value if isinstance(to, Kind) else to
    if kind not in ("cubin", "ptx", "ltoir"):
        raise OptionError(f"a link makes cubin, ptx or ltoir, not {spell(to)}")
    if kind == "cubin" and device is not None and not device.is_gpu:
        raise OptionError("the CPU device runs no cubin", help="leave to out, or to='ptx'")
    return Kind(kind)


def bundle(
    entries: Iterable[object],
    *,
    compress: str | bool | None = None,
    cache: Cache | bool | None = None,
    timeout_s: float | None = None,
    isolate: bool = False,
    memory_mib: int | None = None,
) -> Artifact:
    """Pack images for several architectures into one fatbin: Artifacts, Entries, paths or bytes.

    A fatbin among the entries stands for the images in it, so one more architecture is ``bundle([fatbin, image])``.
    ``Entry(image, options="-O1")`` gives options to the tool that compiles PTX or LTO-IR later.

    Args:
        entries: Artifacts, Entries, paths or bytes of images.
        compress: a bool, or ``"none"``, ``"size"``, ``"speed"``, ``"balance"``, ``"concat"``, which compresses all
            images as one, or ``"default"``, which leaves it to nvFatbin: it compresses PTX alone. None and True are
            ``"balance"``, but None compresses nothing where there is LTO-IR, which could not be taken out again. Why:
            80 kernels become 11 times smaller, 800 become 78 times, smaller than a wheel deflates them; they are made
            in 1.1 to 1.5 times the time and loaded in 1.08 to 1.16 times (nvFatbin 13.0, an H200;
            ``benchmarks/fatbin_size.py``). ``"size"`` takes 30 times as long for a fifth to a third less.
        cache: as for ``compile``.
        timeout_s: as for ``compile``.
        isolate: as for ``compile``.
        memory_mib: as for ``compile``.

    Raises:
        BundleError: an entry does not go into a fatbin, two are of one kind for one architecture, or one that a GPU
            would take lacks a kernel that another has.
        FormatError: an entry is no image that cujit knows.
        OptionError: ``compress`` is none of these.
        ToolchainNotFoundError: nvFatbin is not installed.

    Example::

        more = cujit.bundle([fatbin, cujit.compile(CODE, arch="sm_100", names=["axpy<float>"])])
        assert len(cujit.inspect(more).images) == 4
    """
    runner = _within(cache, timeout_s, isolate, memory_mib)
    from cujit.compiler.backends.bundle import check_shadows  # start-up: a compile alone needs none of it
    from cujit.compiler.image_jobs import BundleJob  # start-up: as above
    from cujit.compiler.inputs.entry import Entry  # start-up: as above

    images = [entry for given in _listed(entries) for entry in Entry.all_of(given)]
    check_shadows(images)
    return runner.get(BundleJob.of(images, compress))


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
    timeout_s: float | None = None,
    isolate: bool = False,
    memory_mib: int | None = None,
    **more: Unpack[Keywords],
) -> Artifact:
    """Compile one source for several targets and bundle the images into one fatbin.

    A list of sources, of CUDA C++ and LLVM IR, and of images is compiled and linked for every target. Each target and
    the fatbin are cached by themselves.

    Args:
        source: as for ``compile``, or a list of sources and images.
        targets: ``sm_…`` (machine code), ``compute_…`` (PTX), ``lto_…`` (LTO-IR), ``"all"`` (machine code for every
            architecture of the toolkit, and the newest PTX), ``"portable"`` (the oldest PTX), ``"native"`` (the GPUs of
            this machine), or a list of these.
        names: the instances of templates, as for ``compile``.
        options: of the compiler, for all targets; ``more`` are such as keywords.
        compress: as for ``bundle``.
        progress: is called with (done, total, target) as targets are done.
        jobs: how many threads compile; None is one per processor.
        native: gives the architectures that ``"native"`` stands for, instead of the GPUs of this machine.
        cache: as for ``compile``.
        timeout_s: as for ``compile``.
        isolate: as for ``compile``.
        memory_mib: as for ``compile``.

    Raises:
        CompileError: the source does not compile; with several targets, the message has all of them.
        DeviceNotFoundError: ``"native"`` and there is no GPU.
        CujitError: see ``compile`` and ``bundle``.

    Example::

        image = cujit.build(CODE, ["sm_80", "sm_90", "compute_80"], names=["axpy<float>"])
        image.save("axpy.fatbin")
    """
    # Start-up: a compile alone needs none of it.
    from cujit.compiler.build import build_fatbin, parse_targets
    from cujit.compiler.linking import parts_of

    runner = _within(cache, timeout_s, isolate, memory_mib)
    parts = parts_of(source)
    arches = parse_targets(targets, present_arches if native is None else native, runner, parts)
    chosen = Options.of(options, more, build)
    return build_fatbin(parts, arches, names, chosen, runner, compress=compress, progress=progress, jobs=jobs)


def _within(cache: Cache | bool | None, timeout_s: float | None, isolate: bool, memory_mib: int | None) -> Runner:
    """Return the runner for the work of one call. Its time limit starts now."""
    return runner(cache).within(WorkLimits.of(timeout_s, isolate, memory_mib))


def _link_by_the_driver(artifacts: Sequence[Artifact], target: Arch | None, absent: ToolchainNotFoundError) -> Artifact:
    """Link with the driver of the first GPU, where nvJitLink is not installed.

    Raises:
        ToolchainNotFoundError: there is no GPU, or the link is for another.
        LinkError: the driver does not link these.
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
    """The architectures of the GPUs of this machine, for the target ``"native"``; nothing else asks the driver."""
    from cujit.devices.process import process_devices  # start-up: brings the devices, which compiling does not need

    arches = [device.arch for device in process_devices().gpus()]
    if not arches:
        raise DeviceNotFoundError(
            "the target 'native' means the GPUs of this machine, and it has none",
            help="name an architecture: 'sm_90'",
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
        raise OptionError(f"a list of images is wanted, not {type(given).__name__}") from None
