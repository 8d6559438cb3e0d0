"""The tour of the house says what is so: its names exist, and a build goes its way."""

from __future__ import annotations

import ast
import re
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from cujit.cache.cache import Cache
from cujit.program import Source, build

_ROOT = Path(__file__).parents[1]
_CODE = _ROOT / "src" / "cujit"
_PAGE = (_ROOT / "docs" / "architecture.md").read_text()


def _drawn(kind: str) -> list[list[str]]:
    """Give the columns of each line of a drawing, two blanks or more between them."""
    (text,) = re.findall(rf"```{kind}\n(.*?)```", _PAGE, re.DOTALL)
    return [re.split(" {2,}", line) for line in text.splitlines()]


WAY = [(file, name) for file, name, *_ in _drawn("way")]
NAMES = [(file, name) for file, name, *_ in _drawn("names")]


def _defined(file: str) -> dict[str, set[int]]:
    """Give the functions and methods of a file with the lines at which their code may be said to begin."""
    found: dict[str, set[int]] = {}

    def walk(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                name = f"{prefix}{child.name}"
                found[name] = {child.lineno, *(decorator.lineno for decorator in child.decorator_list)}
                walk(child, f"{name}.")

    walk(ast.parse((_CODE / file).read_text()), "")
    return found


@pytest.mark.parametrize(("file", "name"), sorted({*WAY, *NAMES}))
def test_every_name_of_the_drawings_is_in_its_file(file: str, name: str) -> None:
    assert name in _defined(file)


def test_every_path_of_the_page_exists() -> None:
    said = re.findall(r"`([\w./-]+/[\w./-]+|[\w-]+\.(?:md|toml|py))`", _PAGE)
    links = [f"docs/{link}" for link in re.findall(r"\]\(([\w./-]+\.md)\)", _PAGE)]
    places = [path for path in (*said, *links) if not path.startswith("src/")]
    assert len(places) > 30
    assert [path for path in places if not any((root / path).exists() for root in (_CODE, _ROOT))] == []


class _Calls:
    """Notes the calls of the drawn functions, in every thread."""

    def __init__(self, names: set[tuple[str, str]]) -> None:
        self.seen: list[tuple[str, str]] = []
        self._begins = {
            (str(_CODE / file), line): (file, name) for file, name in names for line in _defined(file)[name]
        }
        self._known: dict[CodeType, tuple[str, str] | None] = {}

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        del argument
        if event == "call":
            code = frame.f_code
            if code not in self._known:
                self._known[code] = self._begins.get((code.co_filename, code.co_firstlineno))
            if found := self._known[code]:
                self.seen.append(found)


def test_build_visits_functions_in_the_drawn_order(tmp_path: Path) -> None:
    source = '#include "own.h"\nextern "C" __global__ void k(int *p) { *p = OWN; }\n'
    (tmp_path / "own.h").write_text("#define OWN 1\n")
    calls = _Calls(set(WAY))
    before = sys.getprofile()
    threading.setprofile(calls)
    sys.setprofile(calls)
    try:
        build(Source.cuda(source, include=tmp_path), ["sm_90"], cache=Cache(tmp_path / "cache"), jobs=1)
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    left = list(WAY)
    for call in calls.seen:
        if left and call == left[0]:
            left.pop(0)
    assert left == [], "what is drawn and was not called, or in another order"


@pytest.mark.parametrize(
    "thing",
    ["an option", "a command", "a PTX instruction", "an architecture", "a cache tier", "a transport", "a driver call",
     "an advice rule", "a check", "a kind of argument"],
)  # fmt: skip
def test_table_says_where_each_kind_of_change_goes(thing: str) -> None:
    assert re.search(rf"^\| {thing}\b[^|]*\| [^|]*`[\w./-]+`", _PAGE, re.MULTILINE)
