"""Figures of the house: what the code of cujit amounts to. ``make house`` prints them, ``make lint`` holds the faults.

Code lines have neither comments nor docstrings nor blanks; those of C and JavaScript count alike, but what others wrote
and we ship as it is (in a folder ``vendored``) does not. A circle is some files that import each other, imports for
types alone counted. LLVM IR as text are lines of it in Python's strings. The complexity of a function is 1 and one more
for each branch, loop, handler, condition of a comprehension and further part of an ``and`` or ``or``. A function with
more than eight parameters has many; each of them is public, and its keywords stay. A class name is used twice where
public classes of two modules have it, and none of them is made of the other. An import in a function has a comment that
says why it is there: on its line, or above the imports that it stands among. Files are written by
``cujit.artifact.writing``; what writes otherwise says why on its line: ``# in place: why``.
"""

from __future__ import annotations

import ast
import functools
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "LIMITS",
    "Function",
    "PythonFile",
    "c_lines",
    "circles",
    "figures",
    "python_files",
    "script_lines",
    "sentences",
    "worse",
]

ROOT = Path(__file__).parents[1]

_IR = re.compile(
    r"\s*(?:%[\w.$@{}#-]+ = \w+|store |br (?:i1|label)|ret (?:void|i\d+|ptr|<)|(?:tail )?call \w+|define |declare |"
    r"switch i\d+|unreachable$|[\w.$@{}-]+:$)"
)
"""A line of LLVM's assembly, also of the forms in which names are put in."""

_C_SUFFIXES = (".c", ".h")
_SCRIPT_SUFFIXES = (".js",)
_VENDORED = "vendored"
_C_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_SHOWN = 8
_MOST_PARAMETERS = 8
_PERCENTS = (50, 90, 99, 100)

LIMITS = {
    "circles of imports": 0,
    "public names": 66,
    "class names used twice": 6,
    "imports in functions without a reason": 0,
    "files written without a reason": 0,
    "functions with many parameters": 5,
}
"""What ``make lint`` holds: faults, each of which has a name. Sizes are printed as percentiles and not held."""


@dataclass(frozen=True)
class Function:
    """A function with its lines, docstring and blanks too."""

    name: str
    lines: int
    complexity: int
    parameters: int


@dataclass(frozen=True)
class PythonFile:
    """One module: lines, those of code, its own modules that it imports, and lines of LLVM IR in its texts.

    ``classes`` are its public classes with the names of their bases, ``unexplained`` the lines of imports in functions
    without a reason, ``written`` those of files written without one.
    """

    name: str
    lines: int
    code: int
    imports: frozenset[str]
    ir: int
    functions: tuple[Function, ...]
    classes: Mapping[str, frozenset[str]]
    unexplained: tuple[int, ...]
    written: tuple[int, ...]


@functools.cache
def python_files(package: Path) -> dict[str, PythonFile]:
    """Read every module of a package, by its whole name."""
    paths = {_module_name(package, path): path for path in sorted(package.rglob("*.py"))}
    return {name: _read(name, path.read_text(), paths) for name, path in paths.items()}


def _module_name(package: Path, path: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _read(name: str, text: str, names: Mapping[str, Path]) -> PythonFile:
    nodes = list(ast.walk(ast.parse(text)))
    said = _said_lines(nodes)
    return PythonFile(
        name,
        len(text.splitlines()),
        len(_code_lines(text) - said),
        frozenset(_imports(nodes, names) - {name}),
        sum(_ir_lines(nodes, said)),
        tuple(_functions(nodes, name)),
        dict(_classes(nodes)),
        tuple(sorted(_unexplained(nodes, text.splitlines()))),
        () if name.endswith(_WRITER) else tuple(sorted(_written(nodes, text.splitlines()))),
    )


def _said_lines(nodes: Sequence[ast.AST]) -> set[int]:
    """Find the lines of docstrings, those behind values too."""
    return {
        line
        for node in nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


_NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def _code_lines(text: str) -> set[int]:
    """Find the lines that a token of code is on; of texts over several lines, the ones that are not blank."""
    lines = text.splitlines()
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    spans = (range(t.start[0], t.end[0] + 1) for t in tokens if t.type not in _NO_CODE)
    return {line for span in spans for line in span if lines[line - 1].strip()}


def _imports(nodes: Sequence[ast.AST], names: Mapping[str, Path]) -> set[str]:
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in names else node.module for name in whole}
    return found & names.keys()


def _ir_lines(nodes: Sequence[ast.AST], said: set[int]) -> Iterator[int]:
    """Count lines of IR in each text: of several lines any that looks so, of f-strings of one line that one."""
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.lineno not in said:
            if "\n" in node.value:
                yield sum(_IR.match(line) is not None for line in node.value.splitlines())
        elif isinstance(node, ast.JoinedStr):
            flat = "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
            if "\n" not in flat:
                yield int(_IR.match(flat) is not None)


def _functions(nodes: Sequence[ast.AST], module: str) -> Iterator[Function]:
    for node in nodes:
        if isinstance(node, _FUNCTIONS):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            yield Function(f"{module}.{node.name}", lines, sum(map(_branches, ast.walk(node))), _parameters(node))


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the parameters that have a name; ``self`` and ``cls`` are none."""
    taken = function.args
    names = [each.arg for each in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


_BRANCHES = (
    *_FUNCTIONS,
    ast.Lambda,
    ast.If,
    ast.IfExp,
    ast.For,
    ast.While,
    ast.ExceptHandler,
    ast.Assert,
    ast.match_case,
)


def _branches(node: ast.AST) -> int:
    if isinstance(node, ast.comprehension):
        return 1 + len(node.ifs)
    return len(node.values) - 1 if isinstance(node, ast.BoolOp) else int(isinstance(node, _BRANCHES))


def _classes(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, frozenset[str]]]:
    for node in nodes:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            bases = frozenset(ast.unparse(base).rpartition(".")[2] for base in node.bases)
            if "Shared" not in bases:  # a structure of C has the name that it has there
                yield node.name, bases


def _unexplained(nodes: Sequence[ast.AST], lines: Sequence[str]) -> set[int]:
    """Find the imports in functions that no comment says the reason of."""
    functions = [node for node in nodes if isinstance(node, _FUNCTIONS)]
    inside = {line for f in functions for line in range(f.lineno, (f.end_lineno or f.lineno) + 1)}
    imports = {n.lineno: n for n in nodes if isinstance(n, (ast.Import, ast.ImportFrom)) and n.lineno in inside}
    found: set[int] = set()
    for number, node in sorted(imports.items()):
        above = number - 1
        while lines[above - 1].lstrip().startswith(("import ", "from ")):
            above -= 1
        is_said = lines[above - 1].lstrip().startswith("#")
        if not is_said and "#" not in lines[number - 1] + lines[(node.end_lineno or number) - 1]:
            found.add(number)
    return found


_WRITER = ".artifact.writing"
_WRITES = frozenset({"write_text", "write_bytes", "savefig", "rename", "renames", "mkstemp", "mkdtemp"})
_WRITING_MODULES = {
    "os": {"replace", "link", "symlink", "truncate", "mkfifo"},
    "shutil": {"copy", "copy2", "copyfile", "copytree", "move"},
    "tempfile": {"TemporaryDirectory", "NamedTemporaryFile"},
    "np": {"save", "savez", "savez_compressed", "savetxt"},
}
_WRITING_FLAGS = ("O_CREAT", "O_TRUNC", "O_APPEND", "O_WRONLY", "O_RDWR")
_IN_PLACE = re.compile(r"# in place: \w+")


def _written(nodes: Sequence[ast.AST], lines: Sequence[str]) -> set[int]:
    """Find the lines that open a file for writing, or move one, past the function that writes them whole."""
    found = {node.lineno for node in nodes if isinstance(node, ast.Call) and _writes(node)}
    found |= {n.lineno for n in nodes if isinstance(n, ast.Attribute) and n.attr in _WRITING_FLAGS}
    return {line for line in found if not _IN_PLACE.search(lines[line - 1])}


def _writes(call: ast.Call) -> bool:
    called = call.func
    if isinstance(called, ast.Name):
        return called.id == "open" and _has_mode(call.args[1:2], call)
    if not isinstance(called, ast.Attribute):
        return False
    owner = called.value.id if isinstance(called.value, ast.Name) else ""
    if called.attr in _WRITING_MODULES.get(owner, ()) or called.attr in _WRITES:
        return True
    if called.attr == "touch" and not call.args:
        return True
    if (
        called.attr == "replace" and len(call.args) == 1 and not isinstance(call.args[0], ast.Starred)
    ):  # not that of text
        return True
    is_function = owner in ("io", "gzip", "bz2", "lzma", "zipfile", "tarfile", "codecs")
    return called.attr in ("open", "ZipFile") and _has_mode(call.args[is_function : is_function + 1], call)


def _has_mode(places: Sequence[ast.expr], call: ast.Call) -> bool:
    """Tell whether the mode of a call that opens a file, at its place or by its name, is one of writing."""
    modes = [*places, *(each.value for each in call.keywords if each.arg == "mode")]
    texts = [mode.value for mode in modes if isinstance(mode, ast.Constant) and isinstance(mode.value, str)]
    return any(re.fullmatch(r"[rwxabt+:gz2]{1,4}", text) and set(text) & set("wxa+") for text in texts)


def c_lines(package: Path, suffixes: Sequence[str] = _C_SUFFIXES) -> int:
    """Count lines of C, or of a language with the same comments, that are neither comment nor blank."""
    paths = (path for path in package.rglob("*") if path.suffix in suffixes)
    texts = (path.read_text() for path in paths if _VENDORED not in path.relative_to(package).parts)
    return sum(bool(line.strip()) for text in texts for line in _C_COMMENT.sub("", text).splitlines())


def script_lines(package: Path) -> int:
    """Count lines of JavaScript likewise."""
    return c_lines(package, _SCRIPT_SUFFIXES)


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


def worse(package: Path, limits: Mapping[str, int] = LIMITS) -> list[str]:
    """Say which figures of a package are past their limits."""
    counts = _counts(package, list(python_files(package).values()))
    return [f"{name}: {counts[name]}, and {most} at most" for name, most in limits.items() if counts[name] > most]


def _part(title: str, package: Path, files: Sequence[PythonFile]) -> str:
    rows: list[tuple[str, object]] = list(_counts(package, files).items())
    sizes = [len(circle) for circle in circles({file.name: file.imports for file in files})]
    functions = [function for file in files for function in file.functions]
    longest = sorted(functions, key=lambda f: -f.lines)[:_SHOWN]
    worst = sorted(functions, key=lambda f: -f.complexity)[:_SHOWN]
    rows += [
        ("lines of a file", _percentiles([file.lines for file in files])),
        ("lines of a function", _percentiles([f.lines for f in functions])),
        ("complexity of a function", _percentiles([f.complexity for f in functions])),
    ]
    for what, shown in (
        ("circles, files of each", [str(size) for size in sizes]),
        ("longest functions", [f"{f.lines} {f.name}" for f in longest]),
        ("most complex functions", [f"{f.complexity} {f.name}" for f in worst]),
        ("many parameters", [f"{f.parameters} {f.name}" for f in _crowded(files)]),
        ("class names used twice", _twice(files)),
        ("imports without a reason", [f"{file.name}:{line}" for file in files for line in file.unexplained]),
        ("written without a reason", [f"{file.name}:{line}" for file in files for line in file.written]),
    ):
        rows += [(what if k == 0 else "", text) for k, text in enumerate(shown)]
    return "\n".join([title, *(f"  {name:37} {value}" for name, value in rows)])


def _percentiles(sizes: Sequence[int]) -> str:
    """Write the median of some sizes, their 90th and 99th percentile, and the largest."""
    ordered = sorted(sizes) or [0]
    return " ".join(str(ordered[min(len(ordered) * percent // 100, len(ordered) - 1)]) for percent in _PERCENTS)


def _counts(package: Path, files: Sequence[PythonFile]) -> dict[str, int]:
    own = {file.name: file.imports for file in files}
    return {
        "files": len(files),
        "lines": sum(file.lines for file in files),
        "code lines, C counted": sum(file.code for file in files) + c_lines(package) + script_lines(package),
        "of them C": c_lines(package),
        "of them JavaScript": script_lines(package),
        "circles of imports": len(circles(own)),
        "modules at the root": len(list(package.glob("*.py"))),
        "public names": _public_names(package / "__init__.pyi"),
        "class names used twice": len(_twice(files)),
        "imports in functions without a reason": sum(len(file.unexplained) for file in files),
        "files written without a reason": sum(len(file.written) for file in files),
        "functions with many parameters": len(_crowded(files)),
        "LLVM IR as text, lines": sum(file.ir for file in files),
    }


def _crowded(files: Sequence[PythonFile]) -> list[Function]:
    return [f for file in files for f in file.functions if f.parameters > _MOST_PARAMETERS]


def _public_names(stub: Path) -> int:
    tree = ast.parse(stub.read_text()) if stub.exists() else ast.Module([], [])
    return sum(len(node.names) for node in tree.body if isinstance(node, ast.ImportFrom))


def _twice(files: Sequence[PythonFile]) -> list[str]:
    """List the names of classes that two modules have for things of which neither is made of the other."""
    homes: defaultdict[str, list[str]] = defaultdict(list)
    for file in files:
        for name, bases in file.classes.items():
            if name not in bases:
                homes[name].append(file.name)
    return [f"{name}: {', '.join(modules)}" for name, modules in sorted(homes.items()) if len(modules) > 1]


# -- tests ------------------------------------------------------------------------------------------------


def sentences(tests: Path, package: Path) -> dict[str, int]:
    """Count in each file of tests the errors of a package that are compared by their sentences, not by their codes."""
    errors = _errors(package)
    found = {path.relative_to(tests).as_posix(): _by_sentence(path.read_text(), errors) for path in tests.rglob("*.py")}
    return {name: count for name, count in sorted(found.items()) if count}


def _errors(package: Path) -> set[str]:
    """List the classes that are made of ``CujitError``, those in functions and of one module too."""
    bases: dict[str, set[str]] = {}
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                bases.setdefault(node.name, set()).update(ast.unparse(base).rpartition(".")[2] for base in node.bases)
    errors = {"CujitError"}
    while more := {name for name, of in bases.items() if of & errors} - errors:
        errors |= more
    return errors


def _by_sentence(text: str, errors: Set[str]) -> int:
    return sum(
        bool(errors & {*re.findall(r"\w+", ast.unparse(node.args[0]))})
        for node in (ast.walk(ast.parse(text)) if "match=" in text else ())
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.raises" and node.args
        if any(word.arg == "match" for word in node.keywords)
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        sys.exit("\n".join(worse(ROOT / "src/cujit")) or None)
    print(figures(ROOT / "src/cujit"))
