"""The heads of PTX entries tell what a whole parse tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from cujit.formats.fatbin import find_fatbins
from cujit.formats.ptx.heads import entry_signatures
from cujit.formats.ptx.parameters import signature_of_entry
from cujit.formats.ptx.parser import parse
from cujit.inspection.read import inspect
from cujit.signature import Signature
from formats.images import SAXPY, ZOO, bundled, cubin, ptx
from inspection.files import SOURCE

FATBINS = Path(__file__).parents[2] / "goldens" / "fatbins"
TRAPS = """.version 8.0 // .entry no(.param .u32 a) {
.target sm_80 /* .entry neither() { */
.address_size 64
.file 1 "a { .entry b() {"
.global .align 4 .b32 numbers[2] = {1, 2};
.visible .entry first(.param .u64 .ptr .global .align 8 p, // } {
    .param .align 8 .b8 q[16]) .maxntid 128, 1, 1 /* { */
{
    { .reg .b32 %r<2>; } // }
    .loc 1 2 3
    ret;
}
.func helper(.param .b32 x) { ret; }
.entry second()
{ ret; }
"""


def whole(data: bytes) -> dict[str, Signature]:
    return {entry.name: signature_of_entry(entry) for entry in parse(data.decode()).entries}


@pytest.mark.parametrize("source", [SAXPY, ZOO, SOURCE], ids=["saxpy", "zoo", "templates"])
def test_signatures_match_a_full_parse(source: str) -> None:
    found = entry_signatures(ptx(source))
    assert found == whole(ptx(source))
    assert found


def test_signatures_are_found_in_files_of_other_toolkits() -> None:
    count = 0
    for path in sorted(FATBINS.glob("*.fatbin")):
        for fatbin in find_fatbins(path.read_bytes()):
            for entry in fatbin.ptx_entries:
                found = entry_signatures(entry.payload())
                assert found == whole(entry.payload()), path.name
                count += len(found)
    assert count > 20


def test_comments_strings_and_inner_braces_hide_nothing() -> None:
    found = entry_signatures(TRAPS.encode())
    assert found == whole(TRAPS.encode())
    assert [(name, len(signature)) for name, signature in found.items()] == [("first", 2), ("second", 0)]


def test_declared_entry_hides_no_other() -> None:
    text = (
        b".entry declared(.param .u32 n);\n.global .align 4 .b32 x[2] = {1, 2};\n.entry defined(.param .u64 p) { ret; }"
    )
    assert list(entry_signatures(text)) == ["defined"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"}}}{{{",
        b".entry",
        b".entry (",
        b".entry a(.param .u32 x",
        b".entry a(.param nonsense x) { }",
    ],
    ids=["nothing", "no text", "braces", "a word", "a parenthesis", "truncated", "no type"],
)
def test_damaged_text_has_no_signatures(data: bytes) -> None:
    assert entry_signatures(data) == {}


def test_sass_gets_types_from_heads_of_neighboring_ptx() -> None:
    data = bundled((("cubin", "80", cubin(SAXPY, "sm_80")), ("ptx", "75", ptx(SAXPY))), "-compress=false")
    assert data.count(b"ret;") == 1
    machine, assembly = inspect(data.replace(b"ret;", b"?!?!"))
    (kernel,) = machine.kernels
    assert kernel.signature is not None
    assert [p.type for p in kernel.signature] == [".f32", ".u64", ".u64", ".u32"]
    assert not assembly.is_read
    assert assembly.error
