"""What docs/emulate.md shows runs, in processes of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from cujit.cli.common import common_options
from cujit.cli.emulate import command
from pages import Page

PAGE = Page("emulate.md")


def _snippet(section: str) -> str:
    return next(code for title, code in PAGE.snippets() if title == section)


def _run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=120, check=False)


def test_program_and_check_print_what_the_page_shows(tmp_path: Path) -> None:
    program = tmp_path / "scale.py"
    program.write_text(_snippet("What runs"))
    done = _run(sys.executable, "-m", "cujit", "emulate", sys.executable, program)
    assert (done.returncode, done.stdout) == (0, "[0. 2. 4. 6.]\n"), done.stderr
    done = _run(sys.executable, "-m", "cujit", "emulate", "--check", "memory", sys.executable, program)
    assert done.returncode == 1
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in done.stderr
    shown = re.findall(r"```text\n(.*?)```", PAGE.text, re.DOTALL)[0].splitlines()
    assert len(shown) == 3
    for line in shown:
        assert line in done.stderr


def test_cujit_program_and_check_print_what_the_page_shows(tmp_path: Path) -> None:
    program, section = tmp_path / "first.py", "Programs on cujit"
    program.write_text(_snippet(section))
    done = _run(sys.executable, "-m", "cujit", "emulate", sys.executable, program)
    assert done.returncode == 0, done.stderr
    assert f"`{done.stdout.strip()}`" in PAGE.sections[section]
    done = _run(sys.executable, "-m", "cujit", "emulate", "--check", "memory", sys.executable, program)
    assert done.returncode == 1
    (shown,) = re.findall(r"```text\n(.*?)```", PAGE.sections[section], re.DOTALL)
    pieces = [piece.strip() for piece in re.split(r"[…\n]", shown) if piece.strip()]
    assert len(pieces) == 5
    for piece in (*pieces, "DriverError"):
        assert piece in done.stderr, piece


def test_line_for_notebooks_begins_an_emulation() -> None:
    line = re.findall(r"```python\n(import cujit\n.*?)```", PAGE.text, re.DOTALL)[0]
    done = _run(sys.executable, "-c", line + "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))")
    assert done.stdout == "0\n", done.stderr


def test_table_has_every_option() -> None:
    shown = set(re.findall(r"^\| `(--[a-z]+)", PAGE.text, re.MULTILINE))
    own = {name for option in command.params for name in option.opts if name.startswith("--")}
    assert shown == own - {name for option in common_options() for name in option.opts}


def test_first_sentence_says_what_does_not_run() -> None:
    first = PAGE.text.split("\n\n")[1].partition(". ")[0]
    for name in ("CUDA runtime", "CuPy", "Warp", "torch", "JAX", "don't run"):
        assert name in first
