"""Launches saved in a file: what comes back of them, what cannot be saved, and files that lie."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

import cujit
from cujit import reproducer
from cujit.devices.device import Device
from cujit.errors import ArgumentError, FileError, FormatError, KernelFaultError, LaunchError, LoadError, OptionError
from cujit.formats.saved_launch import PREFIX_BYTES, read_saved
from cujit.reproducer.running import run_once
from raising import raises

AXPY = """extern "C" __global__ void axpy(float a, const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n)
        y[i] += a * x[i];
}
"""


@functools.cache
def _kernels(device: Device, code: str) -> cujit.Module:
    return cujit.jit(code, device=device, name="code.cu")


def _kernel(device: Device, code: str = AXPY) -> cujit.Kernel:
    module = _kernels(device, code)
    return module[next(iter(module))]


@pytest.fixture
def bug(tmp_path: Path) -> Path:
    """A launch that reads and writes one element beyond its arrays."""
    device = cujit.cpu()
    x, y = device.array(np.arange(1000, dtype=np.float32)), device.zeros(1000, np.float32)
    return _kernel(device)[4, 256].save(tmp_path / "bug.launch", 2.0, x, y, 1000)


# -- what comes back --------------------------------------------------------------------------------------------


def test_saved_launch_describes_its_contents(bug: Path) -> None:
    saved = reproducer.open(bug)
    assert (saved.kernel, saved.grid, saved.block, saved.shared_bytes) == ("axpy", (4, 1, 1), (256, 1, 1), 0)
    assert [argument.type for argument in saved.arguments] == ["float", "const float*", "float*", "int"]
    assert saved.texts[0].shown == "code.cu"
    assert saved.texts[0].text == AXPY


def test_source_text_is_saved_under_the_images_name_for_it(tmp_path: Path) -> None:
    (tmp_path / "axpy.cu").write_text(AXPY)
    kernel = cujit.jit(tmp_path / "axpy.cu", device="cpu", headers={})["axpy"]
    x, y = np.zeros(4, np.float32), np.zeros(4, np.float32)
    (text,) = reproducer.open(kernel[1, 4].save(tmp_path / "right.launch", 2.0, x, y, 3)).texts
    assert (text.name, text.text) == ("/cujit-source/src/axpy.cu", AXPY)


def test_saved_launch_runs_with_its_original_arguments(device: Device, tmp_path: Path) -> None:
    x, y = device.array(np.arange(1000, dtype=np.float32)), device.zeros(1000, np.float32)
    launch = _kernel(device).prepare(4, 256, shared_bytes=64)
    path = launch.save(tmp_path / "right.launch", 2.0, x, y, 999)
    y.fill(7)
    rerun = reproducer.run(path, device=device.name)
    scalar, before, after, count = rerun.arguments
    assert isinstance(after, np.ndarray)
    assert np.array_equal(after, 2 * np.arange(1000, dtype=np.float32))
    assert np.array_equal(before, np.arange(1000, dtype=np.float32))
    assert (scalar, count) == (struct.pack("<f", 2), struct.pack("<i", 999))
    assert rerun.device == device.name
    assert rerun.saved.shared_bytes == 64


def test_check_names_the_argument_and_the_line_of_source(bug: Path) -> None:
    with pytest.raises(KernelFaultError) as e:
        reproducer.run(bug, check="memory")
    assert (e.value.kind, e.value.block, e.value.thread) == ("memory", (3, 0, 0), (232, 0, 0))
    assert "just past the end of the 4,000 bytes of argument 2 (const float*)" in str(e.value)
    assert "code.cu:4" in str(e.value)


@pytest.mark.gpu
def test_gpu_fault_is_named_by_a_check_on_the_cpu_device(gpu: Device, tmp_path: Path) -> None:
    x, y = gpu.array(np.arange(1000, dtype=np.float32)), gpu.zeros(1000, np.float32)
    path = _kernel(gpu)[4, 256].save(tmp_path / "bug.launch", 2.0, x, y, 1000)
    assert reproducer.run(path).device == gpu.name
    assert reproducer.run(path, device="cpu").device == "cpu"
    with raises(KernelFaultError, "fault-memory", "argument 2 (const float*)"):
        reproducer.run(path, check="memory")


def test_trace_and_costs_are_returned(bug: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cujit.reproducer.running.default_device", cujit.gpu)  # where there is one
    rerun = reproducer.run(bug, trace=(3, 231), profile=True)
    assert rerun.trace is not None
    assert "code.cu:4: y[i] += a * x[i];" in rerun.trace["text"]
    assert rerun.trace["launches"][0]["thread"] == [231, 0, 0]
    assert rerun.profile is not None
    assert rerun.profile.totals.flops == 2 * 1001
    assert rerun.profile.to_json()["metrics"]["l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"] == 32


def test_unrequested_results_are_not_computed(bug: Path) -> None:
    for rerun in (reproducer.run(bug, device="cpu"), run_once(bug, device="cpu")):
        assert (rerun.trace, rerun.profile) == (None, None)


def test_overlapping_arguments_overlap_again(tmp_path: Path) -> None:
    device = cujit.cpu()
    code = """extern "C" __global__ void shift(const int *from, int *to) { to[0] = from[0] + 1; to[-1] = 9; }"""
    whole = device.array(np.arange(8, dtype=np.int32))
    path = _kernel(device, code)[1, 1].save(tmp_path / "views.launch", whole[3:5], whole[4:])
    assert [argument.place for argument in reproducer.open(path).arguments] == [(0, 12), (0, 16)]
    first, second = reproducer.run(path, check="memory").arguments
    assert isinstance(first, np.ndarray)
    assert isinstance(second, np.ndarray)
    assert first.tolist() == [9, 4]
    assert second.tolist() == [4, 5, 6, 7]


def test_null_structures_and_empty_arrays_are_restored(tmp_path: Path) -> None:
    device = cujit.cpu()
    code = """struct P { int n; float f; };
    extern "C" __global__ void all(P p, int *none, const float *empty, double *out) {
        *out = p.n + p.f + (none == nullptr) + (empty == nullptr);
    }"""
    kind = np.dtype([("n", np.int32), ("f", np.float32)])
    out = device.zeros(1, np.float64)
    launch = _kernel(device, code)[1, 1]
    path = launch.save(tmp_path / "all.launch", np.array((40, 0.5), kind)[()], None, device.empty(0, np.float32), out)
    result = reproducer.run(path).arguments[3]
    assert isinstance(result, np.ndarray)
    assert result.tolist() == [42.5]


def test_host_arrays_and_nonnumpy_formats_are_saved(tmp_path: Path) -> None:
    device = cujit.cpu()
    code = """#include <cuda_bf16.h>
    extern "C" __global__ void bits(const __nv_bfloat16 *x, unsigned short *y) { y[0] = __bfloat16_as_ushort(x[0]); }"""
    x, y = np.array([0x3F80], np.uint16).view("V2"), np.zeros(1, np.uint16)
    path = _kernel(device, code)[1, 1].save(tmp_path / "bits.launch", x, y)
    kept, result = reproducer.run(path).arguments
    assert kept == b"\x80\x3f"
    assert isinstance(result, np.ndarray)
    assert result.tolist() == [0x3F80]


_VARIABLES = """__constant__ float factor[2];
__device__ int calls, *lent;
__device__ const char *word = "word";
extern "C" __global__ void scale(float *x, float *with) {
    x[threadIdx.x] *= factor[threadIdx.x & 1]; calls++; if (lent || word[1] != 'o') x[0] = -1; with[0] = calls; }"""


def test_module_variables_are_saved_unchanged(device: Device, tmp_path: Path) -> None:
    module = cujit.jit(_VARIABLES, device=device)
    module.globals["factor"].write(np.array([3, 5], np.float32))
    module.globals["calls"].write(6, np.int32)
    x, with_ = device.array(np.ones(4, np.float32)), device.zeros(1, np.float32)
    path = module["scale"][1, 1].save(tmp_path / "constants.launch", x, with_)
    assert "word" not in {variable.name for variable in reproducer.open(path).variables}
    for place in {device.name, "cpu"}:
        scaled, calls = reproducer.run(path, device=place).arguments
        assert isinstance(scaled, np.ndarray)
        assert isinstance(calls, np.ndarray)
        assert (scaled.tolist(), calls.tolist()) == ([3, 1, 1, 1], [7])


def test_variable_with_an_address_of_an_argument_is_refused(tmp_path: Path) -> None:
    device = cujit.cpu()
    module = cujit.jit(_VARIABLES, device=device)
    x = device.zeros(4, np.float32)
    module.globals["lent"].write(x.address + 4, np.uint64)
    with raises(ArgumentError, "argument", "lent", f"{x.address + 4:#x}"):
        module["scale"][1, 1].save(tmp_path / "no.launch", x, x)


def test_variables_of_other_sizes_are_refused(tmp_path: Path) -> None:
    device = cujit.cpu()
    x = device.zeros(4, np.float32)
    saved = reproducer.open(cujit.jit(_VARIABLES, device=device)["scale"][1, 1].save(tmp_path / "v.launch", x, x))
    *others, last = saved.variables
    reproducer.run(_with(saved, variables=(*others, last._replace(name="nobody"))), device="cpu")
    with raises(ArgumentError, "argument", "3 bytes"):
        reproducer.run(_with(saved, variables=(last._replace(data=b"abc"),)), device="cpu")


def test_clusters_and_cooperative_launches_are_saved(tmp_path: Path) -> None:
    device = cujit.cpu()
    code = """extern "C" __global__ void rank(int *out) {
        int n; asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(n)); out[blockIdx.x] = n; }"""
    launch = _kernel(device, code).prepare(2, 32, cluster=2, cooperative=True)
    path = launch.save(tmp_path / "cluster.launch", device.zeros(2, np.int32))
    saved = reproducer.open(path)
    assert (saved.cluster, saved.cooperative) == ((2, 1, 1), True)
    out = reproducer.run(path, device="cpu").arguments[0]
    assert isinstance(out, np.ndarray)
    assert out.tolist() == [2, 2]


def test_image_without_source_is_saved_unchanged(bug: Path, tmp_path: Path) -> None:
    device = cujit.cpu()
    module = cujit.load(reproducer.open(bug).images[-1], device)
    y = device.zeros(256, np.float32)
    path = module["axpy"][1, 256].save(tmp_path / "image.launch", 1.0, y, y, 255)
    assert reproducer.open(path).texts == ()
    assert len(reproducer.open(path).images) == 1
    assert reproducer.run(path, device="cpu").device == "cpu"


def test_cubin_alone_does_not_run_on_the_cpu_device(bug: Path) -> None:
    cubin = cujit.compile(AXPY, to="cubin", arch="sm_90").data
    saved = reproducer.open(bug)
    with raises(LoadError, "load", "CPU", "PTX"):
        reproducer.run(_with(saved, images=(cubin,)), device="cpu")


def _with(saved: reproducer.SavedLaunch, **changes: Any) -> reproducer.SavedLaunch:
    from cujit.values import replace

    return replace(saved, **changes)


def test_arguments_that_do_not_match_the_image_are_refused(bug: Path) -> None:
    saved = reproducer.open(bug)
    with raises(ArgumentError, "argument", "4 parameters", "3"):
        reproducer.run(_with(saved, arguments=saved.arguments[:3]), device="cpu")
    wide = (saved.arguments[0]._replace(data=bytes(8)), *saved.arguments[1:])
    with raises(ArgumentError, "argument", "8", "float"):
        reproducer.run(_with(saved, arguments=wide), device="cpu")


@pytest.mark.parametrize("name", ["gpu", "", 0])
def test_invalid_device_is_refused(bug: Path, name: Any) -> None:
    with raises(OptionError, "option-unknown"):
        reproducer.run(bug, device=name)


def test_watching_is_for_the_cpu_device(bug: Path) -> None:
    with raises(ArgumentError, "device-mismatch", "CPU", "profiles"):
        reproducer.run(bug, check="memory", device="cuda:0")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes")
def test_fault_explains_how_to_save_the_launch() -> None:
    device = cujit.cpu(check="memory")
    kernel = cujit.jit(AXPY, device=device)["axpy"]
    x = device.zeros(4, np.float32)
    for _ in range(8):  # by Python, and by machine code when that is there
        with pytest.raises(KernelFaultError) as e:
            kernel[1, 8](1.0, x, x, 4)
        assert any("axpy[grid, block].save('bug.launch', …) writes this launch" in note for note in e.value.__notes__)


# -- what cannot be saved ---------------------------------------------------------------------------------------


class _WithPointer(ctypes.Structure):
    _fields_ = (("n", ctypes.c_int64), ("p", ctypes.c_void_p))


_STRUCTURE = 'struct P { long n; float *p; }; extern "C" __global__ void k(P p, float *x) { }'


@pytest.mark.parametrize(
    ("code", "arguments", "message"),
    [
        ("void k(float *x) {}", lambda _, x: [cujit.Pointer(x.address)], "size"),
        ("void k(float **x) {}", lambda d, x: [d.array(np.array([x.address], np.uint64))], "docs/reproducer.md"),
        ("void k(unsigned long x, float *y) {}", lambda _, x: [x.address + 4, x], "docs/reproducer.md"),
        (_STRUCTURE, lambda _, x: [_WithPointer(1, x.address), x], "docs/reproducer.md"),
        (_STRUCTURE, lambda _, x: [struct.pack("<qQ", 1, x.address), x], "docs/reproducer.md"),
    ],
    ids=["address", "addresses", "number", "ctypes", "bytes"],
)
def test_addresses_that_cannot_be_followed_are_refused(
    tmp_path: Path, code: str, arguments: Callable[[Device, Any], list[Any]], message: str
) -> None:
    device = cujit.cpu()
    x = device.zeros(16, np.float32)
    kernel = _kernel(device, code if "extern" in code else f'extern "C" __global__ {code}')
    with raises(ArgumentError, "argument", message):
        kernel[1, 1].save(tmp_path / "no.launch", *arguments(device, x))
    assert not (tmp_path / "no.launch").exists()


def test_structures_and_arrays_of_null_pointers_are_saved(tmp_path: Path) -> None:
    device = cujit.cpu()
    x = device.zeros(16, np.float32)
    _kernel(device, _STRUCTURE)[1, 1].save(tmp_path / "a.launch", _WithPointer(0, None), x)
    kernel = _kernel(device, 'extern "C" __global__ void k(float **x) {}')
    kernel[1, 1].save(tmp_path / "b.launch", device.zeros(4, np.uint64))


def test_texture_is_refused(tmp_path: Path) -> None:
    device = cujit.cpu()
    kernel = _kernel(device, 'extern "C" __global__ void k(cudaTextureObject_t t) {}')
    texture = device.texture(np.zeros((4, 4), np.float32))
    with raises(ArgumentError, "argument", "Texture"):
        kernel[1, 1].save(tmp_path / "no.launch", texture)


def test_invalid_arguments_launches_and_files_are_refused(tmp_path: Path) -> None:
    device = cujit.cpu()
    kernel, x = _kernel(device), device.zeros(4, np.float32)
    with raises(ArgumentError, "argument-count", "4", "arguments"):
        kernel[1, 1].save(tmp_path / "no.launch", 1.0)
    with raises(LaunchError, "launch", "save"):
        kernel.over(0).save(tmp_path / "no.launch", 1.0, x, x, 4)
    with raises(FileError, "file", "No such file or directory"):
        kernel[1, 1].save(tmp_path / "none" / "no.launch", 1.0, x, x, 3)


def test_oversized_saved_launch_is_refused(bug: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cujit.formats import saved_launch

    saved = reproducer.open(bug)
    monkeypatch.setattr(saved_launch, "MAX_BODY_BYTES", 8000)
    with raises(FormatError, "format", "8,000"):
        saved_launch.write_saved(saved)


# -- files that lie ---------------------------------------------------------------------------------------------

_FIELDS = struct.Struct("<8sIIQQ")


def _parts(data: bytes) -> tuple[list[Any], dict[str, Any], bytes]:
    fields = list(_FIELDS.unpack_from(data))
    body_at = PREFIX_BYTES + fields[2]
    return fields, json.loads(data[PREFIX_BYTES:body_at]), data[body_at:]


def _whole(fields: list[Any], header: object, body: bytes) -> bytes:
    """Write a file whose digest is right, whatever the rest is."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    fields = [*fields[:2], len(text), len(body), *fields[4:]]
    prefix = _FIELDS.pack(*fields)
    return prefix + hashlib.sha256(prefix + text + body).digest() + text + body


def test_corrupted_test_files_are_otherwise_intact(bug: Path) -> None:
    assert read_saved(_whole(*_parts(bug.read_bytes()))) == reproducer.open(bug)


def _set(*path: Any) -> Callable[[dict[str, Any]], None]:
    *way, last, value = path

    def change(header: dict[str, Any]) -> None:
        at: Any = header
        for step in way:
            at = at[step]
        at[last] = value

    return change


_LIES = {
    "memory": _set("memory", 0, 0, 1 << 40),
    "memory below 0": _set("memory", 0, 0, -1),
    "a little more memory": _set("memory", 0, 0, 4001),
    "images": _set("images", [1 << 30]),
    "a block that is not there": _set("arguments", 1, "place", [2, 0]),
    "a block before the first": _set("arguments", 1, "place", [-1, 0]),
    "beyond a block": _set("arguments", 1, "place", [0, 4]),
    "an array larger than its block": _set("arguments", 1, "nbytes", 4001),
    "an array that is nowhere": _set("arguments", 0, "nbytes", 4),
    "a shape of other bytes": _set("arguments", 1, "shape", [1 << 29, 1 << 29]),
    "a shape below 0": _set("arguments", 1, "shape", [-1000]),
    "objects of Python": lambda header: header["arguments"][1].update(dtype="|O8", shape=[500]),
    "a type of words": _set("arguments", 1, "dtype", "f4,f4"),
    "a pointer of 4 bytes": _set("arguments", 1, "data", "00000000"),
    "parameters of 1 MB": _set("arguments", 0, "data", "00" * 1_000_000),
    "no bytes": _set("arguments", 0, "data", "zz"),
    "grid of 0": _set("grid", [0, 1, 1]),
    "grid of 4 axes": _set("grid", [1, 1, 1, 1]),
    "grid of truth": _set("grid", [True, 1, 1]),
    "a number for a name": _set("kernel", 7),
    "a name that steers a terminal": _set("kernel", "\x1b[2J"),
    "nested": _set("memory", 0, [[[]]]),
    "infinite": _set("memory", 0, 0, float("inf")),
    "cooperative": _set("cooperative", 1),
    "a variable without a name": _set("variables", [[7, 0]]),
    "a variable of other bytes": _set("variables", [["v", 8]]),
    "skip": _set("memory", 0, 1, 1 << 40),
    "nothing": _set("arguments", None),
}


@pytest.mark.parametrize("lie", _LIES)
def test_contradictory_header_is_refused(bug: Path, lie: str) -> None:
    fields, header, body = _parts(bug.read_bytes())
    _LIES[lie](header)
    with raises(FormatError, "format", "invalid"):
        read_saved(_whole(fields, header, body))


@pytest.mark.parametrize("header", [b"", b"{}", b"[]", b"\xff", b"[" * 100_000, b'{"texts": 1}', b"1" * 5000])
def test_invalid_header_is_refused(bug: Path, header: bytes) -> None:
    fields, _, body = _parts(bug.read_bytes())
    with raises(FormatError, "format", "invalid"):
        read_saved(_whole(fields, header, body))


def test_bombs_are_refused_before_they_are_unpacked(bug: Path) -> None:
    fields, header, _ = _parts(bug.read_bytes())
    bomb = zstandard.ZstdCompressor(write_content_size=True).compress(bytes(256 << 20))
    with raises(FormatError, "format", "268435456"):
        read_saved(_whole(fields, header, bomb))  # says less than it is
    huge = [*fields[:4], 1 << 40]
    with raises(FormatError, "format", "1,099,511,627,776"):
        read_saved(_whole(huge, header, bomb))
    header["memory"] = [[1 << 30, 0]]
    header["images"], header["texts"] = [], []
    with raises(FormatError, "format", "20 bytes of zstd data", 1 << 30):
        read_saved(_whole([*fields[:4], 1 << 30], header, bomb[:20]))  # more than so few bytes can stand for


def test_other_version_is_refused(bug: Path) -> None:
    fields, header, body = _parts(bug.read_bytes())
    with raises(FormatError, "format", "2", "1", "at byte 8"):
        read_saved(_whole([fields[0], 2, *fields[2:]], header, body))
    with raises(FormatError, "format", "saved"):
        read_saved(_whole([b"\x7fELF1234", *fields[1:]], header, body))


def test_every_cut_and_every_damaged_byte_is_seen(bug: Path) -> None:
    data = bug.read_bytes()
    for size in range(0, len(data), 7):
        with pytest.raises(FormatError):
            read_saved(data[:size])
    with raises(FormatError, "format"):
        read_saved(data + b"\0")
    for at in range(0, len(data), 5):
        with pytest.raises(FormatError):
            read_saved(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


def test_oversized_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.launch"
    path.touch()
    os.truncate(path, 8 << 30)
    with raises(FormatError, "format", "large.launch", "8,589,934,592"):
        reproducer.open(path)
