"""Machine code of the CPU device in the cache: a second process starts warm, and nothing depends on what is kept."""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from cujit import load
from cujit.artifact import Artifact, ImageKind
from cujit.cache.cache import Cache
from cujit.cache.process import default_cache
from cujit.cache.record import decode
from cujit.cache.settings import CacheSettings
from cujit.devices import jit, objects, sources
from cujit.devices.cpu import preparation
from cujit.devices.cpu.backend import CpuBackend
from cujit.devices.cpu.ir.facts import KernelFacts, ModuleFacts, RefusedFacts, Relocation
from cujit.devices.cpu.preparation import Preparation
from cujit.devices.device import Device
from cujit.devices.objects import CompileTask, machine_code
from cujit.devices.shapes import Dim3
from cujit.errors import CacheWarning, CujitError, UnsupportedError
from cujit.signature import Parameter, ParameterClass, Signature
from processes import printed
from raising import raises

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"

PTX = (
    HEAD
    + """
.extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);
.global .align 4 .b8 words[8] = {104, 105, 10, 0};
.global .align 4 .u32 counts[4] = {7, 8, 9, 10};
.global .align 8 .u64 where = counts;
.visible .entry add(.param .u64 out, .param .u32 more) .maxntid 64, 1, 1 {
    .reg .b32 %r<8>; .reg .b64 %a<8>; .shared .align 4 .b8 buffer[256];
    mov.u32 %r1, %tid.x; ld.param.u32 %r2, [more]; ld.param.u64 %a1, [out];
    mov.u32 %r3, buffer; shl.b32 %r4, %r1, 2; add.u32 %r5, %r3, %r4; st.shared.u32 [%r5], %r1;
    bar.sync 0;
    xor.b32 %r4, %r4, 4; add.u32 %r5, %r3, %r4; ld.shared.u32 %r6, [%r5]; add.u32 %r6, %r6, %r2;
    ld.global.u64 %a2, [where]; ld.u32 %r7, [%a2+4]; add.u32 %r6, %r6, %r7;
    mul.wide.u32 %a3, %r1, 4; add.u64 %a4, %a1, %a3; st.global.u32 [%a4], %r6; ret;
}
.visible .entry say() {
    .reg .b64 %a<3>; .reg .b32 %r<2>;
    mov.u64 %a1, words; cvta.global.u64 %a2, %a1;
    { .param .b64 x; .param .b64 y; .param .b32 z; st.param.b64 [x], %a2; st.param.b64 [y], 0;
      call (z), vprintf, (x, y); ld.param.b32 %r1, [z]; }
    ret;
}
.visible .entry fall() { trap; ret; }
"""
)

ADDED = (np.arange(64) ^ 1) + 5 + 8

CHILD = """
import sys
import numpy as np
import cujit
import cujit.devices.jit as jit

made = []
def counted(*args, optimise=jit.optimise, **more):
    made.append(args)
    return optimise(*args, **more)
jit.optimise = counted

device = cujit.cpu(2)
module = cujit.load(sys.argv[1], device)
out = device.array(np.zeros(64, np.uint32))
module["add"][1, 64](out, 5)
module["say"][1, 1]()
print(*out.numpy())
print("resources", module["add"].resources.shared_bytes, module["add"].max_block)
modules = [name for name in sys.modules if name.startswith("cujit")]
try:
    module["fall"][1, 1]()
except cujit.errors.KernelFaultError as e:
    print(*[line.strip() for line in str(e).splitlines() if "trap;" in line])
print("made", len(made))
print(*modules)
"""


class Run(NamedTuple):
    """What a process printed: what comes of the kernels, how often LLVM optimised, and the modules of cujit then."""

    results: list[str]
    made: int
    modules: set[str]


@pytest.fixture(autouse=True)
def settled() -> None:
    """Nothing is kept while somebody edits the code that runs."""
    if not sources.code_identity() or not sources.is_as_imported():
        pytest.skip("cujit's own code changed after it was imported")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cache]:
    """A cache of this test's own, in this process and its children."""
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cache"))
    yield default_cache()
    default_cache().forget()


def _run(folder: Path, name: str) -> Run:
    """Run the kernels in another process, with the cache of that name."""
    path = folder / "kernels.ptx"
    path.write_text(PTX)
    text = printed(CHILD, path, options=("-W", "error"), environment={"CUJIT_CACHE_DIR": str(folder / name)})
    *results, made, modules = text.splitlines()
    return Run(results, int(made.split()[1]), set(modules.split()))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the caches of ``runs`` lie."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def runs(folder: Path) -> tuple[Run, Run, Run]:
    """A process with an empty cache, one with what that left, and one with another empty cache."""
    return _run(folder, "one"), _run(folder, "one"), _run(folder, "two")


def _added(device: Device, block: int = 64) -> list[int]:
    """Load the module, and run ``add``."""
    out = device.array(np.zeros(64, np.uint32))
    load(PTX.encode(), device)["add"][1, block](out, 5)
    return [int(n) for n in out.numpy()]


def _kept(cache: Cache, kind: str) -> list[Path]:
    """List the files of the entries of one kind of work."""
    assert cache.store is not None
    return [path for path in _entries(cache.store.root) if f'"work":"{kind}"'.encode() in path.read_bytes()]


def test_second_process_optimizes_nothing_with_equal_results(runs: tuple[Run, Run, Run]) -> None:
    first, again, _ = runs
    said, added, resources, trap = again.results
    assert first.results == again.results
    assert list(map(int, added.split())) == ADDED.tolist()
    assert (said, resources) == ("hi", "resources 256 64")
    assert trap.startswith("at PTX line")
    assert first.made >= 5
    assert again.made == 0


@pytest.mark.verbatim
def test_cached_launch_imports_no_code_generator(runs: tuple[Run, Run, Run]) -> None:
    first, again, _ = runs
    names = ("analysis.body", "frontend.flatten", "control.flow", "codegen.warp", "instructions.integer", "pipeline")
    makers = {f"cujit.devices.cpu.{name}" for name in names}
    rooms = ("analysis", "frontend", "control", "codegen", "instructions")
    families = (*(f"cujit.devices.cpu.{room}." for room in rooms), "cujit.formats.ptx.")
    assert makers <= first.modules
    assert not makers & again.modules
    assert not {name for name in again.modules if name.startswith(families)}


def test_objects_of_two_processes_have_equal_bytes(runs: tuple[Run, Run, Run], folder: Path) -> None:
    del runs
    one, two = ({path.name: _artifact(path) for path in _entries(folder / name)} for name in ("one", "two"))
    assert len(one) >= 5
    assert one == two


def _entries(root: Path) -> list[Path]:
    return [path for path in (root / "e").rglob("*") if path.is_file()]


def _artifact(path: Path) -> Artifact:
    return decode(path.read_bytes(), path.parent.name + path.name).artifact


def test_new_block_shape_of_a_known_module_is_compiled(cache: Cache) -> None:
    _added(Device(CpuBackend(1)))
    cache.forget()
    out = _added(Device(CpuBackend(1)), 32)
    assert out == [*ADDED[:32], *[0] * 32]
    assert len(_kept(cache, "cpu kernel")) == 2
    assert len(_kept(cache, "cpu module")) == 1


def test_kernel_is_compiled_once(cache: Cache) -> None:
    _added(Device(CpuBackend(1)))
    makes = cache.counters.makes
    cache.forget()
    assert _added(Device(CpuBackend(1))) == ADDED.tolist()
    assert cache.counters.makes == makes


ALONE = f"""{HEAD}.visible .entry alone(.param .u64 out) {{
    .reg .b32 %r<4>; .reg .b64 %a<4>;
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ntid.x; add.u32 %r3, %r1, %r2; ld.param.u64 %a1, [out];
    mul.wide.u32 %a2, %r1, 4; add.u64 %a3, %a1, %a2; st.global.u32 [%a3], %r3; ret;
}}"""
"""The only kernel of its module. Thread i stores i plus the size of the block."""


def _run_alone(block: int) -> list[int]:
    device = Device(CpuBackend(1))
    out = device.array(np.zeros(64, np.uint32))
    load(ALONE.encode(), device)["alone"][1, block](out)
    return [int(n) for n in out.numpy()[:block]]


def test_single_kernel_module_launches_from_one_entry(cache: Cache) -> None:
    expected = [[i + block for i in range(block)] for block in (64, 32)]
    assert _run_alone(64) == expected[0]
    assert len(_kept(cache, "cpu module with code")) == 1
    assert not _kept(cache, "cpu kernel")
    before = cache.counters
    cache.forget()
    assert _run_alone(64) == expected[0]
    assert cache.counters.makes == before.makes
    assert cache.counters.disk_hits == before.disk_hits + 1
    cache.forget()
    assert _run_alone(32) == expected[1]  # another block has an entry of its own
    assert len(_kept(cache, "cpu module with code")) == len(_kept(cache, "cpu kernel")) == 1
    assert cache.counters.makes == before.makes + 1


def test_damaged_entry_with_code_is_recompiled(cache: Cache) -> None:
    expected = _run_alone(64)
    (path,) = _kept(cache, "cpu module with code")
    path.write_bytes(path.read_bytes()[:-100])
    cache.forget()
    assert _run_alone(64) == expected
    assert cache.counters.damaged == 1


def test_refused_module_is_refused_at_every_load(cache: Cache) -> None:
    head = HEAD.replace("8.0", "8.1")
    ptx = head + ".visible .entry k() { .reg .b32 %r<2>; multimem.red.global.add.u32 [0], %r1; ret; }"
    for _ in range(2):
        with raises(UnsupportedError, "unsupported", "multimem"):
            load(ptx.encode(), Device(CpuBackend(1)))
    assert not _kept(cache, "cpu module")


def test_large_variables_are_not_cached(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "MOST_IMAGE_BYTES", 8)
    for _ in range(2):
        assert _added(Device(CpuBackend(1))) == ADDED.tolist()
    assert not _kept(cache, "cpu module")
    assert len(_kept(cache, "cpu kernel")) == 1


@pytest.mark.parametrize("kind", ["cpu module", "cpu kernel"])
@pytest.mark.parametrize("damage", ["cut", "empty", "first", "middle", "last"])
def test_damaged_entry_is_recompiled(cache: Cache, kind: str, damage: str) -> None:
    _added(Device(CpuBackend(1)))
    (path,) = _kept(cache, kind)
    data = bytearray(path.read_bytes())
    at = {"first": 700, "middle": len(data) // 2, "last": len(data) - 1}.get(damage)
    if at is None:
        data = data[: {"cut": len(data) - 100, "empty": 0}[damage]]
    else:
        data[at] ^= 16
    path.write_bytes(data)
    cache.forget()
    damaged = cache.counters.damaged
    assert _added(Device(CpuBackend(1))) == ADDED.tolist()
    assert cache.counters.damaged == damaged + 1


def test_without_a_cache_nothing_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CUJIT_CACHE", "0")
    assert _added(Device(CpuBackend(1))) == ADDED.tolist()
    assert not (tmp_path / "cache").exists()


def test_read_only_root_is_enough(cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _added(Device(CpuBackend(1)))
    monkeypatch.setenv("CUJIT_CACHE_ROOTS", str(tmp_path / "cache"))
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "other"))
    assert _added(Device(CpuBackend(1))) == ADDED.tolist()
    assert default_cache().counters.makes == 0
    del cache


def test_root_writable_by_others_is_not_trusted(cache: Cache, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    with pytest.warns(CacheWarning, match="writable"):
        assert _added(Device(CpuBackend(1))) == ADDED.tolist()
    assert cache.counters.makes == cache.counters.not_kept > 0


def test_other_processor_has_other_entries(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(CpuBackend(1))
    _added(device)
    makes = cache.counters.makes
    other = jit.processor()._replace(name="another")
    monkeypatch.setattr(objects, "processor", lambda: other)
    _added(device)
    assert cache.counters.makes == makes + 1  # the facts of the module are the same everywhere


def test_code_changed_after_its_import_stores_nothing(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "is_as_imported", lambda: False)
    assert _added(Device(CpuBackend(1))) == ADDED.tolist()
    assert not _kept(cache, "cpu kernel")


def test_modules_newer_than_their_import_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    newest = max(changed for *_, changed in sources._stats())
    assert sources.is_as_imported()
    monkeypatch.setattr(sources, "_IMPORTED_S", newest / 1e9 - 1)
    assert sources.is_as_imported()  # nothing of that can have come into this process
    monkeypatch.setitem(sys.modules, "imported_since", sys)
    assert not sources.is_as_imported()


def test_files_newer_than_the_import_are_noticed_on_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "part.bc").write_bytes(b"code")
    assert sources.is_as_imported()
    monkeypatch.setattr(sources, "_is_settled", lambda _: False)
    assert sources.is_as_imported()
    assert sources.read_file(str(tmp_path / "part.bc")) == b"code"
    assert not sources.is_as_imported()


def test_code_identity_is_that_of_its_text(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = sources.code_identity.__wrapped__
    before = fresh()
    assert fresh() == before  # by the hint
    assert cache.hints is not None
    cache.hints.clear()
    assert fresh() == before
    cache.hints.clear()
    digest = sources._digest
    monkeypatch.setattr(sources, "_digest", lambda paths: digest(paths[1:]))
    assert fresh() != before


def test_all_code_of_the_devices_is_in_the_identity() -> None:
    package = Path(sources.__file__).parent.parent
    known = {path for path, *_ in sources._stats()}
    made_by = [
        *(package / "devices").rglob("*.py"),
        *(package / "devices").rglob("*.bc"),
        *(package / "formats/ptx").rglob("*.py"),
    ]
    there = {path.relative_to(package).as_posix() for path in made_by}
    assert known == {path for path in there if not path.startswith("devices/cuda/")}


def _object(text: str) -> Artifact:
    return Artifact(ImageKind.OBJECT, jit.emit_object(text))


CALLS = "declare i32 @nobody_has_this(i32)\ndefine i32 @k(i32 %x) { %y = call i32 @nobody_has_this(i32 %x) ret i32 %y }"
PLAIN = "define i32 @k(i32 %x) { ret i32 %x }"


@pytest.mark.parametrize("kept", [CALLS, "define i32 @other(i32 %x) { ret i32 %x }"], ids=["calls", "lacks"])
def test_object_that_does_not_fit_this_process_is_recompiled(kept: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "keep", lambda *_, **__: _object(kept))
    assert machine_code(CompileTask("test", "k", (), lambda: PLAIN), "k").address


def test_undefined_functions_are_an_error() -> None:
    with raises(CujitError, "internal", "nobody_has_this"):
        machine_code(CompileTask("test", "k", (), lambda: CALLS, keep=False), "k")


def test_facts_are_restored_unchanged() -> None:
    kernel = KernelFacts(
        name="k",
        signature=Signature((Parameter(ParameterClass.POINTER, 8, 8, ".u64"),)),
        directives={"maxntid": (64, 1, 1), "explicitcluster": ()},
        parameters_size=8,
        shared_size=1,
        local_size=2,
        suspends=True,
        prints=False,
        meets=True,
        dynamic=True,
    )
    left = RefusedFacts("other", kernel.signature, ((7, "multimem.red", "one device"),))
    facts = ModuleFacts((kernel,), (left,), {"x": (0, 16)}, 32, ((0, bytes(16)), (20, b"end")), (Relocation(8, 4),))
    assert ModuleFacts.of_artifact(facts.to_artifact()) == facts
    assert [*facts.pieces_at(1 << 40)] == [*facts.pieces, (8, ((1 << 40) + 4).to_bytes(8, "little"))]
    assert Dim3(*kernel.directives["maxntid"]).volume == 64


def test_concurrent_threads_share_one_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path))
    slow, found = Cache.of, []

    def of(settings: CacheSettings) -> Cache:
        time.sleep(0.02)
        return slow(settings)

    monkeypatch.setattr(Cache, "of", of)
    threads = [threading.Thread(target=lambda: found.append(default_cache())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, found))) == 1


@pytest.mark.parametrize("stays", [False, True])
def test_parsed_text_is_dropped_unless_an_observer_needs_it(stays: bool) -> None:
    prepared = Preparation(PTX, "<ptx>", stays=stays)
    prepared.facts()
    first = weakref.ref(prepared.body("add"))
    assert prepared.body("add") is first()
    for number in range(8):
        Preparation(f"{HEAD}.visible .entry k{number}() {{ ret; }}", "<ptx>").facts()
    assert (first() is None) is not stays
    assert prepared.body("add").program.name == "add"
    assert [entry.name for entry in prepared.ptx().entries] == ["add", "say", "fall"]
