"""``cujit.emulate()``: this process, and what it starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from emulator.programs import compiled


def _program(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-u", "-c", code], capture_output=True, text=True, timeout=120, check=False)


def test_process_and_children_find_the_emulator_on_request() -> None:
    done = _program("""
import subprocess, sys
import cujit
cujit.emulate(cc="8.0", check="memory", threads=1, timeout_s=60)
from cuda.bindings import driver, nvrtc
from cuda.pathfinder import load_nvidia_dynamic_lib
print(driver.cuInit(0)[0].name, driver.cuDeviceGetAttribute(driver.CUdevice_attribute(75), 0)[1])
print("emulator" in load_nvidia_dynamic_lib("nvrtc").abs_path)
from cujit.emulator.process import emulation
print(emulation().settings.check, emulation().settings.threads)
subprocess.run([sys.executable, "-c", "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"])
""")
    assert done.stdout.split() == ["CUDA_SUCCESS", "8", "True", "memory", "1", "0"], done.stderr


def test_loaded_driver_or_compiler_is_an_error(tmp_path: Path) -> None:
    real = compiled(tmp_path / "libcuda.so.1", "int cuInit(unsigned f) { return 0; }", "-shared", "-fPIC")
    done = _program(f"import ctypes, cujit; ctypes.CDLL('{real}'); cujit.emulate()")
    assert f"this process has already loaded {real}, so it can't use the emulator" in done.stderr
    assert "hint: call cujit.emulate() before any CUDA call" in done.stderr
    done = _program("import cujit; from cuda.bindings import nvrtc; nvrtc.nvrtcVersion(); cujit.emulate()")
    assert "this process has already loaded the real libnvrtc.so" in done.stderr


def test_wrong_settings_are_errors_before_anything_is_loaded() -> None:
    done = _program("""
import cujit
for wrong in ({"cc": "99.9"}, {"check": "nothing"}, {"timeout_s": -1}):
    try:
        cujit.emulate(**wrong)
    except cujit.errors.CujitError as e:
        print(type(e).__name__)
print("libcuda" in open("/proc/self/maps").read())
""")
    assert done.stdout.split() == ["OptionError", "OptionError", "LaunchError", "False"], done.stderr


def test_process_emulates_one_thing() -> None:
    done = _program("""
import ctypes, os, cujit
cujit.emulate(cc="8.0")
cujit.emulate(cc="8.0")
try:
    cujit.emulate(cc="9.0")
except cujit.errors.CujitError as e:
    print(e)
print(os.environ["CUJIT_EMULATE"])
""")
    first, hint, environment = done.stdout.splitlines()
    assert first == 'this process already emulates {"cc": [8, 0]} and can\'t switch to {"cc": [9, 0]}'
    assert "before any CUDA call" in hint
    assert environment == '{"cc": [8, 0]}'


def test_child_with_another_cache_recognizes_the_library(tmp_path: Path) -> None:
    child = f"""
import ctypes, os
driver = ctypes.CDLL("libcuda.so.1")
os.environ["CUJIT_CACHE_DIR"] = {str(tmp_path / "cache")!r}
import cujit
cujit.emulate()
print(driver.cuInit(0), ctypes.CDLL("libcuda.so.1").cuInit(0))
"""
    done = _program(
        f"import cujit, subprocess, sys; cujit.emulate(); subprocess.run([sys.executable, '-c', {child!r}])"
    )
    assert done.stdout == "0 0\n", done.stderr


def test_command_starts_without_numpy_and_llvm() -> None:
    code = r"""
import re, sys
from cujit.cli.emulate import environment_of
from cujit.emulator.settings import EmulatorSettings
environment_of(EmulatorSettings.of(check="memory"))
heavy = {"numpy", "llvmlite", "cujit.emulator.entries", "cujit.devices.cpu.backend", "cujit.formats.ptx.parser"}
most = int(re.search(r"VmHWM:\s+(\d+) kB", open("/proc/self/status").read())[1])
print(sorted(heavy & sys.modules.keys()), most < 40_000 or most)
"""
    assert _program(code).returncode == 0  # the first of a machine compiles what the libraries hold
    done = _program(code)
    assert done.stdout.split() == ["[]", "True"], done.stdout + done.stderr
