"""Farms that meet other farms, headers that change, machines without a home, Ctrl-C, and a compiler that says much."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import cujit
from cujit.cache.cache import Cache
from cujit.errors import MissingError, ToolCrashError, UnsupportedError
from cujit.farm import driver
from farming import DRIVER, Elsewhere, goes_on, pool, variants, workers
from processes import printed
from raising import raises


def test_two_concurrent_farms_compile_each_key_once(tmp_path: Path) -> None:
    log, root, asked = tmp_path / "log", tmp_path / "root", variants(12)
    with pool(1, log=str(log)) as one, pool(1, log=str(log)) as other, ThreadPoolExecutor(2) as drivers:
        reports = list(
            drivers.map(lambda engine: cujit.farm.build(asked, executor=engine, sink=root, chunk_s=0.1), (one, other))
        )
    assert [(len(report.keys), report.is_good) for report in reports] == 2 * [(12, True)]
    assert len(log.read_text().splitlines()) == 12
    assert sum(report.made for report in reports) == 12


def test_hanging_worker_is_ended_at_the_compile_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deadline_s = 5.0  # far more than one takes here, or on a machine that has much to do
    stopped: list[int] = []

    def stop_one(_done: int, _total: int, _name: str) -> None:
        if not stopped:
            monkeypatch.setattr(driver, "_PATIENCE_S", 4 - 4 * deadline_s)  # 4 s in all, for one at a time
            stopped.append(workers()[0])
            os.kill(stopped[0], signal.SIGSTOP)

    asked = variants(12)
    report = cujit.farm.build(
        asked, executor="processes:2", sink=tmp_path, deadline_s=deadline_s, chunk_s=0.001, progress=stop_one
    )
    assert (report.made + report.hit, report.is_good, len(stopped)) == (12, True, 1)


def test_hanging_worker_of_a_user_executor_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_PATIENCE_S", 0.5)
    release = threading.Event()

    class Hanging(ThreadPoolExecutor):
        def submit(self, *_work: object, **_more: object) -> Any:
            return super().submit(release.wait)

    with Hanging(1) as mine:
        with raises(ToolCrashError, "tool-crash", "executor='processes:8'") as caught:
            cujit.farm.build(variants(1), executor=mine, sink=tmp_path, deadline_s=0.1)
        release.set()
    assert "make the same call again to continue" in str(caught.value)


@pytest.mark.parametrize("python", ["", sys.executable])
def test_frozen_program_does_not_start_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: str) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setenv("CUJIT_PYTHON", python)
    if python:
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        assert cujit.farm.build(variants(1), executor="processes:1", sink=tmp_path).made == 1
        return
    with raises(UnsupportedError, "unsupported", "CUJIT_PYTHON"):
        cujit.farm.build(variants(1), executor="processes:1", sink=tmp_path)


def test_embedding_program_starts_an_interpreter(tmp_path: Path) -> None:
    code = """
        import os, sys
        sys.executable = os.path.join(os.path.dirname(sys.executable), "blender")
        import cujit
        from farming import variants
        print(len(cujit.farm.build(variants(1), executor="processes:1", sink="root").keys))
    """
    assert printed(code, cwd=tmp_path) == "1\n"


@pytest.mark.parametrize(("executor", "module"), [("dask://127.0.0.1:9", "distributed"), ("mpi", "mpi4py.futures")])
def test_missing_engine_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, executor: str, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with raises(MissingError, "missing", executor) as caught:
        cujit.farm.build(variants(1), executor=executor, sink=tmp_path)
    assert "pip install" in str(caught.value)


def test_expensive_work_goes_first_and_small_work_is_grouped(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    here = Elsewhere(tmp_path / "project")
    asked = [*variants(4), *variants(60, first=10)]
    times = {request: 1000.0 * n for n, request in enumerate(asked[:4], 1)}

    def make_ms(request: cujit.Request) -> float:
        return times.get(request, 0.5)

    report = cujit.farm.build(asked, executor=here, sink=tmp_path / "root", make_ms=make_ms, workers=1)
    assert (report.made, report.is_good) == (64, True)
    assert here.names[:4] == [list(request.names) for request in asked[3::-1]]
    assert 5 < here.tasks < 40


def test_header_changed_during_a_build_is_reported(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text('#include "near.h"\n__global__ void k(int *x) { *x = NEAR; }')
    header = tmp_path / "near.h"
    header.write_text("#define NEAR 1\n")
    request = cujit.request(cujit.Source.cuda(tmp_path / "k.cu"), arch="sm_90")

    def rewritten(_: cujit.Request) -> float:  # after its key was made
        header.write_text("#define NEAR 22\n")
        return 0.0

    with ThreadPoolExecutor(1) as executor:
        report = cujit.farm.build([request], executor=executor, sink=tmp_path / "root", make_ms=rewritten)
        (failure,) = report.failed
        assert "has another key of it: include" in failure.reason
        assert not report.keys
        assert cujit.farm.build([request], executor=executor, sink=tmp_path / "root").made == 1


def test_worker_with_other_nvrtc_settings_makes_equal_images(tmp_path: Path) -> None:
    (request,) = variants(1)
    with pool(1, NVRTC_DISABLE_CONCURRENT_NVVM="1", NVRTC_INTERNAL_GLOBAL_LOCK="1") as other:
        assert cujit.farm.build([request], executor=other, sink=tmp_path).made == 1
    found = cujit.compile(request.source, names=request.names, arch="sm_90", cache=Cache(tmp_path))
    assert found.provenance is not None
    assert found.provenance.is_hit
    assert found.data == cujit.compile(request.source, names=request.names, arch="sm_90", cache=False).data


def test_worker_needs_no_home_directory(tmp_path: Path) -> None:
    nowhere = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "CUJIT_CACHE_DIR"), "/proc/nowhere")
    with pool(1, **nowhere) as homeless:
        assert cujit.farm.build(variants(2), executor=homeless, sink=tmp_path).made == 2


def test_beginning_of_a_long_error_is_kept(tmp_path: Path) -> None:
    request = cujit.request(f"#error {'x' * 1_000_000}\n", arch="sm_90")
    many = "\n".join(f"__global__ void k{i}() {{ what{i}; }}" for i in range(10_000))
    with ThreadPoolExecutor(1) as executor:
        asked = [request, cujit.request(many, arch="sm_90")]
        report = cujit.farm.build(asked, executor=executor, sink=tmp_path)
    assert len(report.failed) == 2
    assert all("source.cu:1:" in failure.reason for failure in report.failed)
    assert len(str(report)) < 3000


_LATE = """
import os, sys, time
if any("cujit.farm.processes" in word for word in sys.orig_argv):
    try:
        os.close(os.open(os.path.join(os.path.dirname(__file__), "first"), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        time.sleep(3)
"""
"""Has the second worker still begin when the first one has made six."""


def test_ctrl_c_ends_a_farm_and_the_next_resumes(tmp_path: Path) -> None:
    command = [sys.executable, "-c", DRIVER, str(tmp_path / "cache")]
    (tmp_path / "sitecustomize.py").write_text(_LATE)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as driver:
        assert driver.stdout
        ours = driver.stdout.readline().split()
        os.killpg(driver.pid, signal.SIGINT)  # as a terminal does: to all of them
        _, said = driver.communicate(timeout=120)
    assert driver.returncode == -signal.SIGINT
    assert said.count("KeyboardInterrupt") == 1, said
    goes_on(tmp_path / "cache", ours)


def test_ctrl_c_does_not_wait_for_an_unresponsive_worker(tmp_path: Path) -> None:
    sessions: list[int] = []

    def stop(_done: int, _total: int, _name: str) -> None:
        (worker,) = workers()
        sessions.append(os.getsid(worker))
        os.kill(worker, signal.SIGSTOP)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cujit.farm.build(variants(2), executor="processes:1", sink=tmp_path, chunk_s=0.001, progress=stop)
    assert os.getsid(0) not in sessions


@pytest.mark.farm
def test_driver_of_100000_keys_takes_at_most_200_mb(tmp_path: Path) -> None:
    benchmark = Path(__file__).parents[2] / "benchmarks/farm.py"
    code = (
        f"import runpy, pathlib; runpy.run_path({str(benchmark)!r})['memory'](pathlib.Path({str(tmp_path)!r}), 100_000)"
    )
    said = printed(code, timeout_s=900)
    print(said)
    found = re.search(r"-> ([0-9]+) MB", said)
    assert found is not None
    assert int(found[1]) <= 200
