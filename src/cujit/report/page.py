"""The page of a report: one self-contained file that loads nothing."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cujit.artifact.reading import file_errors
from cujit.workers.package_files import data_path

_ASSETS = Path(data_path("report", "assets"))

LIMIT_BYTES = 2_000_000
"""No page is longer."""
_LEAST_TEXT_BYTES = 200_000
"""What all texts together have room for, whatever else there is."""
_NOTE_BYTES = 300
"""More than a note takes, and what a listing has beside its lines."""
_BY_LINE = ("lines", "sources", "ptx_lines")

_POLICY = {"default-src": "'none'", "base-uri": "'none'", "form-action": "'none'"}
"""What a browser lets a page do: nothing, but for its own styles and scripts, which it knows by their hashes.

Source: W3C, "Content Security Policy Level 3".
"""


def page(
    record: Mapping[str, Any],
    *,
    scripts: Sequence[str] = (),
    styles: Sequence[str] = (),
    policy: Mapping[str, str] | None = None,
    nonce: str = "",
) -> str:
    """Return the HTML page of a record. Contents that exceed the maximum size are cut, and the notes name them.

    ``scripts`` run before the page's script. ``styles`` follow the page's style. ``policy`` adds directives to the
    content security policy. A page that a server updates needs ``connect-src``. ``nonce`` allows a script of the page
    to add styles.
    """
    style = "\n".join([_asset("page.css"), *styles])
    script = [*scripts, _asset("drawing.js"), _asset("page.js")]
    of_style = f"{_hash(style)} 'nonce-{nonce}'" if nonce else _hash(style)
    allowed = {**_POLICY, "script-src": " ".join(map(_hash, script)), "style-src": of_style, **(policy or {})}
    parts = {
        "policy": html.escape("; ".join(f"{name} {value}" for name, value in allowed.items())),
        "title": html.escape(str(record["title"]).encode("utf-8", "replace").decode()),
        "style": style,
        "scripts": "\n".join(f"<script>{text}</script>" for text in script),
        "record": "",
    }
    room = LIMIT_BYTES - len(_filled(parts).encode())
    return _filled({**parts, "record": fitted(record, room)})


@file_errors()
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text()


def _filled(parts: Mapping[str, str]) -> str:
    """Return the template with its parts inserted from left to right. Inserted parts are not expanded again."""
    first, *rest = _asset("page.html").split("{{")
    pieces = [first]
    for piece in rest:
        name, _, text = piece.partition("}}")
        pieces += [parts[name], text]
    return "".join(pieces)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _written(value: object) -> str:
    """Return a value as JSON for a script block. The JSON can neither end the block nor begin a comment."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


# -- what has no room -----------------------------------------------------------------------------------------


def fitted(record: Mapping[str, Any], room: int) -> str:
    """Return a record as JSON, cut to ``room`` bytes if possible.

    Texts are cut first, then images and kernels, then counts of instructions. The counts with the most warps are kept
    longest.
    """
    text = _written(record)
    if len(text) <= room:
        return text
    kept = {**record, "notes": list(record["notes"])}
    kept["listings"] = [dict(listing) for listing in record["listings"]]
    kept["kernels"] = [
        {**kernel, "profile": kernel["profile"] and dict(kernel["profile"])} for kernel in kept["kernels"]
    ]
    _cut_texts(kept, len(text) - room)
    kernels = max((len(image["kernels"]) for file in record["inspections"] for image in file["images"]), default=0)
    while kernels and len(_written(kept)) > room:
        kernels //= 2
        _cut_images(kept, record, kernels)
    rows = max((len(k["profile"]["instructions"]) for k in kept["kernels"] if k["profile"]), default=0)
    while rows and len(_written(kept)) > room:
        rows //= 2
        _cut_rows(kept, rows)
    return _written(kept)


def _cut_texts(record: dict[str, Any], over: int) -> None:
    """Remove ``over`` bytes from the longest listings."""
    sizes = [len(_written(listing)) for listing in record["listings"]]
    left, waiting = max(sum(sizes) - over - _NOTE_BYTES * len(sizes), _LEAST_TEXT_BYTES), len(sizes)
    for size, k in sorted(zip(sizes, range(len(sizes)), strict=True)):
        share = min(size, left // waiting)
        left, waiting = left - share, waiting - 1
        if share < size:
            _cut_lines(record["listings"][k], share - _NOTE_BYTES, record["notes"])


def _cut_lines(listing: dict[str, Any], room: int, notes: list[str]) -> None:
    """Keep ``room`` bytes of a listing, starting at the first line with a source line."""
    lines, sources, of_ptx = (listing[name] for name in _BY_LINE)
    begin = end = next((k for k, source in enumerate(sources) if source), 0)
    while end < len(lines):
        room -= len(_written([lines[end], sources[end : end + 1], of_ptx[end : end + 1]]))
        if room < 0:
            break
        end += 1
    listing.update((name, listing[name][begin:end]) for name in _BY_LINE)
    listing["first"] += begin
    notes.append(f"{listing['name']}: {end - begin:,} of {len(lines):,} lines are here, for the size of this page")


_LISTS = ("kernels", "functions", "variables", "undefined")


def _cut_images(kept: dict[str, Any], record: Mapping[str, Any], most: int) -> None:
    """Keep at most ``most`` images, and at most ``most`` kernels and other names of each image."""
    kept["inspections"] = [
        {**file, "images": [image | {name: image[name][:most] for name in _LISTS} for image in file["images"][:most]]}
        for file in record["inspections"]
    ]
    sentence = f"of images and kernels {most:,} at most are here, for the size of this page"
    kept["notes"] = [note for note in kept["notes"] if not note.startswith("of images")] + [sentence]


def _cut_rows(record: dict[str, Any], rows: int) -> None:
    """Keep the counts of at most ``rows`` instructions of each kernel, preferring the most executed."""
    for kernel in record["kernels"]:
        profile = kernel["profile"]
        if profile and len(profile["instructions"]) > rows:
            ranked = sorted(profile["instructions"], key=lambda row: -row.get("warps", 0))[:rows]
            profile["instructions"] = sorted(ranked, key=lambda row: row["ptx_line"])
            sentence = f"{kernel['name']}: counts of the {rows:,} instructions of most warps are here, for the size"
            record["notes"] = [n for n in record["notes"] if not n.startswith(f"{kernel['name']}: counts")] + [sentence]
