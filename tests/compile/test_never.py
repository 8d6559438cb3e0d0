"""Where compiling is forbidden, what is there is found without any tool, and what is not is an error that helps."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import cujit
from cujit.cache import admin
from cujit.cache.cache import Cache
from cujit.cache.pack import write_pack
from cujit.cache.provenance import Provenance
from cujit.cache.settings import Compiling
from cujit.errors import CompileWarning, NotCompiledError, OptionError
from cujit.toolchain.libraries import find_library, library_path
from llvm_ir import SCALE
from raising import raises

CODE = '#include <cuda_fp16.h>\nextern "C" __global__ void k(float *x) { x[threadIdx.x] = VALUE; }\n'
OTHER = CODE.replace("VALUE", "VALUE + 1")
VALUE = {"define": {"VALUE": "3"}}


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pack with a kernel as PTX and as machine code, and one of LLVM IR."""
    folder = tmp_path_factory.mktemp("never")
    cache = Cache(folder / "cache")
    for arch in ("compute_80", "sm_90"):
        cujit.compile(CODE, arch=arch, cache=cache, options=VALUE)
    cujit.compile(cujit.Source.nvvm(SCALE), arch="compute_80", cache=cache)
    write_pack(folder / "kernels.pack", cache.stores)
    return folder / "kernels.pack"


def never(pack: Path, mode: str = "never") -> Cache:
    return Cache(None, read_only=[pack], compile=mode)


def test_existing_image_is_found_and_others_name_the_nearest(pack: Path) -> None:
    cache = never(pack)
    found = cujit.compile(CODE, arch="sm_90", cache=cache, options=VALUE)
    assert isinstance(found.provenance, Provenance)
    assert (found.kind.value, found.provenance.root) == ("cubin", pack)
    with pytest.raises(NotCompiledError) as missed:
        cujit.compile(CODE, arch="sm_90", cache=cache, define={"VALUE": "4"})
    assert "argument: --define-macro=VALUE=3 -> --define-macro=VALUE=4" in str(missed.value.nearest)
    assert str(missed.value.nearest).splitlines()[0] in str(missed.value)
    assert (missed.value.searched, str(pack) in str(missed.value)) == ((str(pack),), True)
    assert cache.counters.makes == 0


@pytest.mark.parametrize("cache", [False, None])
def test_without_a_cache_everything_is_an_error(cache: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_COMPILE", "never")
    monkeypatch.setenv("CUJIT_CACHE", "0")
    with raises(NotCompiledError, "not-compiled", "nothing"):
        cujit.compile(CODE, cache=cache)


def test_request_without_a_key_is_an_error_that_says_why(pack: Path) -> None:
    with raises(NotCompiledError, "not-compiled", "__TIME__"):
        cujit.compile("__global__ void k(const char **p) { *p = __TIME__; }", cache=never(pack))


def test_other_tools_are_forbidden_too_but_packing_is_not(pack: Path) -> None:
    cache = never(pack)
    found = cujit.compile(CODE, arch="sm_90", cache=cache, options=VALUE)
    with raises(NotCompiledError, "not-compiled", "nvJitLink", "link"):
        cujit.link([found], cache=cache)
    assert cujit.compile(cujit.Source.nvvm(SCALE), arch="compute_80", cache=cache).kind.value == "ptx"
    with raises(NotCompiledError, "not-compiled", "libNVVM", "compile"):
        cujit.compile(cujit.Source.nvvm(SCALE), arch="compute_90", cache=cache)
    with raises(NotCompiledError, "not-compiled", "source.cu"):
        cujit.build(CODE, ["sm_80", "sm_89"], cache=cache)
    assert cujit.build(CODE, ["sm_90", "compute_80"], cache=cache, options=VALUE).kind.value == "fatbin"


def test_stricter_of_environment_and_cache_holds(pack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_COMPILE", "never")
    with pytest.raises(NotCompiledError):
        cujit.compile(OTHER, cache=never(pack, "warn"), options=VALUE)
    monkeypatch.setenv("CUJIT_COMPILE", "auto")
    with pytest.raises(NotCompiledError):
        cujit.compile(OTHER, cache=never(pack), options=VALUE)


def test_warn_compiles_and_warns_once_per_compile(pack: Path) -> None:
    cache = never(pack, "warn")
    with pytest.warns(CompileWarning, match="nearest entry is source.cu.*\n.*source: ") as warned:
        made = cujit.compile(OTHER, arch="sm_90", cache=cache, options=VALUE)
    assert made.provenance is not None
    assert (made.provenance.outcome.value, len(warned)) == ("uncached", 1)
    assert warned[0].filename == __file__
    cujit.compile(OTHER, arch="sm_90", cache=cache, options=VALUE)  # a warning would be an error


@pytest.mark.parametrize("said", ["Never", "no", "0", "never_jit"])
def test_other_policies_are_refused(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with raises(OptionError, "environment-value", "compile"):
        Cache(None, compile=said)
    monkeypatch.setenv("CUJIT_COMPILE", said)
    with raises(OptionError, "environment-value", "CUJIT_COMPILE"):
        cujit.compile(CODE)
    with raises(OptionError, "environment-value", "CUJIT_COMPILE"):
        cujit.load(".version 8.0\n.target sm_80\n.address_size 64\n", "cpu")
    assert Compiling.from_environment({"CUJIT_COMPILE": ""}) is Compiling.AUTO


def test_entries_are_verified_and_not_recompiled(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    cujit.compile(CODE, arch="sm_90", cache=cache, options=VALUE)
    strict = cujit.program.runner(Cache(tmp_path / "cache", compile="never"))
    assert [verdict.remade for verdict in admin.verify(cache, fraction=1, remake=strict.remake)] == [False]


SCRIPT = """
    import sys
    import numpy as np
    import cujit

    code, value = sys.argv[1:]
    module = cujit.jit(code, device="cpu", arch="compute_80", define={"VALUE": value})
    x = cujit.cpu().zeros(8, "float32")
    module["k"][1, 8](x)
    provenance = module.artifact.provenance
    print(x.numpy().tolist()[7], provenance.root, provenance.outcome.value, module.route)
    names = {line.split("/")[-1].strip() for line in open("/proc/self/maps")}
    print([name for name in names if name.startswith("libnv")])
"""


def run(folder: Path, pack: Path, code: str, value: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CUJIT_COMPILE": "never", "CUJIT_CACHE_DIR": str(folder / "none")}
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), code, value],
        env={**environment, "CUJIT_CACHE_ROOTS": str(pack)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_process_without_hints_opens_no_nvidia_library(pack: Path, tmp_path: Path) -> None:
    found = run(tmp_path, pack, CODE, "3")
    assert found.stdout.splitlines() == [f"3.0 {pack} disk PTX compiled for this processor", "[]"], found
    missed = run(tmp_path, pack, CODE, "4").stderr
    assert "no cache has source.cu for compute_80" in missed
    assert "nor is there anything else that runs here" not in missed  # what it asked for is one architecture


@pytest.mark.parametrize("library", ["nvrtc", "nvvm", "nvJitLink", "nvfatbin"])
def test_library_is_found_at_its_load_path(library: str) -> None:
    found, opened = find_library(library, []), library_path(library)
    assert found is not None
    assert opened is not None
    if "-packages/" in opened:
        assert os.path.realpath(found) == os.path.realpath(opened)
    assert find_library("nvnothing", ["/nowhere"]) is None


def test_library_without_a_number_is_found(tmp_path: Path) -> None:
    place = tmp_path / "nvvm/lib64"
    place.mkdir(parents=True)
    for name in ("libnvmore.so.9", "libnvnothing.so", "libnvnothing.sol"):
        (place / name).touch()
    assert find_library("nvnothing", [str(tmp_path)]) == f"{place}/libnvnothing.so"
