"""A trial of each part: compile, link, bundle and launch one line, in a separate process that may die of it."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
from collections.abc import Callable, Collection, Mapping
from typing import Any

from cujit.errors import CujitError
from cujit.toolchain.nvvm import MODULE_HEAD
from cujit.workers.answers import read_answer
from cujit.workers.environment import COMPILE, kept
from cujit.workers.interpreter import is_frozen
from cujit.workers.process import Worker, how_ended

_KERNEL = 'extern "C" __global__ void trial(int *out) { *out = 42; }'
_NVVM = """
define void @trial() { ret void }
!nvvm.annotations = !{!0}
!0 = !{void ()* @trial, !"kernel", i32 1}
!nvvmir.version = !{!1}
!1 = !{i32 2, i32 0}
"""
_ENTRY = "cujit.machine.trial:report"
_TIMEOUT_S = 120.0
_END_S = 5.0
_MOST_BYTES = 1 << 20


def _cujit() -> Any:
    """Import the package as its users do; the process that is tried has nothing else to do."""
    return importlib.import_module("cujit")


def _compile() -> None:
    cujit = _cujit()
    lowest = cujit.compile(_KERNEL, to="ptx", cache=False)
    cujit.compile(_KERNEL, arch=str(lowest.arch).replace("compute", "sm"), cache=False)


def _link() -> None:
    cujit = _cujit()
    cujit.link([cujit.compile(_KERNEL, to="ptx", rdc=True, cache=False)], cache=False)


def _bundle() -> None:
    cujit = _cujit()
    cujit.bundle([cujit.compile(_KERNEL, to="ptx", cache=False)], cache=False)


def _compile_nvvm() -> None:
    cujit = _cujit()
    cujit.compile(cujit.Source.nvvm(MODULE_HEAD + _NVVM), to="ptx", cache=False)


def _launch_on_cpu() -> None:
    _launch("cpu")


def _launch_on_gpu() -> None:
    _launch("cuda:0")


def _launch(device: str) -> None:
    cujit = _cujit()
    target = cujit.gpu(0) if device == "cuda:0" else cujit.cpu()
    out = target.zeros(1, "int32")
    cujit.jit(_KERNEL, device=target, cache=False)["trial"][1, 1](out)
    if out.numpy()[0] != 42:
        raise CujitError(f"a kernel that should store 42 stored {out.numpy()[0]} on {device}", code="wrong-result")


TRIALS: Mapping[str, Callable[[], None]] = {
    "NVRTC": _compile,
    "nvJitLink": _link,
    "nvFatbin": _bundle,
    "libNVVM": _compile_nvvm,
    "llvmlite": _launch_on_cpu,
    "CUDA driver": _launch_on_gpu,
}
"""What each part is tried by."""

COMPILER = "NVRTC"
"""The part that the trials of most others compile by."""


def needs_compiler(name: str) -> bool:
    """Return whether the trial of a part fails if NVRTC doesn't work, whatever the state of the part."""
    return name not in (COMPILER, "libNVVM")


def report(answers: int, names: Collection[str]) -> None:
    """Try parts and write a line of JSON before and after each: its name, and what went wrong if it failed.

    If NVRTC fails, parts that need it are not tried.
    """

    def write(*words: str) -> None:
        os.write(answers, json.dumps(words).encode() + b"\n")

    has_compiler = True
    for name in names:
        if needs_compiler(name) and not has_compiler:
            continue
        write(name, "begins")
        try:
            TRIALS[name]()
        except CujitError as e:
            has_compiler = has_compiler and name != COMPILER
            write(name, "failed", _shown(e))
        else:
            write(name, "works")


def _shown(error: CujitError) -> str:
    """Return the line that says most: the first of the tool's log that names an error, otherwise the message."""
    log = getattr(error, "log", "") or ""
    return next((line.strip() for line in log.splitlines() if "error" in line.lower()), str(error).partition("\n")[0])


def failures(names: Collection[str]) -> dict[str, str]:
    """Try parts in a separate process and return what went wrong with each that does not work.

    If NVRTC is among them and does not work, the parts that need it are not tried: their failure has the same cause.

    Args:
        names: keys of ``TRIALS``.
    """
    found: dict[str, str] = {}
    left = list(names)
    if is_frozen():  # another interpreter would try its own libraries
        return {}
    while left:
        tried, output, end = _run(left)
        found.update({name: details[0] for name, how, *details in output if how == "failed"})
        if not end or not tried:
            break
        found[tried[-1]] = end
        left = left[left.index(tried[-1]) + 1 :]
        if COMPILER in found:
            left = [name for name in left if not needs_compiler(name)]
    return found


def _run(names: list[str]) -> tuple[list[str], list[list[str]], str]:
    """Run a process that tries parts; return those it began with, its lines, and how it ended if not well."""
    environment = {**kept(COMPILE), "CUJIT_CACHE": "0"}
    worker = Worker(_ENTRY, names, environment=environment, takes_orders=False)
    try:
        with contextlib.suppress(ConnectionError):
            worker.require_greeting()
        written = worker.read_to_end(_TIMEOUT_S, _MOST_BYTES)
    finally:
        worker.await_death(_END_S)
        is_late = worker.is_alive
        status, _ = worker.end()
    output = [read_answer(line) for line in written.splitlines() if line.startswith(b'["')]
    end = "" if status == 0 else f"the process that tried it {how_ended(status)[1]}"
    if is_late:
        end = f"the trial did not end in {_TIMEOUT_S:g} s"
    return [name for name, how, *_ in output if how == "begins"], output, end
