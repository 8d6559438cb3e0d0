"""Ctrl-C and time limits end precompiling of headers, tunings and farms in time, and the next call works."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cujit
from cujit.devices.device import Device
from cujit.errors import ToolTimeoutError
from cujit.farm import processes as farm_processes
from cujit.farm.tasks import ChunkResult, WorkChunk
from cujit.toolchain import nvrtc, stopping
from cujit.workers.process import Worker
from processes import lives
from waiting import eventually

DELAY_S, SOON_S = 0.1, 1.2
"""When work is interrupted after it has begun; and the CPU seconds of this process until the caller hears of it."""

GIVEN_UP_S = 10
"""Seconds after which a stopped worker goes on."""

KERNEL = 'extern "C" __global__ void busy(float *x, int work) { while (work--) x[threadIdx.x] *= 0.5f + W; }\n'


def _long(count: int) -> cujit.Source:
    """Return a source whose compile takes long."""
    header = "".join(
        f"template <int N> struct S{i} {{ int a[N]; __device__ int f(int x) {{ return a[0] * x + {i}; }} }};\n"
        f"struct T{i} : S{i}<{i % 7 + 1}> {{ T{i}(const T{i}&) = default; }};\n"
        for i in range(count)
    )
    return cujit.Source.cuda('#include "long.h"\n' + KERNEL, name="long.cu", headers={"long.h": header})


LONG = _long(30_000)
"""A source whose compile takes seconds."""
PRECOMPILED = _long(15_000)
"""A source whose headers take seconds to precompile, which is slower than to compile."""
SHORT = cujit.Source.cuda(f'#include "short.h"\n{KERNEL}', name="short.cu", headers={"short.h": "struct S {};\n"})


@contextlib.contextmanager
def pressed(delay_s: float = DELAY_S) -> Iterator[Callable[[], None]]:
    """Give a function that presses Ctrl-C a little later, once, and hold that the body ends soon after that."""
    times: list[float] = []

    def press() -> None:
        if not times:
            times.append(time.process_time())
            signal.setitimer(signal.ITIMER_REAL, delay_s)

    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            yield press
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.process_time() - times[0] < SOON_S
    eventually(lambda: not stopping.is_work_left(), within_s=300)


def when_nvrtc_compiles(press: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Press as soon as NVRTC begins."""
    compile = nvrtc.nvrtcCompileProgram

    def armed(*arguments: Any) -> Any:
        press()
        return compile(*arguments)

    monkeypatch.setattr(nvrtc, "nvrtcCompileProgram", armed)


@contextlib.contextmanager
def stopped_workers(press: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Press when a farm's worker begins, and stop the worker first, so that no compile ends: only ``kill`` ends it.

    The worker goes on after ``GIVEN_UP_S``, so that a farm that waits for the worker ends too, and fails the test.
    """
    pids: list[int] = []
    given_up: list[int] = []
    timers: list[threading.Timer] = []

    def resume(pid: int) -> None:
        given_up.append(pid)
        os.kill(pid, signal.SIGCONT)

    def begun(worker: Worker, chunk: WorkChunk) -> ChunkResult:
        pid = worker.process.pid
        if not pids:
            timers.append(threading.Timer(DELAY_S, os.kill, (pid, signal.SIGSTOP)))
            timers.append(threading.Timer(GIVEN_UP_S, resume, (pid,)))
            for timer in timers:
                timer.start()
            press()
        pids.append(pid)
        return run_chunk(worker, chunk)

    run_chunk = farm_processes._run_chunk
    with monkeypatch.context() as patch:
        patch.setattr(farm_processes, "_run_chunk", begun)
        try:
            yield pids
        finally:
            for timer in timers:
                timer.cancel()
            assert not given_up, "the farm waited for its worker"


def precompile(source: cujit.Source, timeout_s: float | None = None) -> cujit.Artifact:
    """Compile a source for which its headers are precompiled."""
    return cujit.compile(source, arch="sm_90", to="ptx", define={"W": 1}, pch=True, cache=False, timeout_s=timeout_s)


def tuned(source: cujit.Source, device: Device, press: Callable[[], None], work: int) -> Mapping[str, object]:
    """Tune the kernel, whose launches do so much work; press once the kernel is compiled."""
    x = device.zeros(32, np.float32)

    def workload(kernel: cujit.Kernel, values: Mapping[str, Any]) -> Callable[[], object]:
        launch = kernel[1, 32]
        launch(x, 1)
        press()
        return functools.partial(launch, x, values["WORK"])

    space = {"W": [1, 2], "WORK": [work]}
    return cujit.tune(source, space, workload, shape=work, becomes={"WORK": "launch"}, device=device, rounds=1).values


def test_ctrl_c_ends_the_precompiling_of_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    with pressed() as press:
        when_nvrtc_compiles(press, monkeypatch)
        precompile(PRECOMPILED)
    assert "busy" in precompile(SHORT).signatures


def test_time_limit_ends_the_precompiling_of_headers() -> None:
    begin = time.process_time()
    with pytest.raises(ToolTimeoutError):
        precompile(LONG, timeout_s=0.1)
    assert time.process_time() - begin < SOON_S
    eventually(lambda: not stopping.is_work_left(), within_s=300)
    assert "busy" in precompile(SHORT).signatures


@pytest.mark.parametrize("what", ["compile", "launch"])
def test_ctrl_c_ends_a_tuning(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpu: Device) -> None:
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path))
    with pressed() as press:
        if what == "compile":
            with monkeypatch.context() as patch:
                when_nvrtc_compiles(press, patch)
                tuned(LONG, cpu, lambda: None, 1)
        else:
            tuned(SHORT, cpu, press, 2_000_000_000)
    assert tuned(SHORT, cpu, lambda: None, 1)["WORK"] == 1


def test_device_time_limit_ends_the_launches_of_a_tuning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path))
    begin = time.process_time()
    with pytest.raises(cujit.errors.NotTunedError):
        tuned(SHORT, cujit.cpu(1, timeout_s=0.2), lambda: None, 2_000_000_000)
    assert time.process_time() - begin < 4 * SOON_S  # it tries two candidates


def test_ctrl_c_ends_a_farm_while_its_worker_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = [cujit.request(LONG, arch="sm_90", define={"W": n}) for n in range(9)]
    with pressed(delay_s=1) as press, stopped_workers(press, monkeypatch) as workers:
        cujit.farm.build(asked, executor="processes:1", sink=tmp_path)
    assert len(workers) == 1
    assert not lives(workers[0])
    report = cujit.farm.build(
        [cujit.request(SHORT, arch="sm_90", define={"W": 1})], executor="processes:1", sink=tmp_path
    )
    assert report.is_good, [failure.reason for failure in report.failed]
