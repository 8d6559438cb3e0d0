"""Recordings: what a process asked for is in its file, whoever asked and however the process ended."""

from __future__ import annotations

import gc
import itertools
import json
import os
import stat
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import cujit
import cujit.worklist
from cujit.compiler.jobs import CompileJob
from cujit.errors import CacheWarning, CompileError, NotCompiledError, OptionError
from cujit.program import runner
from cujit.worklist.recording import recording_of
from forgetting import forget

CODE = 'extern "C" __global__ void k(float *x) { x[threadIdx.x] = 1; }'
OTHER = CODE.replace("1;", "2;")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project as the working directory, and a cache of its own."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project/pyproject.toml").touch()
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("CUJIT_RECORD", raising=False)
    yield tmp_path
    forget(recording_of)


def lines(directory: Path) -> list[list[dict[str, Any]]]:
    """The lines of each file, without the first, which says what it is."""
    files = [[json.loads(line) for line in file.read_text().splitlines()] for file in sorted(directory.iterdir())]
    assert all(file[0] == {"cujit worklist": 1} for file in files)
    return [file[1:] for file in files]


def uses(directory: Path) -> list[tuple[str, str, int]]:
    """Architecture, outcome and calls of every use, all files together."""
    return sorted((str(use.arch), use.outcome, use.calls) for use in cujit.worklist.read(directory).uses)


def process(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program with the names of this file; what it says of cujit's own trouble is an error."""
    program = f"import os, sys, cujit\nCODE, OTHER = {CODE!r}, {OTHER!r}\n{code}"
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )


def test_request_is_written_once_with_its_outcome(folder: Path) -> None:
    with cujit.record_worklist(folder / "rec") as recording:
        assert recording.path is None
        made = cujit.compile(cujit.Source.cuda(CODE, name="one.cu"), arch="sm_90", define={"N": 3})
        cujit.compile(cujit.Source.cuda(CODE, name="one.cu"), arch="sm_80", define={"N": 3})
        with pytest.raises(CompileError):
            cujit.compile("nonsense", arch="sm_90")
        opened = os.listdir("/proc/self/fd")
    cujit.compile(OTHER, arch="sm_90")
    assert len(os.listdir("/proc/self/fd")) == len(opened) - 1, "its file is closed"
    ((recipe, use, other, bad, failed),) = lines(folder / "rec")
    assert (recipe["name"], recipe["text"], recipe["options"]) == ("one.cu", CODE, {"define": {"N": "3"}})
    assert use.pop("make_ms") > 0
    assert use == {
        "use": recipe["recipe"],
        "arch": "sm_90",
        "key": str(made.provenance.key),  # type: ignore[union-attr]
        "outcome": "made",
        "calls": 1,
        "seen": time.strftime("%Y-%m-%d"),
    }
    assert (other["use"], other["arch"], other["outcome"]) == (recipe["recipe"], "sm_80", "made")
    assert (bad["text"], failed["outcome"]) == ("nonsense", "failed")
    assert stat.S_IMODE(recording.path.stat().st_mode) == 0o600  # type: ignore[attr-defined]
    assert stat.S_IMODE(recording.directory.stat().st_mode) == 0o700


def test_calls_are_counted_by_outcome(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cujit.compile(CODE, arch="sm_90")
    with cujit.record_worklist(folder / "rec"):
        for _ in range(11):
            cujit.compile(CODE, arch="sm_90")
        assert uses(folder / "rec") == [("sm_90", "hit", 8)], "before the end, to a power of two"
        cujit.compile(OTHER, arch="sm_90")
        cujit.compile(OTHER, arch="sm_90", cache=False)
        monkeypatch.setenv("CUJIT_COMPILE", "never")
        with pytest.raises(NotCompiledError):
            cujit.compile(CODE, arch="sm_100")
    assert uses(folder / "rec") == [("sm_100", "missed", 1), ("sm_90", "hit", 11), ("sm_90", "made", 1)]


def test_requests_without_a_key_are_distinguished_and_counted(folder: Path) -> None:
    with cujit.record_worklist(folder / "rec"):
        for registers in (32, 40, 32, 32):
            cujit.compile(CODE, arch="sm_90", cache=False, maxrregcount=registers)
        cujit.compile(f"__device__ const char *when = __DATE__;\n{OTHER}", arch="sm_90")
    assert uses(folder / "rec") == [("sm_90", "made", 1), ("sm_90", "made", 1), ("sm_90", "made", 3)]
    assert {use.key for use in cujit.worklist.read(folder / "rec").uses} == {None}


def test_variable_records_a_whole_process_and_its_counts(folder: Path) -> None:
    code = "for n in range(7): cujit.compile(CODE, arch='sm_90')\ncujit.build(OTHER, ['sm_80', 'compute_90'])"
    assert process(code, CUJIT_RECORD=str(folder / "rec")).returncode == 0
    assert uses(folder / "rec") == [("compute_90", "made", 1), ("sm_80", "made", 1), ("sm_90", "made", 7)]
    assert process(code).returncode == 0, "and nothing without it"
    assert len(list((folder / "rec").iterdir())) == 1


def test_killed_process_leaves_its_requests(folder: Path) -> None:
    code = "for n in range(6): cujit.compile(CODE, arch='sm_90')\nos.kill(os.getpid(), 9)"
    assert process(code, CUJIT_RECORD=str(folder / "rec")).returncode == -9
    assert uses(folder / "rec") == [("sm_90", "made", 4)]


def test_forked_child_has_its_own_file(folder: Path) -> None:
    code = """
def opened(): return [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
with cujit.record_worklist(os.environ["REC"]) as recording:
    if (pid := os.fork()) == 0: os._exit(0)  # before there is a file
    os.waitpid(pid, 0)
    os.close(0)  # so that its file has this number
    for _ in range(3): cujit.compile(CODE, arch="sm_90")
    pid = os.fork()
    if pid == 0:
        assert not any(str(recording.directory) in path for path in map(os.path.realpath, opened())), "the parent's"
        for _ in range(5): cujit.compile(CODE, arch="sm_90")
        for _ in range(2): cujit.compile(OTHER, arch="sm_90")
        sys.exit()
    os.waitpid(pid, 0)
"""
    filled = "cujit.compile(CODE, arch='sm_90'); cujit.compile(OTHER, arch='sm_90')"
    assert process(filled).returncode == 0, "NVRTC in a child of a process that has used it may wait for ever"
    assert process(code, REC=str(folder / "rec")).stderr == ""
    first, second = sorted(lines(folder / "rec"), key=len)
    assert [line["calls"] for line in first if "use" in line] == [1, 2, 3]
    assert [line["calls"] for line in second if "use" in line] == [1, 2, 4, 1, 2, 5]
    assert uses(folder / "rec") == [("sm_90", "hit", 2), ("sm_90", "hit", 8)]


def test_processes_and_threads_record_at_once(folder: Path) -> None:
    code = """
import threading
texts = [f"{CODE}// {n % 4}" for n in range(16)]
work = [threading.Thread(target=cujit.compile, args=(text,), kwargs={"arch": "sm_90"}) for text in texts]
for one in work: one.start()
for one in work: one.join()
"""
    environment = {**os.environ, "CUJIT_RECORD": str(folder / "rec")}
    program = f"import cujit\nCODE = {CODE!r}\n{code}"
    running = [subprocess.Popen([sys.executable, "-c", program], env=environment) for _ in range(3)]
    assert [one.wait() for one in running] == [0, 0, 0]
    assert len(list((folder / "rec").iterdir())) == 3
    assert [use.calls for use in cujit.worklist.read(folder / "rec").uses] == [12] * 4


def trouble(directory: Path) -> list[str]:
    """Compile twice while recording there; give the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with cujit.record_worklist(directory):
            assert cujit.compile(CODE, arch="sm_90").data == cujit.compile(CODE, arch="sm_90").data
            cujit.compile(OTHER, arch="sm_90")
    assert all(one.category is CacheWarning and one.filename == __file__ for one in caught)
    return [str(one.message) for one in caught]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="has no /dev/full")
def test_full_disk_is_reported_once_and_the_compile_continues(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def full(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        return real("/dev/full", os.O_WRONLY) if "/rec/" in str(path) else real(path, flags, mode, **more)

    monkeypatch.setattr(os, "open", full)
    (said,) = trouble(folder / "rec")
    assert "cujit stopped recording" in said
    assert "No space left" in said


def test_size_limited_file_is_reported_once_and_stays_readable(folder: Path) -> None:
    code = """
import resource, warnings
warnings.simplefilter("error")
cujit.compile(CODE, arch="sm_90"); cujit.compile(OTHER, arch="sm_90")
with cujit.record_worklist(os.environ["REC"]) as recording:
    cujit.compile(CODE, arch="sm_90")
    size = os.path.getsize(recording.path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 40, size + 40))
    try:
        cujit.compile(globals()[os.environ["AGAIN"]], arch="sm_90")
    except cujit.errors.CacheWarning as e:
        print(e)
    cujit.compile(CODE, arch="sm_80", cache=False)
"""
    for again in ("OTHER", "CODE"):  # of which a request is new, or its count
        done = process(code, REC=str(folder / again), AGAIN=again)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("cujit stopped recording: [Errno 27]")
        assert uses(folder / again) == [("sm_90", "hit", 1)], "the torn line is left out"


def test_impossible_directory_is_reported_once(folder: Path) -> None:
    (folder / "file").touch()
    (said,) = trouble(folder / "file/rec")
    assert "Not a directory" in said


def test_invalid_path_is_refused() -> None:
    with pytest.raises(OptionError):
        cujit.record_worklist("a\0b")
    with pytest.raises(OptionError):
        cujit.record_worklist(3)  # type: ignore[arg-type]


def elsewhere(directory: Path) -> list[str]:
    return [use.elsewhere for use in cujit.worklist.read(directory).uses]


def test_headers_are_named_by_package_toolkit_and_project(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = folder / "site-packages"
    for directory in (packages / "mylib/include", folder / "project/inc", folder / "far"):
        directory.mkdir(parents=True)
    monkeypatch.syspath_prepend(str(packages))
    toolkit = runner().toolkit()[0]
    (folder / "project/k.cu").write_text(CODE)
    with cujit.record_worklist(folder / "rec"):
        cujit.compile(
            cujit.Source.cuda(folder / "project/k.cu", include=[packages / "mylib/include", "inc"]),
            include=[toolkit, str(folder / "far")],
            arch="sm_90",
        )
    ((recipe, use),) = lines(folder / "rec")
    assert recipe["include"] == ["{package:mylib}/include", "{project}/inc"]
    assert recipe["options"]["include"] == ["{toolkit}/include", "{elsewhere}/far"]
    assert (recipe["path"], recipe["name"]) == ("{project}/k.cu", "k.cu")
    assert use["elsewhere"] == "headers of far, which is in no package, toolkit or project"
    assert str(folder) not in (folder / "rec").joinpath(os.listdir(folder / "rec")[0]).read_text()


def test_request_that_another_machine_cannot_compile_is_flagged(folder: Path) -> None:
    (folder / "far").mkdir()
    for name in ("far/near.h", "far/abs.h", "project/abs.h"):
        (folder / name).write_text("#pragma once\n")
    (folder / "far/k.cu").write_text(f'#include "near.h"\n{CODE}')
    (folder / "far/alone.cu").write_text(CODE)
    with cujit.record_worklist(folder / "rec"):
        cujit.compile(folder / "far/k.cu", arch="sm_90")
        cujit.compile(f'#include "{folder}/far/abs.h"\n{CODE}', arch="sm_90")
        cujit.compile(folder / "far/alone.cu", arch="sm_90", lineinfo=True)
        cujit.compile(folder / "far/alone.cu", arch="sm_90")
        cujit.compile(CODE, arch="sm_90", lineinfo=True)
    assert elsewhere(folder / "rec") == [
        "headers beside the source, which is in no package, toolkit or project",
        f"the header {folder}/far/abs.h by its path on this machine",
        "",  # line tables name the recorded path, which has no directory of this machine
        "",
        "",
    ]


def cpu_us(work: Callable[[], object]) -> float:
    """The least CPU time of some runs, in µs."""
    took = []
    for _ in range(30):
        begin = time.process_time_ns()
        work()
        took.append(time.process_time_ns() - begin)
    return min(took) / 1e3


def test_recording_costs_little(folder: Path) -> None:
    tools = runner()
    made = cujit.compile(CODE, arch="sm_90")
    padding = "\n".join(f"// {n:060}" for n in range(8))
    jobs = [CompileJob(cujit.request(f"{CODE}\n{padding}{n}", arch="sm_90")) for n in range(1000)]
    keyed = [job.key(tools.keys) for job in jobs]  # type: ignore[arg-type]
    gc.disable()
    try:
        with cujit.record_worklist(folder / "rec") as recording:
            new = iter(zip(jobs, keyed, strict=True))

            def ask(times: int, among: Iterator[tuple[CompileJob, Any]]) -> None:
                for job, key in itertools.islice(among, times):
                    recording.on_compile(job.request, key, made, tools.toolkit)

            new_us = cpu_us(lambda: ask(30, new)) / 30
            again_us = cpu_us(lambda: ask(4096, itertools.repeat((jobs[0], keyed[0])))) / 4096
    finally:
        gc.enable()
    assert new_us < 70, f"{new_us}; it was 22 on a machine with other work"
    assert again_us < 4, f"{again_us}; it was 0.8 there"
