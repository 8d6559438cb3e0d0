"""Shared parts of plots: two themes, and a file in the format that its suffix selects."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cujit.arch.support import install
from cujit.artifact.writing import write_file
from cujit.errors import MissingError, OptionError, spell
from cujit.values import dataclass

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Theme:
    """The colors of a page: text, muted text, lines, background, and six colors for distinct items."""

    text: str
    muted: str
    line: str
    page: str
    colors: tuple[str, ...]


# Source of the colours: Okabe and Ito, "Color Universal Design", which people with any colour vision can tell apart;
# lightened on a dark page, darkened on a light one, to the contrast that shapes of this size need.
_LIGHT = Theme(
    text="#1f2328",
    muted="#59636e",
    line="#d1d9e0",
    page="#ffffff",
    colors=("#0072b2", "#56b4e9", "#d55e00", "#009e73", "#cc79a7", "#8c959f"),
)
_DARK = Theme(
    text="#f0f6fc",
    muted="#9198a1",
    line="#3d444d",
    page="#0d1117",
    colors=("#2f93d1", "#83cbf2", "#e8742a", "#2bb58c", "#d894b8", "#818b98"),
)
_DPI = 200  # of a PNG: twice the width of a README


def plot_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of a plot after a check of its type and suffix.

    Raises:
        OptionError: ``path`` is not a path, or ends in neither ``.svg`` nor ``.png``.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise OptionError(
            f"a plot requires a path, not {type(path).__name__} {spell(path)}", help="write, for example, plot.svg"
        )
    target = Path(path)
    if target.suffix.lower() not in (".svg", ".png"):
        raise OptionError(
            f"the file name of a plot must end in .svg or .png, but this name is {spell(target.name)}",
            help="write, for example, plot.svg",
        )
    return target


def write(path: Path, inches: tuple[float, float], paint: Callable[[Figure, Theme], None], *, dark: bool) -> None:
    """Write a figure to ``path``. The suffix (``.svg`` or ``.png``) selects the format.

    Equal numbers produce equal bytes with the same version of matplotlib. An SVG has no background.

    Raises:
        MissingError: matplotlib is not installed.
        FileError: the file can't be written.
    """
    try:
        # Optional: the extra cujit[plot].
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as e:
        raise MissingError("matplotlib is not installed; cujit needs it for plots", help=install("plot")) from e
    theme = _DARK if dark else _LIGHT
    with mpl.rc_context({"svg.hashsalt": "cujit", "svg.fonttype": "path", "font.family": "DejaVu Sans"}):
        figure = Figure(figsize=inches, dpi=100)
        paint(figure, theme)
        is_svg = path.suffix.lower() == ".svg"
        metadata = {"Date": None, "Creator": None} if is_svg else {"Software": None}
        page = "none" if is_svg else theme.page
        content = io.BytesIO()
        options: dict[str, Any] = {
            "dpi": _DPI,
            "metadata": metadata,
            "facecolor": page,
            "format": path.suffix[1:].lower(),
        }
        figure.savefig(content, **options)  # in place: memory
    write_file(path, content.getvalue())


def plain(ax: Axes, theme: Theme, label: str) -> None:
    """Remove the ticks, the vertical grid lines, and the frame except its bottom from a panel."""
    ax.set_facecolor("none")
    ax.set_xlabel(label, color=theme.muted, fontsize=9, labelpad=5)
    ax.tick_params(colors=theme.muted, labelsize=8.5, length=0, pad=5)
    ax.grid(axis="y", color=theme.line, linewidth=0.6, alpha=0.8)
    ax.set_axisbelow(True)
    for side in ("top", "left", "right"):
        ax.spines[side].set_visible(False)
    ax.spines["bottom"].set_color(theme.line)


def short(title: str, most: int = 40) -> str:
    """Cut a title."""
    return title if len(title) <= most else f"{title[: most - 1]}…"
