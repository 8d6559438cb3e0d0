"""``cujit migrate``: command lines in scripts, by the names that commands and options have now."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from pathlib import Path

import click

from cujit.artifact.writing import write_file
from cujit.cli.help import RENAMED_COMMANDS, RENAMED_OPTIONS, Command

_COMMAND_LINE = re.compile(r"\bcujit[ \t]+(?P<command>[a-z]+)\b(?P<rest>(?:\\\n|[^\n|;&`])*)")
"""One command with its options: it ends with its line, unless that ends with a backslash."""

_COUNTED = re.compile(r"(?<=\s)--(?:print|out)[ =]\d")


def migrated(text: str) -> str:
    """Return the text with the new names in its command lines of cujit."""

    def renamed(match: re.Match[str]) -> str:
        command = RENAMED_COMMANDS.get(match["command"], match["command"])
        rest = match["rest"]
        options = RENAMED_OPTIONS.get(command) or RENAMED_OPTIONS.get(rest.split(maxsplit=1)[0] if rest.strip() else "")
        for old, new in (options or {}).items():
            rest = re.sub(rf"(?<=\s){old}(?=[\s=])", new, rest)
        start = match.start("command") - match.start()
        return f"{match[0][:start]}{command}{rest}"

    return _COMMAND_LINE.sub(renamed, text)


def ambiguous_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number and text of each line that can mean either release: people have to check it."""
    for match in _COMMAND_LINE.finditer(text):
        if match["command"] == "run" and _COUNTED.search(match["rest"]):
            yield text.count("\n", 0, match.start()) + 1, " ".join(match[0].split())


@click.command("migrate", cls=Command)
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--write", is_flag=True, help="Write the changes to the files instead of printing them.")
def command(files: tuple[Path, ...], write: bool) -> None:
    """Rewrite command lines of cujit 0.2 in scripts.

    cujit prints the changes to FILES as a diff: shell scripts, Makefiles, CI configurations. It also lists command
    lines that you have to check yourself.
    """
    for file in files:
        old = file.read_bytes().decode(errors="surrogateescape")  # other bytes, and ends of lines, stay as they are
        new = migrated(old)
        if new != old and write:
            write_file(file, new.encode(errors="surrogateescape"))
            click.echo(f"{file}: rewritten")
        elif new != old:
            before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
            shown = "".join(difflib.unified_diff(before, after, str(file), str(file)))
            click.echo(shown.encode(errors="surrogateescape"), nl=False)
        for line, text in ambiguous_lines(new):
            shown = f"{file}:{line}: check yourself: --print and --out count from 1 since 0.3: {text}"
            click.echo(shown.encode(errors="surrogateescape"))
