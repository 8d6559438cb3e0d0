"""``cujit migrate`` rewrites command lines, imports and lists of words, and nothing else."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cujit
from cujit.cli.help import RENAMED_COMMANDS, RENAMED_OPTIONS
from cujit.cli.migrate import MOVED_NAMES, RENAMED_NAMES, migrated, unclear_lines
from pages import Page
from steps import is_shown, steps, typed

PAGE = Page("coming-from-0.2.md")
SCRIPT = """cujit check k.cubin --registers 64 --shared-bytes 4096
cujit compat k.fatbin --driver 12.4 --device sm_90
cujit run k.cu --over 8 --arg ones:f32:8 --print 0
"""
PROGRAM = """from cujit import Globals, jit
import subprocess
import cujit.occupancy.multiprocessor

subprocess.run(["cujit", "retarget", "k.ptx", "-o", "old.ptx", "--ptx", "8.0"])
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("cujit check a \\\n  --shared-bytes=1\n", "cujit budget a \\\n  --static-shared-bytes=1\n"),
        ("cujit pack size a.pack --limit 5MB", "cujit pack size a.pack --max-bytes 5MB"),
        ("x; cujit compat f --device sm_90 | tee --device", "x; cujit compat f --arch sm_90 | tee --device"),
        ("cujit run k --device cpu --shared-bytes 4", "cujit run k --device cpu --shared-bytes 4"),
        ("cujit cache ls --limit 3", "cujit cache ls --limit 3"),
        ("other check --shared-bytes 1\ncujit", "other check --shared-bytes 1\ncujit"),
        ("cujit pack build l --ptx; cujit inspect k --ptx", "cujit pack build l --add-ptx; cujit inspect k --ptx"),
        ("cujit cache show K --source", "cujit cache show K --source"),
        ("cujit emulate --needs x --needs", "cujit emulate --unsupported x --needs"),
        ("cujit inspect --log --log -- --log", "cujit inspect --assembler-log --log -- --log"),
        ("cujit run k -a 1 -a-2 -arch=sm_90", "cujit run k --arg 1 --arg=-2 -arch=sm_90"),
        ("cujit inspect k --kernel 'x<*>'", "cujit inspect k --kernels 'x<*>'"),
        (
            "cujit occupancy k --kernel x; cujit run k --kernel x",
            "cujit occupancy k --kernel x; cujit run k --kernel x",
        ),
        ("cujit embed k -nme -n you", "cujit embed k -pme -p you"),
    ],
)
def test_migrate_renames_options_on_command_lines(old: str, new: str) -> None:
    assert migrated(old) == new
    assert migrated(new) == new


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("from cujit import Globals", "from cujit.devices.globals import Globals"),
        ("é = 1; from cujit import Globals as G, jit", None),
        ("from cujit import Built, jit", "from cujit import ModuleSpec as Built, jit"),
        ("from cujit import needs as n", "from cujit import requirements as n"),
        ("x = cujit.Built(é)", "x = cujit.ModuleSpec(é)"),
        ("x = mine.Built + cujit.Builtin", "x = mine.Built + cujit.Builtin"),
        ("from mycujit import Globals", "from mycujit import Globals"),
        ("from .cujit import Globals", "from .cujit import Globals"),
        ('run(["cujit", "compat", "é", "--device", arch])', 'run(["cujit", "compat", "é", "--arch", arch])'),
        ('(exe, "-m", "cujit", "check", k, f"--log={k}")', '(exe, "-m", "cujit", "budget", k, f"--log={k}")'),
        ('["nvcc", "cujit_check", "--log"]', '["nvcc", "cujit_check", "--log"]'),
        ("from cujit import (\n    Globals,  # mine\n)", "from cujit import (\n    Globals,  # mine\n)"),
        ("this is not Python: from cujit import Globals", "this is not Python: from cujit import Globals"),
    ],
)
def test_migrate_renames_python_names_where_safe(old: str, new: str | None) -> None:
    new = new or "é = 1; from cujit import jit; from cujit.devices.globals import Globals as G"
    assert migrated(old, is_python=True) == new
    assert migrated(new, is_python=True) == new
    assert migrated("from cujit import Globals") == "from cujit import Globals"


def test_migrate_leaves_unclear_lines_to_the_reader() -> None:
    text = "a\ncujit run k \\\n --out=0=x.npy\ncujit profile k --print 1\ncujit run k --print 1"
    assert [(line, shown) for line, _, shown in unclear_lines(text)] == [
        (2, "cujit run k \\ --out=0=x.npy"),
        (5, "cujit run k --print 1"),
    ]
    program = "\n".join(
        ["import cujit", "from cujit import jit, Globals", "import cujit.torch", "from cujit.errors import Nothing",
         "import cujit.farm.intake, os", "x: cujit.Globals = cujit.jit", "from cujit.budget import *"],
    )  # fmt: skip
    found = [(line, why.partition(" ")[0]) for line, why, _ in unclear_lines(program, is_python=True)]
    assert found == [
        (2, "cujit.Globals"), (4, "cujit.errors.Nothing"), (5, "cujit.farm.intake"), (6, "cujit.Globals"),
    ]  # fmt: skip


def test_migrate_keeps_bytes_and_line_ends(tmp_path: Path) -> None:
    script = tmp_path / "build.sh"
    script.write_bytes(b"# caf\xe9\r\ncujit compat k --device sm_90 \xff\r\ncujit run k --print 1 \xff\r\n")
    script.chmod(0o755)
    for options in ([], ["--write"]):
        done = subprocess.run(
            [sys.executable, "-m", "cujit", "migrate", *options, script], capture_output=True, check=True
        )
        assert b"cujit run k --print 1 \xff\n" in done.stdout
    assert script.read_bytes() == b"# caf\xe9\r\ncujit compat k --arch sm_90 \xff\r\ncujit run k --print 1 \xff\r\n"
    assert script.stat().st_mode & 0o777 == 0o755


def test_migrate_page_matches_the_behavior(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("build.sh").write_text(SCRIPT)
    Path("variables.py").write_text(PROGRAM)
    for what, line, shown in steps(PAGE):
        if what == "type":
            _, printed = typed(line)
            assert is_shown(printed, shown), f"{line}\n{printed}"
    assert Path("build.sh").read_text() == migrated(SCRIPT)
    assert Path("variables.py").read_text() == migrated(PROGRAM, is_python=True)
    for code in PAGE.each():
        PAGE.run(*code.values)


def test_page_lists_every_new_name() -> None:
    rows = re.findall(r"^\| (`cujit .*) \| (.*) \| (.*) \|$", PAGE.text, re.MULTILINE)
    listed = {
        (command, old, new)
        for commands, olds, news in rows
        for command in re.findall("`cujit (.+?)`", commands)
        for old, new in zip(re.findall("`(.+?)`", olds), re.findall("`(.+?)`", news), strict=True)
    }
    assert listed == {
        *((old, f"cujit {old}", f"cujit {new}") for old, new in RENAMED_COMMANDS.items()),
        *((name, old, new) for name, renamed in RENAMED_OPTIONS.items() for old, new in renamed.items()),
    }
    assert re.findall(r"^\| `(from .*)` \| `(from .*)` \|$", PAGE.text, re.MULTILINE) == [
        (f"from cujit import {name}", f"from {module} import {name}") for name, module in MOVED_NAMES.items()
    ]


def test_page_lists_every_renamed_name_of_python() -> None:
    assert dict(re.findall(r"^\| `cujit\.(\w+)` \| `cujit\.(\w+)` \|$", PAGE.text, re.MULTILINE)) == RENAMED_NAMES


def test_moved_name_exists_only_in_its_new_module() -> None:
    for name, module in MOVED_NAMES.items():
        assert hasattr(importlib.import_module(module), name)
        assert not hasattr(cujit, name)
