from __future__ import annotations

import os
from pathlib import Path

import pytest

from cujit.emulator.environment import environment_of
from cujit.emulator.settings import EmulatorSettings
from processes import printed, python

ASKING = """
import os, sys, threading
import cujit
assert "numpy" not in sys.modules
device = cujit.gpu()
# One that imported something is listed as a dummy also when it has ended.
names = [thread.name for thread in threading.enumerate() if not thread.name.startswith("Dummy-")]
assert names == ["MainThread"], names
assert device.array([1.0, 2.0]).numpy().tolist() == [1.0, 2.0]
print(os.getpid())
"""


def _calls(log: Path) -> list[tuple[str, str]]:
    """The calls that a driver heard in their order: the thread, and the name of the function."""
    words = [line.split() for line in log.read_text().splitlines()]
    return [(who.partition("/")[2], call.partition("(")[0]) for who, call, *_ in words]


@pytest.mark.parametrize("asked", ["gpu", "default_device"])
def test_thread_starts_the_driver_and_releases_its_locks(asked: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    main = printed(ASKING.replace("gpu", asked), environment=environment_of(EmulatorSettings(log=str(log)))).split()[-1]
    calls = _calls(log)
    beside = [name for thread, name in calls if thread != main]
    own = [name for thread, name in calls if thread == main and "PrimaryCtx" in name]
    assert beside == ["cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain"]
    assert own == ["cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2"]


def test_driver_starts_once_and_only_with_a_gpu() -> None:
    printed(
        """
        import _thread
        from cujit.toolchain.driver_start import beginning
        begun = []
        start = _thread.start_new_thread
        _thread.start_new_thread = lambda act, values: (begun.append(act), start(act, values))[1]
        for number in ("0", -1, 1 << 40, True, None):
            with beginning(number):
                assert not begun
        for _ in range(2):
            with beginning(0):
                pass
        assert len(begun) == 1
        """
    )


@pytest.mark.parametrize("call", ["cujit.gpu()", "cujit.gpu(3)"])
def test_missing_gpu_gives_the_same_error_as_without_a_thread(call: str) -> None:
    environment = environment_of(EmulatorSettings()) if "3" in call else dict(os.environ)
    plain = f"from cujit.devices.process import process_devices; process_devices().{call.removeprefix('cujit.')}"
    said = [python(code, environment=environment).stderr.splitlines()[-2:] for code in (f"import cujit; {call}", plain)]
    assert said[0] == said[1]
    assert "GPU" in "".join(said[0]) or "driver" in "".join(said[0])


def test_driver_starts_on_demand_if_no_thread_can_start() -> None:
    name = printed(
        """
        import _thread
        import cujit
        def refuse(*_): raise RuntimeError("can't start new thread")
        _thread.start_new_thread = refuse
        print(cujit.gpu().name)
        """,
        environment=environment_of(EmulatorSettings()),
    )
    assert name.split() == ["cuda:0"]


def test_driver_starts_before_other_imports() -> None:
    printed(
        """
        import sys
        had = set(sys.modules)
        import _thread
        import cujit
        start = _thread.start_new_thread
        def begin(act, values):
            found.append(set(sys.modules))
            return start(act, values)
        found = []
        _thread.start_new_thread = begin
        cujit.gpu()
        more = {name for name in found[0] - had if not name.startswith(("cujit", "ctypes", "_"))}
        assert {name.partition(".")[0] for name in more} <= {"gc", "importlib", "struct", "types", "warnings"}
        new = {name for name in sys.modules if name.startswith("cujit.devices.launcher")}
        assert "cujit.devices.launcher.entry" in new
        """,
        environment=environment_of(EmulatorSettings()),
    )
