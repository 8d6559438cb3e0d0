"""Results show in a notebook what the verbs print of them, as HTML that nothing in them can add to."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cujit
from cells import Cells
from cujit.artifact import Artifact
from cujit.cli.console import Rows
from cujit.kernel import Kernel
from cujit.notebook.displays import html_of
from cujit.profile import Profile, bounds, compare

TAGS = {"div", "pre", "table", "thead", "tbody", "tr", "th", "td"}
HOSTILE = "</td></pre><script>alert('x')</script><img src=x onerror=alert(1)>&amp;\u202e\x1b[31m"
CODE = """
extern "C" __global__ void copy(const float *x, float *y, int stride) {
    y[threadIdx.x] = x[threadIdx.x * stride];
}"""


class Written(HTMLParser):
    """What is in HTML: text, cells row by row, and that every tag is one of ours and closed."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.text = ""
        self.rows: list[list[str]] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        assert {name for name, _ in attrs} <= {"style", "class"}, attrs
        self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._open[-1] in ("th", "td"):
            self.rows[-1][-1] += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(decl)


def launched(stride: int, profile: Profile) -> Kernel:
    device = cujit.cpu(profile=profile)
    copy = cujit.jit(CODE, device=device, name="copy.cu")["copy"]
    copy[1, 32](device.zeros(1024, np.float32), device.zeros(32, np.float32), stride)
    return copy


def cubin(name: str = "copy.cu") -> Artifact:
    return cujit.compile(cujit.Source.cuda(CODE, name=name), arch="sm_90")


def failure(code: str, name: str = "own.cu", include: Path | tuple[()] = ()) -> cujit.errors.CompileError:
    with pytest.raises(cujit.errors.CompileError) as caught:
        cujit.compile(cujit.Source.cuda(code, name=name, include=include), arch="sm_90")
    return caught.value


def test_profile_shows_lines_and_advice(cells: Cells) -> None:
    profile = Profile()
    assert Written(cells.shown(profile)["text/html"]).text == "nothing was launched yet"
    launched(8, profile)
    written = Written(cells.shown(profile)["text/html"])
    row = next(dict(zip(written.rows[0], row, strict=True)) for row in written.rows if row[0] == "copy.cu:3")
    assert (row["requests"], row["sectors"], row["each"]) == ("2", "36", "18.0")
    assert "uncoalesced: each warp's load at copy.cu:3 moves 32 sectors for 128 bytes" in written.text
    assert cells.shown(profile.kernels[0])["text/html"] == cells.shown(profile)["text/html"]


def test_comparison_of_profiles_shows_both(cells: Cells) -> None:
    before, after = Profile(), Profile()
    launched(8, before)
    launched(1, after)
    written = Written(cells.shown(compare(*before.kernels, *after.kernels))["text/html"])
    assert written.rows[0] == ["", "before", "after", "difference"]
    assert ["sectors", "36", "8", "-28"] in written.rows


def test_bounds_show_every_part_of_the_gpu(cells: Cells) -> None:
    profile = Profile()
    launched(8, profile)
    found = bounds(profile.kernels[0], "H200")
    written = Written(cells.shown(found)["text/html"])
    assert [row[0] for row in written.rows[1:]] == [bound.unit for bound in found.bounds]
    assert str(found) in written.text


def test_image_display_has_its_kernels(cells: Cells) -> None:
    made = cubin()
    written = Written(cells.shown(made)["text/html"])
    assert ["copy", "sm_90"] in [row[:2] for row in written.rows]
    assert ["copy", "(const float*, float*, int)"] in written.rows
    assert Written(cells.shown(cujit.inspect(made))["text/html"]).rows == written.rows
    linkable = cujit.compile(CODE, arch="lto_90")
    assert "LTO-IR" in Written(cells.shown(linkable)["text/html"]).text


def test_comparison_display_marks_increases(cells: Cells) -> None:
    larger = CODE.replace("y[", "__shared__ float s[64]; s[threadIdx.x] = *x; __syncthreads(); y[(int) s[stride] + ")
    found = cujit.compare(cubin(), cujit.compile(cujit.Source.cuda(larger, name="copy.cu"), arch="sm_90"))
    written = Written(cells.shown(found)["text/html"])
    row = dict(zip(*written.rows, strict=True))
    assert row["kernel"] == "copy"
    assert row["shared"].startswith("0 → 256")
    assert "1 kernels in both: 1 grew" in written.text


def test_occupancy_display_names_the_limiting_resource(cells: Cells) -> None:
    occupancy = cujit.occupancy.of(cubin(), 256, on="H200")
    written = Written(cells.shown(occupancy)["text/html"])
    row = dict(zip(*written.rows, strict=True))
    assert (row["block"], row["occupancy"], row["limited by"]) == ("256", "100.0%", "warps")
    assert "best" not in written.text
    assert "copy on H200 (sm_90), 132 multiprocessors" in written.text


def test_budget_display_marks_exceeded_limits(cells: Cells) -> None:
    with pytest.raises(cujit.errors.BudgetError) as caught:
        cujit.budget.check(cubin(), cujit.budget.Budget(registers=1, stack_bytes=64))
    html = cells.shown(caught.value.report)["text/html"]
    over, within = Written(html).rows[1:]
    assert over[2:4] == ["registers", "1"]
    assert over[-1].endswith("over")
    assert within[2:] == ["stack_bytes", "64", "0", "64 left"]
    assert len(re.findall(r'<tr style="background:rgba', html)) == 1
    assert cells.shown(caught.value)["text/html"] == html
    assert Written(cells.shown(cujit.errors.BudgetError("another's"))["text/html"]).text == "another's"


def test_compile_error_shows_numbered_lines_around_messages(cells: Cells) -> None:
    text = (
        "\n".join(f"// {n}" for n in range(1, 9))
        + "\n__global__ void f() { here(); }\n\n\n// 12\n__device__ int x = y;"
    )
    written = Written(cells.shown(failure(text))["text/html"]).text
    assert (
        "own.cu\n  7 | // 7\n  8 | // 8\n> 9 | __global__ void f() { here(); }\n    |                       ^"
        in written
    )
    assert "  12 | // 12\n> 13 | __device__ int x = y;\n     |                    ^" in written
    assert written.startswith("own.cu does not compile for sm_90: 2 errors" + 'error: identifier "here" is undefined')


def test_of_very_many_messages_the_first_are_shown(cells: Cells) -> None:
    text = "\n".join(f"__device__ int x{n} = y{n};" for n in range(50))
    written = Written(cells.shown(failure(text))["text/html"]).text
    assert 'identifier "y19"' in written
    assert 'identifier "y20"' not in written
    assert "and 30 messages more" in written
    for count, more in ((20, False), (21, True)):
        text = "\n".join(f"__device__ int x{n} = y{n};" for n in range(count))
        written = Written(cells.shown(failure(text))["text/html"]).text
        assert ("and 1 message more" in written, "more" in written) == (more, more)


def test_error_in_a_header_shows_its_lines(cells: Cells, tmp_path: Path) -> None:
    (tmp_path / "own.h").write_text("// one\n__device__ int x = y;\n")
    written = Written(cells.shown(failure('#include "own.h"\n', include=tmp_path))["text/html"]).text
    assert "own.h\n  1 | // one\n> 2 | __device__ int x = y;\n    |                    ^" in written
    (tmp_path / "own.h").write_text("// another\n__device__ int x = y;\n")
    assert "  1 | // another\n> 2" in cells.shown(failure('#include "own.h"\n', include=tmp_path))["text/html"].replace(
        "&gt;", ">"
    )
    gone = cujit.errors.Diagnostic("error", "what", "gone.cu", 7, 5, source_line="    line")
    written = Written(cells.shown(cujit.errors.CompileError("no", diagnostics=[gone]))["text/html"]).text
    assert written == "noerror: whatgone.cu\n> 7 |     line\n    |     ^"


def test_line_of_a_header_in_memory_is_shown_too(cells: Cells) -> None:
    source = cujit.Source.cuda(
        '#include "own.h"\n', name="main.cu", headers={"own.h": "// one\n__device__ int x = y;\n"}
    )
    with pytest.raises(cujit.errors.CompileError) as caught:
        cujit.compile(source, arch="sm_90")
    assert "> 2 | __device__ int x = y;" in Written(cells.shown(caught.value)["text/html"]).text


def test_error_without_places_shows_its_log(cells: Cells) -> None:
    error = cujit.errors.CompileError("it does not compile\nfor a reason", log="a log", help="this")
    assert Written(cells.shown(error)["text/html"]).text == "it does not compilefor a reasona loghint: this"


def test_missing_header_shows_the_searched_directories(cells: Cells) -> None:
    error = failure("#include <of_mine.h>\n")
    assert isinstance(error, cujit.errors.HeaderNotFoundError)
    assert "of_mine.h" in Written(cells.shown(error)["text/html"]).text


def test_text_form_is_unchanged(cells: Cells) -> None:
    values = [cubin(), cujit.inspect(cubin()), failure("?"), cujit.occupancy.of(cubin(), 256, on="H200"), Profile()]
    shown = [cells.shown(value) for value in values]
    assert all("text/html" in each for each in shown)
    cells.run("%unload_ext cujit")
    assert [cells.shown(value) for value in values] == [{"text/plain": each["text/plain"]} for each in shown]
    cells.run("%load_ext cujit")


def test_names_and_sources_are_not_markup(cells: Cells) -> None:
    made = cubin(name=HOSTILE.replace("/", "") + ".cu")
    for value in (made, cujit.inspect(made), failure(f"int x = y; // {HOSTILE}\n#error {HOSTILE}", name="own.cu")):
        html = cells.shown(value)["text/html"]
        written = Written(html)
        assert "<script" not in html
        assert "alert(" in written.text
        assert "\\u202e" in written.text
        assert "\x1b" not in html


@given(st.lists(st.one_of(st.text(), st.lists(st.tuples(st.text(), st.text()), max_size=3)), max_size=4))
def test_output_contains_only_cujits_tags(parts: list[str | list[tuple[str, str]]]) -> None:
    said = [part if isinstance(part, str) else Rows(("<a>", "b"), part, right=("b",)) for part in parts]
    html = html_of(said)
    written = Written(html)
    rows = [row for part in parts if not isinstance(part, str) for row in (("<a>", "b"), *part)]
    assert [json.dumps(row) for row in written.rows] == [json.dumps([_printed(cell) for cell in row]) for row in rows]
    assert "color:" not in html.replace("background", "")


def _printed(text: str) -> str:
    return "".join(c if c.isprintable() or c in "\n\t" else ascii(c)[1:-1] for c in text)


def test_multiline_text_keeps_its_layout() -> None:
    html = html_of(["one line", "several\n  lines"])
    assert re.findall(r"<(\w+) [^>]*>([^<]+)<", html) == [("div", "one line"), ("pre", "several\n  lines")]


def test_text_creates_no_formula_and_no_color() -> None:
    html = html_of(["a $x$", Rows(("a",), [["$y$"]], styles=["bold green"])])
    assert html.startswith('<div class="tex2jax_ignore mathjax_ignore"')
    assert not re.search(r"[;\"]color:", html)
