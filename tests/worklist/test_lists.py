"""Worklists as files: joined, cut, and refused with the line where they are none."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cujit
import cujit.worklist
from cujit.arch import Arch
from cujit.errors import ArchError, CujitError, FileError, FormatError, OptionError
from cujit.worklist import RecipeUse, Worklist
from cujit.worklist.lists import HEADER, recipe_line, use_line
from cujit.worklist.places import Places, project_of
from raising import raises

HERE = Places("/home/me/work", lambda: ["/opt/cuda/include", "/opt/cuda/include/cccl"])
SEEN = str(datetime.date.today() + datetime.timedelta(1))  # also where midnight comes meanwhile


def recipe(n: int, **options: Any) -> tuple[str, str]:
    """The digest and the line of a small recipe."""
    source = cujit.Source.cuda(f"__global__ void k{n}() {{}}", name=f"k{n}.cu", headers={"h.h": "// é\udc80"[:4]})
    return recipe_line(cujit.request(source, arch="sm_90", **options), HERE)


def a_list(path: Path, *uses: RecipeUse) -> Path:
    """A file with these uses, whose recipes are numbers."""
    lines = {}
    for use in uses:
        lines[use.recipe] = recipe(int(use.recipe))
    text = HEADER + "".join(line for _, line in lines.values())
    path.write_text(text + "".join(use_line(use._replace(recipe=lines[use.recipe][0])) for use in uses))
    return path


def a_use(n: int, arch: str = "sm_90", **more: Any) -> RecipeUse:
    return RecipeUse(str(n), Arch.parse(arch), None, **{"seen": SEEN, "make_ms": 50.0, **more})


def told(worklist: Worklist) -> list[tuple[str, str, int]]:
    return [(worklist.name(use.recipe), str(use.arch), use.calls) for use in worklist.uses]


def test_lists_are_joined_and_sorted(tmp_path: Path) -> None:
    one = a_list(tmp_path / "1.jsonl", a_use(2, calls=3), a_use(1, calls=5, make_ms=80.0), a_use(1, "sm_80"))
    two = a_list(tmp_path / "2.jsonl", a_use(1, calls=7, outcome="hit", seen="2020-01-01"), a_use(3))
    merged = cujit.worklist.merge([two, one])
    assert told(merged.worklist) == [
        ("k1.cu", "sm_80", 1),
        ("k1.cu", "sm_90", 12),
        ("k2.cu", "sm_90", 3),
        ("k3.cu", "sm_90", 1),
    ]
    use = merged.worklist.uses[1]
    assert (use.outcome, use.make_ms, use.seen) == ("made", 80.0, SEEN)
    assert dict(merged.cut) == {}
    written = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    merged.worklist.save(written[0])
    cujit.worklist.merge([one, two, one, tmp_path / "../" / tmp_path.name / "1.jsonl"]).worklist.save(written[1])
    assert written[0].read_bytes() == written[1].read_bytes(), "in any order, each file once"
    assert cujit.worklist.read(written[0]) == merged.worklist
    (tmp_path / "c.jsonl").mkdir()
    with raises(FileError, "file", "Is a directory"):
        merged.worklist.save(tmp_path / "c.jsonl")
    assert sorted(os.listdir(tmp_path)) == ["1.jsonl", "2.jsonl", "a.jsonl", "b.jsonl", "c.jsonl"]


def test_directory_combines_all_its_recordings(tmp_path: Path) -> None:
    a_list(tmp_path / "1.jsonl", a_use(1))
    a_list(tmp_path / "2.jsonl", a_use(1))
    (tmp_path / "torn.jsonl").write_text(HEADER[:9])
    (tmp_path / "notes.txt").write_text("something else")
    assert told(cujit.worklist.read(tmp_path)) == [("k1.cu", "sm_90", 2)]


@pytest.mark.parametrize(
    ("wishes", "left", "cut"),
    [
        ({"min_uses": 2}, [1, 4], {"fewer than 2 uses": 2}),
        ({"min_ms": 20}, [1, 2, 4], {"made in less than 20 ms": 1}),
        ({"seen_within_days": 90}, [1, 2, 3], {"not seen since": 1}),
        ({"seen_within_days": 0}, [1, 2, 3], {"not seen since": 1}),
        ({"seen_within_days": 10**9}, [1, 2, 3, 4], {}),
        ({"cap": 2}, [1, 4], {"past the cap of 2": 2}),
        ({"cap": 4}, [1, 2, 3, 4], {}),
        ({"arch": ["sm_80"]}, [3], {"other architectures": 3}),
        ({"min_uses": 2, "cap": 1}, [4], {"fewer than 2 uses": 2, "past the cap of 1": 1}),
    ],
    ids=str,
)
def test_truncated_recording_is_reported(tmp_path: Path, wishes: Any, left: list[int], cut: dict[str, int]) -> None:
    uses = [
        a_use(1, calls=2),
        a_use(2, make_ms=0.0),
        a_use(3, "sm_80", make_ms=0.5),
        a_use(4, calls=9, seen=time.strftime("%Y-%m-%d", time.localtime(0))),
        a_use(5, outcome="failed"),
    ]
    merged = cujit.worklist.merge(a_list(tmp_path / "list", *uses), **wishes)
    assert [name for name, *_ in told(merged.worklist)] == [f"k{n}.cu" for n in left]
    said = {reason.partition(" 2")[0] if "since" in reason else reason: n for reason, n in merged.cut.items()}
    assert said == {"never compiled": 1, **cut}


def test_wrong_wishes_are_refused(tmp_path: Path) -> None:
    path = a_list(tmp_path / "list", a_use(1))
    days: Any = {"seen_within_days": 1.5}, {"seen_within_days": -1}
    for wishes in ({"cap": -1}, {"min_uses": "2"}, {"min_ms": float("nan")}, *days):
        with raises(OptionError, "option", *wishes):
            cujit.worklist.merge(path, **wishes)
    with pytest.raises(ArchError):
        cujit.worklist.merge(path, arch=["sm_1"])
    with raises(OptionError, "option", "worklist"):
        cujit.worklist.merge([])


def test_missing_recording_is_reported(tmp_path: Path) -> None:
    with raises(FileError, "file", "absent.jsonl"):
        cujit.worklist.read(tmp_path / "absent.jsonl")


def damaged(change: Callable[[list[str]], list[str]]) -> Callable[[str], str]:
    return lambda text: "\n".join(change(text.split("\n")))


def spoilt(line: int, **values: Any) -> Callable[[str], str]:
    return damaged(
        lambda lines: [json.dumps({**json.loads(one), **values}) if n == line else one for n, one in enumerate(lines)]
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda _: "", ":1: the file is not a worklist"),
        (lambda text: text[len(HEADER) :], "its first line doesn't contain 'cujit worklist'"),
        (lambda text: text.replace('t": 1', 't": 2', 1), "format version 2, but this cujit reads version 1"),
        (lambda text: "\x93cujitP\n" + text, ":1: no line of a worklist"),
        (lambda text: text.replace("k1()", "k9()"), ":2: the recipe was modified: its digest doesn't match"),
        (lambda text: "<<<<<<< HEAD\n" + text, ":1: no line"),
        (damaged(lambda lines: [lines[0], "=======", *lines[1:]]), ":2: no line"),
        (damaged(lambda lines: [lines[0], "[1]", *lines[1:]]), ":2: this line is not part of a worklist"),
        (damaged(lambda lines: [lines[0], "[" * 100_000, *lines[1:]]), ":2: no line"),
        (damaged(lambda lines: [lines[0], *lines[2:]]), "has no recipe line before its use"),
        (spoilt(3, calls=0), ":4: the use of a recipe contains a value that is out of range"),
        (spoilt(3, calls=True), "out of range"),
        (spoilt(3, make_ms=-1), "out of range"),
        (spoilt(3, make_ms=float("inf")), "out of range"),
        (spoilt(3, outcome="stolen"), "out of range"),
        (spoilt(3, key="../../etc"), "out of range"),
        (spoilt(3, seen="yesterday"), "out of range"),
        (spoilt(3, arch="sm_1"), ":4: "),
        (spoilt(3, arch=90), ":4: "),
        (spoilt(3, use=["x"]), ":4: "),
    ],
)  # fmt: skip
def test_invalid_list_is_refused_with_its_line(tmp_path: Path, change: Callable[[str], str], said: str) -> None:
    path = a_list(tmp_path / "list.jsonl", a_use(1), a_use(2))
    path.write_text(change(path.read_text()), encoding="latin-1")
    with pytest.raises(FormatError) as caught:
        cujit.worklist.read(path)
    assert str(caught.value).startswith(f"{path}:")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "values",
    [
        {"text": None}, {"text": 3}, {"options": {"nonsense": 1}}, {"options": 3}, {"include": [3]}, {"include": 3},
        {"path": 3}, {"define": [["A"]]}, {"headers": 7}, {"modules": [["a", "!"]]}, {"options": {"include": [3]}},
    ],
    ids=str,
)  # fmt: skip
def test_recipe_that_is_not_a_request_is_refused(tmp_path: Path, values: dict[str, Any]) -> None:
    said = {"name": "k.cu", "text": "", **values}
    text = json.dumps({name: value for name, value in said.items() if value is not None}, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()
    path = tmp_path / "list.jsonl"
    path.write_text(f'{HEADER}{{"recipe": "{digest}", {text[1:]}\n')
    with raises(FormatError, "format", ":2"):
        cujit.worklist.read(path)


def test_truncated_list_is_read_up_to_the_cut(tmp_path: Path) -> None:
    whole = a_list(tmp_path / "whole.jsonl", a_use(1), a_use(2), a_use(2, calls=2)).read_bytes()
    torn = tmp_path / "torn.jsonl"
    for length in range(len(HEADER), len(whole)):
        torn.write_bytes(whole[:length])
        uses = cujit.worklist.read(torn).uses
        assert len(uses) <= 2
        assert all(use.calls <= 2 for use in uses)
    for length in range(len(HEADER) - 1):
        torn.write_bytes(whole[:length])
        with pytest.raises(FormatError):
            cujit.worklist.read(torn)


def test_any_byte_may_be_changed(tmp_path: Path) -> None:
    whole = a_list(tmp_path / "whole.jsonl", a_use(1), a_use(2)).read_bytes()
    path = tmp_path / "list.jsonl"
    for at in range(0, len(whole) - 1, 3):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x5A]) + whole[at + 1 :])
        try:
            read = cujit.worklist.read(path)
        except CujitError:
            continue
        assert len(read.uses) == 2


def test_request_is_restored_unchanged(tmp_path: Path) -> None:
    llvm = cujit.Source.nvvm(b"BC\xc0\xde" + bytes(60), name="m.bc", libdevice=True)
    (tmp_path / "inc").mkdir()
    places = Places(str(tmp_path), tuple)
    asked = [
        cujit.request("x" * 2_000_000, arch="sm_90a", names=["a<int>", "b"], extra=["--flag"], maxrregcount=40),
        cujit.request(cujit.Source.cuda("é\n\t\\", name="a/b.cu", define={"A": None, "B": "é"}), to="ptx"),
        cujit.request(llvm, arch="lto_90"),
        cujit.request("optix", to="optixir", arch="compute_90"),
        cujit.request(cujit.Source.cuda("", include=[tmp_path / "inc"]), arch="sm_90", include=[str(tmp_path)]),
    ]
    for request in asked:
        digest, line = recipe_line(request, places)
        (tmp_path / "list").write_text(HEADER + line)
        assert cujit.worklist.read(tmp_path / "list").request(digest, request.arch, places) == request


def test_places_do_not_lead_out_of_their_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lib/python3/site-packages/a/b").mkdir(parents=True)
    monkeypatch.setattr("sys.path", [str(tmp_path / "lib/python3/site-packages"), "relative", "/home/me/work/src"])
    names = {
        f"{tmp_path}/lib/python3/site-packages/a/b": "{package:a}/b",
        f"{tmp_path}/lib/python3/site-packages/a": "{package:a}",
        f"{tmp_path}/lib/python3/site-packages/absent/b": "{elsewhere}/b",
        "/opt/cuda/include": "{toolkit}/include",
        "/opt/cuda/include/cccl/cub": "{toolkit}/include/cccl/cub",
        "/opt/cuda/samples": "{elsewhere}/samples",
        "/home/me/work": "{project}",
        "/home/me/work/a/b": "{project}/a/b",
        "/home/me/workshop": "{elsewhere}/workshop",
        "/home/me": "{elsewhere}/me",
        "/": "{elsewhere}/",
    }
    assert {path: HERE.name(path) for path in names} == names
    assert HERE.path("{project}/a/b") == "/home/me/work/a/b"
    assert HERE.path("{package:a}/b") == f"{tmp_path}/lib/python3/site-packages/a/b"
    for name in (
        *("/etc", "etc", "", "{project}/../../etc", "{project}/a/../../x", "{package:a}/..", "{package:..}/x"),
        *("{package:}/x", "{elsewhere}/x", "{toolkit}x", "{project}//../..", "{package:absent_here}", "{home}/x"),
    ):
        assert HERE.path(name) is None, name
    assert Places(None, tuple).path("{project}/a") is None
    assert Places(None, tuple).path("{toolkit}/a") is None


def test_project_is_found_by_its_marker_file(tmp_path: Path) -> None:
    (tmp_path / "a/b/c").mkdir(parents=True)
    assert project_of(str(tmp_path / "a/b")) == str(tmp_path / "a/b"), "without a mark, where one is"
    (tmp_path / "a/.git").touch()
    assert project_of(str(tmp_path / "a/b/c")) == str(tmp_path / "a")
    assert project_of("/") is None
