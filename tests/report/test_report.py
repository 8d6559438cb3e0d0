"""A report as values: what belongs together, what is left out and named, and that it is what ``--json`` prints."""

from __future__ import annotations

import base64
import hashlib
import html as entities
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import cujit
import cujit.profile
import cujit.report
from cujit.artifact import Artifact, reading
from cujit.artifact.reading import allow_quotes
from cujit.cli.app import main
from cujit.devices.cpu.run.source_map import SourceLine
from cujit.devices.watch import Text
from cujit.errors import CompileError, CujitError, KernelFaultError
from cujit.report import ReportPage
from cujit.report.listings import Listing, Quoted, ptx_listing, sass_listing
from cujit.report.page import LIMIT_BYTES, fitted
from report.conftest import SHARED, SLOW
from tile_code import TWICE, needs_tiles


def listing(report: ReportPage, kind: str) -> Listing:
    return next(each for each in report.listings if each.kind == kind)


def line_of(text: Listing, part: str) -> int:
    """Find the one line that has a text."""
    (found,) = (k for k, line in enumerate(text.lines) if part in line)
    return found


def record_in(page: str) -> dict[str, Any]:
    """Read what a page has."""
    (text,) = re.findall(r'<script type="application/json" id="record">(.*?)</script>', page, re.DOTALL)
    found: dict[str, Any] = json.loads(text)
    return found


def test_page_title_is_specified_or_from_the_kernel_or_image(shared: ReportPage) -> None:
    text = b".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n"
    named = cujit.Artifact(cujit.ImageKind.PTX, text, name="k.ptx")
    assert shared.title == "transpose"
    assert [cujit.report.of(image).title for image in (named, text)] == ["k.ptx", "ptx"]
    assert cujit.report.of(named, title="mine").title == "mine"


def test_ptx_and_sass_lines_have_their_source(shared: ReportPage) -> None:
    source, ptx, sass = (listing(shared, kind) for kind in ("source", "ptx", "sass"))
    assert (source.name, source.lines) == ("shared.cu", tuple(SHARED.splitlines()))
    load = line_of(ptx, "ld.shared.f32")
    assert ptx.sources[load] == SourceLine("shared.cu", 6)
    assert ptx.sources[line_of(ptx, ".visible .entry")] is None
    at = line_of(sass, "BAR.SYNC")
    assert sass.sources[at] == SourceLine("shared.cu", 5)
    assert ptx.lines[sass.ptx_lines[at] - 1].split()[0].startswith("bar")
    assert sass.ptx_lines[line_of(sass, "transpose:")] == 0


def test_counts_are_at_lines_of_the_listings(shared: ReportPage) -> None:
    (kernel,) = shared.record()["kernels"]
    ptx = listing(shared, "ptx")
    for row in kernel["profile"]["instructions"]:
        assert row["text"].split()[0].rstrip(";") in ptx.lines[row["ptx_line"] - 1]
        if row["source"]:
            assert str(ptx.sources[row["ptx_line"] - 1]) == row["source"]
        assert row["access"] or row["metrics"] == {}


def test_roofline_shows_the_kernel_at_its_lower_bound(shared: ReportPage) -> None:
    (kernel,) = shared.record()["kernels"]
    tightest = max(each["bound_s"] for each in kernel["profile"]["bounds"]["bounds"])
    assert kernel["profile"]["roofs"]["flops_per_s"] == pytest.approx(64 * 64 / tightest)


def test_numbers_match_the_json_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("slow.cu").write_text(SLOW)
    launch = ["profile", "slow.cu", "--grid", "2x2", "--block", "32x32", "--arg", "ones:f32:4096"]
    launch += ["--arg", "zeros:f32:4096"]
    launch += ["--arg", "64", "--on", "H200", "--json", "--html", "slow.html"]
    result = CliRunner().invoke(main, launch, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    (printed,) = json.loads(result.stdout)["kernels"]
    record = record_in(Path("slow.html").read_text())
    (kernel,) = record["kernels"]
    (source,) = (each["name"] for each in record["listings"] if each["kind"] == "source")
    assert f"{source}:3" in {row["source"] for row in kernel["profile"]["instructions"]}
    for row in kernel["profile"]["instructions"]:
        del row["metrics"]
    del kernel["profile"]["roofs"]
    assert kernel["profile"] == printed
    cujit.compile(Path("slow.cu"), arch="sm_90").save("slow.cubin")
    asked = ["occupancy", "slow.cubin", "--on", "H200", "--block", "1024", "--json"]
    (row,) = json.loads(CliRunner().invoke(main, asked, catch_exceptions=False).stdout)["rows"]
    row.pop("driver_occupancy", None)
    assert kernel["occupancy"].items() >= row.items()


def test_inspect_writes_a_page_of_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("slow.cu").write_text(SLOW)
    cujit.build(Path("slow.cu"), targets=["sm_90", "sm_80", "compute_80"], lineinfo=True).save("slow.fatbin")
    result = CliRunner().invoke(main, ["inspect", "slow.fatbin", "--arch", "sm_80", "--html", "a.html"])
    assert result.exit_code == 0, result.output
    record = record_in(Path("a.html").read_text())
    assert [each["name"] for each in record["listings"] if each["kind"] == "sass"] == ["SASS sm_80"]
    printed = json.loads(CliRunner().invoke(main, ["inspect", "slow.fatbin", "--json"]).stdout)
    assert record["inspections"] == printed["files"]
    for more in (["--ptx"], ["slow.cu"]):
        refused = CliRunner().invoke(main, ["inspect", "slow.fatbin", *more, "--html", "b.html"])
        assert refused.exit_code == 2
    assert not Path("b.html").exists()


def test_saved_launch_has_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("slow.cu").write_text(SLOW)
    launch = ["--grid", "2x2", "--block", "32x32", "--arg", "ones:f32:4096", "--arg", "zeros:f32:4096", "--arg", "64"]
    saved = CliRunner().invoke(
        main, ["run", "slow.cu", "--device", "cpu", "-O", "lineinfo", *launch, "--save", "s.launch"]
    )
    assert saved.exit_code == 0, saved.output
    result = CliRunner().invoke(main, ["profile", "s.launch", "--html", "s.html"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    record = record_in(Path("s.html").read_text())
    assert {each["kind"] for each in record["listings"]} >= {"source", "ptx"}
    rows = record["kernels"][0]["profile"]["instructions"]
    assert {row["source"] for row in rows if row.get("sectors")} == {f"{record['listings'][0]['name']}:3"}


def test_only_ptx_instructions_have_a_source_line() -> None:
    text = """.version 7.8
.target sm_80
.address_size 64
.file 1 "k.cu"
.visible .entry k() {
.loc 1 3 1
.reg .b32 %r<3>;
// mov.u32 %r2, 2;
.pragma "nounroll";
mov.u32 %r1, 1;
ret;
}
"""
    found = ptx_listing(text, Quoted({}))
    lines = [line for line, source in zip(found.lines, found.sources, strict=True) if source == SourceLine("k.cu", 3)]
    assert lines == ["mov.u32 %r1, 1;", "ret;"]


def test_styles_and_scripts_are_allowed_only_by_their_hashes(shared: ReportPage) -> None:
    page = shared.html()
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    allowed = entities.unescape(policy)
    assert "default-src 'none'" in allowed
    assert "unsafe" not in allowed
    (style,) = re.findall("<style>(.*?)</style>", page, re.DOTALL)
    scripts = re.findall("<script>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == 2
    for text in (style, *scripts):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in allowed
    rest = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert re.findall(r"""\s(?:src|href)=["']?([^"' >]*)""", rest) == ["#texts"]


def test_page_stays_below_its_limit_and_names_omissions(shared: ReportPage) -> None:
    long = Listing("ptx", "PTX", tuple(f"// line {k} {'é' * 60}" for k in range(60_000)))
    middle = Listing("ptx", "middle", long.lines[:1000])
    sources = (*shared.listings[:1], middle, long)
    page = ReportPage("long", shared.inspections, shared.kernels, sources).html()
    assert len(page.encode()) <= LIMIT_BYTES
    assert len(page.encode()) > 0.7 * LIMIT_BYTES
    record = record_in(page)
    assert record["listings"][0]["lines"] == SHARED.splitlines()
    assert record["listings"][1]["lines"] == list(middle.lines)
    kept = len(record["listings"][2]["lines"])
    assert 0 < kept < 60_000
    assert record["notes"] == [f"PTX: {kept:,} of 60,000 lines are here, for the size of this page"]


def test_truncated_text_begins_at_lines_with_a_source() -> None:
    sources = (*[None] * 59_990, *[SourceLine("k.cu", 1)] * 10)
    text = Listing("ptx", "PTX", tuple(f"// line {k} {'é' * 60}" for k in range(60_000)), sources)
    (kept,) = record_in(ReportPage("late", (), (), (text,)).html())["listings"]
    assert (kept["first"], kept["lines"]) == (59_991, list(text.lines[-10:]))


def test_kernel_of_many_instructions_keeps_the_largest_counts(shared: ReportPage) -> None:
    (kernel,) = shared.kernels
    assert kernel.profile is not None
    from cujit.values import replace

    rows = kernel.profile.instructions
    many = tuple(replace(row, ptx_line=k * 100 + row.ptx_line) for k in range(400) for row in rows)
    large = replace(kernel, profile=replace(kernel.profile, instructions=many))
    whole, uncounted = replace(kernel, name="whole"), replace(kernel, name="uncounted", profile=None)
    report = ReportPage("many", (), (large, whole, uncounted), shared.listings)
    page = report.html()
    assert len(page.encode()) <= LIMIT_BYTES
    record = record_in(page)
    (note,) = record["notes"]
    kept = record["kernels"][0]["profile"]["instructions"]
    assert note == f"transpose: counts of the {len(kept):,} instructions of most warps are here, for the size"
    assert len(kept) > 1000
    assert len(record["kernels"][1]["profile"]["instructions"]) == len(rows)
    assert all(room / 2 < len(fitted(report.record(), room)) <= room for room in (450_000, 1_350_000))


@pytest.mark.parametrize(
    "texts",
    [
        [Listing("sass", "k", ("x",) * 20_000, (SourceLine("k.cu", 123_456_789),) * 20_000, (123_456_789,) * 20_000)],
        [Listing("source", f"{k}.cu", ("int x;",) if k < 200 else ("x" * 600,) * 1000) for k in range(202)],
    ],
    ids=["most of it is where lines come from", "very many texts"],
)
def test_text_is_truncated_to_the_available_space(texts: list[Listing]) -> None:
    room = 400_000
    text = fitted(ReportPage("k", (), (), tuple(texts)).record(), room)
    assert 0.75 * room < len(text) <= room


@pytest.mark.parametrize("room", [100_000, 20_000, 1000])
def test_omitted_parts_remain_in_the_record(shared: ReportPage, room: int) -> None:
    """Texts are cut first, then images, then instructions."""
    record = record_in(shared.html())
    for listing in record["listings"]:
        listing.update({name: listing[name] * 1000 for name in ("lines", "sources", "ptx_lines")})
    before = json.dumps(record)
    text = fitted(record, room)
    assert json.dumps(record) == before
    assert len(json.loads(text)["listings"][-1]["lines"]) < len(record["listings"][-1]["lines"])


def test_image_of_many_kernels_has_a_page() -> None:
    names = "".join(f".visible .entry kernel_{'x' * 300}_{k}() {{ ret; }}\n" for k in range(4000))
    report = cujit.report.of(f".version 7.8\n.target sm_80\n.address_size 64\n{names}".encode())
    page = report.html()
    assert len(page.encode()) <= LIMIT_BYTES
    record = record_in(page)
    kept = len(record["inspections"][0]["images"][0]["kernels"])
    assert 100 < kept < 4000
    assert f"of images and kernels {kept:,} at most are here, for the size of this page" in record["notes"]
    assert "3976 of 4000 kernels have no plots: name some" in record["notes"]
    assert all(room / 2 < len(fitted(report.record(), room)) <= room for room in (1_000_000, 1_600_000))
    images = {**report.record(), "listings": []}
    text = fitted(images, 200_000)
    assert fitted(images, len(text)) == text, "what has just room enough stays"


def test_only_named_kernels_are_shown() -> None:
    text = b".version 7.8\n.target sm_80\n.address_size 64\n"
    text += b"".join(b".visible .entry kernel_%d() { exit; }\n" % k for k in range(25))
    image = cujit.link([cujit.Artifact(cujit.ImageKind.PTX, text)], arch="sm_80")
    report = cujit.report.of(image, kernels=["kernel_3", "kernel_5", "none_of_them"])
    assert sorted(kernel.name for kernel in report.kernels) == ["kernel_3", "kernel_5"]
    code = "\n".join(listing(report, "sass").lines)
    assert [k for k in range(25) if f"kernel_{k}:" in code or f"kernel_{k}\n" in f"{code}\n"] == [3, 5], code
    assert len(cujit.report.of(text, kernels=[f"kernel_{k}" for k in range(24)]).kernels) == 24
    assert cujit.report.of(text, kernels=[f"kernel_{k}" for k in range(24)]).notes == ()
    assert "1 of 25 kernels have no plots: name some" in cujit.report.of(text).notes


@pytest.mark.parametrize(
    ("arch", "on", "made_for"),
    [("sm_86", None, "sm_86"), ("sm_86", "H200", "sm_86"), (None, "H200", "sm_90"), (None, None, "sm_80")],
)
def test_ptx_is_assembled_for_the_requested_architecture(arch: str | None, on: str | None, made_for: str) -> None:
    text = b".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n"
    report = cujit.report.of(text, arch=arch, on=on, assembler={})
    assert listing(report, "sass").name == f"SASS {made_for}"


def test_sources_are_quoted_only_below_given_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_given", set())  # other tests gave directories above this one
    secret, code = tmp_path / "passwords", tmp_path / "code.cu"
    secret.write_text("hunter2\n" * 3)
    code.write_text("int a;\nint b;\n")
    body = ".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n.loc 1 2 1\nret;\n}\n"
    note = "not quoted, since it is not a source below a directory of yours"
    for path, kinds, notes in (
        (secret, ["ptx"], (f"{note}: passwords",)),
        (code, ["ptx"], (f"{note}: code.cu",)),
        (code, ["source", "ptx"], ()),
    ):
        if not notes:
            allow_quotes(str(tmp_path))
        report = cujit.report.of(f'{body}.file 1 "{path}"\n'.encode())
        assert [each.kind for each in report.listings] == kinds
        assert "hunter2" not in report.html()
        assert report.notes == notes


def test_given_source_precedes_headers_with_more_lines(tmp_path: Path) -> None:
    header = tmp_path / "header.h"
    header.write_text("int a;\n")
    allow_quotes(str(tmp_path))
    used = [SourceLine(str(header), 1), SourceLine(str(header), 2), SourceLine("k.cu", 1)]
    found = Quoted({"k.cu": Text("k.cu", "int b;\n")}).listings(used)
    assert [each.name for each in found] == ["k.cu", str(header)]


def test_compiler_and_check_findings_are_at_their_lines() -> None:
    with pytest.raises(CompileError) as failed:
        cujit.compile(cujit.Source.cuda("__global__ void k() {\n    nothing();\n}\n", name="k.cu"))
    fault = KernelFaultError("lanes never meet", kind="deadlock", line=61, help="meet")
    fault.source = "k.cu:3"
    other = CujitError("no place is known", help="look")
    report = ReportPage("k", (), errors=(failed.value, fault, other))
    first, second, third = report.record()["errors"]
    assert (first["rule"], first["source"]) == ("error", "k.cu:2")
    assert "nothing" in first["text"]
    assert second == {
        "rule": "deadlock",
        "text": "lanes never meet",
        "cure": "meet",
        "source": "k.cu:3",
        "ptx_line": 61,
    }
    assert third == {"rule": "error", "text": "no place is known", "cure": "look", "source": "", "ptx_line": 0}


def test_missing_disassembler_is_reported(monkeypatch: pytest.MonkeyPatch, shared: ReportPage) -> None:
    from cujit.errors import MissingError
    from cujit.report import report as making

    def absent(*_: object, **__: object) -> str:
        raise MissingError("nvdisasm is not installed")

    monkeypatch.setattr(making, "disassemble", absent)
    (cubin,) = (image for image in shared.inspections if image.kind is cujit.ImageKind.CUBIN)
    report = cujit.report.of(cubin.images[0].payload())
    assert [each.kind for each in report.listings] == ["ptx"]
    assert "no machine code: nvdisasm is not installed" in report.notes
    assert report.record()["kernels"][0]["occupancy"]["occupancy"] > 0


def test_sass_before_any_ptx_line_has_no_line() -> None:
    ptx = Listing("ptx", "PTX", ("ret;",), (SourceLine("k.cu", 1),))
    found = sass_listing("        /*0000*/                   EXIT ;\n", "k", Quoted({}), ptx)
    assert (found.ptx_lines, found.sources) == ((0,), (None,))


@needs_tiles
def test_tile_ir_listing_has_source_lines() -> None:
    tile = cujit.compile(cujit.Source.cuda(TWICE, name="twice.cu"), to="tileir", lineinfo=True)
    for image in (tile, cujit.bundle([cujit.build(cujit.Source.tile(tile), "sm_80"), tile])):
        report = cujit.report.of(image, texts={"twice.cu": TWICE})
        text = listing(report, "tileir")
        assert text.name == "Tile IR"
        assert not any(" loc(" in line or line.startswith("#") for line in text.lines)
        lines = {part: text.sources[line_of(text, part)] for part in ("load_view_tko", "store_view_tko", "mulf")}
        assert {part: (place.file, place.line) for part, place in lines.items() if place is not None} == {
            "load_view_tko": ("twice.cu", 6), "store_view_tko": ("twice.cu", 7), "mulf": ("twice.cu", 7),
        }  # fmt: skip
        assert listing(report, "source").name == "twice.cu"
    assert {each.kind for each in report.listings} >= {"source", "tileir", "ptx"}


@needs_tiles
def test_missing_tileirdisasm_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cujit.toolchain.tileiras.find_program", lambda *_: None)
    report = cujit.report.of(Artifact.open(Path(__file__).parents[1] / "goldens" / "tileir" / "scale-13.5.tileir"))
    assert not any(each.kind == "tileir" for each in report.listings)
    assert any("tileirdisasm" in note for note in report.notes)


def test_nops_that_fill_the_end_of_a_function_are_left_out() -> None:
    code = ["first:", "/*0000*/ NOP ;", "/*0010*/ BRA L ;", "/*0020*/ NOP ;", ".L_x_1:", "/*0030*/ NOP;"]
    code += ["second:", "/*0000*/ EXIT ;", "/*0010*/ NOP;"]
    listing = sass_listing("\n".join(code), "SASS", Quoted({}), None)
    assert listing.lines == ("first:", "/*0000*/ NOP ;", "/*0010*/ BRA L ;", ".L_x_1:", "second:", "/*0000*/ EXIT ;")
    assert len(listing.sources) == len(listing.ptx_lines) == len(listing.lines)
