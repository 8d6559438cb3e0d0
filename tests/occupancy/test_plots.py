from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cujit.arch.multiprocessor import LIMITS
from cujit.errors import MissingError
from cujit.occupancy.drawing import _LIGHT, plain
from cujit.occupancy.plots import curves, draw
from cujit.occupancy.residency import Demand, Limiter, residency
from raising import raises

DEMAND = Demand(LIMITS[90], registers=72, shared_bytes=16 << 10, barriers=1, max_threads=512)
NOW = residency(DEMAND, 256, 1000)


def test_each_curve_passes_through_the_kernels_point() -> None:
    for curve in curves(DEMAND, NOW):
        at = next(found for value, found in curve.points if value >= curve.own)
        assert (at.blocks, at.warps) == (NOW.blocks, NOW.warps), curve.label
    assert [(curve.own, curve.own_label) for curve in curves(DEMAND, NOW)] == [
        (256, "256"), (72, "72"), (16 + 1000 / 1024, "16.98 KiB"),
    ]  # fmt: skip


def test_curves_cover_the_whole_range() -> None:
    blocks, registers, shared = curves(DEMAND, NOW)
    assert [value for value, _ in blocks.points] == list(range(32, 513, 32))
    assert (blocks.end, registers.end, shared.end) == (1024, 255, 227)
    assert [value for value, _ in registers.points] == list(range(1, 256))
    assert (shared.points[0][0], shared.points[-1][0]) == (0, 227)
    assert {limiter for _, at in shared.points for limiter in at.limited_by} == {Limiter.REGISTERS, Limiter.SHARED}


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_equal_numbers_give_equal_bytes(ending: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    first, again, dark = (tmp_path / f"{name}.{ending}" for name in ("first", "again", "dark"))
    draw(first, DEMAND, NOW, title="k", place="H200 (sm_90)")
    draw(again, DEMAND, NOW, title="k", place="H200 (sm_90)")
    draw(dark, DEMAND, NOW, title="k", place="H200 (sm_90)", dark=True)
    assert first.read_bytes() == again.read_bytes() != dark.read_bytes()
    assert first.read_bytes().startswith(b"<?xml" if ending == "svg" else b"\x89PNG")
    assert first.stat().st_size < 200_000


def test_ticks_of_occupancy_are_quarters(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw(tmp_path / "k.svg", DEMAND, NOW, title="k", place="H200 (sm_90)")
    axes = (tmp_path / "k.svg").read_text().partition('<g id="axes_2">')[0]
    found = re.findall(r'<g id="ytick_\d+">.*?<path d="M [\d.]+ ([\d.]+).*?<!-- (\S+) -->', axes, re.DOTALL)
    assert [said for _, said in found] == ["0", "25", "50", "75", "100%"]
    places = [float(place) for place, _ in found]
    assert np.diff(places) == pytest.approx([(places[4] - places[0]) / 4] * 4)
    assert places[0] > places[4], "none is below all"


def test_panels_share_a_scale_and_name_the_limiting_color(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    draw(tmp_path / "k.svg", DEMAND, NOW, title="k", place="H200 (sm_90)")
    panels = re.split(r'<g id="(?:axes|legend)_\d">', (tmp_path / "k.svg").read_text())[1:]
    words = [re.findall("<!-- (.*?) -->", panel) for panel in panels]
    scales = [re.findall(r'<g id="ytick_\d+">.*?<path d="M [\d.]+ ([\d.]+)', panel, re.DOTALL) for panel in panels[:3]]
    assert scales[0] == scales[1] == scales[2]
    assert ["100%" in each for each in words] == [True, False, False, False]
    assert words[3] == ["warp slots", "registers", "shared memory"]


def test_panel_has_a_grid_and_only_the_lower_frame_side() -> None:
    ax = pytest.importorskip("matplotlib.figure").Figure().subplots()
    plain(ax, _LIGHT, "bytes")
    assert ax.get_axisbelow() is True
    assert [side for side, line in ax.spines.items() if line.get_visible()] == ["bottom"]
    assert ax.get_xlabel() == "bytes"


def test_dark_plot_is_light_on_dark(tmp_path: Path) -> None:
    image = pytest.importorskip("matplotlib.image")
    draw(tmp_path / "dark.png", DEMAND, NOW, title="k", place="H200 (sm_90)", dark=True)
    pixels = image.imread(tmp_path / "dark.png")[..., :3]
    assert pixels[0, 0].max() < 0.2
    assert pixels.min(axis=2).max() > 0.9


def test_narrow_area_without_blocks_is_labeled_vertically(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    # No block of more than 768 threads runs, none of 512 with more than 128 registers, and any shared memory will do.
    demand = Demand(LIMITS[90], registers=16, max_threads=768)
    draw(tmp_path / "k.svg", demand, residency(demand, 512), title="k", place="H200 (sm_90)")
    found = re.findall(r"<!-- does not run -->\s*<g [^>]*>", (tmp_path / "k.svg").read_text())
    assert ["rotate(-90)" in each for each in found] == [True, False]


def test_svg_has_no_date_and_no_page_size(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "k.svg"
    draw(path, DEMAND, NOW, title="k", place="H200 (sm_90)")
    text = path.read_text()
    assert "dc:date" not in text
    assert "fill: #ffffff" not in text.partition('id="axes_1"')[0]


def test_kernels_at_the_edges_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for number, demand, threads in (
        (75, Demand(LIMITS[75], registers=0), 1),
        (120, Demand(LIMITS[120], registers=255, shared_bytes=48 << 10, barriers=16), 1024),
        (90, Demand(LIMITS[90], registers=16, barriers=16, max_threads=33), 33),
    ):
        path = tmp_path / f"{number}.svg"
        draw(path, demand, residency(demand, threads), title="k" * 300, place=f"sm_{number}")
        assert path.stat().st_size > 1000


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with raises(MissingError, "missing", "cujit[plot]"):
        draw(tmp_path / "k.svg", DEMAND, NOW, title="k", place="H200")
    assert not (tmp_path / "k.svg").exists()


def test_kernel_past_the_thread_limit_has_no_point(tmp_path: Path) -> None:
    axes = pytest.importorskip("matplotlib.axes")
    drawn: list[float] = []
    plot = axes.Axes.plot

    def record(self: Any, x: list[float], *rest: Any, **more: Any) -> Any:
        drawn.extend(value / self.get_xlim()[1] for value in x)
        return plot(self, x, *rest, **more)

    demand = Demand(LIMITS[90], registers=300)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(axes.Axes, "plot", record)
        draw(tmp_path / "beyond.svg", demand, residency(demand, 256), title="k", place="sm_90")
    assert max(drawn) == 1
    assert len(drawn) == 3 * 2 + 2
