from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from click.testing import CliRunner, Result

from cujit.cli.compat import command
from cujit.program import build, compile

Compat: TypeAlias = Callable[..., Result]
CODE = 'extern "C" __global__ void k(int* p) { *p = 1; }'


@pytest.fixture
def compat() -> Compat:
    def run(*arguments: object) -> Result:
        return CliRunner().invoke(command, [str(a) for a in arguments], catch_exceptions=False)

    return run


@pytest.fixture
def fatbin(tmp_path: Path) -> Path:
    return build(CODE, ["sm_80", "sm_90", "compute_75"]).save(tmp_path / "k.fatbin")


def test_entries_are_listed_and_the_loaded_one_is_marked(compat: Compat, fatbin: Path) -> None:
    result = compat(fatbin, "--cuda", "13.9", "--arch", "sm_86", "--json")
    assert result.exit_code == 0
    rows = {row["entry"]: (row["loads"], row["picked"]) for row in json.loads(result.stdout)}
    assert rows == {"cubin sm_80": (True, True), "cubin sm_90": (False, False), "ptx compute_75": (True, False)}


def test_text_output_has_the_same_facts(compat: Compat, fatbin: Path) -> None:
    result = compat(fatbin, "--driver", "580", "--arch", "sm_86")
    assert result.exit_code == 0
    assert "on a driver of CUDA 13.0 (r580) and sm_86" in result.stdout
    assert "this one" in result.stdout
    assert "cubin sm_90: build for sm_86" in result.stdout


def test_file_that_nothing_loads_is_status_1(compat: Compat, tmp_path: Path) -> None:
    path = compile(CODE, arch="sm_80").save(tmp_path / "k.cubin")
    assert compat(path, "--arch", "sm_90").exit_code == 1
    assert compat(path, "--arch", "sm_80").exit_code == 0
    assert compat(path).exit_code == 0


def test_driver_and_cuda_exclude_each_other(compat: Compat, fatbin: Path) -> None:
    assert compat(fatbin, "--driver", "580", "--cuda", "13.0").exit_code == 2
