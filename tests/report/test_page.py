"""The page of a report in a browser: by mouse and by keys alone, in light and dark, printed, and read by axe."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

import cujit
import cujit.report
from browsing import Visit, Visits, violations
from cujit.report import ReportPage
from report.conftest import reported
from tile_code import TWICE, needs_tiles

if TYPE_CHECKING:
    from playwright.sync_api import Locator


def row(visit: Visit, kind: str, line: int) -> Locator:
    """Find a line of a list, by its number."""
    return visit.page.locator(f".lines.{kind} .row").nth(line - 1)


def marked(visit: Visit, kind: str, how: str = "picked") -> list[int]:
    """List the numbers of the lines of a list that are marked."""
    return [int(n) for n in visit.page.locator(f".lines.{kind} .row.{how} .digits").all_text_contents()]


def texts(visit: Visit, kind: str, how: str = "picked") -> str:
    return "\n".join(visit.page.locator(f".lines.{kind} .row.{how} .code").all_text_contents())


def status(visit: Visit) -> str:
    return visit.page.locator("#status").inner_text()


def test_matching_lines_are_highlighted_on_hover(visit: Visits, shared_page: Path) -> None:
    page = visit(shared_page)
    row(page, "source", 6).locator(".digits").hover()
    assert marked(page, "source", "hovered") == [6]
    assert "ld.shared.f32" in texts(page, "ptx", "hovered")
    assert "bar.sync" not in texts(page, "ptx", "hovered")
    assert "LDS" in texts(page, "sass", "hovered")
    assert "BAR.SYNC" not in texts(page, "sass", "hovered")
    page.page.mouse.move(5, 5)
    assert marked(page, "ptx", "hovered") == []
    assert page.wrong == []


def test_click_picks_a_line_of_any_list(visit: Visits, shared_page: Path) -> None:
    page = visit(shared_page)
    page.page.locator(".lines.sass .row", has_text="BAR.SYNC").locator(".digits").click()
    assert marked(page, "source") == [5]
    assert "bar.sync" in texts(page, "ptx")
    assert len(marked(page, "ptx")) == 1
    assert "of the machine code: 1 line of source, 1 line of PTX" in status(page)
    page.page.locator(".lines.ptx .row", has_text="ld.shared.f32").locator(".digits").click()
    assert marked(page, "source") == [6]
    assert "LDS" in texts(page, "sass")
    assert page.page.locator(".lines.ptx .row[aria-selected=true]").count() == 1


def test_click_away_from_a_list_selects_what_it_hits(visit: Visits, shared_page: Path) -> None:
    """The focus, which a click gives the list, brings the line in sight that it was on."""
    page = visit(shared_page, height=420)
    last = page.page.locator(".lines.ptx .row", has_text="ret;")
    page.page.locator(".lines.ptx").evaluate("e => { e.scrollTop = 0; }")
    first = page.page.locator(".lines.ptx .row", has_text=".visible .entry")
    first.locator(".digits").click()
    number = int(first.locator(".digits").inner_text())
    assert page.page.locator(f"#ptx-{number - 1}").get_attribute("aria-selected") == "true"
    last.locator(".digits").click()
    assert marked(page, "source") == [7]


def test_picked_line_shows_its_counters_and_scrolls_into_view(visit: Visits, shared_page: Path) -> None:
    page = visit(shared_page, height=500)
    row(page, "source", 6).locator(".digits").click()
    table = page.page.locator("#line-body table")
    assert "shared.cu:6" in table.locator("caption").inner_text()
    cells = {r.locator("th").inner_text(): r.locator("td").all_inner_texts() for r in table.locator("tbody tr").all()}
    assert cells["bank conflicts"] == ["3,968", "100 %"]
    first, box = page.page.locator(".lines.ptx .row.picked").first.bounding_box(), None
    box = page.page.locator(".lines.ptx").bounding_box()
    assert first
    assert box
    assert box["y"] <= first["y"] < box["y"] + box["height"]


def test_color_follows_the_selected_metric(visit: Visits, shared_page: Path) -> None:
    page = visit(shared_page)
    heats = page.page.locator(".lines.source .row .heat")
    assert page.page.locator("#measure").input_value() == "counter:bank_conflicts"
    assert heats.all_text_contents() == ["", "", "", "", "", "3,968", ""]
    page.page.select_option("#measure", "counter:sectors")
    assert heats.all_text_contents() == ["", "", "", "512", "", "512", ""]
    page.page.select_option("#measure", "ratio:sectors_per_request")
    assert heats.all_text_contents() == ["", "", "", "4", "", "4", ""]
    page.page.select_option("#measure", "metric:l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum")
    assert heats.all_text_contents() == ["", "", "", "512", "", "", ""]
    page.page.select_option("#measure", "apart:distinct_sectors")
    assert heats.all_text_contents() == ["", "", "", "512", "", "512", ""]
    page.page.select_option("#measure", "apart:reuse")
    assert heats.all_text_contents() == ["", "", "", "1", "", "1", ""]
    page.page.select_option("#measure", "metric:l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum")
    hot = page.page.locator(".lines.ptx .row", has=page.page.locator(".heat:not(:empty)"))
    assert [text.split()[0] for text in hot.locator(".code").all_text_contents()] == ["ld.global.f32"]
    colours = [row(page, "source", n).evaluate("e => getComputedStyle(e).backgroundColor") for n in (4, 5)]
    assert colours[0] != colours[1]


def boxes(visit: Visit) -> list[str]:
    return [text or "" for text in visit.page.locator("#access svg .box title").all_text_contents()]


def test_one_access_is_pictured_by_sectors(visit: Visits, slow_page: Path) -> None:
    page = visit(slow_page)
    assert "st.global.f32" in page.page.locator("#access-of option:checked").inner_text()  # what wastes most
    row(page, "source", 3).locator(".digits").click()
    said = page.page.locator("#access .said")
    assert said.inner_text() == "32 lanes of a warp touch 32 sectors of 32 bytes: 128 of 1,024 bytes are requested."
    assert boxes(page)[:2] == [f"sector at byte {at}: 4 of 32 bytes are requested" for at in (0, 256)]
    assert page.page.locator("#access svg .break").count() == 31
    page.page.select_option("#access-of", "0")
    assert said.inner_text() == "32 lanes of a warp touch 4 sectors of 32 bytes: 128 of 128 bytes are requested."
    assert page.page.locator("#access svg .wanted").count() == 32
    assert page.page.locator("#access svg .break").count() == 0
    page.page.locator("#access summary").click()
    cells = [r.all_inner_texts() for r in (page.page.locator("#access tbody tr").nth(9).locator("th, td"),)]
    assert cells == [["9", "36", "4", "32"]]
    row(page, "source", 2).locator(".digits").click()
    assert page.page.locator("#access svg").count() == 0


def test_one_access_is_pictured_by_banks(visit: Visits, shared_page: Path) -> None:
    page = visit(shared_page)
    page.page.locator(".lines.ptx .row", has_text="ld.shared.f32").locator(".digits").click()
    said = page.page.locator("#access .said").inner_text()
    assert said == "32 lanes of a warp touch 1 bank of 32; at most 32 words of one bank."
    assert sorted(map(int, re.findall(r": (\d+) words?", " ".join(boxes(page))))) == [0] * 31 + [32]
    page.page.locator("#access summary").click()
    cells = page.page.locator("#access tbody tr").nth(5).locator("td").all_inner_texts()
    assert int(cells[0]) // 4 % 32 == int(cells[2]) > 0
    page.page.locator(".lines.ptx .row", has_text="st.shared.f32").locator(".digits").click()
    assert page.page.locator("#access .said").inner_text().endswith("32 banks of 32; at most 1 word of one bank.")
    assert page.page.locator("#access svg .lane:not(.idle)").count() == 32


def test_finding_leads_to_its_line(visit: Visits, slow_page: Path) -> None:
    page = visit(slow_page)
    finding = page.page.locator("#finding-list li")
    assert finding.count() == 1
    assert "adjacent threads access addresses 256 bytes apart" in finding.inner_text()
    page.page.select_option("#measure", "counter:warps")
    finding.get_by_role("link").click()
    assert marked(page, "source") == [3]
    assert page.page.evaluate("document.activeElement.className").startswith("lines source")


def test_advice_has_an_estimate_and_explains_its_rule(visit: Visits, shared_page: Path) -> None:
    page = visit(shared_page)
    finding = page.page.locator("#finding-list li")
    assert re.fullmatch(
        r"estimate for H200: saves about \d+% of the run time", finding.locator(".estimate").inner_text()
    )
    assert not finding.locator("details p").first.is_visible()
    finding.locator("summary").click()
    parts = [part.strip() for part in finding.locator("details b").all_inner_texts()]
    assert parts == ["What it finds:", "Why it matters:", "Example:", "Fix:"]
    assert "took 554 µs before the fix and 130 µs after it" in finding.inner_text()


def test_page_is_usable_by_keyboard_alone(visit: Visits, shared_page: Path) -> None:
    page = visit(shared_page)
    keys, active = page.page.keyboard, "document.activeElement"
    keys.press("Tab")
    assert page.page.evaluate(f"{active}.className") == "skip"
    keys.press("Enter")
    for _ in range(3):
        keys.press("Tab")
        if page.page.evaluate(f"{active}.matches('.lines.source')"):
            break
    keys.press("h")  # the hottest line
    assert marked(page, "source", "hovered") == [6]
    keys.press("Enter")
    assert marked(page, "source") == [6]
    assert status(page).startswith("shared.cu:6: 3,968 bank conflicts, 100 % of the hottest line; ")
    keys.press("ArrowUp")
    keys.press("Enter")
    assert "bar.sync" in texts(page, "ptx")
    keys.press("ArrowRight")
    assert page.page.evaluate(f"{active}.matches('.lines.ptx')")
    at = page.page.evaluate(f"document.getElementById({active}.getAttribute('aria-activedescendant')).textContent")
    assert "bar.sync" in at
    keys.press("ArrowRight")
    keys.press("Home")
    keys.press("End")
    keys.press("Escape")
    assert marked(page, "source") == []
    assert status(page) == "No line is picked."
    keys.press("?")
    assert page.page.locator("dialog").is_visible()
    keys.press("Escape")
    assert not page.page.locator("dialog").is_visible()
    keys.press("m")
    assert page.page.evaluate(f"{active}.id") == "measure"


def test_every_control_is_focusable_with_a_visible_focus(visit: Visits, shared_page: Path) -> None:
    page = visit(shared_page)
    count = page.page.locator(
        "a:visible, button:visible, select:visible, [tabindex='0']:visible, summary:visible"
    ).count()
    seen = set()
    for _ in range(count + 1):
        page.page.keyboard.press("Tab")
        found = page.page.evaluate(
            "(() => { const e = document.activeElement, s = getComputedStyle(e);"
            " return e === document.body ? null : [e.outerHTML.slice(0, 90), s.outlineStyle, s.outlineWidth]; })()"
        )
        if found is not None:
            assert found[1:] == ["solid", "3px"], found
            seen.add(found[0])
    assert len(seen) >= count - 1


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("picked", [False, True], ids=["at first", "with a line picked"])
def test_axe_finds_nothing(visit: Visits, shared_page: Path, slow_page: Path, *, dark: bool, picked: bool) -> None:
    for path in (shared_page, slow_page):
        page = visit(path, dark=dark, width=1440 if picked else 800)
        if picked:
            row(page, "source", 3).locator(".digits").click()
            page.page.locator("#keys-open").hover()
        assert violations(page.page) == []


def test_switch_overrules_the_system(visit: Visits, shared_page: Path) -> None:
    page = visit(shared_page)
    colour = "getComputedStyle(document.body).backgroundColor"
    assert page.page.evaluate(colour) == "rgb(255, 255, 255)"
    page.page.select_option("#theme", "dark")
    assert page.page.evaluate(colour) == "rgb(13, 17, 23)"
    page.page.select_option("#theme", "light")
    assert page.page.evaluate(colour) == "rgb(255, 255, 255)"
    assert visit(shared_page, dark=True).page.evaluate(colour) == "rgb(13, 17, 23)"


def test_printed_page_has_all_lines_in_light_colors(visit: Visits, shared_page: Path) -> None:
    page = visit(shared_page, dark=True)
    page.page.emulate_media(media="print")
    assert page.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.page.locator(".switches").is_visible()
    fits = "[...document.querySelectorAll('.lines')].every(e => e.scrollHeight <= e.clientHeight + 1)"
    assert page.page.evaluate(fits)
    assert page.page.pdf()[:5] == b"%PDF-"


def test_page_sends_no_requests(visit: Visits, shared_page: Path) -> None:
    page = visit(shared_page)
    row(page, "source", 6).locator(".digits").click()
    page.page.select_option("#theme", "dark")
    assert (page.asked, page.wrong) == ([], [])


def test_browser_forbids_everything_else(visit: Visits, shared_page: Path, tmp_path: Path) -> None:
    """What an attacker brings in after all does not run, and nothing leaves."""
    spoilt = tmp_path / "spoilt.html"
    spoilt.write_text(shared_page.read_text().replace("<main>", "<script>document.title = 'run'</script><main>"))
    page = visit(spoilt)
    assert page.page.title() == "transpose"
    assert any("Content Security Policy" in text for text in page.wrong)
    page.wrong.clear()
    page.page.evaluate("() => { const i = new Image(); i.src = 'https://example.com/a.png'; }")
    page.page.evaluate("() => fetch('https://example.com/').catch(() => 0)")
    page.page.evaluate(
        "() => { document.body.append(Object.assign(document.createElement('iframe'), {src: 'https://example.com'})) }"
    )
    page.page.wait_for_timeout(100)
    assert page.asked == []
    assert len(page.wrong) >= 2


HOSTILE = "</script><img src=x onerror=\"document.title='run'\"><!--"


def test_sources_and_names_are_only_text(visit: Visits, tmp_path: Path) -> None:
    code = f"""// {HOSTILE}
extern "C" __global__ void transpose(const float *x, float *y, int n) {{
    y[threadIdx.x * n + threadIdx.y] = x[threadIdx.x]; /* <script>document.title = "run"</script> */
}}
"""
    found = reported(code, "<img src=x onerror=alert(1)>.cu")
    path = tmp_path / "hostile.html"
    hostile = ReportPage(HOSTILE, found.inspections, found.kernels, found.listings, found.errors, (HOSTILE,))
    path.write_text(hostile.html())
    page = visit(path)
    assert page.page.title() == HOSTILE
    assert page.page.locator("img").count() == 0
    assert row(page, "source", 1).locator(".code").inner_text() == f"// {HOSTILE}"
    assert page.page.locator("h1").inner_text() == HOSTILE
    row(page, "source", 3).locator(".digits").click()
    assert page.page.title() == HOSTILE
    assert page.wrong == []


def test_record_is_redrawn_with_the_selection(visit: Visits, shared_page: Path, slow: ReportPage) -> None:
    page = visit(shared_page)
    page.page.select_option("#measure", "counter:requests")
    row(page, "source", 3).locator(".digits").click()
    record = slow.record()
    record["listings"] = json.loads(json.dumps(record["listings"]).replace("slow.cu", "shared.cu"))
    page.page.evaluate("record => cujitReport.render(record)", record)
    assert page.page.locator("#measure").input_value() == "counter:requests"
    assert "y[column * n + row]" in texts(page, "source")
    assert "st.global.f32" in texts(page, "ptx")
    page.page.evaluate("record => cujitReport.render(record)", {**record, "listings": [], "kernels": []})
    assert page.page.locator(".lines").count() == 0
    assert page.wrong == []


def test_editor_replaces_the_source(visit: Visits, shared: ReportPage, tmp_path: Path) -> None:
    editor = """window.cujitEditor = (container, { pick }) => {
      const area = document.createElement("textarea");
      area.setAttribute("aria-label", "Source");
      container.append(area);
      window.said = {};
      window.pickLine = pick;
      return {
        show: (listing) => { area.value = listing.lines.join("\\n"); },
        heat: (map) => { said.heat = [...map.keys()]; },
        mark: (name, lines) => { said[name] = [...lines]; },
        reveal: (line) => { said.revealed = line; },
        focus: () => area.focus(),
      };
    };"""
    path = tmp_path / "edited.html"
    from cujit.report.page import page as written

    path.write_text(written(shared.record(), scripts=[editor]))
    page = visit(path)
    assert "__shared__ float s[32][32];" in page.page.locator("textarea").input_value()
    assert page.page.evaluate("said.heat") == [6]
    page.page.evaluate("pickLine(6)")
    assert page.page.evaluate("said.picked") == [6]
    assert "ld.shared.f32" in texts(page, "ptx")
    page.page.locator(".lines.ptx .row", has_text="bar.sync").locator(".digits").click()
    assert page.page.evaluate("said.revealed") == 5
    assert page.wrong == []


def test_plots_have_a_text_alternative(visit: Visits, shared_page: Path) -> None:
    page = visit(shared_page)
    names = [svg.get_attribute("aria-label") or "" for svg in page.page.locator("#plots svg[role=img]").all()]
    assert any(re.match(r"Roofline: .* operations a byte by distinct bytes", name) for name in names)
    assert sum(name.startswith("Occupancy by ") for name in names) == 3
    assert "NaN" not in page.page.locator("#plots").inner_html()
    bounds = page.page.locator("#plots table").first
    assert bounds.locator("tbody tr").first.inner_text().startswith("shared memory")
    every = page.page.locator("table")
    assert every.locator("caption").count() == every.count()


def test_one_of_several_kernels_is_chosen(visit: Visits, shared: ReportPage, slow: ReportPage, tmp_path: Path) -> None:
    """Though both have one name."""
    both = ReportPage("both", shared.inspections, (*shared.kernels, *slow.kernels), shared.listings)
    path = tmp_path / "both.html"
    path.write_text(both.html())
    page = visit(path)
    assert "bank conflicts" in page.page.locator("#finding-list").inner_text().lower()
    page.page.select_option("#kernel", index=1)
    assert "uncoalesced" in page.page.locator("#finding-list").inner_text().lower()
    assert page.page.locator("#measure").input_value() == "counter:sectors"
    assert page.wrong == []


def test_access_with_a_wrong_size_does_not_hang_the_page(visit: Visits, shared_page: Path) -> None:
    """A profile may come from who is not believed."""
    page = visit(shared_page)
    record = json.loads(page.page.locator("#record").text_content() or "")
    for instruction in record["kernels"][0]["profile"]["instructions"]:
        for access in instruction["accesses"]:
            access["lanes"] = [[lane, 2**50 * lane, 2**50] for lane in range(32)]
    page.page.evaluate("record => cujitReport.render(record)", record)
    row(page, "source", 4).locator(".digits").click()
    assert page.page.locator("#access svg .box").count() == 128
    assert page.wrong == []


def test_page_starts_at_the_hottest_line(visit: Visits, shared_page: Path) -> None:
    page = visit(shared_page, height=500)
    inside = "e => { const d = e.offsetTop - e.parentNode.scrollTop; return 0 <= d && d < e.parentNode.clientHeight; }"
    assert page.page.locator(".lines.ptx .row", has_text="ld.shared.f32").evaluate(inside)
    assert page.page.evaluate("document.activeElement === document.body")


def test_image_alone_has_a_page(visit: Visits, tmp_path: Path) -> None:
    from report.conftest import SLOW

    (tmp_path / "slow.cu").write_text(SLOW)
    built = cujit.build(tmp_path / "slow.cu", targets=["sm_90", "compute_80"], lineinfo=True)
    path = tmp_path / "image.html"
    path.write_text(cujit.report.of(built).html())
    page = visit(path)
    row(page, "source", 3).locator(".digits").click()
    assert "st.global" in texts(page, "ptx")
    assert "STG" in texts(page, "sass")
    assert page.page.locator("#plots svg").count() == 3
    assert page.wrong == []
    assert violations(page.page) == []


@needs_tiles
def test_tile_ir_lines_match_source_and_ptx(visit: Visits, tmp_path: Path) -> None:
    tile = cujit.compile(cujit.Source.cuda(TWICE, name="twice.cu"), to="tileir", lineinfo=True)
    image = cujit.bundle([cujit.build(cujit.Source.tile(tile), "compute_80"), tile])
    path = tmp_path / "tile.html"
    path.write_text(cujit.report.of(image, texts={"twice.cu": TWICE}).html())
    page = visit(path)
    assert page.page.locator(".pane h3").all_text_contents() == ["Source", "Tile IR", "PTX"]
    page.page.locator(".lines.tileir .row", has_text="load_view_tko").locator(".digits").click()
    assert marked(page, "source") == [6]
    assert "ld.global" in texts(page, "ptx")
    assert "of the Tile IR: 1 line of source" in status(page)
    row(page, "source", 7).locator(".digits").click()
    assert "store_view_tko" in texts(page, "tileir")
    assert "load_view_tko" not in texts(page, "tileir")
    assert page.wrong == []


def test_race_is_drawn_as_the_actions_of_two_threads(visit: Visits, tmp_path: Path) -> None:
    code = """extern "C" __global__ void turned(float *out) {
    __shared__ float part[64];
    part[threadIdx.x] = 1;
    out[threadIdx.x] = part[63 - threadIdx.x];
}"""
    device = cujit.cpu(check="race")
    with pytest.raises(cujit.errors.KernelFaultError) as caught:
        cujit.jit(code, device=device, name="turned.cu")["turned"][1, 64](device.zeros(64, np.float32))
    path = tmp_path / "race.html"
    path.write_text(ReportPage("turned", (), errors=(caught.value,)).html())
    picture = visit(path).page.locator("#finding-list svg")
    assert picture.is_visible()
    assert picture.get_attribute("aria-label") == ("thread (31, 0, 0) and thread (32, 0, 0): missing: __syncthreads()")
    boxes = [picture.locator("rect").nth(number).bounding_box() for number in (0, 1)]
    assert boxes[0] is not None
    assert boxes[1] is not None
    assert boxes[0]["x"] < boxes[1]["x"]
    assert boxes[0]["y"] < boxes[1]["y"]
