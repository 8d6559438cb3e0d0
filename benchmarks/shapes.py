"""How load and first launch on the CPU device grow with the text, shape by shape: ``shapes.py [--write] [NAME …]``.

``shapes.py --load`` and ``shapes.py --launch`` load, or compile too, a megabyte of every shape (or of each ``NAME``)
under limits, and fail if one misses them.

Each shape repeats one construct. A process measures it in ``SIZES``, without the cache, after a small kernel: CPU
seconds of ``load`` and of the first compile, and the most memory. If the seconds are ``bytes ** exponent``, fitted to
the logarithms, an exponent of 1 tells that they are linear in the text. The bytes are those of what repeats. A shape
that an assembler refuses may be refused as well: then the seconds are those until the error. ``--write`` records each
row for docs/performance.md as soon as it is there, with the commit, and leaves out those that this commit has: so a run
that ends early goes on later. Rows of other shapes stay, with the commits that they are of.
"""

from __future__ import annotations

import datetime
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from ptx_shapes import SHAPES, sized

import cujit

__all__ = ["LARGE", "LAUNCH_S", "LOAD_BYTES", "LOAD_S", "RECORD", "SIZES"]

RECORD = Path(__file__).parent / "shapes.json"

SIZES = (24_000, 48_000, 96_000)
"""Characters of each text."""

LARGE = 1_000_000
LOAD_S, LAUNCH_S, LOAD_BYTES = 10, 60, 1 << 30
"""CPU seconds in which a megabyte of any text is loaded or refused, and is compiled or refused; bytes of memory."""

_ROUNDS, _SHORT_S = 3, 3.0
"""How often a text is measured that takes less than so long; the least counts."""

_LEAST_S = 0.02
"""Seconds below which a growth is not to be measured."""


def _took(text: str, device: cujit.Device) -> tuple[float, float, str]:
    """Load and compile a text; give the CPU seconds of both, and the error's class or ``ok``."""
    begin = time.process_time()
    loaded, outcome = begin, "ok"
    try:
        module = cujit.load(text, device)
        loaded = time.process_time()
        _compile(module, text)
    except cujit.errors.CujitError as e:
        outcome = type(e).__name__
    end = time.process_time()
    return (loaded - begin, end - loaded, outcome) if loaded > begin else (end - begin, 0.0, outcome)


def _compile(module: cujit.Module, text: str) -> None:
    if ".entry k" in text:
        module["k"].compile(64)


def _device() -> cujit.Device:
    """Give a device that has compiled something."""
    device = cujit.cpu(1)
    for name in ("mma", "straight"):
        cujit.load(SHAPES[name](2), device)["k"].compile(64)
    return device


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure(name: str) -> None:
    """Measure a shape in this process, and print a row of the record."""
    device, texts = _device(), [sized(name, size) for size in SIZES]
    found: list[list[tuple[float, float, str]]] = [[] for _ in texts]
    before, peaks = _peak(), []
    for _ in range(_ROUNDS):  # of all texts in turn, as what else runs slows each for a while
        for text, runs in zip(texts, found, strict=True):
            if not runs or sum(runs[0][:2]) < _SHORT_S:
                runs.append(_took(text, device))
        peaks.append(_peak())
    least = [min(runs, key=lambda run: run[0] + run[1]) for runs in found]
    load, launch, outcome = least[-1]
    once = len(SHAPES[name](0))  # which each text has, however often it repeats the construct
    rows = [(len(text) - once, sum(run[:2])) for text, run in zip(texts, least, strict=True) if run[2] == outcome]
    same = [row for row in rows if row[1] > _LEAST_S]
    exponent = None
    if len(same) > 1:
        exponent = float(np.polyfit(np.log([row[0] for row in same]), np.log([row[1] for row in same]), 1)[0])
    row = {
        "bytes": len(texts[-1]),
        "load": round(load, 3),
        "launch": round(launch, 3),
        "megabytes": (peaks[0] - before) >> 10,
        "exponent": None if exponent is None else round(exponent, 2),
        "outcome": outcome,
    }
    print(json.dumps(row))


def limited(name: str, what: str) -> None:
    """Load a megabyte of a shape, and compile it if that is ``what`` is asked, and print what that took."""
    text, outcome = sized(name, LARGE), "ok"
    device = _device() if what == "launch" else cujit.cpu(1)
    seconds = LOAD_S if what == "load" else LAUNCH_S
    used = int(time.process_time()) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (used + seconds, used + seconds))
    resource.setrlimit(resource.RLIMIT_DATA, (LOAD_BYTES, LOAD_BYTES))
    begin = time.process_time()
    try:
        module = cujit.load(text, device)
        if what == "launch":
            _compile(module, text)
    except cujit.errors.CujitError as e:
        outcome = type(e).__name__
    print(f"{name:22} {len(text):8} bytes {time.process_time() - begin:7.2f} s {_peak() >> 10:6} MB  {outcome}")


def _apart(*arguments: str) -> str | None:
    """Run this file in a process of its own; give what it prints, None if it dies."""
    done = subprocess.run([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, text=True, check=False)
    return None if done.returncode else done.stdout.strip()


def sweep(what: str, names: Sequence[str]) -> list[str]:
    """Take each shape under limits, and name those that miss them."""
    missed = []
    for name in names:
        found = _apart("--one", what, name)
        print(found or f"{name:22} missed the limits of {what}", flush=True)
        missed += [] if found else [name]
    return missed


def _commit() -> str:
    """Name the commit of this file's tree."""
    command = ("git", "rev-parse", "--short=8", "HEAD")
    return subprocess.run(command, cwd=RECORD.parent, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def table(names: Sequence[str], *, write: bool) -> None:
    """Measure shapes and print them; put each into the record at once if that is asked."""
    commit = _commit()
    record = json.loads(RECORD.read_text()) if write and RECORD.exists() else {}
    known = record.get("shapes", {}).items()
    rows = {name: row for name, row in known if row.get("commit") == commit or name not in names}
    for name in names:
        if name in rows:
            continue
        found = json.loads(_apart("--one", "measure", name) or json.dumps({"outcome": "died"}))
        rows[name] = {**found, "commit": commit}
        print(f"{name:22} {'  '.join(f'{key} {value}' for key, value in found.items())}", flush=True)
        if write:
            ordered = {each: rows[each] for each in SHAPES if each in rows}
            about = {"date": datetime.date.today().isoformat(), "sizes": SIZES, "shapes": ordered}
            RECORD.write_text(json.dumps(about, indent=1) + "\n")


def main() -> None:
    """Do what the command line asks for."""
    os.environ["CUJIT_CACHE"] = "0"
    options = [word for word in sys.argv[1:] if word.startswith("--")]
    names = [word for word in sys.argv[1:] if word not in options]
    if options == ["--one"]:
        what, name = names
        measure(name) if what == "measure" else limited(name, what)
    elif options in (["--load"], ["--launch"]):
        sys.exit(f"missed: {', '.join(missed)}" if (missed := sweep(options[0][2:], names or list(SHAPES))) else 0)
    else:
        table(names or list(SHAPES), write="--write" in options)


if __name__ == "__main__":
    main()
