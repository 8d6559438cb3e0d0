"""How results look in a notebook: the texts and tables that the verbs print, as HTML."""

from __future__ import annotations

import html
import linecache
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any

from cujit.artifact import Artifact
from cujit.artifact.reading import quoted_lines
from cujit.budget.report import BudgetReport
from cujit.cli.budget import render_budgets
from cujit.cli.console import Rows, printable
from cujit.cli.inspect.tables import KernelFilter, render_changes, render_images
from cujit.cli.occupancy import render_occupancy
from cujit.cli.profile import render_bounds, render_cost_changes, render_costs
from cujit.devices.cpu.observe.profile import Profile
from cujit.errors import MEMORY, BudgetError, CompileError, CujitError, KernelFaultError, counted
from cujit.errors.stories import Story
from cujit.inspection.read import inspect
from cujit.inspection.values import Inspection, KernelInfo
from cujit.program import Request
from cujit.report.listings import Listing
from cujit.report.report import KernelReport, ReportPage

Rendered = Iterable[str | Rows | Story]

_MOST_ERRORS = 20
_AROUND = 2
"""Lines that an excerpt shows before and after the one that a message is of."""


def _of_inspection(inspection: Inspection) -> Rendered:
    return render_images(inspection, KernelFilter())


def _of_artifact(artifact: Artifact) -> Rendered:
    try:
        yield from _of_inspection(inspect(artifact))
    except CujitError as e:  # LTO-IR of a bare compile, say: only NVIDIA's linker reads it
        yield f"{artifact!r}: {e.message}"


def rows_of(listing: Listing) -> Rows:
    """Write a listing as a table: each line, and the source line that it comes from."""
    places = ["" if source is None else str(source) for source in listing.sources] or [""] * len(listing.lines)
    return Rows(("source", listing.name), list(zip(places, listing.lines, strict=True)))


def _of_profile(profile: Profile) -> Rendered:
    for kernel in profile.kernels:
        yield from render_costs(kernel)
    if not profile.kernels:
        yield "nothing was launched yet"


def _of_budget_error(error: BudgetError) -> Rendered:
    return render_budgets(error.report) if isinstance(error.report, BudgetReport) else [str(error)]


def _of_report(page: ReportPage) -> Rendered:
    """Write the small form of a report: resources, findings, and what launches cost, without the listings."""
    yield page.title
    rows = [_resources(kernel, page) for kernel in page.kernels]
    if rows:
        yield Rows(_RESOURCES, rows, _RESOURCES[1:-1])
    for error in page.errors:
        yield from _of_error(error)
    for kernel in page.kernels:
        if kernel.profile is not None:
            yield from render_costs(kernel.profile, kernel.on if isinstance(kernel.on, str) else None)
    yield from page.notes


_RESOURCES = (
    "kernel", "registers", "shared bytes", "spilled bytes", "code bytes", "block", "occupancy", "limited by",
)  # fmt: skip


def _resources(kernel: KernelReport, page: ReportPage) -> list[str]:
    """Write the row of a kernel; what is not known stays empty."""
    infos = [info for each in page.inspections for info in each.kernels if info.is_called(kernel.name)]
    info = next((info for info in infos if info.registers is not None), KernelInfo(kernel.name))
    numbers = (info.registers, info.shared_bytes, info.spill_bytes, info.code_bytes)
    try:
        room = kernel.occupancy and (kernel.occupancy.at(kernel.block) if kernel.block else kernel.occupancy.best())
    except CujitError:  # a block that such a kernel can't have
        room = None
    full = [f"{room.block:,}", f"{room.fraction:.0%} of {room.product.name}"] if room else ["", ""]
    limits = ", ".join(limiter.value for limiter in room.limited_by) if room else ""
    return [kernel.name, *("" if number is None else f"{number:,}" for number in numbers), *full, limits]


def _of_error(error: CujitError) -> Rendered:
    if isinstance(error, CompileError):
        return _of_compile_error(error)
    return _of_fault(error) if isinstance(error, KernelFaultError) else [str(error)]


# -- what does not compile ----------------------------------------------------------------------------------


def _of_compile_error(error: CompileError) -> Rendered:
    yield error.message.partition("\n")[0]
    for diagnostic in error.diagnostics[:_MOST_ERRORS]:
        yield f"{diagnostic.severity}: {diagnostic.message}"
        at = (diagnostic.file, diagnostic.line, diagnostic.column)
        yield from _excerpt(*at, _text_of(error.request, diagnostic.file), diagnostic.source_line)
    left = len(error.diagnostics) - _MOST_ERRORS
    if left > 0:
        yield f"and {counted(left, 'message')} more"
    if not error.diagnostics:
        yield from filter(None, (error.message.partition("\n")[2], error.log.strip()))
    if error.help:
        yield f"hint: {error.help}"


def _text_of(request: object, file: str) -> str:
    """Return the text that a message refers to: of the request, or of a file."""
    source = request.source if isinstance(request, Request) else None
    if source is not None and file in (source.name, source.path):
        return source.text
    header = None if source is None else dict(source.headers).get(file)
    return "".join(linecache.getlines(file)) if header is None else header


def _excerpt(file: str, at: int, column: int, text: str, line: str = "") -> Iterator[str]:
    """Yield a line with a caret under its column, and some lines around it, with their numbers.

    Where the text has no such line, it is ``line`` alone.
    """
    lines = dict(enumerate(text.splitlines(), 1))
    lines = {n: lines[n] for n in range(at - _AROUND, at + _AROUND + 1) if lines.get(n, "").strip()}
    if line:
        lines.setdefault(at, line)
    if at not in lines:
        return
    width = len(str(max(lines)))
    shown = [file]
    for n in sorted(lines):
        shown.append(f"{'>' if n == at else ' '} {n:{width}} | {lines[n]}")
        if n == at and column:
            # Tabs stay tabs, so that the caret stands under its character.
            lead = "".join("\t" if c == "\t" else " " for c in lines[n][: column - 1])
            shown.append(f"  {'':{width}} | {lead}^")
    yield "\n".join(shown)


# -- what cannot go on --------------------------------------------------------------------------------------

_PLACE = re.compile(r"(?:from |\()([^\s()]+):(\d+)")
"""How a fault names lines of source."""


def _of_fault(error: KernelFaultError) -> Rendered:
    text = error.message.replace(f"{MEMORY}/", "")  # where texts are that are no files
    first, _, more = text.partition("\n")
    yield first
    yield more
    for file, line in dict.fromkeys(_PLACE.findall(text)):
        yield from _excerpt(file, int(line), 0, "".join(quoted_lines(file)))
    if error.help:
        yield f"hint: {error.help}"
    if error.story is not None:
        yield error.story
    yield from (note for note in getattr(error, "__notes__", ()) if note != str(error.story))


# -- as HTML ------------------------------------------------------------------------------------------------

RENDERERS: dict[tuple[str, str], Callable[[Any], Rendered]] = {
    ("cujit.artifact.artifact", "Artifact"): _of_artifact,
    ("cujit.inspection.values", "Inspection"): _of_inspection,
    ("cujit.inspection.compare", "Comparison"): render_changes,
    ("cujit.occupancy.result", "Occupancy"): render_occupancy,
    ("cujit.budget.report", "BudgetReport"): render_budgets,
    ("cujit.devices.cpu.observe.profile", "Profile"): _of_profile,
    ("cujit.devices.cpu.observe.measures", "ProfiledKernel"): render_costs,
    ("cujit.profile.bounding", "KernelBounds"): render_bounds,
    ("cujit.profile.comparing", "CostComparison"): render_cost_changes,
    ("cujit.report.report", "ReportPage"): _of_report,
    ("cujit.errors", "BudgetError"): _of_budget_error,
    ("cujit.errors", "CompileError"): _of_compile_error,
    ("cujit.errors", "KernelFaultError"): _of_fault,
}
"""What is said of each type, by its module and name: who has a value of it has imported it."""

# What a terminal has colours for. A notebook may be light or dark, so text keeps the colour of the page.
_STYLES = {
    "red": "background:rgba(230,60,60,.2)",
    "yellow": "background:rgba(220,170,0,.2)",
    "bold green": "background:rgba(40,170,80,.2);font-weight:bold",
    "green": "background:rgba(40,170,80,.2)",
    "dim": "opacity:.65",
}
_FONT = "font-family:var(--jp-code-font-family,monospace)"


def html_of(parts: Rendered) -> str:
    """Write what is said as HTML without scripts and colours of text, and nothing in it as markup."""
    written = "".join(_WRITERS.get(kind, _lines)(group) for kind, group in groupby(parts, type))
    # JupyterLab would read what stands between two dollars as a formula.
    return f'<div class="tex2jax_ignore mathjax_ignore" style="overflow-x:auto">{written}</div>'


def _lines(texts: Iterable[str]) -> str:
    """Write sentences as such, and what has several lines as it is laid out."""
    return "".join(
        f'<pre style="{_FONT};margin:.2em 0 .6em">{_escaped(text)}</pre>'
        if "\n" in text
        else f'<div style="margin:.2em 0">{_escaped(text)}</div>'
        for text in (each.strip("\n") for each in texts)
        if text
    )


def _pictures(stories: Iterable[Story]) -> str:
    return "".join(f'<div style="margin:.6em 0">{story.svg()}</div>' for story in stories)


def _table(table: Rows) -> str:
    sides = ["right" if column in table.right else "left" for column in table.columns]
    styles = [_STYLES.get(style, "") for style in table.styles] or [""] * len(table.rows)
    head = _row("th", table.columns, sides, "")
    body = "".join(_row("td", row, sides, style) for row, style in zip(table.rows, styles, strict=True))
    return f'<table style="{_FONT};margin:.4em 0"><thead>{head}</thead><tbody>{body}</tbody></table>'


def _row(tag: str, cells: Iterable[str], sides: Iterable[str], style: str) -> str:
    written = "".join(
        f'<{tag} style="text-align:{side}">{_escaped(cell)}</{tag}>' for cell, side in zip(cells, sides, strict=True)
    )
    return f'<tr style="{style}">{written}</tr>' if style else f"<tr>{written}</tr>"


def _escaped(text: str) -> str:
    lines = ("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))
    return html.escape("\n".join(lines))


_WRITERS: dict[type, Callable[[Any], str]] = {
    Rows: lambda tables: "".join(map(_table, tables)),
    Story: _pictures,
}
