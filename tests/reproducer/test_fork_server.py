"""The process that is ready: it serves many launches, at once too, ends when nobody asks, and its death is nobody's."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import cujit
from cujit import reproducer
from cujit.errors import KernelFaultError, ToolCrashError, ToolTimeoutError, UnsupportedError
from cujit.reproducer import fork_server, running
from processes import children_of, lives, printed
from raising import raises
from reproducer.serving import serving_after
from waiting import eventually

_KERNEL = 'extern "C" __global__ void count(int *p) { while (p[1]) p[0]++; p[0]++; }'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A launch that counts to one."""
    device = cujit.cpu()
    cujit.jit(_KERNEL, device=device)["count"][1, 1].save(tmp_path / "count.launch", device.zeros(2, "int32"))
    return tmp_path / "count.launch"


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """A launch that counts for ever."""
    device = cujit.cpu()
    module = cujit.jit(_KERNEL, device=device)
    module["count"][1, 1].save(tmp_path / "endless.launch", device.array(np.ones(2, np.int32)))
    return tmp_path / "endless.launch"


@pytest.fixture(autouse=True)
def own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have no server but those that a test starts."""
    monkeypatch.setattr(fork_server, "_living", {})
    yield
    fork_server._end_all()


def servers() -> list[int]:
    return [server.process.pid for server in fork_server._living.values()]


def counted(path: Path) -> int:
    (found,) = reproducer.run(path, device="cpu").arguments
    assert isinstance(found, np.ndarray)
    return int(found[0])


def test_one_server_runs_all_launches_in_fresh_processes(path: Path) -> None:
    assert counted(path) == 1
    before = servers()
    assert [counted(path) for _ in range(3)] == [1, 1, 1]
    assert servers() == before
    assert len(before) == 1


def test_concurrent_launches_end_independently(path: Path, endless: Path) -> None:
    said: list[str] = []

    def run() -> None:
        with pytest.raises(KernelFaultError) as e:
            reproducer.run(endless, device="cpu", timeout_s=0.4)
        said.append(e.value.message)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert [counted(path) for _ in range(5)] == 5 * [1]
    for thread in threads:
        thread.join()
    assert len(said) == 2
    assert len(servers()) == 1


def test_idle_server_ends_and_another_starts(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = serving_after("from cujit.reproducer import child; child._IDLE_S = 0.1")
    monkeypatch.setattr(fork_server, "_BEGIN", begin)
    assert counted(path) == 1
    (first,) = servers()
    (server,) = fork_server._living.values()
    assert server.process.wait(60) == 0
    assert counted(path) == 1
    assert servers() != [first]


def test_request_during_shutdown_is_served(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes no more orders from there on, but that one."""
    late = """
from cujit.reproducer import child
class Late(child.selectors.DefaultSelector):
    has_waited = False
    def select(self, timeout=None):
        if timeout is None or self.has_waited:
            return super().select(timeout)
        self.has_waited = True
        return []
child.selectors.DefaultSelector = Late
"""
    begin = serving_after(late)
    monkeypatch.setattr(fork_server, "_BEGIN", begin)
    assert counted(path) == 1


def test_server_crash_is_an_error_and_the_next_one_works(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(fork_server, "_BEGIN", "raise SystemExit('no such day')")
        with raises(ToolCrashError, "tool-crash", "count", "1") as e:
            counted(path)
        assert "no such day" in str(e.value)
    assert counted(path) == 1
    (server,) = (each for each in fork_server._living.values() if each.is_alive)
    server.process.kill()
    server.process.wait()
    assert counted(path) == 1


def test_unresponsive_server_is_ended(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(fork_server, "_BEGIN", serving_after("import time; time.sleep(600)"))
        patch.setattr(running, "_READY_S", -0.5)
        patch.setattr(running, "_KILL_S", 0.2)
        with pytest.raises(ToolTimeoutError):
            reproducer.run(path, device="cpu", timeout_s=0.6)
    assert all(not server.is_alive for server in fork_server._living.values())
    assert counted(path) == 1


def test_hanging_process_is_killed_alone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = serving_after("import time; from cujit.reproducer import child; child.main = lambda *_: time.sleep(600)")
    monkeypatch.setattr(fork_server, "_BEGIN", begin)
    monkeypatch.setattr(running, "_READY_S", -0.5)
    with pytest.raises(ToolTimeoutError):
        reproducer.run(path, device="cpu", timeout_s=0.6)
    assert [server.is_alive for server in fork_server._living.values()] == [True]
    assert not children_of(servers()[0])


def test_killed_server_takes_its_children_along(endless: Path) -> None:
    errors: list[ToolCrashError] = []

    def run() -> None:
        with raises(ToolCrashError, "tool-crash", "SIGKILL") as e:
            reproducer.run(endless, device="cpu")
        errors.append(e.value)

    thread = threading.Thread(target=run)
    thread.start()
    forked = eventually(lambda: [each for server in servers() for each in children_of(server)])
    os.kill(servers()[0], signal.SIGKILL)
    thread.join(60)
    (error,) = errors
    assert error.help == f"allow more than 4,096 MiB and {running.TIMEOUT_S:g} s"
    eventually(lambda: not any(map(lives, forked)))


_FORKS = """
import os, sys
import cujit.reproducer
from cujit.reproducer import fork_server
sys.unraisablehook = lambda warned: print(warned.exc_value, flush=True)
run = lambda: int(cujit.reproducer.run(sys.argv[1], device="cpu").arguments[0][0])
print(run(), flush=True)
if not (child := os.fork()):
    print(len(fork_server._living), run(), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(run(), flush=True)
"""


def test_forked_child_has_its_own_server(path: Path) -> None:
    assert printed(_FORKS, path, options=("-W", "error")).split() == ["1", "0", "1", "1"]


def test_frozen_program_without_an_interpreter_starts_none(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.frozen", True, raising=False)
    with raises(UnsupportedError, "unsupported", "CUJIT_PYTHON"):
        counted(path)


def test_only_variables_of_whole_names_reach_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    from cujit.reproducer import fork_server

    secrets = (
        "LANGCHAIN_API_KEY",
        "HOMEBREW_GITHUB_API_TOKEN",
        "CUJIT_CACHE_TOKEN",
        "CUDA_SECRET",
        "PATHS",
        "NVIDIA_API_KEY",
    )
    for name in (*secrets, "LANG", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "0")
    assert not {*secrets} & fork_server._environment(is_gpu=True).keys()
    assert "CUDA_VISIBLE_DEVICES" not in fork_server._environment(is_gpu=False)
    assert {"LANG", "CUDA_VISIBLE_DEVICES"} <= fork_server._environment(is_gpu=True).keys()
