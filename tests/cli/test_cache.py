"""``cujit cache``: what it tells of a cache, and what it does to it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from click.testing import CliRunner, Result

import cujit
from cujit.arch import Arch
from cujit.artifact import Artifact, ImageKind
from cujit.cache.cache import Cache
from cujit.cache.files import pack_files
from cujit.cache.key import Part, make_key
from cujit.cli.app import main
from cujit.cli.cache.common import shown_age, shown_size
from cujit.compiler.keys.maker import Keyed
from cujit.compiler.keys.recipe import write_recipe
from cujit.errors import LinkError, LoadError
from cujit.program import bundle, compile, request, runner
from cujit.timing import Timing
from cujit.tuning.records import Measured, TuningRecord
from raising import raises

CacheVerb: TypeAlias = Callable[..., Result]

CODE = """\
#include "scale.h"
template <typename T> __global__ void axpy(T a, const T* x, T* y) { y[threadIdx.x] += SCALE * a * x[threadIdx.x]; }
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of the environment, which nothing has written to yet."""
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("CUJIT_CACHE_ROOTS", raising=False)
    return tmp_path / "cache"


@pytest.fixture
def verb(root: Path) -> CacheVerb:
    """Run ``cujit cache`` on the cache of the environment."""
    assert os.environ["CUJIT_CACHE_DIR"] == str(root)

    def run(*arguments: object, typed: str | None = None) -> Result:
        given = ["cache", *map(str, arguments)]
        return CliRunner().invoke(main, given, input=typed, catch_exceptions=False)

    return run


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "scale.h").write_text("#define SCALE 2\n")
    path = tmp_path / "axpy.cu"
    path.write_text(CODE)
    return path


def compiled(root: Path, source: Path, name: str = "axpy<float>", **options: Any) -> Artifact:
    """Compile through the cache of the environment, in no time where it is there."""
    return compile(source, arch="sm_90", names=[name], cache=Cache(root), **options)


def key_of(artifact: Artifact) -> str:
    assert artifact.provenance is not None
    return str(artifact.provenance.key)  # type: ignore[attr-defined]


def said(result: Result, status: int = 0) -> Any:
    assert result.exit_code == status, result.output
    return json.loads(result.stdout)


def file_of(root: Path, digest: str) -> Path:
    return root / "e" / digest[:2] / digest[2:]


def test_info_of_a_cache_that_was_never_used(verb: CacheVerb, root: Path) -> None:
    row = {"root": str(root), "writes": True, "entries": 0, "bytes": 0, "cap_bytes": 2 << 30}
    assert said(verb("info", "--json")) == {
        "root": str(root),
        "roots": [row],
        "remote": None,
        "installed_headers_bytes": 0,
    }
    assert "2 GiB" in verb("info").stdout
    assert said(verb("ls", "--json")) == []
    assert not root.exists()


def test_info_lists_every_root_in_search_order(
    verb: CacheVerb, root: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled(root, source)
    compiled(tmp_path / "shipped", source, "axpy<int>")
    monkeypatch.setenv("CUJIT_CACHE_ROOTS", str(tmp_path / "shipped"))
    rows = said(verb("info", "--json"))["roots"]
    assert [(row["root"], row["writes"], row["entries"]) for row in rows] == [
        (str(tmp_path / "shipped"), False, 1),
        (str(root), True, 1),
    ]
    assert [row["cap_bytes"] for row in rows] == [None, 2 << 30]
    assert [(line.split()[:3], line.endswith("2 GiB")) for line in verb("info").stdout.splitlines()[-2:]] == [
        ([str(tmp_path / "shipped"), "no", "1"], False),
        ([str(root), "yes", "1"], True),
    ]
    assert rows[1]["bytes"] == sum(path.stat().st_size for path in (root / "e").rglob("*") if path.is_file())
    assert [row["names"] for row in said(verb("ls", "--json"))] == [["axpy<int>"], ["axpy<float>"]]


def test_environment_can_turn_the_cache_off(verb: CacheVerb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_CACHE", "0")
    assert said(verb("info", "--json")) == {"root": None, "roots": [], "remote": None, "installed_headers_bytes": 0}
    assert "CUJIT_CACHE_DIR" in verb("info").stdout
    assert verb("trim", "0").exit_code == 3
    monkeypatch.setenv("CUJIT_CACHE", "perhaps")
    assert "perhaps" in verb("info").stderr


def test_ls_describes_each_entry_most_recently_used_first(verb: CacheVerb, root: Path, source: Path) -> None:
    old, new = compiled(root, source), compiled(root, source, "axpy<int>")
    os.utime(file_of(root, key_of(old)), (1_700_000_000, 1_700_000_000))
    first, second = said(verb("ls", "--json"))
    assert (first["key"], second["key"]) == (key_of(new), key_of(old))
    assert (second["name"], second["arch"], second["kind"], second["work"], second["names"], second["damaged"]) == (
        str(source), "sm_90", "cubin", "nvrtc", ["axpy<float>"], False
    )  # fmt: skip
    assert (second["image_bytes"], second["used_s"]) == (len(old), 1_700_000_000)
    assert [row["key"] for row in said(verb("ls", "--limit", 1, "--json"))] == [key_of(new)]
    file_of(root, key_of(new)).write_bytes(b"damaged")
    shown = verb("ls").stdout
    assert f"{key_of(old)[:12]}   axpy.cu     sm_90   cubin   axpy<float>" in shown
    assert "(damaged)" in shown
    assert said(verb("ls", "--json"))[0]["damaged"]


def test_existing_other_directory_is_inspected(verb: CacheVerb, source: Path, tmp_path: Path) -> None:
    artifact = compiled(tmp_path / "other", source)
    assert [row["key"] for row in said(verb("ls", "--dir", tmp_path / "other", "--json"))] == [key_of(artifact)]
    assert said(verb("ls", "--json")) == []
    assert verb("ls", "--dir", tmp_path / "nowhere").exit_code == 2


def test_directory_writable_by_others_is_refused_with_a_command(verb: CacheVerb, root: Path, source: Path) -> None:
    compiled(root, source)
    root.chmod(0o777)
    for words in (["info"], ["ls"], ["trim", "0"], ["clear", "--yes"], ["verify"]):
        result = verb(*words)
        assert (result.exit_code, f"chmod go-w {root}" in result.stderr) == (1, True)


def test_show_prints_an_entry_and_its_inputs(verb: CacheVerb, root: Path, source: Path) -> None:
    artifact = compiled(root, source, verbose=True)
    told = said(verb("show", key_of(artifact)[:9], "--json"))
    assert (told["key"], told["root"], told["work"]) == (key_of(artifact), str(root), "nvrtc")
    assert (told["kind"], told["arch"], told["tool"]) == ("cubin", "sm_90", artifact.tool)
    assert (told["image_bytes"], told["names"], told["log"]) == (len(artifact), dict(artifact.names), artifact.log)
    assert told["signatures"] == {artifact.names["axpy<float>"]: ["float", "const float*", "float*"]}
    labels = [part["label"] for part in told["parts"]]
    assert {"arch", "name expression", "source", "nvrtc"} <= set(labels)
    assert any("scale.h" in label for label in labels)
    shown = verb("show", key_of(artifact)).stdout
    for text in (key_of(artifact), artifact.tool, artifact.names["axpy<float>"], "name expression: axpy<float>"):
        assert text in shown
    assert "\nlog\n" + "".join(f"  {line}\n" for line in artifact.log.splitlines()) in shown
    assert "registers" in artifact.log


def test_show_prints_the_source_of_a_compile(verb: CacheVerb, root: Path, source: Path) -> None:
    artifact = compiled(root, source)
    assert verb("show", key_of(artifact), "--source").stdout == CODE
    told = said(verb("show", key_of(artifact), "--source", "--json"))
    assert told == {"language": "cuda", "sources": [{"name": str(source), "text": CODE}], "headers": []}


def test_entry_without_a_source_is_reported(verb: CacheVerb, root: Path, source: Path) -> None:
    fatbin = bundle([compiled(root, source)], cache=Cache(root))
    result = verb("show", key_of(fatbin), "--source")
    assert result.exit_code == 1
    assert "doesn't store source code for a bundle" in result.stderr


def test_unknown_key_is_an_error_with_a_hint(verb: CacheVerb) -> None:
    for key, message in (
        ("xyz", "a key consists of hexadecimal digits"),
        ("abc", "no cache entry has a key that starts with abc"),
    ):
        for words in (["show", key], ["why", key], ["export", key, "image"]):
            result = verb(*words)
            assert (result.exit_code, message in result.stderr, "cujit cache ls" in result.stderr) == (1, True, True)


def test_export_writes_the_bare_image(verb: CacheVerb, root: Path, source: Path, tmp_path: Path) -> None:
    artifact = compiled(root, source)
    told = said(verb("export", key_of(artifact), tmp_path / "image", "--json"))
    assert told == {
        "output": str(tmp_path / "image"),
        "key": key_of(artifact),
        "kind": "cubin",
        "bytes": len(artifact),
    }
    assert (tmp_path / "image").read_bytes() == artifact.data
    assert f"{tmp_path / 'image'}: cubin" in verb("export", key_of(artifact), tmp_path / "image").stdout
    assert verb("export", key_of(artifact), tmp_path / "no" / "image").exit_code == 1


def test_why_names_the_changed_header(verb: CacheVerb, root: Path, source: Path) -> None:
    before = compiled(root, source)
    assert "there is no other entry" in verb("why", key_of(before)).stdout
    source.with_name("scale.h").write_text("#define SCALE 3\n")
    after = compiled(root, source)
    told = said(verb("why", key_of(after), "--json"))
    assert (told["key"], told["is_there"], told["nearest"]["key"]) == (key_of(after), True, key_of(before))
    (difference,) = told["differences"]
    assert "scale.h" in difference["label"]
    assert difference["before"]["value"] != difference["after"]["value"]
    shown = verb("why", key_of(after)).stdout
    assert f"the nearest entry is {key_of(before)[:12]} (axpy.cu, sm_90)" in shown
    assert "scale.h" in shown


def test_why_compares_two_entries(verb: CacheVerb, root: Path, source: Path) -> None:
    one, two = compiled(root, source), compiled(root, source, "axpy<int>", lineinfo=True)
    told = said(verb("why", key_of(one), key_of(two), "--json"))
    assert (told["before"], told["after"]) == (key_of(one), key_of(two))
    found = {d["label"]: (d["before"] and d["before"]["value"], d["after"]["value"]) for d in told["differences"]}
    assert found["name expression"] == ("axpy<float>", "axpy<int>")
    assert found["argument"] == (None, "--generate-line-info")
    shown = verb("why", key_of(one), key_of(two)).stdout
    assert shown.startswith(f"from {key_of(one)[:12]} to {key_of(two)[:12]}:\n")
    assert "name expression: axpy<float> -> axpy<int>" in shown
    bundled = bundle([one], cache=Cache(root))
    assert "(nvrtc, bundle):" in verb("why", key_of(one), key_of(bundled)).stdout


def test_why_explains_a_compile_in_advance(verb: CacheVerb, root: Path, source: Path) -> None:
    compile_words = ["--file", source, "--arch", "sm_90", "-n", "axpy<float>"]
    assert "there is no other entry" in verb("why", *compile_words).stdout
    artifact = compiled(root, source)
    compiled(root, source, "axpy<int>")
    there = said(verb("why", *compile_words, "--json"))
    assert (there["key"], there["is_there"], there["nearest"]) == (key_of(artifact), True, None)
    assert there["differences"] == []
    assert "the image is in the cache" in verb("why", *compile_words).stdout
    missed = said(verb("why", *compile_words, "-D", "FAST=1", "-O", "std=c++20", "--json"))
    assert not missed["is_there"]
    assert sorted(d["after"]["value"] for d in missed["differences"]) == [
        "--define-macro=FAST=1",
        "--std=c++20",
    ]


def test_why_reports_a_compile_without_a_key(verb: CacheVerb, source: Path) -> None:
    words = ["why", "--file", source, "--arch", "sm_90", "-O", "extra=--fdevice-time-trace=x"]
    assert "never caches" in verb(*words).stdout
    told = said(verb(*words, "--json"))
    assert (told["key"], told["is_there"]) == (None, False)
    assert told["reason"]


def test_why_accepts_a_key_or_a_source(verb: CacheVerb, source: Path) -> None:
    for words in ([], ["abc", "--file", source], ["abc", "--arch", "sm_90"], ["abc", "-D", "X"]):
        assert verb("why", *words).exit_code == 2


def test_trim_reads_a_size_with_its_unit(verb: CacheVerb, root: Path, source: Path) -> None:
    old, new = compiled(root, source), compiled(root, source, "axpy<int>")
    os.utime(file_of(root, key_of(old)), (1_700_000_000, 1_700_000_000))
    sizes = [file_of(root, key_of(a)).stat().st_size for a in (old, new)]
    assert said(verb("trim", "1MiB", "--json")) == {"freed_bytes": 0, "entries": 2, "bytes": sum(sizes)}
    told = said(verb("trim", f"{sizes[1] / 1024:.6f} KiB", "--json"))
    assert told == {"freed_bytes": sizes[0], "entries": 1, "bytes": sizes[1]}
    for wrong in ("-1", "1 parsec", ""):
        assert verb("trim", "--", wrong).exit_code == 2
    assert "0 entries (0 B) are left" in verb("trim", "0").stdout


def test_clear_asks_for_confirmation(verb: CacheVerb, root: Path, source: Path) -> None:
    compiled(root, source)
    refused = verb("clear", typed="n\n")
    assert refused.exit_code == 1
    assert "delete 1 entries" in refused.stderr
    assert len(said(verb("ls", "--json"))) == 1
    assert said(verb("clear", "--json", typed="y\n"))["entries"] == 0
    compiled(root, source)
    assert said(verb("clear", "--yes", "--json"))["freed_bytes"] > 1000
    assert said(verb("ls", "--json")) == []


def test_installed_headers_are_listed_and_cleared(verb: CacheVerb, root: Path, source: Path) -> None:
    compiled(root, source)
    installed = root / "headers" / "13.5-0123456789abcdef" / "cuda"
    installed.mkdir(parents=True)
    (installed / "std").write_bytes(bytes(1 << 20))
    assert said(verb("info", "--json"))["installed_headers_bytes"] == 1 << 20
    assert "CUDA headers that cujit installed: 1 MiB" in verb("info").stdout
    assert "delete 1 entries" in verb("clear", typed="n\n").stderr
    assert "and CUDA headers (1 MiB)" in verb("clear", typed="n\n").stderr
    assert said(verb("clear", "--yes", "--json"))["freed_bytes"] > 1 << 20
    assert not installed.exists()
    assert "CUDA headers" not in verb("info").stdout


def test_verify_recompiles_and_compares_entries(verb: CacheVerb, root: Path, source: Path) -> None:
    artifact = compiled(root, source)
    bundle([artifact], cache=Cache(root))
    told = said(verb("verify", "--fraction", "1", "--json"))
    assert (told["same"], told["proved"], told["wrong"]) == (1, 1, 0)
    states = {entry["key"]: (entry["state"], entry["why"]) for entry in told["entries"]}
    assert states.pop(key_of(artifact)) == ("same", "")
    assert list(states.values()) == [("proved", "the entry doesn't record how it was made")]
    assert "1 made again and the same, 1 proved and not made again, 0 damaged" in verb("verify", "--fraction", 1).stdout


def test_verify_distinguishes_a_changed_header_from_damage(verb: CacheVerb, root: Path, source: Path) -> None:
    compiled(root, source)
    source.with_name("scale.h").write_text("#define SCALE 3\n")
    told = said(verb("verify", "--fraction", "1", "--json"))
    assert (told["proved"], told["wrong"]) == (1, 0)
    assert told["entries"][0]["why"] == "its headers or its tool have changed"


def recipe_of(root: Path, digest: str) -> bytes:
    store = Cache(root).store
    assert store is not None
    record = store.get(digest).record
    assert record is not None
    return record.recipe


def test_verify_finds_the_image_of_another_source_under_a_key(verb: CacheVerb, root: Path, source: Path) -> None:
    right, other = compiled(root, source), compile(source, arch="sm_90", names=["axpy<int>"], cache=False)
    entry = file_of(root, key_of(right))
    recipe = recipe_of(root, key_of(right))
    entry.unlink()
    cache = Cache(root)
    key = right.provenance.key  # type: ignore[union-attr]
    cache.get_or_make(key, lambda: other, recipe=lambda: recipe)
    result = verb("verify", "--fraction", "1", "--json")
    told = said(result, 1)
    assert (told["wrong"], "recompiled" in told["entries"][0]["why"]) == (1, True)
    assert "1 damaged or different" in verb("verify", "--fraction", "1").stdout


def test_verify_finds_an_image_whose_source_does_not_compile(verb: CacheVerb, root: Path, source: Path) -> None:
    image = compile(source, arch="sm_90", names=["axpy<int>"], cache=False)
    source.write_text("no C++")
    wrong = request(source, arch="sm_90")
    cache = Cache(root)
    keys = runner(cache).keys
    assert keys is not None
    keyed = keys.of_request(wrong)
    assert isinstance(keyed, Keyed)
    cache.get_or_make(keyed.key, lambda: image, recipe=lambda: write_recipe(wrong))
    told = said(verb("verify", "--fraction", "1", "--json"), 1)
    assert (told["wrong"], "recompiling the same inputs fails" in told["entries"][0]["why"]) == (1, True)


def test_verify_finds_a_damaged_entry(verb: CacheVerb, root: Path, source: Path) -> None:
    entry = file_of(root, key_of(compiled(root, source)))
    entry.write_bytes(entry.read_bytes()[:-1] + b"!")
    told = said(verb("verify", "--fraction", "1", "--json"), 1)
    assert (told["wrong"], told["entries"][0]["state"]) == (1, "wrong")


def test_verify_draws_a_share(verb: CacheVerb, root: Path, source: Path) -> None:
    compiled(root, source)
    assert said(verb("verify", "--fraction", "0", "--json"))["entries"] == []
    assert verb("verify", "--fraction", "1.5").exit_code == 2


@pytest.mark.parametrize(
    ("size", "shown"), [(0, "0 B"), (999, "999 B"), (1000, "0.977 KiB"), (1536, "1.5 KiB"), (5 << 40, "5 TiB")]
)
def test_sizes_are_printed_in_a_suitable_unit(size: int, shown: str) -> None:
    assert shown_size(size) == shown


def test_ages_are_printed_in_a_suitable_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 1e9)
    ages = [shown_age(1e9 - s) for s in (-5, 59, 60, 7200, 200_000)]
    assert ages == ["now", "now", "1 min ago", "2 h ago", "2 d ago"]


def test_names_with_terminal_control_characters_are_escaped(verb: CacheVerb, root: Path) -> None:
    evil = "k\x1b[31m\x07.cu"
    key = make_key("nvrtc", [Part.text("name", evil)])
    data = b".version 9.1\n.target sm_90\n.address_size 64\n"
    Cache(root).keep(key, Artifact(ImageKind.PTX, data, names={evil: "k"}, log=f"{evil}: warning", name=evil))
    Cache(root).keep(make_key("nvrtc", [Part.text("name", evil), Part.text("x", evil)]), Artifact(ImageKind.PTX, data))
    for arguments in (("ls",), ("show", key.digest), ("why", key.digest), ("verify", "--fraction", 1)):
        shown = verb(*arguments).output
        assert "\x1b" not in shown
        assert "\x07" not in shown
        assert r"k\x1b[31m\x07.cu" in shown


def test_show_prints_all_times_of_a_tuning_record(verb: CacheVerb, root: Path) -> None:
    slow = Measured({"TILE": 8}, Timing((2.0, 2.5, 3.0), 1, "H200"))
    fast, lost = Measured({"TILE": 16}, Timing((1.0, 1.5, 2.0), 1, "H200")), Measured({"TILE": 32}, error="too wide")
    record = TuningRecord("matmul", "[64]", "H200", 132, "CUDA 13.0", (slow, fast, lost), 1)
    key = make_key("tuning", [Part.text("name", "matmul"), Part.text("shape", "[64]")])
    Cache(root).keep(key, Artifact(ImageKind.TUNING, record.to_json(), name="matmul"))
    shown = verb("show", key.digest[:8]).output
    rows = [line.strip() for line in shown.partition("candidates\n")[2].partition("\n\n")[0].splitlines()]
    assert rows[0].startswith("* TILE=16: 1.5 ms (1.1 to 1.9 in 80 % of 3 samples on H200)")
    assert [row.partition(":")[0] for row in rows] == ["* TILE=16", "TILE=8", "TILE=32"]
    assert rows[2] == "TILE=32: too wide"
    assert "shape: [64]" in shown
    assert said(verb("show", key.digest, "--json"))["tuning"]["winner"] == 1
    assert said(verb("ls", "--json"))[0]["kind"] == "tuning"
    assert verb("verify", "--fraction", 1).exit_code == 0


def test_files_of_another_compiler_are_listed_and_compared(verb: CacheVerb, root: Path) -> None:
    keys = [make_key("triton", [Part.text("name", "axpy"), Part.text("triton key", str(n))]) for n in range(2)]
    for n, key in enumerate(keys):
        about = json.dumps({"num_warps": 4 + 4 * n, "num_stages": 3}).encode()
        files = pack_files({"axpy.cubin": b"image %d" % n, "axpy.json": about, "axpy.ttir": b"module"})
        Cache(root).keep(key, Artifact(ImageKind.FILES, files, Arch.parse("sm_90"), name="axpy"))
    before, after = (key.digest for key in keys)
    assert "axpy.cubin: 7 B\n" in verb("show", before).output
    assert said(verb("show", before, "--json"))["files"]["axpy.ttir"] == 6
    for arguments in ((before, after), (after,)):
        labels = {row["label"] for row in said(verb("why", *arguments, "--json"))["differences"]}
        assert labels == {"triton key", "axpy.cubin", "axpy.json num_warps"}
    assert "axpy.json num_warps: 4 -> 8" in verb("why", before, after).output
    with raises(LoadError, "load", "files"):
        cujit.load(Artifact(ImageKind.FILES, files), "cpu")
    with raises(LinkError, "link-input", "files"):
        cujit.link([Artifact(ImageKind.FILES, files)], arch="sm_90")


def test_share_that_is_not_a_number_is_refused(verb: CacheVerb, root: Path) -> None:
    Cache(root).keep(make_key("nvrtc", []), Artifact(ImageKind.PTX, b".version 9.1\n"))
    result = verb("verify", "--fraction", "nan")
    assert result.exit_code == 1
    assert "the fraction must be between 0 and 1" in result.stderr


def test_info_reports_that_caching_is_off(verb: CacheVerb, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_CACHE", "0")
    assert "CUJIT_CACHE is off" in verb("info").stdout


def test_other_directory_has_the_cap_of_the_environment(
    verb: CacheVerb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUJIT_CACHE_BYTES", "5MiB")
    (root,) = said(verb("info", "--dir", tmp_path, "--json"))["roots"]
    assert root["cap_bytes"] == 5 << 20
