"""The page of an explorer in a browser: edited, wrong, mended; by mouse and by keys; saved, shared, read by axe."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from browsing import Visit, Visits, violations
from cujit.explore.serving import _redirect
from cujit.values import replace
from explore.conftest import CODE, LAUNCHED, Asking, Serve

if TYPE_CHECKING:
    from playwright.sync_api import FloatRect, Locator

WAIT_MS = 60_000
COUNTED = re.compile(r"launched and counted in")
Opened = Callable[..., Visit]


@pytest.fixture
def opened(visit: Visits) -> Iterator[Opened]:
    """Open the page of an explorer, and wait until it shows what it was begun with; the browser forgets its layout."""
    seen: list[Visit] = []

    def open(asking: Asking, said: re.Pattern[str] = COUNTED, **more: bool | int) -> Visit:
        found = visit(asking.explorer.url, origin=f"http://127.0.0.1:{asking.port}/", **more)  # type: ignore[arg-type]
        seen.append(found)
        says(found, said)
        return found

    yield open
    for page in seen:
        page.page.evaluate("localStorage.clear()")


def says(visit: Visit, said: re.Pattern[str] | str) -> None:
    """Wait until the page says so."""
    from playwright.sync_api import expect

    expect(visit.page.locator("#work")).to_have_text(said, timeout=WAIT_MS)


def says_anew(visit: Visit, said: re.Pattern[str] | str, change: Callable[[], object]) -> None:
    """Change something, and wait until the page says so of that."""
    from playwright.sync_api import expect

    work = visit.page.locator("#work")
    before = work.get_attribute("data-seen") or ""
    change()
    expect(work).not_to_have_attribute("data-seen", before, timeout=WAIT_MS)
    says(visit, said)


def editor(visit: Visit) -> Locator:
    return visit.page.locator(".cm-content")


def type_over(visit: Visit, line: int, text: str) -> None:
    """Put a text in the place of a line, by keys."""
    keys = visit.page.keyboard
    editor(visit).focus()
    keys.press("Control+Home")
    for _ in range(line - 1):
        keys.press("ArrowDown")
    keys.press("End")
    keys.press("Shift+Home")
    keys.press("Shift+Home")
    keys.insert_text(text)


def lines_of(visit: Visit, kind: str, how: str = "picked") -> str:
    return "\n".join(visit.page.locator(f".lines.{kind} .row.{how} .code").all_text_contents())


def test_explorer_starts_with_the_file_and_its_facts(opened: Opened, serve: Serve) -> None:
    page = opened(serve())
    assert page.page.locator(".cm-line").all_inner_texts()[1].strip() == "__shared__ float s[32][32];"
    assert page.page.locator(".pane h3").all_inner_texts() == ["Source", "PTX", "Machine code"]
    assert page.page.locator(".cm-heat .cm-gutterElement").filter(has_text="3,968").count() == 1
    assert "bank conflicts" in page.page.locator("#finding-list").inner_text().lower()
    assert page.page.locator("#plots svg").count() == 4
    assert page.page.locator("#field-arch").input_value() == "sm_90"
    assert (page.asked, page.wrong) == ([], [])


def test_edit_error_and_fix(opened: Opened, serve: Serve) -> None:
    page = opened(serve())
    before = page.page.locator(".lines.ptx").inner_text()
    type_over(page, 4, "    s[threadIdx.y][threadIdx.x] = 1.5f * wrong[row * n + column];")
    says(page, 'shared.cu:4: identifier "wrong" is undefined')
    assert page.page.locator(".cm-lintRange-error").inner_text() == "wrong"
    assert page.page.locator(".cm-lint-marker-error").count() == 1
    assert page.page.locator("main.stale .lines.ptx").inner_text() == before
    page.page.locator("#finding-list a", has_text="shared.cu:4").click()
    assert page.page.locator(".cm-line.picked").inner_text().strip().startswith("s[threadIdx.y]")
    type_over(page, 4, "    s[threadIdx.y][threadIdx.x] = 2.5f * x[row * n + column];")
    says(page, COUNTED)
    assert page.page.locator(".cm-lintRange-error").count() == 0
    assert page.page.locator("main.stale").count() == 0
    assert page.page.locator(".lines.ptx").inner_text() != before
    assert page.wrong == []


def test_padding_a_tile_removes_its_conflicts(opened: Opened, serve: Serve) -> None:
    page = opened(serve())
    says_anew(page, COUNTED, lambda: type_over(page, 2, "    __shared__ float s[32][33];"))
    assert "bank conflicts" not in page.page.locator("#finding-list").inner_text().lower()
    assert page.page.locator(".cm-heat .cm-gutterElement").filter(has_text="3,968").count() == 0


def box(of: Locator) -> FloatRect:
    """Find where an element is on the page."""
    found = of.bounding_box()
    assert found is not None
    return found


def test_advice_is_above_the_source_and_in_its_gutter(opened: Opened, serve: Serve) -> None:
    page = opened(serve())
    mark = page.page.locator(".cm-lint-marker-info")
    assert mark.count() == 1
    line = page.page.locator(".cm-lineNumbers .cm-gutterElement", has_text=re.compile("^6$"))
    assert abs(box(mark)["y"] - box(line)["y"]) < 10
    mark.hover()
    tip = page.page.locator(".cm-tooltip-lint")
    tip.wait_for()
    assert "takes 32 wavefronts" in tip.inner_text()
    assert re.search(r"estimate for \w+: saves about \d+% of the run time", tip.inner_text())
    findings, texts = (box(page.page.locator(name)) for name in ("#findings", "#texts"))
    assert findings["y"] + findings["height"] <= texts["y"]
    type_over(page, 2, "    __shared__ float s[32][33];")
    says(page, COUNTED)
    mark.wait_for(state="detached")
    assert box(page.page.locator("#texts"))["y"] == texts["y"]  # the text that is typed in stays where it is


def test_fault_is_shown_at_its_line(opened: Opened, serve: Serve) -> None:
    page = opened(serve())
    page.page.fill("#field-arguments", "ones:f32:4090 zeros:f32:4096 64")
    says(page, re.compile(r"Compiled\. shared\.cu:4: .* just past the end of the 16,360 bytes of argument 1"))
    assert page.page.locator(".cm-lintRange-error").inner_text().startswith("s[threadIdx.y]")
    assert page.page.locator(".lines.sass").count() == 1


def test_matching_lines_are_highlighted_on_hover_and_click(opened: Opened, serve: Serve) -> None:
    page = opened(serve())
    line = page.page.locator(".cm-line").nth(5)
    line.hover(position={"x": 60, "y": 5})
    assert "ld.shared.f32" in lines_of(page, "ptx", "hovered")
    assert "LDS" in lines_of(page, "sass", "hovered")
    line.click(position={"x": 60, "y": 5})
    assert "ld.shared.f32" in lines_of(page, "ptx")
    assert "shared.cu:6" in page.page.locator("#line-body caption").inner_text()
    page.page.locator(".lines.ptx .row", has_text="bar.sync").locator(".digits").click()
    assert page.page.locator(".cm-line.picked").inner_text().strip() == "__syncthreads();"
    page.page.locator(".cm-lineNumbers .cm-gutterElement", has_text=re.compile("^4$")).click()
    assert "st.shared.f32" in lines_of(page, "ptx")
    assert page.wrong == []


def test_architecture_gpu_options_and_block_are_changed(opened: Opened, serve: Serve) -> None:
    from playwright.sync_api import expect

    page = opened(serve())
    gpu, arch = page.page.locator("#field-on"), page.page.locator("#field-arch")
    page.page.select_option("#field-arch", "sm_80")
    assert gpu.input_value() == "A100"
    page.page.select_option("#field-on", "A30")
    page.page.select_option("#field-arch", "sm_90a")
    assert gpu.input_value() == "H200"
    page.page.select_option("#field-on", "H100 SXM")
    assert arch.input_value() == "sm_90a"
    page.page.select_option("#field-arch", "sm_80")
    assert gpu.input_value() == "A30"
    expect(page.page.locator("#name-sass")).to_have_text("SASS sm_80", timeout=WAIT_MS)
    expect(page.page.locator("#plots figcaption").first).to_contain_text("Occupancy on A30", timeout=WAIT_MS)
    says(page, COUNTED)
    assert "bounds: the table doesn't contain the clock and the bandwidths of A30" in page.page.inner_text("#notes")
    page.page.select_option("#field-on", "RTX 4090")
    assert page.page.locator("#field-arch").input_value() == "sm_89"
    expect(page.page.locator("#plots figcaption").first).to_contain_text("Bounds on RTX 4090", timeout=WAIT_MS)
    page.page.fill("#field-options", "-DN=4 no_such_option")
    says(page, re.compile("no_such_option"))
    page.page.fill("#field-options", "-DN=4 use_fast_math")
    page.page.fill("#field-block", "32x8")
    page.page.select_option("#field-check", "memory")
    expect(page.page.locator("#about")).to_contain_text("1,024 threads", timeout=WAIT_MS)
    page.page.fill("#field-grid", "")
    says(page, re.compile("Enter grid and block, or elements, to launch the kernel"))
    assert page.page.locator("#line-body").inner_text() == "No launch was counted."
    assert page.wrong == []


SEVERAL = """#include <cuda_fp16.h>
template <class T> __global__ void twice(T *x, int n) {
    if (threadIdx.x < n) x[threadIdx.x] *= 2;
}
__global__ void set(float *p, float value, bool is_set, int n) {
    if (is_set && threadIdx.x < n) p[threadIdx.x] = value;
}
__global__ void cast(const __half *from, double *to) { to[threadIdx.x] = __half2float(from[threadIdx.x]); }
"""


def argument(visit: Visit, label: str) -> Locator:
    return visit.page.get_by_label(label, exact=True)


def test_kernel_is_chosen_from_a_list_with_typed_fields(opened: Opened, serve: Serve) -> None:
    from playwright.sync_api import expect

    begun = replace(LAUNCHED, grid="1", block="32", arguments="")
    page = opened(serve(SEVERAL, begun), re.compile("shared.cu contains 2 kernels"))
    assert page.page.locator("#field-kernel option").all_inner_texts() == [
        "choose a kernel", "set", "cast", "template instance …",
    ]  # fmt: skip
    says_anew(page, COUNTED, lambda: page.page.select_option("#field-kernel", "set"))
    legends = page.page.locator("#argument-fields legend")
    assert legends.all_inner_texts() == ["p float*", "value float", "is_set bool", "n int"]
    assert page.page.locator("#field-arguments").input_value() == "zeros:f32:1024 1.0 true 1024"
    says_anew(page, re.compile("shared.cu:6: .* past the end of the 64 bytes of argument 1"),
              lambda: argument(page, "Shape of p").fill("16"))  # fmt: skip
    says_anew(page, COUNTED, lambda: argument(page, "Value of is_set").select_option("false"))
    argument(page, "Fill of p").select_option("arange")
    argument(page, "Value of n").fill("16")
    expect(page.page.locator("#field-arguments")).to_have_value("arange:f32:16 1.0 false 16")
    page.page.fill("#field-arguments", "ones:f32:8 2.5 true 8")
    assert [argument(page, name).input_value() for name in ("Fill of p", "Shape of p", "Value of value")] == [
        "ones", "8", "2.5",
    ]  # fmt: skip
    argument(page, "Fill of p").select_option("")
    argument(page, "Text of p").fill("my file.npy")
    expect(page.page.locator("#field-arguments")).to_have_value("'my file.npy' 2.5 true 8")
    assert page.wrong == []


def test_fields_have_the_types_of_the_signature(opened: Opened, serve: Serve) -> None:
    from playwright.sync_api import expect

    begun = replace(LAUNCHED, kernel="cast", grid="1", block="32", arguments="")
    page = opened(serve(SEVERAL, begun))
    types = [argument(page, f"Type of {name}").input_value() for name in ("from", "to")]
    assert types == ["f16", "f64"]
    page.page.select_option("#field-kernel", "…")
    expect(page.page.locator("#field-instance")).to_be_focused()
    page.page.keyboard.insert_text("twice<short>")
    expect(page.page.locator("#argument-fields legend").last).to_have_text("n int", timeout=WAIT_MS)
    assert argument(page, "Type of x").input_value() == "i16"
    assert page.page.locator("#field-arguments").input_value() == "zeros:i16:1024 1024"
    says(page, COUNTED)
    assert page.page.locator("#field-kernel").input_value() == "…"
    argument(page, "Type of x").select_option("f16")
    says(page, re.compile("its elements are float16, not int16"))
    assert violations(page.page) == []


def test_nothing_is_suggested_for_a_structure(opened: Opened, serve: Serve) -> None:
    code = "struct Pair { int a, b; };\n__global__ void k(Pair pair, int *p) { *p = pair.a; }\n"
    page = opened(
        serve(code, replace(LAUNCHED, grid="1", block="1", arguments="")), re.compile("k requires 2 arguments")
    )
    assert page.page.locator("#argument-fields legend").all_inner_texts() == ["pair Pair", "p int*"]
    assert page.page.locator("#field-arguments").input_value() == ""


def rows_of(visit: Visit, caption: str) -> dict[str, list[str]]:
    """Read a table of the comparison by the first cell of its rows."""
    table = visit.page.locator("#compare table").filter(has=visit.page.locator(f"caption:text-is('{caption}')"))
    rows = [row.split("\t") for row in table.locator("tbody tr").all_inner_texts()]
    return {row[0]: row[1:] for row in rows}


def signs(visit: Visit, kind: str) -> list[str]:
    return visit.page.locator(f".diff td.{kind}").all_inner_texts()


def test_versions_are_compared_by_code_resources_and_counters(opened: Opened, serve: Serve) -> None:
    from playwright.sync_api import expect

    page = opened(serve())
    said = page.page.locator("#compare-said")
    page.page.click("#keep")
    expect(said).to_have_text("SASS: no difference.")
    type_over(page, 2, "    __shared__ float s[32][33];")
    expect(said).to_have_text(re.compile(r"SASS: \d+ lines? removed, \d+ lines? added"), timeout=WAIT_MS)
    assert rows_of(page, "Resources")["shared bytes"] == ["4,096", "4,224", "+128, +3 %"]
    assert rows_of(page, "Counters")["bank conflicts"] == ["3,968", "0", "−3,968, −100 %"]
    assert rows_of(page, "Counters")["sectors"][2] == "equal"
    page.page.select_option("#compare-kind", "source")
    assert (signs(page, "removed"), signs(page, "added")) == (
        ["−     __shared__ float s[32][32];"], ["+     __shared__ float s[32][33];"],
    )  # fmt: skip
    page.page.select_option("#compare-kind", "ptx")
    assert any("[4096];" in line for line in signs(page, "removed"))
    few = len(signs(page, "added"))
    assert page.page.locator(".diff td:nth-child(4)").count() > 0
    page.page.uncheck("#compare-registers")
    assert len(signs(page, "added")) >= few
    page.page.set_viewport_size({"width": 420, "height": 900})
    assert page.page.locator(".diff td:nth-child(4)").count() == 0  # one text below the other
    assert page.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert violations(page.page) == []
    assert page.wrong == []


def test_architectures_are_compared_and_reload_resets_it(opened: Opened, serve: Serve) -> None:
    from playwright.sync_api import expect

    page = opened(serve())
    page.page.select_option("#compare-with", "sm_80")
    expect(page.page.locator("#compare-said")).to_have_text(re.compile("removed"), timeout=WAIT_MS)
    assert page.page.locator(".diff th").all_inner_texts() == ["sm_80", "this version (sm_90)"]
    assert "registers" in rows_of(page, "Resources")
    assert page.page.locator("#name-sass").inner_text() == "SASS sm_90"
    assert violations(page.page) == []
    type_over(page, 2, "    __shared__ float s[32][33];")
    expect(page.page.locator("#compare table").first).to_contain_text("4,224", timeout=WAIT_MS)
    assert page.wrong == []
    page.page.reload()
    says(page, COUNTED)
    assert page.page.locator("#field-arch").input_value() == "sm_90"
    assert page.page.locator("#compare-with").input_value() == ""


def test_differences_are_shortest_and_restore_both_texts(opened: Opened, serve: Serve) -> None:
    page = opened(serve())
    wrong = page.page.evaluate("""() => {
      let seed = 7;
      const random = (n) => (seed = (seed * 48271) % 2147483647) % n;
      const text = () => Array.from({ length: random(12) }, () => "abc"[random(3)]);
      const common = (a, b) => a.reduceRight((row, x) => b.reduceRight((now, y, k) => {
        now[k] = x === y ? row[k + 1] + 1 : Math.max(row[k], now[k + 1]);
        return now;
      }, new Array(b.length + 1).fill(0)), new Array(b.length + 1).fill(0))[0];
      const wrong = [];
      for (let k = 0; k < 500; k++) {
        const a = text(), b = text(), pairs = cujitComparison.diff(a, b);
        const ordered = (n) => pairs.map((pair) => pair[n]).filter((at) => at !== null).every((at, k) => at === k);
        const whole = [a, b].every((lines, n) => pairs.filter((pair) => pair[n] !== null).length === lines.length);
        const equal = pairs.filter(([x, y]) => x !== null && y !== null);
        const same = equal.every(([x, y]) => a[x] === b[y]) && equal.length === common(a, b);
        if (!ordered(0) || !ordered(1) || !whole || !same) wrong.push([a.join(""), b.join("")]);
      }
      const many = (word) => Array.from({ length: 4000 }, (_, k) => word + k);
      if (cujitComparison.diff(many("a"), many("b")).length !== 8000) wrong.push("many");
      return wrong;
    }""")
    assert wrong == []


def test_layout_is_changed_by_mouse_and_keys_and_remembered(opened: Opened, serve: Serve) -> None:
    page = opened(serve())
    source, sass = page.page.locator(".pane.source"), page.page.locator(".pane.sass")
    splitter = page.page.get_by_label("Width of Source")
    before, at = box(source)["width"], box(splitter)
    page.page.mouse.move(at["x"] + 4, at["y"] + 40)
    page.page.mouse.down()
    page.page.mouse.move(at["x"] + 104, at["y"] + 40, steps=3)
    page.page.mouse.up()
    assert 95 <= box(source)["width"] - before <= 105
    share = splitter.get_attribute("aria-valuenow")
    splitter.focus()
    page.page.keyboard.press("ArrowRight")
    assert int(splitter.get_attribute("aria-valuenow") or 0) == int(share or 0) + 5
    height = box(sass)["height"]
    page.page.get_by_label("Height of the lists").focus()
    page.page.keyboard.press("ArrowUp")
    assert abs(box(sass)["height"] - (height - 40)) <= 1
    page.page.get_by_label("Wrap lines").check()
    assert page.page.locator(".cm-lineWrapping").count() == 1
    lines = page.page.locator(".lines.ptx")
    assert lines.evaluate("list => list.scrollWidth <= list.clientWidth")
    page.page.select_option("#theme", "dark")
    width = box(source)["width"]
    assert page.wrong == []
    page.page.reload()
    says(page, COUNTED)
    assert abs(box(source)["width"] - width) <= 1
    assert page.page.locator(".cm-lineWrapping").count() == 1
    assert page.page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert violations(page.page) == []
    page.page.click("#reset-layout")
    assert abs(box(source)["width"] - before) <= 1
    assert page.page.locator(".cm-lineWrapping").count() == 0
    assert page.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_instructions_and_counters_are_explained_on_hover(opened: Opened, serve: Serve) -> None:
    from playwright.sync_api import expect

    page = opened(serve())
    tip, keys = page.page.locator("#tip"), page.page.keyboard

    def point(at: Locator) -> None:
        at.scroll_into_view_if_needed()
        page.page.wait_for_timeout(500)  # a page that scrolls smoothly hides what it says
        at.hover()

    point(page.page.locator(".lines.ptx .op", has_text="ld.shared.f32"))
    expect(tip).to_have_text("ld.shared.f32: Loads from shared memory of the block. PTX ISA, section 9.7.9.8")
    assert str(tip.locator("a").get_attribute("href")).startswith(
        "https://docs.nvidia.com/cuda/parallel-thread-execution/"
    )
    assert violations(page.page) == []
    tip.locator("a").hover()
    page.page.wait_for_timeout(400)
    assert tip.is_visible()
    keys.press("Escape")
    assert tip.is_hidden()
    point(page.page.locator(".lines.sass .op", has_text="LDS").first)
    expect(tip).to_have_text("LDS: Loads from shared memory. CUDA Binary Utilities")
    point(page.page.locator("#counters th", has_text="l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld"))
    expect(tip).to_contain_text("_op_ld.sum: Bank conflicts of shared memory: loads. Nsight Compute")
    point(page.page.locator("h1"))
    expect(tip).to_be_hidden()
    meaning = page.page.locator("#measure-meaning")
    expect(meaning).to_contain_text("bank conflicts: Additional wavefronts")
    page.page.select_option("#measure", "counter:sectors")
    expect(meaning).to_contain_text("sectors: 32-byte sectors of global memory")
    page.page.locator(".lines.ptx .row", has_text="bar.sync").locator(".digits").click()
    expect(page.page.locator("#line-instruction")).to_contain_text(
        "bar.sync: Waits for the threads of the block. PTX ISA"
    )
    keys.press("i")
    expect(tip).to_contain_text("bar.sync: Waits for the threads of the block.")
    assert page.page.locator("#status").inner_text() == "bar.sync: Waits for the threads of the block."
    keys.press("Escape")
    assert tip.is_hidden()
    assert page.page.locator(".row.picked").count() > 0  # Escape closes one thing after the other
    assert page.wrong == []


def test_ptx_is_filtered_and_sass_has_colors_and_no_padding(opened: Opened, serve: Serve) -> None:
    page = opened(serve())
    heat = ".lines.sass .row:has(.heat:not(:empty))"
    assert [row.split() for row in page.page.locator(f"{heat} .op").all_inner_texts()] == [["LDS"]]
    assert page.page.locator(f"{heat} .heat").all_inner_texts() == ["3,968"]
    page.page.select_option("#measure", "counter:sectors")
    assert {op.split(".")[0] for op in page.page.locator(f"{heat} .op").all_inner_texts()} == {"LDG", "STG"}
    page.page.select_option("#measure", "counter:warps")
    assert page.page.locator(f"{heat} .op", has_text="IMAD").count() > 0
    assert "BRA" in page.page.locator(".lines.sass .op").all_inner_texts()[-1]  # and not the NOPs after it
    lines = page.page.locator(".lines.ptx .row:visible .code")
    assert any(".loc" in text for text in lines.all_inner_texts())
    page.page.get_by_label("Code only").check()
    shown = lines.all_inner_texts()
    assert not [text for text in shown if not text.strip() or text.strip().startswith((".loc", "//", ".reg", ".file"))]
    assert any("ld.shared.f32" in text for text in shown)
    page.page.locator(".lines.ptx").focus()
    page.page.keyboard.press("Home")
    seen = []
    for _ in range(len(shown) + 3):
        at = page.page.locator(".lines.ptx .row.at")
        assert at.is_visible()
        seen.append(at.locator(".code").inner_text())
        page.page.keyboard.press("ArrowDown")
    assert seen[: len(shown)] == shown
    assert set(seen[len(shown) :]) == {shown[-1]}
    assert violations(page.page) == []
    page.page.reload()
    says(page, COUNTED)
    assert page.page.get_by_label("Code only").is_checked()
    assert lines.all_inner_texts() == shown


def test_empty_file_leads_to_a_found_access_out_of_bounds(opened: Opened, serve: Serve) -> None:
    from playwright.sync_api import expect

    page = opened(serve("", replace(LAUNCHED, grid="", block="", arguments="")), re.compile("Compiled in"))
    starters = page.page.locator("#starters")
    assert starters.get_by_role("button").all_inner_texts() == ["axpy", "transpose", "sum", "histogram"]
    assert violations(page.page) == []
    says_anew(page, COUNTED, lambda: starters.get_by_role("button", name="axpy").click())
    expect(starters).to_be_hidden()
    expect(page.page.locator("#argument-fields legend")).to_have_text(
        ["a float", "x const float*", "y float*", "n int"]
    )
    argument(page, "Shape of x").fill("990")
    says(page, re.compile(r"Compiled\. shared\.cu:3: .* past the end of the 3,960 bytes of argument 2"))
    assert page.page.locator("#finding-list a", has_text="shared.cu:3").is_visible()
    assert page.page.locator(".cm-lintRange-error").count() == 1
    editor(page).focus()
    page.page.keyboard.press("Control+a")
    page.page.keyboard.press("Delete")
    expect(starters).to_be_visible()
    assert page.wrong == []


def tab_to(visit: Visit, selector: str, key: str = "Tab") -> None:
    for _ in range(40):
        visit.page.keyboard.press(key)
        if visit.page.evaluate(f"document.activeElement.matches('{selector}')"):
            return
    raise AssertionError(f"Tab does not come to {selector}")


def test_explorer_is_usable_by_keyboard_alone(opened: Opened, serve: Serve) -> None:
    """Edit, error, fix, pick a line, change the architecture, save; and Tab leaves the editor."""
    page = opened(serve())
    keys = page.page.keyboard
    tab_to(page, "#field-arch")
    says_anew(page, COUNTED, lambda: keys.type("sm_80"))
    tab_to(page, ".cm-content")
    keys.press("Control+Home")
    keys.press("ArrowDown")
    keys.press("End")
    keys.press("Backspace")
    says(page, re.compile('shared.cu:3: expected a ";"'))
    keys.press("Control+Home")
    keys.press("F8")
    keys.press("Control+z")
    says(page, COUNTED)
    assert page.page.locator("#name-sass").inner_text() == "SASS sm_80"
    keys.press("Control+Home")
    for _ in range(5):
        keys.press("ArrowDown")
    keys.press("Control+Enter")
    assert page.page.locator(".cm-line.picked").inner_text().strip().startswith("y[(blockIdx.x")
    assert "ld.shared.f32" in lines_of(page, "ptx")
    keys.press("Tab")
    assert page.page.evaluate("document.activeElement.matches('.pane.source .splitter')")
    keys.press("Tab")
    assert page.page.evaluate("document.activeElement.matches('#code-only')")
    keys.press("Tab")
    assert page.page.evaluate("document.activeElement.matches('.lines.ptx')")
    keys.press("ArrowLeft")
    assert page.page.evaluate("document.activeElement.matches('.cm-content')")
    keys.press("Escape")
    assert page.page.locator(".cm-line.picked").count() == 0
    keys.press("Control+s")
    says(page, "Saved to shared.cu.")
    assert page.wrong == []


@pytest.mark.parametrize(("width", "dark"), [(1440, False), (800, True)], ids=["light", "dark"])
def test_axe_finds_nothing(opened: Opened, serve: Serve, width: int, *, dark: bool) -> None:
    page = opened(serve(), dark=dark, width=width)
    assert violations(page.page) == []
    page.page.locator(".cm-line").nth(5).click(position={"x": 60, "y": 5})
    page.page.locator("#explorer summary").click()
    assert violations(page.page) == []
    type_over(page, 4, "    s[threadIdx.y][threadIdx.x] = wrong;  // a comment, 7, 'c', \"text\"")
    says(page, re.compile("is undefined"))
    page.page.keyboard.press("F8")
    page.page.keyboard.press("Control+f")
    assert page.page.locator(".cm-search").is_visible()
    assert violations(page.page) == []


def test_nothing_is_wider_than_the_page(opened: Opened, serve: Serve) -> None:
    page = opened(serve())
    for width in (1440, 800, 420):
        page.page.set_viewport_size({"width": width, "height": 900})
        assert page.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_file_is_saved_only_on_request(opened: Opened, serve: Serve) -> None:
    asking = serve()
    page, path = opened(asking), asking.path
    save = page.page.locator("#save")
    assert save.is_disabled()
    says_anew(page, COUNTED, lambda: type_over(page, 2, "    __shared__ float s[32][33];"))
    assert path.read_text() == CODE
    save.click()
    says(page, "Saved to shared.cu.")
    assert path.read_text() == CODE.replace("[32][32]", "[32][33]")
    assert save.is_disabled()
    path.write_text("// of somebody else\n")
    type_over(page, 2, "    __shared__ float s[32][34];")
    page.page.keyboard.press("Control+s")
    says(page, re.compile("shared.cu has changed on disk since the explorer read it; hint: save again to overwrite it"))
    assert path.read_text() == "// of somebody else\n"
    page.page.keyboard.press("Control+s")
    says(page, "Saved to shared.cu.")
    assert "[32][34]" in path.read_text()


def test_typed_text_survives_a_reload(opened: Opened, serve: Serve) -> None:
    page = opened(serve())
    page.page.select_option("#field-on", "")
    says_anew(page, COUNTED, lambda: type_over(page, 2, "    __shared__ float s[32][33];"))
    page.page.reload()
    says(page, COUNTED)
    assert "[32][33]" in page.page.locator(".cm-line").nth(1).inner_text()
    assert page.page.locator("#field-on").input_value() == ""
    assert page.page.locator("#save").is_enabled()


def test_page_is_handed_on_as_one_file(opened: Opened, serve: Serve, visit: Visits, tmp_path: Path) -> None:
    page = opened(serve())
    with page.page.expect_download() as saving:
        page.page.locator("#share").click()
    path = tmp_path / saving.value.suggested_filename
    assert path.name == "shared.cu.html"
    saving.value.save_as(path)
    shared = visit(path)
    assert shared.page.locator(".lines.source .row").count() == 7
    assert shared.page.locator(".cm-editor").count() == 0
    assert shared.page.locator(".lines.source .heat").all_inner_texts()[5] == "3,968"
    assert (shared.asked, shared.wrong) == ([], [])
    assert "token" not in path.read_text()


def test_hostile_source_stays_text(opened: Opened, serve: Serve) -> None:
    hostile = "// </script><script>document.title='run'</script><img src=x onerror=\"document.title='run'\"><!--\n"
    page = opened(serve(hostile + CODE))
    assert page.page.locator(".cm-line").first.inner_text() == hostile.strip()
    type_over(page, 1, "#error </script><img src=x onerror=\"document.title='run'\">")
    says(page, re.compile("#error directive|img src"))
    assert page.page.title() != "run"
    assert page.page.locator("img").count() == 0
    wrong = [said for said in page.wrong if "inline style" not in said]  # what Chromium itself would write there
    assert wrong == []


def test_header_is_read_in_the_place_of_the_file(opened: Opened, serve: Serve) -> None:
    code = '#include "scale.h"\n' + CODE.replace("1.5f * x[row * n + column]", "scale(x[row * n + column])")
    asking = serve(code)
    (asking.path.parent / "scale.h").write_text("__device__ float scale(float x) {\n    return 2 * x;\n}\n")
    page = opened(asking)
    option = page.page.locator("#file option", has_text="scale.h").get_attribute("value")
    page.page.select_option("#file", option)
    assert page.page.locator(".cm-line").nth(1).inner_text().strip() == "return 2 * x;"
    page.page.locator(".cm-line").nth(1).click()
    page.page.keyboard.insert_text("nothing")
    assert "nothing" not in page.page.locator(".cm-content").inner_text()
    page.page.select_option("#file", "shared.cu")
    assert page.page.locator(".cm-line").first.inner_text() == '#include "scale.h"'
    assert page.wrong == []


def test_kernel_output_is_shown(opened: Opened, serve: Serve) -> None:
    code = 'extern "C" __device__ int printf(const char *, ...);\n__global__ void k() { printf("<b>%d</b>\\n", 42); }\n'
    page = opened(serve(code, replace(LAUNCHED, grid="1", block="1", arguments="")))
    assert page.page.locator("#printed-text").inner_text() == "<b>42</b>\n"


def test_ended_explorer_is_reported(opened: Opened, alone: Serve) -> None:
    asking = alone()
    page = opened(asking)
    asking.explorer.close()
    type_over(page, 2, "    __shared__ float s[32][33];")
    says(page, re.compile("The explorer does not answer"))


def test_only_the_last_of_fast_edits_is_analyzed(opened: Opened, serve: Serve) -> None:
    page = opened(serve())
    asked: list[str] = []
    page.page.on("request", lambda request: asked.append(request.url))

    def fast() -> None:
        for n in range(33, 43):
            page.page.fill("#field-options", f"-DN={n}")

    says_anew(page, COUNTED, fast)
    assert sum(url.endswith("/look") for url in asked) == 1


def test_token_leaves_the_address_bar_and_reload_works(opened: Opened, serve: Serve) -> None:
    asking = serve(CODE, LAUNCHED)
    seen = opened(asking)
    assert seen.page.url == f"http://127.0.0.1:{asking.port}/"
    seen.page.reload()
    says(seen, COUNTED)
    assert seen.page.url == f"http://127.0.0.1:{asking.port}/"


def test_launch_file_for_the_browser_opens_the_page(visit: Visits, serve: Serve) -> None:
    asking = serve(CODE, LAUNCHED)
    with _redirect(asking.explorer.url) as file:
        assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        seen = visit(file, origin=f"http://127.0.0.1:{asking.port}/")
        says(seen, COUNTED)
    assert not file.exists()
