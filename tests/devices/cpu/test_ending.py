"""Launches that do not end by themselves: the time limit, cancelling, Ctrl-C; and the device afterwards."""

from __future__ import annotations

import os
import re
import textwrap
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from cujit.devices.device import Device
from cujit.errors import KernelFaultError, LaunchError, UnsupportedError
from cujit.kernel import Kernel
from cujit.loading import Module, jit
from cujit.machine import cpu
from groups import GROUPS
from processes import printed
from raising import raises

ENDLESS = r"""
#include <cstdio>
extern "C" __global__ void spin(volatile int *x, int n) {
    while (x[0] == 0) {}
    x[1] = n;
}
extern "C" __global__ void later(volatile int *x, int n) {  // each block waits for the one behind it
    if (threadIdx.x == 0) { while (x[(blockIdx.x + 1) % gridDim.x + 1] == 0) {} x[blockIdx.x + 1] = 1; }
    __syncthreads();
    if (n < 0) x[0] = n;
}
extern "C" __global__ void loops(int *x, int n) {
    unsigned a = threadIdx.x;
    for (int i = 0; i != n; i++) for (unsigned k = 0; k < 100000000u; k++) a = a * 1664525u + (a >> 3) + i * k;
    x[0] = a;
}
extern "C" __global__ void walks(volatile int *x, int n) {  // memory and a barrier in each turn
    __shared__ int s[256];
    for (int i = 0; i != n; i++) {
        s[threadIdx.x] = x[(i + threadIdx.x) & 63];
        __syncthreads();
        x[threadIdx.x & 63] = s[(threadIdx.x + 1) % blockDim.x] + 1;
        __syncthreads();
    }
}
extern "C" __global__ void stays(int *x, int n) {  // a word of shared memory a thread, and no barrier
    __shared__ int s[256];
    s[threadIdx.x] = 0;
    for (int i = 0; i != n; i++) { s[threadIdx.x] += i; asm volatile("" ::: "memory"); }
    x[threadIdx.x & 63] = s[threadIdx.x];
}
extern "C" __global__ void some(volatile int *x, int n) {  // a warp that loops, others at a barrier
    if (threadIdx.x < 32) for (unsigned k = 0; k != n; k++) x[k & 63] += k >> 3;
    __syncthreads();
}
extern "C" __global__ void counted(volatile int *x, int n) {  // the same at a barrier for as many threads as are said
    if (threadIdx.x < 32) for (unsigned k = 0; k != n; k++) x[k & 63] += k >> 3;
    asm volatile("barrier.sync 1, %0;" :: "r"(blockDim.x));
}
__device__ __noinline__ int deep(volatile int *x, int n) { while (x[0] == 0 && n) {} return n; }
extern "C" __global__ void calls(int *x, int n) { x[1] = deep(x, n); }
"""
KERNELS = ("spin", "later", "loops", "walks", "stays", "some", "calls")
GOOD = 'extern "C" __global__ void good(int *x) { x[threadIdx.x] = __shfl_xor_sync(~0u, threadIdx.x, 1); }'


@pytest.fixture(scope="module", params=[None, "all"], ids=["plain", "checked"])
def place(request: pytest.FixtureRequest) -> Device:
    return cpu(2, check=request.param)


@pytest.fixture(autouse=True)
def _checked_code_is_plain(request: pytest.FixtureRequest) -> None:
    """Have kernels under checks compiled without LLVM's optimiser; those of the same tests without checks have it."""
    if {"all", "checked"} & {*re.split(r"[\[\]-]", request.node.name)}:
        request.getfixturevalue("unoptimised")


@pytest.fixture(scope="module")
def endless(place: Device) -> Module:
    return jit(ENDLESS, device=place)


@pytest.fixture(scope="module")
def good(place: Device) -> Kernel:
    return jit(GOOD, device=place)["good"]


def is_well(good: Kernel) -> bool:
    """Whether a device computes: memory, and launches by hand and by machine code."""
    for _ in range(6):
        x = good.device.zeros(64, np.int32)
        good[1, 64](x)
        if not np.array_equal(x.numpy(), np.arange(64) ^ 1):
            return False
    return True


@pytest.mark.parametrize(("grid", "block"), [(2, 32), (40, 256)], ids=["few", "many"])
@pytest.mark.parametrize("name", KERNELS)
def test_launch_ends_at_its_time_limit(endless: Module, good: Kernel, name: str, grid: int, block: int) -> None:
    x = endless.device.zeros(64, np.int32)
    launch = endless[name].prepare(grid, block, timeout_s=0.02)
    begin = time.perf_counter()
    with pytest.raises(KernelFaultError) as caught:
        launch(x, -1)
    took = time.perf_counter() - begin
    error = caught.value
    assert took >= 0.02  # how much longer is the load's and, in an emulator, the compiler's that finds the line
    assert (error.kind, error.kernel) == ("timeout", name)
    assert "it ran longer than timeout_s=0.02" in error.message
    assert error.line
    assert error.block is not None
    assert f"PTX line {error.line}: " in error.message
    assert is_well(good)


def ends(launch: Callable[..., object], *arguments: object) -> KernelFaultError:
    with pytest.raises(KernelFaultError) as caught:
        launch(*arguments)
    return caught.value


@pytest.mark.verbatim
def test_report_names_running_spinning_and_waiting_threads() -> None:
    device = cpu(1)
    source = """extern "C" __global__ void meet(volatile int *x) {
        if (threadIdx.x < 64)
            while (x[0] == 0) {}
        __syncthreads();
    }"""
    kernel = jit(source, device=device, name="meet.cu", lineinfo=True)["meet"]
    error = ends(kernel.prepare((2, 3), 96, timeout_s=0.05), device.zeros(1, np.int32))
    assert re.search(r"block \(0, 0, 0\), warps? [01].* at PTX line \d+: ld\.volatile.*meet\.cu:3", error.message)
    assert "block (0, 0, 0), threads 64-95 at barrier 0, where 32 of 96 threads have arrived" in error.message
    assert "5 of 6 blocks had not started" in error.message
    assert "cooperative=True" in (error.help or "")


@pytest.mark.parametrize("optimized", ["1", "0"])
def test_report_names_the_line_of_a_loop_and_its_warp(optimized: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_CPU_OPTIMIZE", optimized)
    device = cpu(1)
    source = """extern "C" __global__ void loops(unsigned *x) {
        unsigned a = threadIdx.x;
        if (threadIdx.x >= 64)
            for (unsigned k = 0; k != a * 2 + 1; k += 2)
                a = a * 1664525u + (a >> 3);
        x[threadIdx.x] = a;
    }"""
    kernel = jit(source, device=device, name="loops.cu", lineinfo=True)["loops"]
    error = ends(kernel.prepare(1, 128, timeout_s=0.05), device.zeros(128, np.uint32))
    assert re.search(r"block \(0, 0, 0\), warp 2 ran at PTX line \d+: .*\(.*loops\.cu:[45]\)", error.message)


def test_device_time_limit_is_the_default_of_launches() -> None:
    device = cpu(2, timeout_s=0.05)
    assert device is cpu(2, timeout_s=0.05)
    module, x = jit(ENDLESS, device=device), device.zeros(64, np.int32)
    assert "timeout_s=0.05" in ends(module["loops"][1, 32], x, -1).message
    assert "timeout_s=0.1" in ends(module["loops"].prepare(1, 32, timeout_s=0.1), x, -1).message


def test_launch_by_machine_code_ends_too(endless: Module, good: Kernel) -> None:
    x = endless.device.array(np.ones(64, np.int32))
    launch = endless["spin"].prepare(4, 64, timeout_s=0.1)
    for turn in range(40):  # the first are Python's; the rest begin soon after
        launch(x, turn)
        time.sleep(0.005)
    assert x.numpy()[1] == 39
    x.fill(0)
    for _ in range(2):
        assert ends(launch, x, 1).kind == "timeout"
    x.fill(1)
    launch(x, 7)
    assert x.numpy()[1] == 7
    assert is_well(good)


def test_launches_of_streams_and_graphs_end(endless: Module, good: Kernel) -> None:
    device = endless.device
    x, stream = device.zeros(64, np.int32), device.stream()
    launch = endless["loops"].prepare(2, 64, stream=stream, timeout_s=0.05)
    assert ends(launch, x, -1).kind == "timeout"
    with device.capture(stream) as inner:
        launch(x, -1)
    with device.capture(stream) as outer:
        good.prepare(1, 64, stream=stream)(x)
        inner.launch(stream)
    for graph in (inner, outer, inner):
        assert ends(graph.launch).kind == "timeout"
    assert np.array_equal(x.numpy(), np.arange(64) ^ 1)
    assert is_well(good)


def test_concurrent_launches_end_at_their_own_time_limits(endless: Module, good: Kernel) -> None:
    device = endless.device

    def run(k: int) -> tuple[str, float]:
        begin = time.perf_counter()
        error = ends(endless[KERNELS[k]].prepare(8, 64, timeout_s=0.05 * (k + 1)), device.zeros(64, np.int32), -1)
        return error.kind, time.perf_counter() - begin

    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(run, (0, 2, 3)))
    assert [kind for kind, _ in found] == ["timeout"] * 3
    assert all(took >= least for (_, took), least in zip(found, (0.05, 0.15, 0.2), strict=True))
    assert is_well(good)


def test_cancelled_launch_does_not_end_others(endless: Module, good: Kernel) -> None:
    device = endless.device
    x, y = device.zeros(64, np.int32), device.zeros(64, np.int32)
    with ThreadPoolExecutor(2) as threads:
        endless_one = threads.submit(ends, endless["spin"].prepare(4, 64, timeout_s=60), x, 1)
        other = threads.submit(endless["walks"].prepare(2, 64, timeout_s=60), y, 3000)
        time.sleep(0.1)
        begin = time.perf_counter()
        while not endless_one.done() and time.perf_counter() - begin < 20:
            endless["spin"].cancel()
            time.sleep(0.05)
        assert endless_one.result().kind == "cancelled"
        assert "it was canceled" in endless_one.result().message
        other.result()
    assert is_well(good)
    x.fill(1)
    endless["spin"][4, 64](x, 5)  # what begins later is not cancelled
    assert x.numpy()[1] == 5


def test_fault_ends_the_blocks_of_other_threads() -> None:
    source = """extern "C" __global__ void k(volatile unsigned *x) {
        unsigned a = threadIdx.x;
        if (blockIdx.x == 0) { while (x[0] == 0) {} __trap(); }
        x[0] = 1;
        for (unsigned k = 0; k != a * 2 + 1; k += 2) a = a * 1664525u + (a >> 3);
        x[1] = a;
    }"""
    device = cpu(2)
    launch = jit(source, device=device)["k"].prepare(6, 512, timeout_s=30)
    assert ends(launch, device.zeros(2, np.uint32)).kind == "trap"


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf"), "1", True, 1 << 400, np.zeros(3)])
def test_invalid_time_limit_is_refused(wrong: object) -> None:
    kernel = jit(GOOD, device=cpu())["good"]
    with raises(LaunchError, "launch", "timeout_s"):
        kernel.prepare(1, 1, timeout_s=wrong)  # type: ignore[arg-type]
    with raises(LaunchError, "launch", "timeout_s"):
        cpu(timeout_s=wrong)  # type: ignore[arg-type]


@pytest.mark.gpu
def test_gpu_launch_has_no_time_limit(gpu: Device) -> None:
    kernel = jit(GOOD, device=gpu)["good"]
    with raises(LaunchError, "launch", "timeout_s"):
        kernel.prepare(1, 32, timeout_s=1)
    with raises(UnsupportedError, "unsupported"):
        kernel.cancel()


# -- ending anywhere --------------------------------------------------------------------------------------

BUSY = (
    GROUPS
    + r"""
#include <cstdio>
extern "C" __global__ void busy(volatile unsigned *x, int n, int what) {
    __shared__ unsigned s[128];
    for (int i = 0; i != n; i++) {
        unsigned t = threadIdx.x, v = x[(i + t) & 1023];
        if (what & 1) { s[t] = v; __syncthreads(); v += s[(t + 7) & 127]; __syncthreads(); }
        if (what & 2) { atomicAdd(&s[t & 3], v); atomicMax((unsigned *)&x[1024 + (t & 7)], v); }
        if (what & 4) v += __shfl_xor_sync(~0u, v, 1 + (i & 15)) + __popc(__ballot_sync(~0u, v & 1));
        if (what & 8) { unsigned *m = (unsigned *)malloc(16); if (m) { *m = v; v = *m; free(m); } }
        if ((what & 16) && i % 4096 == 0 && t == 0) printf("%u\n", v);
        if (what & 32) cooperative_groups::this_grid().sync();
        if (i == n - 1) x[blockIdx.x * blockDim.x + t] = v;
    }
}
"""
)


@pytest.mark.parametrize("check", [None, "all"])
def test_launch_may_end_anywhere(check: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    # The sweep: whatever a kernel does, it ends, and what the same device computes afterwards is right.
    device = cpu(2, check=check)
    kernel = jit(BUSY, device=device)["busy"]
    rng = np.random.default_rng(12)
    for turn in range(8 * int(os.environ.get("CUJIT_EFFORT", "1"))):
        what = (0, 1, 2, 4, 8, 16, 32, 47)[turn % 8]
        if check and what & 2:
            what &= ~2  # the sum of s is a race with its use
        data = rng.integers(0, 1 << 31, 4096, np.uint32)
        want, x, got = (device.array(data) for _ in range(3))
        kernel.prepare(4, 128, cooperative=True)(want, 1, what & 45)
        limit = float(rng.uniform(0.001, 0.02))
        error = ends(kernel.prepare(4, 128, cooperative=bool(what & 32), timeout_s=limit), x, -1, what)
        assert error.kind == "timeout", error
        capsys.readouterr()
        kernel.prepare(4, 128, cooperative=True)(got, 1, what & 45)
        np.testing.assert_array_equal(got.numpy(), want.numpy())


def script(text: str) -> str:
    """Write a program that knows the sources of kernels here."""
    return f"ENDLESS, GOOD = {ENDLESS!r}, {GOOD!r}\n" + textwrap.dedent(text)


# -- signals ----------------------------------------------------------------------------------------------

INTERRUPTED = """
import os, signal, sys, threading, time
import numpy as np, cujit
at = [0.0]
def interrupt():
    time.sleep(0.02)
    at[0] = time.perf_counter()
    os.kill(os.getpid(), signal.SIGINT)
for check in (None, "all"):
    os.environ["CUJIT_CPU_OPTIMIZE"] = "0" if check else "1"
    device = cujit.cpu(2, check=check)
    module = cujit.jit(ENDLESS, device=device)
    good = cujit.jit(GOOD, device=device)["good"]
    x = device.zeros(64, np.int32)
    for name in ("spin", "loops", "walks", "some", "counted", "calls"):
        for grid, block in ((1, 64), (40, 256)):
            try:
                module[name].prepare(grid, block, timeout_s=0.001)(x, -1)
            except cujit.errors.KernelFaultError:
                pass
            thread = threading.Thread(target=interrupt)
            try:
                x.fill(0)
                thread.start()
                module[name][grid, block](x, -1)
                print(name, "ended by itself")
            except KeyboardInterrupt as error:
                took = time.perf_counter() - at[0]
                notes = getattr(error, "__notes__", ["it was interrupted"])
                if "it was interrupted" not in notes[0] or (name == "counted" and "warp 0 ran at" in notes[0]):
                    print(notes)
            thread.join()
            x.fill(0)
            good[1, 64](x)
            well = np.array_equal(x.numpy(), np.arange(64) ^ 1)
            print(check, name, grid, "within" if took < 5 else took, "well" if well else "ill")
"""


def test_ctrl_c_ends_a_launch_of_the_main_thread_at_once() -> None:
    text = printed(script(INTERRUPTED), timeout_s=240)
    lines = text.splitlines()
    assert len(lines) == 24, text
    assert all(line.endswith("within well") for line in lines), text


def test_signal_handlers_run_during_a_kernel() -> None:
    code = """
    import os, signal, time
    import numpy as np, cujit
    device = cujit.cpu(2)
    module = cujit.jit(ENDLESS, device=device)
    good = cujit.jit(GOOD, device=device)["good"]
    ran, y = [], device.zeros(64, np.int32)
    good[1, 64](y)  # what a handler needs is compiled by now
    def tick(*_):
        y.fill(0)
        good[1, 64](y)  # inside the other launch
        ran.append(int(y.numpy().sum()))
        if len(ran) >= 3:
            kernel.cancel()
    signal.signal(signal.SIGALRM, tick)
    signal.signal(signal.SIGURG, lambda *_: ran.append("urgent"))
    x = device.zeros(64, np.int32)
    for name in ("loops", "walks", "some"):
        try:
            module[name].prepare(4, 64, timeout_s=0.001)(x, -1)
        except cujit.errors.KernelFaultError:
            pass
    for name in ("loops", "walks", "some"):
        del ran[:]
        kernel = module[name]
        signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
        try:
            kernel.prepare(4, 64, timeout_s=60)(x, -1)
        except cujit.errors.KernelFaultError as error:
            signal.setitimer(signal.ITIMER_REAL, 0)
            print(name, error.kind, len(ran) >= 3, set(ran) == {2016})
    class Stop(Exception): pass
    def stop(*_): raise Stop("enough")
    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        module["some"][4, 64](x, -1)
    except Stop as error:
        print("stopped:", error)
    del ran[:]
    os.kill(os.getpid(), signal.SIGURG)
    for _ in range(100):
        if ran: break
        time.sleep(0.01)
    print(ran)
    """
    assert printed(script(code), timeout_s=120).splitlines() == [
        "loops cancelled True True",
        "walks cancelled True True",
        "some cancelled True True",
        "stopped: enough",
        "['urgent']",
    ]


def test_signal_handler_may_launch_an_interleaved_kernel() -> None:
    code = """
    import signal
    import numpy as np, cujit
    source = r'''extern "C" __global__ void halves(unsigned *x, unsigned turns) {
        __shared__ unsigned s[128];
        unsigned t = threadIdx.x, half = t / 64, other = half * 64 + (t + 33) % 64, a = t;
        for (unsigned i = 0; i < turns * (1 + half); i++) {  // the halves come to their barriers on their own
            s[t] = a;
            if (half) asm volatile("bar.sync 1, 64;" ::: "memory"); else asm volatile("bar.sync 2, 64;" ::: "memory");
            a = a * 1664525u + s[other];
            if (half) asm volatile("bar.sync 1, 64;" ::: "memory"); else asm volatile("bar.sync 2, 64;" ::: "memory");
        }
        x[t] = a;
    }'''
    device = cujit.cpu(1)
    kernel = cujit.jit(source, device=device)["halves"]
    def found(turns):
        x = device.zeros(128, np.uint32)
        kernel[1, 128](x, turns)
        return x.numpy().tolist()
    few, many, ran = found(9), found(99999), []
    signal.signal(signal.SIGALRM, lambda *_: ran.append(found(9) == few))
    signal.setitimer(signal.ITIMER_REAL, 0.03, 0.03)
    while len(ran) < 9:
        assert found(99999) == many
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(all(ran))
    """
    assert printed(script(code), timeout_s=120) == "True\n"


def test_ctrl_c_in_a_notebook_ends_a_launch() -> None:
    # An imitation of ipykernel: an event loop with a wakeup descriptor runs the cell in the main thread, under Python's
    # own handler, and the interrupt comes by a signal, or by interrupt_main() of another thread.
    code = """
    import _thread, asyncio, os, signal, threading, time
    import numpy as np, cujit
    device = cujit.cpu(2)
    module = cujit.jit(ENDLESS, device=device)
    def later(what):
        threading.Thread(target=lambda: (time.sleep(0.15), what())).start()
    async def cell(what):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        later(what)
        begin = time.perf_counter()
        try:
            module["walks"][4, 64](device.zeros(64, np.int32), -1)
        except KeyboardInterrupt:
            print("interrupted", time.perf_counter() - begin < 10)
    async def cells():
        await cell(lambda: os.kill(os.getpid(), signal.SIGINT))
        await cell(_thread.interrupt_main)
    asyncio.run(cells())
    """
    assert printed(script(code), timeout_s=60).splitlines() == ["interrupted True"] * 2


def test_ctrl_c_in_a_real_notebook_kernel_ends_a_launch() -> None:
    pytest.importorskip("jupyter_client")
    pytest.importorskip("ipykernel")
    code = """
    import threading
    from jupyter_client.manager import start_new_kernel
    kernel, client = start_new_kernel(kernel_name="python3")
    def cell(code, seconds=60):
        return client.execute_interactive(code, timeout=seconds, output_hook=lambda _: None)["content"]
    begin = "import numpy as np, cujit\\nd = cujit.cpu(2)\\nm = cujit.jit(%r, device=d)['walks']" % ENDLESS
    print(cell(begin)["status"])
    threading.Timer(0.5, kernel.interrupt_kernel).start()
    print(cell("m[4, 64](d.zeros(64, np.int32), -1)", 20)["ename"])
    print(cell("assert (d.zeros(4, np.int32).numpy() == 0).all()", 20)["status"])
    client.stop_channels()
    kernel.shutdown_kernel(now=True)
    """
    assert printed(script(code), timeout_s=120).split() == ["ok", "KeyboardInterrupt", "ok"]


def test_process_ends_during_an_endless_daemon_launch() -> None:
    code = """
    import threading, time
    import numpy as np, cujit
    device = cujit.cpu(3)
    module, x = cujit.jit(ENDLESS, device=device), device.zeros(64, np.int32)
    thread = threading.Thread(target=lambda: module["loops"][40, 64](x, -1), daemon=True)
    thread.start()
    while not any(t.name == "cujit-cpu" for t in threading.enumerate()):
        time.sleep(0.01)
    time.sleep(0.1)
    print(thread.is_alive())
    """
    assert printed(script(code), timeout_s=60) == "True\n"


def test_launch_of_a_forked_child_ends() -> None:
    code = """
    import os, signal, threading, time
    import numpy as np, cujit
    device = cujit.cpu(2)
    module = cujit.jit(ENDLESS, device=device)
    def limited():
        try:
            module["loops"].prepare(4, 64, timeout_s=0.05)(device.zeros(64, np.int32), -1)
        except cujit.errors.KernelFaultError as error:
            return error.kind
    print(limited(), flush=True)
    child = os.fork()
    if not child:
        print(limited(), flush=True)
        threading.Thread(target=lambda: (time.sleep(0.15), os.kill(os.getpid(), signal.SIGINT))).start()
        try:
            module["loops"][4, 64](device.zeros(64, np.int32), -1)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    print(limited())
    """
    assert printed(script(code), timeout_s=60).split() == ["timeout", "timeout", "interrupted", "timeout"]
