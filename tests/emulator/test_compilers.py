"""What stands before NVIDIA's compilers: who finds it, and what it makes in place of machine code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import cujit
from cujit.arch import Arch
from cujit.emulator import compiler_files, library_files
from cujit.emulator.device_runtime import device_runtime, is_device_runtime
from cujit.formats.container import Container, read_container
from cujit.formats.ptx.linking import Input, link_modules
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.printer import print_module
from emulator.programs import compiled, emulated, python

_PROGRAM = """
from cuda.bindings import nvjitlink, nvrtc
from cuda.pathfinder import load_nvidia_dynamic_lib

CALLS = b'extern "C" __device__ int two(int); extern "C" __global__ void calls(int *p) { *p = two(3); }'
HAS = b'extern "C" __device__ int two(int x) { return 2 * x; }'

def made(text, kind, *options):
    _, program = nvrtc.nvrtcCreateProgram(text, b"a.cu", 0, [], [])
    assert int(nvrtc.nvrtcCompileProgram(program, len(options) + 1, [b"-rdc=true", *options])[0]) == 0
    size = getattr(nvrtc, f"nvrtcGet{kind}Size")(program)[1]
    data = bytearray(size)
    assert int(getattr(nvrtc, f"nvrtcGet{kind}")(program, data)[0]) == 0
    return bytes(data)

def linked(options, *inputs):
    handle = nvjitlink.create(len(options), options)
    for number, (kind, data) in enumerate(inputs):
        nvjitlink.add_data(handle, kind, data, len(data), f"input {number}")
    try:
        nvjitlink.complete(handle)
    except nvjitlink.nvJitLinkError as e:
        log = bytearray(nvjitlink.get_error_log_size(handle))
        nvjitlink.get_error_log(handle, log)
        return e.status, log.decode()
    image = bytearray(nvjitlink.get_linked_cubin_size(handle))
    nvjitlink.get_linked_cubin(handle, image)
    nvjitlink.destroy(handle)
    return bytes(image)

CUBIN, PTX, LTOIR = 1, 2, 3
"""


def test_nvrtc_and_nvjitlink_of_a_program_create_containers() -> None:
    said = python(
        _PROGRAM
        + """
from cujit.formats.container import read_container
from cujit.formats.ptx.parser import parse

print(load_nvidia_dynamic_lib("nvrtc").abs_path, load_nvidia_dynamic_lib("nvJitLink").abs_path)
real = b"-arch=sm_90"
calls, has, text = made(CALLS, "CUBIN", real), made(HAS, "CUBIN", real), made(HAS, "PTX", b"-arch=compute_90")
assert b".entry calls" in read_container(calls).ptx and made(HAS, "CUBIN", b"-arch=compute_90") == b""
def entry(image):
    module = parse(read_container(image).ptx.decode())
    return [each.name for each in module.entries], sum(f.body is not None for f in module.functions)
# One input passes as it is; several are linked as PTX, or as LTO-IR by the real library.
assert read_container(linked(["-arch=sm_90"], (CUBIN, has))).ptx == read_container(has).ptx
assert entry(linked(["-arch=sm_90"], (CUBIN, calls), (PTX, text))) == (["calls"], 2)
lto = [made(each, "LTOIR", real, b"-dlto") for each in (CALLS, HAS)]
assert entry(linked(["-arch=sm_90", "-lto"], *((LTOIR, each) for each in lto))) == (["calls"], 1)
assert entry(linked(["-arch=sm_90", "-lto"], (LTOIR, lto[0]), (CUBIN, has))) == (["calls"], 2)
# What is in the way is said; options are those of the real library.
status, log = linked(["-arch=sm_90"], (CUBIN, calls))
assert status == 4 and "two is used, and no input defines it" in log, log
status, log = linked(["-arch=sm_90"], (PTX, b".version 8.0\\n.target sm_90\\n.entry k() { nonsense; }"))
assert status == 4 and "nonsense" in log, log
try:
    linked(["-arch=sm_90", "--no-such-option"], (PTX, text))
except nvjitlink.nvJitLinkError as e:
    assert e.status == 1, e
else:
    assert 0
"""
    )
    where = compiler_files.folder()
    assert said.split() == [str(next(where.glob("libnvrtc*"))), str(next(where.glob("libnvJitLink*")))]


def test_link_for_ptx_is_the_real_librarys() -> None:
    python(
        _PROGRAM
        + """
lto = made(HAS + CALLS[CALLS.index(b";") + 1:], "LTOIR", b"-arch=sm_90", b"-dlto")
options = ["-arch=sm_90", "-lto", "-ptx"]
handle = nvjitlink.create(3, options)
nvjitlink.add_data(handle, LTOIR, lto, len(lto), "one")
nvjitlink.complete(handle)
text = bytearray(nvjitlink.get_linked_ptx_size(handle))
nvjitlink.get_linked_ptx(handle, text)
assert b".entry calls" in text, text
"""
    )


def test_cujit_compiles_and_links_in_the_emulator() -> None:
    python("""
import cujit
text = 'extern "C" __global__ void k(int *p) { *p = 3; }'
image = cujit.compile(text, arch="sm_90", to="ltoir", cache=False)
assert ".entry k" in cujit.link([image], to="ptx", cache=False).data.decode()
""")


def _assembler(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return emulated("sh", "-c", '"$TRITON_PTXAS_PATH" "$@"', "sh", *arguments)


def test_assembler_wraps_valid_ptx_and_reports_errors(tmp_path: Path) -> None:
    source, output = tmp_path / "k.ptx", tmp_path / "k.cubin"
    source.write_text(".version 8.0\n.target sm_90\n.address_size 64\n.entry k() { ret; }\n")
    done = _assembler("-lineinfo", "-v", "--gpu-name=sm_90a", "--opt-level", "1", source, "-o", output)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "k for sm_90a" in done.stderr
    assert read_container(output.read_bytes()) == Container(source.read_bytes(), Arch.parse("sm_90a"))
    source.write_text(".version 8.0\n.target sm_90\n.entry k() { nonsense.u32; }\n")
    done = _assembler(source, "-o", output)
    assert done.returncode == 255
    assert f"{source}:3" in done.stderr
    assert "nonsense" in done.stderr
    assert _assembler("-o", output).returncode == 255
    assert _assembler(tmp_path / "nothing.ptx", "-o", output).returncode == 255
    assert "release 13." in _assembler("--version").stdout


def test_clients_get_caches_that_a_gpu_does_not_share() -> None:
    said = compiler_files.environment()
    caches = [value for name, value in said.items() if name.endswith("_CACHE_DIR")]
    assert len(caches) == 3
    assert all(value.startswith(f"{library_files.root_folder()}/") for value in caches)


def test_grid_meets_in_the_functions_of_the_device_runtime() -> None:
    text = cujit.compile(
        """
        extern "C" __global__ void rounds(int *value, int *sums) {
            unsigned long long grid = cudaCGGetIntrinsicHandle(cudaCGScopeGrid);
            for (int round = 0; round < 4; round++) {
                if (threadIdx.x == 0) atomicAdd(value, blockIdx.x + 1);
                if (round % 2 ? cudaCGSynchronize(grid, 0) : cudaCGSynchronizeGrid(grid, 0)) __trap();
                if (threadIdx.x == 0) sums[round * gridDim.x + blockIdx.x] = *(volatile int *)value;
                cudaCGSynchronize(grid, 0);
            }
        }
        """,
        arch="compute_90",
        rdc=True,
    ).data.decode()
    linked = link_modules([Input("kernel", parse(text)), Input("runtime", device_runtime())])
    device = cujit.cpu()
    kernel = cujit.load(cujit.Artifact(cujit.ImageKind.PTX, print_module(linked.module).encode()), device)["rounds"]
    value, sums = device.array(np.zeros(1, np.int32)), device.array(np.zeros((4, 5), np.int32))
    kernel.prepare((5,), (64,), cooperative=True)(value, sums)
    assert (sums.numpy() == np.arange(15, 75, 15)[:, None]).all()


def test_toolkit_library_is_recognized() -> None:
    real = compiler_files._real_libraries()[0].path.with_name("libcudadevrt.a")
    assert is_device_runtime(real.read_bytes())
    assert not is_device_runtime(b"!<arch>\nother")


def test_program_with_a_static_runtime_ends_with_one_error(tmp_path: Path) -> None:
    runtime = compiler_files._real_libraries()[0].path.with_name("libcudart_static.a")
    code = """
    int cudaGetDeviceCount(int *);
    int main(void) { int n; cudaGetDeviceCount(&n); return cudaGetDeviceCount(&n) != 0; }
    """
    done = emulated(compiled(tmp_path / "count", code, runtime, "-lpthread", "-ldl", "-lrt"))
    assert done.returncode == 1
    assert done.stderr.count("accepts only NVIDIA's driver") == 1
    assert done.stderr.count("\n") == 1


def _nvcc(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return emulated("nvcc", *arguments, folder=folder)


def test_nvcc_creates_images_that_load_in_the_emulator(tmp_path: Path) -> None:
    """As PyCUDA calls it: in a folder of its own, for ``NAME.cubin`` beside ``NAME.cu``."""
    (tmp_path / "own.h").write_text("#define FACTOR 3\n")
    (tmp_path / "k.cu").write_text(
        '#include "own.h"\nextern "C" __global__ void k(int *p) { p[threadIdx.x] = FACTOR * MORE; }\n'
    )
    for kind in ("cubin", "fatbin", "ptx"):
        done = _nvcc(tmp_path, f"--{kind}", "-arch", "sm_90", "-I.", "-DMORE=2", "-m64", "-lineinfo", "k.cu")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    said = python(f"""
    import ctypes
    from cuda.bindings import driver as d
    assert d.cuInit(0)[0] == 0
    _, context = d.cuDevicePrimaryCtxRetain(0)
    d.cuCtxSetCurrent(context)
    _, p = d.cuMemAlloc(4 * 32)
    for kind in ("cubin", "fatbin", "ptx"):
        image = open({str(tmp_path)!r} + "/k." + kind, "rb").read() + bytes(1)
        status, module = d.cuModuleLoadData(image)
        assert status == 0, (kind, status)
        _, function = d.cuModuleGetFunction(module, b"k")
        assert d.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, 0, ((int(p),), (ctypes.c_void_p,)), 0)[0] == 0
        out = bytearray(4)
        d.cuMemcpyDtoH(out, p, 4)
        print(int.from_bytes(out, "little"))
        d.cuMemsetD8(p, 0, 128)
    """)
    assert said.split() == ["6", "6", "6"]


def test_nvcc_prints_the_headers_that_select_the_code(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text('#include "own.h"\n')
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "own.h").write_text(f"int {name};\n")
    for name in ("first", "second"):
        done = _nvcc(tmp_path, "--preprocess", "-arch", "sm_90", f"-I{name}", "k.cu", "--compiler-options", "-P")
        assert (done.returncode, done.stdout) == (0, f'#include "own.h"\nint {name};\n'), done.stderr


def test_nvcc_reports_unsupported_outputs(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text("int main() { return 0; }\n")
    assert "release 13." in _nvcc(tmp_path, "--version").stdout
    asked = "k.cu", "-o", "k"
    own = compiler_files.folder()
    alone = emulated(sys.executable, own / "nvcc", *asked, folder=tmp_path, variables={"PATH": f"{own}"})
    assert alone.returncode == 1
    assert "nvcc makes --ptx, --cubin and --fatbin" in alone.stderr
    real = tmp_path / "real" / "nvcc"
    real.parent.mkdir()
    real.write_text("#!/bin/sh\necho real $*\n")
    real.chmod(0o755)
    behind = {"PATH": f"{own}:{real.parent}:{os.environ['PATH']}"}
    assert emulated("nvcc", *asked, folder=tmp_path, variables=behind).stdout == "real k.cu -o k\n"
    assert _nvcc(tmp_path, "--ptx").returncode == 1
    broken = _nvcc(tmp_path, "--ptx", "--no-such-option", "k.cu")
    assert broken.returncode
    assert "no-such-option" in broken.stderr
    (tmp_path / "bad.cu").write_text("__global__ void k() { nonsense; }\n")
    bad = _nvcc(tmp_path, "--cubin", "-arch=sm_90", "bad.cu")
    assert bad.returncode
    assert "nonsense" in bad.stderr
    assert not (tmp_path / "bad.cubin").exists()


_LINKED = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
typedef unsigned long long u64;
int cuInit(unsigned), cuDevicePrimaryCtxRetain(void **, int), cuCtxSetCurrent(void *);
int cuModuleLoadData(void **, const void *), cuModuleGetFunction(void **, void *, const char *);
int cuMemAlloc_v2(u64 *, unsigned long), cuMemcpyDtoH_v2(void *, u64, unsigned long);
int cuLaunchKernel(void *, int, int, int, int, int, int, int, void *, void **, void **);
int nvrtcCreateProgram(void **, const char *, const char *, int, void *, void *);
int nvrtcCompileProgram(void *, int, const char **), nvrtcGetCUBINSize(void *, unsigned long *);
int nvrtcGetCUBIN(void *, char *), nvJitLinkVersion(unsigned *, unsigned *);
static char image[1 << 20];
int main(int count, char **names) {
  const char *options[] = {"-arch=sm_90"};
  unsigned major, minor;
  unsigned long size;
  u64 memory;
  void *program, *context, *module, *function, *parameters[] = {&memory};
  int failed = 0, found = 0;
  failed |= nvrtcCreateProgram(&program, "extern \"C\" __global__ void k(int *p) { *p = 42; }", "k.cu", 0, 0, 0);
  failed |= nvrtcCompileProgram(program, 1, options);
  failed |= nvrtcGetCUBINSize(program, &size) || nvrtcGetCUBIN(program, image);
  failed |= cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context);
  failed |= cuModuleLoadData(&module, image) || cuModuleGetFunction(&function, module, "k");
  failed |= cuMemAlloc_v2(&memory, 4);
  failed |= cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, 0, parameters, 0) || cuMemcpyDtoH_v2(&found, memory, 4);
  failed |= nvJitLinkVersion(&major, &minor);
  for (int i = 1; i < count; i++) {
    int modes[] = {RTLD_LAZY, RTLD_NOW | RTLD_GLOBAL, RTLD_NOW | RTLD_DEEPBIND, RTLD_LAZY | RTLD_NOLOAD};
    for (int mode = 0; mode < 4; mode++) {
      void *library = dlopen(names[i], modes[mode]);
      if (!library) failed |= 2;
      else if (!dlvsym(library, mode % 2 ? "nvrtcVersion" : "nvJitLinkVersion", names[i])
               && !dlvsym(library, mode % 2 ? "nvJitLinkVersion" : "nvrtcVersion", names[i])) failed |= 4;
    }
  }
  printf("%d %d\n", failed, found);
  return 0;
}
"""


def test_program_linked_with_the_compilers_runs(tmp_path: Path) -> None:
    """Its loader asks for the versions that the linker found in NVIDIA's libraries."""
    real = [each.path for each in compiler_files._real_libraries()]
    program = compiled(
        tmp_path / "linked",
        _LINKED,
        library_files.folder() / library_files.SONAME,
        *real,
        "-Wl,--allow-shlib-undefined",
    )
    done = emulated(program, *(path.name for path in real))
    assert (done.stdout, done.returncode) == ("0 42\n", 0), done.stderr
    assert not done.stderr


def test_ptx_calls_functions_defined_in_lto_ir() -> None:
    said = python(
        _PROGRAM
        + """
from cujit.formats.container import read_container
from cujit.formats.ptx.parser import parse

calls = made(CALLS, "LTOIR", b"-arch=sm_90", b"-dlto")
between = made(b'''extern "C" __device__ int four(int); extern "C" __device__ long long wide(long long, int*);
                   extern "C" __device__ int two(int x) { int y; return four(x) + (int)wide(x, &y) + y; }''',
               "PTX", b"-arch=sm_90")
ends = made(b'''extern "C" __device__ __noinline__ int four(int x) { return 4 * x; }
                extern "C" __device__ long long wide(long long x, int *y) { *y = 7; return x << 4; }
                extern "C" __device__ int unused(int x) { return x; }''', "LTOIR", b"-arch=sm_90", b"-dlto")
options = ["-arch=sm_90", "-lto"]
image = linked(options, (LTOIR, calls), (PTX, between), (LTOIR, ends))
text = read_container(image).ptx.decode()
found = {f.name: f.body is not None for f in parse(text).functions}
assert found == {"calls": True, "two": True, "four": True, "wide": True}, found
print(text)
code, log = linked(options, (LTOIR, calls), (PTX, between))
assert code == 4 and "four is used, and no input defines it" in log, log
"""
    )
    device = cujit.cpu()
    kernel = cujit.load(cujit.Artifact(cujit.ImageKind.PTX, said.encode()), device)["calls"]
    numbers = device.array(np.zeros(1, np.int32))
    kernel.prepare((1,), (1,))(numbers)
    assert numbers.numpy()[0] == 3 * 4 + (3 << 4) + 7
