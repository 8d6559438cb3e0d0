"""``cujit emulate``: what a command gets, and what is passed on of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from emulator.programs import cujit

_ASKS = """
import ctypes, subprocess, sys
driver, number = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
driver.cuInit(0)
driver.cuDeviceGetCount(ctypes.byref(number))
driver.cuDeviceGetAttribute(ctypes.byref(number), 75, 0)
print(number.value, flush=True)
driver.cuIpcCloseMemHandle()
driver.cuIpcCloseMemHandle()
driver.cuCtxSynchronize()
driver.cuDeviceGetCount(None)
if len(sys.argv) < 2:
    subprocess.run([sys.executable, "-c", sys.orig_argv[2], "child"])
sys.exit(7)
"""


def _cujit(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return cujit("emulate", *arguments)


def test_command_and_children_see_one_device_and_return_status() -> None:
    done = _cujit("--cc", "8.6", sys.executable, "-c", _ASKS)
    assert (done.returncode, done.stdout) == (7, "8\n8\n"), done.stderr


_START = """
import os, sys
process = os.posix_spawn(sys.executable, [sys.executable, "-m", "cujit", "emulate", "true"], os.environ)
_, status, used = os.wait4(process, 0)
print(status, used.ru_maxrss)
"""


def test_second_start_takes_little_memory() -> None:
    for _ in range(2):  # by a small process: a new one counts the memory of who started it
        done = subprocess.run([sys.executable, "-c", _START], capture_output=True, text=True, timeout=120, check=True)
    status, kilobytes = map(int, done.stdout.split())
    assert status == 0
    assert kilobytes < 40 * 1024


def test_needs_lists_failed_requests_of_all_processes() -> None:
    done = _cujit("--unsupported", sys.executable, "-c", _ASKS)
    assert (done.returncode, done.stdout) == (7, "9\n9\n"), done.stderr
    lines = [line.split() for line in done.stderr.splitlines()[-4:]]
    assert lines == [
        ["function", "refused", "errors"],
        ["cuIpcCloseMemHandle", "4"],
        ["cuCtxSynchronize", "CUDA_ERROR_INVALID_CONTEXT", "(2)"],
        ["cuDeviceGetCount", "CUDA_ERROR_INVALID_VALUE", "(2)"],
    ]
    assert "5 functions of the driver were called, of which 1 are not emulated" in done.stderr


_RUNTIME = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
def made(name, *given):
    out = ctypes.c_void_p()
    assert getattr(driver, name)(ctypes.byref(out), *given) == 0, name
    return out
driver.cuInit(0)
driver.cuCtxSetCurrent(made("cuDevicePrimaryCtxRetain", 0))
driver.cuIpcCloseMemHandle()
driver.cuIpcCloseMemHandle()
driver.cuGetExportTable(ctypes.byref(ctypes.c_void_p()), bytes(16))
ptx = b".version 8.0\\n.target sm_80\\n.address_size 64\\n.visible .entry f(.param .u64 at) { ret; }\\n"
kernel, stream = made("cuModuleGetFunction", made("cuModuleLoadData", ptx), b"f"), made("cuStreamCreate", 1)
values = (ctypes.c_void_p * 1)(ctypes.addressof(stream))
driver.cuStreamBeginCapture_v2(stream, 0)
assert not driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, values, None)
assert not driver.cuStreamEndCapture(stream, ctypes.byref(ctypes.c_void_p()))
assert driver.cuLaunchKernel(kernel, 1, 1, 1, 9999, 1, 1, 0, stream, values, None)
"""


def test_needs_starts_with_the_runtime_and_counts_program_calls() -> None:
    done = _cujit("--unsupported", sys.executable, "-c", _RUNTIME)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stderr.splitlines()]
    assert lines[-4:] == [
        ["function", "refused", "errors"],
        ["cuGetExportTable", "1"],
        ["cuIpcCloseMemHandle", "2"],
        ["cuLaunchKernel", "CUDA_ERROR_INVALID_VALUE", "(1)"],
    ]
    assert "of which 2 are not emulated" in done.stderr
    assert lines[-5][0] == "cuGetExportTable:"


def test_log_contains_every_call_with_its_result(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    assert _cujit("--log", log, sys.executable, "-c", _ASKS).returncode == 7
    calls = [line.split(" ", 1)[1] for line in log.read_text().splitlines()]
    assert len(calls) == 14
    assert calls[0] == "cuInit(…) CUDA_SUCCESS"
    assert calls[1] == "cuDeviceGetCount(…) CUDA_SUCCESS"
    assert calls.count("cuIpcCloseMemHandle() CUDA_ERROR_NOT_SUPPORTED") == 4
    assert calls.count("cuDeviceGetCount(…) CUDA_ERROR_INVALID_VALUE") == 2


def test_signals_are_forwarded_and_death_by_signal_is_passed_on(tmp_path: Path) -> None:
    program = textwrap.dedent("""
        import pathlib, signal, sys, time
        signal.signal(signal.SIGUSR1, lambda *_: sys.exit(5))
        pathlib.Path(sys.argv[1]).touch()
        time.sleep(60)
    """)
    for options in ([], ["--unsupported"]):
        for number, status in ((signal.SIGUSR1, 5), (signal.SIGTERM, -signal.SIGTERM)):
            ready = tmp_path / f"{number}{options}"
            command = [sys.executable, "-m", "cujit", "emulate", *options, sys.executable, "-c", program, str(ready)]
            with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
                while not ready.exists():
                    time.sleep(0.02)
                process.send_signal(number)
                assert process.wait(timeout=60) == status


def test_unsupported_or_missing_command_is_reported() -> None:
    for arguments, words in (
        (["--cc", "3.0", "true"], "doesn't support compute capability (3, 0)"),
        (["--cc", "nine", "true"], "is not a valid compute capability"),
        (["--check", "nonsense", "true"], "unknown check 'nonsense'"),
        (["--log", "/no/such/folder/log", "true"], "can't write to /no/such/folder/log"),
        (["--log", "/", "true"], "can't write to /"),
        ([""], "COMMAND is empty"),
        (["--unsupported", ""], "COMMAND is empty"),
    ):
        done = _cujit(*arguments)
        assert done.returncode != 0
        assert words in done.stderr
        assert "Traceback" not in done.stderr
    assert _cujit().returncode == 2


@pytest.mark.parametrize("needs", [[], ["--unsupported"]], ids=["", "needs"])
def test_command_that_cannot_start_has_the_shells_status(needs: list[str], tmp_path: Path) -> None:
    program, script = tmp_path / "program.py", tmp_path / "script"
    program.write_text("print(1)\n")
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    for command, status, words, hint in (
        ("no-such-command", 127, "there is no command named 'no-such-command'", "in PATH"),
        (program, 126, "Permission denied", f"cujit emulate python {program}"),
        (script, 127, "the interpreter in its first line doesn't exist", "correct its first line"),
        (tmp_path, 126, "can't run", "name a program"),
    ):
        done = _cujit(*needs, command)
        assert (done.returncode, done.stdout) == (status, "")
        complaint, try_ = done.stderr.splitlines()
        assert words in complaint
        assert hint in try_


@pytest.mark.parametrize("needs", [[], ["--unsupported"]], ids=["", "needs"])
def test_script_without_a_shebang_runs_in_the_shell(needs: list[str], tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(
        f"echo $1; exec {sys.executable} -c 'import ctypes; print(ctypes.CDLL(\"libcuda.so.1\").cuInit(0))'\n"
    )
    script.chmod(0o755)
    done = _cujit(*needs, script, "word")
    assert (done.returncode, done.stdout) == (0, "word\n0\n"), done.stderr


def test_killed_command_is_reported_and_its_status_passed_on() -> None:
    done = _cujit("--unsupported", sys.executable, "-c", f"{_FORGETS}; import os; os.kill(os.getpid(), 9)")
    assert done.returncode == -signal.SIGKILL
    assert "error" not in done.stderr
    assert "1 functions of the driver were called" in done.stderr


_FORGETS = "import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)"


@pytest.mark.parametrize("inner", [[], ["--unsupported"], ["--log", "-"]], ids=["", "needs", "log"])
def test_nested_emulation_adds_its_requests_to_both_tables(inner: list[str]) -> None:
    within = (sys.executable, "-m", "cujit", "emulate", *inner, "--cc", "8.0", sys.executable, "-c", _ASKS, "child")
    done = _cujit("--unsupported", *within)
    assert (done.returncode, done.stdout) == (7, "8\n"), done.stderr
    assert done.stderr.count("5 functions of the driver were called, of which 1 are not emulated") == 1 + len(inner) % 2


def test_nested_emulation_continues_the_log(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    done = _cujit("--log", log, sys.executable, "-c", f"import cujit; cujit.emulate(cc='8.0'); {_FORGETS}")
    assert done.returncode == 0, done.stderr
    assert "cuInit(…) CUDA_SUCCESS" in log.read_text()


_SPINS = """
import ctypes, sys
from cuda.bindings import driver as d
import cujit
d.cuInit(0)
d.cuCtxSetCurrent(d.cuDevicePrimaryCtxRetain(0)[1])
code = "extern \\"C\\" __global__ void spin(volatile int *p) { while (*p == 0) ; }"
module = d.cuModuleLoadData(cujit.compile(code, to="ptx", arch="compute_90").data + b"\\0")[1]
kernel, memory = d.cuModuleGetFunction(module, b"spin")[1], d.cuMemAlloc(4)[1]
d.cuMemsetD32(memory, 0, 1)
print("begins", flush=True)
d.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, 0, ((int(memory),), (ctypes.c_void_p,)), 0)
print("goes on", flush=True)
"""


@pytest.mark.parametrize("options", [[], ["--unsupported"], ["--log", "calls"]], ids=["", "needs", "log"])
def test_terminal_interrupt_ends_kernel_and_waiting_program(options: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cujit", "emulate", *options, sys.executable, "-c", _SPINS]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begins\n"
        time.sleep(1)  # until the kernel is compiled: it is to be interrupted, too
        os.killpg(process.pid, signal.SIGINT)
        printed, errors = process.communicate(timeout=60)
    assert (printed, process.returncode) == ("", -signal.SIGINT), errors
    assert "KeyboardInterrupt" in errors
    assert "Exception ignored" not in errors
