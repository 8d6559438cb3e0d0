"""Programs that run in processes of their own, in which the emulator stands for the driver."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Mapping
from pathlib import Path

import costs
from cujit.emulator.environment import environment_of
from cujit.emulator.settings import EmulatorSettings


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
    if settings is None and not variables:
        status, printed, said = _nursery().run(textwrap.dedent(code))
    else:
        done = emulated(sys.executable, "-c", textwrap.dedent(code), settings=settings, variables=variables)
        status, printed, said = done.returncode, done.stdout, done.stderr
    assert status == 0, f"status {status}: {printed}{said}"
    return printed


def cujit(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command ``cujit``, in a process that has imported it already."""
    words = ["cujit", *map(str, arguments)]
    status, printed, said = _commands().run(f"sys.argv = {words!r}\ncujit.cli.process_main()")
    return subprocess.CompletedProcess(words, status, printed, said)


_NURSERY = """
import ctypes, gc, json, os, sys, threading
import numpy
import cuda.bindings.driver
import cujit.cli.emulate
import cujit.emulator.start
import cujit.formats.ptx.parser
import llvmlite.binding

gc.collect()
gc.freeze()
assert len(os.listdir("/proc/self/task")) == 1, "a child would lack the other threads"
for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if not child:
        for number, path in enumerate(asked["files"]):
            file = os.open(path, os.O_WRONLY if number else os.O_RDONLY)
            os.dup2(file, number)
            os.close(file)
        os.setpgid(0, 0)
        sys.argv, code = ["-c"], asked["code"]
        del asked, line, child, number, path, file
        exec(compile(code, "<string>", "exec"))
        break
    _, status, usage = os.wait4(child, 0)
    print(json.dumps([os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime]), flush=True)
"""


class _Nursery:
    """A process that has imported what every program needs, a third of a second of it, and forks for each.

    No function of the driver was called in it, so an emulator starts in the program.
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
        environment = {**os.environ, **variables}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _NURSERY], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._owner = os.getpid()
        atexit.register(self.close)

    def run(self, code: str, timeout_s: float = 120) -> tuple[int, str, str]:
        """Run a program; give its status and what it wrote."""
        assert self._process.stdin
        assert self._process.stdout
        with tempfile.NamedTemporaryFile("r") as printed, tempfile.NamedTemporaryFile("r") as said:
            files = [os.devnull, printed.name, said.name]
            self._process.stdin.write(json.dumps({"code": code, "files": files}) + "\n")
            self._process.stdin.flush()
            with selectors.DefaultSelector() as selector:
                selector.register(self._process.stdout, selectors.EVENT_READ)
                is_done = selector.select(timeout_s)
            answer = json.loads(self._process.stdout.readline() or "[-9, 0]") if is_done else None
            if answer is None:
                _nursery.cache_clear()
                _commands.cache_clear()
                self.close()
                raise subprocess.TimeoutExpired(code, timeout_s, printed.read(), said.read())
            costs.add(answer[1])
            return answer[0], printed.read(), said.read()

    def close(self) -> None:
        """End it with the program that it waits for."""
        if os.getpid() == self._owner:
            with contextlib.suppress(OSError):
                children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text()
                for child in children.split():
                    os.killpg(int(child), signal.SIGKILL)
            self._process.kill()
            with self._process:
                pass


@functools.cache
def _nursery() -> _Nursery:
    return _Nursery(environment_of(EmulatorSettings()))


@functools.cache
def _commands() -> _Nursery:
    return _Nursery({})


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
