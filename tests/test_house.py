"""The figures of the house are right on a made-up package."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cujit
from house import LIMITS, c_lines, circles, figures, python_files, script_lines, sentences, worse

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
    "b.py": "from made import a\n\nB = a.LIMIT\n\n\nclass Place:\n    pass\n",
    "devices/cpu/c.py": "import made.a\n\n\ndef small() -> None:\n    pass\n",
    "__init__.pyi": "from made.a import LIMIT as LIMIT\nfrom made.b import B as B\n",
    "d.py": """
from made import b


class Place(b.Place):
    pass


class Text:
    def read(self, given: list[int]) -> int:
        import json
        # It takes a while to start.
        import ast
        import decimal

        import html  # an optional part
        return sum(k for k in given if k and len(given) > 2) or len(json.dumps(ast, decimal, html))
""",
    "e.py": "class Text:\n    pass\n",
    "page/page.js": "/* one */\nconst a = 1; // two\n\nlet b;\n",
    "page/vendored/editor.js": "let theirs;\n",
    "runtime/run.c": "/* two\n   lines */\nint a; // one\n\n// none\nint b;\n",
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "made" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "made"


def test_cycle_is_found_even_with_a_type_only_import(package: Path) -> None:
    imports = {name: file.imports for name, file in python_files(package).items()}
    assert imports["made.devices.cpu.c"] == {"made.a"}
    assert circles(imports) == [("made.a", "made.b")]


def test_code_lines_exclude_comments_docstrings_and_blanks(package: Path) -> None:
    files = python_files(package)
    assert {name.removeprefix("made."): file.code for name, file in files.items()} == {
        "made": 0, "a": 14, "b": 4, "devices.cpu.c": 3, "d": 10, "e": 2,
    }  # fmt: skip
    assert files["made.a"].lines == 27
    assert c_lines(package) == 2
    assert script_lines(package) == 2  # but those of others


def test_ir_in_texts_is_counted_by_line(package: Path) -> None:
    assert {name: file.ir for name, file in python_files(package).items() if file.ir} == {"made.a": 3}


def test_branches_class_names_and_reasons_of_imports_are_counted(package: Path) -> None:
    file = python_files(package)["made.d"]
    assert [(f.name, f.complexity, f.parameters) for f in file.functions] == [("made.d.read", 5, 1)]
    assert file.unexplained == (11,)
    whole = figures(package)
    assert "class names used twice                1\n" in whole
    assert "Text: made.d, made.e" in whole


WRITERS = """
open(path, "w"); open(path, mode="ab"); path.open("x"); io.open(path, "r+"); gzip.open(path, "wb")
path.write_text(""); path.write_bytes(b""); path.touch(); path.replace(other); path.rename(other)
os.open(path, os.O_WRONLY); os.open(path, FLAGS | os.O_CREAT); os.replace(path, other); os.link(path, other)
np.save(path, x); figure.savefig(path); zipfile.ZipFile(path, "w"); shutil.copyfile(path, b); shutil.move(path, b)
tempfile.mkdtemp(); tempfile.mkstemp(); tempfile.NamedTemporaryFile(); tempfile.TemporaryDirectory()
"""
READERS = """
open(path); open(path, "rb"); path.open(); path.open("r"); Artifact.open(path); os.open(path, os.O_RDONLY)
text.replace("a", "b"); text.replace(*pair); replace(value, x=1); x.touch(e, op); path.write_text("")  # in place: why
"""


def test_direct_file_writes_are_found(tmp_path: Path) -> None:
    for name, text in (("writers", WRITERS.replace("; ", "\n")), ("readers", READERS)):
        (tmp_path / "made").mkdir(exist_ok=True)
        (tmp_path / f"made/{name}.py").write_text(text)
    files = python_files(tmp_path / "made")
    assert [*files["made.writers"].written] == [*range(2, WRITERS.replace("; ", "\n").count("\n") + 1)]
    assert files["made.readers"].written == ()


def test_report_has_the_total_and_the_cpu_device(package: Path) -> None:
    whole, cpu = figures(package).split("\n\n")
    rows = dict(re.findall(r"^  (\S.*?)  +(\S.*)$", whole, re.MULTILINE))
    assert rows.items() >= {
        ("files", "6"), ("code lines, C counted", "37"), ("of them C", "2"), ("circles of imports", "1"),
        ("circles, files of each", "2"), ("modules at the root", "5"), ("public names", "2"),
        ("longest functions", "12 made.a.ir"), ("complexity of a function", "1 5 5 5"),
    }  # fmt: skip
    assert cpu.splitlines()[0] == "devices/cpu"
    assert re.search("files +1\n", cpu)
    assert re.search("circles of imports +0\n", cpu)


def test_exceeded_limit_is_named(package: Path) -> None:
    assert worse(package, {"files": 5, "public names": 2}) == ["files: 6, and 5 at most"]


def test_tools_match_the_constraints() -> None:
    for line in (Path(__file__).parents[1] / "constraints.txt").read_text().splitlines():
        pinned = re.match(r"([\w-]+)==([\w.]+)(?: ; python_version >= '3.(\d+)')?$", line)
        assert pinned or not line or line.startswith("#"), line
        if pinned and sys.version_info >= (3, int(pinned[3] or 0)):
            assert importlib.metadata.version(pinned[1]) == pinned[2]


def test_pre_commit_hooks_are_part_of_make_lint() -> None:
    root = Path(__file__).parents[1]
    hooks = re.findall(r"^ +entry: (.*)$", (root / ".pre-commit-config.yaml").read_text(), re.MULTILINE)
    (recipe,) = re.findall(r"^lint:.*\n((?:\t.*\n)+)", (root / "Makefile").read_text(), re.MULTILINE)
    assert hooks
    assert {f"{hook} ." for hook in hooks} <= {
        line.strip().replace("$(BIN)/", ".venv/bin/") for line in recipe.splitlines()
    }


def test_make_help_lists_each_target_once() -> None:
    root = Path(__file__).parents[1]
    listed = subprocess.run(["make", "help"], cwd=root, capture_output=True, text=True, check=True).stdout
    targets = re.findall(r"^([a-z][\w-]*):(?!=)", (root / "Makefile").read_text(), re.MULTILINE)
    assert sorted(re.findall(r"^  ([\w-]+): ", listed, re.MULTILINE)) == sorted(targets)
    assert re.findall(r"^(\w.*):$", listed, re.MULTILINE) == ["every day", "long tests", "build and measure"]


def test_figures_are_within_their_limits() -> None:
    assert worse(Path(__file__).parents[1] / "src/cujit", LIMITS) == []


def test_tests_page_lists_every_folder_and_plugin() -> None:
    tests = Path(__file__).parent
    page = (tests / "README.md").read_text()
    folders = {file.parent.relative_to(tests).as_posix() for file in tests.rglob("test_*.py")} - {"."}
    told = {folder for folder in folders if any(f"`{part}/" in page for part in (folder, folder.partition("/")[0]))}
    assert told == folders
    (plugins,) = re.findall(r"^pytest_plugins = \((.*)\)", (tests / "conftest.py").read_text(), re.MULTILINE)
    assert [name for name in re.findall(r'"(\w+)"', plugins) if f"`{name}.py`" not in page] == []


_SHUNNED = re.compile(r"(?<!\w)(told|mend(?:s|ed|ing)?|those that|roads?|workshops?)(?![\w.])", re.IGNORECASE)
"""Words of a dialect of ours, for which there are plain ones: said or known; fix; what; route; runner."""


def _files_with(pattern: str, folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files of a folder that have a pattern, with their texts: to parse all takes a second."""
    found = re.compile(pattern, re.MULTILINE)
    texts = ((path, path.read_text()) for path in sorted(folder.rglob("*.py")))
    return ((path, text) for path, text in texts if found.search(text))


def test_only_public_modules_define_all() -> None:
    # A name without an underscore is public in its module; a list that says so again is one more thing to keep.
    root = Path(__file__).parents[1]
    rooms = {Path("src/cujit", f"{room}.py") for room in vars(cujit)["_ROOMS"]}
    for file, text in _files_with(r"^__all__\b", root / "src"):
        tree = ast.parse(text)
        says = [
            node for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        ]
        if says and file.name != "__init__.py" and file.relative_to(root) not in rooms:
            imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
            passed_on = {name.asname or name.name for node in imports for name in node.names} & set(
                ast.literal_eval(says[0].value)
            )
            assert passed_on, f"{file.relative_to(root)}: __all__ says nothing that the names do not say"


_OPTIONAL = {"cryptography", "dask", "distributed", "moto", "mpi4py", "obstore", "optuna", "oras"}


def test_tests_are_collected_without_optional_packages() -> None:
    # `make gpu-test` runs on machines that have the packages of the core alone.
    for file, text in _files_with("|".join(_OPTIONAL), Path(__file__).parent):
        imports = [node for node in ast.parse(text).body if isinstance(node, ast.Import | ast.ImportFrom)]
        names = {
            name.partition(".")[0]
            for node in imports
            for name in (
                [node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
            )
        }
        assert not names & _OPTIONAL, f"{file.name}: import it in the test, or by pytest.importorskip"


def test_prose_and_names_use_plain_words() -> None:
    root = Path(__file__).parents[1]
    places = [*root.glob("*.md"), *root.glob("docs/*.md"), *root.glob("tools/*.py"), *root.glob("src/cujit/**/*.py")]
    device = root / "src/cujit/devices/cpu"
    rules = root / "tools/prose.py"  # it names the words
    files = [path for path in places if not path.is_relative_to(device) and path != rules]
    found = [
        f"{path.relative_to(root)}:{number}: {match[0]}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        for match in _SHUNNED.finditer(line)
    ]
    assert found == []


def test_only_one_function_asks_which_modules_are_imported() -> None:
    # A module in sys.modules may be half imported by another thread: cujit.values.imported knows.
    code = Path(__file__).parents[1] / "src/cujit"
    asking = [
        f"{file.relative_to(code)}: {ast.unparse(node)}"
        for file, text in _files_with(r"\bsys\.modules|\bfrom sys", code)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute | ast.ImportFrom)
        and ast.unparse(node).startswith(("sys.modules", "from sys"))
    ]
    counts = ["devices/sources.py: sys.modules", *["values/garbage.py: sys.modules"] * 2]
    own = [f"values/imported.py: sys.modules{part}" for part in (".get", "", "", "", ".pop", "")]
    assert sorted(asking) == sorted([*counts, *own])


def test_docstrings_begin_with_a_verb_that_names_the_result() -> None:
    package = Path(__file__).parents[1] / "src/cujit"
    vague = r"(Give|Tell|Say|Have)\b"
    found = [
        f"{path.relative_to(package)}:{node.lineno}"
        for path, text in _files_with(rf"[\"']\s*{vague}", package)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and re.match(vague, ast.get_docstring(node) or "")
    ]
    assert found == []


def test_errors_are_compared_by_codes_and_not_by_sentences() -> None:
    root = Path(__file__).parents[1]
    assert sentences(root / "tests", root / "src/cujit") == {}


def test_comparison_with_an_error_sentence_is_counted(tmp_path: Path) -> None:
    package, tests = tmp_path / "made", tmp_path / "tests"
    package.mkdir()
    (package / "errors.py").write_text("class CujitError(Exception): ...\nclass MadeError(CujitError): ...\n")
    (package / "far.py").write_text("def f():\n    class FarError(errors.MadeError, ValueError): ...\n")
    tests.mkdir()
    (tests / "test_a.py").write_text(
        "with pytest.raises(MadeError, match='x'): ...\nwith pytest.raises((OSError, far.FarError), match=x): ...\n"
        "with pytest.raises(ValueError, match='x'): ...\nwith pytest.raises(MadeError): ...\nraises(MadeError, 'x')\n"
    )
    assert sentences(tests, package) == {"test_a.py": 2}
