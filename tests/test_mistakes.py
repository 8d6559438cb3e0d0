"""What people type who come from nvcc, CuPy, PyCUDA, Numba and PyTorch: each mistake names what to write."""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any

import numpy as np
import pytest

import cujit
from cujit import errors
from cujit.compiler.options.table import OPTIONS
from cujit.devices.arrays.array import DeviceArray
from cujit.errors import other_apis
from cujit.kernel import Kernel
from cujit.loading import Module

SOURCE = """
template <typename T> __global__ void axpy(T a, const T* x, T* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
__device__ float bias[4];
extern "C" __global__ void add(float* x, int n) { if (threadIdx.x < n) x[threadIdx.x] += bias[threadIdx.x % 4]; }
"""


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    device = cujit.cpu()
    module = cujit.jit(SOURCE, device=device)
    array = device.array(np.arange(5, dtype=np.float32))
    made = {"source": SOURCE, "device": device, "module": module, "kernel": module["add"], "array": array}
    return {"cujit": cujit, "np": np, **made}


# The code, the type of the error, and a part of its text.
MISTAKES = """
cujit.RawKernel                                                | AttributeNotFoundError | cujit.jit(source)['kernel']
cujit.RawModule                                                | AttributeNotFoundError | cujit.jit(source)['kernel']
cujit.SourceModule(source)                                     | AttributeNotFoundError | cujit.jit(source)['kernel']
cujit.load_inline                                              | AttributeNotFoundError | cujit.jit(source)['kernel']
cujit.Program(source)                                          | AttributeNotFoundError | cujit.compile(source,
cujit.array([1])                                               | AttributeNotFoundError | .array(x) copies
cujit.zeros(4)                                                 | AttributeNotFoundError | .zeros(shape, dtype)
cujit.synchronize()                                            | AttributeNotFoundError | .synchronize() waits
cujit.complie(source)                                          | AttributeNotFoundError | did you mean cujit.compile
cujit.jt(source)                                               | AttributeNotFoundError | did you mean cujit.jit?
cujit.compile(source, name_expressions=['axpy<float>'])        | OptionError | names=['axpy<float>'] lists
cujit.compile(source, include_dirs=['inc'])                    | OptionError | include=['directory']
cujit.compile(source, flags=['-G'])                            | OptionError | extra=['--flag']
cujit.compile(source, options=['-arch=sm_90', '-O3'])          | OptionError | arch='sm_90', opt_level=3
cujit.compile(source, options=('-lineinfo', '-Iinc'))          | OptionError | lineinfo=True, include=['inc']
cujit.compile(source, options='-std=c++17')                    | OptionError | std='c++17'
cujit.compile(source, options=('--what',))                     | OptionError | extra=['--what']
cujit.compile(source, options=3)                               | OptionError | options={'lineinfo': True}
cujit.compile(source, {'lineinfo': True}, to='sass')           | TypeError | positional
cujit.compile(source, to='sass')                               | OptionError | not to 'sass'
cujit.compile(source, arch=90)                                 | ArchError | sm_90
cujit.compile(source, arch='90')                               | ArchError | did you mean sm_90?
cujit.compile(source, arch='sm_9')                             | ArchError | did you mean sm_90
cujit.compile(source, opt_levle=3)                             | OptionError | did you mean opt_level
cujit.compile(source, Std='c++17')                             | OptionError | did you mean std
cujit.compile(source, naems=['axpy<float>'])                   | OptionError | did you mean names?
cujit.jit(source, devcie='cpu')                                | OptionError | did you mean device?
cujit.jit(source, grid=4, block=32)                            | OptionError | kernel[grid, block](…)
cujit.build(source, target='sm_90')                            | OptionError | did you mean targets?
cujit.jit('missing.cu', device=device)                         | FileError | a one-line str is a path
cujit.load('missing.cubin', device)                            | FileError | can't read missing.cubin
cujit.load(b'abc', device)                                     | FormatError | cujit.compile instead of cujit.load
cujit.link(source)                                             | FormatError | cujit.compile instead of cujit.load
cujit.gpu('cuda:0')                                            | OptionError | cujit.gpu(0)
module.get_function('add')                                     | AttributeNotFoundError | module['kernel']
module.get_global('bias')                                      | AttributeNotFoundError | module.globals['name']
module.ad                                                      | AttributeNotFoundError | the kernels add
module['ad']                                                   | NameNotFoundError | did you mean add?
module['axpy<float>']                                          | NameNotFoundError | names=['axpy<float>']
module[1, 32](array, 5)                                        | ArgumentError | module['add'][grid, block](…)
module[0]                                                      | ArgumentError | module['add']
module.variable('bais')                                        | NameNotFoundError | the variable 'bais'
kernel(array, 5)                                               | LaunchError | kernel.over(n)(…)
kernel((1,), (32,), (array, 5))                                | LaunchError | kernel[(1,), (32,)](…)
kernel(array, 5, block=(32, 1, 1), grid=(1, 1))                | LaunchError | kernel[(1, 1), (32, 1, 1)](…)
kernel(array, 5, block=(32, 1, 1))                             | LaunchError | kernel[1, (32, 1, 1)](…)
kernel.launch((1,), (32,), (array, 5))                         | AttributeNotFoundError | kernel[grid, block](…)
kernel.forall(5)(array, 5)                                     | AttributeNotFoundError | kernel.over(n)(…)
kernel.num_regs                                                | AttributeNotFoundError | kernel.resources
kernel[1](array, 5)                                            | LaunchError | accepts grid and block
kernel[0, 32](array, 5)                                        | LaunchError | grid.x is 0
kernel['1', 32](array, 5)                                      | LaunchError | grid.x is str '1'
kernel[1, 2048](array, 5)                                      | LaunchError | 1024 threads
kernel[1, 32](array, 5, stream=None)                           | ArgumentError | [grid, block, shared_bytes, stream](…)
kernel[1, 32](array, n=5)                                      | ArgumentError | not keyword arguments
kernel[1, 32](array)                                           | ArgumentError | add the missing arguments: int
kernel[1, 32](array, 5, 6)                                     | ArgumentError | remove the last 1
kernel[1, 32]('x', 5)                                          | ArgumentError | pass an array of float32
kernel[1, 32](1, 5)                                            | ArgumentError | cujit.Pointer(1)
kernel[1, 32]([1.0], 5)                                        | ArgumentError | device.array(x)
kernel[1, 32](array, 5.5)                                      | ArgumentError | int(x)
kernel[1, 32](np.zeros(5), 5)                                  | ArgumentError | float64, not float32
array.get()                                                    | AttributeNotFoundError | array.numpy()
array.copy_to_host()                                           | AttributeNotFoundError | array.numpy()
array.cpu()                                                    | AttributeNotFoundError | array.numpy()
array.set(np.zeros(5, np.float32))                             | AttributeNotFoundError | array.copy_from(x)
array.data_ptr()                                               | AttributeNotFoundError | array.address
array.astype('float64')                                        | AttributeNotFoundError | astype(dtype)
array.copy_from(np.zeros(5))                                   | ArgumentError | x.astype('float32')
array.copy_from(np.zeros(4, np.float32))                       | ArgumentError | (4,) into an array of shape (5,)
array.reshape(3)                                               | ArgumentError | can't reshape 5 elements
array[7]                                                       | ArgumentError | out of bounds for an axis of size 5
bool(array)                                                    | ArgumentError | x.numpy()
cujit.time(kernel, array, 5)                                   | LaunchError | kernel.over(n)(…)
"""
ROWS = [tuple(part.strip() for part in line.split("|")) for line in MISTAKES.strip().splitlines()]


@pytest.mark.parametrize(("code", "error", "text"), ROWS, ids=[row[0][:50] for row in ROWS])
def test_mistake_names_what_to_write(code: str, error: str, text: str, names: dict[str, Any]) -> None:
    with pytest.raises(getattr(errors, error, TypeError)) as caught:
        eval(code, dict(names))
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("code", "header"),
    [
        ("__global__ void f(half* x) {}", "cuda_fp16.h"),
        ("__global__ void f(double* x) { __half h; }", "cuda_fp16.h"),
        ("__global__ void f(__nv_bfloat162 x) {}", "cuda_bf16.h"),
        ("__global__ void f(__nv_fp8_e4m3 x) {}", "cuda_fp8.h"),
        ("__global__ void f() { cooperative_groups::this_grid().sync(); }", "cooperative_groups.h"),
        ("__global__ void f() { nvcuda::wmma::mem_row_major; }", "mma.h"),
        ("__global__ void f(cuda::std::atomic<int>* x) {}", "cuda/std/atomic"),
        ("__global__ void f(cuda::barrier<cuda::thread_scope_block>* x) {}", "cuda/barrier"),
        ("__global__ void f() { using R = cub::BlockReduce<int, 32>; }", "cub/block/block_reduce.cuh"),
    ],
)
def test_undeclared_name_gets_its_header(code: str, header: str) -> None:
    with pytest.raises(cujit.errors.CompileError) as caught:
        cujit.compile(code, arch="sm_90", to="ptx")
    assert f"#include <{header}>" in str(caught.value.help)
    cujit.compile(f"#include <{header}>\n{code}", arch="sm_90", to="ptx")


@pytest.mark.parametrize("owner", [DeviceArray, Kernel, Module])
def test_foreign_names_hide_no_cujit_name(owner: type) -> None:
    words = other_apis._SENTENCES[owner.__name__]
    (body,) = ast.parse(inspect.getsource(owner)).body
    assert isinstance(body, ast.ClassDef)
    defined = {getattr(statement, "name", None) for statement in body.body}
    assert not words.keys() & (defined | {name for base in owner.__mro__[1:] for name in vars(base)})


def test_foreign_names_hide_no_cujit_call() -> None:
    assert not other_apis._SENTENCES["cujit"].keys() & set(dir(cujit))


@pytest.mark.parametrize(
    "sentence", sorted({s for place, of in other_apis._SENTENCES.items() if place != "options" for s in of.values()})
)
def test_each_hint_names_what_exists(sentence: str, names: dict[str, Any]) -> None:
    path = re.match(r"(cujit\.\w+\(\)|\w+)(\.\w+)*", sentence)
    assert path, sentence
    eval(path[0], dict(names))


@pytest.mark.parametrize("sentence", sorted(set(other_apis._SENTENCES["options"].values()) - {other_apis._SHAPE}))
def test_each_suggested_keyword_exists(sentence: str) -> None:
    keyword = re.match(r"(\w+)=", sentence)
    if keyword is None:
        assert sentence.startswith(("cujit.compile(…).log", "module['kernel']"))
        return
    assert keyword[1] in {*inspect.signature(cujit.jit).parameters, "extra", *OPTIONS}


def test_foreign_names_are_absent_for_hasattr_and_dir(names: dict[str, Any]) -> None:
    for name, word in (("array", "get"), ("kernel", "launch"), ("module", "get_function")):
        assert not hasattr(names[name], word)
        assert word not in dir(names[name])


def test_foreign_names_cost_no_lookup() -> None:
    for owner in (DeviceArray, Kernel):
        assert not hasattr(owner, "__getattr__")


def test_print_shows_the_elements_and_copies_edges_only(names: dict[str, Any], monkeypatch: Any) -> None:
    device = names["device"]
    assert str(device.array(np.arange(5))) == "[0 1 2 3 4]"
    assert str(device.array(np.float32(2.5))) == "2.5"
    for shape in ((5000,), (700, 3), (2, 3, 400), (5, 1000), (7, 1000), (0, 3)):
        values = np.arange(np.prod(shape)).reshape(shape)
        assert str(device.array(values)) == str(values)
    copied: list[int] = []
    copy = DeviceArray.numpy

    def counted(self: DeviceArray, **more: Any) -> Any:
        copied.append(self.size)
        return copy(self, **more)

    monkeypatch.setattr(DeviceArray, "numpy", counted)
    str(device.array(np.zeros((10_000, 10))))
    assert copied == [40, 30]


def test_print_of_an_array_without_elements_to_show(names: dict[str, Any]) -> None:
    array = names["device"].zeros(3, np.float32)
    array.close()
    assert str(array) == repr(array) == "<DeviceArray float32 (3,) on cpu closed>"


def test_kernels_are_attributes_and_completions(names: dict[str, Any]) -> None:
    module = names["module"]
    assert module.add is module["add"]
    assert "add" in dir(module)
    assert module._ipython_key_completions_() == list(module)
    with pytest.raises(AttributeError):
        module.__array__  # noqa: B018 - as NumPy asks


def test_repr_of_a_timing_is_one_short_line(names: dict[str, Any]) -> None:
    timing = cujit.time(names["kernel"][1, 32], names["array"], 5, repeat=20)
    assert len(repr(timing)) < 120
    assert str(timing) in repr(timing)


def test_package_help_opens_with_a_kernel_that_runs() -> None:
    opening = (cujit.__doc__ or "").partition("::\n\n")[2].partition("\n\nCalls,")[0]
    known: dict[str, Any] = {}
    exec(inspect.cleandoc(opening), known)
    assert known["x"].numpy().tolist() == [2.0] * 1000


def test_package_help_lists_names_that_exist() -> None:
    listing = (cujit.__doc__ or "").partition("Calls,")[2].partition("Every error")[0]
    listed = re.findall(r"``(\w+)``", listing)
    assert len(listed) > 20
    assert set(listed) <= set(dir(cujit))


def test_closed_module_without_read_names_has_repr_and_dir() -> None:
    module = cujit.jit(SOURCE, device=cujit.cpu())
    module.close()
    assert repr(module) == "<Module on cpu: closed>"
    assert "close" in dir(module)
    assert "add" not in dir(module)
