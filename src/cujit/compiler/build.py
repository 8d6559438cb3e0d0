"""One source, or several linked together, for many targets in one fatbin."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import TypeAlias

from cujit.arch import Arch, ArchKind
from cujit.arch.support import require_arch
from cujit.artifact import Artifact
from cujit.compiler.image_jobs import BundleJob
from cujit.compiler.inputs.entry import Entry, check_compression
from cujit.compiler.inputs.source import Source
from cujit.compiler.jobs import CompileJob
from cujit.compiler.linking import Part, link_parts
from cujit.compiler.options.values import Options
from cujit.compiler.request import Request, kind_of_target
from cujit.compiler.runner import Runner
from cujit.errors import (
    ArchError,
    CompileError,
    CujitError,
    DeviceNotFoundError,
    NotCompiledError,
    OptionError,
    ToolTimeoutError,
    read_int,
    spell,
)
from cujit.errors.hints import Hint
from cujit.threads import as_done
from cujit.toolchain.toolset import Compiler, Compilers
from cujit.values import dataclass, group_by

Progress: TypeAlias = Callable[[int, int, str], object]
"""Called with (done, total, target) after every target."""

Native: TypeAlias = Callable[[], Iterable[str | Arch]]
"""Tells the real architectures of the GPUs that are present; raises DeviceNotFoundError when there are none."""


def parse_targets(
    targets: str | Arch | Iterable[str | Arch], native: Native, tools: Compilers, parts: Sequence[Part] = ()
) -> tuple[Arch, ...]:
    """Parse targets (architectures, ``all``, ``portable``, and ``native``), and return each once, in order.

    The compilers are those of ``parts``, or NVRTC without parts. ``all`` means SASS for every architecture of the
    compiler and PTX for the highest, ``portable`` means PTX for the lowest, and ``native`` means SASS for the GPUs of
    this machine.

    Raises:
        ArchError: a target is malformed, unknown, or not supported by this compiler.
        OptionError: there are no targets, or the targets or ``native`` have the wrong type.
        DeviceNotFoundError: ``native`` was requested without a GPU.
    """
    listed = [targets] if isinstance(targets, str | Arch) else _iterated(targets, "targets")
    if not listed:
        raise OptionError("targets is empty, expected at least one architecture", help=_TARGETS_HELP)
    if not callable(native):
        raise OptionError(f"native is {spell(native)}, expected a function that returns architectures")
    compilers = _compilers(parts, tools)
    common = sorted(set.intersection(*(set(compiler.arches) for compiler in compilers)))
    arches: list[Arch] = []
    for target in listed:
        arches += _words(target, native, common)
    for arch in arches:
        for compiler in compilers:
            require_arch(arch, compiler.arches, compiler.tool, compiler.version)
    return tuple(dict.fromkeys(arches))


_TARGETS_HELP = Hint(
    "write targets=['sm_90', 'compute_90'], 'all', 'portable' or 'native'",
    shell="write --target sm_90 --target compute_90, or --target all, portable or native",
)


def _iterated(given: object, what: str) -> list[str | Arch]:
    if isinstance(given, Iterable) and not isinstance(given, bytes | bytearray | memoryview):
        return list(given)
    raise OptionError(f"{what} is {spell(given)}, expected a list of architectures", help=_TARGETS_HELP)


def _compilers(parts: Sequence[Part], tools: Compilers) -> list[Compiler]:
    languages = {part.language for part in parts if isinstance(part, Source)} or {"cuda"}
    return [tools.compiler(language) for language in sorted(languages)]


def _words(target: str | Arch, native: Native, numbers: Sequence[int]) -> Sequence[Arch]:
    if target == "native":
        present = native()
        here = [present] if isinstance(present, str | Arch) else _iterated(present, "what native gives")
        if not here:
            raise DeviceNotFoundError(
                "the target 'native' requires a GPU, but this machine has none", help=_TARGETS_HELP
            )
        return sorted({Arch.parse(arch) for arch in here})
    if target == "portable":
        return [Arch(ArchKind.VIRTUAL, numbers[0])]
    if target == "all":
        return [*(Arch(ArchKind.REAL, n) for n in numbers), Arch(ArchKind.VIRTUAL, numbers[-1])]
    try:
        return [Arch.parse(target)]
    except ArchError as e:
        raise ArchError(e.message, help=(e.help or "") + "; or write 'all', 'portable' or 'native'") from None


@dataclass(frozen=True)
class _BuildTarget:
    """Work for one target. ``request`` is None if several parts are linked."""

    arch: Arch
    name: str
    make: Callable[[], Artifact]
    request: Request | None


def build_fatbin(
    parts: Sequence[Part],
    targets: Sequence[Arch],
    names: Sequence[str] | str,
    options: Options,
    runner: Runner,
    *,
    compress: str | bool | None = None,
    progress: Progress | None = None,
    jobs: int | None = None,
) -> Artifact:
    """Compile for every target, link where there are several parts, and bundle the images.

    ``jobs`` threads work at a time, as many as there are processors if None. NVRTC runs one C++ front end at a
    time in a process; optimisers and assemblers of several targets overlap.

    Raises:
        CompileError: a target does not compile; with several, the message has all of them.
        LinkError: the parts do not link for a target.
        OptionError: ``jobs`` is below 1, ``progress`` or ``compress`` are of the wrong type, or no tool takes an
            option.
        CujitError: see ``Runner.get`` and ``link_parts``.
    """
    threads = threads_of(jobs)
    check_compression(compress)
    if progress is not None and not callable(progress):
        raise OptionError(f"progress is {spell(progress)}, expected a function of (done, total, target)")
    work = [_target(parts, arch, names, options, runner) for arch in targets]
    give_up = runner.stop.ask if runner.stop else lambda: None
    with closing(as_done([target.make for target in work], threads, "cujit-build", give_up)) as made:
        done = _collect(work, made, progress)
    return runner.get(BundleJob.of([Entry(done[target.arch]) for target in work], compress))


def threads_of(jobs: object) -> int:
    """Return the number of threads: an int of at least 1, or one per processor if None.

    Raises:
        OptionError: the number is invalid.
    """
    if jobs is None:
        return os.cpu_count() or 1
    return read_int(jobs, "jobs", OptionError, least=1)


def _target(
    parts: Sequence[Part], arch: Arch, names: Sequence[str] | str, options: Options, runner: Runner
) -> _BuildTarget:
    if len(parts) == 1 and isinstance(parts[0], Source):
        job = CompileJob(Request.of(parts[0], None, arch, names, options, runner))
        return _BuildTarget(arch, parts[0].name, lambda: runner.get(job), job.request)
    wanted = [names] if isinstance(names, str) else names
    kind = kind_of_target(arch)
    shown = " + ".join(part.name for part in parts)
    return _BuildTarget(arch, shown, lambda: link_parts(parts, kind, arch, options, runner, wanted), None)


def _collect(
    work: Sequence[_BuildTarget], made: Iterator[tuple[int, Callable[[], Artifact]]], progress: Progress | None
) -> dict[Arch, Artifact]:
    artifacts: dict[Arch, Artifact] = {}
    failed: dict[Arch, CujitError] = {}
    for count, (number, result) in enumerate(made, start=1):
        arch = work[number].arch
        try:
            artifacts[arch] = result()
        except (ToolTimeoutError, NotCompiledError):
            raise  # the others have no more time either, or may not be compiled
        except CujitError as e:
            failed[arch] = e
        if progress:
            progress(count, len(work), str(arch))
    if failed:
        raise _all_of([(target, failed[target.arch]) for target in work if target.arch in failed])
    return artifacts


def _all_of(failed: Sequence[tuple[_BuildTarget, CujitError]]) -> CujitError:
    """Combine several errors into one. Equal errors of several targets are listed once."""
    target, first = failed[0]
    if len(failed) == 1:
        return first
    alike = group_by((_message(error), other.arch) for other, error in failed)
    if len(alike) == 1 and not isinstance(first, CompileError):
        return first
    logs = "\n".join(f"for {', '.join(map(str, arches))}:\n{log.strip()}" for log, arches in alike.items())
    diagnostics = [d for _, e in failed if isinstance(e, CompileError) for d in e.diagnostics]
    kind = type(first) if isinstance(first, CompileError) else CompileError
    return kind(
        f"{target.name} does not compile for {len(failed)} targets\n{logs}",
        request=target.request,
        diagnostics=tuple(dict.fromkeys(diagnostics)),
        tool=getattr(first, "tool", ""),
        call=getattr(first, "call", ""),
        result=getattr(first, "result", ""),
        log=logs,
        help=first.help,
    )


def _message(error: CujitError) -> str:
    """Return the message of an error without the target in its first line."""
    if not isinstance(error, CompileError):
        return str(error)
    head, _, rest = error.message.partition("\n")
    return rest if rest and " does not compile for " in head else error.message
