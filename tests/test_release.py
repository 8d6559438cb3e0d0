"""What a release is held to, as far as it needs no environment of its own; ``make release-check`` does the rest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import release_smoke
from release_check import VERSIONS, wrong_with_sdist, wrong_with_wheel

ROOT = Path(__file__).parents[1]

WHEEL = [
    "cujit/py.typed",
    "cujit/__init__.pyi",
    "cujit/devices/cpu/runtime/x86_64/pool.bc",
    "cujit/devices/cpu/runtime/aarch64/pool.bc",
    "cujit/devices/launcher/native/x86_64/launcher.so",
    "cujit/devices/launcher/native/aarch64/launcher.so",
    "cujit-1.0.dist-info/licenses/LICENSE",
    "cujit-1.0.dist-info/entry_points.txt",
]


def test_wheel_contains_exactly_the_expected_files() -> None:
    assert wrong_with_wheel(WHEEL) == []
    assert wrong_with_wheel(WHEEL[1:]) == ["the wheel lacks cujit/py.typed"]
    assert wrong_with_wheel([*WHEEL, "tests/conftest.py"]) == ["the wheel has tests/conftest.py"]
    assert wrong_with_wheel([*WHEEL, "cujit/a.so"]) == ["the wheel has cujit/a.so"]
    assert wrong_with_wheel([*WHEEL, "cujit/a.pyc"]) == ["the wheel has cujit/a.pyc"]


def test_sdist_has_its_test_files_and_no_foreign_wheel() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("this is not a clone")
    assert wrong_with_sdist([f"cujit-1.0/{name}" for name in tracked.stdout.splitlines()]) == []
    assert "the sdist has cujit-1.0/benchmarks/a.whl" in wrong_with_sdist(["cujit-1.0/benchmarks/a.whl"])


def test_smoke_suite_checks_what_it_says() -> None:
    release_smoke._hits()
    release_smoke._refuses()
    release_smoke._together()


def test_readme_demo_runs_by_make() -> None:
    """With the environment of this process; ``make release-check`` has one made, in a new clone."""
    done = subprocess.run(
        ["make", "--no-print-directory", "demo", f"VENV={sys.prefix}", "--old-file", f"{sys.prefix}/.ready"],
        cwd=ROOT,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[0].endswith("/cujit demo")
    assert re.search(r"^result +all [\d,]+ elements equal NumPy's$", done.stdout, re.MULTILINE)


def test_other_systems_are_refused_with_one_sentence() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys; sys.platform = 'win32'; import cujit"], capture_output=True, text=True
    )
    assert done.stderr.endswith("cujit runs on Linux, but this is win32; on Windows, install cujit in WSL 2\n")


def test_page_of_licenses_names_every_dependency() -> None:
    page = (ROOT / "docs" / "licenses.md").read_text()
    project = (ROOT / "pyproject.toml").read_text()
    needed = re.search(r"^dependencies = \[(.*?)^\]", project, re.MULTILINE | re.DOTALL)
    assert needed
    names = set(re.findall(r'^  "([\w-]+)', needed[1], re.MULTILINE))
    extras = re.findall(r"^(?:remote|plot|tune|farm) = \[(.*)\]", project, re.MULTILINE)
    names |= {name for extra in extras for name in re.findall(r'"([\w-]+)', extra)}
    assert {name for name in names if f"`{name}`" not in page} == set()


def test_versions_page_states_the_oldest_python_of_the_project() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    oldest = re.search(r'requires-python = ">=([\d.]+)"', project)
    assert oldest
    assert f"| Python | {oldest[1]} to " in (ROOT / "docs" / "versions.md").read_text()


def test_package_index_shows_tested_versions_and_links() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    shown = re.findall(r'^  "Programming Language :: Python :: (3\.\d+)",$', project, re.MULTILINE)
    assert shown == [version for version in VERSIONS if not version.endswith("t")]
    (urls,) = re.findall(r"^\[project\.urls\]\n((?:\w+ = .*\n)+)", project, re.MULTILINE)
    assert re.findall(r"^(\w+)", urls, re.MULTILINE) == ["Repository", "Documentation", "Issues", "Changelog"]
    description = re.search(r'^description = "(.*)"$', project, re.MULTILINE)
    assert description
    assert f"site_description: {description[1]}\n" in (ROOT / "mkdocs.yml").read_text()
    readme = (ROOT / "README.md").read_text()
    assert readme.partition("**cujit ")[2].partition(".**")[0].split()[:3] == ["compiles,", "links,", "caches,"]
