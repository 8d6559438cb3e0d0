"""The farm on a real Ray cluster on this machine: what it builds, and what a worker that dies costs."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import cujit
from cujit.errors import MissingError, ToolCrashError
from farming import variants
from raising import raises

has_ray = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed: `make clients`")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A cluster of two processors; it stays connected, as a program of Ray's users is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        patch.setenv("RAY_DISABLE_DOCKER_CPU_WARNING", "1")
        import ray

        folders = [str(Path(__file__).parents[2] / name) for name in ("src", "tests")]
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join(folders)}},
        )
        yield ray
        ray.shutdown()


@has_ray
@pytest.mark.filterwarnings("ignore")  # of Ray
def test_ray_builds_each_key_once_though_a_worker_is_killed(cluster: Any, tmp_path: Path) -> None:
    pids = cluster.get([cluster.remote(lambda: os.getpid()).remote() for _ in range(2)])
    killed: list[int] = []

    def kill(done: int, _total: int, _name: str) -> None:
        if done >= 2 and not killed:
            killed.append(pids[0])
            os.kill(pids[0], signal.SIGKILL)

    report = cujit.farm.build(
        variants(4), ["sm_80", "sm_90"], executor="ray", sink=tmp_path, chunk_s=0.1, progress=kill
    )
    assert killed
    assert (len(report.keys), report.failed, report.quarantined) == (8, (), ())
    again = cujit.farm.build(variants(4), ["sm_80", "sm_90"], executor="ray", sink=tmp_path)
    assert (again.made, again.hit) == (0, 8)
    assert cluster.is_initialized()


@has_ray
@pytest.mark.filterwarnings("ignore")
def test_missing_cluster_is_named(tmp_path: Path) -> None:
    import ray

    if ray.is_initialized():
        ray.shutdown()
    with raises(ToolCrashError, "tool-crash", "Ray"):
        cujit.farm.build(variants(1), executor="ray", sink=tmp_path)


def test_missing_ray_is_reported_with_an_install_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with raises(MissingError, "missing", "ray"):
        cujit.farm.build(variants(1), executor="ray", sink=tmp_path)
