"""The house: imports go downwards only, nobody inside imports the package root, files stay small."""

from __future__ import annotations

import ast
import configparser
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from house import circles, python_files

_ROOT = Path(__file__).parents[1]
_SOURCES = sorted((_ROOT / "src" / "cujit").rglob("*.py"))


def _id(path: Path) -> str:
    return str(path.relative_to(_ROOT / "src"))


def _imports(path: Path) -> Iterator[tuple[int, str, list[str]]]:
    """Give line, module and names of every import, those inside functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "." * node.level + (node.module or ""), [alias.name for alias in node.names]


def test_imports_go_downwards_only() -> None:
    pytest.importorskip("importlinter")
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-c", code, "--no-cache"], cwd=_ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    contracts = (_ROOT / ".importlinter").read_text().count("[importlinter:contract:")
    assert f"{contracts} kept, 0 broken" in done.stdout


def _contracts() -> Iterator[dict[str, list[str]]]:
    """Yield the contracts that are lists of floors."""
    file = configparser.ConfigParser()
    file.read(_ROOT / ".importlinter")
    for section in file.values():
        if section.get("type") == "layers":
            yield {key: value.strip().splitlines() for key, value in section.items()}


def _members(floor: str) -> list[str]:
    return re.split(r"\s*[|:│]\s*", floor)


def test_every_package_says_the_floors_of_all_its_files() -> None:
    packages = {
        path.parent for path in _SOURCES if (path.parent / "__init__.py").exists() and path.name != "__init__.py"
    }
    said = {
        container
        for contract in _contracts()
        if contract.get("exhaustive") == ["true"]
        for container in contract["containers"]
    }
    assert {".".join(path.relative_to(_ROOT / "src").parts) for path in packages} - said == set()


def test_drawing_of_the_house_is_what_the_contract_holds() -> None:
    drawn = (_ROOT / "docs/architecture.md").read_text().partition("## Layers")[2].split("```\n")[1]
    floors = [re.split(r"  +", line)[0] for line in drawn.splitlines()]
    held = next(contract["layers"] for contract in _contracts() if contract["containers"] == ["cujit"])
    assert [_members(floor) for floor in floors] == [_members(floor) for floor in held if floor not in _UNDRAWN]


_UNDRAWN = ("__main__",)


def test_files_have_no_import_cycle_even_for_types() -> None:
    imports = {name: file.imports for name, file in python_files(_ROOT / "src" / "cujit").items()}
    assert len(imports) > 300
    assert circles(imports) == []


def test_back_end_is_known_only_where_its_devices_are_created() -> None:
    files = python_files(_ROOT / "src" / "cujit")
    for place in ("cpu", "cuda"):
        own = f"cujit.devices.{place}"
        know = {name for name, file in files.items() if f"{own}.backend" in file.imports and not name.startswith(own)}
        makers = {"cujit.devices.process", "cujit.devices.schedules", "cujit.emulator.process"}
        assert know <= makers | {"cujit.inspection.needs"}


def test_every_import_names_the_defining_module() -> None:
    imports = [(path, *found) for path in _SOURCES for found in _imports(path)]
    roots = [f"{_id(path)}:{line}" for path, line, module, _ in imports if module == "cujit" or module.startswith(".")]
    starred = [f"{_id(path)}:{line}" for path, line, _, names in imports if "*" in names]
    assert (roots, starred) == ([], []), "of the package's root; by a star"


def test_words_in_names_of_files_are_apart() -> None:
    """``perf_files`` and not ``perffiles``: a part of a name that is two words of the code is written as two."""
    code = "\n".join(path.read_text() for path in _SOURCES)
    words = Counter(word for name in re.findall(r"[A-Za-z]\w+", code) for word in name.split("_") if word.islower())
    known = {word for word, count in words.items() if count >= 40 and len(word) >= 3}
    parts = {part for path in _SOURCES for part in path.stem.split("_") if part and part not in _ONE_WORD}
    glued = {part for part in parts for k in range(3, len(part) - 2) if {part[:k], part[k:]} <= known}
    assert glued == set()


_ONE_WORD = {
    "backend",
    "callgraph",
    "dataflow",
    "dwarf",
    "filesystem",
    "keywords",
    "pipeline",
    "runtime",
    "tensormap",
    "tensormaps",
    "toolset",
    "warpwide",
    "worklist",
}
"""Words of the field, and names of the CPU device and of CUDA that stay as they are."""
