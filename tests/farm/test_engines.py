"""The farm on Dask's cluster, on MPI's ranks, and on processes that are killed over and over."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cujit
from cujit.cache.cache import Cache
from cujit.errors import ToolCrashError
from cujit.farm import engines, processes
from farming import variants, workers
from raising import raises

ARCHES = ["sm_80", "sm_90", "sm_100", "sm_120"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A scheduler and two processes for all tests here."""
    with pytest.importorskip("distributed").LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0", worker_dashboard_address=":0", silence_logs=50
    ) as made:
        yield made


def address(cluster: Any) -> str:
    return str(cluster.scheduler_address).replace("tcp://", "dask://")


def test_dask_builds_each_key_once_though_a_worker_is_killed(cluster: Any, tmp_path: Path) -> None:
    killed: list[int] = []

    def kill(done: int, _total: int, _name: str) -> None:
        if done >= 4 and not killed:
            killed.extend(worker.pid for worker in list(cluster.workers.values())[:1])
            os.kill(killed[0], signal.SIGKILL)

    report = cujit.farm.build(
        variants(4), ["sm_80", "sm_90"], executor=address(cluster), sink=tmp_path, chunk_s=0.1, progress=kill
    )
    assert killed
    assert (len(report.keys), report.failed, report.quarantined) == (8, (), ())
    from distributed import Client

    with Client(cluster, set_as_default=False) as client:
        again = cujit.farm.build(variants(5), "sm_90", executor=client.get_executor(pure=False), sink=tmp_path)
    assert (again.made, again.hit) == (1, 4)


def test_missing_cluster_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_CONNECT_S", 0.2)
    with raises(ToolCrashError, "tool-crash", "tcp://127.0.0.1:9"):
        cujit.farm.build(variants(1), executor="dask://127.0.0.1:9", sink=tmp_path)


@pytest.mark.farm
def test_thousand_on_dask(cluster: Any, tmp_path: Path) -> None:
    report = cujit.farm.build(variants(250), ARCHES, executor=address(cluster), sink=tmp_path)
    assert (report.made, report.is_good) == (1000, True)


@pytest.mark.farm
def test_1000_keys_on_killed_processes_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(processes, "_ENTRY", "farming:serve_and_log")
    kills: list[int] = []

    def kill(done: int, _total: int, _name: str) -> None:
        if done >= 250 * (len(kills) + 1) and len(kills) < 3:
            kills.append(workers()[0])
            os.kill(kills[-1], signal.SIGKILL)

    report = cujit.farm.build(variants(250), ARCHES, executor="processes:2", sink=tmp_path / "root", progress=kill)
    assert len(kills) == 3
    assert (len(report.keys), report.failed, report.quarantined) == (1000, (), ())
    begun = len(log.read_text().splitlines())
    assert 1000 <= begun <= 1010, "a compile in each of the two processes is lost with either"
    root = Cache(tmp_path / "root").stores[0]
    assert all(root.get(key).record is not None for key in report.keys)


@pytest.mark.farm
@pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no MPI")
def test_mpi_builds_a_list(tmp_path: Path) -> None:
    with cujit.record_worklist(tmp_path / "rec"):
        for request in variants(8):
            cujit.compile(request.source, names=request.names, arch="sm_90")
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "3", sys.executable, "-m", "mpi4py.futures"]
    verb = ["-m", "cujit", "farm", "build", "rec", "--executor", "mpi", "--root", "root", "-o", "k.pack"]
    done = subprocess.run(
        [*mpirun, *verb, "--arch", "sm_80"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "8 images: 8 made, 0 found; 0 failed" in done.stderr
