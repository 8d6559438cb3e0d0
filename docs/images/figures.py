"""Draw the pictures whose numbers were measured, from the tables of the pages that tell of them, or counted.

``python docs/images/figures.py`` writes ``speed-*.svg`` of docs/cpu.md, ``headers-*.svg`` of docs/cache.md,
``pairs-*.svg`` of docs/performance.md and ``profile-*.svg`` of the transposes that docs/profile.md runs, for light
pages and dark ones; a test compares them. ``pairs_narrow-*.svg`` is for phones. Text stays text, in the reader's own
font.
"""

from __future__ import annotations

import functools
import math
import re
import textwrap
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from cujit.profile import ProfiledKernel, advice_for

DOCS = Path(__file__).parents[1]
_WIDTH, _LEFT, _RIGHT, _ROW = 900, 330, 850, 27
_PHONE_WIDTH, _PHONE_ROW = 360, 48


class Colors(NamedTuple):
    """What a picture is drawn with: text, what stands back, lines, and three series."""

    text: str
    muted: str
    line: str
    first: str
    second: str
    third: str


LIGHT = Colors("#1f2328", "#59636e", "#d1d9e0", "#1a7f37", "#8250df", "#bc4c00")
DARK = Colors("#f0f6fc", "#9198a1", "#3d444d", "#3fb950", "#ab7df8", "#f0883e")


def table(page: str, first: str) -> list[list[str]]:
    """Give the rows of the table of a page whose first column is called ``first``, without its head."""
    found = re.search(rf"^\| {re.escape(first)} \|.*\n\|[-|]+\n((?:\|.*\n)+)", (DOCS / page).read_text(), re.MULTILINE)
    assert found, f"{page} has no table of {first}"
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in found[1].splitlines()]


def _text(x: float, y: float, said: str, fill: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}"{more}>{escape(said)}</text>'


def _picture(parts: list[str], title: str, height: float, colors: Colors, width: int = _WIDTH) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:.0f}" width="{width}" '
        f'height="{height:.0f}" font-family="system-ui, sans-serif" font-size="14" role="img">'
    )
    shown = _text(0, 18, title, colors.text, ' font-size="17" font-weight="600"')
    return "\n".join([head, f"<title>{escape(title)}</title>", shown, *parts, "</svg>\n"])


def _key(y: float, names: Sequence[str], fills: Sequence[str], colors: Colors) -> list[str]:
    """Say what the colours are."""
    parts, x = [], float(_LEFT)
    for said, fill in zip(names, fills, strict=False):
        parts += [f'<circle cx="{x + 6:.1f}" cy="{y - 5:.1f}" r="6" fill="{fill}"/>']
        parts += [_text(x + 18, y, said, colors.muted)]
        x += 30 + 8 * len(said)
    return parts


def speed(colors: Colors) -> str:
    """Draw how fast the CPU device is, against C and against PoCL, over a scale of powers of two."""
    rows = [row for row in table("cpu.md", "kernel") if all(row)]
    fills = (colors.first, colors.second, colors.third)

    def place(times: float) -> float:
        return _LEFT + (math.log2(times) + 2) / 7 * (_RIGHT - _LEFT)

    top, bottom = 62.0, 62.0 + _ROW * len(rows)
    parts = _key(44, ("× C, 2 cores", "× C, 16 cores", "× PoCL, 16 cores"), fills, colors)
    for power in range(-2, 6):
        x, said = place(2.0**power), f"{2.0**power:g}"
        parts += [
            f'<path d="M{x:.1f} {top:.1f}V{bottom:.1f}" stroke="{colors.text if power == 0 else colors.line}"/>',
            _text(x, bottom + 20, said, colors.muted, ' text-anchor="middle"'),
        ]
    for number, (name, *times) in enumerate(rows):
        y = top + _ROW * (number + 0.5)
        parts += [_text(_LEFT - 24, y + 5, name, colors.text, ' text-anchor="end"')]
        parts += [
            f'<circle cx="{place(float(said)):.1f}" cy="{y:.1f}" r="6" fill="{fill}"><title>{said}</title></circle>'
            for said, fill in zip(times, fills, strict=True)
        ]
    return _picture(parts, "Speed of CUDA kernels on the CPU device", bottom + 30, colors)


def headers(colors: Colors) -> str:
    """Draw what a kernel with hundreds of headers costs: from a pack, the cache and the compiler."""
    rows = [row for row in table("cache.md", "CPU ms") if "without" not in row[0]]
    most = max(float(cell) for _, *cells in rows for cell in cells)
    top = 62.0
    parts = _key(44, ("first kernel of a process", "second kernel"), (colors.first, colors.second), colors)
    for number, (name, *cells) in enumerate(rows):
        y = top + 2 * _ROW * number
        parts += [_text(_LEFT - 24, y + 27, name, colors.text, ' text-anchor="end"')]
        for line, (said, fill) in enumerate(zip(cells, (colors.first, colors.second), strict=True)):
            width = max(float(said) / most * (_RIGHT - _LEFT - 50), 2)
            below = y + 4 + 20 * line
            parts += [f'<rect x="{_LEFT}" y="{below:.1f}" width="{width:.1f}" height="16" rx="2" fill="{fill}"/>']
            parts += [_text(_LEFT + width + 8, below + 13, f"{float(said):,g} ms", colors.muted, ' font-size="13"')]
    title = "Processor time of cujit.compile for a kernel that includes CUB"
    return _picture(parts, title, top + 2 * _ROW * len(rows) + 6, colors)


def pairs(colors: Colors, *, narrow: bool = False) -> str:
    """Draw the pairs of the first machine: the median ratio of each case, and its quartiles as a line.

    A ``narrow`` picture, for phones, has each name above its line.
    """
    rows = [(name, float(middle), *map(float, spread.split(" to "))) for name, _, _, middle, spread in _pairs()]
    low, high = math.log2(min(0.1, *(row[2] for row in rows))), math.log2(max(1.25, *(row[3] for row in rows)))

    left, right, row, middle_of_row = (0, 350, _PHONE_ROW, 0.75) if narrow else (_LEFT + 90, _RIGHT, _ROW, 0.5)

    def place(ratio: float) -> float:
        return left + (math.log2(ratio) - low) / (high - low) * (right - left)

    top, bottom = 40.0, 40.0 + row * len(rows)
    parts = []
    for ratio in (0.125, 0.25, 0.5, 1.0):
        stroke = colors.text if ratio == 1 else colors.line
        parts += [f'<path d="M{place(ratio):.1f} {top:.1f}V{bottom:.1f}" stroke="{stroke}"/>']
        parts += [_text(place(ratio), bottom + 20, f"{ratio:g}", colors.muted, ' text-anchor="middle"')]
    for number, (name, middle, first, last) in enumerate(rows):
        y, fill = top + row * (number + middle_of_row), colors.first if middle <= 1 else colors.second
        x, below, anchor = (0, -12, "start") if narrow else (left - 24, 5, "end")
        label = name.replace("`", "")
        parts += [_text(x, y + below, label, colors.text, f' text-anchor="{anchor}" font-size="13"')]
        parts += [f'<path d="M{place(first):.1f} {y:.1f}H{place(last):.1f}" stroke="{fill}" stroke-width="2"/>']
        parts += [f'<circle cx="{place(middle):.1f}" cy="{y:.1f}" r="5" fill="{fill}"/>']
    title = "CPU time against the first version" if narrow else "CPU time against the first version: below 1 is faster"
    return _picture(parts, title, bottom + 30, colors, _PHONE_WIDTH if narrow else _WIDTH)


def _pairs() -> list[list[str]]:
    return table("performance.md", "benchmark")


@functools.cache
def _transposes() -> list[tuple[str, str, ProfiledKernel]]:
    """Run the walk of docs/profile.md; give each kernel with its title and source."""
    text, rest, _ = (DOCS / "profile.md").read_text().partition("\n## Reduction ")
    assert rest, "docs/profile.md has no reduction behind its transposes"
    space: dict[str, Any] = {}
    walk = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    exec(compile(walk, "profile.md", "exec"), space)
    sources = [re.findall(r"slow = cost\('''(.*?)'''", text, re.DOTALL)[0], space["tile"], space["tile"]]
    titles = ("A transpose that writes columns", "Through shared memory", "With rows of 33 words")
    return list(zip(titles, sources, (space["slow"], space["shared"], space["padded"]), strict=True))


def profile(colors: Colors) -> str:
    """Draw what each access of three transposes costs, by line, and what is advised."""
    parts, y = [], 48.0
    for title, source, kernel in _transposes():
        found = advice_for(kernel)
        parts += [_text(0, y, title, colors.text, ' font-weight="600"')]
        for row in kernel.instructions:
            if row.access and row.space in ("global", "shared") and row.source is not None:
                m = row.measures
                is_global = row.space == "global"
                each = m.sectors_per_request if is_global else m.wavefronts / m.shared_requests
                said = f"{each:.0f} {'sector' if is_global else 'wavefront'}{'' if each == 1 else 's'}"
                code = _shortened(source.splitlines()[row.source.line - 1].strip())
                y += 22
                verb = "load" if row.access == "ld" else "store"
                bad = any(a.line == row.source and f"'s {verb} at" in a.finding for a in found)
                parts += [
                    _text(8, y, f"{row.source.line}  {code}", colors.muted, _MONOSPACE),
                    _text(_BARS - 12, y, f"{verb}, {row.space}", colors.muted, ' text-anchor="end" font-size="13"'),
                    f'<rect x="{_BARS}" y="{y - 12:.1f}" width="{each * 7:.1f}" height="14" rx="2" '
                    f'fill="{colors.third if bad else colors.first}"/>',
                    _text(_BARS + 8 + each * 7, y, said, colors.text, ' font-size="13"'),
                ]
        for advice in found:
            for line in textwrap.wrap(str(advice), 128):
                y += 19
                parts += [_text(8, y, line, colors.third, ' font-size="13"')]
        y += 34
    return _picture(parts, "cujit profile: cost of each warp access, counted without a GPU", y - 18, colors)


_BARS = 560
_MONOSPACE = ' font-family="ui-monospace, monospace" font-size="12" xml:space="preserve"'


def _shortened(code: str) -> str:
    return code if len(code) <= 54 else f"{code[:22].rstrip()} … {code[-29:].lstrip()}"


PICTURES: dict[str, Callable[[Colors], str]] = {
    "speed": speed,
    "headers": headers,
    "pairs": pairs,
    "pairs_narrow": functools.partial(pairs, narrow=True),
    "profile": profile,
}


def main() -> None:
    """Write all."""
    for name, draw in PICTURES.items():
        for shade, colors in (("light", LIGHT), ("dark", DARK)):
            (Path(__file__).parent / f"{name}-{shade}.svg").write_text(draw(colors))


if __name__ == "__main__":
    main()
