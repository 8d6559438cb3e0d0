"""Figures of the house: what the code of cujit amounts to, printed by ``make house``.

Code lines have neither comments nor docstrings nor blanks. A circle is some files that import each other, imports for
types alone counted. LLVM IR as text are lines of it in Python's strings.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PythonFile", "c_lines", "circles", "figures", "python_files"]

ROOT = Path(__file__).parents[1]

_IR = re.compile(
    r"\s*(?:%[\w.$@{}#-]+ = \w+|store |br (?:i1|label)|ret (?:void|i\d+|ptr|<)|(?:tail )?call \w+|define |declare |"
    r"switch i\d+|unreachable$|[\w.$@{}-]+:$)"
)
"""A line of LLVM's assembly, also of the forms in which names are put in."""

_C_SUFFIXES = (".c", ".h")
_C_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_LONGEST = 8


@dataclass(frozen=True)
class LongFunction:
    """A function with its lines, docstring and blanks too."""

    lines: int
    name: str


@dataclass(frozen=True)
class PythonFile:
    """One module: lines, those of code, its own modules that it imports, and lines of LLVM IR in its texts."""

    name: str
    lines: int
    code: int
    imports: frozenset[str]
    ir: int
    functions: tuple[LongFunction, ...]


def python_files(package: Path) -> dict[str, PythonFile]:
    """Read every module of a package, by its whole name."""
    paths = {_module_name(package, path): path for path in sorted(package.rglob("*.py"))}
    return {name: _read(name, path.read_text(), paths) for name, path in paths.items()}


def _module_name(package: Path, path: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _read(name: str, text: str, names: Mapping[str, Path]) -> PythonFile:
    tree = ast.parse(text)
    said = _said_lines(tree)
    return PythonFile(
        name,
        len(text.splitlines()),
        len(_code_lines(text) - said),
        frozenset(_imports(tree, names) - {name}),
        sum(_ir_lines(tree, said)),
        tuple(_functions(tree, name)),
    )


def _said_lines(tree: ast.AST) -> set[int]:
    """Find the lines of docstrings, those behind values too."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


_NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def _code_lines(text: str) -> set[int]:
    """Find the lines that a token of code is on; of texts over several lines, those that are not blank."""
    lines = text.splitlines()
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    spans = (range(t.start[0], t.end[0] + 1) for t in tokens if t.type not in _NO_CODE)
    return {line for span in spans for line in span if lines[line - 1].strip()}


def _imports(tree: ast.AST, names: Mapping[str, Path]) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in names else node.module for name in whole}
    return found & names.keys()


def _ir_lines(tree: ast.AST, said: set[int]) -> Iterator[int]:
    """Count lines of IR in each text: of several lines any that looks so, of f-strings of one line that one."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.lineno not in said:
            if "\n" in node.value:
                yield sum(_IR.match(line) is not None for line in node.value.splitlines())
        elif isinstance(node, ast.JoinedStr):
            flat = "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
            if "\n" not in flat:
                yield int(_IR.match(flat) is not None)


def _functions(tree: ast.AST, module: str) -> Iterator[LongFunction]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield LongFunction((node.end_lineno or node.lineno) - node.lineno + 1, f"{module}.{node.name}")


def c_lines(package: Path) -> int:
    """Count lines of C that are neither comment nor blank."""
    texts = (path.read_text() for path in package.rglob("*") if path.suffix in _C_SUFFIXES)
    return sum(bool(line.strip()) for text in texts for line in _C_COMMENT.sub("", text).splitlines())


def circles(imports: Mapping[str, frozenset[str]]) -> list[tuple[str, ...]]:
    """Find the files that reach each other by imports, the largest circle first."""
    reached = {name: _reached(name, imports) for name in imports}
    found = {tuple(sorted(n for n in reached[name] if name in reached[n])) for name in imports if name in reached[name]}
    return sorted(found, key=lambda circle: (-len(circle), circle))


def _reached(name: str, imports: Mapping[str, frozenset[str]]) -> set[str]:
    """Find what a file imports, and what that does; itself if it comes back."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        new = {n for n in imports[waiting.pop()] if n in imports} - found
        found |= new
        waiting += new
    return found


# -- the page ---------------------------------------------------------------------------------------------


def figures(package: Path) -> str:
    """Write the figures of a package, and those of its ``devices/cpu`` alone."""
    files = python_files(package)
    parts = [_part(package.name, package, list(files.values()))]
    cpu = f"{package.name}.devices.cpu"
    of_cpu = [file for name, file in files.items() if f"{name}.".startswith(f"{cpu}.")]
    if of_cpu:
        parts.append(_part("devices/cpu", package / "devices/cpu", of_cpu))
    return "\n\n".join(parts)


def _part(title: str, package: Path, files: Sequence[PythonFile]) -> str:
    own = {file.name: file.imports for file in files}
    sizes = [len(circle) for circle in circles(own)]
    functions = sorted((f for file in files for f in file.functions), key=lambda f: -f.lines)[:_LONGEST]
    rows = [
        ("files", len(files)),
        ("lines", sum(file.lines for file in files)),
        ("code lines, C counted", sum(file.code for file in files) + c_lines(package)),
        ("of them C", c_lines(package)),
        ("circles of imports", ", ".join(map(str, sizes)) or "none"),
        ("LLVM IR as text, lines", sum(file.ir for file in files)),
        *(("longest functions" if k == 0 else "", f"{f.lines} {f.name}") for k, f in enumerate(functions)),
    ]
    return "\n".join([title, *(f"  {name:23} {value}" for name, value in rows)])


if __name__ == "__main__":
    print(figures(ROOT / "src/cujit"))
