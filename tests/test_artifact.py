"""Artifacts: kinds by content, save and open, and a repr that is cheap and safe."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cujit.arch import Arch
from cujit.artifact import Artifact, ImageKind, kind_of
from cujit.artifact.opening import naming, open_image
from cujit.devices.device import Device
from cujit.errors import ArgumentError, FormatError, OptionError
from cujit.loading import jit
from cujit.program import Source, bundle, compile
from cujit.signature import Parameter, ParameterClass, Signature
from raising import raises

AXPY = Source.cuda("template <class T> __global__ void axpy(T a, const T *x, T *y) { *y = a * *x; }", name="axpy.cu")


def images() -> dict[ImageKind, Artifact]:
    built = {to: compile(AXPY, to=to, arch="sm_90", names=["axpy<float>"]) for to in ("ptx", "cubin", "ltoir")}
    return {**{ImageKind(to): a for to, a in built.items()}, ImageKind.FATBIN: bundle([built["cubin"], built["ptx"]])}


def test_kind_of_every_tool_output_is_found_from_its_content(tmp_path: Path) -> None:
    for kind, artifact in images().items():
        path = artifact.save(tmp_path / f"{kind.value}.wrong-ending")
        opened = Artifact.open(path)
        assert opened.kind is kind
        assert opened.data == artifact.data
        assert opened.name == str(path)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"!<arch>\nx.o/", ImageKind.LIBRARY),
        (b"BC\xc0\xde" + bytes(8), ImageKind.NVVMIR),
        (b"; ModuleID = 'x'\ntarget triple = \"nvptx64-nvidia-cuda\"\n", ImageKind.NVVMIR),
        (b"\x7fELF" + bytes(14) + (62).to_bytes(2, "little") + bytes(44), ImageKind.OBJECT),
        (b"\x7fELF\x02\x02\x01" + bytes(11) + (21).to_bytes(2, "big") + bytes(44), ImageKind.OBJECT),
        (b"// a comment\n.version 8.0\n.target sm_80\n\0", ImageKind.PTX),
    ],
)
def test_other_kinds_are_found_too(data: bytes, kind: ImageKind) -> None:
    assert kind_of(data) is kind


@pytest.mark.parametrize(
    ("data", "offset"),
    [
        (b"", 0),
        (b"\x7fELF", 4),
        (b"\x7fELF" + bytes(14) + b"\x08" + bytes(45), 18),
        (b"hello", 0),
        (b"\xff\xfe\x00", 0),
        (b"__global__ void k() {}", 0),
        (b"\0" * 100, 0),
    ],
)
def test_invalid_image_is_refused_with_its_offset(data: bytes, offset: int) -> None:
    with pytest.raises(FormatError) as error:
        Artifact.of(data)
    assert error.value.offset == offset


@pytest.mark.parametrize("text", [".version 8.0\n\0.target sm_90", 'source_filename = "k"\n\0define'])
def test_text_with_a_zero_byte_is_refused_with_its_line(text: str) -> None:
    with raises(FormatError, "format", "2", "NUL"):
        kind_of(text.encode())


@pytest.mark.parametrize(
    ("machine", "kind"), [(0, ImageKind.OBJECT), *((m, ImageKind.OBJECT) for m in (3, 21, 40, 62, 183, 243)), (8, None)]
)
def test_host_object_is_recognized_by_its_machine(machine: int, kind: ImageKind | None) -> None:
    head = struct.pack("<16sHHI", b"\x7fELF\x02\x01\x01", 1, machine, 1).ljust(64, b"\0")
    with contextlib.nullcontext() if kind else pytest.raises(FormatError):
        assert kind_of(head) is kind


@given(st.binary(max_size=80))
def test_any_bytes_give_a_kind_or_a_format_error(data: bytes) -> None:
    with contextlib.suppress(FormatError):
        assert isinstance(kind_of(data), ImageKind)


def test_error_of_opening_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.cubin"
    path.touch()
    with raises(FormatError, "format", "empty.cubin"):
        Artifact.open(path)


def test_artifact_is_immutable() -> None:
    names = {"k": "_Z1kv"}
    artifact = Artifact(ImageKind.PTX, b".version 8.0", names=names)
    names["other"] = "x"
    assert dict(artifact.names) == {"k": "_Z1kv"}
    with pytest.raises(TypeError):
        artifact.names["new"] = "y"  # type: ignore[index]
    with pytest.raises(TypeError):
        artifact.signatures["_Z1kv"] = Signature(())  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        artifact.kind = ImageKind.CUBIN  # type: ignore[misc]


def test_repr_describes_the_artifact_without_its_bytes() -> None:
    artifact = Artifact(ImageKind.CUBIN, b"\x7fELF" + bytes(1 << 20), Arch.parse("sm_90"), {"axpy<float>": "_Z4axpy"})
    assert repr(artifact) == "<Artifact cubin sm_90 1048580 bytes names=['axpy<float>']>"


def test_only_text_is_given_as_text() -> None:
    assert Artifact.of(".version 8.0\n").text == ".version 8.0\n"
    with raises(FormatError, "format", "text"):
        _ = Artifact(ImageKind.CUBIN, b"\x7fELF").text


@pytest.mark.parametrize("bad", [None, 10**9, 3, 1.5, object(), "\ud800", Path("x.cubin"), [1, 2], b"x".join])
def test_nonbytes_are_refused(bad: Any) -> None:
    with pytest.raises(FormatError):
        Artifact.of(bad)


def test_text_with_half_a_character_is_refused_with_its_place() -> None:
    with raises(FormatError, "format", "3"):
        Artifact.of("// \ud800")


def test_error_says_what_to_pass_instead() -> None:
    ptx = Artifact(ImageKind.PTX, b".version 8.0")
    with raises(FormatError, "format", "artifact.data"):
        Artifact.of(ptx)  # type: ignore[arg-type]
    with raises(FormatError, "format", "Artifact.open"):
        Artifact.of(Path("x.ptx"))  # type: ignore[arg-type]


def test_every_buffer_and_text_is_an_image() -> None:
    data = b".version 8.0\n"
    for same in (data, bytearray(data), memoryview(data), memoryview(data + data)[: len(data)], data.decode()):
        assert Artifact.of(same).data == data


@pytest.mark.parametrize("bad", [None, 1, b"x", "a\0b", "\ud800", [], object()])
def test_invalid_path_is_refused(bad: Any) -> None:
    with raises(OptionError, "option", "pathlib.Path"):
        Artifact.open(bad)
    with raises(OptionError, "option", "pathlib.Path"):
        Artifact(ImageKind.PTX, b"").save(bad)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (("ptx", b"x"), "str 'ptx'"),
        ((ImageKind.PTX, None), "NoneType"),
        ((ImageKind.PTX, "text"), "Artifact.of(data)"),
        ((ImageKind.PTX, b"x", "sm_90"), "Arch.parse('sm_90')"),
        ((ImageKind.PTX, b"x", None, None), "mapping"),
        ((ImageKind.PTX, b"x", None, {}, [1]), "signatures"),
    ],
)
def test_artifact_of_wrong_types_is_refused(fields: tuple[Any, ...], why: str) -> None:
    with raises(OptionError, "option", why) as caught:
        Artifact(*fields)
    assert caught.value.help


def test_artifact_is_pickled_copied_and_a_key() -> None:
    signature = Signature((Parameter(ParameterClass.FLOAT, 4, 4, "float"),))
    artifact = Artifact(
        ImageKind.PTX, b".version 8.0", Arch.parse("sm_90"), {"k": "_Z1kf"}, {"_Z1kf": signature}, "log", "name", "tool"
    )
    for same in (pickle.loads(pickle.dumps(artifact)), copy.deepcopy(artifact), copy.copy(artifact)):
        assert same == artifact
        assert hash(same) == hash(artifact)
        assert [getattr(same, f.name) for f in dataclasses.fields(same)] == [
            getattr(artifact, f.name) for f in dataclasses.fields(artifact)
        ]
    other = dataclasses.replace(artifact, data=b".version 8.1")
    assert len({artifact, copy.copy(artifact), other}) == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is always full")
def test_full_disk_error_names_the_file() -> None:
    with pytest.raises(OSError, match="/dev/full"):
        Artifact(ImageKind.PTX, b".version 8.0").save("/dev/full")


def test_name_of_an_image_is_put_before_an_error_once() -> None:
    text = ".version 8.0\n.target sm_80\n.address_size 64\n"
    artifact = Artifact.of(text, name="k.ptx")
    with pytest.raises(FormatError) as named, naming(artifact), naming(artifact):
        raise FormatError("line 3 is odd")
    assert str(named.value) == "k.ptx: line 3 is odd"
    with pytest.raises(FormatError) as unnamed, naming(Artifact.of(text)):
        raise FormatError("line 3 is odd")
    assert str(unnamed.value) == "line 3 is odd"


def test_loaded_module_is_accepted_as_its_image(cpu: Device) -> None:
    module = jit('extern "C" __global__ void k() {}', device=cpu)
    assert open_image(module, "inspect") is module.artifact
    with raises(ArgumentError, "argument", "inspect", "int"):
        open_image(7, "inspect")
