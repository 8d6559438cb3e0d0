"""``docs/installation.md`` has the messages that cujit prints, the extras that there are, and what they install."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cujit
from cujit.errors import ArchError, CujitError
from cujit.program import toolchain
from cujit.toolchain.driver import OLDEST_DRIVER, open_driver
from pages import Page, shell
from processes import printed

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_ROOT = Path(__file__).parents[1]
_PAGE = Page("installation.md")
_FAILURES: dict[str, str] = dict(
    re.findall(r"^### ([^\n]+)\n\n```text\n(.*?)\n```$", _PAGE.sections["Common failures"], re.MULTILINE | re.DOTALL)
)
_PROJECT: dict[str, Any] = tomllib.loads((_ROOT / "pyproject.toml").read_text())["project"]


def _python(code: str, **environment: str) -> str:
    """Run Python in a process of its own; return the end of what it writes on standard error."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stderr.strip()


def _without_wheels(_: Path, __: pytest.MonkeyPatch) -> str:
    code = """
from cuda.pathfinder import DynamicLibNotFoundError
import cuda.pathfinder, cujit
def gone(name):
    raise DynamicLibNotFoundError(f"{name} is not there")
cuda.pathfinder.load_nvidia_dynamic_lib = gone
try:
    cujit.compile("__global__ void k() {}", arch="sm_90", cache=False)
except cujit.errors.CujitError as error:
    import sys
    print(error, file=sys.stderr)
"""
    return _python(code)


def _without_driver(_: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    from cuda.bindings import driver

    def gone() -> None:
        raise RuntimeError("libcuda.so.1 is not there")

    monkeypatch.setattr(driver, "cuDriverGetVersion", gone)
    return _error(inspect.unwrap(open_driver))


def _without_gpu(_: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    from cuda.bindings import driver

    results = driver.CUresult
    monkeypatch.setattr(driver, "cuDriverGetVersion", lambda: (results.CUDA_SUCCESS, 13000))
    monkeypatch.setattr(driver, "cuInit", lambda _flags: (results.CUDA_ERROR_NO_DEVICE,))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return _error(inspect.unwrap(open_driver))


def _old_gpu(_: Path, __: pytest.MonkeyPatch) -> str:
    if toolchain().nvrtc.version[0] < 13:
        pytest.skip("CUDA 12 builds for it")
    return _error(lambda: cujit.compile("__global__ void k() {}", arch="sm_60"), ArchError)


def _unwritable_cache(tmp_path: Path, _: pytest.MonkeyPatch) -> str:
    (tmp_path / "file").write_text("")
    code = "import cujit\ncujit.compile('__global__ void k() {}', arch='sm_90')"
    return _python(code, CUJIT_CACHE_DIR=str(tmp_path / "file" / "cache"), CUJIT_CACHE="1").partition(": ")[2]


def _error(call: Callable[[], object], kind: type[CujitError] = CujitError) -> str:
    with pytest.raises(kind) as caught:
        call()
    return str(caught.value)


def _name_of_nvcc(tmp_path: Path, _: pytest.MonkeyPatch) -> str:
    path = tmp_path / "kernel.cu"
    path.write_text("__global__ void lowest(float *x) {\n\n    *x = -INFINITY;\n}\n")
    message = _error(lambda: cujit.compile(path, arch="sm_90"))
    lines = [line for line in message.splitlines() if "INFINITY" in line and ("error:" in line or "hint:" in line)]
    return "\n".join(line.replace(f"{path}", path.name) for line in lines)


_PROVOKED: dict[str, Callable[[Path, pytest.MonkeyPatch], str]] = {
    "NVRTC is not installed": _without_wheels,
    "No CUDA driver": _without_driver,
    "The driver finds no GPU": _without_gpu,
    "The GPU is too old for CUDA 13": _old_gpu,
    "The cache can't be written": _unwritable_cache,
    "INFINITY is undefined": _name_of_nvcc,
}


def test_each_failure_of_the_page_is_provoked() -> None:
    assert [*_FAILURES] == [*_PROVOKED]


@pytest.mark.parametrize("title", _PROVOKED)
def test_failure_has_the_message_that_the_page_shows(
    title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = _PROVOKED[title](tmp_path, monkeypatch)
    shown = ".*?".join(map(re.escape, _FAILURES[title].split("…")))
    assert re.fullmatch(shown + (".*" if shown.endswith(".*?") else ""), printed, re.DOTALL), printed


def test_table_has_every_extra_and_its_packages() -> None:
    extras: dict[str, list[str]] = _PROJECT["optional-dependencies"]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", _PAGE.sections["Extras"], re.MULTILINE))
    assert {*rows} == {*extras} - {"dev", "docs"}
    for name in rows:
        for requirement in extras[name]:
            package = re.split(r"[\[<>=;]", requirement)[0]
            if not package.startswith("cuda-"):
                word = package.removeprefix("nvidia-cuda-").replace("-", "")
                assert word.lower() in rows[name].lower(), requirement
    assert "`dev`" in _PAGE.sections["Extras"]
    assert "`docs`" in _PAGE.sections["Extras"]


def test_requirements_match_the_package_and_the_driver() -> None:
    table = _PAGE.sections["Requirements"]
    assert f"{_PROJECT['requires-python'].removeprefix('>=')} to 3." in table
    assert f"CUDA {OLDEST_DRIVER[0]}.{OLDEST_DRIVER[1]})" in table


def test_readme_has_the_sizes_of_the_page() -> None:
    (whole, theirs) = re.findall(r"Disk space \| (\d+ MB), of which NVIDIA's wheels take (\d+ MB)", _PAGE.text)[0]
    readme = " ".join((_ROOT / "README.md").read_text().split())
    assert f"takes {whole}, of which NVIDIA's compiler, linker, and headers take {theirs}" in readme
    assert f"| {theirs} |" in next(line for line in _PAGE.text.splitlines() if line.startswith("| `cu13`"))


def test_last_step_prints_what_is_shown() -> None:
    (session,) = re.findall(r"```console\n(.*?)```", _PAGE.sections["Check the installation"], re.DOTALL)
    for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", session, re.MULTILINE):
        first, last = re.sub(r"[─ ]+", " ", shown).split("…\n")
        printed = re.sub(r"[─ ]+", " ", shell(command))
        assert printed.startswith(first)
        assert printed.endswith(last)


def test_page_decides_for_a_frozen_program() -> None:
    (code,) = (code for at, code in Page("how-to/package.md").snippets("python") if at == "Worker processes")
    shown = printed(f"import sys\nsys.frozen = True\n{code}print(len(made) > 0)")
    assert shown.splitlines() == [
        "set CUJIT_PYTHON to the path of a Python interpreter that has cujit installed", "True",
    ]  # fmt: skip
