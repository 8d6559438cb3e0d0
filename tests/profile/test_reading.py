"""Profiles that were written are read back, and what is none is an error of ours."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import cujit
from cujit.profile import Profile, read_profile


def test_what_was_written_is_read_as_it_was(tmp_path: Path) -> None:
    profile = Profile()
    device = cujit.cpu(profile=profile)
    code = 'extern "C" __global__ void one(float *x) { x[threadIdx.x * 2] = 1; }'
    cujit.jit(code, device=device, name="a:b.cu")["one"][2, 64](device.zeros(128, np.float32))
    file = tmp_path / "counts.json"
    file.write_text(json.dumps(profile.to_json()))
    assert read_profile(file) == profile.kernels
    assert {row.source.file for row in read_profile(file)[0].instructions if row.source} == {"a:b.cu"}


@pytest.mark.parametrize("text", ["", "[]", "7", '{"kernels": [{}]}', '{"kernels": [3]}', '{"kernels": 3}'])
def test_what_is_none_is_an_error(tmp_path: Path, text: str) -> None:
    file = tmp_path / "odd.json"
    file.write_text(text)
    with pytest.raises(cujit.errors.FormatError, match="is not what cujit profile --json writes"):
        read_profile(file)
    with pytest.raises(cujit.errors.FileError):
        read_profile(tmp_path / "none.json")
