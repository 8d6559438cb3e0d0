"""Source and Request: values, taken in through one door."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from cujit import program
from cujit.arch import Arch
from cujit.artifact import ImageKind
from cujit.cache.key import make_key
from cujit.compiler.inputs.source import Source
from cujit.compiler.options.values import Options
from cujit.compiler.request import Request
from cujit.errors import MEMORY, FileError, FormatError, OptionError
from cujit.program import compile
from raising import raises

TEXT = "__global__ void k() {}"


def test_path_and_the_name_of_a_file_are_read(tmp_path: Path) -> None:
    file = tmp_path / "k.cu"
    file.write_text(TEXT)
    for given in (file, str(file)):
        source = Source.cuda(given)
        assert (source.text, source.path, source.program_name) == (TEXT, str(file), str(file))


def test_string_that_names_no_file_is_text() -> None:
    for text in (TEXT, "// see k.cu", "#define K k.cu", "int a; // \nk.cu"):
        assert (Source.cuda(text).text, Source.cuda(text).path) == (text, "")


@pytest.mark.parametrize("name", ["nope.cu", "/nope.CUH", "a b/nope.cpp", "nope.ll", "/nope.bc"])
def test_name_of_a_missing_file_is_not_compiled(name: str) -> None:
    for door in (program.compile, program.build, Source.of):
        with raises(FileError, "file", name, "No such file"):
            door(name)
    with raises(FileError, "file", name, "No such file"):
        (Source.nvvm if name.endswith(("ll", "bc")) else Source.cuda)(name)


def test_byte_order_mark_is_removed(tmp_path: Path) -> None:
    file = tmp_path / "k.cu"
    file.write_bytes(b"\xef\xbb\xbf" + TEXT.encode())
    assert Source.cuda(file).text == TEXT


def test_text_has_no_existing_directory() -> None:
    assert not Path(MEMORY).exists()
    assert Source.cuda(TEXT, name="a/k.cu").program_name == f"{MEMORY}/a/k.cu"
    assert Source.cuda(TEXT, name="/etc/k.cu").program_name == f"{MEMORY}/etc/k.cu"


def test_nul_byte_is_refused() -> None:
    with raises(FormatError, "format", "k.cu:2", "NUL"):
        Source.cuda("int a;\nint \0 b;", name="k.cu")
    with raises(FormatError, "format", "h.h:1", "NUL"):
        Source.cuda(TEXT, headers={"h.h": "\0"})


def test_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "k.cu"
    file.write_bytes(b"int caf\xe9;\n")
    with raises(FormatError, "format", "UTF-8") as caught:
        Source.cuda(file)
    assert caught.value.offset == 7


@pytest.mark.parametrize(
    "text", [b"// caf\xe9\nint x;", b"int x; /* \xe9\xff */", b"char q = '\"'; // \xe9", b"#define A 1 // \xe9"]
)
def test_other_encodings_are_accepted_in_comments(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "k.cu").write_bytes(text)
    assert Source.cuda(tmp_path / "k.cu").text == text.replace(b"\xe9", b"?").replace(b"\xff", b"?").decode()


@pytest.mark.parametrize("text", [b'const char *s = "// \xe9";', b'R"(/* \xe9 */)"', b"/* a */ \xe9", b"'\"' \xe9"])
def test_other_encodings_in_code_are_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "k.cu").write_bytes(text)
    with raises(FormatError, "format", "UTF-8"):
        Source.cuda(tmp_path / "k.cu")


HEADERS = {
    "w.h": "#pragma once\nstruct W { int n = 3; };",
    "sub/v.h": '#include "../w.h"\n#include "./u.h"',
    "sub/u.h": "",
}


@pytest.mark.parametrize(
    "include",
    ['"./w.h"', "<./w.h>", '"sub/../w.h"', '"sub//v.h"', '"./sub/./v.h"', '"w.h"\n#include "./w.h"', '".//w.h"'],
)
def test_in_memory_header_is_found_by_every_path_spelling(include: str) -> None:
    source = Source.cuda(f"#include {include}\n__global__ void k(int *p) {{ *p = W().n; }}", headers=HEADERS)
    assert "k" in compile(source).names


@pytest.mark.parametrize(
    "wrong",
    [
        {"text_or_path": 3},
        {"text_or_path": TEXT, "name": "a\nb"},
        {"text_or_path": TEXT, "headers": {"h": 3}},
        {"text_or_path": TEXT, "headers": 1},
        {"text_or_path": TEXT, "headers": "x.h"},
        {"text_or_path": TEXT, "headers": ["x.h"]},
        {"text_or_path": TEXT, "define": {"A": [1]}},
        {"text_or_path": TEXT, "define": {"A": 1.5}},
        {"text_or_path": TEXT, "include": [3]},
        {"text_or_path": TEXT, "include": 3},
    ],
)
def test_arguments_of_the_wrong_type_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        Source.cuda(**wrong)  # type: ignore[arg-type]


def test_missing_file_is_reported() -> None:
    with pytest.raises(OSError, match="nowhere"):
        Source.cuda(Path("/nowhere/k.cu"))


def test_include_directories_become_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert Source.cuda(TEXT, include="inc").include == (str(tmp_path / "inc"),)


def test_quoted_include_in_memory_ignores_the_working_directory() -> None:
    headers = {"a/b.h": '#include "c.h"\n  # include "d.h" // x\n', "a/c.h": ""}
    given = dict(Source.cuda(TEXT, headers=headers).compiler_headers())
    assert given["a/b.h"] == "#include <a/c.h>\n  # include <d.h> // x\n"


def test_source_never_changes_and_can_be_hashed() -> None:
    source = Source.cuda(TEXT, define={"N": 4}, headers={"h": ""})
    with pytest.raises(dataclasses.FrozenInstanceError):
        source.text = ""  # type: ignore[misc]
    assert hash(source) == hash(Source.cuda(TEXT, define={"N": 4}, headers={"h": ""}))


def request(**changes: object) -> Request:
    fields: dict[str, object] = {
        "source": Source.cuda(TEXT, name="k.cu"),
        "kind": ImageKind.CUBIN,
        "arch": Arch.parse("sm_90"),
        "options": Options(lineinfo=True),
        "names": ("k",),
    }
    return Request(**{**fields, **changes})  # type: ignore[arg-type]


def test_request_prints_as_its_compile() -> None:
    assert str(request()) == (
        "k.cu -> cubin for sm_90\n  names: k\n  arguments: --gpu-architecture=sm_90 --generate-line-info"
    )


def test_users_part_of_the_key_identifies_the_request() -> None:
    def said(request: Request) -> str:
        return make_key("nvrtc", request.parts()).digest

    same = said(request())
    assert same == said(request())
    assert same == said(request(options=Options(lineinfo=True, debug=False)))
    # What a directory holds counts, and not its name.
    assert same == said(request(source=Source.cuda(TEXT, name="k.cu", include="/x")))
    others = [
        request(kind=ImageKind.PTX),
        request(arch=Arch.parse("sm_90a")),
        request(names=()),
        request(names=("k", "")),
        request(options=Options()),
        request(options=Options(lineinfo=True, ftz=True)),
        request(source=Source.cuda(TEXT + " ", name="k.cu")),
        request(source=Source.cuda(TEXT, name="j.cu")),
        request(source=Source.cuda(TEXT, name="k.cu", define={"A": None})),
        request(source=Source.cuda(TEXT, name="k.cu", headers={"a": "b"})),
        request(source=Source.cuda(TEXT, name="k.cu", headers={"ab": ""})),
    ]
    assert len({same, *map(said, others)}) == 1 + len(others)
