"""A process whose kernels are in the cache launches them on the CPU device without LLVM, however it comes by them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

import cujit
from cujit.cache.pack import write_pack
from cujit.emulator.environment import environment_of
from cujit.emulator.settings import EmulatorSettings
from processes import printed

pytestmark = pytest.mark.skipif(
    os.uname().machine != "x86_64", reason="on other processors LLVM's loader puts machine code into memory"
)

_RAMP = 'extern "C" __global__ void k(float a, float* y) { y[threadIdx.x] = a * threadIdx.x; }'

_KERNELS = {
    "plain": _RAMP,
    "shared": 'extern "C" __global__ void k(float a, float* y) { __shared__ float s[32]; '
    "s[threadIdx.x] = a * threadIdx.x; __syncthreads(); y[threadIdx.x] = s[31 - (31 - threadIdx.x)]; }",
    "function": "__device__ __noinline__ float times(float a, int n) { return n ? a + times(a, n - 1) : 0; }"
    'extern "C" __global__ void k(float a, float* y) { y[threadIdx.x] = times(a, threadIdx.x); }',
    "printf": '#include <cstdio>\nextern "C" __global__ void k(float a, float* y) '
    '{ y[threadIdx.x] = a * threadIdx.x; if (threadIdx.x == 31) printf("%d\\n", 31); }',
    "warp": 'extern "C" __global__ void k(float a, float* y) '
    "{ y[threadIdx.x] = __shfl_sync(~0u, a * threadIdx.x, threadIdx.x); }",
    "heap": 'extern "C" __global__ void k(float a, float* y) { float* p = (float*)malloc(4); *p = a * threadIdx.x; '
    "y[threadIdx.x] = *p; free(p); }",
    "division": 'extern "C" __global__ void k(float a, float* y) '
    "{ long long n = threadIdx.x; y[threadIdx.x] = (n * n / (n + (n == 0))) * a; }",
}

_READY = "import cujit\nfrom pathlib import Path\ndevice = cujit.cpu()\ny = device.zeros(32, 'float32')\n"
_LAUNCH = "\nkernel[1, 32](2.0, y)\nassert y.numpy()[-1] == 62.0, y.numpy()"

_WAYS = {
    "jit": "kernel = cujit.jit(SOURCE, device=device)['k']",
    "template": "kernel = cujit.jit('template <class T>' + SOURCE[10:].replace('float', 'T'), names=['k<float>'], "
    "device=device)['k<float>']",
    "file": "kernel = cujit.load(Path('k.ptx'), device)['k']",
    "fatbin": "kernel = cujit.load(Path('k.fatbin'), device)['k']",
    "registry": "kernel = cujit.module('k', lambda: cujit.ModuleSpec(SOURCE), device=device)['k']",
    "threads": "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(4) as pool:\n"
    "    *_, kernel = pool.map(lambda _: cujit.jit(SOURCE, device=device)['k'], range(8))",
    "own name": "kernel = cujit.jit(SOURCE, device='cpu')['k']",
    "prepared": "kernel = cujit.jit(SOURCE, device=device)['k']\nkernel.prepare(1, 32)(2.0, y)",
    "in a stream": "kernel = cujit.jit(SOURCE, device=device)['k']\n"
    "kernel.prepare(1, 32, stream=device.stream())(2.0, y)",
}


def _imported(root: Path, code: str, *, twice: bool = True, environment: Mapping[str, str] | None = None) -> set[str]:
    """Run code, in two processes over one cache or in one, and give the modules of the last at its end."""
    variables = {"CUJIT_CACHE_DIR": str(root / "cache"), **(environment or {})}
    for _ in range(1 + twice):
        text = printed(f"{code}\nimport sys; print(*sys.modules)", environment=variables, cwd=root)
    return set(text.splitlines()[-1].split())


def _has_llvm(modules: set[str]) -> bool:
    return any(name.startswith("llvmlite") for name in modules)


@pytest.mark.parametrize("kind", _KERNELS)
def test_kernel_of_any_kind_is_launched_without_llvm(tmp_path: Path, kind: str) -> None:
    code = f"SOURCE = {_KERNELS[kind]!r}\n{_READY}{_WAYS['jit']}{_LAUNCH}"
    first = _imported(tmp_path, code, twice=False)
    assert _has_llvm(first)  # so that what is looked for is found where it is
    assert not _has_llvm(_imported(tmp_path, code, twice=False))


@pytest.mark.parametrize("way", _WAYS)
def test_kernel_from_any_source_launches_without_llvm(tmp_path: Path, way: str) -> None:
    cujit.compile(_RAMP, to="ptx", arch="compute_90").save(tmp_path / "k.ptx")
    cujit.build(_RAMP, targets=["compute_80", "compute_90"]).save(tmp_path / "k.fatbin")
    assert not _has_llvm(_imported(tmp_path, f"SOURCE = {_RAMP!r}\n{_READY}{_WAYS[way]}{_LAUNCH}"))


@pytest.mark.parametrize("place", ["pack", "directory"])
def test_kernel_of_a_read_only_cache_launches_without_llvm(tmp_path: Path, place: str) -> None:
    code = f"SOURCE = {_RAMP!r}\n{_READY}{_WAYS['jit']}{_LAUNCH}"
    _imported(tmp_path, code, twice=False)
    root = tmp_path / "cache"
    if place == "pack":
        root = tmp_path / "kernels.pack"
        write_pack(root, cujit.Cache(tmp_path / "cache").stores)
    variables = {"CUJIT_CACHE_ROOTS": str(root), "CUJIT_CACHE_DIR": str(tmp_path / "other")}
    _imported(tmp_path, "import cujit; cujit.cpu()", twice=False, environment=variables)
    assert not _has_llvm(_imported(tmp_path, code, environment=variables))


def test_program_under_the_emulator_launches_without_llvm(tmp_path: Path) -> None:
    cubin = "import cujit; print(cujit.gpu().arch)"
    emulated = environment_of(EmulatorSettings())
    assert printed(cubin, environment=emulated, cwd=tmp_path).startswith("sm_")
    code = f"SOURCE = {_RAMP!r}\n{_READY.replace('cujit.cpu()', 'cujit.gpu()')}{_WAYS['jit']}{_LAUNCH}"
    assert not _has_llvm(_imported(tmp_path, code, environment=emulated))


def test_warm_process_imports_no_textures_checks_or_libraries(tmp_path: Path) -> None:
    found = _imported(tmp_path, f"SOURCE = {_RAMP!r}\n{_READY}{_WAYS['jit']}{_LAUNCH}")
    unneeded = {
        "cujit.devices.arrays.dlpack",
        "cujit.devices.cpu.native.checking",
        "cujit.devices.cpu.native.structures",
        "cujit.devices.cpu.observe.checking",
        "cujit.devices.cpu.run.faults",
        "cujit.devices.cpu.run.blocked_threads",
        "cujit.devices.globals",
        "cujit.devices.launcher.cubin",
        "cujit.devices.launcher.replay",
        "cujit.devices.tensormaps.tiling",
        "cujit.devices.textures.making",
        "cujit.devices.textures.texture",
        "cujit.formats.expressions",
        "cujit.formats.fatbin",
        "cujit.toolchain.driver",
        "_hashlib",
        "base64",
        "importlib.util",
        "json",
        "lz4",
        "numpy.typing",
        "platform",
        "random",
        "zstandard",
    }
    code = "import numpy, sys; print(*sys.modules)"
    brought = set(printed(code, cwd=tmp_path).split())  # by NumPy itself
    assert (found & unneeded) - brought == set()


def test_texture_module_is_imported_on_first_use(tmp_path: Path) -> None:
    text = printed(
        """
        import cujit, numpy, sys
        device = cujit.cpu()
        print("cujit.devices.textures.making" in sys.modules, "cujit.devices.tensormaps.im2col" in sys.modules)
        made = device.texels(numpy.ones((2, 2), 'float32'))
        print(type(vars(cujit.Device)["texels"]).__name__, made.device is device)
        print(cujit.Device.im2col_map.__name__, "cujit.devices.tensormaps.im2col" in sys.modules)
        """,
        cwd=tmp_path,
    )
    assert text.splitlines() == ["False False", "function True", "im2col_map True"]


def test_imports_run_without_garbage_collection(tmp_path: Path) -> None:
    text = printed(
        """
        import gc
        class Circle: pass
        counts = []
        gc.callbacks.append(lambda phase, info: counts.append(info["generation"]) if phase == "start" else None)
        gc.set_threshold(701, 11, 12)
        import cujit
        import numpy
        counts.clear()
        cujit.cpu()
        cujit.jit
        print(gc.get_threshold(), len(counts) <= 3 or counts, gc.get_freeze_count(), gc.isenabled())
        gc.freeze()
        frozen = gc.get_freeze_count()
        cujit.tune, cujit.inspect
        print(gc.get_freeze_count() == frozen)
        gc.unfreeze()
        circle = Circle(); circle.own = circle
        del circle
        print(gc.collect() > 0)
        """,
        cwd=tmp_path,
    )
    assert text.splitlines() == ["(701, 11, 12) True 0 True", "True", "True"]


def test_young_objects_of_a_program_stay_young_after_imports(tmp_path: Path) -> None:
    """Otherwise each call would leave the program's garbage to the oldest generation, and count all frozen objects."""
    text = printed(
        """
        import gc
        import cujit
        cujit.cpu(), cujit.cpu(check="memory")
        gc.collect()
        young = [0]
        cujit.cpu(), cujit.cpu(check="memory")
        print(any(each is young for each in gc.get_objects(generation=0)))
        """,
        cwd=tmp_path,
    )
    assert text == "True\n"
