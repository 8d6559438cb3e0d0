"""The workflows of the forge, as far as they can be held without it: what they call is there."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from release_check import VERSIONS

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / ".github").rglob("*.yml"))
WORKFLOWS = [path for path in FILES if path.parent.name == "workflows"]
TARGETS = set(re.findall(r"^([\w-]+):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))


def _loaded(path: Path) -> dict[str, Any]:
    found = yaml.safe_load(path.read_text())
    assert isinstance(found, dict)
    return found


def _steps(path: Path) -> Iterator[dict[str, Any]]:
    for job in _loaded(path)["jobs"].values():
        yield from job["steps"]


def wrong_with_command(line: str) -> str:
    """Say what a command of a workflow names that is not here; "" if all is."""
    # What a shell puts in is a word like others here; a command in it is looked at by itself.
    inner = re.findall(r"\$\((?:[^()]|\([^()]*(?:\([^()]*\)[^()]*)*\))*\)", line)
    for one in inner:
        line = line.replace(one, "it")
    words = [word for word in shlex.split(line) if not re.match(r"[A-Z_]+=", word)]
    match words:
        case ["make", target] if target in TARGETS:
            wrong = ""
        case ["bash", script] if (ROOT / script).is_file():
            wrong = ""
        case [".venv/bin/python", "-m", module] if re.search(rf"pip install [^\n]*'{module}>=", _makefile()):
            wrong = ""
        case ["test", _, "=", _] | ["git", "log", *_]:
            wrong = ""
        case ["python", "-c", code]:
            ast.parse(code)
            wrong = ""
        case _:
            wrong = line
    return wrong or next((said for one in inner if (said := wrong_with_command(one[2:-1]))), "")


def _makefile() -> str:
    return (ROOT / "Makefile").read_text()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_calls_existing_targets(path: Path) -> None:
    commands = [step["run"] for step in _steps(path) if "run" in step]
    assert commands or path.name != "ci.yml"
    assert [said for line in commands if (said := wrong_with_command(line))] == []


def test_missing_target_is_detected() -> None:
    assert wrong_with_command("make everything") == "make everything"
    assert wrong_with_command("bash .ci/walk") == "bash .ci/walk"
    assert wrong_with_command("X=$(make nothing) make test") == "make nothing"
    assert wrong_with_command(".venv/bin/python -m nothing") != ""


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_action_is_pinned_by_commit_with_its_release(path: Path) -> None:
    uses = re.findall(r"^ +- uses: (.*)$", path.read_text(), re.MULTILINE)
    assert len(uses) == sum("uses" in step for step in _steps(path))
    assert [one for one in uses if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", one)] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflow_is_read_only_unless_a_job_says_otherwise(path: Path) -> None:
    assert _loaded(path)["permissions"] == {"contents": "read"}


def test_every_version_for_a_release_exists() -> None:
    (versions,) = [
        step["with"]["python-version"].split()
        for step in _steps(ROOT / ".github/workflows/release.yml")
        if "python-version" in step.get("with", {})
    ]
    assert {*versions} == {*VERSIONS}


def test_issue_template_asks_for_the_report() -> None:
    form = _loaded(ROOT / ".github/ISSUE_TEMPLATE/bug.yml")
    (asked,) = [part for part in form["body"] if part.get("id") == "report"]
    assert asked["attributes"]["label"] == "cujit doctor --report"
    assert asked["validations"]["required"]


def test_paths_excluded_from_coverage_exist() -> None:
    left_out = re.search(r"^UNCOVERED := ((?:.*\\\n)*.*)", _makefile(), re.MULTILINE)
    assert left_out
    for name in left_out[1].replace("\\", "").split():
        path, _, test = name.partition("::")
        assert f"def {test}(" in (ROOT / path).read_text() if test else (ROOT / path).is_file(), name
    assert re.search(r"^fail_under = \d+$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)


def test_release_names_its_publishing_repository(tmp_path: Path) -> None:
    project = (ROOT / "pyproject.toml").read_text()
    assert "https://github.com/OWNER/cujit" in project
    (tmp_path / "pyproject.toml").write_text(project)
    command = ["make", "-C", str(tmp_path), "-f", str(ROOT / "Makefile"), "urls", "GITHUB_REPOSITORY=some/body"]
    subprocess.run(command, check=True, capture_output=True)
    assert (tmp_path / "pyproject.toml").read_text() == project.replace("OWNER/cujit", "some/body")
    steps = [step.get("run", "") for step in _steps(ROOT / ".github/workflows/release.yml")]
    assert steps.index("make urls") < next(at for at, step in enumerate(steps) if "-m build" in step)
    others = subprocess.run(["git", "grep", "-l", "OWNER/cujit"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {*others.stdout.split()} <= {"pyproject.toml", "Makefile", "tests/test_workflows.py"}
