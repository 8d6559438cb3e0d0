"""Python in processes of their own, with this package and the tests where it finds them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["children_of", "lives", "printed", "python"]


def python(
    code: str,
    *arguments: object,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout_s: float = 120,
) -> subprocess.CompletedProcess[str]:
    """Run code, which may be indented, to its end, whatever that is; ``environment`` is added to that of the tests."""
    paths = os.pathsep.join(os.path.abspath(path) for path in sys.path)
    return subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(code), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": paths, **(environment or {})},
        cwd=cwd,
        timeout=timeout_s,
        capture_output=True,
        text=True,
        check=False,
    )


def printed(
    code: str,
    *arguments: object,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout_s: float = 120,
) -> str:
    """Run code that has to end well, and give what it printed."""
    done = python(code, *arguments, options=options, environment=environment, cwd=cwd, timeout_s=timeout_s)
    assert done.returncode == 0, f"status {done.returncode}: {done.stderr}"
    return done.stdout


def children_of(process: int) -> list[int]:
    """List the processes that a process, any thread of it, has started."""
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    return [int(each) for task in tasks for each in task.read_text().split()]


def lives(process: int) -> bool:
    """Whether a process has not ended; one that has, and that nobody has waited for yet, does not live."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
