"""Routes of PTX to a GPU: the driver's JIT compiler, an assembler, or lowering to a PTX version that the driver
supports.

The functions only decide. The driver's version, the GPU's architecture, and the assembler are arguments.
"""

from __future__ import annotations

from collections.abc import Callable

from cujit.arch import Arch
from cujit.arch.support import (
    Version,
    dotted,
    driver_release,
    extra_for,
    install,
    knows,
    release_of_ptx,
    toolkit_of_ptx,
)
from cujit.devices.cuda.assembler import Assembler
from cujit.devices.cuda.rules import newest_ptx, read_header, target_on, target_refusal
from cujit.devices.jit_options import JitOptions
from cujit.errors import (
    CujitError,
    DriverError,
    LoadError,
    NotCompiledError,
    PtxSyntaxError,
    ToolError,
    UnsupportedError,
)
from cujit.values import NamedTuple

_SHOWN = 6


class Chosen(NamedTuple):
    """The image for the driver, a description of the route, and the assembler's log."""

    image: bytes
    route: str
    log: str = ""


class RoutePlace(NamedTuple):
    """The facts about a GPU that the choice of a route needs.

    ``driver`` is the CUDA version of its driver, which may be the driver of ``cujit emulate``. ``find_assembler``
    returns an assembler for PTX, or None. It is called only if an assembler is needed.
    """

    arch: Arch
    name: str
    driver: Version
    find_assembler: Callable[[], Assembler | None] = lambda: None
    is_emulated: bool = False


def route_ptx(text: bytes, what: str, place: RoutePlace, options: JitOptions, *, origin: str = "") -> Chosen:
    """Choose the first route of PTX to ``place`` that works: the driver's JIT, nvJitLink, or a lower ``.version``.

    ``what`` names the image in messages. ``origin`` ends the name of the route (``of the fatbin``).

    Raises:
        LoadError: the PTX target does not run on that GPU.
        NotCompiledError: compilation is forbidden.
        DriverError: the PTX is newer than the driver, and neither of the other routes works.
        ToolError: nvJitLink was requested by name, and rejected the PTX.
    """
    header = read_header(text)
    if isinstance(header, str):
        raise LoadError(f"{what} has no {header} directive", help="check that the file is complete")
    if refusal := target_refusal(header.arch, place.arch, place.name):
        raise LoadError(f"{what} {refusal.why}", help=refusal.help)
    if options.assembler == "none":
        raise NotCompiledError(
            f"{what} is PTX for {header.arch}: the driver would have to compile it for {place.name}, but JIT "
            "compilation is forbidden",
            help=f"use an image for {place.arch}, or assembler='driver' without CUJIT_COMPILE=never-jit",
        )
    newest = newest_ptx(place.driver)
    fits = newest is None or header.version <= newest
    shown = f"PTX {header.arch}{f' {origin}' if origin else ''}"
    if options.assembler == "nvjitlink":
        return _assemble(text, what, shown, place, options, header.version, header.arch)
    if fits or newest is None:
        return Chosen(_ended(text), f"{shown}{',' * bool(origin)} through the driver's JIT")
    tried: list[str] = []
    why = f"PTX {dotted(header.version)} is newer than the driver, which is of CUDA {dotted(place.driver)}"
    if options.assembler == "auto":
        try:
            return _reported(what, why, _assemble(text, what, shown, place, options, header.version, header.arch))
        except CujitError as e:
            tried.append(_first_line(e))
    else:
        tried.append("nvJitLink was not to be used (assembler='driver', or CUJIT_COMPILE=never)")
    try:
        lowered = _lowered(text.rstrip(b"\0").decode(), newest, what)
    except (UnsupportedError, PtxSyntaxError, UnicodeDecodeError) as e:
        raise _refusal(text, what, place, header.version, newest, tried, e) from None
    route = f"{shown} lowered from {dotted(header.version)} to {dotted(newest)}, through the driver's JIT"
    return _reported(what, why, Chosen(_ended(lowered), route))


def _reported(what: str, why: str, chosen: Chosen) -> Chosen:
    """Emit a ``Fallback`` event for a route that is not the first."""
    from cujit.events.hub import emit  # start-up: most PTX is not newer than the driver
    from cujit.events.values import Fallback  # start-up: as above

    emit(Fallback, "devices", what, chosen.route, why)
    return chosen


def _assemble(
    text: bytes, what: str, shown: str, place: RoutePlace, options: JitOptions, version: Version, arch: Arch
) -> Chosen:
    """Assemble the text into a cubin. If the assembler doesn't support the text's PTX version, lower the version first.

    Raises:
        LoadError: there is no assembler, or its code is too new for the driver.
        UnsupportedError: the text is newer than the assembler, and can't be lowered.
        ToolError: the assembler rejected the text.
    """
    assembler = place.find_assembler()
    if assembler is None:
        raise LoadError("nvJitLink is not installed", help=_bring_assembler(place.arch, place.driver))
    if assembler.version[0] > place.driver[0]:
        raise LoadError(
            f"{assembler.name} generates code for CUDA {assembler.version[0]}, which drivers for CUDA "
            f"{place.driver[0]} can't load",
            code="load-mismatch",
        )
    newest = newest_ptx(assembler.version)
    note = ""
    if newest is not None and version > newest:
        text = _lowered(text.rstrip(b"\0").decode(errors="replace"), newest, what)
        note = f" lowered from {dotted(version)} to {dotted(newest)},"
    target = target_on(arch, place.arch)
    cubin, log = assembler.assemble(text, target, options, what)
    return Chosen(cubin, f"{shown}{note} assembled by {assembler.name} to a cubin for {target}", log)


def _lowered(text: str, newest: Version, what: str) -> bytes:
    """Return PTX with an older ISA version.

    Raises:
        UnsupportedError: the PTX uses a newer feature.
        PtxSyntaxError: the text is not valid PTX.
    """
    from cujit.formats.ptx.retarget import retarget_text  # for PTX that is newer than its reader alone

    return retarget_text(text, newest, None, name=what).encode()


def _refusal(
    text: bytes,
    what: str,
    place: RoutePlace,
    version: Version,
    newest: Version,
    tried: list[str],
    lowering: UnsupportedError | PtxSyntaxError | UnicodeDecodeError,
) -> DriverError:
    """Return the error that explains why no route works, and how to make a route work."""
    came = toolkit_of_ptx(version)
    of = f" (CUDA {dotted(came)})" if came else ""
    lines = [
        f"{what} is of PTX ISA {dotted(version)}{of}; the driver is of CUDA {dotted(place.driver)} and compiles PTX "
        f"up to {dotted(newest)}",
        *(f"  {reason}" for reason in tried),
        f"  it can't be lowered to {dotted(newest)}:",
        *_reasons(lowering),
    ]
    return DriverError(
        "\n".join(lines),
        tool=f"CUDA driver {dotted(place.driver)}",
        call="cuModuleLoadDataEx",
        result="CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        help=_advice(text, place, version),
    )


def _reasons(lowering: UnsupportedError | PtxSyntaxError | UnicodeDecodeError) -> list[str]:
    if isinstance(lowering, UnsupportedError):
        lines = [f"    line {line}: {construct} {why}" for line, construct, why in lowering.items[:_SHOWN]]
        more = len(lowering.items) - _SHOWN
        return [*lines, f"    … and {more} more"] if more > 0 else lines
    return [f"    {_first_line(lowering)}"]


def _advice(text: bytes, place: RoutePlace, version: Version) -> str:
    """Name the target, the wheels and the driver that would avoid the refusal."""
    ways = [f"build a cubin instead: target {place.arch}"]
    came = toolkit_of_ptx(version)
    if came is not None and came[0] <= place.driver[0] and knows(came, place.arch):
        ways.append(f"assemble it here: {_bring_assembler(place.arch, came)}")
    compiler = _wheel("nvrtc", driver_release(place.driver).toolkit, exact=True)
    ways.append(f"compile it with the driver's own release: pip install '{compiler}'")
    smallest = release_of_ptx(_lowest(text, version))
    ways.append(f"update the driver to r{smallest.driver} or later" if smallest else "update the driver")
    return "; or ".join(ways)


def _lowest(text: bytes, version: Version) -> Version:
    """Return the lowest PTX version that the text supports, or ``version`` if the text can't be parsed."""
    # Start-up: PTX that the driver takes is not parsed.
    from cujit.formats.ptx.obstacles import lowest_version
    from cujit.formats.ptx.parser import parse

    try:
        return lowest_version(parse(text.rstrip(b"\0").decode()))
    except (CujitError, UnicodeDecodeError):
        return version


def _bring_assembler(arch: Arch, toolkit: Version) -> str:
    """Return the command to install an nvJitLink that supports a GPU. The newest nvJitLink doesn't support GPUs that
    CUDA 13 dropped.
    """
    if not knows(toolkit, arch):
        return install(extra_for(arch))
    return f"pip install '{_wheel('nvjitlink', toolkit)}'"


def _wheel(library: str, toolkit: Version, *, exact: bool = False) -> str:
    """Return the pip requirement for the wheel of a library from a CUDA release."""
    project = {"nvjitlink": "nvidia-nvjitlink", "nvrtc": "nvidia-cuda-nvrtc"}[library]
    suffix = f"-cu{toolkit[0]}" if toolkit[0] < 13 else ""
    return f"{project}{suffix}{f'=={dotted(toolkit)}.*' if exact else f'>={dotted(toolkit)},<{toolkit[0] + 1}'}"


def _first_line(error: Exception) -> str:
    if isinstance(error, UnsupportedError):
        return error.message.replace("\n", " ")
    if isinstance(error, ToolError):
        wrote = next((line for line in error.log.splitlines() if line.strip()), "")
        return f"{error.message}: {wrote}" if wrote else error.message
    return str(error).splitlines()[0]


def _ended(text: bytes) -> bytes:
    """PTX as the driver reads it: up to a zero byte."""
    return text.rstrip(b"\0") + b"\0"
