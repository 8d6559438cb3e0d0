"""``cujit inspect --needs``: what PTX uses, and what of it the CPU device refuses.

JSON, schema 1: an object with ``schema`` (1), ``files`` and ``table``. A file has ``name`` and ``images``: its PTX, and
cubins that carry PTX where none lies beside them.

An image has ``index``, ``arch``, ``ptx`` and ``target`` (as declared), ``needs`` (``ptx`` and ``arch``: the oldest that
have all its constructs), ``instructions``, ``special_registers`` and ``features`` (lists of ``name``, ``count`` and
``refused``: why, or null), ``runs_on_cpu``, ``refusals`` (``line``, ``construct``, ``why``) and ``error``: null, or why
it cannot be read, beside ``index`` and ``arch`` alone.

``table`` is the whole ISA: ``rows`` of which ``whole``, ``partly`` and ``none`` run on the CPU device, ``unknown`` ones
whose forms are not listed, and ``share``, from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from cujit.arch.support import dotted
from cujit.artifact import ImageKind
from cujit.cli.console import print_json, print_table, printable
from cujit.devices.cpu.implemented import Total, total
from cujit.errors import FormatError, counted
from cujit.inspection.needs import PtxNeeds, Use, image_needs
from cujit.inspection.values import ImageInfo, Inspection
from cujit.values import attributes

_MOST_USES = 24
_MOST_REFUSALS = 40
Found = tuple[Inspection, ImageInfo, PtxNeeds | FormatError]


def show_needs(inspections: Sequence[Inspection], *, everything: bool, as_json: bool) -> bool:
    """Print the requirements of the PTX in files, and return whether all of it could be read.

    Raises:
        FormatError: no file contains PTX.
    """
    found = [(i, image, _examined(i, image)) for i in inspections for image in i.with_ptx]
    if not found:
        raise FormatError("the file contains no PTX", help="run cujit inspect FILE to list its contents")
    if as_json:
        print_json({"schema": 1, "files": _files(inspections, found), "table": _table(total())})
    else:
        for inspection, image, needs in found:
            _print(inspection, image, needs, everything)
        click.echo(_summary(total()))
    return not any(isinstance(needs, FormatError) for _, _, needs in found)


def _examined(inspection: Inspection, image: ImageInfo) -> PtxNeeds | FormatError:
    try:
        return image_needs(image, inspection.name)
    except FormatError as e:
        return e


# -- JSON -------------------------------------------------------------------------------------------------


def _files(inspections: Sequence[Inspection], found: Sequence[Found]) -> list[dict[str, Any]]:
    return [
        {"name": i.name, "images": [_image(image, needs) for owner, image, needs in found if owner is i]}
        for i in inspections
    ]


def _image(image: ImageInfo, needs: PtxNeeds | FormatError) -> dict[str, Any]:
    about: dict[str, Any] = {"index": image.index, "arch": None if image.arch is None else str(image.arch)}
    if isinstance(needs, FormatError):
        return about | {"error": needs.message}
    return about | {
        "ptx": dotted(needs.version),
        "target": list(needs.target),
        "needs": {"ptx": dotted(needs.oldest), "arch": needs.arch},
        "instructions": [_use(use) for use in needs.instructions],
        "special_registers": [_use(use) for use in needs.special_registers],
        "features": [_use(use) for use in needs.features],
        "runs_on_cpu": not needs.refusals,
        "refusals": [attributes(refusal, "line construct why") for refusal in needs.refusals],
        "error": None,
    }


def _use(use: Use) -> dict[str, Any]:
    return {"name": use.name, "count": use.count, "refused": use.why or None}


def _table(whole: Total) -> dict[str, Any]:
    return {**attributes(whole, "rows whole partly none unknown"), "share": round(whole.share, 4)}


# -- text -------------------------------------------------------------------------------------------------


def _print(inspection: Inspection, image: ImageInfo, needs: PtxNeeds | FormatError, everything: bool) -> None:
    title = printable(f"{inspection.name}: image {image.index}" if len(inspection) > 1 else inspection.name)
    title += ", recovered from the cubin" * (image.kind is ImageKind.CUBIN)
    if isinstance(needs, FormatError):
        click.echo(f"{title}: {printable(needs.message)}\n")
        return
    declared = f"PTX {dotted(needs.version)} for {', '.join(needs.target)}"
    click.echo(f"{title}: {printable(declared)}; needs PTX {dotted(needs.oldest)} and {needs.arch}")
    for column, uses in (
        ("feature", needs.features), ("special register", needs.special_registers), ("instruction", needs.instructions),
    ):  # fmt: skip
        _print_uses(column, uses, everything)
    _print_refusals(needs, everything)
    click.echo()


def _print_uses(column: str, uses: Sequence[Use], everything: bool) -> None:
    """Print a table of uses: all refused ones, and the most frequent others."""
    if not uses:
        return
    shown = uses if everything else [use for k, use in enumerate(uses) if k < _MOST_USES or use.why]
    rows = [
        (printable(use.name), str(use.count), *(["refused" if use.why else "yes"] * _has_requirement(column)))
        for use in shown
    ]
    columns = (column, "times", *(["CPU device"] * _has_requirement(column)))
    print_table(columns, rows, right=("times",), styles=["red" if use.why else "" for use in shown])
    if len(shown) < len(uses):
        click.echo(f"and {len(uses) - len(shown)} more; --all shows them")


def _has_requirement(column: str) -> bool:
    """Return whether the CPU device has to support a use. Features consist of instructions and variables."""
    return column != "feature"


def _print_refusals(needs: PtxNeeds, everything: bool) -> None:
    if not needs.refusals:
        click.echo("the CPU device executes all of it")
        return
    count = len(needs.refusals)
    click.echo(f"the CPU device rejects kernels in it because of {counted(count, 'construct')}:")
    shown = needs.refusals if everything else needs.refusals[:_MOST_REFUSALS]
    for refusal in shown:
        click.echo(printable(f"  line {refusal.line}: {refusal.construct}: {refusal.why}"))
    if len(shown) < count:
        click.echo(f"  and {count - len(shown)} more; --all shows them")


def _summary(whole: Total) -> str:
    known = whole.rows - whole.unknown
    return (
        f"of the {known} rows of the ISA's table the CPU device executes {whole.whole} whole and {whole.partly} in "
        f"part, {whole.share:.1%} of their forms; {whole.unknown} rows more have no list of forms yet "
        "(docs/instructions.md)"
    )
