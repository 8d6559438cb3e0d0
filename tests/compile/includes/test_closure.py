"""The search for headers, held against what NVRTC opens; and what a closure refuses."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from compile.includes.traced import can_trace, read_by_nvrtc
from cujit.compiler.includes.closure import Closure, scan
from cujit.compiler.includes.files import Files, Listings, NotModelledError, content
from cujit.compiler.includes.search import HeaderPlace, Search
from cujit.errors import FileError
from cujit.program import compile
from cujit.toolchain.toolset import Toolchain
from raising import raises

TREE = {
    "a/one.h": '#include "two.h"\n',
    "a/two.h": "",
    "b/two.h": "",
    "b/only_b.h": "",
    "two.h": "",
    "prog/two.h": "",
    "prog/near.h": "",
    "prog/up.h": '#include "../a/one.h"\n',
    "a/deep/down.h": '#include "../one.h"\n#include "../../b/only_b.h"\n',
    "a/next.h": "#include_next <next.h>\n",
    "b/next.h": "",
    "a/loop.h": '#pragma once\n#include "../a/loop.h"\n#include "deep/../loop.h"\n',
    "a/dir.h/inside": "",
    "b/dir.h": "",
    "a/sys_cuda.h": "",
    "a/far/name.h": "",
    "a/h1.h": "",
    "a/asks.h": "#if __has_include(<h1.h>)\n#endif\n",
    "a/reads.h": "#include <h1.h>\n",
    "a/a b.h": "",
    "a/é.h": "",
    "a/plain.stdh": "",
    "b/plain": "",
    "a/both": "",
    "a/both.stdh": "",
    "a/only_b.h.stdh": "",
}


@dataclass(frozen=True)
class Unit:
    """One translation unit over TREE; ``opens`` are the files that NVRTC opens."""

    text: str
    opens: Sequence[str]
    include: Sequence[str] = ("a", "b")
    name: str = "/cujit-source/s.cu"
    headers: Sequence[tuple[str, str]] = ()
    pre_include: Sequence[str] = ()
    define: Sequence[str] = ()
    more: Sequence[str] = field(default=())


UNITS = {
    "angled-in-order": Unit("#include <two.h>", ["a/two.h"]),
    "neighbour-first": Unit("#include <one.h>", ["a/one.h", "a/two.h"], ("b", "a")),
    "quoted-beside-the-program": Unit('#include "near.h"', ["prog/near.h"], (), "{}/prog/s.cu"),
    "quoted-falls-through": Unit('#include "only_b.h"', ["b/only_b.h"]),
    "angled-not-beside-the-program": Unit("#include <two.h>", ["b/two.h"], ("b",), "{}/prog/s.cu"),
    "up-and-down": Unit('#include "up.h"', ["prog/up.h", "a/one.h", "a/two.h"], (), "{}/prog/s.cu"),
    "relative-parts": Unit("#include <deep/down.h>", ["a/deep/down.h", "a/one.h", "a/two.h", "b/only_b.h"]),
    "next": Unit("#include <next.h>", ["a/next.h", "b/next.h"]),
    "loop": Unit("#include <loop.h>", ["a/loop.h"]),
    "directories-are-passed-over": Unit("#include <dir.h>", ["b/dir.h"]),
    "absolute": Unit('#include "{}/a/one.h"', ["a/one.h", "a/two.h"], ()),
    "memory-before-neighbours": Unit("#include <one.h>", ["a/one.h"], headers=[("two.h", "")]),
    "memory-by-its-exact-name": Unit('#include "./two.h"', ["a/two.h"], headers=[("two.h", "")]),
    "memory-opens-files": Unit("#include <m.h>", ["a/one.h", "a/two.h"], headers=[("m.h", "#include <one.h>")]),
    "memory-looks-in-the-working-directory": Unit(
        "#include <a/m.h>", ["a/h1.h"], ("b",), headers=[("a/m.h", '#include/**/"h1.h"')]
    ),
    "pre-include-in-the-working-directory": Unit("", ["two.h"], pre_include=["two.h"]),
    "pre-include-in-directories": Unit("", ["a/h1.h"], pre_include=["h1.h"], name="{}/prog/s.cu"),
    "macro": Unit("#define H <h1.h>\n#include H", ["a/h1.h"]),
    "macro-of-a-macro": Unit("#define S sys\n#define C S\n#define H <h1.h>\n#define G H\n#include G", ["a/h1.h"]),
    "macro-like-a-function": Unit("#define H(x) <far/x>\n#include H(name.h)", ["a/far/name.h"]),
    "macro-like-a-function-without-a-call": Unit(
        "#define far(x) near\n#define H <far/name.h>\n#include H", ["a/far/name.h"]
    ),
    "macro-made-a-string": Unit("#define S(x) #x\n#include S(h1.h)", ["a/h1.h"]),
    "macro-pasted": Unit("#define P(a, b) <a##b.h>\n#include P(h, 1)", ["a/h1.h"]),
    "macro-in-a-name": Unit("#define D far\n#define H <D/name.h>\n#include H", ["a/far/name.h"]),
    "macro-of-another-branch": Unit(
        "#ifdef NO\n#define far near\n#endif\n#define H <far/name.h>\n#include H", ["a/far/name.h"]
    ),
    "macro-of-the-command-line": Unit("#include H", ["a/h1.h"], define=["H <h1.h>"], more=["-DH=<h1.h>"]),
    "blank-in-a-name": Unit("#include <a b.h>", ["a/a b.h"]),
    "name-not-ascii": Unit("#include <é.h>", ["a/é.h"]),
    "asked-then-included": Unit("#if __has_include(<h1.h>)\n#include <h1.h>\n#endif", ["a/h1.h"]),
    "asked-here-included-there": Unit("#include <reads.h>\n#include <asks.h>", ["a/reads.h", "a/asks.h", "a/h1.h"]),
    "ending-of-its-own": Unit("#include <plain>", ["a/plain.stdh"]),
    "ending-of-its-own-in-quotes": Unit('#include "./plain"', ["a/plain.stdh"]),
    "ending-of-its-own-only-where-needed": Unit("#include <both>", ["a/both"]),
    "ending-of-its-own-in-order": Unit("#include <plain>", ["b/plain"], ("b", "a")),
    "ending-of-its-own-without-a-dot": Unit("#include <only_b.h>", ["b/only_b.h"]),
    "no-source-include": Unit('#include "two.h"', ["b/two.h"], ("b",), "{}/prog/s.cu", more=["--no-source-include"]),
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in TREE.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def closure_of(unit: Unit, tree: Path, files: Files | None = None) -> Closure:
    search = Search(
        {name: text.encode() for name, text in unit.headers},
        tuple((f"include[{i}]", f"{tree}/{name}") for i, name in enumerate(unit.include)),
        str(tree),
        "--no-source-include" not in unit.more,
    )
    program = unit.name.replace("{}", str(tree))
    return scan(
        search,
        HeaderPlace("source", os.path.basename(program), program),
        unit.text.replace("{}", str(tree)).encode(),
        pre_include=unit.pre_include,
        define=unit.define,
        files=files or Files(),
    )


def opened(closure: Closure, tree: Path) -> set[str]:
    return {os.path.relpath(os.path.realpath(f.place.path), tree.resolve()) for f in closure.found if f.is_read}


def test_search_order_matches_nvrtc(tree: Path, shared_toolchain: Toolchain) -> None:
    said = [
        (
            unit.text.replace("{}", str(tree)) + "\n",
            unit.name.replace("{}", str(tree)),
            list(unit.headers),
            [
                *(f"--include-path={tree}/{name}" for name in unit.include),
                *(f"--pre-include={name}" for name in unit.pre_include),
                *unit.more,
            ],
        )
        for unit in UNITS.values()
    ]
    version = shared_toolchain.nvrtc.version
    if not can_trace(version):
        pytest.skip("the time trace lists headers since NVRTC 13.0, and strace is not installed")
    root = str(tree.resolve())
    for (name, unit), files in zip(UNITS.items(), read_by_nvrtc(said, version, str(tree)), strict=True):
        assert files is not None, name
        real = [os.path.realpath(tree / f) for f in files if "__nv" not in f]
        on_disk = {os.path.relpath(path, root) for path in real if path.startswith(root) and os.path.isfile(path)}
        in_memory = {header for header, _ in unit.headers}
        assert on_disk - in_memory == set(unit.opens), name


@pytest.mark.parametrize("name", UNITS)
def test_closure_contains_what_nvrtc_opens(name: str, tree: Path) -> None:
    assert opened(closure_of(UNITS[name], tree), tree) == set(UNITS[name].opens)


def test_closure_lists_names_searched_before_each_hit(tree: Path) -> None:
    closure = closure_of(Unit('#include "only_b.h"', []), tree)
    assert list(map(str, closure.absent)) == ["include[0]:only_b.h", "source:only_b.h"]


def test_header_only_tested_for_counts_by_its_existence(tree: Path) -> None:
    unit = Unit("#if __has_include(<h1.h>) && __has_include(<no.h>)\n#endif", [])
    before = list(closure_of(unit, tree).entries())
    (tree / "a/h1.h").write_text("changed")
    closure = closure_of(unit, tree)
    assert [(str(place), value) for place, value in closure.entries()] == [("include[0]:h1.h", "there")]
    assert list(closure.entries()) == before
    assert list(map(str, closure.absent)) == ["include[0]:no.h", "include[1]:no.h"]


def test_one_file_under_two_names_differs_from_two_files(tree: Path) -> None:
    unit = Unit("#include <h1.h>\n#include <h2.h>", [])
    (tree / "a/h2.h").symlink_to("h1.h")
    linked = [value for _, value in closure_of(unit, tree).entries()]
    (tree / "a/h2.h").unlink()
    shutil.copy(tree / "a/h1.h", tree / "a/h2.h")
    copied = [value for _, value in closure_of(unit, tree).entries()]
    assert linked != copied


# Each was given to NVRTC 13.5, in which h1.h or far/name.h was there for it.
ASKING = {
    "parameter": ("#define P(x) __has_include(x)\n#if P(<h1.h>)\n#endif", "h1.h"),
    "quoted": ('#define P(x) __has_include(x)\n#if 0\n#elif !P( "h1.h" )\n#endif', "h1.h"),
    "angles-in-the-macro": ("#define P(x) __has_include(<x>)\n#if P(h1.h)\n#endif", "h1.h"),
    "made-a-string": ("#define P(x) __has_include(#x)\n#if P(h1.h)\n#endif", "h1.h"),
    "pasted": ("#define P(x) __has_include(<h##x>)\n#if P(1.h)\n#endif", "h1.h"),
    "any-number": ("#define P(...) __has_include(__VA_ARGS__)\n#if P(<h1.h>)\n#endif", "h1.h"),
    "argument-expanded": ("#define d far\n#define P(x) __has_include(x)\n#if P(<d/name.h>)\n#endif", "far/name.h"),
    "name-expanded": ("#define d far\n#define P __has_include(<d/name.h>)\n#if P\n#endif", "far/name.h"),
    "argument-of-a-macro": (
        "#define d far\n#define N(x) !x\n#if N((__has_include(<d/name.h>)))\n#endif", "far/name.h"
    ),
    "through-another": ("#define P(x) __has_include(x)\n#define Q(x) 1 && P(<x>)\n#if Q(h1.h)\n#endif", "h1.h"),
    "through-an-object": ("#define P(x) __has_include(x)\n#define Q P(<h1.h>)\n#if A || Q\n#endif", "h1.h"),
    "named-by-a-macro": ("#define H <h1.h>\n#define P(x) __has_include(x)\n#if P(H)\n#endif", "h1.h"),
    "joined-lines": ("#define P(x) __has_\\\ninclude(x)\n#if A || \\\n P(<h1.h>)\n#endif", "h1.h"),
}  # fmt: skip


@pytest.mark.parametrize("name", ASKING)
def test_headers_that_a_macro_tests_for_are_found(name: str, tree: Path) -> None:
    text, header = ASKING[name]
    closure = closure_of(Unit(text, []), tree)
    assert f"include[0]:{header}" in [str(found.place) for found in closure.found]


def test_macro_tests_in_any_text_that_calls_it(tree: Path) -> None:
    (tree / "a/macro.h").write_text("#ifdef __has_include\n#define P(x) __has_include(x)\n#endif\n")
    (tree / "a/call.h").write_text('#if defined(P) && P(<h1.h>)\n#endif\n// P\nconst char* s = "P";\n#undef P\n')
    for unit in (
        Unit("#include <macro.h>\n#include <call.h>", []),
        Unit("#include <call.h>", [], define=["P(x) __has_include(x)"]),
        Unit("#include <m.h>\n#include <macro.h>", [], headers=[("m.h", "#if P(<h1.h>)\n#endif")]),
    ):
        assert "include[0]:h1.h" in [str(found.place) for found in closure_of(unit, tree).found]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("#define P(x) __has_include(x)\n#if APPLY(P, <h1.h>)\n#endif", "another"),
        ("#define P(x) __has_include(x)\n#define Q P\n#if Q(<h1.h>)\n#endif", "another"),
        ("#define P(x) __has_include(x)\nint n[P(<h1.h>)];", "condition"),
        ("#define P(x) __has_include(x)\n#pragma unroll P(<h1.h>)", "condition"),
        ("#define P(x) __has_include(x)\n#if P(UNKNOWN)\n#endif", "#if P(UNKNOWN)"),
        ("#define P(x) __has_include x\n#if P((<h1.h>))\n#endif", "another"),
        ("#define P(x) __has_include(x)\n#if P(<h1.h>\n#endif", "another"),
        ("#define P(x) __has_include(x, 1)\n#if P(<h1.h>)\n#endif", "__has_include"),
        ('#define P(x) __has_include(x)\nconst char* s = R"(\\\n)";\n#if P(<h1.h>)\n#endif', "raw"),
    ],
    ids=["argument", "renamed", "code", "pragma", "unknown", "without-parentheses", "open", "two", "raw-string"],
)
def test_testing_macro_without_a_plain_call_is_refused(text: str, part: str, tree: Path) -> None:
    with raises(NotModelledError, "failure", part):
        closure_of(Unit(text, []), tree)


def test_macro_on_the_command_line_cannot_use_the_time(tree: Path) -> None:
    with raises(NotModelledError, "failure", "__DATE__"):
        closure_of(Unit("const char* s = X;", [], define=["X __DATE__"]), tree)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("#include UNKNOWN", "header"),
        ("#include __FILE__", "header"),
        ("#define H <__CUDA_ARCH__/x.h>\n#include H", "<__CUDA_ARCH__/x.h>"),
        ("#if __has_include(UNKNOWN)\n#endif", "header"),
        (
            "".join(f"#define A a{i}\n#define B b{i}\n" for i in range(40)) + "#define H <A/B>\n#include H",
            "#include",
        ),
        ("const char* s = __DATE__;", "__DATE__"),
        ("#include <date.h>", "__DATE__"),
    ],
    ids=["undefined", "file", "predefined", "asked", "too-many", "date", "date-in-a-header"],
)
def test_constructs_that_cannot_be_followed_are_refused(text: str, part: str, tree: Path) -> None:
    (tree / "a/date.h").write_text("const char* s = __DATE__;")
    with raises(NotModelledError, "failure", part):
        closure_of(Unit(text, []), tree)


def test_header_that_is_a_fifo_is_an_error_without_waiting(tree: Path) -> None:
    os.mkfifo(tree / "a/pipe.h")
    with raises(FileError, "file", "pipe.h", "FIFO"):
        closure_of(Unit("#include <pipe.h>", []), tree)
    with raises(FileError, "file", "FIFO"):
        compile("#include <pipe.h>\n", arch="sm_90", include=[tree / "a"], timeout_s=60)


@pytest.mark.parametrize(
    "text",
    [
        "#define A A\n#include A",
        "#define A B\n#define B A\n#include A",
        "#define F(x) F(F(x))\n#include F(F(1))",
        "#define F(x, y) x ## y\n#include F(<a, F(b, >))",
        "#define F(x) #x\n#include F(",
        "#define E\n#include E E E <h1.h>",
        "#include " + "(" * 3000,
    ],
    ids=["itself", "each-other", "nested", "pasted", "open", "empty", "deep"],
)
def test_macros_end(text: str, tree: Path) -> None:
    with contextlib.suppress(NotModelledError):
        closure_of(Unit(text, []), tree)


def test_endless_relative_names_end(tree: Path) -> None:
    (tree / "a/again.h").write_text('#include "x/../again.h"\n#include "../a/../a/again.h"\n#include "./again.h"\n')
    assert opened(closure_of(Unit("#include <again.h>", []), tree), tree) == {"a/again.h"}


def test_parent_directory_through_a_link_stays_in_the_name(tree: Path) -> None:
    (tree / "elsewhere/deep").mkdir(parents=True)
    (tree / "elsewhere/two.h").write_text("other")
    (tree / "a/link").symlink_to(tree / "elsewhere/deep")
    closure = closure_of(Unit("#include <link/../two.h>", []), tree)
    assert [str(f.place) for f in closure.found] == ["include[0]:link/../two.h"]
    assert opened(closure, tree) == {"elsewhere/two.h"}


def test_header_is_read_up_to_a_size_and_closed(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cujit.compiler.includes.files._LARGEST_BYTES", 10)
    opened_before = len(os.listdir("/proc/self/fd"))
    (tree / "full.h").write_bytes(b"0123456789")
    (tree / "more.h").write_bytes(b"0123456789a")
    assert content(str(tree / "full.h"))[0] == b"0123456789"
    with raises(NotModelledError, "failure", "more.h", "10"):
        content(str(tree / "more.h"))
    os.mkfifo(tree / "pipe.h")
    for name, said in (("none.h", "No such file"), ("a", "changed while cujit was reading it"), ("pipe.h", "changed")):
        with raises(NotModelledError, "failure", name, said):
            content(str(tree / name))
    assert len(os.listdir("/proc/self/fd")) == opened_before


@pytest.fixture
def unreadable(tree: Path) -> Callable[[], None]:
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    return lambda: (tree / "a/h1.h").chmod(0)


def test_unreadable_header_is_refused(unreadable: Callable[[], None], tree: Path) -> None:
    unreadable()
    with raises(NotModelledError, "failure", "h1.h", "Permission denied"):
        closure_of(Unit("#include <h1.h>", []), tree)


def test_name_missing_from_a_listing_does_not_exist(tmp_path: Path) -> None:
    (tmp_path / "a/Deep").mkdir(parents=True)
    (tmp_path / "a/Here.h").write_text("")
    listings = Listings([str(tmp_path)])
    there = {name: listings.lacks(f"{tmp_path}/a/{name}") for name in ("Here.h", "here.H", "Deep", "deep/x.h")}
    assert not any(there[name] for name in ("Here.h", "here.H", "Deep")), "some file systems fold letters"
    assert there["deep/x.h"]
    asked = {
        name: listings.lacks(f"{tmp_path}/{name}") for name in ("x.h", "a/x.h", "no/x.h", "no/deep/x.h", "a/Here.h/x")
    }
    assert all(asked.values()), asked
    short = {
        name: listings.lacks(f"{tmp_path}/a/{name}") for name in ("DEEP~1", "d\u00e9ep", "here.h.", "", "..", "a b.h")
    }
    assert not any(short.values()), "names that may stand for another are looked for"
    assert not Listings().lacks("\0/x.h")


def test_missing_names_are_known_from_listings(monkeypatch: pytest.MonkeyPatch) -> None:
    missed, stat = [], os.stat

    def counted(path: str) -> os.stat_result:
        try:
            return stat(path)
        except FileNotFoundError:
            missed.append(path)
            raise

    search = Search({}, tuple((str(i), path) for i, path in enumerate(Toolchain().headers.paths)), "/")
    monkeypatch.setattr(os, "stat", counted)
    source = HeaderPlace("source", "s.cu", "/cujit-source/s.cu")
    closure = scan(search, source, b"#include <cub/block/block_reduce.cuh>\n", files=Files())
    assert len(closure.absent) > 500
    assert missed == []
