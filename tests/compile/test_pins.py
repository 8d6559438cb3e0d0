"""A distribution's own pack answers for another build of the compiler, and for nothing else that is another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import cujit
from cujit import worklist
from cujit.cache.cache import Cache
from cujit.cache.pack import write_pack
from cujit.cache.provenance import Provenance
from cujit.compiler.keys.maker import KeyMaker
from cujit.errors import NotCompiledError, ToolchainNotFoundError
from cujit.program import runner, toolchain
from installed import install
from raising import raises

SOURCE = '#include "own.h"\n#include "cuda_fp16.h"\nextern "C" __global__ void k(float *x) { x[threadIdx.x] = OWN; }\n'
HEADER = "#pragma once\n#define OWN 3\n"

Ship = Callable[..., Path]


@pytest.fixture
def ship(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ship:
    """Build ``mylib`` in a tree, and install it elsewhere; give the installed source."""
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "own"))

    def ship(source: str = SOURCE, *, is_hashed: bool = True, distribution: str = "mylib", points: str = "") -> Path:
        tree = tmp_path / "tree"
        tree.mkdir()
        (tree / "k.cu").write_text(source)
        (tree / "own.h").write_text(HEADER)
        cache = Cache(tmp_path / "built")
        for arch in ("compute_80", "sm_90"):
            cujit.compile(tree / "k.cu", arch=arch, cache=cache)
        pins, closures = runner(cache).answers(cache.stores)
        write_pack(tmp_path / "k.pack", cache.stores, requests=pins, closures=closures)
        files = {"mylib/k.cu": source.encode(), "mylib/own.h": HEADER.encode()}
        pack = {f"{distribution}_packs/k.pack": (tmp_path / "k.pack").read_bytes()}
        if distribution != "mylib":
            install(tmp_path / "site", "mylib", files)
            files = {}
        install(tmp_path / "site", distribution, files | pack, is_hashed=is_hashed, points=points)
        # From here on the compiler is another patch release: what a key knows a build by is another.
        monkeypatch.setattr("cujit.compiler.keys.builds._identity", lambda files: f"another/{len(files)}")
        monkeypatch.setattr(toolchain(), "notes", {})  # what this process knows of the first one
        return tmp_path / "site/mylib/k.cu"

    return ship


def outcome(source: Path, *, compile: str = "auto", **options: object) -> str:
    image = cujit.compile(source, arch="sm_90", cache=Cache.packaged("mylib", compile=compile), **options)  # type: ignore[arg-type]
    assert image.provenance is not None
    return str(image.provenance.outcome.value)


def test_pin_answers_for_another_compiler_build_and_reports_it(ship: Ship, tmp_path: Path) -> None:
    source = ship()
    image = cujit.compile(source, arch="sm_90", cache=Cache.packaged("mylib"))
    assert isinstance(image.provenance, Provenance)
    assert (image.provenance.outcome.value, image.provenance.is_hit) == ("shipped", True)
    assert image.provenance.root == tmp_path / "site/mylib_packs/k.pack"
    assert (image.kind.value, dict(image.names), image.name) == ("cubin", {"k": "k"}, str(source))
    assert outcome(source) == "shipped", "out of memory too"
    assert not list((tmp_path / "own").glob("e/*/*")), "nothing was made"
    assert not image.provenance.why()


def test_general_cache_and_other_packs_are_searched_by_content(ship: Ship, tmp_path: Path) -> None:
    source = ship(distribution="mylib-sm90", points="[cujit.packs]\nmylib = mylib-sm90_packs\n")
    with raises(NotCompiledError, "not-compiled", "another/"):
        outcome(source, compile="never")
    roots = Cache(None, read_only=[tmp_path / "site/mylib-sm90_packs/k.pack"], compile="never")
    with pytest.raises(NotCompiledError):
        cujit.compile(source, arch="sm_90", cache=roots)


def test_pack_without_a_recorded_digest_is_searched_by_content(ship: Ship) -> None:
    source = ship(is_hashed=False)
    with pytest.raises(NotCompiledError):
        outcome(source, compile="never")


@pytest.mark.parametrize(
    "change",
    [
        lambda source: source.write_text(SOURCE.replace("= OWN", "= OWN + 1")),
        lambda source: source.with_name("own.h").write_text(HEADER.replace("3", "4")),
        lambda source: source.with_name("cuda_fp16.h").write_text("// one that stands before the toolkit's\n"),
        lambda source: source.with_name("own.h").unlink(),
    ],
)
def test_sources_that_the_user_changes_get_no_answer(ship: Ship, change: Callable[[Path], object]) -> None:
    source = ship()
    change(source)
    with pytest.raises(NotCompiledError):
        outcome(source, compile="never")


def test_other_options_and_architectures_get_no_answer(ship: Ship) -> None:
    source = ship()
    with pytest.raises(NotCompiledError):
        outcome(source, compile="never", define={"OTHER": "1"})
    with pytest.raises(NotCompiledError):
        cujit.compile(source, arch="sm_80", cache=Cache.packaged("mylib", compile="never"))


def test_other_release_compiles_first_if_allowed(ship: Ship, monkeypatch: pytest.MonkeyPatch) -> None:
    source = ship()
    monkeypatch.setattr(KeyMaker, "release", lambda _: "NVRTC 99.0")
    assert outcome(source) == "made"
    assert outcome(source, compile="never") == "shipped"


def test_pin_answers_without_a_toolkit(ship: Ship, monkeypatch: pytest.MonkeyPatch) -> None:
    source = ship()

    def absent(*_: object) -> object:
        raise ToolchainNotFoundError("there is none")

    for name in ("build_of", "unopened_build_of"):
        monkeypatch.setattr(f"cujit.compiler.keys.maker.{name}", absent)
    cache = Cache.packaged("mylib")
    assert outcome(source) == "shipped"
    module = cujit.jit(source, device="cpu", cache=cache)
    assert str(module.artifact.arch) == "compute_80"


@pytest.mark.parametrize("before", ["// __FILE__\n", '#include "{folder}/absolute.h"\n'])
def test_results_that_may_contain_paths_are_not_pinned(ship: Ship, before: str, tmp_path: Path) -> None:
    (tmp_path / "absolute.h").write_text("")
    with pytest.raises(NotCompiledError):
        outcome(ship(before.format(folder=tmp_path) + SOURCE), compile="never")


def test_recordings_contain_shipped_and_found_images(ship: Ship, tmp_path: Path) -> None:
    source = ship()
    with cujit.record_worklist(tmp_path / "recorded"):
        assert outcome(source) == "shipped"
        cujit.jit(source, device="cpu", cache=Cache.packaged("mylib"))
    uses = worklist.read(tmp_path / "recorded").uses
    assert sorted((str(use.arch), use.outcome, use.calls) for use in uses) == [
        ("compute_80", "hit", 1),
        ("sm_90", "hit", 1),
    ]
