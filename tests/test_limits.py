"""Work that takes too long, or kills its process: it is ended or told as an error, and the next work is done."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import pytest

import cujit
from cujit.compiler.isolation import child, parent
from cujit.compiler.isolation.parent import WorkOrder
from cujit.compiler.jobs import CompileJob
from cujit.errors import CompileError, OptionError, ToolCrashError, ToolTimeoutError
from cujit.toolchain import nvjitlink
from cujit.toolchain.headers import Settings
from cujit.toolchain.toolset import Toolchain
from llvm_ir import SCALE, VERSION
from processes import printed, python
from raising import raises
from waiting import eventually

SMALL = "__global__ void small(int* p) { *p = 1; }"
# No header, so that NVRTC is soon where it looks at its callback; seconds of optimising.
LONG = "".join(
    f"__global__ void k{i}(float* p) {{ for (int j = 0; j < p[1]; j++) p[j] = sinf(p[j]) + cosf(p[{i} + j]); }}\n"
    for i in range(400)
)
SOME = LONG[: LONG.index("__global__ void k80")]
"""What is linked: a link that was given up goes on to its end, and this one to 2 s of a processor."""
AXPY = "template <typename T> __global__ void axpy(T a, T* x) { x[threadIdx.x] *= a; }"
SOON_S = 3.0
"""Ctrl-C is answered within 0.2 s to 0.5 s; the rest is for a machine that does other things too."""


@pytest.fixture(autouse=True)
def nothing_left(shared_toolchain: Toolchain) -> Iterator[None]:
    """Every handle is released, at the latest when the thread that was given up is done."""
    yield
    # a link that was given up goes on, on a processor that others use too
    eventually(lambda: shared_toolchain.live_handles == 0, within_s=90)


def interrupted(work: Callable[[], object], after_s: float = 0.2) -> float:
    """Press Ctrl-C while the work is done, and give how long it took to be heard."""
    pressed = []

    def press() -> None:
        pressed.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(after_s, press)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            work()
        heard = time.perf_counter()
    finally:
        timer.cancel()  # work that ended by itself: the tests after this one are not to be interrupted
        timer.join()
    return heard - pressed[0]


DOORS: dict[str, Callable[..., object]] = {
    "compile": lambda **more: cujit.compile(LONG, arch="sm_90", **more),
    "build": lambda **more: cujit.build(LONG, ["sm_80", "sm_90"], **more),
    "jit": lambda **more: cujit.jit(LONG, device="cpu", **more),
    "link": lambda **more: cujit.link([cujit.Source.cuda(SOME)], arch="sm_90", **more),
}


def test_no_separate_process_compiles_by_default() -> None:
    code = f"""
import os
from pathlib import Path
import cujit
from cujit.compiler.jobs import CompileJob
from cujit.program import runner
def children(): return "".join(t.read_text() for t in Path("/proc/self/task").glob("*/children")).split()
cujit.compile({SMALL!r}, cache=False)
runner(False).get(CompileJob(cujit.request({SMALL!r})))  # as where a cache is verified
cujit.build({SMALL!r}, "compute_80", cache=False)
cujit.jit({SMALL!r}, device="cpu", cache=False)
cujit.link([cujit.Source.cuda({SMALL!r})], arch="sm_90", cache=False)
cujit.bundle([cujit.compile({SMALL!r}, arch="sm_90", cache=False)], cache=False)
print(children())
cujit.compile({SMALL!r}, cache=False, isolate=True)
print(len(children()))
print(*(os.getsid(int(child)) == os.getsid(0) for child in children()))  # Ctrl-C in a terminal is not for it
"""
    assert python(code).stdout.split() == ["[]", "1", "False"]


@pytest.mark.parametrize("isolate", [False, True])
@pytest.mark.parametrize("door", ["compile", "build", "link"])
def test_ctrl_c_ends_a_compile_and_the_next_one_works(door: str, isolate: bool) -> None:
    assert interrupted(lambda: DOORS[door](isolate=isolate)) < SOON_S
    assert cujit.compile(SMALL, cache=False).data


def test_ctrl_c_ends_a_link_in_nvjitlink(monkeypatch: pytest.MonkeyPatch) -> None:
    part = cujit.compile(SOME, arch="sm_90", to="ltoir", cache=False)
    complete, pressed = nvjitlink.complete, []

    def press() -> None:
        pressed.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    def completing(handle: int) -> None:
        threading.Timer(0.1, press).start()
        complete(handle)

    monkeypatch.setattr(nvjitlink, "complete", completing)
    with pytest.raises(KeyboardInterrupt):
        cujit.link([part], arch="sm_90", cache=False)
    assert time.perf_counter() - pressed[0] < SOON_S


@pytest.mark.parametrize("door", DOORS)
def test_exceeded_time_limit_is_an_error(door: str) -> None:
    begin = time.perf_counter()
    with pytest.raises(ToolTimeoutError) as caught:
        DOORS[door](timeout_s=0.3)
    assert time.perf_counter() - begin < 0.3 + SOON_S
    assert re.match(r"(NVRTC couldn't compile|nvJitLink couldn't link) source\.cu for ", str(caught.value))
    assert "in the 0.3 s that it had" in str(caught.value)
    assert "timeout_s" in (caught.value.help or "")


def test_time_limit_holds_in_any_thread_and_in_a_process_apart() -> None:
    with ThreadPoolExecutor(2) as pool:
        each = [pool.submit(DOORS["compile"], timeout_s=0.3, isolate=isolate) for isolate in (False, True)]
    for future in each:
        with pytest.raises(ToolTimeoutError):
            future.result()


def test_waiter_compiles_after_another_thread_timed_out(tmp_path: Path) -> None:
    cache = cujit.Cache(tmp_path)
    text = LONG[: LONG.index("__global__ void k25")]
    with ThreadPoolExecutor(2) as pool:
        hasty = pool.submit(cujit.compile, text, cache=cache, timeout_s=0.1)
        time.sleep(0.05)
        patient = pool.submit(cujit.compile, text, cache=cache)
        assert patient.result().kind is cujit.ImageKind.PTX
        with pytest.raises(ToolTimeoutError):
            hasty.result()
    assert cujit.compile(text, cache=cache, timeout_s=0.1).provenance.is_hit  # type: ignore[union-attr]


def test_thread_with_less_time_does_not_wait_for_another(tmp_path: Path) -> None:
    cache = cujit.Cache(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(cujit.compile, LONG, cache=cache, timeout_s=1)
        time.sleep(0.2)
        begin = time.perf_counter()
        with pytest.raises(ToolTimeoutError):
            cujit.compile(LONG, cache=cache, timeout_s=0.2)
        assert time.perf_counter() - begin < 0.2 + SOON_S
        with pytest.raises(ToolTimeoutError):
            first.result()


@pytest.mark.parametrize(
    "said",
    [
        {"timeout_s": 0}, {"timeout_s": -1}, {"timeout_s": float("nan")}, {"timeout_s": float("inf")},
        {"timeout_s": "3"}, {"timeout_s": True}, {"isolate": 1}, {"isolate": None}, {"memory_mib": 100},
        {"memory_mib": 0, "isolate": True}, {"memory_mib": 1.5, "isolate": True},
    ],
)  # fmt: skip
def test_invalid_limits_are_refused(said: dict[str, Any]) -> None:
    with raises(OptionError, "option-conflict" if said == {"memory_mib": 100} else "option", next(iter(said))):
        cujit.compile(SMALL, **said)


def test_separate_process_returns_an_equal_image() -> None:
    source = cujit.Source.cuda(AXPY + "__device__ int unused() { int i; return 1; }", headers={"a.h": ""}, name="a.cu")
    work: list[Callable[..., cujit.Artifact]] = [
        lambda **more: cujit.compile(source, arch="sm_90", names=["axpy<float>", "axpy<double>"], **more),
        lambda **more: cujit.compile(cujit.Source.nvvm(SCALE), to="cubin", arch="sm_90", **more),
        lambda **more: cujit.link([cujit.Source.cuda(SMALL), cujit.Source.nvvm(SCALE)], arch="sm_90", **more),
        lambda **more: cujit.build(SMALL, ["sm_80", "compute_90"], **more),
    ]
    for make in work:
        here, there = make(cache=False), make(cache=False, isolate=True)
        assert here == there
        assert here.log == there.log
    with pytest.raises(CompileError) as here_failed:
        cujit.compile("__global__ void k() { what }", cache=False)
    with pytest.raises(CompileError) as there_failed:
        cujit.compile("__global__ void k() { what }", cache=False, isolate=True)
    assert str(here_failed.value) == str(there_failed.value)
    assert here_failed.value.diagnostics == there_failed.value.diagnostics
    assert here_failed.value.request == there_failed.value.request


def test_result_of_a_separate_process_is_in_the_cache(tmp_path: Path) -> None:
    cache = cujit.Cache(tmp_path)
    cujit.compile(SMALL, cache=cache, isolate=True)
    again = cujit.compile(SMALL, cache=cache)
    assert again.provenance is not None
    assert again.provenance.is_hit


def ir(tail: str, opaque: bool = False) -> str:
    head = SCALE[: SCALE.index("define")]
    pointer = "ptr" if opaque else "i32*"
    return f"{head}define void @k({pointer} %p) {{\n  ret void\n}}\n{VERSION}{tail}"


UNFORESEEN = "!nvvm.annotations = !{!0}\n!0 = !{\n}\n"
"""What kills libNVVM, written so that the check of annotations does not see it."""


def test_crash_of_a_separate_process_is_an_error() -> None:
    parent._end_idle()
    assert cujit.compile(cujit.Source.nvvm(SCALE), arch="compute_90", isolate=True, cache=False).data
    (idle,) = parent._idle
    os.write(idle._words.fileno(), b"said at work before")
    with pytest.raises(ToolCrashError) as caught:
        cujit.compile(cujit.Source.nvvm(ir(UNFORESEEN), name="bad.ll"), arch="compute_90", isolate=True)
    assert "the request to compile bad.ll for compute_90 failed, because libNVVM died of SIGSEGV" in str(caught.value)
    assert (caught.value.result, idle.is_alive) == ("SIGSEGV", False)
    assert "said at work before" not in caught.value.log
    assert cujit.compile(cujit.Source.nvvm(SCALE), arch="compute_90", isolate=True, cache=False).data


@pytest.mark.parametrize("arch", ["compute_90", "compute_100"])
@pytest.mark.parametrize(
    "node",
    ["", 'void (i32*)* @k, !"kernel"', 'void (i32*)* @k, !"kernel", null', "void (i32*)* @k, i32 3, i32 1",
     'void (i32*)* @k, !"kernel", i32 1, !"maxntidx"'],
)  # fmt: skip
def test_annotation_that_crashes_libnvvm_has_its_line(node: str, arch: str) -> None:
    node = node.replace("void (i32*)*", "ptr") if arch == "compute_100" else node
    text = ir(f"!nvvm.annotations = !{{!0}}\n!0 = !{{{node}}}\n", opaque=arch == "compute_100")
    line = text.splitlines().index(f"!0 = !{{{node}}}") + 1
    with raises(CompileError, "compile", f"bad.ll:{line}"):
        cujit.compile(cujit.Source.nvvm(text, name="bad.ll"), arch=arch)


def test_good_annotations_of_every_form_compile() -> None:
    text = ir(
        "!nvvm.annotations = !{!0, !1, !2}\n"
        '!0 = !{void (i32*)* @k, !"kernel", i32 1, !"maxntidx", i32 64}\n'
        '!1 = distinct !{null, !"align", i32 8}\n'
        '!2 = !{void (i32*)* bitcast (void (i32*)* @k to void (i32*)*), !"minctasm", i32 2} ; as clang has it\n'
    )
    assert ".maxntid 64" in cujit.compile(cujit.Source.nvvm(text), arch="compute_90").text


@pytest.mark.parametrize(
    ("error", "is_of_memory"),
    [
        (MemoryError(), True),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM), "cujit/compiler/backends"), True),
        (ImportError("libx.so: failed to map segment from shared object"), True),
        (OSError(errno.ENOENT, os.strerror(errno.ENOENT)), False),
        (ValueError("Cannot allocate memory"), False),
        (SystemError("error return without exception set"), True),
    ],
)
def test_loaders_have_their_own_out_of_memory_errors(error: Exception, is_of_memory: bool) -> None:
    assert child._is_of_memory(error, is_limited=True) == is_of_memory
    assert child._is_of_memory(error, is_limited=False) == is_of_memory


def test_python_errors_under_a_limit_are_out_of_memory() -> None:
    error = SystemError("<built-in function compile> returned NULL without setting an exception")
    assert child._is_of_memory(error, is_limited=True)
    assert not child._is_of_memory(error, is_limited=False)

    class Faulty(CompileJob):
        def run(self, *_: object) -> NoReturn:
            raise error

    job = Faulty(cujit.request(SMALL))
    told = [vars(child._answer(WorkOrder(job, Settings(), mib, None)))["result"] for mib in (1 << 24, None)]
    assert told == ["MemoryError", ""]


def test_other_errors_under_a_limit_are_unchanged() -> None:
    with raises(CompileError, "compile", "what", "undefined"):
        cujit.compile("__global__ void k() { what; }", arch="compute_90", isolate=True, memory_mib=1 << 14)


def test_out_of_memory_is_reported_and_not_remembered(tmp_path: Path) -> None:
    cache = cujit.Cache(tmp_path)
    source = cujit.Source.cuda("#include <cuda/std/tuple>\n" + SMALL, name="small.cu")
    with raises(
        ToolCrashError, "tool-crash", "NVRTC", "NVRTC_ERROR_COMPILATION"
    ) as caught:  # it says so itself, or dies of it
        cujit.compile(source, arch="compute_90", cache=cache, isolate=True, memory_mib=48)
    assert "compile small.cu for compute_90" in caught.value.message
    assert "48 MiB of address space" in caught.value.message
    assert "memory_mib" in (caught.value.help or "")
    assert cujit.compile(source, arch="compute_90", cache=cache, isolate=True, memory_mib=1 << 14).data


def test_nested_parentheses_do_not_end_the_process() -> None:
    code = """
import cujit
deep = "__global__ void k(int* p) { p[0] = p[1] + " + "(" * 8000 + "p[1]" + ")" * 8000 + "; }"
cujit.build(deep, ["compute_80", "compute_90"], cache=False)
"""
    done = python(code)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_forked_child_has_its_own_processes() -> None:
    code = """
import cujit, os
def work(name): return len(cujit.compile(f"__global__ void {name}() {{}}", cache=False, isolate=True).data) > 0
assert work("a")
child = os.fork()
if not child:
    os._exit(0 if work("b") else 1)
assert work("c")
assert os.waitpid(child, 0)[1] == 0
"""
    done = python(code, options=("-W", "always::ResourceWarning"))  # it closes what leads to those of its parent
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_forked_child_holds_no_pipe_of_a_busy_process() -> None:
    """It would keep that process alive when the one that wanted the work has died."""
    code = """
import cujit, os, threading
from cujit.compiler.isolation import parent
def pipes():
    fds = [os.path.join("/proc/self/fd", fd) for fd in os.listdir("/proc/self/fd")]
    return {os.readlink(fd) for fd in fds if os.path.islink(fd)}
before = pipes()
work = lambda: cujit.compile("__global__ void k() {}", cache=False, isolate=True)
thread = threading.Thread(target=work)
thread.start()
while not parent._living: pass
child = os.fork()
if not child:
    os._exit(sum(name.startswith("pipe:") for name in pipes() - before))
assert [name for name in pipes() - before if name.startswith("pipe:")]
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
thread.join()
"""
    assert printed(code) == "0\n"


@pytest.mark.parametrize("more", [["--timeout", "0.3"], ["--timeout", "0.3", "--isolate"]])
def test_command_line_respects_its_time_limit(more: list[str], tmp_path: Path) -> None:
    (tmp_path / "long.cu").write_text(LONG)
    begin = time.perf_counter()
    command = [sys.executable, "-m", "cujit", "build", "long.cu", "-t", "sm_90", *more]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert time.perf_counter() - begin < 20
    assert done.returncode == 1
    assert "error: NVRTC couldn't compile long.cu for sm_90 in the 0.3 s that it had" in done.stderr
    assert "--timeout" in done.stderr
    assert not (tmp_path / "long.fatbin").exists()


def test_program_continues_after_abandoned_work() -> None:
    code = f"""
import os
import cujit
from cujit.cli import main
part = cujit.compile({SOME!r}, arch="lto_90")
try:
    cujit.link([part], arch="sm_90", timeout_s=0.1)
except cujit.errors.ToolTimeoutError:
    try:
        main(["inspect", "nowhere.ptx"])
    except SystemExit as e:
        print("left", e.code, flush=True)
os._exit(0)
"""
    assert python(code).stdout == "left 2\n"


def test_ctrl_c_ends_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "long.cu").write_text(LONG)
    command = [sys.executable, "-m", "cujit", "build", "long.cu", "-t", "sm_90"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as running:
        until = time.monotonic() + 120
        while "libnvrtc" not in Path(f"/proc/{running.pid}/maps").read_text() and time.monotonic() < until:
            time.sleep(0.02)
        time.sleep(0.2)  # then it compiles
        begin = time.perf_counter()
        running.send_signal(signal.SIGINT)
        _, complaint = running.communicate(timeout=60)
    assert time.perf_counter() - begin < SOON_S
    assert running.returncode != 0
    assert "Traceback" not in complaint
