"""Coverage: which lines of CUDA source ran, and how often, as lcov reads it."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import posixpath
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cujit.artifact.writing import write_file
from cujit.devices.cpu.analysis.body import Body
from cujit.devices.cpu.codegen.nodes import LAUNCH
from cujit.devices.cpu.ir.program import Op, Reg
from cujit.devices.cpu.observe.watching import WatchedKernel
from cujit.devices.cpu.run.launch import Launch, field_offset
from cujit.devices.cpu.run.source_map import Lines, SourceFunction, SourceLine
from cujit.devices.shapes import HostExtent, LaunchShape
from cujit.devices.watch import Sources, Text
from cujit.forks import Lock
from cujit.formats.mangling import demangle
from cujit.toolchain.aliases import is_of_toolkit
from cujit.values import NamedTuple

if TYPE_CHECKING:
    from cujit.devices.cpu.codegen.warp import WarpEmitter

_LIBRARY = ("cuda_runtime.h", "nv/target", "cub/cub.cuh", "thrust/version.h")
"""Files that a directory of NVIDIA's headers has one of: the toolkit's, and those of CCCL."""


class _Site(NamedTuple):
    """The subject of one counter: threads at a source line, in one basic block of one function."""

    function: SourceFunction
    source: SourceLine


class Coverage:
    """Line coverage of CUDA source code: ``cujit.cpu(coverage=cujit.Coverage())``.

    The count of a line is the number of threads that executed the line: the maximum over its instructions, summed over
    kernels and launches. Lines without instructions aren't listed. A line that no thread reached has the count 0,
    even in kernels that were loaded but not launched. Counts require line information. ``cujit.jit`` adds line
    information; with other functions, compile with ``lineinfo=True``. Optimized code can execute both sides of a
    short condition.

    Args:
        library: whether to also count lines in toolkit and CCCL headers.
        exact: whether ``cujit.jit`` compiles without optimization (``debug=True``), so that only lines on the taken
            path are counted.

    Example::

        coverage = cujit.Coverage()
        counted = cujit.cpu(coverage=coverage)
        cujit.jit(CODE, names=["axpy<float>"], device=counted, name="axpy.cu")["axpy<float>"][1, 32](2.0, x, y, 20)
        print(coverage.lines()["axpy.cu"])      # threads by line
    """

    def __init__(self, *, library: bool = False, exact: bool = False) -> None:
        self.library = library
        self.exact = exact
        self._lock = Lock()
        self._kernels: dict[tuple[str, tuple[_Site, ...]], npt.NDArray[np.uint64]] = {}
        self._lines: Counter[SourceLine] = Counter()
        self._functions: Counter[SourceFunction] = Counter()
        self._texts: dict[str, Text] = {}
        self.sources = Sources()

    def lines(self) -> dict[str, dict[int, int]]:
        """Return the thread counts by file and line. In-memory sources have the names that you specified.

        Example::

            assert cujit.Coverage().lines() == {}
        """
        lines, _ = self._counts()
        found: dict[str, dict[int, int]] = {}
        for source, count in sorted(lines.items()):
            found.setdefault(self._shown(source.file), {})[source.line] = count
        return found

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an lcov tracefile.

        cujit writes in-memory sources to ``<path>.sources``, and the tracefile refers to these files.

        Args:
            path: path of the tracefile.

        Raises:
            FileError: a file can't be written.

        Example::

            cujit.Coverage().save("cuda.info")
        """
        target = Path(path)
        lines, functions = self._counts()
        files = sorted({source.file for source in lines})
        records = [self._record(file, self._file(file, target), lines, functions) for file in files]
        write_file(target, "".join(records))

    def merge(self, other: Mapping[str, Any]) -> None:
        """Add the counts from another process, as returned by its ``dump``.

        Args:
            other: the result of ``dump`` in the other process.

        Raises:
            KeyError: the value is not a result of ``dump``.

        Example::

            coverage = cujit.Coverage()
            coverage.merge(cujit.Coverage().dump())
        """
        with self._lock:
            for file, line, count in other["lines"]:
                self._lines[SourceLine(file, line)] += count
            for name, file, line, count in other["functions"]:
                self._functions[SourceFunction(name, SourceLine(file, line))] += count
            self._texts.update({name: Text(shown, text) for name, shown, text in other["texts"]})

    def dump(self) -> dict[str, Any]:
        """Return all counts as plain lists, strings, and ints.

        Example::

            other = cujit.Coverage().dump()
        """
        lines, functions = self._counts()
        return {
            "lines": [(source.file, source.line, count) for source, count in lines.items()],
            "functions": [
                (each.name, each.begins.file, each.begins.line, count)
                for each, count in functions.items()
                if each.begins is not None
            ],
            "texts": [(name, *texts) for name, texts in self._texts.items()],
        }

    # -- what the device calls ---------------------------------------------------------------------------

    @property
    def options(self) -> tuple[str, ...]:
        """The compiler options that ``cujit.jit`` adds."""
        return ("debug",) if self.exact else ("lineinfo",)

    def watch(self, name: str, body: Body, lines: Lines) -> _CountedKernel:
        """Begin with a kernel: its lines are there from now on, with no threads."""
        sites, counters = _sites(body, lines, self._place)
        with self._lock:
            total = self._kernels.setdefault((name, sites), np.zeros(len(sites), np.uint64))
        return _CountedKernel(total, counters, self._lock)

    # -- counting up -------------------------------------------------------------------------------------

    def _counts(self) -> tuple[Counter[SourceLine], Counter[SourceFunction]]:
        with self._lock:
            lines, functions = Counter(self._lines), Counter(self._functions)
            for (_, sites), counts in self._kernels.items():
                _add(sites, counts.tolist(), lines, functions)
        if not self.library:
            lines = Counter({source: n for source, n in lines.items() if not _is_library(source.file)})
        return lines, functions

    def _record(
        self, file: str, path: str, lines: Mapping[SourceLine, int], functions: Mapping[SourceFunction, int]
    ) -> str:
        """Write one file's part. Source: lcov, geninfo(1), "Tracefile format"."""
        own = sorted((source.line, n) for source, n in lines.items() if source.file == file)
        called = sorted(
            (each.begins.line, demangle(each.name) or each.name, n)
            for each, n in functions.items()
            if each.begins is not None and each.begins.file == file
        )
        return "\n".join(
            [
                "TN:",
                f"SF:{path}",
                *(f"FN:{line},{name}" for line, name, _ in called),
                *(f"FNDA:{n},{name}" for _, name, n in called),
                f"FNF:{len(called)}",
                f"FNH:{sum(n > 0 for *_, n in called)}",
                *(f"DA:{line},{n}" for line, n in own),
                f"LF:{len(own)}",
                f"LH:{sum(n > 0 for _, n in own)}",
                "end_of_record\n",
            ]
        )

    def _place(self, source: SourceLine) -> SourceLine:
        """Return a source line with a unique file name. The name of a source that isn't a file includes the digest of
        its text.
        """
        known = self.sources.find(source.file)
        if known is None:
            return source
        digest = hashlib.sha256(known.text.encode()).hexdigest()[:8]
        name = f"{known.shown}\0{digest}"
        self._texts[name] = known
        return SourceLine(name, source.line)

    def _shown(self, file: str) -> str:
        """Return the name of a source, with a part of the text's digest if several sources have that name."""
        if file not in self._texts:
            return file
        shown, _, digest = file.partition("\0")
        if sum(text.shown == shown for text in self._texts.values()) == 1:
            return shown
        stem, ending = posixpath.splitext(shown)
        return f"{stem}-{digest}{ending}"

    def _file(self, file: str, target: Path) -> str:
        """Return the path of a source. The text of a source that is not a file is written to a file first."""
        if file not in self._texts:
            return os.path.abspath(file)
        # Whatever it is called, it stays in the directory.
        inside = posixpath.normpath("/" + self._shown(file)).lstrip("/") or "source.cu"
        path = target.with_name(target.name + ".sources") / inside
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, self._texts[file].text)
        return os.path.abspath(path)


def _add(
    sites: tuple[_Site, ...], counts: list[int], lines: Counter[SourceLine], functions: Counter[SourceFunction]
) -> None:
    """Add one kernel's counts: of the counters of a line in a function, the highest."""
    most: dict[_Site, int] = {}
    for site, count in zip(sites, counts, strict=True):
        most[site] = max(most.get(site, 0), count)
    for (function, source), count in most.items():
        lines[source] += count
        if source == function.begins:
            functions[function] += count


@functools.cache
def _is_library(file: str) -> bool:
    """Return whether a file is below a directory of NVIDIA's headers."""
    return is_of_toolkit(file) or any((parent / name).is_file() for parent in Path(file).parents for name in _LIBRARY)


def _sites(
    body: Body, lines: Lines, place: Callable[[SourceLine], SourceLine]
) -> tuple[tuple[_Site, ...], dict[Op, int]]:
    """Return the counters of a kernel, and the counter number of each operation that represents one.

    Every line has one counter per basic block. An operation with a predicate has a separate counter, because not all
    threads that reach the operation execute it.
    """
    sites: list[_Site] = []
    counters: dict[Op, int] = {}
    for each in body.bodies:
        for block in each.graph.blocks:
            seen: set[_Site] = set()
            for op in block.ops:
                site = _site(op, lines, place)
                if site is None or (site in seen and op.guard is None):
                    continue
                if op.guard is None:
                    seen.add(site)
                counters[op] = len(sites)
                sites.append(site)
    return tuple(sites), counters


def _site(op: Op, lines: Lines, place: Callable[[SourceLine], SourceLine]) -> _Site | None:
    source, function = lines.source_of(op.line), lines.function_of(op.line)
    if source is None or not source.line or function is None:
        return None
    begins = None if function.begins is None else place(function.begins)
    return _Site(SourceFunction(function.name, begins), place(source))


class _CountedKernel(WatchedKernel):
    """One kernel with line counters. Identical kernels share ``total``."""

    def __init__(self, total: npt.NDArray[np.uint64], counters: Mapping[Op, int], lock: Lock) -> None:
        self._total = total
        self._counters = counters
        self._lock = lock

    def observer(self) -> _LineCounter:
        """Return the observer that instruments the kernel."""
        return _LineCounter(self._counters)

    @contextlib.contextmanager
    def running(self, launch: Launch, shape: LaunchShape, extents: Sequence[HostExtent] = ()) -> Iterator[None]:
        """Count the lines that a launch executes, even if the launch fails."""
        del shape, extents
        counts = np.zeros(len(self._total), np.uint64)
        launch.coverage = counts.ctypes.data
        try:
            yield
        finally:
            launch.coverage = 0
            with self._lock:
                np.add(self._total, counts, out=self._total)


class _LineCounter:
    """Adds to counter ``counters[op]`` of ``Launch.coverage`` (64 bits each) the threads that do ``op``."""

    begin_region = None

    def __init__(self, counters: Mapping[Op, int]) -> None:
        self._counters = counters

    def before(self, e: WarpEmitter, op: Op) -> None:
        """Emit code that counts the lanes that execute an operation."""
        number = self._counters.get(op)
        if number is None:
            return
        b = e.builder
        self._begin(e)
        # A jump is done by whoever comes to it: its predicate only chooses where to.
        word = b.word(e.mask if op.form.is_jump else e.lanes(op))
        wide = b.resize(b.call("llvm.ctpop.i32", "i32", word), 64, signed=False)
        b.update("add", b.point("i64", "%coverage", b.integer(number, 64)), wide, "monotonic")

    def shadow_of(self, e: WarpEmitter, reg: Reg) -> None:
        """Return None, because coverage keeps no data about registers."""
        del e, reg

    def after(self, e: WarpEmitter, op: Op) -> None:
        """Do nothing, because ``before`` counts the operation."""

    def _begin(self, e: WarpEmitter) -> None:
        """Read once in a function where the counters are."""
        if e.builder.has_entry("%coverage"):
            return
        b = e.builder
        with b.at_entry():
            b.load("ptr", b.offset(LAUNCH, field_offset("coverage"), into="%coverage.at"), into="%coverage")
