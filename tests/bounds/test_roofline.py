from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from bounds.test_bounds import kernel, row
from cujit.errors import OptionError
from cujit.occupancy.drawing import _LIGHT
from cujit.profile import ProfiledKernel, bounds, plot
from cujit.profile.roofline import _bars, _roofline, roofs
from raising import raises

COMPUTES = kernel(
    row("ld.global.f32 %f1, [%rd1];", pipe="memory", requests=100, sectors=3200, asked_bytes=12800),
    row("fma.rn.f32 %f1, %f1, %f1, %f1;", flops=6400),
    row("fma.rn.f64 %fd1, %fd1, %fd1, %fd1;", type="f64", flops=6400),
    distinct=400,
)
COPIES = kernel(row("ld.global.f32 %f1, [%rd1];", pipe="memory", requests=1, sectors=4), distinct=4)


def test_roofs_match_the_operations_of_the_kernel() -> None:
    slopes, levels = roofs(bounds(COMPUTES, "H200"))
    assert [slope.label for slope in slopes] == ["memory", "L2 cache", "L1 cache"]
    assert slopes[2].bytes_per_s == 132 * 1.98e9 * 512
    ampere, _ = roofs(bounds(COPIES, "A100"))
    assert [slope.bytes_per_s for slope in ampere] == [2039e9, 5120 * 1.41e9, 108 * 1.41e9 * 512]
    assert {level.label: level.flops_per_s for level in levels} == {
        "arithmetic of f32": pytest.approx(132 * 1.98e9 * 256),
        "arithmetic of f64": pytest.approx(132 * 1.98e9 * 128),
    }
    assert [level.label for level in roofs(bounds(COPIES, "A100"))[1]] == ["arithmetic of f32"]
    assert [slope.label for slope in roofs(bounds(COPIES, "L4"))[0]] == ["memory", "L1 cache"]


@pytest.mark.parametrize("ending", ["svg", "png"])
def test_equal_counts_give_equal_svg_files(ending: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    first, again, dark = (tmp_path / f"{name}.{ending}" for name in ("first", "again", "dark"))
    assert plot(first, COMPUTES, "H200") == first
    plot(again, COMPUTES, "H200")
    plot(dark, COMPUTES, "H200", dark=True)
    assert first.read_bytes() == again.read_bytes() != dark.read_bytes()


@pytest.mark.parametrize(
    ("of", "shown", "hidden"),
    [
        (COMPUTES, {"by distinct bytes", "by bytes moved", "a lower bound of 0.00267 µs"}, "no floating"),
        (COPIES, {"no floating-point operations", "L1 cache", "load/store unit"}, "by distinct bytes"),
        (kernel(), {"no bound", "no floating-point operations"}, "load/store unit"),
    ],
)  # fmt: skip
def test_svg_names_every_curve_and_bar(of: ProfiledKernel, shown: set[str], hidden: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    text = plot(tmp_path / "k.svg", of, "H200").read_text()
    words = set(re.findall("<!-- (.*?) -->", text))
    assert text.count('<g id="axes_') == (2 if bounds(of, "H200").bounds else 1)
    assert shown <= words
    assert not any(word.startswith(hidden) for word in words)


def test_bar_length_is_the_share_of_the_tightest_bound() -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    ax, found = figure.subplots(), bounds(COMPUTES, "H200")
    _bars(ax, found, _LIGHT)
    shares = [bound.seconds / found.seconds for bound in found.bounds]
    assert shares[0] == 1
    assert [bar.get_width() for bar in ax.patches] == shares[: len(ax.patches)]
    assert [bar.get_y() + bar.get_height() / 2 for bar in ax.patches] == pytest.approx(range(len(ax.patches)))
    assert len(ax.patches) == len(ax.texts) == len(ax.get_yticks()) >= 5
    assert dict(zip(ax.get_xticks(), [tick.get_text() for tick in ax.get_xticklabels()], strict=True)) == {
        0: "0", 0.5: "50", 1: "100%",
    }  # fmt: skip


def test_slopes_and_levels_match_the_table_and_have_labels() -> None:
    figure = pytest.importorskip("matplotlib.figure").Figure()
    ax, found = figure.subplots(), bounds(COMPUTES, "H200")
    _roofline(ax, found, _LIGHT)
    slopes, levels = roofs(found)
    named = {text.get_text(): text for text in ax.texts}
    assert ax.get_xlabel() == "floating-point operations per byte"
    assert [axis.get_minorticklocs().size for axis in (ax.xaxis, ax.yaxis)] == [0, 0]
    low, high = ax.get_xlim()
    assert all(low <= x <= high for line in ax.lines for x in line.get_xdata())
    for slope, line in zip(slopes, ax.lines[: len(slopes)], strict=True):
        assert line.get_ydata() == pytest.approx([x * slope.bytes_per_s for x in line.get_xdata()])
        assert line.get_ydata()[-1] == max(level.flops_per_s for level in levels)
        (left, bottom), (right, top) = ax.transData.transform(line.get_xydata())
        assert line.get_xdata()[0] < named[slope.label].get_position()[0] < line.get_xdata()[1]
        steepness = math.tan(math.radians(named[slope.label].get_rotation()))
        assert steepness == pytest.approx((top - bottom) / (right - left))
    flat = ax.lines[len(slopes) : len(slopes) + len(levels)]
    for level, line in zip(levels, flat, strict=True):
        assert list(line.get_ydata()) == [level.flops_per_s] * 2
        assert named[level.label].get_position()[1] == level.flops_per_s


@pytest.mark.parametrize(("sectors", "marks"), [(500, 1), (501, 2)])
def test_bytes_moved_are_marked_if_25_percent_above_distinct(sectors: int, marks: int) -> None:
    ax = pytest.importorskip("matplotlib.figure").Figure().subplots()
    load = row("ld.global.f32 %f1, [%rd1];", pipe="memory", requests=100, sectors=sectors, asked_bytes=12800)
    _roofline(ax, bounds(kernel(load, row("fma.rn.f32 %f1, %f1, %f1, %f1;", flops=6400), distinct=400), "H200"), _LIGHT)
    assert sum(text.get_text() in ("by distinct bytes", "by bytes moved") for text in ax.texts) == marks


def test_unknown_file_extension_is_refused(tmp_path: Path) -> None:
    with raises(OptionError, "option", "k.pdf"):
        plot(tmp_path / "k.pdf", COPIES, "H200")
