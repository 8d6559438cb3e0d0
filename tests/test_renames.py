"""Names of the map of renames do not come back."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]
_MAP = pytest.importorskip("tomllib").loads((_ROOT / "tools/renames.toml").read_text())


def test_modules_have_their_new_names() -> None:
    paths = {
        old: [_ROOT / "src" / (old.replace(".", "/") + suffix) for suffix in (".py", "/__init__.py")]
        for old in _MAP["modules"]
    }
    assert [old for old, places in paths.items() if any(place.exists() for place in places)] == []


def test_test_files_have_the_new_names_of_modules() -> None:
    found = []
    for old in _MAP["modules"]:
        _, *rooms, name = old.split(".")
        folders = [_ROOT / "tests" / "/".join(rooms[:depth]) for depth in range(len(rooms) + 1)]
        found += [folder / f"test_{name}.py" for folder in folders if (folder / f"test_{name}.py").exists()]
    assert found == []


_BANNED = {"said", "told", "heard", "asked", "whoever", "apart", "beside"}
_SERIALIZED = {"asked_bytes", "AskedLaunch", "LANES_APART", "WARPS_APART", "apart"}
"""Keys of profiles in JSON, and names that C has too: they stay."""


def test_no_identifier_has_a_word_of_the_old_dialect() -> None:
    package = _ROOT / "src/cujit"
    found: set[str] = set()
    for path in package.rglob("*.py"):
        names = {*path.relative_to(package).with_suffix("").parts}
        for node in ast.walk(ast.parse(path.read_text())):
            names |= {getattr(node, field, None) or "" for field in ("id", "name", "attr", "arg", "asname")}
        found |= {f"{path.relative_to(package)}: {name}" for name in names - _SERIALIZED if _words(name) & _BANNED}
    assert sorted(found) == []


def _words(name: str) -> set[str]:
    return {word.lower() for word in re.findall("[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def test_module_names_are_not_old_names_of_the_map() -> None:
    found: list[str] = []
    for place, names in _MAP["names"].items():
        pattern, _, scope = place.partition("#")
        for path in [] if scope else sorted({*(_ROOT / "src/cujit").glob(pattern), *_ROOT.glob(pattern)}):
            defined = {node.name for node in ast.parse(path.read_text()).body if isinstance(node, _DEFINITIONS)}
            found += [f"{pattern}: {name}" for name in defined & names.keys()]
    assert found == []


_DEFINITIONS = (ast.FunctionDef, ast.ClassDef)


_SHARED_WITH_C = {"Block", "Event", "Launch", "Product", "TensorMap"}
"""Names of structures of C that a public class, or a structure of the other C program, has too."""


def test_class_name_is_used_for_one_thing() -> None:
    places: dict[str, list[str]] = {}
    for path in sorted((_ROOT / "src/cujit").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(str(path.relative_to(_ROOT)))
    assert {name for name, files in places.items() if len({*files}) > 1} == _SHARED_WITH_C
