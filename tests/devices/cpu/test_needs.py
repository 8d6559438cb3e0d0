"""A text that uses what is newer than it says is wrong, as assemblers have it: with line, caret and what to write."""

from __future__ import annotations

import pytest

from cujit.artifact import Artifact
from cujit.devices.device import Device
from cujit.errors import PtxSyntaxError
from instructions.scene import entry


@pytest.mark.parametrize(
    ("version", "target", "statement", "why", "help"),
    [
        ("8.5", "sm_100a", "cvt.rn.satfinite.tf32.f32 r, f;", "came with PTX 8.6, and this is a text of 8.5", "8.6"),
        ("8.6", "sm_90", "cvt.rn.satfinite.tf32.f32 r, f;", "came with sm_100, and this is a text for sm_90", "sm_100"),
        ("8.6", "sm_90", "setmaxnreg.dec.sync.aligned.u32 40;", "came with sm_90a", "sm_90a"),
        ("7.0", "sm_90", "mov.u32 r, %tid.x;", "came with PTX 7.8", "7.8"),
    ],
)
def test_instruction_newer_than_the_version_is_reported(
    cpu: Device, version: str, target: str, statement: str, why: str, help: str
) -> None:
    text = entry(f".reg .b32 r; .reg .f32 f;\n{statement}", 0, version=version, target=target)
    with pytest.raises(PtxSyntaxError) as e:
        cpu.load(Artifact.of(text))
    assert why in e.value.message
    assert help in (e.value.help or "")
