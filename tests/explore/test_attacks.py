"""Sources that attack: what they may harm is a process of their own, and the server goes on."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cujit.explore import workers
from cujit.reproducer.child import NAME
from explore.conftest import CODE, Asking, Serve, parents, processes, read
from waiting import eventually

PRINTF = 'extern "C" __device__ int printf(const char *, ...);\n'
ONE = {"grid": "1", "block": "1", "arguments": "zeros:i64:16", "on": ""}


def kernel(body: str, before: str = "") -> str:
    return f'{before}extern "C" __global__ void attack(long *p) {{ {body} }}\n'


def launched() -> list[int]:
    """List the processes apart that are of this test's explorers."""
    names = {number: Path(f"/proc/{number}/comm") for number in processes("cujit.reproducer.child")}
    return [number for number, name in names.items() if read(name) == f"{NAME}\n" and os.getpid() in parents(number)]


def test_endless_kernel_is_ended_at_its_line(alone: Serve) -> None:
    asking = alone(timeout_s=1)
    said = asking.look(kernel("while (*(volatile long *)p == 0);\n    p[1] = 1;"), **ONE)
    (error,) = said["record"]["errors"]
    assert (error["rule"], error["source"]) == ("timeout", "shared.cu:1")
    assert said["record"]["explorer"]["is_compiled"]
    assert asking.look()["record"]["explorer"]["is_counted"]


def test_page_is_served_and_later_scenes_end_a_looping_kernel(serve: Serve) -> None:
    asking = serve(timeout_s=300)
    before: list[object] = []
    looping = threading.Thread(target=lambda: before.append(asking.look(kernel("for (;;) p[0]++;"), **ONE)))
    looping.start()
    assert len(eventually(launched)) == 1
    began = time.monotonic()
    assert asking.ask("GET", f"/?token={asking.token}").status == 200
    assert time.monotonic() - began < 5
    assert asking.look()["record"]["explorer"]["is_counted"]
    looping.join(30)
    assert before == [{"stage": "superseded"}]
    eventually(lambda: not launched())


def test_abandoned_scene_is_given_up(serve: Serve) -> None:
    asking = serve(timeout_s=300)
    connection = http.client.HTTPConnection("127.0.0.1", asking.port, timeout=60)
    body = json.dumps({"source": kernel("for (;;) p[0]++;"), **ONE})
    connection.request("POST", "/look", body, {"X-Cujit-Token": asking.token})
    with connection.getresponse() as answer:
        eventually(launched)
        assert answer.status == 200
    connection.close()
    eventually(lambda: not launched())


@pytest.mark.parametrize("check", ["all", ""])
def test_wild_writes_end_only_the_kernels_process(serve: Serve, check: str) -> None:
    asking = serve()
    said = asking.look(kernel("for (long i = 0; i < 1l << 40; i += 64) p[i] = p[-i] = i;"), **ONE, check=check)
    (error,) = said["record"]["errors"]
    assert error["rule"] == ("memory" if check else "error") or "attack" in error["text"]
    assert asking.look()["record"]["explorer"]["is_counted"]


def test_1_of_50_printed_megabytes_is_shown(serve: Serve) -> None:
    asking = serve(timeout_s=60)
    code = kernel(r'printf("%49999d\n", 1);', PRINTF)
    said = asking.look(code, **{**ONE, "grid": "4", "block": "256"}, check="")["record"]["explorer"]
    assert len(said["printed"]) == 1 << 20
    assert len(said["printed"]) + said["dropped_bytes"] == 1024 * 50_000
    assert asking.look()["record"]["explorer"]["is_counted"]


def test_memory_of_a_launch_is_limited(alone: Serve) -> None:
    asking = alone(memory_mib=2048)
    body = "char *q; long n = 0; while ((q = (char *)malloc(1 << 20))) { q[0] = 1; n++; } p[0] = n;"
    said = asking.look(kernel(f'{body} printf("%ld MiB", n);', PRINTF), **ONE, check="")
    words = said["record"]["explorer"]["printed"]
    errors = said["record"]["errors"]
    assert errors or int(words.split()[0]) < 2048


@pytest.mark.parametrize(
    "arguments", ["zeros:f32:99999999999999", "ones:f64:33554433", "zeros:u8:1 " * 3 + "ones:u8:300000000"]
)
def test_memory_of_arguments_is_limited(asking: Asking, arguments: str) -> None:
    said = asking.look(kernel(""), **{**ONE, "arguments": arguments})
    (error,) = said["record"]["errors"]
    assert "maximum is 268,435,456" in error["text"]


def test_compile_that_exhausts_memory_ends_only_its_process(alone: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_MEMORY_MIB", 1000)
    asking = alone()
    said = asking.look(kernel("p[0] = a[p[1]];", "__device__ int a[1 << 25] = {1, 2};\n"), **ONE)
    assert said["stage"] == "failed"
    assert "died: SIGABRT" in said["message"] or "not enough memory" in said["message"]
    assert asking.look()["record"]["explorer"]["is_compiled"]


def test_dead_worker_is_replaced(serve: Serve) -> None:
    asking = serve()
    assert asking.look()["record"]["explorer"]["is_counted"]
    for number in _workers():
        os.kill(number, signal.SIGKILL)
    time.sleep(0.5)  # until the server knows
    assert asking.look(CODE + "\n")["record"]["explorer"]["is_counted"]


def test_idle_workers_remain(serve: Serve) -> None:
    asking = serve()
    asking.look(grid="")
    waiting = eventually(lambda: found if len(found := _workers()) > 1 else None)
    asking.look(grid="")
    assert set(waiting or ()) <= {*_workers()}


def test_slow_scene_is_given_up(alone: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    asking = alone(timeout_s=0.01)
    monkeypatch.setattr(workers, "_COMPILE_S", 0)
    said = asking.look(CODE)
    assert (said["stage"], said["message"]) == ("failed", "the request was canceled after 0.01 s")
    monkeypatch.undo()
    assert asking.look(grid="")["record"]["explorer"]["is_compiled"], "by another process"


def test_cause_of_a_workers_death_is_reported(alone: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_BEGIN", "import json, os, sys; exec(json.loads(input())['scene']['source'])")
    asking = alone()
    ways = {"sys.exit(0)": "status 0", "sys.exit(3)": "status 3", "os.kill(os.getpid(), 9)": "SIGKILL"}
    for ends, said in ways.items():
        assert asking.look(ends)["message"] == f"the worker process died: {said}"


_NOISY = """
import os, resource, sys
from cujit.explore import worker
def noisy(scene, say, **more):
    if scene.source == "end":
        say("launching")
        os._exit(0)
    os.write(1, f"{resource.getrlimit(resource.RLIMIT_CORE)} {resource.getrlimit(resource.RLIMIT_AS)}".encode())
    return analyze(scene, say=say, **more)
analyze, worker.analyze = worker.analyze, noisy
answers = os.dup(1)
os.dup2(2, 1)
worker.main(answers, *map(int, sys.argv[1:]))
"""


def test_worker_is_limited_and_ignores_library_output() -> None:
    command = [sys.executable, "-c", _NOISY, str(os.getpid()), "8192"]
    asked = "".join(json.dumps({"scene": {"source": source}}) + "\n" for source in ("nonsense", "end"))
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=True)
    assert [json.loads(line)["stage"] for line in done.stdout.splitlines()] == ["compiling", "done", "launching"]
    assert f"(0, 0) ({8 << 30}, {8 << 30})" in done.stderr


def test_no_process_outlives_the_explorer(serve: Serve, alone: Serve) -> None:
    serve()
    others = _workers()
    asking = alone(timeout_s=300)
    said: list[dict[str, object]] = []
    looping = threading.Thread(target=lambda: said.append(asking.look(kernel("for (;;) p[0]++;"), **ONE)))
    looping.start()
    eventually(launched)
    asking.explorer.close()
    looping.join(30)
    assert said == [{"stage": "failed", "message": "the explorer was stopped", "help": None}]
    eventually(lambda: not launched() and _workers() == others)


def _workers() -> list[int]:
    return sorted(number for number in processes("cujit.explore.worker") if os.getpid() in parents(number))


def test_launch_cannot_read_files_or_begin_programs(serve: Serve, tmp_path: Path) -> None:
    """What the process apart forbids holds here, too: a host's functions are called by their addresses."""
    asking = serve()
    code = kernel(r'p[0] = system("touch stolen");', 'extern "C" __device__ int system(const char *);\n')
    said = asking.look(code, **ONE)
    assert said["record"]["errors"]
    assert not (tmp_path / "stolen").exists()
