"""What packs know of headers: the same key as a scan gives, or a scan."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import cujit
from cujit.arch import Arch
from cujit.artifact import ImageKind
from cujit.cache.pack import write_pack
from cujit.cache.provenance import Provenance
from cujit.compiler.includes import files, packaged, stat_cache
from cujit.compiler.inputs.source import Source
from cujit.compiler.keys.maker import Keyed, KeyMaker, Uncacheable
from cujit.compiler.keys.scans import Scan
from cujit.compiler.options.values import Options
from cujit.compiler.request import Request
from cujit.program import runner
from cujit.toolchain.toolset import Toolchain

KERNEL = '#include <mine/add.h>\n#include "near.h"\nextern "C" __global__ void k(float *x) { x[0] = ADD + NEAR; }\n'
TREE = {
    "site-packages/lib/include/mine/add.h": '#include "deep.h"\n#include "../up.h"\n#define ADD 1\n',
    "site-packages/lib/include/mine/deep.h": "#if __has_include(<lib_asks.h>)\n#endif\n",
    "site-packages/lib/include/up.h": "",
    "site-packages/lib/include/lib_asks.h": "",
    "site-packages/lib/include/Case.h": "",
    "project/near.h": (
        "#if __has_include(<Near.H>) || __has_include(<mine>) || __has_include(<a b.h>)\n#endif\n#define NEAR 2\n"
    ),
    "project/k.cu": KERNEL,
    "project/include/own.h": "",
}


def write(root: Path, tree: Mapping[str, str] = TREE) -> Path:
    """A project and, beside it, an installed distribution with headers, of which RECORD says the bytes."""
    for name, text in tree.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    record(root)
    return root


def record(root: Path, site: str = "site-packages") -> Path:
    """Write the RECORD of what lies in a tree, as an installer does: last."""
    lines = []
    for path in sorted((root / site / "lib").rglob("*.h")):
        data = path.read_bytes()
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        lines.append(f"{path.relative_to(root / site)},sha256={digest},{len(data)}")
    info = root / site / "lib-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "RECORD").write_text("\r\n".join([*lines, "lib-1.0.dist-info/RECORD,,", ""]))
    return info / "RECORD"


@pytest.fixture(autouse=True)
def _settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits until its files are two seconds old; ticks of the clock are waited for."""
    monkeypatch.setattr(files, "TOO_NEW_NS", 0)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return write(tmp_path / "built")


def compile_of(root: Path, *, include: tuple[str, ...] = (), **options: object) -> Request:
    """The compile of the project's kernel, for the distribution's headers and those of ``include``."""
    directories = [*(str(root / directory) for directory in include), str(root / "site-packages/lib/include")]
    arch = Arch.parse(str(options.pop("arch", "sm_90")))
    source = Source.cuda(root / "project/k.cu", include=directories)
    return Request(source, ImageKind.CUBIN, arch, Options.of(None, options))


def keyed(request: Request, closures: Mapping[str, bytes] | None = None) -> Keyed:
    """The key that a new process makes of a compile, with a pack of these closures."""
    known = {} if closures is None else dict(closures)
    made = KeyMaker(Toolchain(), closures=lambda search: [known[search]] if search in known else []).of_request(request)
    assert isinstance(made, Keyed), made
    return made


def searched(*requests: Request) -> dict[str, bytes]:
    return KeyMaker(Toolchain()).closures(requests)


def tick() -> None:
    """Let the clock of the file system go on: it counts in hundredths of a second at worst (HZ=100)."""
    time.sleep(0.03)


def assert_scanned_anew(request: Request, closures: Mapping[str, bytes], before: Keyed) -> None:
    """Hold that a change is seen: by a scan, and in the key."""
    after = keyed(request, closures)
    assert (after.manifest.via, after.key) == ("scan", keyed(request).key)
    assert after.key != before.key


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"lineinfo": True},
        {"std": "c++14", "define": {"A": 1}},
        {"pre_include": ["own.h"], "include": ("project/include",)},
        {"arch": "sm_80", "extra": ["--no-source-include"], "include": ("project",)},
        {"include": ("project", "site-packages/lib/include/mine/..")},
    ],
)
def test_key_equals_that_of_a_scan(tree: Path, how: dict[str, object]) -> None:
    include = how.pop("include", ())
    assert isinstance(include, tuple)
    request = compile_of(tree, include=include, **how)
    known = keyed(request, searched(request))
    scanned = keyed(request)
    assert (known.manifest.via, scanned.manifest.via) == ("request table", "scan")
    assert (known.key, known.key.parts) == (scanned.key, scanned.key.parts)
    assert known.manifest.recorded == (1 if "extra" in how else 4), "the distribution's are not opened"
    assert set(known.manifest.paths) == set(scanned.manifest.paths)


def _stamp_of_bytes(status: os.stat_result) -> files.Stamp:
    """Make a stamp without the ctime, which links to a file and copies of an environment change."""
    return status.st_size, status.st_mtime_ns, status.st_mtime_ns, status.st_ino, status.st_dev


def test_toolkit_headers_are_known_by_their_record(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (files, packaged, stat_cache):
        monkeypatch.setattr(module, "stamp_of", _stamp_of_bytes)
    text = "#include <cub/block/block_reduce.cuh>\n__global__ void k() {}\n"
    request = Request(Source.cuda(text), ImageKind.CUBIN, Arch.parse("sm_90"))
    known, scanned = keyed(request, searched(request)), keyed(request)
    assert (known.key, known.manifest.via) == (scanned.key, "request table")
    opened = len(known.manifest.paths) - known.manifest.recorded
    assert opened < 30, "cujit's own standard headers, which are in no wheel here"


def test_one_search_serves_every_architecture_and_place(tree: Path, tmp_path: Path) -> None:
    closures = searched(*(compile_of(tree, arch=arch) for arch in ("sm_80", "sm_90", "sm_120")))
    assert len(closures) == 1
    moved = tmp_path / "elsewhere"
    shutil.copytree(tree, moved)  # with the times of now, in any order: what RECORD cannot tell is read
    for root in (tree, moved):
        known = keyed(compile_of(root, arch="sm_75"), closures)
        assert (known.manifest.via, known.key) == ("request table", keyed(compile_of(tree, arch="sm_75")).key)
    assert searched(compile_of(moved)) == closures, "the same headers make the same bytes"


def edit_in_place(path: Path) -> None:
    with open(path, "r+") as file:
        file.write(path.read_text().replace("ADD 1", "ADD 7"))


def edit_and_keep_the_time(path: Path) -> None:
    before = path.stat()
    edit_in_place(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def put_an_older_file_there(path: Path) -> None:
    other = path.with_name("other")
    other.write_text(path.read_text().replace("ADD 1", "ADD 7"))
    os.utime(other, ns=(0, 10**18))
    os.replace(other, path)


def edit_and_touch_the_record(path: Path) -> None:
    edit_in_place(path)
    tick()
    os.utime(path.parents[3] / "lib-1.0.dist-info/RECORD")


def edit_and_lengthen(path: Path) -> None:
    path.write_text(path.read_text() + "\n")


@pytest.mark.parametrize(
    "edit",
    [edit_in_place, edit_and_keep_the_time, put_an_older_file_there, edit_and_touch_the_record, edit_and_lengthen],
)
def test_edited_header_is_scanned(tree: Path, edit: Callable[[Path], None]) -> None:
    request = compile_of(tree)
    closures, before = searched(request), keyed(request)
    tick()
    edit(tree / "site-packages/lib/include/mine/add.h")
    assert_scanned_anew(request, closures, before)


@pytest.mark.parametrize("change", ["touched", "gone", "empty", "of another release", "of no installer"])
def test_header_without_a_record_is_read(tree: Path, change: str) -> None:
    request = compile_of(tree)
    closures = searched(request)
    path = tree / "site-packages/lib-1.0.dist-info/RECORD"
    tick()
    if change == "touched":
        os.utime(path)
        os.utime(path.parent)
        tick()
        os.utime(tree / "site-packages/lib/include/mine/add.h")
    elif change == "gone":
        shutil.rmtree(path.parent)
    elif change == "of no installer":
        (tree / "site-packages").rename(tree / "headers")
        (tree / "site-packages").symlink_to(tree / "headers")
        path.unlink()
    else:
        path.write_bytes(b"" if change == "empty" else path.read_bytes().replace(b"sha256=", b"sha256=A"))
    known = keyed(request, closures)
    assert (known.manifest.via, known.key) == ("request table", keyed(request).key)
    assert known.manifest.recorded < 4


def test_mismatched_record_is_not_trusted(tree: Path) -> None:
    request = compile_of(tree)
    closures, before = searched(request), keyed(request)
    path = tree / "site-packages/lib-1.0.dist-info/RECORD"
    said = path.read_bytes()
    edit_and_lengthen(tree / "site-packages/lib/include/mine/add.h")
    tick()
    path.unlink()
    path.write_bytes(said)
    assert_scanned_anew(request, closures, before)


def test_recently_installed_header_is_read(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = compile_of(tree)
    closures, expected = searched(request), keyed(request)
    monkeypatch.setattr(files, "TOO_NEW_NS", 10**18)
    known = keyed(request, closures)
    assert (known.manifest.via, known.key, known.manifest.recorded) == ("request table", expected.key, 0)
    assert len(known.manifest.fresh) == len(expected.manifest.paths)


@pytest.mark.parametrize("name", ["mine", "a b.h"])
def test_names_without_a_listing_are_searched(tree: Path, name: str) -> None:
    request = compile_of(tree, include=("project/include",))
    (tree / "project/include/mine").mkdir()
    closures, before = searched(request), keyed(request)
    assert keyed(request, closures).manifest.via == "request table"
    path = tree / "project/include" / name
    if path.is_dir():
        path.rmdir()
    path.write_text("")
    assert_scanned_anew(request, closures, before)


def test_name_through_a_deleted_directory_is_scanned(tree: Path) -> None:
    (tree / "project/sub").mkdir()
    (tree / "project/k.cu").write_text(KERNEL.replace('"near.h"', '"sub/../near.h"'))
    request = compile_of(tree)
    closures, before = searched(request), keyed(request)
    assert keyed(request, closures).manifest.via == "request table"
    (tree / "project/sub").rmdir()
    assert_scanned_anew(request, closures, before)


def test_search_is_of_directories_macros_and_dialect(tree: Path) -> None:
    own = tree / "project/include"
    (own / "cuda_fp16.h").write_text("")
    lib = str(tree / "site-packages/lib/include")
    text = "#include WHICH\n#include <mine/raw.h>\n#include <cuda_fp16.h>\n"
    (tree / "site-packages/lib/include/mine/raw.h").write_text('const char *raw = R"(x)";\n')

    def compile_with(include: list[str], which: str = "<up.h>", std: str = "c++17") -> Request:
        options = Options.of(None, {"define": {"WHICH": which}, "std": std})
        return Request(Source.cuda(text, include=include), ImageKind.CUBIN, Arch.parse("sm_90"), options)

    first = compile_with([lib])
    closures, before = searched(first), keyed(first)
    assert keyed(first, closures).manifest.via == "request table"
    assert_scanned_anew(compile_with([lib, str(own)]), closures, before)
    assert_scanned_anew(compile_with([lib], "<mine/deep.h>"), closures, before)
    maker = KeyMaker(Toolchain(), closures=lambda search: [closures[search]] if search in closures else [])
    assert isinstance(maker.of_request(compile_with([lib], std="c++14")), Uncacheable)

    one, two = (
        Request(
            Source.cuda("#include <m.h>", include=lib, headers={"m.h": inner}), ImageKind.CUBIN, Arch.parse("sm_90")
        )
        for inner in ("#include <up.h>", "#include <mine/deep.h>")
    )
    closures = searched(one)
    assert keyed(one, closures).manifest.via == "request table"
    assert_scanned_anew(two, closures, keyed(one))


def test_verification_lists_no_directory_above_a_root(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = compile_of(tree)
    closures, listed = searched(request), set[str]()
    monkeypatch.chdir(tree)
    listing = os.listdir

    def noted(path: str) -> list[str]:
        listed.add(path.rstrip("/"))
        return listing(path)

    monkeypatch.setattr(os, "listdir", noted)
    made = KeyMaker(Toolchain(), closures=lambda search: [closures[search]] if search in closures else [])
    toolkit = made.toolkit()
    listed.clear()
    made._shipped(Scan.of(request, request.arguments()), toolkit)
    assert str(tree / "site-packages/lib/include") in listed
    assert not listed & {str(tree), str(tree / "site-packages/lib"), *(str(Path(path).parents[2]) for path in toolkit)}


@pytest.mark.parametrize("name", ["include/mine/add.h", "include/mine", "include/Near.H"])
def test_shadowing_header_is_scanned(tree: Path, name: str) -> None:
    request = compile_of(tree, include=("project/include",))
    closures, before = searched(request), keyed(request)
    path = tree / "project" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("#define ADD 1\n")
    assert_scanned_anew(request, closures, before)


def test_name_in_other_case_is_another_name(tree: Path) -> None:
    request = compile_of(tree)
    closures = searched(request)
    (tree / "site-packages/lib/include/near.h").write_text("")  # <Near.H> is missed there
    known = keyed(request, closures)
    assert (known.manifest.via, known.key) == ("request table", keyed(request).key)


def test_roots_in_another_order_are_another_search(tree: Path) -> None:
    (tree / "project/include/mine").mkdir()
    (tree / "project/include/mine/add.h").write_text("#define ADD 5\n")
    text = KERNEL.replace('#include "near.h"\n', "#define NEAR 1\n")
    roots = [str(tree / "project/include"), str(tree / "site-packages/lib/include")]
    one, two = (
        Request(Source.cuda(text, include=include), ImageKind.CUBIN, Arch.parse("sm_90"))
        for include in (roots, roots[::-1])
    )
    closures = searched(one)
    assert keyed(one, closures).manifest.via == "request table"
    assert_scanned_anew(two, closures, keyed(one))
    both = searched(two)
    assert keyed(two, both).key == keyed(two).key


def test_headers_of_another_toolkit_are_scanned(tmp_path: Path) -> None:
    request = Request(Source.cuda("#include <v.h>\n", name="v.cu"), ImageKind.CUBIN, Arch.parse("sm_90"))
    for toolkit in ("13.1", "13.2"):
        write(tmp_path / toolkit, {"site-packages/lib/v.h": f'#define V "{toolkit}"'})

    def made(toolkit: str, closures: Mapping[str, bytes], **environment: str) -> Keyed:
        maker = KeyMaker(Toolchain(), None, environment, closures=lambda s: [closures[s]] if s in closures else [])
        maker._directories = (str(tmp_path / toolkit / "site-packages/lib"),)
        found = maker.of_request(request)
        assert isinstance(found, Keyed)
        return found

    maker = KeyMaker(Toolchain())
    maker._directories = (str(tmp_path / "13.1/site-packages/lib"),)
    closures = maker.closures([request])
    assert [made(toolkit, closures).manifest.via for toolkit in ("13.1", "13.2")] == ["request table", "scan"]
    assert made("13.1", closures).key == made("13.1", {}).key != made("13.2", closures).key
    other = made("13.1", closures, LLVM_OVERRIDE_PRODUCER="x")
    assert (other.manifest.via, other.key == made("13.1", closures).key) == ("request table", False)


def test_one_file_under_two_names_is_distinguished_from_two(tree: Path) -> None:
    beside = tree / "project/include/mine"
    beside.mkdir()
    (beside / "add.h").write_text("#define ADD 5\n")
    (beside / "twice.h").write_text("#define ADD 5\n")
    (tree / "project/k.cu").write_text("#include <mine/add.h>\n#include <mine/twice.h>\n#define NEAR 1\n")
    request = compile_of(tree, include=("project/include",))
    closures, before = searched(request), keyed(request)
    assert keyed(request, closures).manifest.via == "request table"
    (beside / "twice.h").unlink()
    (beside / "twice.h").hardlink_to(beside / "add.h")
    assert_scanned_anew(request, closures, before)
    linked = keyed(request, searched(request))
    assert (linked.manifest.via, linked.key) == ("request table", keyed(request).key)


def test_invalid_closure_costs_a_scan(tree: Path) -> None:
    request = compile_of(tree)
    (search, data), expected = next(iter(searched(request).items())), keyed(request).key
    said = json.loads(data)
    wrong: list[object] = [None, 7, "x", [], {}, {**said, "schema": 2}]
    wrong += [{**said, name: other} for name in said if name != "says where" for other in (None, 3, "x", [7], {"x": 3})]
    wrong += [{**said, "parts": [["absent", "x", 3]], "missed": {"no root": {"": ["x"]}}}]
    wrong += [{**said, "found": {"source": ["../" * 50 + "dev/null,sha256=x,0"]}}]
    texts = [b"", b"\0", b"{", b"[" * 100_000, data[:-1], data.replace(b"sha256=", b"sha256=A")]
    for text in [*texts, *(json.dumps(one).encode() for one in wrong)]:
        found = keyed(request, {search: text})
        assert found.manifest.via == "scan" or b'"schema": 2' not in text
        assert found.key == expected or found.manifest.via == "request table", text[:200]
        if found.manifest.via == "request table":
            assert text.startswith(b'{"alike"') or b'"alike"' in text


def test_distribution_is_inspected_once_per_process(tree: Path) -> None:
    request = compile_of(tree)
    closures = searched(request)
    maker = KeyMaker(Toolchain(), closures=lambda search: [closures[search]] if search in closures else [])

    def now() -> Keyed:
        found = maker.of_request(request)
        assert isinstance(found, Keyed)
        return found

    first = now()
    tick()
    (tree / "project/near.h").write_text("#define NEAR 8\n")
    second = now()
    assert (second.manifest.via, second.key != first.key) == ("scan", True), "what no distribution brought is"
    (tree / "project/near.h").write_text(TREE["project/near.h"])
    assert now().key == first.key
    third = now()
    edit_in_place(tree / "site-packages/lib/include/mine/add.h")
    assert (now().key, maker.is_still(third)) == (first.key, False), "what is compiled meanwhile is not kept"
    record(tree)
    assert now().key != first.key, "another release was installed"


def test_provenance_explains_how_headers_were_identified(tree: Path, tmp_path: Path) -> None:
    cache = cujit.Cache(tmp_path / "cache")
    source = Source.cuda(tree / "project/k.cu", include=[tree / "site-packages/lib/include"])

    def compiled(with_: cujit.Cache) -> tuple[bool, str]:
        told = cujit.compile(source, arch="sm_90", cache=with_).provenance
        assert isinstance(told, Provenance)
        return told.is_hit, told.headers

    assert compiled(cache) == (False, "scan")
    assert compiled(cujit.Cache(tmp_path / "cache")) == (True, "hints")
    packs = tmp_path / "bare.pack", tmp_path / "k.pack"
    for path, closures in zip(packs, ({}, runner(cache).answers(cache.stores)[1]), strict=True):
        write_pack(path, cache.stores, closures=closures)
    assert compiled(cujit.Cache(None, read_only=[packs[0]])) == (True, "scan")
    assert compiled(cujit.Cache(None, read_only=[packs[1]])) == (True, "request table")
    plain = cujit.compile("__global__ void k() {}", arch="sm_90", cache=cache).provenance
    assert isinstance(plain, Provenance)
    assert plain.headers == ""
