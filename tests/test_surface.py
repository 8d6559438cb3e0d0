"""The public surface is said once, and the documentation says the same."""

from __future__ import annotations

import ast
import inspect
import operator
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

import cujit
import cujit.errors as errors
from cujit.cache.packaged import GROUP
from cujit.cli import main
from cujit.cli.app import COMMANDS
from cujit.cli.common import common_options
from cujit.cli.environment import VARIABLES
from cujit.cli.help import RENAMED_COMMANDS
from reference import PAGES

RENAMED: dict[str, str] = vars(cujit)["_RENAMED"]
_ROOT = Path(__file__).parents[1]
_ALL: list[str] = vars(cujit)["__all__"]
_ROOMS: list[str] = vars(cujit)["_ROOMS"]
_IN_ROOMS = [
    f"{room}.{name}"
    for room in _ROOMS
    for name in vars(getattr(cujit, room))["__all__"]
    if name not in _ALL or getattr(getattr(cujit, room), name) is not getattr(cujit, name)
]
_PUBLIC = [name for name in [*_ALL, *_IN_ROOMS] if name != "__version__"]
_PROSE = [
    _ROOT / "README.md",
    _ROOT / "CONTRIBUTING.md",
    _ROOT / "CHANGELOG.md",
    *sorted((_ROOT / "docs").rglob("*.md")),
]


def test_all_is_sorted_and_dir_is_all() -> None:
    assert sorted(set(_ALL)) == _ALL
    assert dir(cujit) == _ALL


def test_users_type_a_page_of_names() -> None:
    assert len(_ALL) <= 66


def test_type_checkers_see_the_names_that_python_has() -> None:
    stub = ast.parse((_ROOT / "src/cujit/__init__.pyi").read_text())
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    typed = {(alias.name, node.module) for node in imports for alias in node.names}
    homes: dict[str, str] = vars(cujit)["_HOME"]
    assert typed == {*homes.items(), *((room, "cujit") for room in _ROOMS), ("__version__", "cujit.version")}
    assert all(alias.asname == alias.name for node in imports for alias in node.names)


@pytest.mark.parametrize("name", _PUBLIC)
def test_every_public_name_exists_and_is_documented(name: str) -> None:
    thing = operator.attrgetter(name)(cujit)
    assert inspect.isclass(thing) or inspect.isfunction(thing) or name in _ROOMS
    assert (thing.__doc__ or "").strip()
    if inspect.isclass(thing):
        # A dataclass without a docstring gets one made of its fields.
        assert not (thing.__doc__ or "").startswith(f"{name.rpartition('.')[2]}(")


@pytest.mark.parametrize(("old", "new"), sorted(RENAMED.items()))
def test_renamed_name_still_works_with_a_warning(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"cujit.{old} is now cujit.{new}"):
        assert getattr(cujit, old) is getattr(cujit, new)
    assert old not in dir(cujit)
    page = (Path(cujit.__file__).parents[2] / "docs/coming-from-0.2.md").read_text()
    assert f"| `cujit.{old}` | `cujit.{new}` |" in page


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'cujit' has no attribute 'nvcc'"):
        _ = cujit.nvcc  # type: ignore[attr-defined]


def test_version_is_defined_once_and_tops_the_changelog() -> None:
    project = (_ROOT / "pyproject.toml").read_text()
    assert 'dynamic = ["version"]' in project
    assert not re.search(r'^version = "', project, re.MULTILINE)
    assert '[tool.hatch.version]\npath = "src/cujit/version.py"\n' in project
    versions = re.findall(r"^## (\d\S*) \((.*)\)$", (_ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    unreleased = [version for version, when in versions if when == "unreleased"]
    released = [version for version, when in versions if re.fullmatch(r"\d{4}-\d\d-\d\d", when)]
    assert [version for version, _ in versions] == unreleased + released
    assert len(unreleased) <= 1
    assert cujit.__version__ == versions[0][0]


def test_unreleased_change_is_one_line() -> None:
    """What was added, changed or removed; of what was fixed, the symptom and its condition."""
    text = (_ROOT / "CHANGELOG.md").read_text().partition("\n## 0.2.0 ")[0]
    for heading, lines in re.findall(r"^### (\w+)\n\n(.*?)\n(?=\n|\Z)", text, re.MULTILINE | re.DOTALL):
        entries = lines.splitlines()
        assert [line for line in entries if not re.match(rf"\* {heading} \S", line)] == []
        conditions = [line for line in entries if re.search(r"\b(?:when|if|while|without)\b|: ", line)]
        assert heading != "Fixed" or len(conditions) >= 0.8 * len(entries)


def test_no_change_is_listed_twice() -> None:
    """A merge of two orders of the list brings entries back: each stands once, below the heading that it belongs to."""
    entries = re.findall(r"^\* (.{40})", (_ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert len(entries) > 80
    assert {entry for entry in entries if entries.count(entry) > 1} == set()


@pytest.mark.parametrize("page", PAGES)
def test_generated_page_matches_the_code(page: str) -> None:
    written = (_ROOT / "docs" / f"{page}.md").read_text()
    # In a process of its own: launches give ``Kernel`` parts in machine code, which have no docstrings.
    command = [sys.executable, str(_ROOT / "tools/reference.py"), page]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert written == made, f"python tools/reference.py {page} > docs/{page}.md"


def test_pages_name_every_public_name() -> None:
    named = {*re.findall(r"^\| \[?`cujit\.([\w.]+)`", PAGES["api"](), re.MULTILINE)}
    named |= {*re.findall(r"^\| `(\w+)` ", PAGES["errors"](), re.MULTILINE)}
    assert named == {name.removeprefix("errors.") for name in _PUBLIC} - {*_ROOMS, "Diagnostic"}


def _commands() -> dict[str, click.Command]:
    """Every verb, and every verb of a verb that is a group, by what is typed after ``cujit``."""
    context = click.Context(main)
    verbs = {verb: main.get_command(context, verb) for verb in COMMANDS}
    found: dict[str, click.Command] = {}
    for name, command in verbs.items():
        assert command
        inner = command.commands if isinstance(command, click.Group) else {}
        found.update({f"{name} {word}": one for word, one in inner.items()} or {name: command})
    return found


def test_page_of_the_command_line_names_every_verb_and_option() -> None:
    page = PAGES["cli"]()
    assert re.findall(r"^## cujit (\w+)$", page, re.MULTILINE) == list(COMMANDS)
    titles = re.findall(r"^##+ cujit ([\w ]+)$", page, re.MULTILINE)
    assert [title for title in titles if title in _commands()] == list(_commands())
    common = {name for option in common_options() for name in option.opts}
    assert common <= set(re.findall(r"`(-[-\w]+)", page.partition("\n## ")[0]))
    for title, command in _commands().items():
        section = re.split(r"\n##+ ", page.partition(f" cujit {title}\n")[2])[0]
        options = {name for p in command.params if isinstance(p, click.Option) for name in p.opts} - common
        assert set(re.findall(r"`(-[-\w]+)", section)) == options
        assert all(p.help for p in command.params if isinstance(p, click.Option))


def test_every_command_that_prints_data_has_json() -> None:
    for name, command in _commands().items():
        if name not in ("embed", "completion", "emulate", "migrate"):  # a file, a script, output of the command, a diff
            assert any("--json" in p.opts for p in command.params), f"cujit {name} lacks @json_option"


def test_drawn_tree_of_errors_is_the_tree() -> None:
    drawn: list[tuple[str, str]] = []
    above: list[str] = []
    for line in PAGES["errors"]().partition("```\n")[2].partition("```")[0].splitlines():
        indent, name = re.match(r"^([│├└─ ]*)(\w+)", line).groups()  # type: ignore[union-attr]
        above[len(indent) // 4 :] = [name]
        drawn.append((name, above[-2] if len(above) > 1 else "Exception"))
    real = [
        (name, getattr(errors, name).__bases__[0].__name__)
        for name in errors.__all__
        if name not in ("Diagnostic", "CacheWarning", "CheckWarning", "CompileWarning")
    ]
    assert sorted(drawn) == sorted(real)


@pytest.mark.parametrize("path", _PROSE, ids=lambda path: path.name)
def test_prose_names_only_existing_things(path: Path) -> None:
    text = path.read_text()
    for name in re.findall(r"(?<!tool\.)\bcujit\.([A-Za-z]\w*)", text):
        homes = (_ROOT / "src" / "cujit" / name, _ROOT / "src" / "cujit" / f"{name}.py")
        if name in RENAMED and path.name in ("CHANGELOG.md", "coming-from-0.2.md"):
            continue  # what other releases had
        assert f"cujit.{name}" == GROUP or name in _ALL or any(home.exists() for home in homes), f"cujit.{name}"
    for verb in re.findall(r"(?:^\$ |`)cujit (\w+)", text, re.MULTILINE):
        assert verb in (*COMMANDS, *RENAMED_COMMANDS, "COMMAND"), f"cujit {verb}"
    for link in re.findall(r"\]\(([\w./-]+)\)", text):
        assert (path.parent / link).exists(), link
    for target in re.findall(r"`make ([\w-]+)`", text):
        assert f"\n{target}:" in (_ROOT / "Makefile").read_text(), f"make {target}"


def test_environment_page_lists_exactly_the_variables() -> None:
    read: set[str] = set()
    for path in (_ROOT / "src/cujit").rglob("*.py"):
        if path.name != "environment.py":
            texts = [node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
            read |= {text for text in texts if isinstance(text, str) and re.fullmatch("[A-Z]+_[A-Z_]+|CUJIT", text)}
    listed = {one.name for one in VARIABLES}
    assert {name for name in read if name.startswith("CUJIT_")} <= listed
    assert listed <= read
    for path in _PROSE:
        assert {*re.findall(r"\bCUJIT_[A-Z_]*[A-Z]\b", path.read_text())} <= listed, path
