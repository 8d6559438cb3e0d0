"""Kernels that a library declares: requests of every combination, worklists of them, and what a start reports."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import cujit
import cujit.worklist
from cujit import warmup
from cujit.cache.cache import Cache
from cujit.errors import OptionError
from cujit.warmup import declarations
from pages import shell
from raising import raises

CODE = "template <typename T, int N> __global__ void scale(T *x) { x[threadIdx.x] *= N * FACTOR; }"


@pytest.fixture(autouse=True)
def nothing_declared(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(declarations, "_DECLARED", {})
    return iter([None])


def declare(name: str = "mylib.scale", **more: Any) -> warmup.Declared:
    given: dict[str, Any] = {
        "names": "scale<{dtype}, {n}>",
        "over": {"dtype": ["float", "double"], "n": [2, 3]},
        "define": {"FACTOR": "{n}"},
        **more,
    }
    return warmup.declare(name, CODE, **given)


def test_each_combination_is_a_request() -> None:
    variants = list(declare(when=lambda dtype, n: (dtype, n) != ("double", 3)).variants("sm_90"))
    assert [variant.title for variant in variants] == [
        f"mylib.scale[dtype={dtype}, n={n}]" for dtype, n in (("float", 2), ("float", 3), ("double", 2))
    ]
    assert [variant.request.names for variant in variants] == [
        ("scale<float, 2>",), ("scale<float, 3>",), ("scale<double, 2>",)
    ]  # fmt: skip
    assert "--define-macro=FACTOR=3" in variants[1].request.arguments()


@dataclasses.dataclass(frozen=True)
class CompileKey:
    dtype: str
    n: int


def test_compile_keys_are_expanded_on_request(tmp_path: Path) -> None:
    asked: list[int] = []

    def keys() -> list[CompileKey]:
        asked.append(1)
        return [CompileKey("float", 2), CompileKey("double", 3), CompileKey("double", 2)]

    one = declare(over={}, keys=keys, when=lambda dtype, n: (dtype, n) != ("double", 2))
    assert asked == []
    assert [variant.title for variant in one.variants("sm_90")] == [
        "mylib.scale[dtype=float, n=2]", "mylib.scale[dtype=double, n=3]"
    ]  # fmt: skip
    report = warmup.run(arch=["sm_90"], cache=Cache(tmp_path / "cache"))
    assert report.counts == {"made": 2}
    assert len(asked) == 2
    assert len(warmup.worklist(arch=["sm_90", "sm_80"]).uses) == 4


@pytest.mark.parametrize("key", [3, {"dtype": "float", "n": 2}, CompileKey, None])
def test_invalid_compile_key_is_refused(key: object) -> None:
    with raises(OptionError, "option"):
        list(declare(over={}, keys=lambda: [key]).variants("sm_90"))


def test_keys_are_a_function_instead_of_parameters() -> None:
    with raises(OptionError, "option"):
        declare(keys=list)
    with raises(OptionError, "option"):
        declare(over={}, keys=[CompileKey("float", 2)])
    with raises(OptionError, "option", "dtype"):
        list(declare(over={}, names="scale<{head}>", keys=lambda: [CompileKey("float", 2)]).variants("sm_90"))


def test_start_gets_all_kernels_and_their_origins(tmp_path: Path) -> None:
    declare()
    cache = Cache(tmp_path / "cache")
    first = warmup.run(arch=["sm_90", "sm_80"], cache=cache, rank=3)
    assert first.counts == {"made": 8}
    assert str(first).startswith("rank 3: 8 kernels in ")
    again = warmup.run(["mylib"], arch=["sm_90"], cache=Cache(tmp_path / "cache"), jobs=2)
    assert again.counts == {"disk": 4}
    said = json.loads(json.dumps(again.as_json()))
    assert {kernel["arch"] for kernel in said["kernels"]} == {"sm_90"}
    assert (said["counts"], said["rank"]) == ({"disk": 4}, None)


def test_later_jit_calls_hit(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    declare(names="scale<float, 2>", over={}, define={"FACTOR": "5"})
    assert warmup.run(device="cpu", cache=cache).counts == {"made": 1}
    module = cujit.jit(CODE, names=["scale<float, 2>"], define={"FACTOR": "5"}, device="cpu", cache=cache)
    assert module.artifact.provenance is not None
    assert module.artifact.provenance.is_hit


def test_failed_compile_is_reported_and_others_are_ready(tmp_path: Path) -> None:
    declare(over={"dtype": ["float", "nothing"], "n": [2]})
    report = warmup.run(arch=["sm_90"], cache=Cache(tmp_path / "cache"))
    assert report.counts == {"made": 1, "failed": 1}
    assert [kernel.name for kernel in report.failed] == ["mylib.scale[dtype=nothing, n=2]"]
    assert "mylib.scale[dtype=nothing, n=2] for sm_90: " in str(report)


RANK = """
import sys, json
from pathlib import Path
import cujit.warmup
for n in range(3):
    cujit.warmup.declare(f"mylib.k{n}", "#include <cuda_fp16.h>\\n__global__ void k(int *x) { *x = %d; }" % n)
print(json.dumps(cujit.warmup.run(arch=["sm_90"], jobs=1, rank=int(sys.argv[1])).as_json()))
"""


def test_concurrent_ranks_compile_each_kernel_once(tmp_path: Path) -> None:
    environment = {**os.environ, "CUJIT_CACHE_DIR": str(tmp_path / "cache")}
    ranks = [
        subprocess.Popen([sys.executable, "-c", RANK, str(n)], env=environment, stdout=subprocess.PIPE, text=True)
        for n in range(3)
    ]
    reports = [json.loads(rank.communicate(timeout=120)[0]) for rank in ranks]
    assert [report["rank"] for report in reports] == [0, 1, 2]
    assert sum(report["counts"].get("made", 0) for report in reports) == 3
    for report in reports:
        waits = [kernel["seconds"] for kernel in report["kernels"] if kernel["outcome"] == "waited"]
        assert report["waited_s"] == pytest.approx(sum(waits))


def test_worklist_of_declarations_builds_and_covers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cache"))
    declare()
    listed = warmup.worklist(arch=["sm_80", "sm_90"])
    assert len(listed.uses) == 8
    listed.save(tmp_path / "kernels.jsonl")
    assert cujit.worklist.read(tmp_path / "kernels.jsonl") == listed
    report = cujit.worklist.build(listed, arch=["sm_90"], pack=tmp_path / "half.pack")
    assert report.made == 4
    cover = cujit.worklist.cover(listed, [tmp_path / "half.pack"])
    assert (cover.calls, cover.covered_calls) == (8, 4)
    assert {str(one.arch) for one in cover.missing} == {"sm_80"}
    shipped = Cache(None, read_only=[tmp_path / "half.pack"], compile="never")
    assert warmup.run(arch=["sm_90"], cache=shipped).counts == {"disk": 4}
    assert warmup.run(arch=["sm_80"], cache=shipped).counts == {"failed": 4}


def test_command_imports_the_declaring_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("lib_that_declares.py").write_text(
        f"import cujit.warmup\ncujit.warmup.declare('lib.scale', {CODE!r}, names='scale<float, {{n}}>', "
        "over={'n': [1, 2]}, define={'FACTOR': '1'})\n"
    )
    said = json.loads(shell("cujit worklist declare lib_that_declares --arch sm_90 -o kernels.jsonl --json"))
    assert (said["requests"], said["sources"]) == (2, 2)
    assert "scale<float, 2>" in shell("cujit worklist show kernels.jsonl --json")


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": 3},
        {"when": 3},
        {"over": [1]},
        {"over": {"n": "23"}},
        {"no_such_option": 1},
    ],
)
def test_invalid_declaration_is_refused(wrong: dict[str, Any]) -> None:
    with raises(OptionError, ("option", "option-unknown")[("no_such_option" in wrong)]):
        declare(**wrong)
    assert warmup.declared() == ()


def test_undeclared_parameter_or_name_is_refused() -> None:
    declare(names="scale<{head}>")
    with raises(OptionError, "option", "head"):
        warmup.run(arch=["sm_90"])
    with raises(OptionError, "option", "other"):
        warmup.declared(["other"])
    no_list: Any
    for no_list in ([], "sm_90"):
        with raises(OptionError, "option", "arch"):
            warmup.worklist(arch=no_list)


def test_repeated_declaration_replaces_the_first() -> None:
    declare()
    again = declare(over={"dtype": ["float"], "n": [2]})
    assert warmup.declared(["mylib.scale"]) == (again,)
