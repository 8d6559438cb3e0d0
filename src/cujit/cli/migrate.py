"""``cujit migrate``: command lines in scripts, and imports in Python, by the names of this release."""

from __future__ import annotations

import ast
import difflib
import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from cujit.artifact.writing import write_file
from cujit.cli.help import RENAMED_COMMANDS, RENAMED_OPTIONS, Command, with_new_names

_COMMAND_LINE = re.compile(r"\bcujit(?P<words>(?:[ \t]+(?:\\\n[ \t]*)?(?!\\\n)[^\s|;&`]+|[ \t]*\\\n)+)")
"""One command with its options: it ends with its line, unless that ends with a backslash."""

_WORD = re.compile(r"[^\s|;&`\\](?:[^\s|;&`]*[^\s|;&`\\])?")
_COUNTED = re.compile(r"--(?:print|out)(?:=?\d|$)")

MOVED_NAMES = {"Globals": "cujit.devices.globals"}
"""Names that ``cujit`` had in the last release, by the modules that have them now."""

RENAMED_NAMES: Mapping[str, str] = vars(importlib.import_module("cujit"))["_RENAMED"]
"""Names that ``cujit`` had in the last release, with their new names."""

_Edit = tuple[int, int, str]
"""Characters from the first number up to the second become a text."""


def migrated(text: str, *, is_python: bool = False) -> str:
    """Return the text with the new names in its command lines, and in the imports and lists of words of Python."""
    edits = [edit for match in _COMMAND_LINE.finditer(text) for edit in _edits_of_line(match)]
    tree = _tree(text) if is_python else None
    if tree is not None:
        edits += _edits_of_tree(tree, text)
    for begin, end, new in sorted(edits, reverse=True):
        text = text[:begin] + new + text[end:]
    return text


def _edits_of_line(match: re.Match[str]) -> Iterator[_Edit]:
    words = list(_WORD.finditer(match.string, *match.span("words")))
    for word, new in zip(words, _renamed([word[0] for word in words]), strict=True):
        if new != word[0]:
            yield (*word.span(), new)


def _renamed(words: Sequence[str]) -> list[str]:
    """Return the words after ``cujit``, one for each, with the new names."""
    name = RENAMED_COMMANDS.get(words[0], words[0])
    path, rest = [name], list(words[1:])
    if not any(known.split()[0] == name for known in RENAMED_OPTIONS):
        return [name, *rest]
    command = importlib.import_module(f"cujit.cli.{name}").command
    while isinstance(command, click.Group) and rest:
        path.append(rest.pop(0))
        command = command.get_command(click.Context(command), path[-1])
    if not isinstance(command, click.Command) or isinstance(command, click.Group):
        return [*path, *rest]
    return [*path, *with_new_names(command, RENAMED_OPTIONS.get(" ".join(path), {}), rest)]


def _tree(text: str) -> ast.Module | None:
    """Parse Python, or return None if the text is not Python."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, UnicodeError):
        return None


def _edits_of_tree(tree: ast.Module, text: str) -> Iterator[_Edit]:
    starts = [0, *(end.end() for end in re.finditer("\n", text))]

    def span(node: ast.expr | ast.stmt) -> tuple[int, int]:
        def place(line: int, column: int) -> int:
            begin = starts[line - 1]
            return begin + len(text[begin:].encode()[:column].decode())

        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return place(node.lineno, node.col_offset), place(node.end_lineno, node.end_col_offset)

    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and _moved(node):
            begin, end = span(node)
            if text[begin:end].isprintable():  # on one line, and with no comment of its own
                yield begin, end, _with_moved_names(node)
        elif isinstance(node, ast.Attribute) and _is_cujit(node.value) and node.attr in RENAMED_NAMES:
            _, end = span(node)
            if text[end - len(node.attr) : end] == node.attr:
                yield end - len(node.attr), end, RENAMED_NAMES[node.attr]
        elif isinstance(node, ast.List | ast.Tuple):
            words = [element.value if _is_text(element) else "" for element in node.elts]  # type: ignore[attr-defined]
            start = next((k + 1 for k, word in enumerate(words[:3]) if word == "cujit"), None)
            if start is None or not words[start:]:
                continue
            for element, old, new in zip(node.elts[start:], words[start:], _renamed(words[start:]), strict=True):
                begin, end = span(element)
                if old != new and text[begin + 1 : end - 1] == old:
                    yield begin + 1, end - 1, new


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_cujit(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "cujit"


def _moved(node: ast.ImportFrom) -> list[ast.alias]:
    is_cujit = node.module == "cujit" and not node.level
    return [alias for alias in node.names if is_cujit and alias.name in {*MOVED_NAMES, *RENAMED_NAMES}]


def _with_moved_names(node: ast.ImportFrom) -> str:
    """Return an import statement with the moved names imported from their new modules."""
    moved = [alias for alias in _moved(node) if alias.name in MOVED_NAMES]
    kept = [
        ast.alias(RENAMED_NAMES[alias.name], alias.asname or alias.name) if alias.name in RENAMED_NAMES else alias
        for alias in node.names
        if alias not in moved
    ]
    lines = [ast.ImportFrom("cujit", kept, 0)] if kept else []
    lines += [ast.ImportFrom(MOVED_NAMES[alias.name], [alias], 0) for alias in moved]
    return "; ".join(ast.unparse(line) for line in lines)


def unclear_lines(text: str, *, is_python: bool = False) -> Iterator[tuple[int, str, str]]:
    """Yield the number, the reason and the text of each line that people have to check."""
    for match in _COMMAND_LINE.finditer(text):
        words = [word[0] for word in _WORD.finditer(match["words"])]
        if words[:1] == ["run"] and any(map(_COUNTED.match, words)):
            shown = " ".join(match[0].split())
            yield text.count("\n", 0, match.start()) + 1, "--print and --out count from 1 since 0.3", shown
    tree = _tree(text) if is_python else None
    if tree is None:
        return
    lines = text.split("\n")
    for number, name in sorted(_missing_names(tree)):
        yield number, f"{name} is not in this release", lines[number - 1].strip()


def _missing_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the dotted name of each missing import from cujit and each missing ``cujit.NAME``."""
    imports_cujit = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports_cujit |= any(alias.name == "cujit" and not alias.asname for alias in node.names)
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names if alias.name != "*"]
        else:
            continue
        yield from ((node.lineno, name) for name in names if name.startswith("cujit.") and not _is_found(name))
    for node in ast.walk(tree) if imports_cujit else ():
        if isinstance(node, ast.Attribute) and _is_cujit(node.value):
            name = f"cujit.{node.attr}"
            if node.attr in MOVED_NAMES:
                yield node.lineno, name


def _is_found(name: str) -> bool:
    """Whether a module, or a name in one, exists; a module that needs a missing package counts as found."""
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as e:
        if not f"{name}.".startswith(f"{e.name}."):
            return True
        module, _, attribute = name.rpartition(".")
        try:
            return hasattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as missing:
            return not f"{module}.".startswith(f"{missing.name}.")
        except ImportError:
            return True
    except ImportError:
        return True
    return True


@click.command("migrate", cls=Command)
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--write", is_flag=True, help="Write the changes to the files instead of printing them.")
def command(files: tuple[Path, ...], write: bool) -> None:
    """Update scripts and Python files written for cujit 0.2.

    cujit prints the changes to FILES as a diff. In shell scripts, Makefiles, and CI configurations, cujit rewrites
    command lines. In Python files (.py), cujit rewrites imports and argument lists. cujit also lists the lines that you
    have to check yourself.
    """
    for file in files:
        is_python = file.suffix == ".py"
        old = file.read_bytes().decode(errors="surrogateescape")  # other bytes, and ends of lines, stay as they are
        new = migrated(old, is_python=is_python)
        if new != old and write:
            write_file(file, new.encode(errors="surrogateescape"))
            click.echo(f"{file}: rewritten")
        elif new != old:
            before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
            shown = "".join(difflib.unified_diff(before, after, str(file), str(file)))
            click.echo(shown.encode(errors="surrogateescape"), nl=False)
        for line, why, text in unclear_lines(new, is_python=is_python):
            click.echo(f"{file}:{line}: check yourself: {why}: {text}".encode(errors="surrogateescape"))
