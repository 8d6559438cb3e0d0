from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from click.testing import Result

from cujit.machine.health import Component, doctor, library_problem
from cujit.program import toolchain

Cujit: TypeAlias = Callable[..., Result]


def _parts(result: Result) -> dict[str, dict[str, Any]]:
    return {part["name"]: part for part in json.loads(result.stdout)["parts"]}


def test_doctor_finds_every_part_and_says_how(cujit: Cujit) -> None:
    result = cujit("doctor", "--json")
    assert result.exit_code == 0, result.stdout
    assert json.loads(result.stdout)["good"] is True
    parts = _parts(result)
    assert list(parts) == [
        *("cuda-bindings", "NVRTC", "nvJitLink", "nvFatbin", "libNVVM"),
        *("CUDA runtime headers", "CCCL", "crt", "CUDA driver", "llvmlite"),
    ]
    for name in ("NVRTC", "nvJitLink", "nvFatbin", "CUDA runtime headers", "CCCL"):
        assert parts[name]["state"] == "ok"
        assert parts[name]["found_via"]
        assert Path(parts[name]["path"]).exists()
    assert parts["NVRTC"]["version"] == ".".join(map(str, toolchain().nvrtc.version))
    assert parts["CUDA runtime headers"]["version"] == parts["NVRTC"]["version"]


def test_doctor_lists_the_devices(cujit: Cujit) -> None:
    devices = json.loads(cujit("doctor", "--json").stdout)["devices"]
    assert devices[-1]["name"] == "cpu"
    assert devices[-1]["processors"] >= 1


def test_doctor_tells_people_the_same(cujit: Cujit) -> None:
    result = cujit("doctor")
    assert result.exit_code == 0, result.stdout
    for text in ("NVRTC", "found via", "Everything that is needed is here."):
        assert text in result.stdout
    assert str(doctor()) in result.stdout


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Make modules unimportable, for a toolchain that nothing has opened yet."""

    def block(*modules: str) -> None:
        monkeypatch.setenv("CUDA_HOME", str(tmp_path / "nowhere"))
        for module in modules:
            monkeypatch.setitem(sys.modules, module, None)

    return block


def test_missing_library_ends_in_status_3_with_the_command_against_it(
    cujit: Cujit, without: Callable[..., None]
) -> None:
    without("cuda.bindings.nvfatbin")
    result = cujit("doctor", "--json")
    assert result.exit_code == 3
    assert _parts(result)["nvFatbin"]["state"] == "missing"
    assert _parts(result)["NVRTC"]["state"] == "ok"
    (fix,) = json.loads(result.stdout)["fixes"]
    assert fix in ("pip install 'cujit[cu13]'", "pip install 'cujit[cu12]'")
    assert f"fix with: {fix}" in cujit("doctor").stdout
    assert str(doctor()).splitlines()[-1] == f"fix with: {fix}"


def test_optional_library_may_be_absent(cujit: Cujit, without: Callable[..., None]) -> None:
    without("cuda.bindings.nvvm")
    result = cujit("doctor", "--json")
    assert result.exit_code == 0
    assert _parts(result)["libNVVM"]["state"] == "absent"


def test_everything_may_be_missing_at_once(cujit: Cujit, without: Callable[..., None]) -> None:
    without(*(f"cuda.bindings.{name}" for name in ("nvrtc", "nvjitlink", "nvfatbin", "nvvm")))
    result = cujit("doctor", "--json")
    assert result.exit_code == 3
    parts = _parts(result)
    assert [parts[n]["state"] for n in ("NVRTC", "nvJitLink", "nvFatbin", "libNVVM")] == ["missing"] * 3 + ["absent"]
    assert parts["CUDA runtime headers"]["found_via"] != "the directory of NVRTC"


@pytest.mark.parametrize(
    ("version", "compiler", "problem"),
    [
        ((13, 4), (13, 4), ""),
        ((13, 5), (13, 4), ""),
        ((13, 5), None, ""),
        ((13, 3), (13, 4), "13.3 is older than the compiler, 13.4"),
        ((12, 9), (13, 0), "12.9 is older than the compiler, 13.0"),
        ((13, 0), (12, 9), "13.0 is of a later major version than the compiler, 12.9"),
    ],
)
def test_linker_goes_with_a_compiler_of_its_major_version_that_is_no_newer(
    version: tuple[int, int], compiler: tuple[int, int] | None, problem: str
) -> None:
    assert library_problem(version, compiler) == problem


def test_part_that_does_not_match_is_neither_good_nor_missing() -> None:
    assert Component("a", "b", needed=True, problem="older").state == "mismatch"
    assert Component("a", "b", needed=True).state == "ok"
