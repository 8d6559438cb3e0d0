"""Run scenarios with a fault at each call to the system in turn, and print what came of them as JSON.

``python scenarios.py SCENARIO:STEP…`` with ``library.c`` preloaded. Of the calls every STEP-th gets one errno in turn;
with STEP 0 each call gets every errno. Each run is a forked child with a copy of the same directory.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import cujit
import cujit.farm
import cujit.remote
import cujit.report
import cujit.reproducer
import cujit.worklist
from cache.samples import artifact_of, key_of
from cujit.artifact import writing
from cujit.cache.pack import write_pack
from cujit.cache.remote.signing import Signer, keygen
from cujit.errors import CujitError
from cujit.reproducer.running import run_once

ERRNOS = (errno.EIO, errno.ENOSPC, errno.EROFS, errno.EMFILE, errno.ENOMEM)
LONGEST_S = 120
OLD = b"what was there"
SOURCE = 'extern "C" __global__ void k(float *x) { x[threadIdx.x] += 1; }\n'
C = ctypes.CDLL(None)


class Scenario(NamedTuple):
    """``act`` is disturbed in a directory; ``written`` are the files there that it replaces whole."""

    act: Callable[[Path], object]
    written: tuple[str, ...] = ()


class Inline(Executor):
    """Does each task at once, in this process."""

    def submit(self, work: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        """Do it."""
        future: Future[Any] = Future()
        try:
            future.set_result(work(*arguments, **named))
        except BaseException as e:
            future.set_exception(e)
        return future


def cache_in(folder: Path) -> cujit.Cache:
    """The cache of a directory."""
    return cujit.Cache(folder / "cache")


def compiled(folder: Path) -> cujit.Artifact:
    """The image, from the cache."""
    return cujit.compile(SOURCE, arch="compute_90", lineinfo=True, cache=cache_in(folder))


def filled(folder: Path) -> None:
    """Some records, the image, a list of it, PTX and a saved launch."""
    for n in range(4):
        cache_in(folder).get_or_make(key_of(n), lambda n=n: artifact_of(n))  # type: ignore[misc]
    with cujit.record_worklist(folder / "record"):
        image = compiled(folder)
    cujit.worklist.read(folder / "record").save(folder / "list.jsonl")
    image.save(folder / "k.ptx")
    write_pack(folder / "read.pack", cache_in(folder).stores)
    for name in {name for scenario in SCENARIOS.values() for name in scenario.written}:
        (folder / name).write_bytes(OLD)
    launch()[1].save(folder / "saved.launch", launch()[0])
    (folder / "store").mkdir()
    keys = keygen(folder / "key", name="ci", scope="main")
    (folder / "trust").write_text(keys)
    cujit.remote.push(f"file://{folder}/store", cache_in(folder).stores, Signer.read(folder / "key", scope="main"))


_made: list[Any] = []


def launch() -> tuple[Any, Any]:
    """An array, and a launch on the CPU device, made once."""
    if not _made:
        device = cujit.cpu(1)
        kernel = cujit.jit(SOURCE, device=device)["k"]
        _made.extend((device.array(np.arange(64, dtype=np.float32)), kernel[1, 64]))
    return _made[0], _made[1]


def read_pack(folder: Path) -> None:
    """What a pack gives is what was put in, or a miss."""
    cache = cujit.Cache(None, read_only=[folder / "read.pack"])
    for n in range(4):
        found = cache.find(key_of(n))
        assert found is None or found[0].data == artifact_of(n).data


def recorded(folder: Path) -> None:
    """Recording stops no compile."""
    with cujit.record_worklist(folder / "more"):
        assert compiled(folder).text


def listed(folder: Path) -> None:
    """Read a list and write it."""
    cujit.worklist.read(folder / "list.jsonl").save(folder / "new.jsonl")


def farmed(folder: Path) -> None:
    """Build what the cache has, and pack it."""
    requests = [cujit.request(SOURCE, arch="compute_90", lineinfo=True)]
    report = cujit.farm.build(requests, executor=Inline(), sink=cache_in(folder), pack=folder / "new.pack", workers=1)
    assert report.is_good or report.failed or report.quarantined


def pushed(folder: Path) -> None:
    """Publish, and fetch into another cache."""
    url, signer = f"file://{folder}/other", Signer.read(folder / "key", scope="main")
    cujit.remote.push(url, cache_in(folder).stores, signer)


def pulled(folder: Path) -> None:
    """Fetch from a shared cache; what came is right."""
    cache = cujit.Cache(folder / "mine")
    keys = [key_of(n).digest for n in range(4)]
    cujit.remote.pull(f"file://{folder}/store", keys, cache, folder / "trust")


def reported(folder: Path) -> None:
    """Write the page of an image."""
    writing.write_file(folder / "new.html", cujit.report.of(folder / "k.ptx").html())


def reran(folder: Path) -> None:
    """Run a saved launch in a process apart."""
    rerun = run_once(folder / "saved.launch", trusted=True)
    assert rerun.error is not None or np.array_equal(rerun.arguments[0], np.arange(64, dtype=np.float32) + 1)


SCENARIOS = {
    "pack": Scenario(lambda folder: write_pack(folder / "new.pack", cache_in(folder).stores), ("new.pack",)),
    "packed": Scenario(read_pack),
    "recording": Scenario(recorded),
    "worklist": Scenario(listed, ("new.jsonl",)),
    "farm": Scenario(farmed, ("new.pack",)),
    "push": Scenario(pushed),
    "pull": Scenario(pulled),
    "report": Scenario(reported, ("new.html",)),
    "launch": Scenario(lambda folder: launch()[1].save(folder / "new.launch", launch()[0]), ("new.launch",)),
    "reproducer": Scenario(reran),
}


def child(scenario: Scenario, folder: Path, place: int, number: int, answer: Path) -> None:
    """Act with one fault, and write down what came of it."""
    signal.alarm(LONGEST_S)
    trouble = ""
    C.faults_begin(place, number)
    try:
        scenario.act(folder)
        error = None
    except BaseException as e:
        error = e
    calls = C.faults_end()
    if error is not None and not isinstance(error, CujitError):
        trace = error.__traceback__
        while trace and trace.tb_next:
            trace = trace.tb_next
        at = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace else ""
        trouble = f"{type(error).__name__}: {error} at {at}"
    answer.write_text(json.dumps({"calls": calls, "where": where(), "trouble": trouble, "failed": error is not None}))


def where() -> str:
    """The call that failed."""
    C.faults_where.restype = ctypes.c_char_p
    return str(C.faults_where(), "ascii")


def ran(scenario: Scenario, template: Path, scratch: Path, place: int, number: int) -> dict[str, Any]:
    """Act in a forked child, and give what it wrote."""
    folder, answer = scratch / "run", scratch / "answer"
    shutil.rmtree(folder, ignore_errors=True)
    answer.unlink(missing_ok=True)
    shutil.copytree(template, folder)
    pid = os.fork()
    if pid == 0:
        try:
            child(scenario, folder, place, number, answer)
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    if status or not answer.exists():
        return {"calls": 0, "where": "", "trouble": f"the process ended with {status}", "failed": True}
    result: dict[str, Any] = json.loads(answer.read_text())
    result["trouble"] = result["trouble"] or left(scenario, folder, result)
    return result


def left(scenario: Scenario, folder: Path, result: dict[str, Any]) -> str:
    """Say what is wrong with the files that a run has left."""
    for name in scenario.written:
        data = (folder / name).read_bytes()
        if (data == OLD) != result["failed"]:
            return f"{name} has {len(data)} bytes, and the call {'failed' if result['failed'] else 'went well'}"
    if result["where"] not in ("unlink", "unlinkat", "rmdir"):
        found = [str(path) for path in folder.rglob(".cujit-*")]
        if found:
            return f"left: {found}"
    return ""


def places(count: int, step: int) -> Iterator[tuple[int, int]]:
    """Give the places of faults with their errnos."""
    if step == 0:
        yield from ((place, number) for place in range(1, count + 1) for number in ERRNOS)
        return
    first = random.Random(count).randrange(step)
    for turn, place in enumerate(range(1 + first, count + 1, step)):
        yield place, ERRNOS[turn % len(ERRNOS)]


def swept(name: str, step: int, template: Path, scratch: Path) -> dict[str, Any]:
    """Give the outcomes of a scenario."""
    scenario = SCENARIOS[name]
    shutil.copytree(template, scratch / name)
    scenario.act(scratch / name)  # what a process imports and asks once is there
    plain = ran(scenario, template, scratch, 0, 0)
    assert not plain["trouble"], plain
    runs, faults, wrong = 0, 0, []
    for place, number in places(plain["calls"], step):
        result = ran(scenario, template, scratch, place, number)
        runs += 1
        faults += bool(result["where"])
        if result["trouble"]:
            wrong.append(f"{errno.errorcode[number]} at call {place}, {result['where']}: {result['trouble']}")
    return {"calls": plain["calls"], "runs": runs, "faults": faults, "wrong": wrong}


def main(*wanted: str) -> None:
    """Print the outcomes of scenarios."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as made:
        scratch = Path(made)
        template = scratch / "template"
        template.mkdir()
        filled(template)
        pairs = (each.split(":") for each in wanted)
        print(json.dumps({name: swept(name, int(step), template, scratch) for name, step in pairs}))


if __name__ == "__main__":
    main(*sys.argv[1:])
