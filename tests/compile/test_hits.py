"""The short way of a hit gives what the long way does, and leaves to it what needs more than a text and a file."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import pytest

import cujit
from cujit import loading
from cujit.arch import Arch
from cujit.artifact import Artifact
from cujit.cache.cache import Cache
from cujit.cache.key import Part
from cujit.cache.pack import write_pack
from cujit.cache.provenance import Outcome, Provenance
from cujit.compiler.includes.closure import Closure, scan
from cujit.compiler.includes.files import Files, NotModelledError
from cujit.compiler.includes.location import says_where
from cujit.compiler.includes.search import HeaderPlace, Search
from cujit.compiler.inputs.source import Source, bare
from cujit.compiler.jobs import CompileJob
from cujit.compiler.keys.frame import UNSURE, has_includes, outline_of
from cujit.compiler.keys.maker import Keyed
from cujit.compiler.options.values import Options
from cujit.compiler.request import Request
from cujit.compiler.runner import Runner
from cujit.devices.launcher.library import library
from cujit.errors import CompileError
from cujit.events.hub import subscribe
from cujit.events.values import CacheHit
from cujit.loading import Module
from cujit.toolchain.headers import Settings
from cujit.toolchain.toolset import Toolchain

NAMES = ("k<float>", "k<int>")


def template(value: object, head: str = "") -> str:
    """Return a source of its own for each value."""
    return f"{head}template <typename T> __global__ void k(T* x) {{ *x = T({value}); }}\n"


def request(text: str, **options: object) -> Request:
    return Request.of(
        Source.cuda(text), None, Arch.parse("compute_80"), NAMES, Options.of(None, options), Runner(tools())
    )


def tools() -> Toolchain:
    return Toolchain(Settings())


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tools(), Cache(tmp_path / "cache"))


def opened(runner: Runner, head: str = "", **options: object) -> Callable[[str], Artifact | None]:
    """Compile one source, and return what takes others the short way."""
    asked = request(template(0, head), **options)
    runner.get(CompileJob(asked))
    runner.learn("alike", asked)
    return lambda text: runner.hit("alike", text, NAMES)


def provenance(artifact: Artifact | None) -> Provenance:
    assert artifact is not None
    assert isinstance(artifact.provenance, Provenance)
    return artifact.provenance


@pytest.mark.parametrize("head", ["", "#include <cuda_fp16.h>\n", "#include <cuda_fp16.h>\n#define N 1\n// a\n"])
@pytest.mark.parametrize("options", [{}, {"std": "c++17", "lineinfo": True}])
def test_short_path_returns_what_the_full_path_returns(tmp_path: Path, head: str, options: dict[str, object]) -> None:
    made = [
        Runner(tools(), Cache(tmp_path / "cache")).get(CompileJob(request(template(n, head), **options)))
        for n in (0, 1)
    ]
    short, long = (Runner(tools(), Cache(tmp_path / "cache")) for _ in range(2))
    found = opened(short, head, **options)(template(1, head))
    if options:  # a line table has paths
        assert found is None
        return
    opened(long, head, **options)
    known = long.get(CompileJob(request(template(1, head), **options)))
    assert found == known == made[1]
    mine, theirs = provenance(found), provenance(known)
    assert mine == theirs
    assert (mine.outcome, mine.root) == (Outcome.DISK, tmp_path / "cache")
    assert mine.headers == theirs.headers == ("hints" if head else "")
    assert mine.key is not None
    assert theirs.key is not None
    assert mine.key.parts == theirs.key.parts
    assert short.cache is not None
    assert long.cache is not None
    assert short.cache.counters == long.cache.counters
    again = provenance(short.hit("alike", template(1, head), NAMES))
    assert again.outcome is Outcome.MEMORY


def test_short_path_reports_a_hit(runner: Runner) -> None:
    runner.get(CompileJob(request(template(1))))
    find = opened(runner)
    heard: list[object] = []
    with subscribe(heard.append):
        assert find(template(1)) is not None
        runner.get(CompileJob(request(template(1))))
    short, long = (event for event in heard if isinstance(event, CacheHit))
    assert (short.step, short.subject, short.outcome, short.key) == (long.step, long.subject, long.outcome, long.key)


@pytest.mark.parametrize(
    "text",
    [
        template(2),  # not made yet
        template(1) + "// __FILE__\n",
        template(1, "#include <cuda_fp16.h>\n"),
        template(1) + "// a ??/\n",
    ],
)
def test_short_path_defers_to_the_full_path(runner: Runner, text: str) -> None:
    runner.get(CompileJob(request(template(1))))
    assert opened(runner)(text) is None


def test_earlier_failure_fails_as_on_the_full_path(runner: Runner) -> None:
    find = opened(runner)
    text = template("no_such")
    with pytest.raises(CompileError):
        runner.get(CompileJob(request(text)))
    assert find(text) is None


@pytest.mark.parametrize("name", ["CUJIT_EMULATE", "LD_PRELOAD", "NV_NVVM_VERSION"])
def test_other_environment_starts_a_new_short_path(runner: Runner, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    runner.get(CompileJob(request(template(1))))
    find = opened(runner)
    assert find(template(1)) is not None
    monkeypatch.setenv(name, "1")
    assert find(template(1)) is None


def test_paths_and_in_memory_headers_never_use_it(tmp_path: Path, runner: Runner) -> None:
    for asked in (
        request(template(1), include=str(tmp_path)),
        Request.of(
            Source.cuda(template(1), headers={"a.h": ""}), None, Arch.parse("compute_80"), NAMES, Options(), runner
        ),
    ):
        assert runner.keys is not None
        assert runner.keys.alike(asked) is None


def test_changed_header_is_noticed(tmp_path: Path, runner: Runner) -> None:
    header = tmp_path / "value.h"
    head = f'#include "{header}"\n'
    header.write_text("#define VALUE 1\n")
    find = opened(runner, head)
    first = runner.get(CompileJob(request(template("VALUE", head))))
    assert find(template("VALUE", head)) == first
    header.write_text("#define VALUE 22\n")
    assert find(template("VALUE", head)) is None, "the header is another"
    second = runner.get(CompileJob(request(template("VALUE", head))))
    assert second.data != first.data
    assert find(template("VALUE", head)) == second


def test_each_working_directory_has_its_own_scans(
    tmp_path: Path, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = "#include <cuda_fp16.h>\n"
    find = opened(runner, head)
    runner.get(CompileJob(request(template(1, head))))
    assert find(template(1, head)) is not None
    monkeypatch.chdir(tmp_path)
    assert find(template(1, head)) is None
    opened(runner, head)
    assert find(template(1, head)) is not None


def test_sources_with_the_same_directives_share_a_scan(runner: Runner) -> None:
    head = "#include <cuda_fp16.h>\n"
    opened(runner, head)
    provenances = [provenance(runner.get(CompileJob(request(template(n, head))))) for n in range(1, 4)]
    assert [each.headers for each in provenances] == ["scan"] * 3, "the one scan of this process"
    assert runner.cache is not None
    assert runner.cache.store is not None
    notes = [path.name for path in (runner.cache.store.root / "hints").iterdir() if path.name.startswith("includes-")]
    assert len(notes) == 1


def test_testing_macro_counts_in_code(tmp_path: Path, runner: Runner) -> None:
    """A call in code of a macro of a header that asks for headers is not served by what a scan found without it."""
    (tmp_path / "asks.h").write_text("#define ASKING(x) __has_include(x)\n")
    head = f'#include "{tmp_path}/asks.h"\n'
    find = opened(runner, head)
    runner.get(CompileJob(request(template(1, head))))
    assert find(template(1, head)) is not None
    asking = template("ASKING(<later.h>)", head)
    made = runner.get(CompileJob(request(asking)))
    assert provenance(made).key is None, "what it asks for in code is not modelled"
    assert find(asking) is None


def test_jit_uses_the_short_path_from_the_second_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, device = Cache(tmp_path / "cache"), cujit.cpu()
    for n in range(4):
        cujit.jit(template(n), names=NAMES, device=device, cache=cache)
    warm = Cache(tmp_path / "cache")
    cujit.jit(template(0), names=NAMES, device=device, cache=warm)
    monkeypatch.setattr(Runner, "get", None)
    for n in range(1, 4):
        module = cujit.jit(template(n), names=[*reversed(NAMES), NAMES[0]], device=device, cache=warm)
        x = device.zeros(1, "float32")
        module["k<float>"][1, 1](x)
        assert x.numpy()[0] == n
        assert module.artifact.provenance is not None
        assert module.artifact.provenance.is_hit
        assert [text.text for text in module._image.texts.values()] == [template(n)]


@pytest.mark.parametrize(
    ("options", "opens"), [({}, 1), ({"std": "c++20"}, 1), ({"host_code": "skip"}, 0), ({"dialect": "nvcc"}, 0)]
)
def test_rewritten_source_uses_the_full_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, object], opens: int
) -> None:
    learned: list[object] = []
    monkeypatch.setattr(Runner, "learn", lambda _runner, _alike, request: learned.append(request))
    cujit.jit(template(1), names=NAMES, device=cujit.cpu(), cache=Cache(tmp_path / "cache"), options=options)
    assert len(learned) == opens


def test_plain_call_takes_the_shortest_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives the Module that the other ways give, and leaves to them what is not as it was learned."""
    device = cujit.cpu()
    for n in range(4):
        cujit.jit(template(n), names=NAMES, device=device, cache=Cache(tmp_path / "cache"))
    short, long = Cache(tmp_path / "cache"), Cache(tmp_path / "cache")
    for cache in (short, long):
        cujit.jit(template(0), names=NAMES, device=device, cache=cache)

    def found(n: int) -> Module | None:
        return loading._shortest(template(n), list(NAMES), device, short)

    mine, theirs = found(1), cujit.jit(template(1), names=NAMES, device=device, cache=long, options={})
    assert mine is not None
    assert vars(mine.artifact) == vars(theirs.artifact)
    assert provenance(mine.artifact).key.parts == provenance(theirs.artifact).key.parts  # type: ignore[union-attr]
    assert short.counters == long.counters
    assert mine._image.texts == theirs._image.texts
    assert mine._image.portable is not None
    assert theirs._image.portable is not None
    assert mine._image.portable() == theirs._image.portable()
    again = found(1)
    assert again is not None
    assert provenance(again.artifact).outcome is Outcome.MEMORY

    assert loading._shortest(template(2), [*NAMES, 3], device, short) is None
    assert loading._shortest(template(2), {*NAMES}, device, short) is None
    assert loading._shortest(template(2), NAMES, device, Cache(tmp_path / "cache")) is None
    for name in ("CUJIT_RECORD", "CUJIT_COMPILE", "LD_PRELOAD", "CUDA_HOME"):
        with monkeypatch.context() as changed:
            changed.setenv(name, "1")
            assert found(2) is None
    with monkeypatch.context() as changed:
        changed.setattr(loading, "LISTENERS", [object()])
        assert found(2) is None
    runner = next(shortcut for cache, shortcut in device.shortcuts.items() if cache is short).tools
    builds = runner.keys._builds
    with monkeypatch.context() as changed:
        changed.setitem(builds, "nvrtc", builds["nvrtc"]._replace(identity="another"))
        assert found(2) is None
    assert found(2) is not None
    assert found(9) is None


_TEXTS = ("", "a", "int x;\n", template(1), "x" * 5000 + ";", "\0;", "\u00fc;", "\udc80;", "k.cu", "a.h", "k.cu\n")


@pytest.mark.parametrize("names", [(), ("k<float>",), NAMES, ("",), (" ",), ("a\nb",), ("\u00fc",), (1,)])
@pytest.mark.parametrize("options", [{}, {"std": "c++17", "define": {"A": "\u00fc"}}])
def test_native_keys_are_those_of_python(runner: Runner, names: tuple[str, ...], options: dict[str, object]) -> None:
    keys, asked = runner.keys, request(template(0), **options)
    assert keys is not None
    known = keys._known(asked, keys._build("nvrtc"), None)
    assert known is not None
    frame, made = known.frame, 0
    headers = known.bare.parts, (Part.text("found", "\u00fc"), Part.content("x", "y"))
    for text, found, is_known in itertools.product(_TEXTS, headers, (True, False)):
        key = frame.native_key(names, text, found, is_known)
        if key is not None:
            made += 1
            assert (key, key.kind, key.parts) == ((own := frame.key(names, text, found)), own.kind, own.parts)
            assert is_known or not (has_includes(text) or says_where(text) or bare(text) is None)
    is_good = all(type(name) is str and name.isascii() and name.isprintable() and name.strip() for name in names)
    assert (made > 10) is (is_good and library().digest.call() is not None)
    assert made == 0 or is_good


def test_native_key_is_refused_for_a_text_with_telling_words(runner: Runner) -> None:
    assert runner.keys is not None
    known = runner.keys._known(request(template(0)), runner.keys._build("nvrtc"), None)
    assert known is not None
    words = [word for word in UNSURE if not (has_includes(f" {word} ") or says_where(f" {word} "))]
    assert words == ["FILE", "__tile_global__"], "each of the others is asked for, and FILE in __FILE__"
    dice = random.Random(37)
    letters = "".join(sorted({c for word in UNSURE for c in word if c.isascii()}))
    for _ in range(3000):
        text = "".join(dice.choices(letters, k=dice.randint(0, 9)))
        text += dice.choice(UNSURE) * dice.randint(0, 1) + "".join(dice.choices(letters, k=dice.randint(0, 9))) + ";"
        key = known.frame.native_key((), text, known.bare.parts, False)
        assert key is None or not any(word in text for word in UNSURE)
        if library().digest.call() is not None:
            assert (key is not None) is not any(word in text for word in UNSURE)


# -- the outline of a text decides on its headers ----------------------------------------------------------

_LINES = (
    "#include <one.h>", '  #  include "two.h"', "#if 1", "#endif", "#else", "#define NAME <two.h>", "#include NAME",
    "#ifdef __CUDACC_RTC__", "#undef __CUDACC__", "#if ASK(<two.h>)", "#define MINE(x) __has_include(x)",
    "#if MINE(<one.h>)",
)  # fmt: skip
_CODE = (
    "int x;", "/* a", "b */ int y;", "// c", "// d \\", 'auto s = R"(', ')";', "'", '"', "f(1'000);",
    "%: include <one.h>", "import <one.h>;", "module m;", "__half h;", "__ha ## s", "__has_include(<one.h>)",
    "ASK(<one.h>)", "??=include <one.h>",
    "int d = __DATE__[0];", "\x0c#include <two.h>", "x \\\r", "import_of(3);", "int includes;", "a ? b : c;",
)  # fmt: skip


def closure_of(text: str, directory: Path) -> tuple[Closure, str]:
    """Scan a text; the second is why it could not be."""
    search = Search({}, (("include[0]", str(directory)),), str(directory))
    place = HeaderPlace("source", "s.cu", f"{directory}/s.cu")
    try:
        return scan(search, place, text.encode(), files=Files()), ""
    except NotModelledError as e:
        return Closure(), e.message


def test_scan_of_the_outline_finds_the_same(tmp_path: Path) -> None:
    (tmp_path / "one.h").write_text('#include "two.h"\n#define ASK(x) __has_include(x)\n')
    (tmp_path / "two.h").write_text("int two;\n")
    dice, compared = random.Random(37), 0
    for _ in range(3000):
        text = "\n".join(dice.choices(_LINES, k=dice.randint(0, 4)) + dice.choices(_CODE, k=dice.randint(0, 2)))
        lines = text.split("\n")
        dice.shuffle(lines)
        text = "\n".join(lines)
        outline = outline_of(text)
        if outline is None:
            continue
        (found, why_not), whole = closure_of(outline, tmp_path), closure_of(text, tmp_path)
        if why_not or any(asker in text for asker in found.askers):
            continue
        compared += outline != text
        assert (found, "") == whole, text
    assert compared > 300, "most texts of these lines are unsure"


def test_pack_answers_the_short_way_too(tmp_path: Path) -> None:
    made = Runner(tools(), Cache(tmp_path / "made"))
    for n in range(3):
        made.get(CompileJob(request(template(n))))
    assert made.cache is not None
    pack = tmp_path / "all.pack"
    write_pack(pack, list(made.cache.stores))
    short, long = (Runner(tools(), Cache(tmp_path / "none", read_only=[pack])) for _ in range(2))
    find = opened(short)
    for n in (1, 2):
        known = long.get(CompileJob(request(template(n))))
        found = find(template(n))
        assert found == known
        assert provenance(found) == provenance(known)
        assert str(provenance(found).root) == str(pack)
    assert find(template(3)) is None


@pytest.mark.parametrize("closed", ["own_packs", "tiers"])
def test_cache_with_another_first_tier_disables_the_short_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: str
) -> None:
    runner = Runner(tools(), Cache(tmp_path / "cache"))
    runner.get(CompileJob(request(template(1))))
    monkeypatch.setattr(runner.cache, closed, [object()])
    runner.learn("alike", request(template(0)))
    assert runner.hit("alike", template(1), NAMES) is None


def test_key_without_headers_is_that_of_an_empty_source(runner: Runner) -> None:
    assert runner.keys is not None
    for options in (Options(), Options(std="c++17"), Options(lineinfo=True)):
        asked = Request.of("", None, None, (), options, runner)
        first, again = runner.key_of_none(options), runner.key_of_none(options)
        for found in (first, again):
            assert isinstance(found, Keyed)
            assert found.key == runner.keys.of_request(asked).key  # type: ignore[union-attr]
        assert (first is again) is ("lineinfo" not in options)  # whose key holds paths


def test_key_without_headers_depends_on_the_compiler(runner: Runner) -> None:
    first = runner.key_of_none(Options())
    assert isinstance(first, Keyed)
    assert runner.keys is not None
    other = first.builds[0]._replace(identity="another")
    runner.keys._builds["nvrtc"] = other
    found = runner.key_of_none(Options())
    assert isinstance(found, Keyed)
    assert found.builds == (other,)
    assert found.key != first.key
