"""A key names every input by content; nothing else is in it."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cujit.arch import Arch
from cujit.artifact import Artifact, ImageKind
from cujit.cache.key import make_key
from cujit.compiler.image_jobs import BundleJob, LinkJob
from cujit.compiler.includes import files
from cujit.compiler.inputs.entry import Entry
from cujit.compiler.inputs.source import Source
from cujit.compiler.jobs import CompileJob
from cujit.compiler.keys import builds
from cujit.compiler.keys.builds import build_of, read_build_id
from cujit.compiler.keys.maker import Keyed, KeyMaker, Uncacheable
from cujit.compiler.options.values import Options
from cujit.compiler.request import Request
from cujit.errors import ToolchainNotFoundError
from cujit.toolchain.aliases import Aliases
from cujit.toolchain.toolset import Toolchain
from llvm_ir import SCALE
from processes import printed

KERNEL = 'extern "C" __global__ void k(float* x) { x[0] = VALUE; }\n'


class Store:
    """Hints in a dictionary."""

    def __init__(self) -> None:
        self.hints: dict[str, bytes] = {}

    def get(self, name: str) -> bytes | None:
        return self.hints.get(name)

    def has(self, name: str) -> bool:
        return name in self.hints

    def put(self, name: str, data: bytes) -> None:
        self.hints[name] = data


@pytest.fixture(scope="module")
def maker() -> KeyMaker:
    return KeyMaker(Toolchain())


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    for name, text in {
        "src/s.cu": '#include "value.h"\n#include <far.h>\n' + KERNEL,
        "src/value.h": "#define VALUE 1\n",
        "first/none.h": "",
        "second/far.h": "#pragma once\n",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def of_tree(root: Path, **options: Any) -> Request:
    said = {"include": (str(root / "first"), str(root / "second"))} | options
    return Request(Source.cuda(root / "src/s.cu"), ImageKind.PTX, Arch.parse("compute_80"), Options(**said))


def of_text(text: str = KERNEL, **options: Any) -> Request:
    return Request(Source.cuda(text, name="k.cu"), ImageKind.PTX, Arch.parse("compute_80"), Options(**options))


def digest(maker: KeyMaker, request: Request) -> str:
    keyed = maker.of_request(request)
    assert isinstance(keyed, Keyed), keyed
    return keyed.key.digest


def reason(maker: KeyMaker, request: Request) -> str:
    keyed = maker.of_request(request)
    assert isinstance(keyed, Uncacheable), keyed
    return keyed.reason


def _edit(root: Path) -> None:
    (root / "src/value.h").write_text("#define VALUE 2\n")


def _edit_far(root: Path) -> None:
    (root / "second/far.h").write_text("#pragma once\n#define FAR\n")


def _shadow(root: Path) -> None:
    (root / "first/far.h").write_text((root / "second/far.h").read_text())


def _shadow_beside(root: Path) -> None:
    (root / "src/s.cu").write_text((root / "src/s.cu").read_text().replace("<far.h>", '"far.h"'))


def _edit_source(root: Path) -> None:
    (root / "src/s.cu").write_text((root / "src/s.cu").read_text() + "\n")


@pytest.mark.parametrize(
    "change",
    [_edit, _edit_far, _shadow, _shadow_beside, _edit_source],
    ids=["header", "header-far-away", "new-header-shadows", "directive", "source"],
)
def test_change_of_the_tree_changes_the_key(change: Callable[[Path], None], tree: Path, maker: KeyMaker) -> None:
    before = digest(maker, of_tree(tree))
    assert digest(maker, of_tree(tree)) == before
    change(tree)
    assert digest(maker, of_tree(tree)) != before
    assert digest(KeyMaker(maker.toolchain), of_tree(tree)) == digest(maker, of_tree(tree))


def test_directory_that_only_a_name_passes_is_in_the_key(tree: Path, maker: KeyMaker) -> None:
    """Without it, ``through/../value.h`` is not there, though ``value.h`` is."""
    text = '#include "value.h"\n#if __has_include("through/../value.h")\n#define MORE\n#endif\n'
    (tree / "src/s.cu").write_text(text + KERNEL)
    before = digest(maker, of_tree(tree))
    (tree / "src/through").mkdir()
    assert digest(maker, of_tree(tree)) != before


def test_moving_the_tree_keeps_the_key(tree: Path, maker: KeyMaker, tmp_path: Path) -> None:
    moved = shutil.copytree(tree, tmp_path / "elsewhere" / "deep")
    assert digest(maker, of_tree(tree)) == digest(maker, of_tree(moved))
    before, after = (CompileJob(of_tree(root)).run(maker.toolchain).data for root in (tree, moved))
    assert before == after


def test_other_working_directory_keeps_the_key(tree: Path, maker: KeyMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    before = [digest(maker, request) for request in (of_tree(tree), of_text())]
    monkeypatch.chdir(tree)
    assert [digest(maker, request) for request in (of_tree(tree), of_text())] == before


def test_relative_include_directory_uses_the_working_directory(
    tree: Path, maker: KeyMaker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Asked for without a change of directory, from one with another header of that name, it is another key."""
    other = shutil.copytree(tree, tmp_path / "other")
    _edit_far(other)
    source = Source.cuda("#include <far.h>\n" + KERNEL, name="k.cu", define={"VALUE": 1})
    request = Request(source, ImageKind.PTX, Arch.parse("compute_80"), Options(include=("first", "second")))
    absolute = replace(request, options=Options(include=(str(tree / "first"), str(tree / "second"))))
    monkeypatch.chdir(tree)
    before = digest(maker, request)
    assert before == digest(maker, absolute)
    keyed = maker.of_request(request)
    assert isinstance(keyed, Keyed)
    monkeypatch.chdir(other)
    assert digest(maker, request) != before
    assert maker.is_still(keyed)


def test_other_process_computes_the_same_key(tree: Path, maker: KeyMaker) -> None:
    """With another home, another user name, another hash seed, and no environment besides."""
    code = (
        "import sys; from pathlib import Path; from compile.test_keys import *;"
        "m = KeyMaker(Toolchain()); print(digest(m, of_tree(Path(sys.argv[1]))), digest(m, of_text()))"
    )
    tests = Path(__file__).resolve().parents[1]
    done = subprocess.run(
        [sys.executable, "-c", code, str(tree)],
        env={
            "PYTHONPATH": f"{tests}:{tests.parent / 'src'}",
            "HOME": str(tree),
            "USER": "other",
            "PYTHONHASHSEED": "7",
        },
        cwd=tree,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [digest(maker, of_tree(tree)), digest(maker, of_text())]


BASE = of_text()


@pytest.mark.parametrize(
    "other",
    [
        of_text(define={"VALUE": 2}),
        of_text(fmad=False),
        of_text(extra=("--restrict",)),
        of_text(KERNEL + "\n"),
        replace(BASE, kind=ImageKind.CUBIN, arch=Arch.parse("sm_80")),
        replace(BASE, kind=ImageKind.LTOIR, arch=Arch.parse("lto_80")),
        replace(BASE, arch=Arch.parse("compute_90")),
        replace(BASE, names=("k",)),
        replace(BASE, source=Source.cuda(KERNEL, name="other.cu")),
        replace(BASE, source=Source.cuda(KERNEL, name="k.cu", headers={"a.h": ""})),
        replace(BASE, source=Source.cuda(KERNEL, name="k.cu", define={"VALUE": 3})),
    ],
    ids=["macro", "option", "extra", "text", "cubin", "ltoir", "arch", "names", "name", "header", "source-macro"],
)
def test_each_input_is_in_the_key(other: Request, maker: KeyMaker) -> None:
    assert digest(maker, BASE) != digest(maker, other)
    assert digest(maker, other) == digest(KeyMaker(maker.toolchain), other)


def test_environment_that_a_compiler_reads_is_in_the_key(maker: KeyMaker) -> None:
    other = KeyMaker(maker.toolchain, environment={"LLVM_OVERRIDE_PRODUCER": "x", "HOME": "/"})
    assert digest(maker, BASE) != digest(other, BASE)
    assert digest(KeyMaker(maker.toolchain, environment={"HOME": "/nowhere"}), BASE) == digest(maker, BASE)


@pytest.fixture(params=["names", "paths"])
def are_named(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Tell whether directories have names in results; a process that uses the numbers itself has none."""
    if request.param == "paths":
        monkeypatch.setattr(Aliases, "_take", lambda *_: False)
    return bool(request.param == "names")


@pytest.mark.parametrize("options", [{"lineinfo": True}, {"debug": True}], ids=["lineinfo", "debug"])
def test_paths_are_in_the_key_only_if_the_result_has_them(
    options: dict[str, bool], tree: Path, maker: KeyMaker, tmp_path: Path, are_named: bool
) -> None:
    moved = shutil.copytree(tree, tmp_path / "elsewhere")
    same = digest(maker, of_tree(tree, **options)) == digest(maker, of_tree(moved, **options))
    assert same is are_named


@pytest.mark.parametrize("where", ["src/s.cu", "src/value.h", "second/far.h"])
def test_paths_are_in_the_key_only_if_a_text_gets_them(
    where: str, tree: Path, maker: KeyMaker, tmp_path: Path, are_named: bool
) -> None:
    with (tree / where).open("a") as file:
        file.write("\n__device__ const char* from() { return __FILE__; }\n")
    moved = shutil.copytree(tree, tmp_path / "elsewhere")
    assert (digest(maker, of_tree(tree)) == digest(maker, of_tree(moved))) is are_named


def test_word_that_contains_file_adds_no_path_to_the_key(tree: Path, maker: KeyMaker, tmp_path: Path) -> None:
    with (tree / "src/value.h").open("a") as file:
        file.write("#define PROFILE 1\n")
    moved = shutil.copytree(tree, tmp_path / "elsewhere")
    assert digest(maker, of_tree(tree)) == digest(maker, of_tree(moved))


@pytest.mark.parametrize(
    ("request_", "part"),
    [
        (of_text(time_trace="/nowhere"), "writes a file"),
        (of_text(extra=("--pch",)), "precompiled"),
        (of_text(use_pch="x.pch"), "precompiled"),
        (of_text(time=True), "measures"),
        (of_text(extra=("-I/usr/include",)), "include=[…]"),
        (of_text(extra=("-I", "dir")), "include=[…]"),
        (of_text(extra=("--pre-include=x.h",)), "pre_include=[…]"),
        (of_text(extra=("--pch-dir=x",)), "precompiled"),
        (of_text(extra=("--unknown=x",)), "may name a file"),
        (of_text(extra=("-U__CUDACC_RTC__",)), "always defines"),
        (of_text(extra=("@file",)), "--name=value"),
        (of_text(extra=("file",)), "--name=value"),
        (of_text(ptxas_options=["--options-file=x"]), "may name a file"),
        (of_text(ptxas_options=["-o=x"]), "may name a file"),
        (of_text("const char* s = __DATE__;"), "__DATE__"),
        (of_text("#define P(a, b) a ## b\nconst char* s = P(__DA, TE__);"), "__DA"),
        (of_text("const char* s = X;", extra=("-DX=__TIME__",)), "__TIME__"),
        (of_text("#include HEADER"), "HEADER"),
        (of_text("??=include <x.h>", std="c++14"), "trigraphs"),
    ],
    ids=["trace", "pch", "use-pch", "time", "I", "I-apart", "pre-include", "pch-dir", "unknown", "undefined", "file",
         "word", "ptxas-file", "ptxas-output", "date", "date-pasted", "time-defined", "computed", "trigraphs"],
)  # fmt: skip
def test_request_without_a_key_explains_why(request_: Request, part: str, maker: KeyMaker) -> None:
    assert part in reason(maker, request_)


@pytest.mark.parametrize(
    "options",
    [
        {"ptxas_options": ["-v", "-O2", "--warn-on-spills"]},
        {"extra": ("-DX=a/b.h", "-std=c++17", "--gpu-architecture=compute_80", "-G")},
        {"opt_level": 1, "verbose": True, "split_compile": 2},
        {"std": "c++20", "diag_suppress": [1, 2], "random_seed": "7"},
    ],
    ids=["ptxas", "extra", "levels", "dialect"],
)
def test_options_without_files_have_a_key(options: dict[str, Any], maker: KeyMaker) -> None:
    assert digest(maker, of_text(**options)) != digest(maker, BASE)


@pytest.mark.parametrize("extra", [(), ("-no-source-include",)], ids=["option", "extra"])
def test_header_next_to_the_source_needs_source_include(extra: tuple[str, ...], tree: Path, maker: KeyMaker) -> None:
    (tree / "second/value.h").write_text("#define VALUE 3\n")
    said = {"extra": extra} if extra else {"no_source_include": True}
    before = digest(maker, of_tree(tree, **said))
    _edit(tree)
    assert digest(maker, of_tree(tree, **said)) == before
    (tree / "second/value.h").write_text("#define VALUE 4\n")
    assert digest(maker, of_tree(tree, **said)) != before


def test_deleted_working_directory_leaves_includes_without_a_key(
    tmp_path: Path, maker: KeyMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert reason(maker, of_text('#include "any.h"\n' + KERNEL))


def test_repeated_request_gets_a_current_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Aliases, "_take", lambda *_: False)  # as where /proc is missing: debug names the directory
    maker, plain, debug = KeyMaker(Toolchain()), of_text("#define VALUE 1\n" + KERNEL), of_text(debug=True)
    before = digest(maker, plain), digest(maker, debug)
    assert (digest(maker, plain), digest(maker, debug)) == before
    monkeypatch.setenv("CAN_FINALIZE_DEBUG", "1")  # read by NVRTC, as keys.maker says
    assert digest(maker, plain) != before[0]
    monkeypatch.delenv("CAN_FINALIZE_DEBUG")
    assert digest(maker, plain) == before[0]
    monkeypatch.chdir(tmp_path)
    assert digest(maker, plain) == before[0]
    assert digest(maker, debug) != before[1]
    real = builds.read_build_id
    monkeypatch.setattr(builds, "read_build_id", lambda path: f"{real(path)}1")
    keyed = maker.of_request(plain)
    assert isinstance(keyed, Keyed)
    gone = keyed.builds[0]._replace(files=(("/no/where", keyed.builds[0].files[0][1]),))
    with contextlib.suppress(ToolchainNotFoundError):
        assert not maker.is_still(keyed._replace(builds=(gone,)))
    assert digest(maker, plain) != before[0]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40),
    names=st.lists(st.sampled_from(["k<float>", "k<ä>", "n::k<1>"]), max_size=3, unique=True),
    options=st.sampled_from(
        [{}, {"fmad": False}, {"define": {"A": 1, "B": None}}, {"std": "c++17", "extra": ["--restrict"]}]
    ),
    kind=st.sampled_from([(ImageKind.PTX, "compute_80"), (ImageKind.CUBIN, "sm_90a"), (ImageKind.LTOIR, "lto_80")]),
    name=st.sampled_from(["source.cu", "k.cu", "ä.cu"]),
)
def test_key_from_a_frame_equals_that_of_all_parts(
    text: str, names: list[str], options: dict[str, Any], kind: tuple[ImageKind, str], name: str, maker: KeyMaker
) -> None:
    def of(source: str) -> Request:
        unit = Source.cuda(source, name=name, define={"M": 1} if "M" in name else None)
        return Request(unit, kind[0], Arch.parse(kind[1]), Options(**options), tuple(names))

    maker.of_request(of("int frame;"))
    request = of(f"{text}\n")
    known, whole = maker.of_request(request), KeyMaker(maker.toolchain).of_request(request)
    assert isinstance(known, Keyed)
    assert isinstance(whole, Keyed)
    assert (known.key, known.manifest, known.builds) == (whole.key, whole.manifest, whole.builds)
    assert known.key.parts == whole.key.parts
    assert make_key("nvrtc", known.key.parts) == known.key
    assert pickle.loads(pickle.dumps(maker.of_request(request))) == known


def test_change_during_the_work_is_noticed(tree: Path, maker: KeyMaker) -> None:
    keyed = maker.of_request(of_tree(tree))
    assert isinstance(keyed, Keyed)
    assert maker.is_still(keyed)
    _shadow(tree)
    assert not maker.is_still(keyed)


def test_toolkit_headers_give_short_keys(maker: KeyMaker) -> None:
    keyed = maker.of_request(of_text("#include <cuda/std/array>\n" + KERNEL))
    assert isinstance(keyed, Keyed)
    assert len(keyed.key.parts) < 15
    assert len(keyed.manifest.files) > 50
    assert not [part for part in keyed.key.parts if "/cu13/" in part.value]


def test_toolkit_headers_have_paths_only_where_used(maker: KeyMaker, tmp_path: Path) -> None:
    """What is compiled with the headers in another place is the same, so the place is not in the key."""
    paths = maker.toolchain.headers.paths
    moved = []
    for number, path in enumerate(paths):
        os.symlink(path, tmp_path / str(number))
        moved.append(str(tmp_path / str(number)))
    text = "#include <cuda/std/span>\n__global__ void k(int* x) { cuda::std::span<int> s(x, 4); x[0] = s[x[1]]; }"
    images = []
    for directories in (paths, moved):
        with maker.toolchain.nvrtc.program(text.encode(), b"/cujit-source/k.cu") as program:
            program.compile([b"-arch=compute_90", *(f"-I{d}".encode() for d in directories)])
            images.append(program.ptx())
    assert images[0] == images[1]


# The build of a tool


def test_patch_release_changes_the_key(maker: KeyMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest(maker, BASE)
    real = builds.read_build_id
    monkeypatch.setattr(builds, "read_build_id", lambda path: f"{real(path)}1" if "builtins" in path else real(path))
    assert digest(KeyMaker(Toolchain()), BASE) != before


def test_library_without_a_hint_is_opened_for_a_key() -> None:
    code = """
from pathlib import Path
import cujit
from cujit.compiler.keys.maker import KeyMaker
from cujit.toolchain.toolset import Toolchain
request = cujit.request("__global__ void k() {}", arch="sm_90")
for more in ({"may_open": False}, {}):
    print("libnvrtc" in Path("/proc/self/maps").read_text(), KeyMaker(Toolchain(), **more).of_request(request) and "")
print("libnvrtc" in Path("/proc/self/maps").read_text())
"""
    assert printed(code).split() == ["False", "False", "True"]


def test_build_id_is_read_from_its_file(maker: KeyMaker, tmp_path: Path) -> None:
    path = maker.toolchain.nvrtc.library_path
    assert path
    assert len(read_build_id(path)) == 40
    head = Path(path).read_bytes()[:1_000_000]
    (tmp_path / "cut.so").write_bytes(head)
    (tmp_path / "none.so").write_bytes(b"\x7fELF\2\1" + bytes(20))
    assert read_build_id(str(tmp_path / "none.so")).startswith("sha256:")
    (tmp_path / "empty.so").write_bytes(b"")
    assert read_build_id(str(tmp_path / "empty.so")).startswith("sha256:")


def test_build_id_is_found_after_other_notes(tmp_path: Path) -> None:
    def note(name: bytes, data: bytes) -> bytes:
        padded = (part.ljust(-(-len(part) // 4) * 4, b"\0") for part in (name, data))
        return struct.pack("<3I", len(name), len(data), 3) + b"".join(padded)

    notes = note(b"others\0", b"x" * 21) + note(b"GNU\0", bytes(range(20)))
    header = struct.pack("<7s25xQ14xHH6x", b"\x7fELF\2\1\1", 64, 56, 1)
    segment = struct.pack("<II6Q", 4, 4, 120, 0, 0, len(notes), len(notes), 4)
    (tmp_path / "x.so").write_bytes(header + segment + notes)
    assert read_build_id(str(tmp_path / "x.so")) == bytes(range(20)).hex()


@given(st.binary(min_size=0, max_size=200), st.integers(0, 400))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_file_has_a_build(tmp_path: Path, maker: KeyMaker, noise: bytes, at: int) -> None:
    path = maker.toolchain.nvrtc.library_path
    assert path
    with open(path, "rb") as file:
        data = bytearray(file.read(2048))
    data[at : at + len(noise)] = noise
    (tmp_path / "x.so").write_bytes(data)
    assert read_build_id(str(tmp_path / "x.so"))


def test_second_process_needs_no_library_for_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "TOO_NEW_NS", -(10**12))
    store = Store()
    requests = [BASE, of_text("#include <cuda_fp16.h>\n" + KERNEL)]
    before = [digest(KeyMaker(Toolchain(), store), request) for request in requests]
    later = KeyMaker(Toolchain(), store)
    assert [digest(later, request) for request in requests] == before
    assert "nvrtc" not in later.toolchain.__dict__
    keyed = later.of_request(BASE)
    assert isinstance(keyed, Keyed)
    assert later.is_still(keyed)
    assert "nvrtc" in later.toolchain.__dict__


def test_damaged_hint_of_a_library_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "TOO_NEW_NS", -(10**12))
    store = Store()
    build = build_of("nvrtc", Toolchain(), store, {})
    (name, hint), *_ = store.hints.items()
    for damaged in (b"", b"{}", b"[1,2,3,4]", hint[:-5], hint.replace(b"lib", b"nib"), b"\xff", b"[" * 5000):
        store.hints[name] = damaged
        assert build_of("nvrtc", Toolchain(), store, {}) == build
    assert store.hints[name] == hint
    assert not build_of("nvrtc", Toolchain(), store, {}).is_opened
    said = json.loads(hint)
    said[-1][0][1][1] -= 1
    store.hints[name] = json.dumps(said).encode()
    assert build_of("nvrtc", Toolchain(), store, {}).is_opened
    assert build_of("nvrtc", Toolchain(), store, {"CUDA_HOME": "/x"}).is_opened


def test_findings_of_one_cache_serve_others_with_own_hints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools, stores = Toolchain(), (Store(), Store())
    build = build_of("nvrtc", tools, stores[0], {})
    with monkeypatch.context() as patched:
        patched.setattr(builds, "read_build_id", lambda _: pytest.fail("it is looked into again"))
        assert build_of("nvrtc", tools, stores[1], {}) is build
        assert build_of("nvrtc", tools, None, {}) is build
    assert stores[0].hints == stores[1].hints != {}
    digests = [digest(KeyMaker(tools, store), BASE) for store in stores]
    assert digests == [digest(KeyMaker(Toolchain()), BASE)] * 2
    assert build_of("nvrtc", tools, stores[0], {"CUDA_PATH": "/x"}) is not build
    monkeypatch.syspath_prepend(str(tmp_path))
    other = build_of("nvrtc", tools, stores[0], {})
    assert other is not build
    (tmp_path / "nvidia").mkdir()  # as an installer does
    assert build_of("nvrtc", tools, stores[0], {}) is not other


def test_notes_about_builds_are_bounded() -> None:
    tools = Toolchain()
    for n in range(130):
        build_of("nvfatbin", tools, None, {"CUDA_HOME": f"/no/where/{n}"})
    assert 0 < len(tools.notes) <= 64


def test_known_build_is_checked_again_after_a_change() -> None:
    tools = Toolchain()
    build = build_of("nvrtc", tools, None, {})
    place, (_, where) = next((place, note) for place, note in tools.notes.items() if isinstance(note, tuple))
    path, stamp = build.files[0]
    for changed in (((path, (stamp[0] + 1, *stamp[1:])),), (("/no/where", stamp),)):
        tools.notes[place] = build._replace(files=changed), where
        assert build_of("nvrtc", tools, None, {}) == build
    closed = build._replace(is_opened=False)
    tools.notes[place] = closed, where
    assert build_of("nvrtc", tools, None, {}).is_opened, "what is open may be another than what lies there"


# LLVM IR, links, bundles


def test_nvvm_is_keyed_by_modules_and_libraries(maker: KeyMaker) -> None:
    def key(source: Source, arch: str = "compute_80", **options: Any) -> Keyed:
        keyed = maker.of_request(Request.of(source, None, arch, (), Options(**options), maker.toolchain))
        assert isinstance(keyed, Keyed)
        return keyed

    source = Source.nvvm(SCALE, name="s.ll")
    keys = [
        key(source),
        key(Source.nvvm(SCALE + "; other\n", name="s.ll")),
        key(Source.nvvm(SCALE, name="s.ll", libdevice=True)),
        key(source, "sm_80"),
        key(source, ftz=True),
    ]
    assert len({k.key.digest for k in keys}) == len(keys)
    assert [[build.library for build in k.builds] for k in keys][3] == ["nvvm", "nvJitLink"]
    assert key(source) == keys[0]
    assert keys[0].key.kind == "nvvm"


@pytest.mark.parametrize(
    ("arch", "options", "argument"),
    [
        ("compute_80", {"extra": ("-opt-file=x",)}, "-opt-file=x"),
        ("sm_80", {"ptxas_options": ("--options-file=x",)}, "-Xptxas=--options-file=x"),
    ],
    ids=["of libNVVM", "of the assembler"],
)
def test_nvvm_has_no_key_with_an_argument_that_may_name_a_file(
    arch: str, options: dict[str, Any], argument: str, maker: KeyMaker
) -> None:
    source = Source.nvvm(SCALE, name="s.ll")
    why = reason(maker, Request.of(source, None, arch, (), Options(**options), maker.toolchain))
    assert why.startswith(f"the argument {argument}: ")
    assert "may name a file" in why


@pytest.fixture(scope="module")
def images(maker: KeyMaker) -> tuple[Artifact, Artifact]:
    return (
        CompileJob(of_text(define={"VALUE": 1})).run(maker.toolchain),
        CompileJob(of_text(define={"VALUE": 2})).run(maker.toolchain),
    )


def test_links_and_bundles_are_keyed_by_every_input(maker: KeyMaker, images: tuple[Artifact, Artifact]) -> None:
    def key_of(job: LinkJob | BundleJob) -> Keyed | Uncacheable:
        return job.key(maker)

    one, two = images
    arch = Arch.parse("sm_80")
    keys = [
        key_of(LinkJob((one, two), ImageKind.CUBIN, arch, Options())),
        key_of(LinkJob((two, one), ImageKind.CUBIN, arch, Options())),
        key_of(LinkJob((one,), ImageKind.CUBIN, arch, Options())),
        key_of(LinkJob((one, two), ImageKind.PTX, arch, Options())),
        key_of(LinkJob((one, two), ImageKind.CUBIN, None, Options())),
        key_of(LinkJob((one, two), ImageKind.CUBIN, arch, Options(maxrregcount=32))),
        key_of(LinkJob((replace(one, names={"k": "other"}), two), ImageKind.CUBIN, arch, Options())),
        key_of(BundleJob.of([Entry(one)], None)),
        key_of(BundleJob.of([Entry(one)], "size")),
        key_of(BundleJob.of([Entry(two)], None)),
        key_of(BundleJob.of([Entry(one, options="-O1")], None)),
        key_of(BundleJob.of([Entry(one, identifier="x")], None)),
    ]
    digests = {k.key.digest for k in keys if isinstance(k, Keyed)}
    assert len(digests) == len(keys)
    labels = {part.label for k in keys if isinstance(k, Keyed) for part in k.key.parts}
    assert "made" not in labels, "what is made under cujit emulate alone says so"
    assert key_of(LinkJob((one, two), ImageKind.CUBIN, arch, Options())) == keys[0]
    refused = key_of(LinkJob((one,), ImageKind.CUBIN, arch, Options(extra=("-Xptxas=--options-file=x",))))
    assert isinstance(refused, Uncacheable)


# The inverse rule: what reaches the compiler and is not in the key is a mistake.

_PIECES: dict[str, list[str | None]] = {
    "src/value.h": ["#define VALUE 1\n", "#define VALUE 2\n", "#include <far.h>\n#define VALUE 1\n"],
    "second/far.h": ["#pragma once\n", "#undef VALUE\n#define VALUE 5\n", '#include "near.h"\n', "// comment\n"],
    "second/near.h": [None, "#undef VALUE\n#define VALUE 6\n"],
    "first/far.h": [None, "#undef VALUE\n#define VALUE 7\n"],
    "first/near.h": [None, "#undef VALUE\n#define VALUE 8\n"],
    "src/far.h": [None, "#undef VALUE\n#define VALUE 9\n"],
}  # fmt: skip
_STATES = st.fixed_dictionaries({name: st.sampled_from(texts) for name, texts in _PIECES.items()})


@given(
    _STATES,
    _STATES,
    st.sampled_from([dict[str, Any](), {"define": {"N": 1}}, {"no_source_include": True}, {"fmad": False}]),
)
@settings(max_examples=20, suppress_health_check=list(HealthCheck))
def test_states_with_equal_keys_compile_to_equal_images(
    tmp_path_factory: pytest.TempPathFactory,
    maker: KeyMaker,
    one: dict[str, str | None],
    two: dict[str, str | None],
    options: dict[str, Any],
) -> None:
    keys, results = [], []
    for state, said in ((one, {}), (two, options)):
        root = tmp_path_factory.mktemp("state")
        for name, text in {
            "src/s.cu": '#include "value.h"\n#include <far.h>\n' + KERNEL,
            "first/_": "",
            **state,
        }.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            if text is not None:
                (root / name).write_text(text)
        request = of_tree(root, **said)
        keys.append(digest(maker, request))
        try:
            results.append(CompileJob(request).run(maker.toolchain).data)
        except Exception as e:
            results.append(type(e).__name__.encode())
    assert keys[0] != keys[1] or results[0] == results[1]
