"""What NVRTC itself says it read: its time trace, taken in a process of its own; before 13.0, its system calls.

A trace that cannot be written ends the process, and each leaves some megabytes behind (measured, 13.5). Before 13.0 it
lists no headers; there ``strace`` tells, where it is installed.
``python traced.py`` reads from stdin a JSON list of (text, program name, headers, arguments) and writes, for each, None
where it did not compile, or the list of files of the trace; with ``--untraced`` an empty list.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

Unit = tuple[str, str, Sequence[tuple[str, str]], Sequence[str]]


_MARK = "/dev/../dev/null"


def can_trace(version: tuple[int, int]) -> bool:
    """Tell whether anything can say here what an NVRTC of that version reads."""
    return version >= (13, 0) or shutil.which("strace") is not None


def read_by_nvrtc(
    units: Sequence[Unit], version: tuple[int, int], directory: str | None = None
) -> list[list[str] | None]:
    """Compile each unit in one other process; give the files that it opened, or None where it does not compile.

    Of system calls, the files that are no headers are among them.
    """
    with tempfile.TemporaryDirectory() as logs:
        log = Path(logs, "calls")
        watch = ["strace", "-f", "-qq", "-z", "-s", "4096", "-e", "trace=openat,openat2", "-o", str(log)]
        before, after = ([], []) if version >= (13, 0) else (watch, ["--untraced"])
        command = [*before, sys.executable, __file__, *after]
        done = subprocess.run(
            command, input=json.dumps(units), capture_output=True, text=True, check=True, cwd=directory
        )
        answers: list[list[str] | None] = json.loads(done.stdout)
        if before:
            opened = _by_unit(log.read_text("utf-8", "surrogateescape"))
            answers = [None if answer is None else opened[i] for i, answer in enumerate(answers)]
    return answers


def _by_unit(log: str) -> list[list[str]]:
    """Read what was opened from a log; the mark begins a unit."""
    units: list[list[str]] = []
    for match in re.finditer(r'openat2?\([^"\n]*"((?:[^"\\\n]|\\.)*)"', log):
        path = match[1].encode("latin-1").decode("unicode_escape").encode("latin-1").decode("utf-8", "surrogateescape")
        if path == _MARK:
            units.append([])
        elif units:
            units[-1].append(path)
    return units


def _compiled(unit: Unit, trace: Path | None) -> list[str] | None:
    from cujit.errors import ToolError
    from cujit.toolchain.nvrtc import Nvrtc

    text, name, headers, arguments = unit
    pairs = [(header.encode(), content.encode()) for header, content in headers]
    options = [*arguments] if trace is None else [*arguments, "--fdevice-syntax-only", f"--fdevice-time-trace={trace}"]
    nvrtc = Nvrtc()
    with nvrtc.program(text.encode(), name.encode(), pairs) as program:
        os.close(os.open(_MARK, os.O_RDONLY))
        try:
            program.compile([option.encode() for option in options])
        except ToolError as e:
            print(e.log[:400], file=sys.stderr)
            return None
    return [] if trace is None else _headers(trace)


def _headers(path: Path) -> list[str]:
    # NVRTC 13.5 adds an ending of its own.
    written = path if path.exists() else path.with_name(path.name + ".json")
    events = json.loads(written.read_text())["traceEvents"]
    return [e["args"]["detail"] for e in events if e.get("name") == "Processing Header File"]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        units = json.load(sys.stdin)
        paths = [None if "--untraced" in sys.argv else Path(directory, f"trace{i}") for i, _ in enumerate(units)]
        json.dump([_compiled(unit, path) for unit, path in zip(units, paths, strict=True)], sys.stdout)
