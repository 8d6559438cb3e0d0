"""Pages that a newcomer follows by copy and paste: files to write, and sessions to type, in the order of the page."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from click.testing import CliRunner

import cujit
from cujit.cli.app import main
from pages import Page

__all__ = ["blocks", "is_shown", "own_modules", "steps", "typed"]

_BLOCK = re.compile(r'^```(\w+)(?: title="(.+?)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


def blocks(page: Page) -> dict[str, str]:
    """Give the files of a page by path; where one is shown twice, as it is in the end."""
    return {path: body for _, path, body in _BLOCK.findall(page.text) if path}


def steps(page: Page) -> Iterator[tuple[str, str, str]]:
    """Give each file as ``("write", path, text)`` and each command as ``("type", line, output)``."""
    for language, path, body in _BLOCK.findall(page.text):
        if path:
            yield "write", path, body
        elif language == "console":
            for line, output in _COMMAND.findall(body):
                yield "type", line, output


def typed(line: str, status: int = 0) -> tuple[int, str]:
    """Do what a line of a session says, in the working directory; give its exit status, and what it printed.

    Commands of cujit and scripts of Python run in this process, which forgets what the last one had in memory.
    """
    words = shlex.split(line)
    if words[0] == "cujit":
        result = CliRunner().invoke(main, words[1:])
        return result.exit_code, result.output
    if words[0] == "python" and words[1] != "-m":
        code = words[2] if words[1] == "-c" else Path(words[1]).read_text()
        cujit.default_cache().forget()
        with own_modules(), contextlib.redirect_stdout(io.StringIO()) as out:
            exec(compile(code, words[1], "exec"), {"__name__": "__main__"})
        return 0, out.getvalue()
    shell = re.sub(r"\bpython\b", sys.executable, line).replace("$?", str(status))
    alone = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(shell, shell=True, env=alone, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@contextlib.contextmanager
def own_modules() -> Iterator[None]:
    """Import from the working directory, and forget afterwards what came from there, registered modules too."""
    before, here = {*sys.modules}, str(Path.cwd())
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)
        for name in {*sys.modules} - before:
            if (getattr(sys.modules[name], "__file__", None) or "").startswith(here):
                del sys.modules[name]
        for known in [*cujit.default_registry()]:
            if known.name.startswith("softrows"):
                cujit.default_registry().forget(known.name)


def is_shown(printed: str, shown: str) -> bool:
    """Whether a session prints what a page shows: ``…`` is anything, numbers of a toolkit and its tables any."""
    wanted = "".join(".*" if "…" in part else re.escape(part) for part in re.split("( ?… ?)", _plain(shown)))
    return re.fullmatch(wanted, _plain(printed), re.DOTALL) is not None


def _plain(text: str) -> str:
    text = re.sub(r"(?<![\w.\[(])\d[\d,.]*(?![\w.\])])", "N", text)
    return re.sub(r"[ ─\n]+", " ", text).strip()
