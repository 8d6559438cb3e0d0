from __future__ import annotations

import importlib.metadata
import json
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from click.testing import Result

from cujit.cli.doctor import _RELATED, anonymous
from cujit.errors import CujitError
from cujit.machine import health, trial
from cujit.machine.health import Component, doctor, library_problem
from cujit.program import toolchain
from cujit.toolchain.headers import HeaderSearch, IncludeDirectory
from cujit.version import __version__
from emulator.programs import python

Cujit: TypeAlias = Callable[..., Result]


def _parts(result: Result) -> dict[str, dict[str, Any]]:
    return {part["name"]: part for part in json.loads(result.stdout)["parts"]}


def test_doctor_finds_every_part_and_explains_how(cujit: Cujit) -> None:
    result = cujit("doctor", "--json")
    assert result.exit_code == 0, result.stdout
    assert json.loads(result.stdout)["good"] is True
    parts = _parts(result)
    assert list(parts) == [
        *("cuda-bindings", "NVRTC", "nvJitLink", "nvFatbin", "libNVVM", "tileiras", "tileirdisasm"),
        *("CUDA runtime headers", "CCCL", "CUDA crt headers", "CUDA driver", "llvmlite"),
    ]
    assert [name for name, part in parts.items() if not part["needed"]] == [
        "libNVVM",
        "tileiras",
        "tileirdisasm",
        "CUDA crt headers",
        "CUDA driver",
    ]
    assert all((part["state"] == "ok") == (not part["fix"]) for part in parts.values())
    for name in ("NVRTC", "nvJitLink", "nvFatbin", "CUDA runtime headers", "CCCL"):
        assert parts[name]["state"] == "ok"
        assert parts[name]["found_via"] not in ("", "cujit emulate")
        assert Path(parts[name]["path"]).exists()
    assert parts["NVRTC"]["version"] == ".".join(map(str, toolchain().nvrtc.version))
    assert parts["CUDA runtime headers"]["version"] == parts["NVRTC"]["version"]


def test_headers_of_another_version_are_a_problem_with_a_fix() -> None:
    search, name = toolchain().headers, "CUDA runtime headers"
    own = health._header(search, name, "", True, None, "")
    assert own.problem == ""
    other = health._header(search, name, "", True, (1, 2), "install others")
    assert (other.problem, other.fix) == (f"{own.version} is not the compiler's version, 1.2", "install others")


def test_missing_headers_and_libraries_are_reported() -> None:
    search = toolchain().headers
    part = health._header(search, "headers of nobody", "", True, None, "install them")
    assert (part.state, part.problem, part.fix) == ("missing", f"looked in {len(search.tried)} places", "install them")
    assert health._located(part, "library of nobody") == part


@pytest.mark.parametrize(("number", "version"), [(12090, "12.9"), (13000, "13.0"), (13040, "13.4"), (20010, "20.1")])
def test_headers_report_their_version(number: int, version: str, tmp_path: Path) -> None:
    (tmp_path / "cuda_runtime_api.h").write_text(f"#define CUDART_VERSION  {number}\n")
    search = HeaderSearch((IncludeDirectory(str(tmp_path), "CUDA runtime headers", "CUDA_HOME"),))
    assert health._header(search, "CUDA runtime headers", "", True, None, "").version == version


def test_doctor_lists_the_devices(cujit: Cujit) -> None:
    devices = json.loads(cujit("doctor", "--json").stdout)["devices"]
    assert devices[-1]["name"] == "cpu"
    assert devices[-1]["processors"] >= 1


def test_doctor_finds_a_driver_and_marks_an_emulated_one() -> None:
    said = python("""
        import cujit
        health = cujit.doctor()
        found = {part.name: (part.state, part.found_via) for part in health.parts}
        print(found["CUDA driver"], found["NVRTC"], *(device.name for device in health.devices))
    """)
    assert said.strip() == "('ok', 'cujit emulate') ('ok', 'cujit emulate') cuda:0 cpu"


def test_doctor_text_has_the_same_facts(cujit: Cujit) -> None:
    result = cujit("doctor")
    assert result.exit_code == 0, result.stdout
    for text in ("NVRTC", "found via", "All required parts are installed."):
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


def test_missing_library_ends_in_status_3_with_a_command(cujit: Cujit, without: Callable[..., None]) -> None:
    without("cuda.bindings.nvfatbin")
    result = cujit("doctor", "--json")
    assert result.exit_code == 3
    assert _parts(result)["nvFatbin"]["state"] == "missing"
    assert _parts(result)["NVRTC"]["state"] == "ok"
    (fix,) = json.loads(result.stdout)["fixes"]
    assert fix in ("pip install 'cujit[cu13]'", "pip install 'cujit[cu12]'")
    assert f"fix with: {fix}" in cujit("doctor").stdout
    problem = _parts(result)["nvFatbin"]["problem"]
    assert str(doctor()).splitlines() == [f"nvFatbin: {problem}", f"fix with: {fix}"]


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
    assert parts["CUDA runtime headers"]["found_via"] != "NVRTC's directory"


_NO_NVRTC = """
from cuda.pathfinder import DynamicLibNotFoundError
import cuda.pathfinder, json, cujit
real = cuda.pathfinder.load_nvidia_dynamic_lib
def gone(name):
    if name == "nvrtc":
        raise DynamicLibNotFoundError(f"{name} is not there")
    return real(name)
cuda.pathfinder.load_nvidia_dynamic_lib = gone
found = cujit.doctor()
print(json.dumps([{part.name: part.state for part in found.parts}, found.fixes]))
"""


def test_without_nvrtc_doctor_reports_one_problem_with_a_fix() -> None:
    states, fixes = json.loads(subprocess.check_output([sys.executable, "-c", _NO_NVRTC]))
    assert states["NVRTC"] == "missing"
    assert [states[name] for name in ("nvJitLink", "nvFatbin", "llvmlite")] == ["ok"] * 3
    assert len(fixes) == 1
    assert "--force-reinstall" not in fixes[0]


def test_without_nvrtc_doctor_tries_only_independent_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise CujitError("it does not work")

    monkeypatch.setattr(trial, "TRIALS", {**dict.fromkeys(trial.TRIALS, lambda: None), "NVRTC": fail})
    with open(tmp_path / "answers", "w+b") as answers:
        trial.report(answers.fileno(), list(trial.TRIALS))
        answers.seek(0)
        said = [json.loads(line)[:2] for line in answers]
    assert said == [["NVRTC", "begins"], ["NVRTC", "failed"], ["libNVVM", "begins"], ["libNVVM", "works"]]


def test_compiler_crash_is_the_only_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(names: list[str]) -> tuple[list[str], list[list[str]], str]:
        asked.append(names)
        return (names[:1], [], "the process ended with SIGSEGV") if len(asked) == 1 else (names, [], "")

    monkeypatch.setattr(trial, "_run", run)
    assert trial.failures(list(trial.TRIALS)) == {"NVRTC": "the process ended with SIGSEGV"}
    assert asked[1:] == [["libNVVM"]]


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
def test_linker_matches_a_compiler_of_its_major_version(
    version: tuple[int, int], compiler: tuple[int, int] | None, problem: str
) -> None:
    assert library_problem(version, compiler) == problem


@pytest.mark.parametrize(("version", "extra"), [("12.9.5", "cu12"), ("13.4.0", "cu13"), ("", "cu13")])
def test_fix_for_a_library_matches_the_installed_bindings(
    version: str, extra: str, cujit: Cujit, without: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def installed(name: str, real: Callable[[str], str] = importlib.metadata.version) -> str:
        if name == "cuda-bindings" and version:
            return version
        if name in ("cuda-bindings", "llvmlite"):
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    without("cuda.bindings.nvfatbin")
    monkeypatch.setattr(importlib.metadata, "version", installed)
    result = cujit("doctor", "--json")
    assert result.exit_code == 3
    parts = _parts(result)
    assert parts["nvFatbin"]["fix"] == f"pip install 'cujit[{extra}]'"
    assert (parts["llvmlite"]["state"], parts["llvmlite"]["fix"]) == ("missing", "pip install llvmlite")
    bindings = parts["cuda-bindings"]
    absent = ("missing", "cuda-bindings is not installed", "pip install cuda-bindings")
    assert (bindings["state"], bindings["problem"], bindings["fix"]) == (("ok", "", "") if version else absent)


def test_mismatched_part_is_neither_good_nor_missing() -> None:
    assert Component("a", "b", needed=True, problem="older").state == "mismatch"
    assert Component("a", "b", needed=True).state == "ok"


def test_report_contains_what_an_issue_needs(cujit: Cujit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CUJIT_CPU_OPTIMIZE", "0")
    monkeypatch.setenv("CUJIT_CHACHE", "secret")
    text = cujit("doctor", "--report").output
    version = ".".join(map(str, toolchain().nvrtc.version))
    for row in (
        rf"| cujit | {re.escape(__version__)}, .*/cujit |",
        rf"| Python | CPython {re.escape(platform.python_version())}\b.*|",
        rf"| system | .*{re.escape(platform.release())}, {platform.machine()}, .* |",
        rf"| NVRTC | ok | {re.escape(version)} | .*libnvrtc.* |",
        r"| cpu | .* | like sm_90 | \d+ |",
        r"| .*/cache | yes | 0 | 0 |",
        r"| CUJIT_CPU_OPTIMIZE | 0 |",
        r"| CUJIT_CHACHE | \(cujit does not read this variable\) |",
    ):
        assert re.search("^" + row.replace("|", r"\|") + "$", text, re.MULTILINE), row
    assert "secret" not in text
    assert re.search(r"llvmlite [\d.]+, .*numpy [\d.]+", text)


def test_report_contains_no_user_name(cujit: Cujit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "home" / "ada"
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("LOGNAME", "ada")
    monkeypatch.setattr(platform, "node", lambda: "difference.engine.example")
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(home / "kept"))
    monkeypatch.setenv("CUJIT_CACHE_ROOTS", "/scratch/ada/difference/packs")
    monkeypatch.setenv("CUJIT_REMOTE", "https://ada:key@store.engine.example/kernels?token=1")
    assert "no key is trusted, hint: CUJIT_TRUST=FILE" in cujit("doctor", "--report").output
    monkeypatch.setenv("CUJIT_TRUST", str(home / "keys"))
    text = cujit("doctor", "--report").output
    assert "| ~/kept | yes | 0 | 0 |" in text
    assert "| CUJIT_CACHE_ROOTS | /scratch/USER/HOST/packs |" in text
    assert "| CUJIT_REMOTE | https://… |" in text
    assert "| https://… | no |  |  |" in text
    for name in ("ada", "engine", "key", "token"):
        assert not re.search(rf"\b{name}\b", text), text
    assert anonymous(f"{home}sen and {home}") == f"{home.parent}/adasen and ~"


def test_report_describes_the_cache_and_unusable_parts(
    cujit: Cujit, without: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    without("cuda.bindings.nvfatbin")
    monkeypatch.setenv("CUJIT_CACHE_BYTES", "many")
    done = cujit("doctor", "--report")
    assert done.exit_code == 3
    assert re.search(r"^\* nvFatbin: .*, hint: pip install 'cujit\[cu1[23]\]'$", done.output, re.MULTILINE)
    assert re.search(r"^\| .*CUJIT_CACHE_BYTES.* \| no \|  \|  \|$", done.output, re.MULTILINE)
    assert "| CUJIT_CACHE_BYTES | many |" in done.output


def test_report_is_written_to_a_file_and_is_not_json(cujit: Cujit, tmp_path: Path) -> None:
    done = cujit("doctor", "--report", "--output", "report.md")
    assert done.exit_code == 0
    assert done.output.startswith("report.md: ")
    assert (tmp_path / "report.md").read_text().startswith("### cujit doctor --report\n")
    assert cujit("doctor", "--report", "--json").exit_code == 2
    assert cujit("doctor", "--output", "report.md").exit_code == 2


def test_report_lists_versions_of_all_dependencies() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    needed = re.search(r"^dependencies = \[(.*?)^\]", project, re.MULTILINE | re.DOTALL)
    assert needed
    names = re.findall(r'^  "([\w-]+)', needed[1], re.MULTILINE)
    assert "numpy" in names
    assert [name for name in names if not _RELATED.fullmatch(name)] == []
