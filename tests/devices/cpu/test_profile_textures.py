"""What lookups in textures cost: by models over the coordinates of the lanes, and by what a GPU counted."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cujit
from cujit.profile import Measures, Profile, ProfiledKernel, compare
from devices.cpu import counters_cases, counters_record

CODE = r"""
extern "C" __global__ void line(cudaTextureObject_t t, const int *at, const int *does, float *y) {
    int i = at[threadIdx.x];
    if (does[threadIdx.x])
        y[threadIdx.x] = tex1Dfetch<float>(t, i);
}
extern "C" __global__ void plane(cudaTextureObject_t t, const float *u, const float *v, float *y) {
    y[threadIdx.x] = tex2D<float>(t, u[threadIdx.x], v[threadIdx.x]);
}
extern "C" __global__ void gather(cudaTextureObject_t t, const float *u, const float *v, float *y) {
    y[threadIdx.x] = tex2Dgather<float4>(t, u[threadIdx.x], v[threadIdx.x], 1).x;
}
extern "C" __global__ void volume(cudaTextureObject_t t, const float *u, const float *v, float *y) {
    y[threadIdx.x] = tex3D<float>(t, u[threadIdx.x], v[threadIdx.x], threadIdx.x % 4 + .5f);
}
extern "C" __global__ void rounds(cudaTextureObject_t t, float *y, int n) {
    __shared__ float s[64];
    for (int k = 0; k < n; k++) {
        s[threadIdx.x] = tex2D<float>(t, threadIdx.x % 16 + .5f, blockIdx.x + k + .5f);
        __syncthreads();
        y[threadIdx.x] = s[63 - threadIdx.x];
        __syncthreads();
    }
}
"""
WIDTH, HEIGHT = 40, 24


@functools.cache
def _module(threads: int = 1) -> tuple[Profile, cujit.Device, cujit.Module]:
    profile = Profile()
    device = cujit.cpu(threads, profile=profile)
    return profile, device, cujit.jit(CODE, device=device, name="textures.cu")


def _lookups(name: str, texture: object, *arguments: object) -> Measures:
    profile, device, module = _module()
    profile.clear()
    held = [device.array(each) if isinstance(each, np.ndarray) else each for each in arguments]
    module[name][1, 32](getattr(texture, "handle", texture), *held, device.zeros(64, np.float32))
    (kernel,) = profile.kernels
    return next((row.measures for row in kernel.instructions if row.measures.texture_requests), Measures())


def _line_sectors(places: Iterable[int]) -> int:
    return len({place // 32 for place in places})


def _plane_sectors(texels: Iterable[tuple[int, ...]], size: int) -> int:
    """Sectors of an array: two rows of 16 bytes."""
    return len({(x * size // 16, y // 2, *rest) for x, y, *rest in texels})


some = settings(max_examples=40, deadline=None)
at_32 = st.one_of(
    st.lists(st.integers(0, 255), min_size=32, max_size=32),
    st.builds(lambda first, by: [(first + k * by) % 256 for k in range(32)], st.integers(0, 99), st.integers(0, 9)),
)
coordinates = st.lists(st.integers(0, 4 * HEIGHT - 1).map(lambda q: q / 4), min_size=32, max_size=32)


@some
@given(at=at_32, does=st.lists(st.integers(0, 1), min_size=32, max_size=32))
def test_linear_fetches_move_the_sectors_of_their_addresses(at: list[int], does: list[int]) -> None:
    _, device, _ = _module()
    texture = device.texture(device.zeros(256, np.float32))
    cost = _lookups("line", texture, np.array(at, np.int32), np.array(does, np.int32))
    ran = [4 * place for place, d in zip(at, does, strict=True) if d]
    assert (cost.texture_bytes, cost.texture_sectors) == (4 * len(ran), _line_sectors(ran))
    assert cost.requests == 0


def test_fetches_outside_read_nothing() -> None:
    _, device, _ = _module()
    texture = device.texture(device.zeros(256, np.float32))
    at = np.array([*range(-8, 8), *range(248, 264)], np.int32)
    cost = _lookups("line", texture, at, np.ones(32, np.int32))
    assert (cost.texture_bytes, cost.texture_sectors) == (4 * 16, 2)


@some
@given(u=coordinates, v=coordinates, type_=st.sampled_from([np.uint8, np.float16, np.float32]))
def test_nearest_fetches_in_an_array_move_sectors_of_two_rows(
    u: list[float], v: list[float], type_: type[np.generic]
) -> None:
    _, device, _ = _module()
    plane = np.zeros((HEIGHT, WIDTH), type_)
    texture = device.texture(plane, read="normalized_float" if type_ is np.uint8 else "element")
    cost = _lookups("plane", texture, np.array(u, np.float32), np.array(v, np.float32))
    texels = [(int(x), int(y)) for x, y in zip(u, v, strict=True)]
    size = plane.itemsize
    assert (cost.texture_bytes, cost.texture_sectors) == (32 * size, _plane_sectors(texels, size))


def test_rows_of_a_device_array_are_contiguous() -> None:
    _, device, _ = _module()
    texture = device.texture(device.zeros((HEIGHT, 64), np.float32))
    u, v = np.arange(32) % 8 + 0.5, np.arange(32) // 8 + 0.5
    cost = _lookups("plane", texture, u.astype(np.float32), v.astype(np.float32))
    assert (cost.texture_bytes, cost.texture_sectors) == (32 * 4, 4)
    kept = _lookups("plane", device.texture(np.zeros((HEIGHT, 64), np.float32)), *map(np.float32, (u, v)))
    assert (kept.texture_bytes, kept.texture_sectors) == (32 * 4, 4)
    row = _lookups("plane", texture, (np.arange(32) + 0.5).astype(np.float32), np.full(32, 0.5, np.float32))
    assert row.texture_sectors == 4


@some
@given(u=coordinates, v=coordinates)
def test_linear_fetches_read_the_neighbors_that_count(u: list[float], v: list[float]) -> None:
    _, device, _ = _module()
    texture = device.texture(np.zeros((HEIGHT, WIDTH), np.float32), filter="linear")
    cost = _lookups("plane", texture, np.array(u, np.float32), np.array(v, np.float32))

    def along(place: float, size: int) -> set[int]:
        first, part = divmod(place - 0.5, 1)
        return {min(max(int(first) + k, 0), size - 1) for k in range(2) if k == 0 or part}

    texels = {(x, y) for a, b in zip(u, v, strict=True) for x in along(a, WIDTH) for y in along(b, HEIGHT)}
    assert cost.texture_sectors == _plane_sectors(texels, 4)
    assert cost.texture_bytes >= 4 * 32


def test_gather_reads_four_neighbors_for_any_component() -> None:
    _, device, _ = _module()
    texture = device.texture(np.zeros((HEIGHT, WIDTH, 2), np.float32), channels=2)
    lane = np.arange(32)
    cost = _lookups("gather", texture, (lane + 1.0).astype(np.float32), np.full(32, 4.0, np.float32))
    texels = [(x + dx, y) for x in range(32) for dx in range(2) for y in (3, 4)]
    assert (cost.texture_bytes, cost.texture_sectors) == (32 * 4 * 8, _plane_sectors(texels, 8))


def test_slices_of_a_volume_share_no_sectors() -> None:
    _, device, _ = _module()
    texture = device.texture(np.zeros((4, HEIGHT, WIDTH), np.float32))
    zeros = np.full(32, 0.5, np.float32)
    cost = _lookups("volume", texture, zeros, zeros)
    assert (cost.texture_bytes, cost.texture_sectors) == (32 * 4, 4)


def _rounds(threads: int) -> ProfiledKernel:
    profile, device, module = _module(threads)
    profile.clear()
    texture = device.texture(np.zeros((HEIGHT, WIDTH), np.float32))
    module["rounds"][9, 64](texture.handle, device.zeros(64, np.float32), 3)
    return profile.kernels[0]


def test_fetches_between_barriers_count_once_for_any_threads() -> None:
    one, three = _rounds(1), _rounds(3)
    assert one == three
    totals = one.totals
    assert (totals.texture_requests, totals.texture_bytes) == (9 * 2 * 3, 9 * 64 * 3 * 4)
    assert totals.texture_sectors == 9 * 2 * 3 * 4
    assert ProfiledKernel.from_json(json.loads(json.dumps(one.to_json()))) == one
    assert {"texture_sectors", "texture_bytes"} <= {change.what for change in compare(one, one).changes}


@pytest.mark.parametrize("name", ["texels", "plane of texels"])
def test_gpu_counted_as_many_sectors(name: str) -> None:
    profile, device, _ = _module()
    profile.clear()
    next(case for case in counters_cases.cases() if case.name == name).run(device)
    golden = json.loads(counters_record.GOLDEN.read_text())["cases"][name]
    sectors = {count for metric, count in golden.items() if metric.startswith("l1tex__t_sectors_pipe_tex_mem")}
    assert {profile.kernels[0].totals.texture_sectors} == sectors
