"""Parts that are compiled once to LTO-IR and linked again and again: in caches, packs, fatbins and the registry."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cujit
from cujit.cache.admin import ls
from cujit.cache.cache import Cache
from cujit.cache.pack import write_pack
from cujit.errors import NotCompiledError
from cujit.formats.fatbin import read_fatbin
from cujit.registry.registry import Registry
from cujit.toolchain.toolset import Toolchain

LIBRARY = """
extern "C" __device__ float op(float);
extern "C" __global__ void apply(float *x) { x[threadIdx.x] = op(x[threadIdx.x]); }
"""
OPERATOR = 'extern "C" __device__ float op(float x) {{ return {}; }}'


@pytest.fixture(autouse=True)
def needs_links_to_ltoir(toolchain: Toolchain) -> None:
    if toolchain.nvjitlink.version < (13, 4):
        pytest.skip("nvJitLink 13.4 is the first that links to LTO-IR")


def linked(body: str, cache: Cache, arch: str = "sm_90") -> cujit.Artifact:
    """Link an operator into the library in two steps, as a program does that has many of them."""
    library = cujit.compile(LIBRARY, to="ltoir", arch="lto_80", names=["apply"], cache=cache)
    fragment = cujit.link([library], to="ltoir", cache=cache)
    return cujit.link([fragment, cujit.Source.cuda(OPERATOR.format(body), name="op.cu")], arch=arch, cache=cache)


def test_each_step_is_cached_and_only_the_operator_recompiled(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    first = linked("x / 2", cache)
    assert cache.counters.makes == 4  # the library, its fragment, the operator, the link
    assert linked("x / 2", cache) == first
    assert cache.counters.makes == 4
    assert linked("x + 1", cache) != first
    assert cache.counters.makes == 6
    assert {entry.summary.kind for entry in ls(cache) if entry.summary} == {
        cujit.ImageKind.LTOIR,
        cujit.ImageKind.CUBIN,
    }


def test_pack_answers_every_step_if_compiling_is_forbidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path / "cache")
    first = linked("x / 2", cache)
    assert cache.store is not None
    write_pack(tmp_path / "fragments.pack", [cache.store])
    monkeypatch.setenv("CUJIT_COMPILE", "never")
    packed = Cache(tmp_path / "new", read_only=[tmp_path / "fragments.pack"])
    again = linked("x / 2", packed)
    assert (again.data, again.names, again.log) == (first.data, first.names, "")  # packs have no logs
    with pytest.raises(NotCompiledError):
        linked("x + 1", packed)


def test_fragment_becomes_a_fatbin_with_its_own_ltoir(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    fragment = cujit.link([cujit.compile(LIBRARY, to="ltoir", arch="lto_80", cache=cache)], to="ltoir", cache=cache)
    operator = cujit.Source.cuda(OPERATOR.format("x / 2"), name="op.cu")
    fatbin = cujit.build([fragment, operator], ["sm_80", "sm_90", "compute_90", "lto_80"], cache=cache)
    assert {str(entry.arch) for entry in read_fatbin(fatbin.data)} == {"sm_80", "sm_90", "compute_90", "lto_80"}


def test_registry_links_an_operator_once_for_all_processes(tmp_path: Path) -> None:
    cache, calls, device = Cache(tmp_path), list[str](), cujit.cpu()

    def halved() -> cujit.Artifact:
        calls.append("halved")
        library = cujit.compile(LIBRARY, to="ltoir", arch=device.arch.lto, names=["apply"], cache=cache)
        return cujit.link([library, cujit.Source.cuda(OPERATOR.format("x / 2"))], device=device, cache=cache)

    for _ in range(2):  # a registry of its own is what another process has
        module = Registry().module("library halved", halved, device=device, version="1", cache=cache)
        x = device.array(np.arange(32, dtype=np.float32))
        module["apply"][1, 32](x)
        np.testing.assert_array_equal(x.numpy(), np.arange(32, dtype=np.float32) / 2)
    assert calls == ["halved"]
