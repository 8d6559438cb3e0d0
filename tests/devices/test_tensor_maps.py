"""Tensor maps at the public door, on every device present; and copies against what a GPU recorded."""

from __future__ import annotations

import dataclasses
import functools
import gc
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cujit.artifact import Artifact
from cujit.devices.device import Device
from cujit.devices.tensormaps.tiling import TensorMap
from cujit.errors import ArgumentError, ClosedError, KernelFaultError, UnsupportedError
from cujit.kernel import Kernel
from cujit.loading import load
from cujit.program import compile as compile_cuda
from devices.tensor_table import CASES, GOLDENS, Case, run
from pages import Page
from raising import raises

pytestmark = pytest.mark.usefixtures("unoptimised")

Array = npt.NDArray[Any]

PAGE = Page("tensor-maps.md")

LOAD = """
struct alignas(64) CUtensorMap_st { unsigned long long opaque[16]; };
extern "C" __global__ void box(const __grid_constant__ CUtensorMap_st map, int x, int y, unsigned bytes, int *out) {
    __shared__ alignas(1024) int tile[1024];
    __shared__ unsigned long long there;
    unsigned to = (unsigned)__cvta_generic_to_shared(tile), bar = (unsigned)__cvta_generic_to_shared(&there);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;\\nfence.mbarrier_init.release.cluster;" :: "r"(bar) : "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(bar), "r"(bytes) : "memory");
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
                     "[%1, {%2, %3}], [%4];" :: "r"(to), "l"(&map), "r"(x), "r"(y), "r"(bar) : "memory");
    }
    __syncthreads();
    asm volatile("{.reg .pred done; AGAIN: mbarrier.try_wait.parity.shared.b64 done, [%0], 0;\\n"
                 "@!done bra AGAIN; }" :: "r"(bar) : "memory");
    for (unsigned i = threadIdx.x; i < bytes / 4; i += blockDim.x) out[i] = tile[i];
}
struct Other { int words[32]; };
extern "C" __global__ void other(const __grid_constant__ Other o, int *out) { *out = o.words[1]; }
"""


@functools.cache
def image() -> Artifact:
    """The kernels, compiled once."""
    return compile_cuda(LOAD, arch="compute_90")


@functools.cache
def box_kernel(device: Device) -> Kernel:
    if device.is_gpu and device.arch.number < 90:
        pytest.skip(f"{device} has no tensor maps")
    return load(image(), device)["box"]


def loaded(device: Device, map_: TensorMap, start: tuple[int, int]) -> Array:
    """What a box holds, as words."""
    out = device.zeros(map_.box_bytes // 4, np.int32)
    box_kernel(device)[1, 32](map_, start[1], start[0], map_.box_bytes, out)
    return out.numpy()


DATA = np.arange(20 * 32, dtype=np.int32).reshape(20, 32)


def test_box_is_in_the_order_of_the_array_axes(device: Device) -> None:
    map_ = device.tensor_map(device.array(DATA), (4, 8))
    assert map_.box_bytes == 128
    assert (loaded(device, map_, (3, 16)).reshape(4, 8) == DATA[3:7, 16:24]).all()


def test_every_launch_reads_its_own_map(device: Device) -> None:
    first, second = (device.tensor_map(device.array(x), (4, 8)) for x in (DATA, -DATA))
    for map_, sign in ((first, 1), (second, -1), (first, 1)):
        assert (loaded(device, map_, (0, 0)).reshape(4, 8) == sign * DATA[:4, :8]).all()


def test_part_of_an_array_is_described_by_shape_and_strides(device: Device) -> None:
    map_ = device.tensor_map(device.array(DATA), (4, 8), shape=(10, 30), strides=(2 * 128, 4))
    expected = np.zeros((4, 8), np.int32)
    expected[:3, :6] = DATA[14::2, 24:30]
    assert (loaded(device, map_, (7, 24)).reshape(4, 8) == expected).all()


def test_strides_may_omit_the_last_axis(device: Device) -> None:
    x = device.array(DATA)
    assert bytes(device.tensor_map(x, (4, 8), strides=(128,))) == bytes(device.tensor_map(x, (4, 8)))


def test_element_strides_select_every_nth_row(device: Device) -> None:
    map_ = device.tensor_map(device.array(DATA), (7, 8), element_strides=(3, 1))
    assert map_.box_bytes == 3 * 32
    assert (loaded(device, map_, (2, 8)).reshape(3, 8) == DATA[2:9:3, 8:16]).all()


def test_other_type_of_the_same_size_may_be_specified(device: Device) -> None:
    x = device.array(np.full((4, 4), 1.0 + 2.0**-11 + 2.0**-20, np.float32))
    map_ = device.tensor_map(x, (4, 4), data_type="tfloat32")
    assert (loaded(device, map_, (0, 0)).view(np.float32) == 1.0 + 2.0**-10).all()


def test_array_of_another_library_is_read_by_its_interface(cpu: Device) -> None:
    map_ = cpu.tensor_map(DATA[::2, :30], (4, 8))
    expected = np.zeros((4, 8), np.int32)
    expected[:, :6] = DATA[::2][2:6, 24:30]
    assert (loaded(cpu, map_, (2, 24)).reshape(4, 8) == expected).all()


class Computed:
    """An array as JAX gives it: its memory is there, and its elements come while Python goes on."""

    def __init__(self) -> None:
        self._elements = np.zeros_like(DATA)
        self.__array_interface__ = self._elements.__array_interface__

    def block_until_ready(self) -> None:
        self._elements[:] = DATA


def test_pending_array_is_waited_for(cpu: Device) -> None:
    map_ = cpu.tensor_map(Computed(), (4, 8))
    assert (loaded(cpu, map_, (4, 8)).reshape(4, 8) == DATA[4:8, 8:16]).all()


def test_map_keeps_its_array(device: Device) -> None:
    x = device.array(DATA)
    gone = weakref.ref(x)
    map_ = device.tensor_map(x, (4, 8))
    del x
    gc.collect()
    assert gone() is not None
    assert (loaded(device, map_, (0, 0)).reshape(4, 8) == DATA[:4, :8]).all()


def test_map_of_a_closed_array_is_refused(device: Device) -> None:
    x = device.array(DATA)
    map_ = device.tensor_map(x, (4, 8))
    loaded(device, map_, (0, 0))
    x.close()
    with raises(ClosedError, "closed"):
        loaded(device, map_, (0, 0))


# -- im2col -----------------------------------------------------------------------------------------------


def column(images: Array, place: tuple[int, ...], sizes: tuple[int, ...], stride: int, padding: int) -> Array:
    """The pixels that a convolution multiplies with one place of its filter: ``(pixels, C)``.

    ``sizes`` counts the places that the filter's corner can be at along each axis of space.
    """
    wide = np.pad(images, [(0, 0), *[(padding, padding)] * len(place), (0, 0)])
    taken = (np.arange(0, n, stride) + at for n, at in zip(sizes, place, strict=True))
    return np.asarray(wide[np.ix_(np.arange(len(images)), *taken)].reshape(-1, images.shape[-1]))


# Images, filter, stride, padding, dilation.
CONVOLUTIONS = {
    "3 x 3": ((3, 7, 9, 16), (3, 3), 1, 1, 1), "no padding": ((3, 7, 9, 16), (2, 3), 1, 0, 1),
    "dilated": ((3, 7, 9, 16), (3, 3), 1, 2, 2), "strided": ((3, 7, 9, 16), (3, 3), 2, 1, 1),
    "1 x 1": ((3, 7, 9, 16), (1, 1), 1, 0, 1), "lines": ((4, 13, 16), (5,), 1, 2, 1),
    "volumes": ((2, 3, 4, 5, 16), (2, 3, 3), 1, 1, 1), "strided volumes": ((3, 3, 5, 5, 16), (1, 3, 3), 2, 1, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_im2col_selects_the_pixels_of_a_convolution(name: str, device: Device) -> None:
    if device.is_gpu and device.arch.number < 90:
        pytest.skip(f"{device} has no tensor maps")
    shape, filter_, stride, padding, dilation = CONVOLUTIONS[name]
    images = np.random.default_rng(5).integers(1, 2**31, shape).astype(np.uint32)
    upper = tuple(padding - (f - 1) * dilation for f in filter_)
    sizes = tuple(n + padding + u for n, u in zip(shape[1:-1], upper, strict=True))
    places = [range(0, n, stride) for n in sizes]
    pixels, first = 24, 5
    image, *at = np.unravel_index(first, (shape[0], *map(len, places)))
    start = (int(image), *(int(k) * stride - padding for k in at), 8)
    steps = {"element_strides": (1, *[stride] * len(filter_), 1)}
    for place in np.ndindex(*filter_):
        offsets = tuple(k * dilation for k in place)
        case = Case(name, shape, start, (*[1] * (len(shape) - 1), 8), options=steps, offsets=offsets,
                    corners=((-padding,) * len(filter_), upper), pixels=pixels, data=images)  # fmt: skip
        got = run(device, case)[: pixels * 32].view(np.uint32).reshape(pixels, 8)
        expected = column(images, offsets, sizes, stride, padding)[first : first + pixels, 8:]
        np.testing.assert_array_equal(got, expected)


IM2COL_REFUSED: dict[str, tuple[tuple[int, ...], tuple[Any, ...], tuple[str, ...]]] = {
    "two axes": ((4, 16), (0, 0, 4, 4), ("2", "axes")),
    "a corner": ((4, 9, 9, 16), (0, (0, 0), 4, 4), ("lower", "1", "4")),
    "a far corner": ((4, 9, 9, 16), ((-129, 0), (0, 0), 4, 4), ("lower[0]", "-129")),
    "no box": ((4, 9, 9, 16), ((0, 5), (0, -4), 4, 4), ("2", "9", "5")),
    "pixels": ((4, 9, 9, 16), ((0, 0), (0, 0), 1025, 4), ("pixels[0]", "1025")),
    "channels": ((4, 9, 9, 16), ((0, 0), (0, 0), 4, 3), ("12", "box")),
    "words": ((4, 9, 9, 16), ((0, 0), (0, 0), "4", 4), ("4", "pixels")),
}


@pytest.mark.parametrize("name", IM2COL_REFUSED)
def test_invalid_image_map_is_refused(name: str, device: Device) -> None:
    shape, values, why = IM2COL_REFUSED[name]
    with raises(ArgumentError, "argument", *why):
        device.im2col_map(device.zeros(shape, np.float32), *values)


def test_image_map_is_refused_for_tiles(cpu: Device) -> None:
    map_ = cpu.im2col_map(cpu.zeros((4, 9, 9, 16), np.float32), (0, 0), (0, 0), 4, 4)
    assert map_.box_bytes == 64
    with raises(KernelFaultError, "fault-tensor-map"):
        loaded(cpu, map_, (0, 0))


def test_pixel_not_aligned_to_16_bytes_ends_the_launch(cpu: Device) -> None:
    steps: dict[str, Any] = {"offsets": (0, 0), "corners": ((0, 0), (0, 0)), "pixels": 8}
    case = Case("channels", (3, 7, 9, 16), (0, 2, 3, 4), (1, 1, 1, 8), **steps)
    run(cpu, case)
    for operation in ("load", "store"):
        wrong = dataclasses.replace(case, start=(0, 2, 3, 2), operation=operation)
        with raises(KernelFaultError, "fault-bulk-align", "bulk.tensor.4d"):
            run(cpu, wrong)


# -- what cannot be ---------------------------------------------------------------------------------------

F4 = np.float32
REFUSED: dict[str, tuple[Any, Any, dict[str, Any], tuple[str, ...]]] = {
    "no axes": (np.zeros(()), (), {}, ("0", "axes")),
    "six axes": (np.zeros((1, 1, 1, 1, 1, 2)), (1, 1, 1, 1, 1, 2), {}, ("6", "axes")),
    "no elements": (np.zeros((0, 16), F4), (4, 16), {}, ("shape[0]",)),
    "axes of the box": (np.zeros((4, 16), F4), 16, {}, ("box", "1", "2")),
    "a box of words": (np.zeros((4, 16), F4), "4x16", {}, ("box",)),
    "a wide box": (np.zeros((4, 512), F4), (4, 512), {}, ("box[1]", "512")),
    "an empty box": (np.zeros((4, 16), F4), (0, 16), {}, ("box[0]",)),
    "an odd row": (np.zeros((4, 16), F4), (4, 3), {}, ("12", "box")),
    "an odd stride": (np.zeros((4, 15), F4), (4, 4), {}, ("strides[0]", "60", "16")),
    "a step": (np.zeros((4, 16), F4), (4, 16), {"element_strides": (9, 1)}, ("element_strides[0]", "9")),
    "steps": (np.zeros((4, 16), F4), (4, 16), {"element_strides": 1}, ("element_strides", "1")),
    "strides": (np.zeros((4, 16), F4), (4, 16), {"strides": (1, 2, 3)}, ("strides", "3")),
    "columns": (np.zeros((4, 16), F4), (4, 16), {"strides": (16, 64)}, ("64",)),
    "beyond the array": (np.zeros((4, 16), F4), (4, 16), {"shape": (5, 16)}, ("320", "256")),
    "strides beyond": (np.zeros((4, 16), F4), (4, 16), {"strides": (128, 4)}, ("448",)),
    "axes of the shape": (np.zeros((4, 16), F4), (4, 16), {"shape": 64}, ("1", "2", "axes")),
    "the swizzle": (np.zeros((4, 64), F4), (4, 64), {"swizzle": 128}, ("256", "128")),
    "a swizzle": (np.zeros((4, 16), F4), (4, 16), {"swizzle": "256"}, ("none", "32", "64")),
    "a fill": (np.zeros((4, 16), F4), (4, 16), {"fill": "one"}, ("zero", "nan", "one")),
    "a cache line": (np.zeros((4, 16), F4), (4, 16), {"l2": 32}, ("l2", "none", "64")),
    "no NaN": (np.zeros((4, 16), np.int32), (4, 16), {"fill": "nan"}, ("int32", "NaN")),
    "complex": (np.zeros((4, 16), "c8"), (4, 16), {}, ("complex64",)),
    "a type": (np.zeros((4, 16), F4), (4, 16), {"data_type": "tf32"}, ("tfloat32", "tf32")),
    "another size": (np.zeros((4, 16), F4), (4, 16), {"data_type": "float16"}, ("float16", "2")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_tensor_map_is_refused(name: str, device: Device) -> None:
    data, box, options, why = REFUSED[name]
    with raises(ArgumentError, "argument", *why):
        device.tensor_map(device.array(data), box, **options)


def test_misaligned_tensor_is_refused(device: Device) -> None:
    with raises(ArgumentError, "argument", "16", "multiple"):
        device.tensor_map(device.zeros(64, np.uint8)[8:40], 16)


def test_nonarray_is_refused(device: Device) -> None:
    with raises(ArgumentError, "device-mismatch", "list"):
        device.tensor_map([1, 2, 3], 16)


def test_array_of_another_device_is_refused(cpu: Device, gpu_memory: Device) -> None:
    with raises(ArgumentError, "device-mismatch", "cpu", "DeviceArray"):
        cpu.tensor_map(gpu_memory.array(DATA), (4, 8))


def test_map_of_another_device_is_refused(cpu: Device, gpu_memory: Device) -> None:
    map_ = cpu.tensor_map(cpu.array(DATA), (4, 8))
    foreign = TensorMap(gpu_memory, map_.source, map_.tiling, bytes(map_))
    with raises(ArgumentError, "argument-type", "cuda:1", "cpu", "map"):
        loaded(cpu, foreign, (0, 0))


def test_map_is_accepted_for_an_aligned_parameter(cpu: Device) -> None:
    map_ = cpu.tensor_map(cpu.array(DATA), (4, 8))
    with raises(ArgumentError, "argument-type", "64", "__grid_constant__"):
        load(image(), cpu)["other"][1, 1](map_, cpu.zeros(1, np.int32))


def test_bytes_of_a_gpu_end_the_launch_on_the_cpu_device(cpu: Device) -> None:
    out = cpu.zeros(32, np.int32)
    with raises(KernelFaultError, "fault-tensor-map", "CPU"):
        box_kernel(cpu)[1, 32](bytes(range(128)), 0, 0, 128, out)


@pytest.mark.parametrize("interleave", [16, "32"])
def test_interleaved_layouts_are_refused_by_name(device: Device, interleave: object) -> None:
    with raises(UnsupportedError, "unsupported", "interleave="):
        device.tensor_map(device.zeros((2, 4, 8), np.float16), (1, 4, 8), interleave=interleave)  # type: ignore[arg-type]


def test_device_without_tensor_maps_is_reported(host: Device) -> None:
    with raises(UnsupportedError, "unsupported", "cpu", "maps"):
        host.tensor_map(host.array(DATA), (4, 8))


def test_map_has_a_readable_repr(cpu: Device) -> None:
    map_ = cpu.tensor_map(cpu.array(DATA), (4, 8), swizzle="32")
    assert repr(map_) == "<TensorMap int32 (20, 32), box (4, 8), swizzle 32, on cpu>"
    assert len(bytes(map_)) == 128


# -- against a GPU ----------------------------------------------------------------------------------------


@functools.cache
def goldens() -> dict[str, Array]:
    return dict(np.load(GOLDENS))


def test_every_recorded_copy_has_a_valid_start() -> None:
    assert not [c.name for c in CASES if c.start[-1] * np.dtype(c.dtype).itemsize % 16]
    assert not [c.name for c in CASES if not c.is_load and c.start[-1] < 0]
    assert len({c.name for c in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
def test_copy_matches_the_gpu(case: Case, device: Device) -> None:
    assert case.name in goldens(), "not recorded"
    got, golden = run(device, case), goldens()[case.name]
    wrong = np.flatnonzero(got != golden)
    assert not len(wrong), f"{len(wrong)} of {got.size} bytes differ, the first at {wrong[0]}"


# -- the page ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", PAGE.each())
def test_snippet_of_the_page_runs(code: str, device: Device) -> None:
    if device.is_gpu and device.arch.number < 90:
        pytest.skip(f"{device} has no tensor maps")
    PAGE.run(code, device=device)


def test_page_contains_its_snippets() -> None:
    assert len(PAGE.snippets()) == 5
