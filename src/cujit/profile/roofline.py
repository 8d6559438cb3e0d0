"""Plot of bounds: a roofline, and the minimum time of each unit of the GPU."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cujit.devices.cpu.observe.measures import SECTOR_BYTES, ProfiledKernel
from cujit.devices.device import Device
from cujit.occupancy.drawing import Theme, plain, plot_path, short, write
from cujit.profile.bounding import KernelBounds, bounds, micros
from cujit.profile.peaks import SECTORS, Peaks
from cujit.values import NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIZE_INCHES = (9.0, 3.9)
_ROWS = 7
"""Bounds that are drawn, the tightest first."""


class Roof(NamedTuple):
    """An upper limit of operations per second: constant, or proportional to ``bytes_per_s``."""

    label: str
    flops_per_s: float
    bytes_per_s: float = math.inf


def roofs(found: KernelBounds) -> tuple[list[Roof], list[Roof]]:
    """Return the slopes of memory and caches, and the levels of the units that the kernel uses."""
    gpu = found.gpu
    slopes = [Roof("memory", math.inf, gpu.memory_bytes_per_s)]
    if gpu.l2_bytes:
        slopes.append(Roof("L2 cache", math.inf, gpu.l2_bytes * gpu.clock_mhz * 1e6))
    slopes.append(Roof("L1 cache", math.inf, gpu.per_second(SECTORS * SECTOR_BYTES)))
    used = {bound.unit for bound in found.bounds}
    return slopes, [level for level in _levels(gpu) if level.label in used] or _levels(gpu)[:1]


def _levels(gpu: Peaks) -> list[Roof]:
    """A sum and product in one are two operations."""
    plain = [
        (f"arithmetic of {name}", 2 * each) for name, each in (("f32", gpu.fp32), ("f64", gpu.fp64), ("f16", gpu.fp16))
    ]
    tensor = [(f"tensor cores, {type_}", each) for type_, each in gpu.tensor.items()]
    return [Roof(label, gpu.per_second(each)) for label, each in plain + tensor]


def plot(path: str | os.PathLike[str], kernel: ProfiledKernel, on: str | Device, *, dark: bool = False) -> Path:
    """Draw a roofline of a GPU with a kernel that was profiled under it, and its bounds, as SVG or PNG.

    Args:
        path: path of the plot, which must end in ``.svg`` or ``.png``.
        kernel: as for ``bounds``.
        on: as for ``bounds``.
        dark: whether to use light colors on a dark background.

    Raises:
        MissingError: matplotlib is not installed.
        OptionError: ``path`` has a different extension.
        ArgumentError, ArchError: see ``bounds``.
        FileError: the file can't be written.

    Example::

        import importlib.util

        profile = cujit.profile.Profile()
        profiled = cujit.cpu(profile=profile)
        cujit.jit(CODE, names=["axpy<float>"], device=profiled, name="axpy.cu")["axpy<float>"][1, 32](2.0, x, y, 32)
        if importlib.util.find_spec("matplotlib"):      # pip install 'cujit[plot]'
            cujit.profile.plot("roofline.svg", profile.kernels[0], "H200")
    """
    target = plot_path(path)
    found = bounds(kernel, on)

    def paint(figure: Figure, theme: Theme) -> None:
        left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
        figure.subplots_adjust(left=0.078, right=0.965, top=0.78, bottom=0.145, wspace=0.62)
        _head(figure, found, theme)
        _roofline(left, found, theme)
        if found.bounds:
            _bars(right, found, theme)
        else:
            right.set_visible(False)

    write(target, _SIZE_INCHES, paint, dark=dark)
    return target


def _head(figure: Figure, found: KernelBounds, theme: Theme) -> None:
    title = f"{short(found.kernel)} on {found.gpu}"
    figure.text(0.022, 0.925, title, color=theme.text, fontsize=12.5, fontweight="bold")
    text = f"a lower bound of {micros(found.seconds)}" if found.bounds else "no bound"
    figure.text(0.978, 0.925, text, color=theme.text, fontsize=12.5, ha="right")
    clock = f"at {found.gpu.clock_mhz:,} MHz; latency, occupancy and integer arithmetic are not modeled"
    figure.text(0.022, 0.862, clock, color=theme.muted, fontsize=9.5)


def _roofline(ax: Axes, found: KernelBounds, theme: Theme) -> None:
    """Draw the slopes up to the highest level, and a point for each arithmetic intensity of the kernel."""
    slopes, levels = roofs(found)
    most = max(level.flops_per_s for level in levels)
    points = [(found.flops_per_byte or 0, "by distinct bytes")]
    if found.flops_per_l1_byte and found.flops_per_l1_byte < 0.8 * points[0][0]:
        points.append((found.flops_per_l1_byte, "by bytes moved"))
    points = [point for point in points if point[0]]
    corners = [most / slope.bytes_per_s for slope in slopes]
    low = min([*corners, *(each for each, _ in points)]) / 30
    high = max([*corners, *(each for each, _ in points)]) * 12
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(low, high)
    ax.set_ylim(low * slopes[0].bytes_per_s / 1.5, most * 4)
    for slope, corner, color in zip(slopes, corners, theme.colors, strict=False):
        ends = [(low, low * slope.bytes_per_s), (corner, most)]
        ax.plot(*zip(*ends, strict=True), color=color, linewidth=2)
        _along(ax, ends, slope.label, theme)
    for level in levels:
        first = min(level.flops_per_s / slope.bytes_per_s for slope in slopes)
        ax.plot([first, high], [level.flops_per_s] * 2, color=theme.muted, linewidth=2)
        ax.text(high, level.flops_per_s, level.label, color=theme.text, fontsize=8, ha="right", va="bottom")
    if points:
        _points(ax, points, found.flops / found.seconds, theme)
    else:
        place: dict[str, Any] = {"transform": ax.transAxes, "ha": "center", "fontsize": 9}
        ax.text(0.5, 0.04, "no floating-point operations", color=theme.muted, **place)
    plain(ax, theme, "floating-point operations per byte")
    ax.minorticks_off()
    ax.set_ylabel("operations per second, at most", color=theme.muted, fontsize=9, labelpad=4)


def _along(ax: Axes, ends: list[tuple[float, float]], label: str, theme: Theme) -> None:
    """Write a label above a slope, at the slope's angle."""
    (left, bottom), (right, top) = ax.transData.transform(ends)
    angle = math.degrees(math.atan2(top - bottom, right - left))
    x, y = ends[0]
    where: dict[str, Any] = {"rotation": angle, "rotation_mode": "anchor", "va": "bottom"}
    ax.text(x * 1.35, y * 1.45, label, color=theme.text, fontsize=8, **where)


def _points(ax: Axes, points: list[tuple[float, str]], flops_per_s: float, theme: Theme) -> None:
    """Mark the kernel: filled by the distinct bytes of memory, hollow by all that the first cache moves."""
    for each, label in points:
        fill, side = (theme.text, "left") if label == points[0][1] else (theme.page, "right")
        ax.plot([each], [flops_per_s], "o", markersize=7.5, color=fill, markeredgecolor=theme.text, zorder=5)
        ax.text(each, flops_per_s / 1.7, label, color=theme.text, fontsize=8, ha=side, va="top")


def _bars(ax: Axes, found: KernelBounds, theme: Theme) -> None:
    """Draw each bound as a share of the tightest, with its time."""
    shown = found.bounds[:_ROWS]
    places = range(len(shown))
    ax.barh(places, [bound.seconds / found.seconds for bound in shown], color=theme.colors[0], alpha=0.8, height=0.55)
    for place, bound in zip(places, shown, strict=True):
        where = f"  {micros(bound.seconds)}"
        ax.text(bound.seconds / found.seconds, place, where, color=theme.text, fontsize=8.5, va="center")
    ax.set_yticks(list(places), [bound.unit for bound in shown])
    ax.invert_yaxis()
    ax.set_xlim(0, 1.3)
    plain(ax, theme, "bound, of the tightest")
    ax.set_xticks([0, 0.5, 1], ["0", "50", "100%"])
    ax.grid(visible=False)
