"""What cujit finds on this machine, part by part: ``cujit.doctor()``."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from cujit.arch.support import Version, install
from cujit.devices.device import Device
from cujit.devices.process import process_devices
from cujit.errors import CujitError
from cujit.machine.trial import COMPILER, TRIALS, failures, needs_compiler
from cujit.program import toolchain
from cujit.toolchain.driver import open_driver
from cujit.toolchain.headers import HeaderSearch, IncludeDirectory, bundle_directory, find_headers
from cujit.toolchain.libraries import find_program, is_emulated, load_binding, open_library, real_path
from cujit.toolchain.toolset import Toolchain
from cujit.values import dataclass, replace

State = str
"""``ok``, ``missing``, ``mismatch``, or ``absent`` for what may be missing."""


@dataclass(frozen=True)
class Component:
    """One part and what was found of it.

    ``found_via`` is the step of the search that found ``path``. ``problem`` says what is wrong, ``fix`` the
    command or action against it. A part that is not ``needed`` may be missing.
    """

    name: str
    purpose: str
    needed: bool
    version: str = ""
    path: str = ""
    found_via: str = ""
    problem: str = ""
    fix: str = ""
    is_there: bool = True

    @property
    def state(self) -> State:
        """How it stands."""
        if not self.is_there:
            return "missing" if self.needed else "absent"
        return "mismatch" if self.problem else "ok"


@dataclass(frozen=True)
class Health:
    """All parts, and the devices that run kernels; printed, what is not as it should be, with what to do."""

    parts: tuple[Component, ...]
    devices: tuple[Device, ...]

    @property
    def is_good(self) -> bool:
        """Whether everything that is needed is there and matches."""
        return all(p.state in ("ok", "absent") for p in self.parts if p.needed)

    @property
    def fixes(self) -> tuple[str, ...]:
        """What to do about the parts that are needed, each thing once."""
        return tuple(dict.fromkeys(p.fix for p in self.parts if p.needed and p.state != "ok" and p.fix))

    def __str__(self) -> str:
        if self.is_good:
            return "All required parts are installed."
        found = [f"{p.name}: {p.problem}" for p in self.parts if p.needed and p.problem]
        return "\n".join([*found, *(f"fix with: {fix}" for fix in self.fixes)])


def doctor() -> Health:
    """Find all libraries, headers, and devices, and test whether they work and have matching versions.

    cujit tests each part that it finds in a separate process. The tests compile, link, bundle, and launch one line of
    code.

    Example::

        health = cujit.doctor()
        for part in health.parts:
            print(part.name, part.state, part.version)
    """
    tools = toolchain()
    bindings = _bindings()
    major = bindings.version.partition(".")[0] or "13"
    fix = install(f"cu{major if major in ('12', '13') else '13'}")
    compiler = _compiler(tools, bindings.version, fix)
    against = tools.nvrtc.version if compiler.is_there else None
    libraries = (
        _library("nvJitLink", "nvJitLink", "linking", lambda: tools.nvjitlink.version, against, fix),
        _library("nvFatbin", "nvfatbin", "building fatbins", lambda: tools.nvfatbin.version, against, fix),
    )
    driver, gpus = _driver()
    cpu_part, cpu = _cpu()
    more = (_nvvm(fix), *_tiles(tools))
    parts = (bindings, compiler, *libraries, *more, *_headers(tools, against, int(major), fix), driver, cpu_part)
    return Health(_tried(parts, fix, has_gpus=bool(gpus)), (*gpus, *cpu))


def _tried(parts: tuple[Component, ...], fix: str, *, has_gpus: bool) -> tuple[Component, ...]:
    """Return the parts after a trial of each, with the problem that a trial showed and its fix."""
    sound = [part.name for part in parts if part.name in TRIALS and part.is_there and not part.problem]
    tried = [name for name in sound if COMPILER in sound or not needs_compiler(name)]
    broken = failures([name for name in tried if name != "CUDA driver" or has_gpus])
    return tuple(
        _with(part, problem=f"does not work: {broken[part.name]}", fix=f"{part.fix or fix} --force-reinstall")
        if part.name in broken
        else part
        for part in parts
    )


def _bindings() -> Component:
    part = Component("cuda-bindings", "calling NVIDIA's libraries", needed=True)
    try:
        return _with(part, version=importlib.metadata.version("cuda-bindings"))
    except importlib.metadata.PackageNotFoundError:
        return _gone(part, "cuda-bindings is not installed", "pip install cuda-bindings")


def _compiler(tools: Toolchain, bindings: str, fix: str) -> Component:
    part = Component("NVRTC", "compiling CUDA C++", needed=True)
    try:
        version = tools.nvrtc.version
    except CujitError as e:
        return _gone(part, e.message, fix)
    problem = ""
    if bindings and bindings.partition(".")[0] != str(version[0]):
        problem = f"cuda-bindings {bindings} are for another major version"
    return _located(_with(part, version=_text(version), problem=problem, fix=fix if problem else ""), "nvrtc")


def _library(
    name: str, file: str, purpose: str, version_of: Callable[[], Version], compiler: Version | None, fix: str
) -> Component:
    part = Component(name, purpose, needed=True)
    try:
        version = version_of()
    except CujitError as e:
        return _gone(part, e.message, fix)
    problem = library_problem(version, compiler)
    return _located(_with(part, version=_text(version), problem=problem, fix=fix if problem else ""), file)


def library_problem(version: Version, compiler: Version | None) -> str:
    """Return why a linker or packer does not match the compiler. ``""`` if it does.

    Source: nvJitLink 13 user guide, "Compatibility": it takes images of its own major version, made by a
    compiler that is no newer.
    """
    if compiler is None or (version[0] == compiler[0] and version >= compiler):
        return ""
    relation = "older than" if version < compiler else "of a later major version than"
    return f"{_text(version)} is {relation} the compiler, {_text(compiler)}"


def _nvvm(fix: str) -> Component:
    part = Component("libNVVM", "compiling LLVM IR", needed=False)
    try:
        api = load_binding("nvvm", "libNVVM")
        version: Version = open_library("libNVVM", "nvvm", api.version)
    except CujitError as e:
        return _gone(part, e.message, fix)
    return _located(_with(part, version=f"API {_text(version)}"), "nvvm")


def _tiles(tools: Toolchain) -> Iterator[Component]:
    """Find the programs of Tile IR."""
    fix, homes = install("tile"), [home for _, home in tools.settings.cuda_homes]
    part = Component("tileiras", "compiling CUDA Tile IR", needed=False)
    try:
        program = tools.tileiras
        yield _with(part, version=_text(program.version), path=program.path)
    except CujitError as e:
        yield _gone(part, e.message, fix)
    part = Component("tileirdisasm", "printing CUDA Tile IR", needed=False)
    path = find_program(part.name, homes)
    yield _gone(part, f"{part.name} is not installed", fix) if path is None else _with(part, path=path)


_HEADERS = {
    "CUDA runtime headers": ("cuda_fp16.h and others", True),
    "CCCL": ("cuda/std, cub, thrust", True),
    "crt": ("mma.h", False),
}


def _headers(tools: Toolchain, compiler: Version | None, major: int, fix: str) -> list[Component]:
    search = tools.headers if compiler else find_headers(tools.settings, major, None)
    bundle = bundle_directory(tools.nvrtc.library_path) if compiler else None
    bundled = [IncludeDirectory(bundle, part, _BUNDLED) for part in search.missing] if bundle else []
    search = search._replace(directories=(*search.directories, *bundled))
    return [_header(search, name, purpose, needed, compiler, fix) for name, (purpose, needed) in _HEADERS.items()]


_BUNDLED = "NVRTC, which installs them for the first source that includes a header"


def _header(
    search: HeaderSearch, name: str, purpose: str, needed: bool, compiler: Version | None, fix: str
) -> Component:
    part = Component("CUDA crt headers" if name == "crt" else name, purpose, needed)
    found = next((d for d in search.directories if d.part == name), None)
    if found is None:
        return _gone(part, f"looked in {len(search.tried)} places", fix)
    version = _header_version(Path(found.path))
    part = _with(part, path=found.path, found_via=found.found_via, version=_text(version) if version else "")
    if version and compiler and version != compiler:
        return _with(part, problem=f"{_text(version)} is not the compiler's version, {_text(compiler)}", fix=fix)
    return part


_CUDART_VERSION = re.compile(rb"#define\s+CUDART_VERSION\s+(\d+)")


def _header_version(directory: Path) -> Version | None:
    """Read the version that the runtime's header states, 1000 × major + 10 × minor; None for other headers."""
    try:
        with (directory / "cuda_runtime_api.h").open("rb") as file:
            match = _CUDART_VERSION.search(file.read(65536))
    except OSError:
        return None
    return (int(match[1]) // 1000, int(match[1]) % 1000 // 10) if match else None


def _driver() -> tuple[Component, tuple[Device, ...]]:
    part = Component("CUDA driver", "GPUs", needed=False)
    try:
        driver = open_driver()
        gpus = process_devices().gpus()
    except CujitError as e:
        if type(e.__cause__).__name__ == "DynamicLibNotFoundError":
            return _gone(part, "not found (you need it only to use a GPU)", "install NVIDIA's display driver"), ()
        return _gone(part, e.message, e.help or ""), ()
    return _located(_with(part, version=_text(driver.version)), "cuda"), gpus


def _cpu() -> tuple[Component, tuple[Device, ...]]:
    part = Component("llvmlite", "the CPU device", needed=True)
    try:
        version = importlib.metadata.version("llvmlite")
        return _with(part, version=version), (process_devices().cpu(),)
    except (ImportError, OSError) as e:  # PackageNotFoundError is an ImportError
        return _gone(part, str(e), "pip install llvmlite"), ()


def _located(part: Component, library: str) -> Component:
    """Add where an opened library is, and which step of cuda.pathfinder's search found it.

    Of one that ``cujit emulate`` stands before, it is said where NVIDIA's lies.
    """
    from cuda.pathfinder import load_nvidia_dynamic_lib  # optional: cuda-bindings bring it

    try:
        found = load_nvidia_dynamic_lib(library)
    except (RuntimeError, OSError):
        return part
    path = found.abs_path or ""
    via = "cujit emulate" if path and is_emulated(path) else (found.found_via or "").replace("-", " ")
    return _with(part, path=real_path(path), found_via=via)


def _with(part: Component, **changes: object) -> Component:
    return replace(part, **changes)  # type: ignore[arg-type]


def _gone(part: Component, problem: str, fix: str) -> Component:
    return replace(part, is_there=False, problem=problem, fix=fix)


def _text(version: Version) -> str:
    return f"{version[0]}.{version[1]}"
