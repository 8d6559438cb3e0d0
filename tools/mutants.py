"""Sample mutants of areas of the source, and tell which of them their tests let live: ``make mutants AREA=cache N=20``.

A mutant is the source with one small change: a comparison, a boundary, a condition, an operator, a result, a number,
or a statement that is left out. It is made in a copy of the tree, where the tests that guard the area
(``tests/README.md``) run until one fails, those first that have the words around the change. A test that fails without
the change as well is left out, and so is one that does not end without it. What lives is a gap in the tests, or means
the same as before: a reviewer says which.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import functools
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Mutant", "Survey", "guards_of", "main", "mutants_of", "rooms_of", "shown"]

ROOT = Path(__file__).parents[1]
_FRAMEWORKS = ".venv-frameworks/bin/python"
_IN_FRAMEWORKS = frozenset({"jax", "torch"})
"""The tests of these areas need what ``make frameworks`` installs; elsewhere pytest leaves them out."""
_LIMIT = "CUJIT_MUTANTS_LIMIT"
_TEST = "CUJIT_MUTANTS_TEST"
_NEAREST = (4, 16)
"""Most mutants die by one of the nearest files: these files go first, in a process that does not collect all others."""

_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr,
}  # fmt: skip
"""What stands for each operator: the nearest one, so that comparisons lose or gain their boundary."""


@dataclass(frozen=True)
class Mutant:
    """A change of a file: bytes from ``begin`` to ``end`` are ``after`` in it."""

    path: Path
    source: bytes
    line: int
    begin: int
    end: int
    after: str

    def text(self) -> bytes:
        """Give the changed file."""
        return self.source[: self.begin] + self.after.encode() + self.source[self.end :]


# -- mutants of a file ------------------------------------------------------------------------------------


def mutants_of(path: Path) -> list[Mutant]:
    """Find every mutant of a file, in its order."""
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = {}
    for top in _running(ast.parse(source)):
        for node, changed in _of_node(top):
            begin = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            ends = "\n" * source[begin:end].count(b"\n")  # Lines behind it keep their numbers.
            after = f"{changed}{ends}" if isinstance(node, ast.stmt) else f"({changed}{ends})"
            found[begin, end, after] = Mutant(path, source, node.lineno, begin, end, after)
    return [found[key] for key in sorted(found)]


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """Give the nodes that run: no annotations, decorators, overloads, formatted texts, nor what is for types alone."""
    left_out: set[ast.AST | None] = set()
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        left_out = {node.returns, *node.decorator_list}
    elif isinstance(node, ast.ClassDef):
        left_out = {*node.decorator_list, *node.bases}
    elif isinstance(node, (ast.AnnAssign, ast.arg)):
        left_out = {node.annotation}
    is_for_types = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
    is_for_types |= isinstance(node, ast.FunctionDef) and "overload" in map(ast.unparse, node.decorator_list)
    if is_for_types or isinstance(node, ast.JoinedStr):  # Python 3.11 does not know where the parts of a text are.
        return
    yield node
    for child in ast.iter_child_nodes(node):
        if child not in left_out:
            yield from _running(child)


def _of_node(node: ast.AST) -> Iterator[tuple[Any, str]]:
    """Give what a node can become; or, of a statement, its condition."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        yield node, ast.unparse(_with(node, ops=[_SWAPS[type(node.ops[0])]()]))
        if isinstance(node.ops[0], (ast.Lt, ast.LtE, ast.Gt, ast.GtE)):
            yield node, f"not ({ast.unparse(node)})"
    elif isinstance(node, ast.BoolOp):
        yield node, ast.unparse(_with(node, op=_SWAPS[type(node.op)]()))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node, ast.unparse(node.operand)
    elif isinstance(node, ast.BinOp) and type(node.op) in _SWAPS and not any(map(_is_text, (node.left, node.right))):
        yield node, ast.unparse(_with(node, op=_SWAPS[type(node.op)]()))
    elif isinstance(node, (ast.If, ast.While, ast.IfExp)):
        if isinstance(node.test, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
            yield node.test, f"not {ast.unparse(node.test)}"
    elif isinstance(node, ast.Constant) and type(node.value) in (int, bool):
        yield node, repr(not node.value if isinstance(node.value, bool) else int(str(node.value)) + 1)
    elif isinstance(node, ast.Return) and not isinstance(node.value, (ast.Constant, type(None))):
        yield node, "return None"
    elif _is_left_out(node):
        yield node, "pass"


def _is_left_out(node: ast.AST) -> bool:
    """Whether a statement can be left out, and no name is missing then."""
    if isinstance(node, ast.Assign):
        return all(isinstance(target, (ast.Attribute, ast.Subscript)) for target in node.targets)
    return isinstance(node, (ast.AugAssign, ast.Raise, ast.Delete)) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    )


def _with(node: Any, **fields: Any) -> ast.AST:
    """Copy a node with other fields."""
    copied: ast.AST = type(node)(**{**dict(ast.iter_fields(node)), **fields})
    return copied


def _is_text(node: ast.AST) -> bool:
    """Whether an operand is a text, or None as in unions of types: another operator would end at once."""
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes, type(None)))
    )


# -- the tests that guard an area -------------------------------------------------------------------------


def guards_of(root: Path, area: str) -> list[Path]:
    """Give the files of tests that guard an area, by the rows of ``tests/README.md`` that name it, or a part of it."""
    rows = re.findall(r"^\| (.+?) \| (.+?) \|", (root / "tests/README.md").read_text(), re.MULTILINE)
    found: dict[Path, None] = {}
    for tests, rooms in rows:
        named = re.findall(r"`([\w./]+?)`", rooms)
        if any(room == area or f"{area}/".startswith(f"{room}/") or room.startswith(f"{area}/") for room in named):
            for pattern in re.findall(r"`([^`]+)`", tests):
                for path in sorted((root / "tests").glob(pattern.rstrip("/"))):
                    found |= dict.fromkeys(sorted(path.rglob("test_*.py")) if path.is_dir() else [path])
    return list(found)


def _nearest_first(tests: Sequence[Path], mutant: Mutant, package: Path) -> list[Path]:
    """Sort tests: first the ones with the words that stand around the change and few tests have.

    Long files have more words of any kind. Files that are called like the changed one, or import it, are likelier.
    """
    parts = {*mutant.path.relative_to(package).with_suffix("").parts} - {"__init__"}
    lines = mutant.source.decode().splitlines()[max(mutant.line - _AROUND, 0) : mutant.line + _AROUND]
    having = {word: [test for test in tests if word in _words(test)] for word in _words_of("\n".join(lines))}
    weights = {word: math.log((len(tests) + 1) / len(those)) for word, those in having.items() if those}

    def nearness(test: Path) -> float:
        alike = sum(part in test.stem for part in parts) + len(parts & {*test.parts})
        weight = sum(weight for word, weight in weights.items() if word in _words(test))
        return (
            weight
            / math.sqrt(math.sqrt(len(_words(test))))
            * (1 + 0.3 * (alike + _imports(test, mutant.path, package)))
        )

    return sorted(tests, key=nearness, reverse=True)


_AROUND = 4


@functools.cache
def _words(test: Path) -> frozenset[str]:
    return _words_of(_text(test)) or frozenset({""})


def _words_of(text: str) -> frozenset[str]:
    """Give the names in a text, and the words of which they consist."""
    parted = re.sub("([a-z0-9])([A-Z])", r"\1 \2", text)
    return frozenset(re.findall(r"[A-Za-z_]\w{3,}", text) + re.findall("[a-z][a-z0-9]{2,}", parted.lower()))


def _imports(test: Path, path: Path, package: Path) -> bool:
    """Whether a test has the name of a module in it."""
    module = ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__")
    return re.search(rf"{re.escape(module)}\b", _text(test)) is not None


@functools.cache
def _text(test: Path) -> str:
    return test.read_text()


# -- running ----------------------------------------------------------------------------------------------


@dataclass
class Survey:
    """Runs tests over mutants of the copy of a tree at ``root``.

    No test begins after ``limit_s`` seconds of processors, and each ends after ``hang_s`` seconds of the clock.
    """

    root: Path
    package: Path
    tests: Sequence[Path]
    others: Sequence[Path]
    """Those of these that import a changed file run as well."""
    limit_s: float
    hang_s: float
    python: str = sys.executable
    failing: set[str] = field(default_factory=set)
    """Tests that fail without a change, too."""
    checked: set[str] = field(default_factory=set)
    unrun: str = ""
    """What of the tests did not run over the last mutant."""

    def killer_of(self, mutant: Mutant) -> str:
        """Run the tests over a mutant until the time is up, the nearest first; name the one that fails, or nothing."""
        guards = dict.fromkeys([*self.tests, *(t for t in self.others if _imports(t, mutant.path, self.package))])
        tests = [str(t.relative_to(self.root)) for t in _nearest_first([*guards], mutant, self.package)]
        unrun = passed = begun = 0
        left_s = self.limit_s
        while left_s > 0 and begun < len(tests):
            end = next((end for end in _NEAREST if begun < end), len(tests))
            mutant.path.write_bytes(mutant.text())
            try:
                run = self._run(tests[begun:end], left_s)
            finally:
                mutant.path.write_bytes(mutant.source)
            if run.killer and self._passes_without_change(run.killer):
                return run.killer
            left_s -= run.spent_s
            if run.killer:  # What went before it has passed.
                begun = tests.index(run.killer.partition("::")[0])
            else:
                unrun, passed, begun = unrun + run.unrun, passed + run.passed, min(end, len(tests))
        missing = {"tests": unrun, "files of tests": len(tests) - begun}
        self.unrun = " and ".join(f"{number} {what}" for what, number in missing.items() if number)
        self.unrun = f"{self.unrun} had no time" if self.unrun else "" if passed else "every test was left out"
        return ""

    def _passes_without_change(self, killer: str) -> bool:
        """Whether a mutant is what makes a test fail; one that fails anyway is left out from now on."""
        test = killer.removesuffix(_HANGS)
        if "::" not in test or test in self.checked:
            return True
        passes = not self._run([test], self.limit_s).killer
        (self.checked if passes else self.failing).add(test)
        return passes

    def cannot_begin(self) -> str:
        """Say why the tests do not even begin without a change, or nothing."""
        return self._run(["--collect-only", *(str(test) for test in self.tests)], self.limit_s).killer

    def _run(self, tests: Sequence[str], limit_s: float) -> _Run:
        """Run tests in the copy, each file after the other, until one fails or the time is up."""
        begin_s = sum(os.times()[2:4])
        with tempfile.TemporaryDirectory() as home, tempfile.TemporaryFile("w+") as output:
            environment = {
                **os.environ,
                "HOME": home,
                "ZIG_GLOBAL_CACHE_DIR": os.environ.get("ZIG_GLOBAL_CACHE_DIR", str(Path.home() / ".cache/zig")),
                "TMPDIR": home,
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONPATH": os.pathsep.join([str(self.root / "src"), str(Path(__file__).parent)]),
                _LIMIT: str(limit_s),
                _TEST: str(at := Path(home, "test")),
            }
            deselected = [word for test in sorted(self.failing) for word in ("--deselect", test)]
            command = [self.python, "-m", "pytest", "-x", "-q", "-rfE", "-p", "mutants", "-p", "no:cacheprovider"]
            run = subprocess.Popen(
                [*command, *deselected, *tests], cwd=self.root, env=environment, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            at.touch()
            try:
                status = self._wait(run, at)
            finally:
                _end(run)
            output.seek(0)
            said = output.read()
            hanging = f"{at.read_text()}{_HANGS}"
        left = re.search(_NO_TIME.format(r"(\d+)"), said)
        passed = re.search(r"^(\d+) passed", said, re.MULTILINE)
        return _Run(
            hanging if status is None else _killer(said) if status not in (0, _NO_TESTS) else "",
            int(left[1]) if left else 0,
            int(passed[1]) if passed else 0,
            sum(os.times()[2:4]) - begin_s,
        )

    def _wait(self, run: subprocess.Popen[Any], at: Path) -> int | None:
        """Give the status of a process of tests; None where the one that it is at, or what comes before, hangs."""
        while (left_s := self.hang_s + at.stat().st_mtime - time.time()) > 0:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return run.wait(left_s)
        return None


@dataclass(frozen=True)
class _Run:
    """What a process of tests said: what failed, or nothing; how many had no time, and passed; CPU seconds."""

    killer: str
    unrun: int
    passed: int
    spent_s: float


def _killer(said: str) -> str:
    """Name the test that failed in what pytest said, or what else was wrong."""
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+::.*?)(?: - .*)?$", said, re.MULTILINE)
    return str(failed[-1]) if failed else said.strip().rpartition("\n")[2]  # Those before may be of a pytest in a test.


_HANGS = " does not end"
_NO_TESTS = 5
"""What pytest ends with where every test is deselected."""
_NO_TIME = "tests without time for this mutant: {}"
_unrun = 0


def _end(run: subprocess.Popen[Any]) -> None:
    """End a run of tests with the processes that it left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(run.pid, signal.SIGKILL)
    run.wait()


def pytest_runtest_logstart(nodeid: str) -> None:
    """Say which test begins: this file is a plugin of pytest in the processes of the tests."""
    Path(os.environ[_TEST]).write_text(nodeid)


def pytest_runtest_setup() -> None:
    """Leave out the tests for which no time is left."""
    import pytest

    global _unrun
    if sum(os.times()[:4]) > float(os.environ[_LIMIT]):
        _unrun += 1
        pytest.skip("no time is left for this mutant")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many tests were left out."""
    terminalreporter.line(_NO_TIME.format(_unrun))


# -- the command line -------------------------------------------------------------------------------------


def shown(mutant: Mutant, root: Path) -> str:
    """Say where a mutant is, with its lines before and after."""
    before, after = mutant.source.splitlines(), mutant.text().splitlines()
    place = f"{mutant.path.relative_to(root)}:{mutant.line}"
    old, new = (lines[mutant.line - 1].decode().strip() for lines in (before, after))
    return f"{place}\n  - {old}\n  + {new}"


def rooms_of(package: Path) -> list[str]:
    """Name the folders and files of a package that have mutants."""
    rooms = [path for path in sorted(package.iterdir()) if _files(path) and not path.name.startswith("__")]
    return [room.stem for room in rooms if any(map(mutants_of, _files(room)))]


def _files(place: Path) -> list[Path]:
    """Give the files of Python of a folder, or a file."""
    return sorted(place.rglob("*.py")) if place.is_dir() else [place] if place.suffix == ".py" else []


def main(arguments: Sequence[str] | None = None) -> int:
    """Sample, run, and print; the status is 1 where a mutant lives."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "area", nargs="+", help="folders or files of the package: cache, devices/cpu/run, kernel; or all, for every one"
    )
    parser.add_argument("-n", type=int, default=20, help="how many mutants of each area (20)")
    parser.add_argument("--seed", type=int, default=1, help="of the sample (1)")
    parser.add_argument(
        "--limit", type=float, default=120, metavar="S", help="CPU seconds of tests for each mutant (120)"
    )
    parser.add_argument("--hang", type=float, default=300, metavar="S", help="seconds after which a test hangs (300)")
    parser.add_argument("--tests", nargs="*", metavar="FILE", help="instead of the ones that tests/README.md names")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        root = Path(folder).resolve() / "tree"
        shutil.copytree(asked.root, root, symlinks=True, ignore=shutil.ignore_patterns(".*", "__pycache__"))
        (package,) = (path for path in (root / "src").iterdir() if (path / "__init__.py").exists())
        areas = rooms_of(package) if asked.area == ["all"] else asked.area
        surveys = [_prepared(parser, package, area, asked) for area in areas]
        living = [_sample(survey, files, area, asked) for area, (survey, files) in zip(areas, surveys, strict=True)]
        if len(areas) > 1:
            sampled = sum(number for number, _ in living)
            print(f"\n{sampled - sum(lives for _, lives in living)} of {sampled} mutants killed, in {len(areas)} areas")
        return 1 if any(lives for _, lives in living) else 0


def _prepared(
    parser: argparse.ArgumentParser, package: Path, area: str, asked: argparse.Namespace
) -> tuple[Survey, list[Path]]:
    """Give the tests of an area, which have begun, and its files."""
    root = package.parents[1]
    place = package / area
    files = _files(place if place.is_dir() else place.with_suffix(".py"))
    if not files or not all(file.exists() for file in files):
        parser.error(f"{package.name} has no {area}")
    tests = [root / test for test in asked.tests] if asked.tests else guards_of(root, area)
    if not tests:
        parser.error(f"tests/README.md names no tests for {area}: --tests names them")
    others = [] if asked.tests else sorted((root / "tests").rglob("test_*.py"))
    frameworks = asked.root / _FRAMEWORKS
    python = str(frameworks) if area in _IN_FRAMEWORKS and frameworks.exists() else sys.executable
    survey = Survey(root, package, tests, others, asked.limit, asked.hang, python)
    if why := survey.cannot_begin():
        parser.error(f"the tests do not begin: {why}")
    return survey, files


def _sample(survey: Survey, files: Sequence[Path], area: str, asked: argparse.Namespace) -> tuple[int, int]:
    """Print what becomes of the sample of an area; say how many mutants it has, and how many live."""
    every = [mutant for file in files for mutant in mutants_of(file)]
    chosen = random.Random(asked.seed).sample(every, min(asked.n, len(every)))
    living = []
    for number, mutant in enumerate(chosen, 1):
        killer = survey.killer_of(mutant)
        living += [] if killer else [mutant]
        unrun = f" ({survey.unrun})" if survey.unrun else ""
        what = f"killed by {killer}" if killer else f"LIVES{unrun}"
        print(f"{number}/{len(chosen)} {what}: {shown(mutant, survey.root)}", flush=True)
    if survey.failing:
        print(f"left out, as they fail without a change: {', '.join(sorted(survey.failing))}")
    killed = f"{len(chosen) - len(living)} of {len(chosen)} mutants killed"
    print(f"\n{area}: {killed}, of {len(every)} that there are; seed {asked.seed}")
    for mutant in living:
        print(f"lives: {shown(mutant, survey.root)}", flush=True)
    return len(chosen), len(living)


if __name__ == "__main__":
    sys.exit(main())
