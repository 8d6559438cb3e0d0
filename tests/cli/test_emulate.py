"""``cujit emulate``: what a command gets, and what is passed on of it."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

_ASKS = """
import ctypes, subprocess, sys
driver, number = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
driver.cuInit(0)
driver.cuDeviceGetCount(ctypes.byref(number))
driver.cuDeviceGetAttribute(ctypes.byref(number), 75, 0)
print(number.value, flush=True)
driver.cuGreenCtxCreate()
driver.cuGreenCtxCreate()
driver.cuCtxSynchronize()
driver.cuDeviceGetCount(None)
if len(sys.argv) < 2:
    subprocess.run([sys.executable, "-c", sys.orig_argv[2], "child"])
sys.exit(7)
"""


def _cujit(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cujit", "emulate", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_command_and_its_children_see_one_device_and_pass_their_status_on() -> None:
    done = _cujit("--cc", "8.6", sys.executable, "-c", _ASKS)
    assert (done.returncode, done.stdout) == (7, "8\n8\n"), done.stderr


def test_needs_ends_with_what_all_processes_asked_in_vain_and_standard_output_is_the_commands() -> None:
    done = _cujit("--needs", sys.executable, "-c", _ASKS)
    assert (done.returncode, done.stdout) == (7, "9\n9\n"), done.stderr
    lines = [line.split() for line in done.stderr.splitlines()[-4:]]
    assert lines == [
        ["function", "refused", "errors"],
        ["cuGreenCtxCreate", "4"],
        ["cuCtxSynchronize", "CUDA_ERROR_INVALID_CONTEXT", "(2)"],
        ["cuDeviceGetCount", "CUDA_ERROR_INVALID_VALUE", "(2)"],
    ]
    assert "5 functions of the driver were called, of which 1 are not emulated" in done.stderr


def test_log_has_every_call_with_its_answer(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    assert _cujit("--log", log, sys.executable, "-c", _ASKS).returncode == 7
    calls = [line.split(" ", 1)[1] for line in log.read_text().splitlines()]
    assert len(calls) == 14
    assert calls[0] == "cuInit(…) CUDA_SUCCESS"
    assert calls[1].startswith("cuDeviceGetCount(0x")
    assert calls.count("cuGreenCtxCreate() CUDA_ERROR_NOT_SUPPORTED") == 4
    assert calls.count("cuDeviceGetCount(0x0) CUDA_ERROR_INVALID_VALUE") == 2


def test_signals_go_to_the_command_and_its_end_by_one_is_passed_on(tmp_path: Path) -> None:
    program = textwrap.dedent("""
        import pathlib, signal, sys, time
        signal.signal(signal.SIGUSR1, lambda *_: sys.exit(5))
        pathlib.Path(sys.argv[1]).touch()
        time.sleep(60)
    """)
    for options in ([], ["--needs"]):
        for number, status in ((signal.SIGUSR1, 5), (signal.SIGTERM, -signal.SIGTERM)):
            ready = tmp_path / f"{number}{options}"
            command = [sys.executable, "-m", "cujit", "emulate", *options, sys.executable, "-c", program, str(ready)]
            with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
                while not ready.exists():
                    time.sleep(0.02)
                process.send_signal(number)
                assert process.wait(timeout=60) == status


def test_what_cannot_be_emulated_or_started_is_said() -> None:
    for arguments, words in (
        (["--cc", "3.0", "true"], "no device of compute capability (3, 0)"),
        (["--cc", "nine", "true"], "no compute capability"),
        (["--check", "nonsense", "true"], "no check is called 'nonsense'"),
        (["--log", "/no/such/folder/log", sys.executable, "-c", _ASKS], "cannot write to /no/such/folder/log"),
        (["no-such-command"], "no-such-command"),
    ):
        done = _cujit(*arguments)
        assert done.returncode != 0
        assert words in done.stderr
    assert _cujit().returncode == 2
