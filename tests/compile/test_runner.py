"""The runner keeps what its key says and nothing else; recipes tell how to make it again."""

from __future__ import annotations

import json
import os
import pickle
import threading
import zlib
from pathlib import Path

import pytest

from cujit.arch import Arch
from cujit.artifact import Artifact, ImageKind
from cujit.cache import admin
from cujit.cache.admin import Shown
from cujit.cache.cache import Cache
from cujit.cache.provenance import Outcome, Provenance
from cujit.compiler.image_jobs import BundleJob, LinkJob
from cujit.compiler.inputs.source import Source
from cujit.compiler.jobs import CompileJob
from cujit.compiler.keys.recipe import read_recipe, write_recipe
from cujit.compiler.options.values import Options
from cujit.compiler.request import Request
from cujit.compiler.runner import Runner
from cujit.errors import CompileError, FormatError, OptionError
from cujit.toolchain.headers import Settings
from cujit.toolchain.toolset import Toolchain
from llvm_ir import SCALE
from raising import raises

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

TEXT = 'extern "C" __global__ void k(int* x) { *x = VALUE; }\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def header(tmp_path: Path) -> Path:
    path = tmp_path / "include" / "value.h"
    path.parent.mkdir()
    path.write_text("#define VALUE 1\n")
    return path


def of_text(text: str = TEXT, *, arch: str = "compute_80", **options: object) -> Request:
    parsed = Arch.parse(arch)
    kind = ImageKind.CUBIN if parsed.is_real else ImageKind.PTX
    return Request(Source.cuda(text, name="k.cu"), kind, parsed, Options(**options))  # type: ignore[arg-type]


def of_header(header: Path) -> Request:
    return of_text("#include <value.h>\n" + TEXT, include=str(header.parent))


def outcome(artifact: Artifact) -> Outcome:
    assert isinstance(artifact.provenance, Provenance)
    return artifact.provenance.outcome


def edited_meanwhile(monkeypatch: pytest.MonkeyPatch, header: Path, text: str) -> None:
    """Let the header change while the next compile is under way."""

    run = CompileJob.run

    def run_and_edit(job: CompileJob, toolchain: Toolchain) -> Artifact:
        try:
            return run(job, toolchain)
        finally:
            header.write_text(text)

    monkeypatch.setattr(CompileJob, "run", run_and_edit)


def test_image_compiled_while_a_header_changed_is_not_stored(
    toolchain: Toolchain, root: Path, header: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = Runner(toolchain, Cache(root))
    with monkeypatch.context() as during:
        edited_meanwhile(during, header, "#define VALUE 2\n")
        artifact = runner.get(CompileJob(of_header(header)))
    assert artifact.provenance is not None
    assert (outcome(artifact), artifact.provenance.reason) == (
        Outcome.UNCACHED,
        "its inputs or its tool changed during the compile",
    )
    assert runner.cache is not None
    assert (runner.cache.counters.not_kept, list(admin.ls(runner.cache))) == (1, [])
    header.write_text("#define VALUE 1\n")
    assert outcome(runner.get(CompileJob(of_header(header)))) is Outcome.MADE


def test_error_while_a_header_changed_is_not_remembered(
    toolchain: Toolchain, root: Path, header: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = Runner(toolchain, Cache(root))
    header.write_text("#define VALUE none\n")
    with monkeypatch.context() as during:
        edited_meanwhile(during, header, "#define VALUE 2\n")
        with pytest.raises(CompileError):
            runner.get(CompileJob(of_header(header)))
    header.write_text("#define VALUE none\n")
    assert runner.cache is not None
    for misses in (2, 2):
        with pytest.raises(CompileError):
            runner.get(CompileJob(of_header(header)))
        assert runner.cache.counters.misses == misses


def test_missing_cache_is_the_reported_reason(toolchain: Toolchain) -> None:
    artifact = Runner(toolchain, off="it is Sunday").get(CompileJob(of_text(define={"VALUE": 1})))
    assert isinstance(artifact.provenance, Provenance)
    assert (artifact.provenance.outcome, artifact.provenance.reason) == (Outcome.UNCACHED, "it is Sunday")
    assert artifact.provenance.make_ms > 0


@pytest.mark.parametrize("cached", [True, False])
def test_wrong_options_are_refused_before_a_library_is_opened(root: Path, cached: bool) -> None:
    tools = Toolchain()
    runner = Runner(tools, Cache(root) if cached else None)
    with raises(OptionError, "option-rejected", "libNVVM", "support"):
        runner.get(
            CompileJob(Request(Source.nvvm(SCALE), ImageKind.PTX, Arch.parse("compute_80"), Options(std="c++17")))
        )
    with raises(OptionError, "option", "/no/where"):
        runner.get(CompileJob(of_text(include="/no/where")))
    with raises(OptionError, "option-rejected", "nvJitLink", "support"):
        runner.get(LinkJob((), ImageKind.CUBIN, None, Options(define={"X": 1})))
    with raises(OptionError, "option", "much"):
        BundleJob.of((), "much")
    assert set(tools.__dict__) == {"settings", "notes"}


def test_second_process_knows_compilers_without_opening_them(root: Path) -> None:
    languages = ("cuda", "nvvm")
    first = Runner(Toolchain(Settings()), Cache(root))
    known = [first.compiler(language) for language in languages]
    assert known == [Toolchain().compiler(language) for language in languages]
    tools = Toolchain(Settings())
    second = Runner(tools, Cache(root))
    assert [second.compiler(language) for language in languages] == known
    assert set(tools.__dict__) == {"settings", "notes"}
    assert Request.of(TEXT, None, None, (), Options(), second).arch.number == known[0].arches[0]


def test_forked_child_ignores_a_lock_of_another_thread(toolchain: Toolchain, root: Path) -> None:
    runner = Runner(toolchain, Cache(root))
    request = of_text("#include <cuda_fp16.h>\n" + TEXT, define={"VALUE": 1})
    runner.get(CompileJob(request))
    assert runner.keys is not None
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        assert runner.keys is not None
        with runner.keys.memo._lock, runner.keys.memo.files._lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if outcome(runner.get(CompileJob(request))).value in ("memory", "disk") else 1)
    done.set()
    thread.join()
    for _ in range(600):
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            break
        threading.Event().wait(0.05)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
        pytest.fail("the child waits for a lock")
    assert status == 0


# -- recipes ----------------------------------------------------------------------------------------------

REQUESTS = {
    "text": of_text(define={"VALUE": 1, "NAKED": None}, maxrregcount=32, extra=["-DX=1"]),
    "headers": Request(
        Source.cuda(TEXT, headers={"a.h": "ä"}, include=["/usr"], define={"VALUE": "2", "N": None}),
        ImageKind.LTOIR,
        Arch.parse("lto_90a"),
        names=("k", "f<int>"),
    ),
    "modules": Request(Source.nvvm(SCALE, b"BC\xc0\xde\xff", libdevice=True), ImageKind.CUBIN, Arch.parse("sm_90")),
    "module": Request(Source.nvvm(SCALE), ImageKind.PTX, Arch.parse("compute_80")),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_job_travels(name: str) -> None:
    job = CompileJob(REQUESTS[name])
    assert vars(pickle.loads(pickle.dumps(job))) == vars(job)


@pytest.mark.parametrize("name", REQUESTS)
def test_recipe_is_the_request(name: str) -> None:
    again = read_recipe(write_recipe(REQUESTS[name]))
    assert again == REQUESTS[name]
    assert list(again.parts()) == list(REQUESTS[name].parts())


def test_recipe_names_a_file_and_whole_directories(
    tmp_path: Path, header: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "s.cu").write_text(TEXT)
    monkeypatch.chdir(tmp_path)
    options = Options(include=["include"], define={"VALUE": 1})
    recipe = write_recipe(Request(Source.cuda("s.cu"), ImageKind.PTX, Arch.parse("compute_80"), options))
    monkeypatch.chdir("/")
    again = read_recipe(recipe)
    assert again.source.path == str(tmp_path / "s.cu")
    assert again.options["include"] == (str(header.parent),)


def test_recipe_above_one_mebibyte_is_omitted() -> None:
    assert write_recipe(of_text("/" * (1 << 20))) == b""


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        zlib.compress(b"{}"),
        zlib.compress(b"[]"),
        zlib.compress(b"\xff"),
        zlib.compress(b"[" * 100_000),
        zlib.compress(json.dumps({"schema": 2}).encode()),
        write_recipe(of_text())[:-1],
    ],
    ids=["nothing", "no zlib", "no fields", "a list", "no text", "deep", "another schema", "truncated"],
)
def test_invalid_recipe_is_refused(data: bytes) -> None:
    with raises(FormatError, "format", "recipe"):
        read_recipe(data)


def test_recipe_that_decompresses_past_its_limit_is_refused() -> None:
    with raises(FormatError, "format", "1048576"):
        read_recipe(zlib.compress(b" " * (1 << 24)))


def shown(cache: Cache) -> Shown:
    (listed,) = admin.ls(cache)
    assert listed.summary is not None
    assert listed.summary.recipe_bytes > 0
    return admin.show(cache, listed.digest)


def test_entry_shows_its_source_and_recompiles_to_equal_bytes(toolchain: Toolchain, root: Path) -> None:
    runner = Runner(toolchain, Cache(root))
    made = runner.get(CompileJob(of_text(arch="sm_80", define={"VALUE": 1})))
    assert runner.cache is not None
    entry = shown(runner.cache)
    assert read_recipe(entry.record.recipe).source.text == TEXT
    assert runner.remake(entry) == made
    (verdict,) = admin.verify(runner.cache, 1, runner.remake)
    assert (verdict.remade, verdict.fault) == (True, "")


def test_entry_with_changed_headers_is_not_recompiled(toolchain: Toolchain, root: Path, header: Path) -> None:
    runner = Runner(toolchain, Cache(root))
    runner.get(CompileJob(of_header(header)))
    header.write_text("#define VALUE 2\n")
    assert runner.cache is not None
    assert runner.remake(shown(runner.cache)) is None


def test_link_has_no_recipe(toolchain: Toolchain, root: Path) -> None:
    image = Runner(toolchain).get(CompileJob(of_text(arch="compute_80", define={"VALUE": 1})))
    runner = Runner(toolchain, Cache(root))
    runner.get(LinkJob((image,), ImageKind.CUBIN, Arch.parse("sm_80"), Options()))
    assert runner.cache is not None
    (verdict,) = admin.verify(runner.cache, 1, runner.remake)
    assert (verdict.remade, verdict.fault) == (False, "")
