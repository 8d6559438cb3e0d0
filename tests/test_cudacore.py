"""cujit's cache behind ``cuda.core.Program.compile(cache=…)``."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cujit
from cache.samples import artifact_of, key_of
from cujit.cache.cache import Cache
from cujit.errors import CacheWarning, MissingError, OptionError
from cujit.integrations.cuda_core import ProgramCache, program_cache
from raising import raises

CODE = 'extern "C" __global__ void k(int* p) { *p = NUMBER; }'
PTX = b".version 9.1\n.target sm_90\n.address_size 64\n"


@pytest.fixture
def programs(tmp_path: Path) -> ProgramCache:
    """A cache for cuda.core over one that holds an entry of cujit's own."""
    cache = Cache(tmp_path / "cache")
    cache.get_or_make(key_of(1), lambda: artifact_of(1))
    return ProgramCache(cache)


def anew(programs: ProgramCache) -> ProgramCache:
    """The same directory, as another process sees it."""
    assert programs.cache.store is not None
    return ProgramCache(Cache(programs.cache.store.root))


def test_stored_value_is_found_in_this_and_another_process(programs: ProgramCache) -> None:
    programs[b"key"] = PTX
    for there in (programs, anew(programs)):
        assert there["key"] == there[b"key"] == PTX
        assert there.get(b"other") is None
        assert there.get(b"other", b"") == b""
        assert len(there) == 1
        with pytest.raises(KeyError):
            there[b"other"]


def test_damaged_entry_is_missing(programs: ProgramCache, tmp_path: Path) -> None:
    programs[b"key"] = PTX
    for path in (tmp_path / "cache" / "e").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-1] + b"!")
    assert anew(programs).get(b"key") is None


def test_delete_and_clear_keep_what_cujit_compiled(programs: ProgramCache) -> None:
    programs.update({b"a": PTX, b"b": PTX + b"\n"})
    del programs[b"a"]
    assert (programs.get(b"a"), anew(programs).get(b"a"), len(programs)) == (None, None, 1)
    with pytest.raises(KeyError):
        del programs[b"a"]
    programs.update([("c", PTX)])
    programs.clear()
    assert len(programs) == 0
    assert anew(programs).get(b"b") is programs.get(b"c") is None
    assert programs.cache.find(key_of(1)) is not None


def test_last_value_of_a_key_wins_in_every_process(programs: ProgramCache) -> None:
    programs[b"a"] = PTX
    programs[b"a"] = PTX + b"// newer\n"
    assert programs[b"a"] == anew(programs)[b"a"] == PTX + b"// newer\n"
    programs[b"a"] = b""
    assert programs.get(b"a") is anew(programs).get(b"a") is None


def test_deleting_a_key_keeps_others_in_memory(programs: ProgramCache) -> None:
    programs.cache = Cache(None)
    programs.update({b"a": PTX, b"b": PTX})
    del programs[b"a"]
    assert (programs.get(b"a"), programs.get(b"b")) == (None, PTX)


def test_key_that_is_not_utf8_is_missing(programs: ProgramCache) -> None:
    assert programs.get("\udcff") is None


def test_cache_of_the_wrong_type_is_refused() -> None:
    with raises(OptionError, "option", "cujit.Cache"):
        program_cache("cache")  # type: ignore[arg-type]


def test_values_may_be_object_codes_and_files(programs: ProgramCache, tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_bytes(PTX)
    programs["file"] = SimpleNamespace(code=str(tmp_path / "k.ptx"), name="k")
    programs["bytes"] = SimpleNamespace(code=bytearray(PTX))
    programs["view"] = memoryview(PTX)
    assert programs["file"] == programs["bytes"] == programs["view"] == PTX


@pytest.mark.parametrize("wrong", ["text", 1, None, SimpleNamespace(code=3)], ids=["text", "int", "none", "object"])
def test_invalid_value_is_a_type_error(programs: ProgramCache, wrong: object) -> None:
    with pytest.raises(TypeError, match="bytes or an ObjectCode"):
        programs[b"key"] = wrong


@pytest.mark.parametrize("key", [7, None], ids=["int", "none"])
def test_key_is_bytes_or_text(programs: ProgramCache, key: Any) -> None:
    with pytest.raises(TypeError, match="a key must be bytes or str"):
        programs.get(key)
    with pytest.raises(TypeError, match="a key must be bytes or str"):
        programs[key] = b"no image"


@pytest.mark.parametrize("data", [b"", b"no image"], ids=["empty", "text"])
def test_invalid_image_is_not_stored_without_an_error(programs: ProgramCache, data: bytes) -> None:
    programs[b"key"] = data
    assert programs.get(b"key") is None


def test_unwritable_directory_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    programs = ProgramCache(Cache(tmp_path / "file" / "cache"))
    with pytest.warns(CacheWarning):
        programs[b"key"] = PTX
    assert programs[b"key"] == PTX  # this process remembers
    assert len(programs) == 0
    programs.clear()
    assert programs.get(b"key") is None


def test_directory_writable_by_others_is_empty(programs: ProgramCache, tmp_path: Path) -> None:
    programs[b"key"] = PTX
    (tmp_path / "cache").chmod(0o777)
    there = anew(programs)
    assert len(there) == 0
    there.clear()
    with pytest.warns(CacheWarning, match="writable by everyone"):
        assert there.get(b"key") is None


def test_missing_cuda_core_is_reported_with_an_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.core.utils", None)
    with raises(MissingError, "missing", "cuda.core") as error:
        program_cache()
    assert error.value.help == "run pip install 'cuda-core>=1.2'"


# With the real cuda.core


@pytest.fixture
def core() -> Any:
    found = pytest.importorskip("cuda.core")
    if not hasattr(pytest.importorskip("cuda.core.utils"), "ProgramCacheResource"):
        pytest.skip("cuda.core is older than 1.2")
    return found


def test_cuda_core_accepts_the_cache_of_the_environment(
    core: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert core.Program
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "mine"))
    abstract = importlib.import_module("cuda.core.utils").ProgramCacheResource
    with program_cache() as programs:
        assert isinstance(programs, abstract)
        assert {name for name, thing in vars(abstract).items() if callable(thing)} <= set(dir(ProgramCache))
        programs[b"key"] = PTX
    assert os.listdir(tmp_path / "mine" / "e") != []


# Of PTX, cuda.core asks the driver whether it could load it.
@pytest.mark.parametrize("target", ["cubin", pytest.param("ptx", marks=pytest.mark.gpu), "ltoir"])
def test_program_compile_finds_another_processs_result(
    core: Any, tmp_path: Path, target: str, request: pytest.FixtureRequest
) -> None:
    if target == "ptx":
        request.getfixturevalue("gpu")

    def compiled(number: int) -> tuple[bytes, ProgramCache]:
        programs = program_cache(Cache(tmp_path / "cache"))
        more = {"link_time_optimization": True} if target == "ltoir" else {}
        arch = "compute_90" if target == "ptx" else "sm_90"
        options = core.ProgramOptions(arch=arch, define_macro=f"NUMBER={number}", **more)
        code = core.Program(CODE, "c++", options).compile(target, cache=programs).code
        return code, programs

    first, cold = compiled(1)
    again, warm = compiled(1)
    other, _ = compiled(2)
    assert first == again != b""
    assert first != other
    assert (cold.cache.counters.disk_hits, cold.cache.counters.written_bytes > 0) == (0, True)
    assert (warm.cache.counters.disk_hits, warm.cache.counters.written_bytes) == (1, 0)
    assert len(warm) == 2


def test_modules_are_converted_in_both_directions() -> None:
    code = pytest.importorskip("cuda.core").ObjectCode
    ptx, cubin = (cujit.compile(CODE, arch=arch, options={"define": {"NUMBER": 7}}) for arch in ("compute_90", "sm_90"))
    assert code.from_cubin(cubin.data).code == cubin.data
    number = np.zeros(1, np.int32)
    cujit.load(code.from_ptx(ptx.data).code, "cpu")["k"][1, 1](number)
    assert number[0] == 7
