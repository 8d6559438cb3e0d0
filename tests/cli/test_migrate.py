"""``cujit migrate`` rewrites command lines and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cujit.cli.help import RENAMED_OPTIONS
from cujit.cli.migrate import ambiguous_lines, migrated
from pages import Page
from steps import is_shown, steps, typed

PAGE = Page("coming-from-0.2.md")
SCRIPT = """cujit check k.cubin --registers 64 --shared-bytes 4096
cujit compat k.fatbin --driver 12.4 --device sm_90
cujit run k.cu --over 8 --arg ones:f32:8 --print 0
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
    ],
)
def test_command_lines_have_the_new_names(old: str, new: str) -> None:
    assert migrated(old) == new
    assert migrated(new) == new


def test_what_is_counted_is_left_to_the_reader() -> None:
    assert list(ambiguous_lines("a\ncujit run k \\\n --out=0=x.npy\ncujit profile k --print 1")) == [
        (2, "cujit run k \\ --out=0=x.npy")
    ]


def test_bytes_and_ends_of_lines_that_are_no_command_stay(tmp_path: Path) -> None:
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


def test_the_page_shows_what_is_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("build.sh").write_text(SCRIPT)
    for what, line, shown in steps(PAGE):
        if what == "type":
            _, printed = typed(line)
            assert is_shown(printed, shown), f"{line}\n{printed}"
    assert Path("build.sh").read_text() == migrated(SCRIPT)
    for code in PAGE.each():
        PAGE.run(*code.values)
    assert all(
        f"{old}`" in PAGE.text and f"{new}`" in PAGE.text
        for row in RENAMED_OPTIONS.values()
        for old, new in row.items()
    )
