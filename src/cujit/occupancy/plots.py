"""Occupancy drawn: over the block size, the registers of a thread and the shared memory of a block."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from cujit.arch.multiprocessor import MAX_BLOCK_THREADS, WARP_SIZE
from cujit.errors import counted
from cujit.occupancy.drawing import Theme, plain, short, write
from cujit.occupancy.residency import Demand, Limiter, Residency, residency
from cujit.values import dataclass, replace

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Curve:
    """Occupancy over one quantity: pairs ``(value, residency)`` from left to right, and the kernel's own value.

    ``end`` is the end of the axis. Values after the last point don't run.
    """

    label: str
    own: float
    own_label: str
    points: tuple[tuple[float, Residency], ...]
    end: float


def curves(demand: Demand, now: Residency) -> tuple[Curve, Curve, Curve]:
    """Return a kernel's curves over block size, registers, and shared memory. Each curve varies one quantity."""
    return _over_blocks(demand, now), _over_registers(demand, now), _over_shared(demand, now)


def _over_blocks(demand: Demand, now: Residency) -> Curve:
    sizes = range(WARP_SIZE, MAX_BLOCK_THREADS + 1, WARP_SIZE)
    allowed = [n for n in sizes if n < demand.largest_block + WARP_SIZE]
    points = tuple((float(n), residency(demand, n, now.dynamic_bytes)) for n in allowed)
    return Curve("threads per block", now.threads, f"{now.threads}", points, MAX_BLOCK_THREADS)


def _over_registers(demand: Demand, now: Residency) -> Curve:
    most = demand.limits.thread_registers
    points = [
        (float(n), residency(replace(demand, registers=n), now.threads, now.dynamic_bytes)) for n in range(1, most + 1)
    ]
    return Curve("registers per thread", demand.registers, f"{demand.registers}", tuple(points), most)


def _over_shared(demand: Demand, now: Residency) -> Curve:
    """The static and the dynamic shared memory together, in KiB."""
    limits = demand.limits
    sizes = range(0, limits.block_shared_bytes + 1, max(limits.shared_unit, 256))
    varied = replace(demand, shared_bytes=0, dynamic_limit_bytes=None)
    points = tuple((size / 1024, residency(varied, now.threads, size)) for size in sizes)
    own = (demand.shared_bytes + now.dynamic_bytes) / 1024
    return Curve("shared memory per block, KiB", own, f"{own:.4g} KiB", points, limits.block_shared_bytes / 1024)


# -- drawing --------------------------------------------------------------------------------------------------


_ORDER = (
    Limiter.WARPS,
    Limiter.BLOCKS,
    Limiter.REGISTERS,
    Limiter.SHARED,
    Limiter.BARRIERS,
    Limiter.VIRTUAL,
)
"""The colour of each, in the order of a theme's."""
_WORDS = {
    Limiter.WARPS: "warp slots",
    Limiter.BLOCKS: "block slots",
    Limiter.REGISTERS: "registers",
    Limiter.SHARED: "shared memory",
    Limiter.BARRIERS: "barriers",
    Limiter.VIRTUAL: "virtual resources",
}
_SIZE_INCHES = (9.0, 3.6)


def draw(path: Path, demand: Demand, now: Residency, *, title: str, place: str, dark: bool = False) -> None:
    """Write the three curves to ``path``. The suffix (``.svg`` or ``.png``) selects the format.

    Raises:
        MissingError: matplotlib is not installed.
        FileError: the file can't be written.
    """
    drawn = curves(demand, now)

    def paint(figure: Figure, theme: Theme) -> None:
        axes = figure.subplots(1, 3, sharey=True)
        figure.subplots_adjust(left=0.078, right=0.978, top=0.69, bottom=0.155, wspace=0.13)
        for ax, curve in zip(axes, drawn, strict=True):
            _panel(ax, curve, now, theme)
        axes[0].set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25", "50", "75", "100%"])
        axes[0].set_ylabel("occupancy", color=theme.muted, fontsize=9, labelpad=4)
        _head(figure, demand, now, theme, title, place)
        _legend(figure, drawn, theme)

    write(path, _SIZE_INCHES, paint, dark=dark)


def _panel(ax: Axes, curve: Curve, now: Residency, theme: Theme) -> None:
    ax.set_xlim(0, curve.end)
    _areas(ax, curve, theme)
    ax.set_ylim(0, 1.06)
    plain(ax, theme, curve.label)
    ax.set_xticks(_ticks(curve.end))
    _own_point(ax, curve, now, theme)


def _ticks(most: float) -> list[float]:
    """Choose four or five round numbers up to ``most``."""
    step = next(s for s in (16, 32, 64, 128, 256) if most / s <= 4.5)
    return [float(step * n) for n in range(int(most // step) + 1)]


def _areas(ax: Axes, curve: Curve, theme: Theme) -> None:
    """Fill the area below a curve with the color of each limiter, and draw the curve on top."""
    for limiter, edges, heights in stretches(curve):
        color = theme.colors[_ORDER.index(limiter)]
        ax.stairs(heights, edges, fill=True, color=color, alpha=0.26, linewidth=0)
        ax.hlines(heights, edges[:-1], edges[1:], color=color, linewidth=2)
        inner = [(x, *sorted(pair)) for x, pair in zip(edges[1:-1], pairwise(heights), strict=True)]
        ax.vlines([x for x, _, _ in inner], [y for _, y, _ in inner], [y for _, _, y in inner], color=color)
    for (_, edges, heights), (limiter, _, after) in pairwise(stretches(curve)):
        low, high = sorted((heights[-1], after[0]))
        ax.vlines(edges[-1], low, high, color=theme.colors[_ORDER.index(limiter)])
    _tell_what_fails(ax, curve, theme)


def _tell_what_fails(ax: Axes, curve: Curve, theme: Theme) -> None:
    """Write ``does not run`` over the part of the axis without resident blocks, if this part is wide enough."""
    runs = max((value for value, at in curve.points if at.blocks), default=0.0)
    if curve.end - runs < 0.07 * curve.end:
        return
    rotation = 90 if curve.end - runs < 0.3 * curve.end else 0
    place = ((runs + curve.end) / 2, 0.04)
    ax.text(*place, "does not run", rotation=rotation, ha="center", va="bottom", fontsize=8.5, color=theme.muted)


def stretches(curve: Curve) -> list[tuple[Limiter, list[float], list[float]]]:
    """Split a curve where the limiter changes. Return the limiter, the edges, and the heights of each part.

    A height applies up to and including its value, because blocks, registers, and shared memory are rounded up. Values
    that don't run belong to no part.
    """
    found: list[tuple[Limiter, list[float], list[float]]] = []
    edge = 0.0
    for value, at in curve.points:
        limiter = _shown_limiter(at)
        last = found[-1] if found else None
        if at.blocks and last and last[0] is limiter and last[1][-1] == edge:
            if last[2][-1] == at.occupancy:
                last[1][-1] = value
            else:
                last[1].append(value)
                last[2].append(at.occupancy)
        elif at.blocks:
            found.append((limiter, [edge, value], [at.occupancy]))
        edge = value
    return found


def _shown_limiter(at: Residency) -> Limiter:
    """The one limiter that is shown: of several, a slot, which no change of the kernel would help against."""
    return next(limiter for limiter in Limiter if limiter in at.limited_by)


def _own_point(ax: Axes, curve: Curve, now: Residency, theme: Theme) -> None:
    """Mark the kernel's value with a line and a label above the panel, and its point on the curve.

    A value past the end of the axis has no point.
    """
    at = min(curve.own, curve.end)  # what is beyond every kernel has its value at the end of the axis, and no point
    ax.plot([at, at], [0, 1.06], color=theme.text, linewidth=0.9, linestyle=(0, (1.5, 2)), zorder=4)
    if curve.own <= curve.end:
        ax.plot(
            [at],
            [now.occupancy],
            marker="o",
            markersize=7.5,
            color=theme.text,
            markeredgecolor=theme.page,
            markeredgewidth=1.6,
            zorder=5,
            clip_on=False,
        )
    place = at / curve.end
    ax.text(
        at,
        1.09,
        curve.own_label,
        ha="left" if place < 0.1 else "right" if place > 0.9 else "center",
        va="bottom",
        fontsize=10,
        fontweight="bold",
        color=theme.text,
    )


def _head(figure: Figure, demand: Demand, now: Residency, theme: Theme, title: str, place: str) -> None:
    shared = (demand.shared_bytes + now.dynamic_bytes) / 1024
    uses = f"{now.threads} threads, {demand.registers} registers, {shared:.4g} KiB shared memory"
    limits = " and ".join(_WORDS[limiter] for limiter in now.limited_by)
    holds = f"{counted(now.blocks, 'block')}, {now.warps} of {now.limits.warps} warps, limited by {limits}"
    figure.text(0.022, 0.935, f"{short(title)} on {place}", color=theme.text, fontsize=12.5, fontweight="bold")
    figure.text(0.978, 0.935, f"{now.occupancy:.1%} occupancy", color=theme.text, fontsize=12.5, ha="right")
    figure.text(0.022, 0.868, f"{uses}: {holds}", color=theme.muted, fontsize=9.5)


def _legend(figure: Figure, drawn: Sequence[Curve], theme: Theme) -> None:
    """Name the colours that occur."""
    from matplotlib.patches import Patch  # optional: the extra cujit[plot]

    figure.text(0.022, 0.815, "limited by", color=theme.muted, fontsize=9, va="center")
    seen = {stretch[0] for curve in drawn for stretch in stretches(curve)}
    patches = [
        Patch(color=theme.colors[_ORDER.index(limiter)], label=_WORDS[limiter])
        for limiter in Limiter
        if limiter in seen
    ]
    figure.legend(
        handles=patches,
        loc="center left",
        bbox_to_anchor=(0.087, 0.815),
        ncols=len(patches),
        frameon=False,
        fontsize=9,
        labelcolor=theme.muted,
        handlelength=0.9,
        handleheight=0.9,
        columnspacing=1.6,
    )
