"""Programs that are built on cujit itself: they run as on a GPU, and their images are never mixed up with cubins."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

import cujit
import processes
from cujit.cache.cache import Cache
from cujit.cache.pack import write_pack
from cujit.emulator.settings import EmulatorSettings
from cujit.program import runner
from emulator.programs import emulated, python
from installed import install

EXAMPLES = Path(__file__).parents[2] / "examples"

PRELUDE = """
import numpy as np
import cujit

AXPY = '''
__device__ float bias[2] = {1, 2};
__constant__ int factor = 3;
extern "C" __global__ void axpy(float a, const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
extern "C" __global__ void seen(float *to) { to[0] = bias[1] * factor; }
extern "C" __global__ void meets(int *count) { atomicAdd(count, 1); while (*(volatile int *)count < gridDim.x); }
'''
device = cujit.gpu()
assert device is cujit.default_device() and device.is_gpu and str(device.arch) == "sm_90"

def runs(module):
    x, y = device.array(np.arange(1000, dtype=np.float32)), device.zeros(1000, np.float32)
    module["axpy"].over(1000)(2.0, x, y, 1000)
    assert (y.numpy() == 2 * np.arange(1000)).all()
    return module.route
"""


def program(code: str, settings: EmulatorSettings | None = None, variables: dict[str, str] | None = None) -> str:
    """Run a program behind ``PRELUDE``; give what it printed."""
    return python(PRELUDE + textwrap.dedent(code), settings, variables)


def test_every_image_kind_of_cujit_loads_and_runs() -> None:
    said = program("""
    AS_PTX = ", which is PTX under cujit emulate"
    assert runs(cujit.jit(AXPY)) == "cubin sm_90a" + AS_PTX
    assert runs(cujit.jit(AXPY, arch="sm_90")) == "cubin sm_90" + AS_PTX
    assert runs(cujit.load(cujit.compile(AXPY, arch="compute_80"))).startswith("PTX compute_80")
    fatbin = cujit.build(AXPY, ["sm_80", "sm_90", "compute_75"])
    assert runs(cujit.load(fatbin)) == "cubin sm_90 of the fatbin" + AS_PTX
    assert runs(cujit.load(cujit.build(AXPY, ["sm_80", "compute_75"]))).startswith("PTX compute_75 of the fatbin")
    assert runs(cujit.load(cujit.build(AXPY, "native"))) == "cubin sm_90 of the fatbin" + AS_PTX
    ltoir = cujit.compile(AXPY, arch="sm_90", to="ltoir")
    assert runs(cujit.load(cujit.link([ltoir], arch="sm_90"))) == "cubin sm_90" + AS_PTX
    # What needs a linker is refused as on a GPU, and linked by nvJitLink and by the driver.
    first = cujit.compile('extern "C" __device__ int f(int); extern "C" __global__ void k(int *p) { *p = f(*p); }',
                          arch="sm_90", rdc=True)
    second = cujit.compile('__device__ int seven = 7; extern "C" __device__ int f(int x) { return x + seven; }',
                           arch="sm_90", rdc=True)
    for wrong, words in ((lambda: cujit.load(first), "is relocatable"),
                         (lambda: cujit.load(cujit.bundle([first])), "none of these can run"),
                         (lambda: cujit.link([first, second, second]), "define f"),
                         (lambda: cujit.link([cujit.compile(AXPY, arch="sm_90")]), "an executable cubin")):
        try:
            wrong()
        except cujit.errors.CujitError as e:
            assert words in str(e), e
        else:
            raise AssertionError(words)
    for linked in (cujit.link([first, second], arch="sm_90"), device.backend.link([first, second])):
        p = device.zeros(1, np.int32)
        loaded = cujit.load(linked)
        loaded["k"][1, 1](p)
        assert list(loaded.globals) == ["seven"]
        assert p.numpy() == [7] and linked.arch == device.arch, linked
    for image in (cujit.compile(AXPY, arch="sm_90"), cujit.link([first, second]), cujit.link([ltoir], arch="sm_90")):
        print(cujit.inspect(image).images[0].kernels[0].registers)
    """)
    assert all(int(registers) > 4 for registers in said.split()), "those of the machine code that NVIDIA's tools made"


def test_gpu_program_works_in_the_emulator() -> None:
    program("""
    module = cujit.jit(AXPY)
    assert sorted(module.globals) == ["bias", "factor"]
    module.globals["bias"].write([4, 5], "float32")
    to = device.zeros(1, np.float32)
    module["seen"][1, 1](to)
    assert to.numpy() == [15]
    axpy = module["axpy"]
    assert axpy.max_block == 1024 and axpy.occupancy(256) == 1 and axpy.resources.shared_bytes == 0
    stream = device.stream()
    x, y = device.array(np.ones(100, np.float32), stream=stream), device.zeros(100, np.float32, stream=stream)
    start = stream.record()
    axpy.over(100, stream=stream)(1.0, x, y, 100)
    end = stream.record()
    end.synchronize()
    assert end.done and end.elapsed_ms(start) >= 0
    with device.capture() as graph:
        axpy.over(100, stream=graph.stream)(1.0, x, y, 100)
    graph.launch()
    graph.launch()
    assert set(y.numpy(stream=graph.stream)) == {3}
    assert cujit.time(graph.launch, repeat=2, warmup=1, limit_s=0.05).median_ms > 0
    count = device.zeros(1, np.int32)
    module["meets"].prepare((4,), (1,), cooperative=True)(count)
    assert count.numpy() == [4]
    y.fill(0)
    import pickle
    again = pickle.loads(pickle.dumps(axpy))
    again.over(100)(1.0, x, y, 100)
    assert set(y.numpy()) == {1}
    """)


@pytest.mark.parametrize("name", ["04_llvm_ir", "05_occupancy", "08_textures", "09_registry", "10_pack"])
def test_examples_run_as_on_a_gpu(name: str) -> None:
    said = python(f"import runpy; runpy.run_path({str(EXAMPLES / f'{name}.py')!r}, run_name='__main__')")
    assert "cuda:0" in said


def test_checks_find_a_bug_with_its_line_and_array() -> None:
    code = PRELUDE + textwrap.dedent("""
    scale = cujit.jit('''
    extern "C" __global__ void scale(float *x, float a) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        x[i] *= a;
    }''', name="scale.cu")["scale"]
    x = device.array(np.arange(1000, dtype=np.float32))
    try:
        scale[4, 256](x, 2.0)
        x.numpy()
    except cujit.errors.DriverError as e:
        print(e)
    """)
    said = python(code, EmulatorSettings(check="memory"))
    assert "kernel scale, block (3, 0, 0), thread (232, 0, 0): Invalid read of 4 bytes" in said
    assert "just past the end of the 4,000-byte array allocated at" in said
    assert "scale.cu:4" in said
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in said


def test_cpu_device_memory_may_be_registered() -> None:
    code = PRELUDE + textwrap.dedent("""
    from cuda.bindings import driver
    driver.cuCtxPushCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
    sums = cujit.jit('extern "C" __global__ void sums(const char *p, int n, int *to)'
                     ' { for (int i = 0; i < n; ++i) *to += p[i]; }')["sums"]
    array, to = cujit.cpu().array(np.full(1000, 3, np.int8)), device.zeros(1, np.int32)
    within, around = (array.address + 8, 8), (array.address - 16, 1024)  # an array has room for 1,024 bytes
    for begin, size in ((array.address, 1000), around, within, around):
        answer = driver.cuMemHostRegister(begin, size, 0)[0]
        sums[1, 1](cujit.Pointer(begin), size, to)
        device.synchronize()
        print(answer.name, driver.cuMemHostUnregister(begin)[0].name)
    sums[1, 1](cujit.Pointer(around[0]), 100, to)
    try:
        device.synchronize()
    except cujit.errors.DriverError as e:
        print(e.result)
    """)
    said = python(code, EmulatorSettings(check="memory")).splitlines()
    assert said == ["CUDA_SUCCESS CUDA_SUCCESS"] * 4 + ["CUDA_ERROR_ILLEGAL_ADDRESS"]


# -- the cache --------------------------------------------------------------------------------------------------------

SOURCE = 'extern "C" __global__ void of_test_cujit(int *p) { *p = 5; }'
"""What no other test compiles: the cache of the tests has the emulator's own code, which would take seconds to make."""

COMPILES = f"""
import cujit
from cujit.formats.container import is_container

def told(image):
    print(image.kind.value, is_container(image.data), image.provenance.outcome.value)

told(cujit.compile({SOURCE!r}, arch="sm_90"))
told(cujit.compile({SOURCE!r}, arch="compute_90"))
told(cujit.link([cujit.compile({SOURCE!r}, arch="sm_90", to="ltoir")], arch="sm_90"))
"""


def told(code: str) -> list[tuple[str, ...]]:
    """Run a program, which is not emulated unless it says so; give what it printed, by line."""
    done = processes.python(code)
    assert done.returncode == 0, done.stderr
    return [tuple(line.split()) for line in done.stdout.splitlines()]


def test_cubins_and_containers_have_separate_keys() -> None:
    emulation = f"import cujit; cujit.emulate()\n{COMPILES}"
    assert told(COMPILES) == [("cubin", "False", "made"), ("ptx", "False", "made"), ("cubin", "False", "made")]
    assert told(emulation) == [("cubin", "True", "made"), ("ptx", "False", "disk"), ("cubin", "True", "made")]
    for code, is_container in ((COMPILES, "False"), (emulation, "True")):
        assert [row[1:] for row in told(code)] == [(is_container, "disk"), ("False", "disk"), (is_container, "disk")]
    # One process takes both: what it had as machine code before, it has made anew.
    both = f"{COMPILES}\ncujit.emulate()\ntold(cujit.compile({SOURCE!r}, arch='sm_90'))"
    assert [row[1:] for row in told(both)][-1] == ("True", "disk")


def test_process_that_hides_its_compilers_origin_stores_nothing() -> None:
    hidden = """
    import os, cujit
    cujit.emulate()
    del os.environ["LD_PRELOAD"], os.environ["CUJIT_EMULATE"]
    """
    image = "told(cujit.compile('__global__ void of_test_cujit() {}', arch='sm_90'))"
    defined, *_ = COMPILES.partition("told(cujit")
    code = f"{textwrap.dedent(hidden)}{defined}{image}\n{image}"
    assert told(code) == [("cubin", "True", "uncached")] * 2
    assert told(f"{defined}{image}") == [("cubin", "False", "made")]


def test_packaged_sass_is_skipped_for_its_ptx(tmp_path: Path) -> None:
    cache, source = Cache(tmp_path / "built"), SOURCE.replace("of_test", "of_mylib")
    for arch in ("sm_90", "compute_80"):
        cujit.compile(source, arch=arch, cache=cache)
    pins, closures = runner(cache).answers(cache.stores)
    write_pack(tmp_path / "k.pack", cache.stores, requests=pins, closures=closures)
    install(tmp_path / "site", "mylib", {"mylib_packs/k.pack": (tmp_path / "k.pack").read_bytes()})
    code = f"""
    import sys
    sys.path.append({str(tmp_path / "site")!r})
    import cujit
    for compile in ("never", "auto"):
        module = cujit.jit({source!r}, cache=cujit.Cache.packaged("mylib", compile=compile))
        print(module.artifact.arch, module.artifact.provenance.outcome.value)
    """
    said = python(code).splitlines()
    assert said == ["compute_80 shipped"] * 2


def test_error_reads_no_log_from_the_emulated_driver() -> None:
    program = """
import cujit
try:
    cujit.gpu().allocate(1 << 60)
except cujit.errors.DriverError as error:
    print(error.result)
"""
    done = emulated(sys.executable, "-c", program)
    assert (done.stdout, done.stderr) == ("CUDA_ERROR_OUT_OF_MEMORY\n", "")
