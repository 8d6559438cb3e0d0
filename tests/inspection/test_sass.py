"""The disassembler: found or missed, and what it writes."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cuda import pathfinder

from cujit.errors import FormatError, MissingError, NameNotFoundError, ToolError
from cujit.inspection.sass import disassemble, find_nvdisasm
from formats.images import cubin
from inspection.files import SOURCE
from raising import raises


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """No nvdisasm but one on the PATH."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(pathfinder, "find_nvidia_binary_utility", lambda _: None, raising=False)


@pytest.fixture
def nvdisasm() -> Path:
    try:
        return find_nvdisasm()
    except MissingError as e:
        pytest.skip(e.message)


def test_machine_code_is_written_as_text(nvdisasm: Path) -> None:
    text = disassemble(cubin(SOURCE, "sm_80"), nvdisasm=nvdisasm)
    assert text.count("EXIT") >= 3
    assert ".text.count" in text
    assert ".text._Z5scaleIfEvT_PKS0_PS0_i" in text


def test_only_requested_kernels_are_written(nvdisasm: Path) -> None:
    text = disassemble(cubin(SOURCE, "sm_90a"), ["count"], nvdisasm=nvdisasm)
    assert ".text.count" in text
    assert ".text._Z5scale" not in text
    with raises(NameNotFoundError, "name-not-found", "count"):
        disassemble(cubin(SOURCE, "sm_90a"), ["cuont"], nvdisasm=nvdisasm)


@pytest.mark.usefixtures("no_wheel")
def test_missing_disassembler_is_reported_with_its_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with raises(MissingError, "missing", "cujit[sass]"):
        disassemble(cubin(SOURCE, "sm_80"))


@pytest.mark.usefixtures("no_wheel")
def test_path_is_searched_last(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "nvdisasm"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_nvdisasm() == tool
    monkeypatch.setattr(pathfinder, "find_nvidia_binary_utility", lambda name: f"/toolkit/{name}", raising=False)
    assert find_nvdisasm() == Path("/toolkit/nvdisasm")
    wheel = tmp_path / "nvidia/cu13/bin/nvdisasm"
    wheel.parent.mkdir(parents=True)
    tool.rename(wheel)
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path / "nvidia")])
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: spec)
    assert find_nvdisasm() == wheel
    newer, not_executable = (tmp_path / f"nvidia/{toolkit}/bin/nvdisasm" for toolkit in ("cu14", "cu15"))
    for tool, mode in ((newer, 0o755), (not_executable, 0o644)):
        tool.parent.mkdir(parents=True)
        tool.touch(mode=mode)
    assert find_nvdisasm() == newer


@pytest.mark.usefixtures("no_wheel")
def test_older_pathfinder_is_not_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delattr(pathfinder, "find_nvidia_binary_utility", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingError):
        find_nvdisasm()


def test_disassembler_error_is_reported_verbatim(nvdisasm: Path) -> None:
    data = cubin(SOURCE, "sm_80")
    with pytest.raises(ToolError) as error:
        disassemble(data[:18] + b"\x03\x00" + data[20:], nvdisasm=nvdisasm)  # another machine
    assert error.value.log
    with pytest.raises(FormatError):
        disassemble(data[:100], ["count"], nvdisasm=nvdisasm)


def test_hanging_or_failing_disassembler_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def hang(*_: Any, **__: Any) -> None:
        raise subprocess.TimeoutExpired("nvdisasm", 1)

    with raises(MissingError, "missing", "cujit[sass]"):
        disassemble(b"", nvdisasm=tmp_path / "none")
    monkeypatch.setattr(subprocess, "run", hang)
    with raises(ToolError, "tool", "120"):
        disassemble(b"", nvdisasm=tmp_path / "none")


def test_repeated_request_is_not_disassembled_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked, tool = [], tmp_path / "nvdisasm"

    def run(command: list[str], **_: Any) -> SimpleNamespace:
        asked.append(command[:-1])
        return SimpleNamespace(returncode=0, stdout=b"EXIT", stderr=b"")

    monkeypatch.setattr(subprocess, "run", run)
    assert {disassemble(b"cubin", nvdisasm=tool) for _ in range(3)} == {"EXIT"}
    disassemble(b"other", nvdisasm=tool)
    disassemble(b"cubin", nvdisasm=tool, lines=True)
    assert asked == [[str(tool), "-c"], [str(tool), "-c"], [str(tool), "-c", "-g", "-gp"]]
    for _ in range(2):
        disassemble(bytes(1 << 21), nvdisasm=tool)
    assert len(asked) == 5
