"""An image may name any file as its source; only files below directories that the user gave are quoted."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import cujit
from cujit.artifact import reading
from cujit.artifact.reading import quoted_lines
from cujit.cli import main
from cujit.errors import KernelFaultError
from cujit.notebook import displays
from processes import printed

PTX = """.version 8.6
.target sm_90
.address_size 64
.file 1 "{file}"
.visible .entry k(.param .u64 .ptr out) {{
    .reg .b64 o;
    ld.param.u64 o, [out];
    .loc 1 2 1
    st.global.u32 [o+{offset}], 1;
    ret;
}}"""
SECRET = "first\nthe secret line\nlast\n"


@pytest.fixture(autouse=True)
def _nothing_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests gave directories above those of these tests."""
    monkeypatch.setattr(reading, "_given", set())


def _in_trace(ptx: str) -> str:
    trace = cujit.Trace()
    device = cujit.cpu(trace=trace)
    cujit.load(ptx.encode(), device)["k"][1, 1](device.zeros(4, np.uint32))
    return str(trace)


def test_files_below_other_directories_are_not_quoted(tmp_path: Path) -> None:
    secret = tmp_path / "secret.cu"
    secret.write_text(SECRET)
    device = cujit.cpu(check="memory")
    ptx = PTX.format(file=secret, offset=4096)
    with pytest.raises(KernelFaultError) as caught:
        cujit.load(ptx.encode(), device)["k"][1, 1](device.zeros(4, np.uint32))
    assert str(secret) in str(caught.value)
    assert "the secret line" not in displays.html_of(displays._of_fault(caught.value))
    assert "the secret line" not in _in_trace(PTX.format(file=secret, offset=0))


def test_source_that_the_user_gave_is_quoted(tmp_path: Path) -> None:
    source = tmp_path / "mine.cu"
    source.write_text("__global__ void k(int *o) {\n    o[1 << 20] = 1;  // the mistake\n}\n")
    device = cujit.cpu(check="memory")
    module = cujit.load(cujit.compile(source, arch="compute_90", lineinfo=True), device)
    with pytest.raises(KernelFaultError) as caught:
        module["k"][1, 1](device.zeros(4, np.int32))
    assert "// the mistake" in displays.html_of(displays._of_fault(caught.value))


def test_commands_quote_sources_next_to_their_file(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for directory in (inside, outside):
        directory.mkdir()
        (directory / "own.cu").write_text(SECRET)
        image = inside / f"{directory.name}.ptx"
        image.write_text(PTX.format(file=directory / "own.cu", offset=0))
    code = "from cujit.cli import main; main()"
    words = ("profile", "--grid", 1, "--block", 1, "--arg", "zeros:u32:4")
    found = {
        name: "the secret line" in printed(code, words[0], inside / f"{name}.ptx", *words[1:])
        for name in ("inside", "outside")
    }
    assert found == {"inside": True, "outside": False}


@pytest.mark.parametrize("name", [".hidden.cu", "key.pem", "passwd", ".ssh/key.cu"])
def test_hidden_files_and_other_files_are_never_quoted(tmp_path: Path, name: str) -> None:
    (tmp_path / "given.cu").write_text("__global__ void k() {}")
    cujit.Source.of(tmp_path / "given.cu")
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(SECRET)
    assert quoted_lines(str(tmp_path / "given.cu")) != []
    assert quoted_lines(str(file)) == []


def test_links_fifos_and_huge_files_are_not_quoted(tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    (given / "k.cu").write_text("__global__ void k() {}")
    cujit.Source.of(given / "k.cu")
    (tmp_path / "secret.cu").write_text(SECRET)
    (given / "link.cu").symlink_to(tmp_path / "secret.cu")
    os.mkfifo(given / "fifo.cu")
    (given / "huge.cu").write_text("x" * (1 << 21))
    for name in ("link.cu", "fifo.cu", "huge.cu", "../secret.cu", "absent.cu", "nul\0.cu"):
        assert quoted_lines(str(given / name)) == []


def test_report_quotes_as_little(tmp_path: Path) -> None:
    (tmp_path / "secret.cu").write_text(SECRET)
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "k.ptx").write_text(PTX.format(file=tmp_path / "secret.cu", offset=0))
    page = tmp_path / "page.html"
    done = CliRunner().invoke(main, ["inspect", str(inside / "k.ptx"), "--html", str(page)])
    assert done.exit_code == 0, done.output
    assert "the secret line" not in page.read_text()
