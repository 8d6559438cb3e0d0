"""Apply the map of renames, and prove that nothing but names changed.

``tools/renames.toml`` is the map: modules, names, and words that no identifier has. ``tools/renames.py apply`` renames
what is not renamed yet. ``tools/renames.py prove COMMIT`` compares the syntax tree of each file with that of a commit.
The trees are equal but for identifiers and the order of imports, and within a function no two names became one.

A row of ``[names]`` is a file, or some by a pattern, below ``src/cujit`` or the root; ``file#Class.method`` is one
scope. ``old`` stands for a name, ``.old`` for an attribute. A name of a module is renamed in the files that import it.
"""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import parso
import tomllib

ROOT = Path(__file__).parents[1]
MAP = ROOT / "tools/renames.toml"
FOLDERS = ("src", "tests", "tools", "benchmarks", "fuzz", "examples")


def read_map() -> dict[str, Any]:
    """Read the map of renames."""
    return tomllib.loads(MAP.read_text())


def python_paths() -> list[Path]:
    """List the Python files of the repository."""
    return [
        path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py*")) if path.suffix in (".py", ".pyi")
    ]


class Renamer:
    """Files as trees, with the names that change in them."""

    def __init__(self) -> None:
        self.changes: dict[Path, dict[tuple[int, int], tuple[str, str]]] = defaultdict(dict)
        self._trees: dict[Path, Any] = {}
        self._texts = {path: path.read_text() for path in python_paths()}

    def tree(self, path: Path) -> Any:
        """Parse a file once."""
        if path not in self._trees:
            self._trees[path] = _parse(self._texts[path])
        return self._trees[path]

    def rename(self, place: str, old: str, new: str) -> None:
        """Rename in the files of a row, and a name of a module in each importer."""
        pattern, _, scope = place.partition("#")
        paths = sorted({*(ROOT / "src/cujit").glob(pattern), *ROOT.glob(pattern)})
        assert paths, place
        for path in paths:
            count = self._in_file(path, old, new, scope)
            if len(paths) == 1 and not count:
                continue
            if not scope and not old.startswith(".") and _is_global(self.tree(path), old):
                self._importers(_module(path), old, new, {path})

    def _in_file(self, path: Path, old: str, new: str, scope: str = "", owner: str = "") -> int:
        count, word = 0, old.lstrip(".")
        if not re.search(rf"\b{word}\b", self._texts[path]):
            return 0
        for leaf in _leaves(self.tree(path)):
            if leaf.type != "name" or leaf.value != word:
                continue
            is_attribute = _before(leaf) == "."
            if is_attribute != (old.startswith(".") or bool(owner)) or not _scope_of(leaf).startswith(scope):
                continue
            if scope and not (_scope_of(leaf) + ".").startswith(scope + "."):
                continue
            if owner and _owner(leaf) != owner:
                continue
            self.changes[path].setdefault(leaf.start_pos, (word, new))
            count += 1
        return count

    def _importers(self, module: str, old: str, new: str, seen: set[Path]) -> None:
        parent, _, last = module.rpartition(".")
        for path, text in self._texts.items():
            if path in seen or not re.search(rf"\b{old}\b", text) or last not in text:
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ImportFrom) and node.module == module:
                    for alias in node.names:
                        if alias.name == old and path not in seen:
                            seen.add(path)
                            if alias.asname not in (None, old):
                                self._alias(path, node, old, new)
                            else:
                                self._in_file(path, old, new)
                                self._importers(_module(path), old, new, seen)
                elif isinstance(node, ast.ImportFrom) and node.module == parent:
                    for alias in node.names:
                        if alias.name == last:
                            self._in_file(path, old, new, owner=alias.asname or last)
                elif isinstance(node, ast.Import):
                    for alias in node.names:
                        if alias.name == module:
                            self._in_file(path, old, new, owner=alias.asname or last)

    def _alias(self, path: Path, node: ast.ImportFrom, old: str, new: str) -> None:
        for leaf in _leaves(self.tree(path)):
            if leaf.type == "name" and leaf.value == old and node.lineno <= leaf.start_pos[0] <= (node.end_lineno or 0):
                self.changes[path].setdefault(leaf.start_pos, (old, new))

    def write(self) -> None:
        """Write the files, docstrings that quote the names too."""
        for path, changes in self.changes.items():
            lines = self._texts[path].splitlines(keepends=True)
            for (line, column), (old, new) in sorted(changes.items(), reverse=True):
                assert lines[line - 1][column : column + len(old)] == old
                lines[line - 1] = lines[line - 1][:column] + new + lines[line - 1][column + len(old) :]
            text = "".join(lines)
            for old, new in changes.values():
                text = text.replace(f"``{old}``", f"``{new}``")
            path.write_text(text)


_parse: Any = parso.parse


def _leaves(tree: Any) -> Iterator[Any]:
    leaf = tree.get_first_leaf()
    while leaf is not None:
        yield leaf
        leaf = leaf.get_next_leaf()


def _before(leaf: Any) -> str:
    previous = leaf.get_previous_leaf()
    return "" if previous is None else previous.value


def _owner(leaf: Any) -> str:
    dot = leaf.get_previous_leaf()
    name = None if dot is None else dot.get_previous_leaf()
    return "" if name is None or _before(name) == "." else name.value


def _scope_of(leaf: Any) -> str:
    names: list[str] = []
    node = leaf.parent
    while node is not None:
        if node.type in ("funcdef", "classdef"):
            names.append(node.name.value)
        node = node.parent
    return ".".join(reversed(names))


def _is_global(tree: Any, name: str) -> bool:
    for leaf in _leaves(tree):
        if leaf.type == "name" and leaf.value == name and leaf.is_definition():
            scope = _scope_of(leaf)
            if scope in ("", name):
                return True
    return False


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    parts = parts[1:] if parts[0] in FOLDERS else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def move_module(old: str, new: str) -> None:
    """Move a module, or a package, and say its new name wherever files name the old one."""
    for suffix in ("", ".py"):
        source = ROOT / "src" / (old.replace(".", "/") + suffix)
        if source.exists():
            target = ROOT / "src" / (new.replace(".", "/") + suffix)
            shutil.rmtree(target, ignore_errors=True)  # compiled files of an earlier checkout
            _git("mv", str(source), str(target))
    parent, _, last = old.rpartition(".")
    path, new_path = old.removeprefix("cujit.").replace(".", "/"), new.removeprefix("cujit.").replace(".", "/")
    new_parent, _, new_last = new.rpartition(".")
    for name in _git("ls-files").split("\n"):
        file = ROOT / name
        if not name or not file.is_file() or file == MAP or name == "CHANGELOG.md" or file.suffix in (".bc", ".so"):
            continue
        try:
            text = file.read_text()
        except UnicodeDecodeError:
            continue
        changed = re.sub(rf"(?<![\w.]){re.escape(old)}(?!\w)", new, text)
        changed = re.sub(rf"(?<!\w){re.escape(path)}(?=\.py\b|/|`)", new_path, changed)
        if file.suffix in (".py", ".pyi") and new_parent == parent:
            changed = _module_alias(changed, parent, last, new_last)
        if changed != text:
            file.write_text(changed)


def _module_alias(text: str, parent: str, last: str, new: str) -> str:
    """Rename a module that is imported by ``from parent import last``, where it is used too."""
    if (
        not re.search(rf"from {re.escape(parent)} import [^\n]*\b{last}\b", text)
        and f"from {parent} import (" not in text
    ):
        return text
    found = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.ImportFrom) and n.module == parent]
    aliases = [alias for node in found for alias in node.names if alias.name == last]
    if not aliases:
        return text
    lines = text.splitlines(keepends=True)
    for leaf in reversed([*_leaves(_parse(text))]):
        line, column = leaf.start_pos
        if leaf.type == "name" and leaf.value == last and _before(leaf) != ".":
            is_import = any(node.lineno <= line <= (node.end_lineno or 0) for node in found)
            if is_import or aliases[0].asname is None:
                lines[line - 1] = lines[line - 1][:column] + new + lines[line - 1][column + len(last) :]
    return "".join(lines)


def apply() -> None:
    """Rename what the map has and the code does not have yet."""
    rows = read_map()
    for old, new in rows.get("modules", {}).items():
        if any((ROOT / "src" / (str(old).replace(".", "/") + suffix)).exists() for suffix in ("", ".py")):
            move_module(old, str(new))
    renamer = Renamer()
    for place, names in rows["names"].items():
        for old, new in names.items():
            renamer.rename(place, old, new)
    renamer.write()


_FIELDS = ("id", "name", "attr", "arg", "asname", "module")


def prove(commit: str) -> list[str]:
    """List where the syntax trees differ from those of a commit in more than names."""
    found: list[str] = []
    for row in _git("diff", "--name-status", "-M40", commit, "--", "*.py", "*.pyi").splitlines():
        status, *names = row.split("\t")
        if status[0] in "AD":
            found.append(f"{row}: not compared")
        else:
            old = ast.parse(_git("show", f"{commit}:{names[0]}"))
            found += _differences(old, ast.parse((ROOT / names[-1]).read_text()), names[-1])
    return found


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def _differences(old: ast.AST, new: ast.AST, path: str) -> Iterator[str]:
    place = f"{path}:{getattr(new, 'lineno', 0)}"
    if type(old) is not type(new):
        yield f"{place}: {type(old).__name__} became {type(new).__name__}"
        return
    if isinstance(new, ast.FunctionDef):
        pairs = {*zip(_names(old), _names(new), strict=False)}
        new_names = [name for _, name in pairs]
        yield from (f"{place}: two names became {name}" for name in set(new_names) if new_names.count(name) > 1)
    for field in old._fields:
        parts, others = _parts(old, field), _parts(new, field)
        if len(parts) != len(others):
            yield f"{place}: {field} has {len(parts)} parts, and now {len(others)}"
        for one, other in zip(parts, others, strict=False):
            if isinstance(one, ast.AST) and isinstance(other, ast.AST):
                yield from _differences(one, other, path)
            elif one != other and field not in _FIELDS and not (isinstance(one, str) and isinstance(other, str)):
                yield f"{place}: {one!r} became {other!r}"


def _parts(node: ast.AST, field: str) -> list[object]:
    value = getattr(node, field, None)
    parts = value if isinstance(value, list) else [value]
    return [part for part in parts if not isinstance(part, (ast.Import, ast.ImportFrom))]


def _names(tree: ast.AST) -> list[str]:
    found = (node for node in ast.walk(tree) if isinstance(node, (ast.Name, ast.arg)))
    return [node.id if isinstance(node, ast.Name) else node.arg for node in found]


if __name__ == "__main__":
    if sys.argv[1:2] == ["prove"]:
        found = prove(sys.argv[2])
        sys.exit("\n".join(found) if found else 0)
    apply()
