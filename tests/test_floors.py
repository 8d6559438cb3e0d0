"""The house: imports go downwards only, nobody inside imports the package root, files stay small."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]
_SOURCES = sorted((_ROOT / "src" / "cujit").rglob("*.py"))
_MAX_LINES = 600


def _id(path: Path) -> str:
    return str(path.relative_to(_ROOT / "src"))


def _imports(path: Path) -> Iterator[tuple[int, str]]:
    """Give the line and the module of every import, those inside functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "." * node.level + (node.module or "")


def test_imports_go_downwards_only() -> None:
    pytest.importorskip("importlinter")
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-c", code, "--no-cache"], cwd=_ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 kept, 0 broken" in done.stdout


@pytest.mark.parametrize("path", _SOURCES, ids=_id)
def test_nobody_inside_imports_the_package_root(path: Path) -> None:
    roots = [line for line, module in _imports(path) if module == "cujit" or module.startswith(".")]
    assert roots == [], f"{path}: import from the module where the name lives"


@pytest.mark.parametrize("path", _SOURCES, ids=_id)
def test_files_are_small(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= _MAX_LINES, f"{path} has {lines} lines; split it by stage or by family"


def test_no_name_is_imported_by_a_star() -> None:
    starred = [
        f"{path}:{node.lineno}"
        for path in _SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names)
    ]
    assert starred == []
