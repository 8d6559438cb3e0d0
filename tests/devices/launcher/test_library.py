"""The launcher's shared object: the package has what its C gives, it loads wherever it should, and says why if not."""

from __future__ import annotations

import ctypes
import importlib.util
import inspect
import platform
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cujit.devices.device import Device
from cujit.devices.launcher import cpython, library
from cujit.devices.launcher import launch as launching
from cujit.devices.launcher.binder import LaunchBinder
from cujit.devices.launcher.cpython import basic_size_offset, is_supported, native_type
from cujit.devices.launcher.launch import attach
from cujit.errors import MissingError, ToolTimeoutError
from cujit.events import Fallback, subscribe
from cujit.forks import once
from cujit.formats.elf import read_elf
from cujit.kernel import Launch
from cujit.loading import jit
from processes import printed
from raising import raises

ROOT = Path(__file__).parents[3]
TOOL = ROOT / "tools" / "native.py"
FUNCTIONS = {
    "launch",
    "index",
    "item",
    "relocate",
    "rows",
    "load",
    "kernel",
    "get",
    "put",
    "upload",
    "download",
    "fill",
    "place",
    "clear",
    "settle",
    "pieces",
    "gpu",
    "cpu",
    "copy",
    "digest",
    "contains",
    "entry",
    "key",
    "record",
    "torch",
    "cupy",
    "numba",
    "described",
}

needs_zig = pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None or not TOOL.exists(), reason="needs the clang of `ziglang`"
)
needs_native = pytest.mark.skipif(not is_supported(), reason="this interpreter takes no native launches")

FILL = """extern "C" __global__ void fill(int* p, int n, int value) {
    if (threadIdx.x < n) p[threadIdx.x] = value;
}"""


@needs_zig
def test_packaged_library_matches_its_sources(tmp_path: Path) -> None:
    made = subprocess.run([sys.executable, str(TOOL), str(tmp_path)], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    there = {path.relative_to(tmp_path).as_posix(): path.read_bytes() for path in tmp_path.rglob("*.so")}
    native = Path(library.NATIVE)
    kept = {path.relative_to(native).as_posix(): path.read_bytes() for path in native.rglob("*.so")}
    assert there == kept, "run `make native`"
    assert set(kept) == {"x86_64/launcher.so", "aarch64/launcher.so"}


@pytest.mark.parametrize(("processor", "machine"), [("x86_64", 62), ("aarch64", 183)])
def test_library_needs_no_other_and_has_every_function(processor: str, machine: int) -> None:
    path = Path(library.NATIVE, processor, "launcher.so")
    elf = read_elf(path.read_bytes())
    assert elf.machine == machine
    assert path.stat().st_size < 40_000
    dynamic = next(elf.content(section) for section in elf.sections if section.name == ".dynamic")
    tags = [int.from_bytes(dynamic[at : at + 8], "little") for at in range(0, len(dynamic), 16)]
    assert 1 not in tags  # DT_NEEDED
    names = next(elf.content(section) for section in elf.sections if section.name == ".dynstr").decode().split("\0")
    assert {name for name in names if name} == {
        *(f"cujit_{name}" for name in (*FUNCTIONS, "functions", "objects", "places", "interpreter")),
        "memcpy",
        "memset",
        "bcmp",
        "clock_gettime",
        "open",
        "read",
        "close",
        "syscall",
    }


@needs_native
def test_size_of_a_type_is_where_the_launcher_reads_it() -> None:
    for kind in (Launch, native_type(Launch).type, int, dict, Device):
        word = ctypes.c_int64.from_address(id(kind) + basic_size_offset()).value
        assert word == kind.__basicsize__


@needs_native
def test_second_launch_is_native_without_importing_a_compiler() -> None:
    text = f"""
import numpy as np
import cujit
device = cujit.cpu(1)
launch, p = cujit.jit({FILL!r}, device=device)["fill"][1, 32], device.zeros(32, np.int32)
launch(p, 32, 1)
assert launch._prepared is not None
calls = []
launch._entry.loaded.launch = lambda *given: calls.append(given)
launch(p, 32, 2)
print(calls, p.numpy().tolist() == [2] * 32, [thread.name for thread in __import__("threading").enumerate()][:1])
"""
    assert printed(text).strip() == "[] True ['MainThread']"


def test_untested_python_version_launches_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 99, 0, "final", 0))
    assert not is_supported()


@needs_native
def test_every_version_of_the_package_is_tried() -> None:
    """The versions that the package says it runs on are those that the launcher takes."""
    assert cpython.VERSIONS[0] == (3, 10)
    assert list(cpython.VERSIONS) == [(3, minor) for minor in range(10, 10 + len(cpython.VERSIONS))]


@pytest.mark.parametrize("lack", ["no file", "no library", "another processor"])
def test_unloadable_library_warns_once_and_launches_in_python(
    cpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lack: str
) -> None:
    path = tmp_path / platform.machine() / "launcher.so"
    path.parent.mkdir()
    if lack == "no library":
        path.write_bytes(b"no ELF")
    elif lack == "another processor":
        other = {"x86_64": "aarch64"}.get(platform.machine(), "x86_64")
        path.write_bytes(Path(library.NATIVE, other, "launcher.so").read_bytes())
    with raises(MissingError, "missing", "launcher.so"):
        library.Library(str(path))
    monkeypatch.setattr(library, "library", lambda: library.Library(str(path)))
    find = once(inspect.unwrap(library.library_or_none))
    monkeypatch.setattr("cujit.devices.launcher.binder.library_or_none", find)
    heard: list[Any] = []
    with subscribe(heard.append, Fallback):
        for _ in range(2):
            launch, p = jit(FILL, device=cpu)["fill"][1, 32], cpu.zeros(32, np.int32)
            launch(p, 32, 5)
            launch(p, 32, 6)
            assert p.numpy().tolist() == [6] * 32
    assert launch._prepared is None
    if is_supported():
        assert [(event.what, event.way) for event in heard] == [("launches", "the launcher written in Python")]


@needs_native
def test_interpreters_have_their_own_tables() -> None:
    text = """
import ctypes
from cujit.devices.launcher import library
from cujit.errors import MissingError
from cujit.events import Fallback, subscribe
path = f"{library.NATIVE}/{__import__('platform').machine()}/launcher.so"
held = ctypes.PyDLL(str(path))
ctypes.c_uint64.in_dll(held, "cujit_interpreter").value = 1
assert library.library_or_none() is None
try:
    library.Library(path)
except MissingError as e:
    print(e.message)
"""
    assert "another interpreter in this process uses the launcher" in printed(text)


@needs_native
def test_interpreter_with_hidden_symbols_launches_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hidden:
        def __getattr__(self, name: str) -> Any:
            raise AttributeError(name)

    monkeypatch.setattr(library, "address_of", lambda name: getattr(Hidden(), name))
    with raises(MissingError, "missing", "launcher"):
        library.Library(f"{library.NATIVE}/{platform.machine()}/launcher.so")


# -- attaching and binding -------------------------------------------------------------------------------


@needs_native
def test_concurrent_threads_attach_one_state(cpu: Device) -> None:
    launch, p = jit(FILL, device=cpu)["fill"][1, 32], cpu.zeros(32, np.int32)
    kept: set[int] = set()

    def call() -> None:
        for _ in range(300):
            launch(p, 32, 1)
            kept.add(id(launch._prepared))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kept - {id(None)} == {id(launch._prepared)}


@needs_native
def test_launch_in_a_signal_handler_keeps_its_state_intact(cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    launch, p = jit(FILL, device=cpu)["fill"][1, 32], cpu.zeros(32, np.int32)
    begun: list[object] = []

    def interrupted(base: type) -> object:
        if launch._prepared is not None and not begun:
            begun.append(launch._prepared)
            launch(p, 32, 1)
            attach(launch)
        return native_type(base)

    monkeypatch.setattr(launching, "native_type", interrupted)
    assert attach(launch)
    assert begun == [launch._prepared]
    state = ctypes.c_uint64.from_address(id(launch) + native_type(Launch).state_offset).value
    assert launch._prepared is not None
    assert state == ctypes.addressof(launch._prepared.state)
    launch(p, 32, 7)
    assert p.numpy().tolist() == [7] * 32


@needs_native
def test_launch_in_a_signal_handler_does_not_bind_twice(cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    launch, p = jit(FILL, device=cpu)["fill"][1, 32], cpu.zeros(32, np.int32)
    bind, begun, q = LaunchBinder.bind, 0, cpu.zeros(32, np.int32)

    def interrupted(*given: Any) -> object:
        nonlocal begun
        begun += 1
        if begun == 1:
            launch(q, 32, 1)
        return bind(*given)

    monkeypatch.setattr(LaunchBinder, "bind", interrupted)
    assert attach(launch)
    for value in (3, 7):
        launch(p, 32, value)
        assert (begun, p.numpy().tolist()) == (1, [value] * 32)
    assert q.numpy().tolist() == [1] * 32


@needs_native
def test_slow_compile_is_not_retried(cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    launch, p = jit(FILL, device=cpu)["fill"][1, 32], cpu.zeros(32, np.int32)
    tries: list[object] = []

    def late(*given: object) -> None:
        tries.append(given)
        raise ToolTimeoutError("not compiled in 10 s")

    monkeypatch.setattr(type(launch._entry.loaded), "_function", late)
    with pytest.raises(ToolTimeoutError):
        launch(p, 32, 1)
    assert len(tries) == 1
    monkeypatch.undo()
    launch(p, 32, 4)
    assert p.numpy().tolist() == [4] * 32
