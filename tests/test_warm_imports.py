"""A process with a warm cache imports what it runs, and nothing that only a compile, a link or another device needs."""

from __future__ import annotations

import base64
import hashlib
import os
from pathlib import Path

import pytest

import cujit
from cujit.cache.pack import write_pack
from cujit.program import runner
from processes import printed

SOURCE = 'extern "C" __global__ void ramp(float a, float* y, int n) { int i = threadIdx.x; if (i < n) y[i] = a * i; }'
WITH_A_HEADER = f'#include "own.h"\n{SOURCE}'

COMPILERS = (
    "cujit.compiler.build",
    "cujit.compiler.backends.bundle",
    "cujit.compiler.backends.link",
    "cujit.compiler.backends.nvrtc",
    "cujit.compiler.backends.nvvm",
    "cujit.compiler.keys.recipe",
    "cujit.compiler.image_jobs",
    "cujit.compiler.linking",
    "cujit.toolchain.calls",
    "cujit.toolchain.nvfatbin",
    "cujit.toolchain.nvjitlink",
    "cujit.toolchain.nvrtc",
    "cujit.toolchain.nvvm",
    "cujit.toolchain.std_headers",
    "cujit.toolchain.process_state",
    "cuda.bindings.nvjitlink",
    "cuda.bindings.nvrtc",
    "cuda.bindings.nvvm",
    "cuda.pathfinder",
    "difflib",
)
"""What makes images; a hit of the cache needs none of it."""

SCANNERS = tuple(
    f"cujit.compiler.includes.{name}" for name in ("closure", "directives", "macros", "has_include", "search")
)
"""What follows includes; where none changed, stats tell."""

READERS = (
    "cujit.formats.cubin",
    "cujit.formats.cxx_types",
    "cujit.formats.fatbin",
    "cujit.formats.itanium",
    "cujit.formats.ptx.parser",
    "lz4",
    "zstandard",
)
"""What reads images and lowered names."""

UNNEEDED = (
    "ast",
    "base64",
    "copy",
    "csv",
    "cujit.cache.admin",
    "cujit.cache.packaged",
    "cujit.cache.remote",
    "cujit.compiler.isolation",
    "cujit.compiler.inputs.entry",
    "cujit.compiler.inputs.images",
    "cujit.farm",
    "cujit.worklist",
    "dataclasses",
    "dis",
    "glob",
    "importlib.metadata",
    "inspect",
    "json",
    "random",
    "shutil",
    "string",
    "subprocess",
    "tempfile",
    "typing",
)
"""What a hit has no work for, and what takes a tenth of a millisecond or more to be imported."""

FOR_HEADERS = ("pathlib", "re", "urllib.parse")
"""What looks after headers; where nothing is included, a hit has no work for them either."""

DEVICES = ("cujit.devices", "cujit.kernel", "ctypes", "numpy", "llvmlite")


def _imported(root: Path, code: str) -> set[str]:
    """Run code twice over one cache, and give the modules that the second process has at its end."""
    program = f"{code}\nimport sys; print(*sys.modules)"
    for _ in range(2):
        text = printed(program, environment={"CUJIT_CACHE_DIR": str(root / "cache")}, cwd=root)
    return set(text.splitlines()[-1].split())


def _hit(source: str, include: str = "()") -> str:
    return f"""
import cujit
made = cujit.compile(cujit.Source.cuda({source!r}, name="ramp.cu", include={include}), arch="sm_90")
print(made.provenance.outcome)
"""


def test_hit_imports_no_compiler_reader_or_device(tmp_path: Path) -> None:
    found = _imported(tmp_path, _hit(SOURCE))
    assert found & {*COMPILERS, *SCANNERS, *READERS, *DEVICES, *UNNEEDED, *FOR_HEADERS, "importlib.util"} == set()
    assert "cujit.cache.cache" in found


def test_hit_with_unchanged_headers_scans_nothing(tmp_path: Path) -> None:
    (tmp_path / "own.h").write_text("#pragma once\n")
    os.utime(tmp_path / "own.h", (1, 1))
    found = _imported(tmp_path, _hit(WITH_A_HEADER, "('.',)"))
    assert found & {*COMPILERS, *READERS, *DEVICES, *UNNEEDED} == set()


def test_hit_of_a_pack_imports_no_more_modules(tmp_path: Path) -> None:
    (tmp_path / "site-packages/own-1.dist-info").mkdir(parents=True)
    header = tmp_path / "site-packages/own/own.h"
    header.parent.mkdir()
    header.write_text("#pragma once\n")
    digest = base64.urlsafe_b64encode(hashlib.sha256(header.read_bytes()).digest()).decode().rstrip("=")
    record = tmp_path / "site-packages/own-1.dist-info/RECORD"
    record.write_text(f"own/own.h,sha256={digest},{header.stat().st_size}\n")
    made = cujit.Cache(tmp_path / "made")
    source = cujit.Source.cuda(WITH_A_HEADER, name="ramp.cu", include=header.parent)
    cujit.compile(source, arch="sm_90", cache=made)
    requests, closures = runner(made).answers(made.stores)
    write_pack(tmp_path / "own.pack", made.stores, requests=requests, closures=closures)
    text = printed(
        f"""
        import cujit, pathlib, sys
        from cujit.compiler.includes import files
        files.TOO_NEW_NS = 0
        cache = cujit.Cache(None, read_only=[pathlib.Path("own.pack")], compile="never")
        source = cujit.Source.cuda({WITH_A_HEADER!r}, name="ramp.cu", include={str(header.parent)!r})
        print(cujit.compile(source, arch="sm_90", cache=cache).provenance.headers)
        print(*sys.modules)
        """,
        cwd=tmp_path,
    )
    how, modules = text.splitlines()
    assert how == "request table"
    assert set(modules.split()) & {*COMPILERS, *SCANNERS, *READERS, *DEVICES, *UNNEEDED} == set()


def test_notebook_extension_imports_no_ipython_by_itself() -> None:
    brought = "import sys; print(*(n for n in sys.modules if n.startswith(('cujit.', 'click', 'IPython'))))"
    assert printed(f"import cujit; {brought}").split() == ["cujit.version"]
    modules = printed(f"import cujit.notebook.magic; {brought}").split()
    assert "cujit.notebook.displays" in modules
    assert {*modules} & {*COMPILERS, "IPython", "llvmlite"} == set()


def _launch(device: str, calls: int) -> str:
    return f"""
import cujit
device = cujit.{device}()
y = device.zeros(32, "float32")
for _ in range({calls}):
    cujit.jit({SOURCE!r}, device=device)["ramp"][1, 32](2.0, y, 32)
assert y.numpy()[-1] == 62.0
"""


def test_cpu_launch_imports_no_gpu_or_compiler_modules(tmp_path: Path) -> None:
    found = _imported(tmp_path, _launch("cpu", 1))
    heavy = {"cujit.devices.cuda.backend", "cujit.devices.cuda.stream"}
    if os.uname().machine == "x86_64":  # elsewhere LLVM's loader puts machine code into memory
        heavy |= {"llvmlite", "llvmlite.binding"}
    assert found & {*COMPILERS, *SCANNERS, *heavy, "cuda.bindings.driver", "cujit.formats.cubin"} == set()


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
def test_first_gpu_launch_imports_no_llvm_or_compiler(tmp_path: Path) -> None:
    found = _imported(tmp_path, _launch("gpu", 1))
    heavy = {"cujit.devices.cpu", "cujit.devices.cuda.linker", "llvmlite"}
    compilers = {name for name in COMPILERS if name.startswith("cujit")}  # cuda.bindings brings some of its own
    assert found & {*compilers, *SCANNERS, *heavy, "cujit.formats.ptx.parser", "lz4", "zstandard"} == set()
