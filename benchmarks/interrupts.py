"""How soon loads and first launches of large PTX end after a signal or a time limit: ``interrupts.py [NAME …]``.

A process takes a megabyte of each shape, without the cache. When a stage begins, a timer is set to ``DELAY_S``. Its
signal raises ``KeyboardInterrupt``, as Ctrl-C does. A row has the seconds from the signal until the main thread has the
exception, and until the process has ended, and ``-`` where the stage was over before. The stage ``limit`` is a launch
with ``timeout_s=0.1`` instead: the seconds are those from the call to the error, and from the error to the end.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from ptx_shapes import SHAPES, sized

import cujit
from cujit.devices import jit
from cujit.devices.cpu import pipeline
from cujit.formats.ptx import parser, validity

__all__ = ["STAGES"]

DELAY_S = 0.3
LARGE = 1_000_000

STAGES: dict[str, tuple[Any, str]] = {
    "parse": (parser, "parse"),
    "check": (validity, "check_module"),
    "analysis": (pipeline, "prepare"),
    "emit": (pipeline, "ir_of"),
    "read IR": (jit, "_parse"),
    "optimize": (jit, "_optimise_kernel"),
    "generate": (jit, "_words"),
    "link": (jit, "_loaded"),
}
"""Each stage with the function that it begins with."""


def _armed(function: Callable[..., Any]) -> Callable[..., Any]:
    def begin(*arguments: Any, **named: Any) -> Any:
        if not _SENT:
            _SENT.append(time.monotonic() + DELAY_S)
            signal.setitimer(signal.ITIMER_REAL, DELAY_S)
        return function(*arguments, **named)

    return begin


_SENT: list[float] = []


def measure(name: str, stage: str) -> None:
    """Interrupt one stage of one shape in this process, and print when it was heard."""
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    device, text = cujit.cpu(1), sized(name, LARGE)
    cujit.load(SHAPES["mma"](2), device)["k"].compile(64)
    if stage in STAGES:
        module, function = STAGES[stage]
        setattr(module, function, _armed(getattr(module, function)))
    heard = 0.0
    try:
        kernel = cujit.load(text, device)["k"]
        if stage == "limit":
            _SENT.append(time.monotonic())
            kernel.prepare(1, 64, timeout_s=0.1)(None)
        else:
            kernel.compile(64)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except (KeyboardInterrupt, cujit.errors.ToolTimeoutError):
        heard = time.monotonic()
    except cujit.errors.CujitError:
        pass
    print(json.dumps([_SENT[0] if _SENT else 0.0, heard]), flush=True)


def main() -> None:
    """Measure what the command line names."""
    os.environ["CUJIT_CACHE"] = "0"
    if sys.argv[1:2] == ["--one"]:
        measure(*sys.argv[2:])
        return
    for name in sys.argv[1:] or SHAPES:
        print(name, end="", flush=True)
        for stage in (*STAGES, "limit"):
            command = (sys.executable, __file__, "--one", name, stage)
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
            ended = time.monotonic()
            sent, heard = json.loads(done.stdout or "[0, 0]")
            figures = f"{heard - sent:.2f} {ended - heard:.2f}" if heard else "-"
            print(f"   {stage} {figures}", end="", flush=True)
        print()


if __name__ == "__main__":
    main()
