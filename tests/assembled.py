"""Under ``CUJIT_ASSEMBLED=1`` (`make assembled`) a test fails whose PTX the CPU device takes and no assembler does.

Such a text would do on a GPU what it never did here: not even load.
"""

from __future__ import annotations

import functools
import os
import re
from typing import Any

import pytest

from cujit.devices.cpu.module import CpuModule
from toolkits.assembler import Assembler

__all__: list[str] = []

# Complaints about what the CPU device takes, and why it does. Those of nvJitLink itself have no line.
_TAKEN = {
    "Immediate addresses allowed only for": "a text may show an address of 0, which ends the launch",
    "ector size": "a fragment of another size is told when its kernel is compiled",
    "'Compile only": "nvJitLink wants a stack for it, and not of a text alone",
    "cannot be resolved by a '.static'": "the extern is of another module, which the linker says",
}
_COMPLAINT = re.compile(r"(?:error|fatal) *: (.*)")
_TARGET = re.compile(r"^\s*\.target\s+(sm_(\d+)\w?)", re.MULTILINE)
_OLDEST = 75
"""The oldest architecture that the assembler makes code for, expected the texts of older ones."""

_loaded: list[str] = []
_seen: set[str] = set()


def pytest_sessionstart() -> None:
    """Note every text that is taken."""
    if not os.environ.get("CUJIT_ASSEMBLED"):
        return
    load = CpuModule.__init__

    @functools.wraps(load)
    def noted(self: CpuModule, text: str, *args: Any, **options: Any) -> None:
        load(self, text, *args, **options)
        if text not in _seen:
            _seen.add(text)
            _loaded.append(text)

    setattr(CpuModule, "__init__", noted)  # noqa: B010 - mypy lets no method be assigned


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Any:
    result = yield
    found = [complaint for text in _loaded for complaint in _complaints(text)]
    _loaded.clear()
    assert not found, "no assembler takes it:\n" + "\n".join(found)
    return result


def _complaints(text: str) -> list[str]:
    target = _TARGET.search(text)
    if target is None or int(target[2]) < 20:  # of PTX 1.x, which assemblers take no more
        return []
    log = _assembler().complain(text, target[1] if int(target[2]) >= _OLDEST else f"sm_{_OLDEST}") or ""
    return [line for line in _COMPLAINT.findall(log) if "aborted" not in line and not any(t in line for t in _TAKEN)]


@functools.cache
def _assembler() -> Assembler:
    return Assembler()


def pytest_sessionfinish() -> None:
    """End the assembler's process."""
    if _assembler.cache_info().currsize:
        _assembler().close()
