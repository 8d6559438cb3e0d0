"""Programs that run in processes of their own, in which the emulator stands for the driver."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path

from cujit.emulator.settings import EmulatorSettings
from cujit.emulator.starting import environment_of


def emulated(
    *command: str | Path,
    settings: EmulatorSettings | None = None,
    timeout_s: float = 120,
    variables: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command, in a folder, that finds the emulator where it looks for a driver."""
    environment = {**os.environ, **environment_of(settings or EmulatorSettings()), **(variables or {})}
    return subprocess.run(
        [*map(str, command)],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def python(code: str, settings: EmulatorSettings | None = None, variables: Mapping[str, str] | None = None) -> str:
    """Run a program of Python under the emulator, which has to end well; give what it printed."""
    done = emulated(sys.executable, "-c", textwrap.dedent(code), settings=settings, variables=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def compiled(path: Path, code: str, *options: str | Path) -> Path:
    """Compile a program in C, or with ``-shared`` a library; give its path."""
    source = path.with_suffix(".c")
    source.write_text(code)
    command = [sys.executable, "-m", "ziglang", "cc", "-w", str(source), "-o", str(path), *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return path


PRELUDE = """
import ctypes, sys, threading
from cuda.bindings import driver as d

def ok(answer):
    assert answer[0] == 0, answer
    return answer[1] if len(answer) == 2 else answer[1:]

def name(answer):
    return answer[0].name.removeprefix("CUDA_").removeprefix("ERROR_")

ok(d.cuInit(0))
context = ok(d.cuDevicePrimaryCtxRetain(0))
ok(d.cuCtxPushCurrent(context))
"""
"""How programs in Python begin that call the driver by cuda.bindings, in a context."""


def program(code: str) -> str:
    """Run a program behind ``PRELUDE``; give what it printed."""
    return python(PRELUDE + textwrap.dedent(code))
