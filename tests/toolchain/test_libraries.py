"""Libraries of ``cujit emulate``, as a process knows them from NVIDIA's."""

from __future__ import annotations

from pathlib import Path

import pytest

from cujit.toolchain.libraries import is_emulated, real_path


def test_unloaded_library_is_not_from_the_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_EMULATE", "1")
    assert not is_emulated("/nowhere/libnothing.so.1")


def test_library_precedes_the_one_named_in_the_neighboring_file(tmp_path: Path) -> None:
    (tmp_path / "before-libx.so.1").write_text("/nowhere/lib/libx.so.1")
    assert real_path(str(tmp_path / "libx.so.1")) == "/nowhere/lib/libx.so.1"
    assert real_path(str(tmp_path / "liby.so.1")) == str(tmp_path / "liby.so.1")
