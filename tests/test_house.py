"""The figures of the house are right on a made-up package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from house import c_lines, circles, figures, python_files

FILES = {
    "__init__.py": '"""The door."""\n',
    "a.py": '''"""A module.

Of three lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from made.b import B  # a circle, for types alone

LIMIT = 5
"""A docstring behind a value."""


def ir(name: str) -> list[str]:
    """Write IR."""
    # a comment
    return [
        f"%{name} = add i32 1, 2",
        f"no {name} of it",
        """
    store i32 1, ptr %p

    ret void
    """,
    ]
''',
    "b.py": "from made import a\n\nB = a.LIMIT\n",
    "devices/cpu/c.py": "import made.a\n\n\ndef small() -> None:\n    pass\n",
    "runtime/run.c": "/* two\n   lines */\nint a; // one\n\n// none\nint b;\n",
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "made" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "made"


def test_a_circle_is_found_though_one_import_is_for_types_alone(package: Path) -> None:
    imports = {name: file.imports for name, file in python_files(package).items()}
    assert imports["made.devices.cpu.c"] == {"made.a"}
    assert circles(imports) == [("made.a", "made.b")]


def test_lines_of_code_are_those_without_comments_docstrings_and_blanks(package: Path) -> None:
    files = python_files(package)
    assert {name.removeprefix("made."): file.code for name, file in files.items()} == {
        "made": 0, "a": 14, "b": 2, "devices.cpu.c": 3,
    }  # fmt: skip
    assert files["made.a"].lines == 27
    assert c_lines(package) == 2


def test_ir_in_texts_is_counted_by_line(package: Path) -> None:
    assert {name: file.ir for name, file in python_files(package).items() if file.ir} == {"made.a": 3}


def test_the_page_has_the_whole_and_the_cpu_device_alone(package: Path) -> None:
    whole, cpu = figures(package).split("\n\n")
    assert whole.splitlines()[1:6] == [
        "  files                   4",
        "  lines                   36",
        "  code lines, C counted   21",
        "  of them C               2",
        "  circles of imports      2",
    ]
    assert whole.splitlines()[7] == "  longest functions       12 made.a.ir"
    assert cpu.splitlines()[0] == "devices/cpu"
    assert "files                   1\n" in cpu
    assert "circles of imports      none" in cpu


def test_the_page_of_the_tests_has_every_folder_and_plugin() -> None:
    tests = Path(__file__).parent
    page = (tests / "README.md").read_text()
    folders = {file.parent.relative_to(tests).as_posix() for file in tests.rglob("test_*.py")} - {"."}
    told = {folder for folder in folders if any(f"`{part}/`" in page for part in (folder, folder.partition("/")[0]))}
    assert told == folders
    (plugins,) = re.findall(r"^pytest_plugins = \((.*)\)", (tests / "conftest.py").read_text(), re.MULTILINE)
    assert [name for name in re.findall(r'"(\w+)"', plugins) if f"`{name}.py`" not in page] == []
