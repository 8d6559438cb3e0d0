"""The cache on every route: compile, link, bundle, build and jit, as users walk them."""

from __future__ import annotations

import copy
import os
import pickle
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cujit import loading, program
from cujit.artifact import Artifact
from cujit.cache.cache import Cache
from cujit.cache.process import default_cache
from cujit.cache.provenance import Outcome, Provenance
from cujit.cache.store import Explanation
from cujit.compiler.keys import builds
from cujit.devices.device import Device
from cujit.errors import CacheWarning, CompileError, HeaderNotFoundError, OptionError
from cujit.formats.fatbin import read_fatbin
from cujit.program import Source
from llvm_ir import SCALE, SINE, kernel_that_calls
from processes import printed
from raising import raises

TEXT = 'extern "C" __global__ void k(float* x) { x[0] = 1; }\n'
AXPY = "template <typename T> __global__ void axpy(T a, T* x) { x[threadIdx.x] *= a; }\n"
TREE = {
    "s.cu": '#include "value.h"\n#include <far.h>\nextern "C" __global__ void k(int* x) { int unused; *x = VALUE; }\n',
    "value.h": "#pragma once\n#define VALUE 1\n",
    "first/none.h": "",
    "second/far.h": "#pragma once\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in TREE.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "tree"


def outcome(artifact: Artifact) -> Outcome:
    assert isinstance(artifact.provenance, Provenance)
    return artifact.provenance.outcome


def of_tree(tree: Path, root: Path, **options: Any) -> Artifact:
    """Compile the tree as a new process would, with nothing in memory."""
    include = [tree / "first", tree / "second"]
    return program.compile(tree / "s.cu", arch="sm_80", include=include, cache=Cache(root), **options)


def shadow(tree: Path) -> None:
    (tree / "first" / "far.h").write_text("#pragma once\n")


def edit(tree: Path) -> None:
    (tree / "value.h").write_text("#pragma once\n#define VALUE 2\n")


@pytest.mark.parametrize("change", [edit, shadow])
def test_edited_or_shadowing_header_causes_a_recompile(tree: Path, root: Path, change: Callable[[Path], None]) -> None:
    assert [outcome(of_tree(tree, root)) for _ in range(2)] == [Outcome.MADE, Outcome.DISK]
    change(tree)
    assert [outcome(of_tree(tree, root)) for _ in range(2)] == [Outcome.MADE, Outcome.DISK]


@pytest.mark.parametrize("options", [{"define": {"VALUE2": 1}}, {"fmad": False}, {"extra": ["-DX=1"]}], ids=str)
def test_macro_or_option_causes_a_recompile(tree: Path, root: Path, options: dict[str, Any]) -> None:
    of_tree(tree, root)
    assert outcome(of_tree(tree, root, **options)) is Outcome.MADE
    assert outcome(of_tree(tree, root)) is Outcome.DISK


def test_other_compiler_build_causes_a_recompile(tree: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_tree(tree, root)
    monkeypatch.setattr(builds, "read_build_id", lambda _path: "another")
    monkeypatch.setattr(program.toolchain(), "notes", {})  # what this process knows of the first one
    assert outcome(of_tree(tree, root)) is Outcome.MADE


def test_moved_tree_hits_and_the_artifact_has_new_names(
    tree: Path, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = of_tree(tree, root)
    assert f"{tree}/s.cu(3)" in made.log
    moved = shutil.copytree(tree, tmp_path / "elsewhere")
    monkeypatch.chdir(moved)
    hit = of_tree(moved, root)
    assert outcome(hit) is Outcome.DISK
    assert (hit.data, hit.name, hit.names) == (made.data, str(moved / "s.cu"), made.names)
    assert f"{moved}/s.cu(3)" in hit.log
    assert str(tree) not in hit.log


def test_why_names_the_changed_header(tree: Path, root: Path) -> None:
    of_tree(tree, root)
    edit(tree)
    provenance = of_tree(tree, root).provenance
    assert provenance is not None
    explanation = provenance.why()
    assert isinstance(explanation, Explanation)
    assert [d.label for d in explanation.differences] == ["include source:value.h"]
    assert str(explanation).startswith(f"the nearest entry is {tree / 's.cu'} (")
    assert "include source:value.h: " in str(explanation)
    hit = of_tree(tree, root).provenance
    assert hit is not None
    assert (hit.is_hit, hit.why()) == (True, None)


def test_template_names_and_signatures_come_from_disk(root: Path) -> None:
    made, hit = (program.compile(AXPY, arch="sm_90", names=["axpy<float>"], cache=Cache(root)) for _ in range(2))
    assert outcome(hit) is Outcome.DISK
    assert hit == made
    assert list(hit.names) == ["axpy<float>"]
    assert len(hit.signatures[hit.names["axpy<float>"]]) == 2
    assert outcome(program.compile(AXPY, arch="sm_90", names=["axpy<int>"], cache=Cache(root))) is Outcome.MADE


def test_every_part_of_a_link_is_cached(root: Path) -> None:
    callee = Source.cuda('extern "C" __device__ int twice(int x) { return 2 * x; }', name="callee.cu")
    caller = 'extern "C" __device__ int twice(int);\nextern "C" __global__ void k(int* p) { *p = twice(*p); }\n'
    first, second = Cache(root), Cache(root)
    made = program.link([callee, Source.cuda(caller)], arch="sm_90", cache=first)
    assert (outcome(made), first.counters.makes) == (Outcome.MADE, 3)
    assert program.link([callee, Source.cuda(caller)], arch="sm_90", cache=second) == made
    assert (second.counters.makes, second.counters.disk_hits) == (0, 3)
    program.link([callee, Source.cuda(caller + "// the LTO-IR stays the same")], arch="sm_90", cache=second)
    assert second.counters.makes == 1
    program.link([callee, Source.cuda(caller.replace("*p)", "*p + 1)"))], arch="sm_90", cache=second)
    assert second.counters.makes == 3


def test_only_the_new_target_of_a_build_is_compiled(root: Path) -> None:
    targets = ["sm_80", "sm_90", "compute_90", "lto_90"]
    program.build(TEXT, targets[:3], cache=Cache(root))
    cache = Cache(root)
    fatbin = program.build(TEXT, targets, cache=cache)
    assert (cache.counters.makes, cache.counters.disk_hits) == (2, 3)  # the target and the fatbin
    assert [str(e) for e in read_fatbin(fatbin.data).entries] == [
        *("cubin sm_80", "cubin sm_90", "ptx compute_90", "ltoir lto_90")
    ]
    again = Cache(root)
    assert program.build(TEXT, targets, cache=again) == fatbin
    assert again.counters.makes == 0


def test_bundle_is_cached_under_the_name_of_its_first_image(root: Path) -> None:
    images = [program.compile(TEXT, arch=arch, cache=False) for arch in ("sm_80", "sm_90")]
    made, hit, other = (program.bundle(images, compress=how, cache=Cache(root)) for how in ("size", "size", "none"))
    assert [outcome(a) for a in (made, hit, other)] == [Outcome.MADE, Outcome.DISK, Outcome.MADE]
    assert (hit, hit.name) == (made, images[0].name)


@pytest.mark.parametrize("arch", ["compute_80", "sm_80", "lto_80"])
def test_llvm_ir_with_libdevice_is_cached(root: Path, arch: str) -> None:
    source = Source.nvvm(kernel_that_calls("f"), SINE, name="sine.ll", libdevice=True)
    made, hit = (program.compile(source, arch=arch, cache=Cache(root)) for _ in range(2))
    assert (outcome(made), outcome(hit)) == (Outcome.MADE, Outcome.DISK)
    assert hit == made
    assert outcome(program.compile(Source.nvvm(SCALE), arch=arch, cache=Cache(root))) is Outcome.MADE


BAD = 'extern "C" __global__ void k(int* x) { *x = undefined; }\n'


def refusal(source: str | Path, cache: Cache | bool) -> tuple[object, ...]:
    with pytest.raises(CompileError) as caught:
        program.compile(source, arch="sm_90", cache=cache)
    e = caught.value
    return str(e), type(e), e.request, e.diagnostics, e.log, e.tool, e.call, e.result


@pytest.mark.parametrize("text", [BAD, "#include <none.h>\n" + TEXT], ids=["error", "no header"])
def test_compile_error_is_equal_with_and_without_a_cache(root: Path, text: str) -> None:
    cache = Cache(root)
    bare, made, remembered = (refusal(text, c) for c in (False, cache, cache))
    assert bare == made == remembered
    assert cache.counters.misses == 1


def test_error_of_an_equal_source_has_its_own_paths(tmp_path: Path, root: Path) -> None:
    cache, paths = Cache(root), [tmp_path / "one" / "s.cu", tmp_path / "two" / "s.cu"]
    for path in paths:
        path.parent.mkdir()
        path.write_text(BAD)
        assert str(refusal(path, cache)[0]).count(str(path)) >= 2


def test_header_created_after_the_error_is_found(tmp_path: Path, root: Path) -> None:
    cache = Cache(root)
    with pytest.raises(HeaderNotFoundError):
        program.compile('#include "late.h"\n' + TEXT, arch="sm_90", include=tmp_path, cache=cache)
    (tmp_path / "late.h").write_text("")
    artifact = program.compile('#include "late.h"\n' + TEXT, arch="sm_90", include=tmp_path, cache=cache)
    assert outcome(artifact) is Outcome.MADE


def test_deleted_include_directory_is_refused_despite_a_hit(tree: Path, root: Path) -> None:
    of_tree(tree, root)
    shutil.rmtree(tree / "first")
    for cache in (Cache(root), False):
        with raises(OptionError, "option", "first"):
            program.compile(tree / "s.cu", arch="sm_80", include=[tree / "first", tree / "second"], cache=cache)


def test_request_without_a_key_is_compiled_and_says_why(root: Path) -> None:
    cache = Cache(root)
    artifact = program.compile("// __TIME__\nconst char* const at = __TIME__;\n" + TEXT, arch="sm_90", cache=cache)
    assert artifact.provenance is not None
    assert (outcome(artifact), artifact.provenance.why()) == (Outcome.UNCACHED, None)
    assert "__TIME__" in artifact.provenance.reason
    assert artifact.provenance.make_ms > 0
    assert cache.counters.makes == 0


def test_provenance_is_copied_but_not_compared(root: Path) -> None:
    made, hit = (program.compile(TEXT, arch="sm_90", cache=Cache(root)) for _ in range(2))
    assert made == hit
    assert hash(made) == hash(hit)
    assert "provenance" not in repr(made)
    for again in (pickle.loads(pickle.dumps(hit)), copy.deepcopy(hit), copy.copy(hit)):
        assert (again, outcome(again)) == (hit, Outcome.DISK)
    assert Artifact.of(made.data).provenance is None


def test_environment_names_root_read_only_roots_and_cap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roots = [tmp_path / name for name in ("one", "two", "mine")]
    program.compile(TEXT, arch="sm_80", cache=Cache(roots[0]))
    for place in roots[:2]:
        program.compile(TEXT, arch="sm_90", cache=Cache(place))
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(roots[2]))
    monkeypatch.setenv("CUJIT_CACHE_ROOTS", os.pathsep.join(map(str, reversed(roots[:2]))))
    monkeypatch.setenv("CUJIT_CACHE_BYTES", "1.5MiB")
    cache = default_cache()
    assert cache.budget is not None
    assert cache.budget.cap_bytes == 3 << 19
    found = [program.compile(TEXT, arch=arch).provenance for arch in ("sm_80", "sm_90", "sm_100")]
    assert [p.root for p in found if isinstance(p, Provenance)] == roots[:1] + roots[1:2] + roots[2:]
    assert default_cache() is cache
    assert (cache.counters.disk_hits, cache.counters.makes) == (2, 1)
    assert outcome(program.compile(TEXT, arch="sm_100")) is Outcome.MEMORY


def test_cache_can_be_turned_off(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program.compile(TEXT, arch="sm_90", cache=Cache(root))
    off = program.compile(TEXT, arch="sm_90", cache=False)
    assert off.provenance is not None
    assert (outcome(off), off.provenance.reason) == (Outcome.UNCACHED, "cache=False")
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(root))
    monkeypatch.setenv("CUJIT_CACHE", "0")
    off = program.compile(TEXT, arch="sm_90")
    assert off.provenance is not None
    assert off.provenance.reason == "CUJIT_CACHE is off"
    assert default_cache().stores == ()
    assert outcome(program.compile(TEXT, arch="sm_90", cache=Cache(root))) is Outcome.DISK


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("CUJIT_CACHE", "maybe", ("CUJIT_CACHE", "maybe", "0")),
        ("CUJIT_CACHE_BYTES", "much", ("CUJIT_CACHE_BYTES", "much")),
    ],
)
def test_invalid_variable_is_reported(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: tuple[str, ...]
) -> None:
    monkeypatch.setenv(name, value)
    with raises(OptionError, "environment-value", *message):
        program.compile(TEXT, arch="sm_90")
    program.compile(TEXT, arch="sm_90", cache=False)


def test_invalid_cache_is_reported() -> None:
    with raises(OptionError, "option", "cujit.Cache"):
        program.compile(TEXT, arch="sm_90", cache="/tmp/cache")  # type: ignore[arg-type]


def test_threads_compile_once(root: Path) -> None:
    cache = Cache(root)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: program.compile(TEXT, arch="sm_90", cache=cache), range(16)))
    assert cache.counters.makes == 1
    assert len(set(made)) == 1


def test_unwritable_cache_warns_once_with_right_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "file"))
    with pytest.warns(CacheWarning) as told:
        made = program.compile(TEXT, arch="sm_80")
    program.build(TEXT, ["sm_80", "sm_90"])  # a second warning would be an error here
    assert len(told) == 1
    assert outcome(made) is Outcome.UNCACHED
    assert made == program.compile(TEXT, arch="sm_80", cache=False)


def test_jit_uses_the_cache(cpu: Device, root: Path) -> None:
    first, second = Cache(root), Cache(root)
    for cache in (first, second):
        module = loading.jit(TEXT, device=cpu, cache=cache)
        x = cpu.array(np.zeros(1, np.float32))
        module["k"][1, 1](x)
        assert x.numpy().tolist() == [1.0]
    assert (first.counters.makes, second.counters.makes, second.counters.disk_hits) == (1, 0, 1)


_WARM = """
import sys
from cujit import program
from cujit.program import Source
import llvm_ir
outcomes = []
def got(artifact):
    outcomes.append(artifact.provenance.outcome.value)
    return artifact
text = '#include <vector_types.h>\\nextern "C" __global__ void k(int2* x) { x->x = 1; }'
cubin = got(program.compile(text, arch="sm_90"))
got(program.compile(text))
ltoir = [got(program.compile(text, arch=arch)) for arch in ("lto_90", "lto_80")]
got(program.link(ltoir[:1], arch="sm_90"))
got(program.build(text, ["sm_80", "compute_80"]))
got(program.bundle([cubin, *ltoir]))
got(program.compile(Source.nvvm(llvm_ir.kernel_that_calls("f"), llvm_ir.SINE, libdevice=True), arch="sm_90"))
with open("/proc/self/maps") as maps:
    opened = {line.split(maxsplit=5)[5].strip().rpartition("/")[2] for line in maps if ".so" in line}
heavy = [name for name in ("numpy", "llvmlite", "cuda.bindings", "concurrent.futures.process") if name in sys.modules]
print(*sorted(set(outcomes)), *(n for n in opened if n.startswith(("libnv", "libcuda", "libllvm"))), *heavy)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="reads /proc/self/maps")
def test_warm_process_hits_without_opening_a_library(root: Path, tmp_path: Path) -> None:
    def run() -> list[str]:
        return printed(_WARM, environment={"CUJIT_CACHE_DIR": str(root)}, cwd=tmp_path).split()

    assert {"made", "cuda.bindings"} < set(run())
    assert run() == ["disk"]
