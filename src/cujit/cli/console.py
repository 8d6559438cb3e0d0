"""Output of the commands: tables, progress, and messages for people, and JSON for programs."""

from __future__ import annotations

import functools
import json
import math
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cujit.values import NamedTuple

if TYPE_CHECKING:
    from rich.console import Console

    from cujit.errors import Diagnostic

_PLAIN_WIDTH = 160
"""Columns where the output is no terminal, which has no width of its own."""


JSON = "cujit.json"
"""Where a context of click says that standard output is JSON."""

QUIET = "cujit.quiet"
"""Where a context of click says that nothing but errors goes to standard error."""


FINDINGS = "cujit.findings"
"""Where a context of click has what ``--findings`` asks for."""


def add_findings(found: Iterable[Diagnostic]) -> None:
    """Add findings that end no command, such as warnings, to the file of ``--findings``, if one is written."""
    ctx = click.get_current_context(silent=True)
    if ctx is not None and FINDINGS in ctx.meta:
        ctx.meta[FINDINGS].found.extend(found)


def console(*, stderr: bool = False) -> Console:
    """Return a console on the current standard output or error, with the requested colors."""
    from rich.console import Console  # start-up: few verbs print a table

    ctx = click.get_current_context(silent=True)
    color = None if ctx is None else ctx.color
    more: dict[str, Any] = {"stderr": stderr, "highlight": False, "markup": False, "emoji": False}
    if color is not None:
        more |= {"force_terminal": color, "no_color": not color, "color_system": "standard" if color else None}
    made = Console(**more)
    is_wide = not (sys.stderr if stderr else sys.stdout).isatty() and not color
    return Console(**more, width=_PLAIN_WIDTH) if is_wide else made


def _is_quiet() -> bool:
    ctx = click.get_current_context(silent=True)
    return ctx is not None and bool(ctx.meta.get(QUIET))


def print_error(message: str, code: str = "") -> None:
    """Print an error, its code in brackets and a colored hint to standard error."""
    first, *rest = message.split("\n")
    click.echo(click.style("error: ", fg="red", bold=True) + first + (f" [{code}]" if code else ""), err=True)
    for line in rest:
        click.echo(click.style(line, fg="cyan") if line.startswith("  hint: ") else line, err=True)


def note(message: str) -> None:
    """Print a note on standard error unless ``-q`` is set."""
    if not _is_quiet():
        click.echo(message, err=True)


def print_json(data: object) -> None:
    """Print data as one line of JSON; a float that JSON lacks becomes the text ``nan``, ``inf`` or ``-inf``."""
    click.echo(json.dumps(_plain(data), allow_nan=False, default=str))


def _plain(data: object) -> object:
    if isinstance(data, dict):
        return {str(key): _plain(value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_plain(value) for value in data]
    return str(data) if isinstance(data, float) and not math.isfinite(data) else data


class Rows(NamedTuple):
    """A table for ``print_table``."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[str] = ()
    styles: Sequence[str] = ()


def text_of(part: str | Rows) -> str:
    """Return a part of a command's output as text. A table becomes lines of text."""
    if isinstance(part, str):
        return part
    from rich import box, table, text  # start-up: few verbs print a table

    screen = console()
    widths = _widths(part.columns, part.rows, screen.width)
    if widths is None:
        return "\n".join(_split_rows(part, screen.width))
    made = table.Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for column, width in zip(part.columns, widths, strict=True):
        made.add_column(column, justify="right" if column in part.right else "left", overflow="fold", width=width)
    for index, row in enumerate(part.rows):
        made.add_row(*(text.Text(cell) for cell in row), style=part.styles[index] if part.styles else None)
    with screen.capture() as lines:
        screen.print(made)
    # Cells are padded to their column; what that leaves at the end of a line is of no use in a file.
    return "\n".join(line.rstrip() for line in lines.get().splitlines())


def show(parts: Iterable[str | Rows]) -> None:
    """Print the parts of a command's output."""
    for part in parts:
        click.echo(text_of(part))


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = (), styles: Sequence[str] = ()
) -> None:
    """Print a table. The columns in ``right`` are aligned to the right, and ``styles`` has one style for each row.

    If words would not fit, each row is printed as several lines with the column and its value.
    """
    show([Rows(columns, rows, right, styles)])


_BETWEEN = 3
"""Columns of a terminal between two of a table."""


def _widths(columns: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """Return the widths of the columns. Each column fits its longest word, and narrow columns are served first.

    Return None if the words alone don't fit.
    """
    from rich.cells import cell_len  # start-up: few verbs print a table

    cells = list(zip(columns, *rows, strict=True))
    widths = [max((cell_len(word) for cell in column for word in cell.split()), default=0) for column in cells]
    left = room - sum(widths) - _BETWEEN * (len(widths) - 1)
    if left < 0:
        return None
    wishes = [max(map(cell_len, column)) - width for column, width in zip(cells, widths, strict=True)]
    for index in sorted(range(len(widths)), key=wishes.__getitem__):
        widths[index] += min(wishes[index], left)
        left -= min(wishes[index], left)
    return widths


def _split_rows(part: Rows, width: int) -> Iterator[str]:
    names = max(map(len, part.columns))
    for index, row in enumerate(part.rows):
        if index:
            yield ""
        for column, cell in zip(part.columns, row, strict=True):
            if cell:
                name_column = f"{column:{names}}  "
                room = max(width - len(name_column), 1)
                lines = textwrap.wrap(cell, room, break_long_words=False, break_on_hyphens=False) or [""]
                shown = f"\n{' ' * len(name_column)}".join(lines)
                color = part.styles[index].removeprefix("bold ") if part.styles else ""
                yield name_column + (click.style(shown, fg=color) if color else shown)


def printable(text: str) -> str:
    """Escape terminal control characters, because the names in a file are untrusted."""
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


@contextmanager
def progress(task: str) -> Iterator[Callable[[int, int, str], None]]:
    """Show progress on standard error during the block if it is a terminal.

    Yield a function to call with (done, total, name of the last item).
    """
    # Start-up: few verbs show how far they are.
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    screen = console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[last]}"),
    )
    with Progress(*columns, console=screen, transient=True, disable=_is_quiet() or not sys.stderr.isatty()) as bar:
        shown = bar.add_task(task, total=None, last="")

        def tick(done: int, total: int, last: str) -> None:
            bar.update(shown, completed=done, total=total, last=last)

        yield tick


def shown_bytes(size: int) -> str:
    """Return a number of bytes with thousands separators."""
    return f"{size:,}"


def shown_time(seconds: float) -> str:
    """Write a time with three digits and the unit that suits it."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}" if seconds * scale < 1000 else f"{seconds * scale:.0f} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def several(
    *options: Callable[[Callable[..., None]], Callable[..., None]],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Combine the decorators of several options into one. The help lists them in this order."""
    return lambda function: functools.reduce(lambda made, option: option(made), reversed(options), function)


def settings(
    name: str, kind: type[tuple[Any, ...]], *options: Callable[[Callable[..., None]], Callable[..., None]]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds options to a command, which receives their values as an object of ``kind`` called
    ``name``.

    An option belongs to the field of ``kind`` with its name.
    """
    fields: tuple[str, ...] = kind._fields  # type: ignore[attr-defined]

    def add(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def verb(*given: object, **values: Any) -> None:
            mine = {field: values.pop(field) for field in fields if field in values}
            command(*given, **{name: kind(**mine)}, **values)

        return several(*options)(verb)

    return add


class PlotOptions(NamedTuple):
    """The file of a plot, and whether its colors are dark."""

    plot: Path | None
    dark: bool


def plot_options(help: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds ``--plot`` and ``--dark`` to a command, as ``drawing``."""
    return settings(
        "drawing",
        PlotOptions,
        click.option("--plot", metavar="PATH", type=click.Path(path_type=Path), help=help),
        click.option("--dark", is_flag=True, help="Use dark colors for the plot."),
    )


def _remember_json(ctx: click.Context, _parameter: click.Parameter, as_json: bool) -> bool:
    ctx.meta[JSON] = as_json
    return as_json


json_option = click.option(
    "--json", "as_json", is_flag=True, callback=_remember_json, is_eager=True, help="Print JSON instead of text."
)
