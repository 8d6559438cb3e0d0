"""The registry and the cache: what is kept by content, what by name and version, and for whom."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

from cujit.cache.admin import ls
from cujit.cache.cache import Cache
from cujit.cache.process import default_cache
from cujit.compiler.keys.recipe import read_recipe
from cujit.devices.device import Device
from cujit.errors import CacheWarning, OptionError
from cujit.program import Source, compile
from cujit.registry.registry import Registry
from cujit.registry.spec import ModuleSpec
from llvm_ir import module as llvm_module
from processes import printed
from raising import raises
from registering import TIMES, Builder, value, writes


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own."""
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_version_saves_the_builder_call_in_another_process(cpu: Device) -> None:
    calls = []

    def builder() -> tuple[str, list[str]]:
        calls.append(1)
        return TIMES, ["times<int, 5>"]

    first = Registry().module("times", builder, device=cpu, version="1.0")
    second = Registry().module("times", builder, device=cpu, version="1.0")
    assert calls == [1]
    assert first.key == second.key
    assert second.built is None
    assert second.source is None
    x = cpu.array(np.ones(3, np.int32))
    second["times<int, 5>"].over(3)(x, 3)
    assert x.numpy().tolist() == [5, 5, 5]


def test_missing_version_calls_the_builder_without_compiling(cpu: Device, root: Path) -> None:
    cache = Cache(root)
    builder = Builder(writes(1))
    for _ in range(2):
        Registry().module("k", builder, device=cpu, cache=cache)
    assert builder.calls == 2
    assert cache.counters.makes == 1


PROCESS = """
import sys
import cujit
def builder():
    if sys.argv[1] not in {"one", "two", "three"}:  # the order is another one in each process
        print("called")
    return TEXT
got = cujit.module("k", builder, device="cpu", version=sys.argv[1])
print(got.key, *got.names)
"""


def test_second_process_finds_the_module_by_its_name() -> None:
    code = PROCESS.replace("TEXT", repr(writes(1)))

    def run(version: str) -> list[str]:
        return printed(code, version).splitlines()

    called, found = run("1")
    assert called == "called"
    assert run("1") == [found]


@pytest.mark.parametrize("what", ["version", "options", "name", "captured", "cache"])
def test_named_entry_belongs_to_one_version_and_build_method(what: str, cpu: Device, tmp_path: Path) -> None:
    calls: list[int] = []

    def ask(name: str = "k", version: str = "1", n: int = 1, fast: bool = False, where: str = "one") -> int:
        def builder() -> str:
            calls.append(n)
            return writes(n)

        options = {"use_fast_math": fast}
        cache = Cache(tmp_path / where)
        return value(Registry().module(name, builder, device=cpu, version=version, options=options, cache=cache)["k"])

    assert ask() == ask() == 1
    assert calls == [1]
    other = {"version": "2", "options": True, "name": "j", "captured": 2, "cache": "two"}
    key = {"options": "fast", "captured": "n", "cache": "where"}.get(what, what)
    assert ask(**{key: other[what]}) == (2 if what == "captured" else 1)  # type: ignore[arg-type]
    assert len(calls) == 2


def test_named_entry_belongs_to_one_include_directory(cpu: Device, tmp_path: Path) -> None:
    builder = Builder('#include "n.h"\nextern "C" __global__ void k(int* p) { *p = N; }')
    for n in (1, 2):
        (tmp_path / f"{n}").mkdir()
        (tmp_path / f"{n}" / "n.h").write_text(f"#define N {n}\n")
        options = {"include": [str(tmp_path / f"{n}")]}
        assert value(Registry().module("k", builder, device=cpu, version="1", options=options)["k"]) == n


def test_named_entry_belongs_to_one_compiler(cpu: Device, monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    builder = Builder(writes(1))
    Registry().module("k", builder, device=cpu, version="1", cache=Cache(root))
    monkeypatch.setenv("NV_NVVM_VERSION", "1")  # a part of every compile's key
    Registry().module("k", builder, device=cpu, version="1", cache=Cache(root))
    assert builder.calls == 2


def test_named_entry_belongs_to_one_cujit(cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = Builder(writes(1))
    Registry().module("k", builder, device=cpu, version="1")
    monkeypatch.setattr(sys.modules[Registry.__module__], "__version__", "next")
    Registry().module("k", builder, device=cpu, version="1")
    assert builder.calls == 2


def test_shipped_image_is_found_by_name(cpu: Device) -> None:
    image = compile(writes(9), to="ptx").data
    builder = Builder(image, {"nine": "k"})
    first, second = (Registry().module("k", builder, device=cpu, version="1") for _ in range(2))
    assert value(first["nine"]) == value(second["nine"]) == 9
    assert builder.calls == 1
    assert first.key == second.key is not None


def test_check_finds_changes_without_a_new_version(cpu: Device) -> None:
    Registry().module("k", Builder(writes(1)), device=cpu, version="1")
    changed = Builder(writes(2))
    assert value(Registry().module("k", changed, device=cpu, version="1")["k"]) == 1  # as the version says
    with raises(OptionError, "option", "1", "cujit.default_registry().forget(name)"):
        Registry().module("k", changed, device=cpu, version="1", check=True)
    same = Builder(writes(1))
    Registry().module("k", same, device=cpu, version="1", check=True)
    assert same.calls == 1


def test_check_finds_other_names_of_the_same_image(cpu: Device) -> None:
    image = compile(writes(9), to="ptx").data
    Registry().module("k", Builder(image, {"nine": "k"}), device=cpu, version="1")
    with raises(OptionError, "option", "1", "cujit.default_registry().forget(name)"):
        Registry().module("k", Builder(image, {"neuf": "k"}), device=cpu, version="1", check=True)


def test_source_is_compared_with_the_cached_one(cpu: Device) -> None:
    builder = Builder(writes(1))
    Registry().module("k", builder, device=cpu, version="1")
    modules = Registry()
    found = modules.module("k", builder, device=cpu, version="1")
    with raises(OptionError, "option", "1", "cujit.default_registry().forget(name)"):
        modules.module("k", ModuleSpec(writes(2)), device=cpu)
    assert modules.module("k", ModuleSpec(writes(1)), device=cpu) is found
    assert builder.calls == 1
    assert found.source is not None


def test_uncacheable_module_is_not_stored_by_name(cpu: Device) -> None:
    text = 'extern "C" __global__ void k(const char** p) { *p = __TIME__; }'
    builder = Builder(text)
    for _ in range(2):
        got = Registry().module("k", builder, device=cpu, version="1")
        assert got.key is None
    assert builder.calls == 2


def test_substitute_image_is_not_stored_by_name(cpu: Device, root: Path) -> None:
    compile(writes(1), arch="compute_80", cache=Cache(root))
    found = Registry().module("k", Builder(writes(1)), device=cpu, version="1", cache=Cache(root, compile="never"))
    assert str(found.module.artifact.arch) == "compute_80"
    made = Registry().module("k", Builder(writes(1)), device=cpu, version="1", cache=Cache(root))
    assert str(made.module.artifact.arch) == f"{cpu.arch.virtual}a"


def test_llvm_ir_is_stored_only_by_content(cpu: Device, root: Path) -> None:
    ir = llvm_module("define float @thrice(float %x) {\n  %y = fmul float %x, 3.0\n  ret float %y\n}\n")
    cache = Cache(root)
    builder = Builder(Source.nvvm(ir))
    for _ in range(2):
        got = Registry().module("ir", builder, device=cpu, version="1", options={"rdc": True}, cache=cache)
        assert got.key is not None
    assert builder.calls == 2
    assert cache.counters.makes == 1


@pytest.mark.usefixtures("root")
def test_without_a_cache_nothing_is_stored(cpu: Device) -> None:
    builder = Builder(writes(1))
    for _ in range(2):
        assert Registry().module("k", builder, device=cpu, version="1", cache=False).key is None
    assert builder.calls == 2
    # Machine code of the CPU device is kept whatever `cache=` says; nothing that NVIDIA's tools made is.
    made = [entry.summary.work for entry in ls(default_cache()) if entry.summary]
    assert all(step.startswith(("cpu ", "launcher")) for step in made)


@pytest.mark.skipif(os.getuid() == 0, reason="root writes everywhere")
def test_unwritable_cache_is_no_failure(cpu: Device, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.warns(CacheWarning, match="can't use its cache directory, and continues without it"):
        assert value(Registry().module("k", lambda: writes(1), device=cpu, version="1")["k"]) == 1


@pytest.mark.parametrize("version", ["1", None], ids=["by-name", "by-content"])
def test_generated_source_can_be_looked_at_later(version: str | None, cpu: Device, root: Path) -> None:
    got = Registry().module("k", lambda: writes(11), device=cpu, version=version)
    assert got.key is not None
    store = Cache(root).store
    assert store is not None
    record = store.get(got.key).record
    assert record is not None
    assert read_recipe(record.recipe).source.text == writes(11)
    assert got.source == Source.cuda(writes(11))
