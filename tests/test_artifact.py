"""Artifacts: kinds by content, save and open, and a repr that is cheap and safe."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cujit.arch import Arch
from cujit.artifact import Artifact, Kind, kind_of
from cujit.errors import FormatError
from cujit.program import Source, bundle, compile

AXPY = Source.cuda("template <class T> __global__ void axpy(T a, const T *x, T *y) { *y = a * *x; }", name="axpy.cu")


def images() -> dict[Kind, Artifact]:
    built = {to: compile(AXPY, to=to, arch="sm_90", names=["axpy<float>"]) for to in ("ptx", "cubin", "ltoir")}
    return {**{Kind(to): a for to, a in built.items()}, Kind.FATBIN: bundle([built["cubin"], built["ptx"]])}


def test_the_kind_of_every_image_that_the_tools_make_is_found_from_its_content(tmp_path: Path) -> None:
    for kind, artifact in images().items():
        path = artifact.save(tmp_path / f"{kind.value}.wrong-ending")
        opened = Artifact.open(path)
        assert opened.kind is kind
        assert opened.data == artifact.data
        assert opened.name == str(path)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"!<arch>\nx.o/", Kind.LIBRARY),
        (b"BC\xc0\xde" + bytes(8), Kind.NVVMIR),
        (b"; ModuleID = 'x'\ntarget triple = \"nvptx64-nvidia-cuda\"\n", Kind.NVVMIR),
        (b"\x7fELF" + bytes(14) + (62).to_bytes(2, "little") + bytes(44), Kind.OBJECT),
        (b"// a comment\n.version 8.0\n.target sm_80\n\0", Kind.PTX),
    ],
)
def test_other_kinds_are_found_too(data: bytes, kind: Kind) -> None:
    assert kind_of(data) is kind


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"hello", b"\xff\xfe\x00", b"__global__ void k() {}", b"\0" * 100])
def test_what_is_no_image_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError):
        Artifact.of(data)


@given(st.binary(max_size=80))
def test_no_bytes_get_anything_but_a_kind_or_a_format_error(data: bytes) -> None:
    with contextlib.suppress(FormatError):
        assert isinstance(kind_of(data), Kind)


def test_an_error_of_opening_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.cubin"
    path.touch()
    with pytest.raises(FormatError, match=r"empty\.cubin: the image is empty"):
        Artifact.open(path)


def test_an_artifact_does_not_change() -> None:
    names = {"k": "_Z1kv"}
    artifact = Artifact(Kind.PTX, b".version 8.0", names=names)
    names["other"] = "x"
    assert dict(artifact.names) == {"k": "_Z1kv"}
    with pytest.raises(TypeError):
        artifact.names["new"] = "y"  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        artifact.kind = Kind.CUBIN  # type: ignore[misc]


def test_the_repr_says_what_it_is_and_not_its_bytes() -> None:
    artifact = Artifact(Kind.CUBIN, b"\x7fELF" + bytes(1 << 20), Arch.parse("sm_90"), {"axpy<float>": "_Z4axpy"})
    assert repr(artifact) == "<Artifact cubin sm_90 1048580 bytes names=['axpy<float>']>"


def test_only_text_is_given_as_text() -> None:
    assert Artifact.of(".version 8.0\n").text == ".version 8.0\n"
    with pytest.raises(FormatError, match="not text"):
        _ = Artifact(Kind.CUBIN, b"\x7fELF").text
