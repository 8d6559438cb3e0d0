"""One source for many targets, in one fatbin."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import TypeAlias

from cujit.arch import Arch, ArchKind
from cujit.artifact import Artifact
from cujit.compile.bundle import Entry, bundle_images
from cujit.compile.options import Options
from cujit.compile.request import Request
from cujit.compile.route import compile_request, make_request
from cujit.compile.source import Source
from cujit.errors import ArchError, CompileError, CujitError, OptionError
from cujit.support import require_arch
from cujit.toolchain.toolset import Toolchain

__all__ = ["Native", "Progress", "build_fatbin", "parse_targets"]

Progress: TypeAlias = Callable[[int, int, str], object]
"""Called with (done, total, target) after every target."""

Native: TypeAlias = Callable[[], Sequence[Arch]]
"""Tells the real architectures of the GPUs that are present; raises DeviceNotFoundError when there are none."""


def parse_targets(targets: str | Arch | Iterable[str | Arch], native: Native, toolchain: Toolchain) -> tuple[Arch, ...]:
    """Read targets: architectures, ``all``, ``portable`` and ``native``; in order, each once.

    ``all`` is machine code for every architecture of the compiler and PTX of the highest, ``portable`` is PTX of
    the lowest, ``native`` is machine code for the GPUs that are present.

    Raises:
        ArchError: a target is malformed, unknown, or not built by this compiler.
        OptionError: there are no targets.
        DeviceNotFoundError: ``native`` without a GPU.
    """
    listed = [targets] if isinstance(targets, str | Arch) else list(targets)
    if not listed:
        raise OptionError("no targets", help="targets=['sm_90', 'compute_90'], 'all', 'portable', 'native'")
    arches: list[Arch] = []
    for target in listed:
        arches += _words(target, native, toolchain)
    nvrtc = toolchain.nvrtc
    for arch in arches:
        require_arch(arch, nvrtc.arches, "NVRTC", nvrtc.version)
    return tuple(dict.fromkeys(arches))


def _words(target: str | Arch, native: Native, toolchain: Toolchain) -> Sequence[Arch]:
    if target == "native":
        return native()
    if target == "portable":
        return [Arch(ArchKind.VIRTUAL, toolchain.nvrtc.arches[0])]
    if target == "all":
        numbers = toolchain.nvrtc.arches
        return [*(Arch(ArchKind.REAL, n) for n in numbers), Arch(ArchKind.VIRTUAL, numbers[-1])]
    try:
        return [Arch.parse(target)]
    except ArchError as e:
        raise ArchError(e.message, help=f"{e.help or ''}; or 'all', 'portable', 'native'") from None


def build_fatbin(
    source: Source | str,
    targets: Sequence[Arch],
    names: Sequence[str] | str,
    options: Options,
    toolchain: Toolchain,
    *,
    compress: str | bool | None = None,
    progress: Progress | None = None,
    jobs: int | None = None,
) -> Artifact:
    """Compile for every target and bundle the images.

    ``jobs`` threads work at a time, as many as there are processors if None. NVRTC runs one C++ front end at a
    time in a process; optimisers and assemblers of several targets overlap.

    Raises:
        CompileError: a target does not compile; with several, the message has all of them.
        OptionError: ``jobs`` is below 1, or NVRTC does not take an option.
        CujitError: see ``compile_cuda`` and ``bundle_images``.
    """
    if jobs is not None and (not isinstance(jobs, int) or jobs < 1):
        raise OptionError(f"jobs is {jobs!r}; it takes an int of at least 1")
    requests = [make_request(source, None, arch, names, options, toolchain) for arch in targets]
    workers = min(len(requests), jobs or os.cpu_count() or 1)
    with ThreadPoolExecutor(workers, thread_name_prefix="cujit-build") as pool:
        pending = {pool.submit(compile_request, r, toolchain): r for r in requests}
        try:
            done = _collect(pending, progress)
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return bundle_images([Entry(done[request]) for request in requests], compress, toolchain)


def _collect(pending: dict[Future[Artifact], Request], progress: Progress | None) -> dict[Request, Artifact]:
    artifacts: dict[Request, Artifact] = {}
    failed: dict[Request, CujitError] = {}
    for count, future in enumerate(as_completed(pending), start=1):
        request = pending[future]
        try:
            artifacts[request] = future.result()
        except CujitError as e:
            failed[request] = e
        if progress:
            progress(count, len(pending), str(request.arch))
    if failed:
        raise _all_of([(r, failed[r]) for r in pending.values() if r in failed])
    return artifacts


def _all_of(failed: Sequence[tuple[Request, CujitError]]) -> CujitError:
    """Make one error of several; targets that failed alike are told once."""
    if len(failed) == 1:
        return failed[0][1]
    alike: dict[str, list[tuple[Request, CujitError]]] = {}
    for request, error in failed:
        log = error.log if isinstance(error, CompileError) else str(error)
        alike.setdefault(log, []).append((request, error))
    if len(alike) == 1 and not isinstance(failed[0][1], CompileError):
        return failed[0][1]
    parts = []
    for log, group in alike.items():
        parts.append(f"for {', '.join(str(request.arch) for request, _ in group)}:\n{log.strip()}")
    told = "\n".join(parts)
    first = failed[0][1]
    diagnostics = [d for _, e in failed if isinstance(e, CompileError) for d in e.diagnostics]
    kind = type(first) if isinstance(first, CompileError) else CompileError
    return kind(
        f"{failed[0][0].source.name} does not compile for {len(failed)} targets\n{told}",
        request=failed[0][0],
        diagnostics=tuple(dict.fromkeys(diagnostics)),
        tool=getattr(first, "tool", ""),
        call=getattr(first, "call", ""),
        result=getattr(first, "result", ""),
        log=told,
        help=first.help,
    )
