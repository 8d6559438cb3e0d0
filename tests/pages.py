"""The pages of ``docs/`` in the tests that run what they show."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cujit.cli.app import main

__all__ = ["Page", "shell"]


class Page:
    """A page: its text, its sections by title, and the code that it shows."""

    def __init__(self, name: str) -> None:
        """Read ``docs/<name>``."""
        self.name = f"docs/{name}"
        self.text = (Path(__file__).parents[1] / self.name).read_text()
        self.sections: dict[str, str] = dict(
            re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", self.text, re.DOTALL | re.MULTILINE)
        )

    def snippets(self, language: str = "python") -> list[tuple[str, str]]:
        """Give the code in each section, with its title."""
        return [
            (title, code)
            for title, text in self.sections.items()
            for code in re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
        ]

    def each(self) -> list[Any]:
        """Give the snippets as parameters of a test."""
        return [pytest.param(code, id=f"{k} {title}") for k, (title, code) in enumerate(self.snippets())]

    def run(self, code: str, **names: object) -> dict[str, object]:
        """Run a snippet, before it what the page shows above its sections; give the names that there are then."""
        space: dict[str, object] = {**names, "__name__": "snippet"}
        above = self.text.partition("\n## ")[0]
        for part in (*re.findall(r"```python\n(.*?)```", above, re.DOTALL), code):
            exec(compile(part, self.name, "exec"), space)
        return space

    def has_code_in_every_section(self) -> bool:
        """Whether each section shows some Python."""
        return {title for title, _ in self.snippets()} == {*self.sections}


def shell(line: str) -> str:
    """Run a line of a shell, which calls ``cujit`` and may have ``> FILE`` at its end; give what it says."""
    words, _, output = line.partition(" > ")
    program, *arguments = shlex.split(words)
    assert program == "cujit"
    result = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert result.exit_code == 0, (line, result.output)
    if output:
        Path(output).write_text(result.stdout)
    return result.output
