"""Files of another compiler's cache as one Artifact: they come back as they were, and lead nowhere else."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cujit.artifact import Artifact, ImageKind
from cujit.cache.files import pack_files, parts_of_files, unpack_files
from cujit.errors import FormatError
from raising import raises

FILES = {"k.cubin": b"\x7fELF\n\n", "k.json": b'{"num_warps": 4}', "empty": b""}


def test_files_are_restored_in_any_order() -> None:
    data = pack_files(FILES)
    assert unpack_files(data) == FILES
    assert data == pack_files(dict(reversed(FILES.items())))
    assert Artifact.of(data).kind is ImageKind.FILES


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../k", "a/b", "/etc/passwd", ".hidden", "__grp__k.json", "a\0b", "n" * 256]
)
def test_file_name_that_leads_elsewhere_is_refused(name: str) -> None:
    with raises(FormatError, "format"):
        pack_files({name: b""})
    with raises(FormatError, "format"):
        unpack_files(json.dumps({"cujit files": 1, "files": [[name, 0]]}, separators=(",", ":")).encode() + b"\n")


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"[]",
        b'{"cujit files":1}',
        b'{"cujit files":1,"files":[["a",1,2]]}',
        b'{"cujit files":1,"files":[["a",-1],["b",1]]}',
        b'{"cujit files":1,"files":[["a",0],["a",0]]}',
        b'{"cujit files":1,"files":[["a",1e400]]}',
        b'{"cujit files":1,"files":' + b"[" * 100_000,
    ],
)
def test_invalid_file_list_is_refused(head: bytes) -> None:
    with raises(FormatError, "format"):
        unpack_files(head + b"\n")


@given(st.data())
def test_damage_never_changes_sizes(data: st.DataObject) -> None:
    whole = pack_files(FILES)
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(FormatError):
        unpack_files(whole[:cut])
    with pytest.raises(FormatError):
        unpack_files(whole + b"x")


def test_comparison_covers_json_fields_and_contents() -> None:
    parts = parts_of_files(pack_files({**FILES, "broken.json": b"{", "list.json": b"[]"}))
    assert [part.label for part in parts] == ["broken.json", "empty", "k.cubin", "k.json num_warps", "list.json"]
    assert parts[3].value == "4"
    assert parts[2].size == 6
