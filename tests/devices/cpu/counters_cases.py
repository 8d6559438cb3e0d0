"""What ``ncu`` and the CPU device count alike: kernels of ``counters.cu``, and those of other tests.

``counters_record.py`` launches every case on a GPU, ``test_profile.py`` on the CPU device.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import cujit
from kernels import test_kernels
from kernels.cases import CASES as KERNELS
from real import test_bulk_sums, test_cub, test_groups, test_halves, test_matrix, test_pipelines, test_triton

SOURCE = Path(__file__).with_name("counters.cu")

Array = npt.NDArray[Any]
ELEMENTS: Mapping[str, tuple[type[np.generic], int]] = {
    "unsigned char": (np.uint8, 1), "unsigned short": (np.uint16, 1), "unsigned": (np.uint32, 1), "int": (np.int32, 1),
    "unsigned long long": (np.uint64, 1), "float": (np.float32, 1), "double": (np.float64, 1),
    "uchar4": (np.uint8, 4), "float2": (np.float32, 2), "float4": (np.float32, 4), "double2": (np.float64, 2),
}  # fmt: skip
"""What types of C++ are as arrays: elements, and how many."""


class Case(NamedTuple):
    """Something that is launched: ``kernel`` is the instance of ``counters.cu`` that it launches, if it does."""

    name: str
    run: Callable[[cujit.Device], object]
    kernel: str = ""
    launches: int = 1


# -- kernels of counters.cu ---------------------------------------------------------------------------------


@functools.lru_cache(maxsize=2)
def module_on(device: cujit.Device) -> cujit.Module:
    """Compile all kernels of the source."""
    names = sorted({case.kernel for case in cases() if case.kernel})
    return cujit.jit(SOURCE.read_text(), names=names, device=device, name=SOURCE.name)


Dims = int | tuple[int, ...]


def _case(name: str, kernel: str, grid: Dims, block: Dims, *arguments: object, shared_bytes: int = 0) -> Case:
    def run(device: cujit.Device) -> None:
        given = [a(device) if callable(a) else a for a in arguments]
        held = [device.array(a) if isinstance(a, np.ndarray) else np.int32(a) if isinstance(a, int) else a
                for a in given]  # fmt: skip
        held = [getattr(a, "handle", a) for a in held] if kernel.endswith("texels") else held
        module_on(device)[kernel].prepare(grid, block, shared_bytes=shared_bytes)(*held)
        device.synchronize()
        del given

    return Case(name, run, kernel)


def _zeros(type_: str, count: int) -> Array:
    element, parts = ELEMENTS[type_]
    return np.zeros(count * parts, element)


MANY, FEW, BLOCK = 256, 64, 256


def _global() -> Iterator[Case]:
    def load(name: str, type_: str, stride: int = 1, first: int = 0, grid: Dims = MANY, block: Dims = BLOCK) -> Case:
        threads = int(np.prod(grid) * np.prod(block))
        x, y = _zeros(type_, threads * stride + 8), _zeros(type_, threads)
        return _case(name, f"load<{type_}>", grid, block, x, y, stride, first)

    for stride in range(1, 34):
        yield load(f"load of floats, stride {stride}", "float", stride)
    yield load("load of floats, one off", "float", 1, 1)
    for type_ in ("unsigned char", "unsigned short", "double", "float2", "float4", "uchar4"):
        y = _zeros(type_, MANY * BLOCK + 8)
        yield load(f"load of {type_}", type_)
        yield load(f"load of {type_}, one off and with stride 3", type_, 3, 1)
        yield _case(f"store of {type_}, one off", f"store<{type_}>", MANY, BLOCK, y, 1, 1)
        yield _case(f"load of {type_} by ld.global.nc", f"load_nc<{type_}>", MANY, BLOCK, y, y)
    for stride in (1, 2, 7, 32):
        y = _zeros("float", MANY * BLOCK * stride)
        yield _case(f"store of floats, stride {stride}", "store<float>", MANY, BLOCK, y, stride, 0)
    for block in (50, 1, 33, (8, 5), (3, 3, 3)):
        yield load(f"load by blocks of {block}", "float", 1, 0, 7, block)
    x, at = _zeros("float", MANY * BLOCK), np.random.default_rng(1).integers(0, MANY * BLOCK, MANY * BLOCK, np.int32)
    for every in (2, 3, 32):
        yield _case(f"one thread of {every}", "some", MANY, BLOCK, x, x, every)
    for kernel in ("volatile_copy", "of_one_word"):
        yield _case(kernel.replace("_", " "), kernel, MANY, BLOCK, x, x)
    yield _case("streamed float4", "streamed", FEW, BLOCK, x, x)
    yield _case("gather", "gather", MANY, BLOCK, x, at, x)
    yield _case("scatter", "scatter", MANY, BLOCK, at, x)
    yield _case("structures of three floats", "threes", FEW, BLOCK, x, x)
    yield _case("four floats one by one", "four_by_one", FEW, BLOCK, x, x)
    for block in ((32, 4), (16, 16), (8, 8), (5, 9)):
        grid = (-(-100 // block[0]), -(-70 // block[1]))
        yield _case(f"plane by blocks of {block}", "plane", grid, block, x, x, 100, 70)
    for most in (0, 5, 32):
        yield _case(f"predicated, {most} lanes load", "predicated", FEW, BLOCK, x, x, most)
    yield _case("constants", "constants", FEW, BLOCK, x)
    yield _case("texels", "texels", FEW, BLOCK, lambda device: device.texture(device.array(x)), x)
    flat = x[: 128 * 64].reshape(64, 128)
    yield _case("plane of texels", "plane_of_texels", (4, 64), 32, lambda device: device.texture(flat), x, 128)


def _patterns() -> Iterator[tuple[str, Array, Array]]:
    """Where the lanes of a warp go, and which of them do."""
    lane, all_ = np.arange(32), np.ones(32, np.int32)
    rng = np.random.default_rng(5)
    for k in range(1, 6):
        yield f"{1 << k} lanes to one", lane >> k, all_
    for k in (2, 4, 8, 16):
        yield f"{k} in turns", lane % k, all_
    for k in (2, 5, 8):
        yield f"{k} apart", lane * k, all_
    yield "neighbours swapped", lane ^ 1, all_
    yield "any order", rng.permutation(32), all_
    for most in (16, 64, 1024):
        yield f"any of {most}", rng.integers(0, most, 32), all_
    for name, does in {
        "even lanes": lane % 2 == 0, "lower half": lane < 16, "first and third quarter": lane % 16 < 8,
        "one lane": lane == 9, "lanes 0 and 31": lane % 31 == 0, "some lanes": rng.random(32) < 0.5,
    }.items():  # fmt: skip
        yield name, lane, does
    yield "some lanes to any of 64", rng.integers(0, 64, 32), rng.random(32) < 0.5
    yield "two words", lane % 2 * 32, all_
    yield "halves swapped", lane ^ 16, all_
    yield "halves a line apart", lane % 16 + lane // 16 * 32, all_


def _shared() -> Iterator[Case]:
    for name, where, lanes in _patterns():
        at, does = where.astype(np.int32), lanes.astype(np.int32)
        for type_ in ("double", "float4"):
            y = _zeros(type_, 1024)
            yield _case(f"shared load of {type_}, {name}", f"read_shared<{type_}>", 1, 32, at, does, y)
            yield _case(f"shared store of {type_}, {name}", f"write_shared<{type_}>", 1, 32, at, does, y)
    y = _zeros("unsigned", 32)
    rows = {"side by side": 1, "two rows apart": 2, "eight rows apart": 8, "padded": 9, "one": 0}
    for name, apart in rows.items():
        where = np.arange(32) * apart
        for kernel in ("rows_of_matrices", "two_matrices", "stored_matrices"):
            what = kernel.replace("_", " ")
            yield _case(f"{what}, {name}", kernel, 1, 32, where.astype(np.int32), y)
    x = _zeros("unsigned char", FEW * BLOCK * 64)
    for bytes_ in (4, 8, 16):
        for stride, pitch in ((bytes_, bytes_), (32, bytes_), (bytes_, 48), (bytes_, 64)):
            name = f"cp.async of {bytes_} bytes, {stride} bytes apart to {pitch}"
            yield _case(name, f"copied<{bytes_}>", FEW, BLOCK, x, x, stride, pitch)
    yield _case(
        "either memory", "either_memory", FEW, BLOCK, _zeros("float", FEW * BLOCK), _zeros("float", FEW * BLOCK)
    )
    for type_ in ("unsigned char", "unsigned short", "float", "double", "float4"):
        for stride in (1, 2, 3, 8, 32, 33):
            y = _zeros(type_, FEW * BLOCK)
            yield _case(f"shared store of {type_}, stride {stride}", f"shared_store<{type_}>", FEW, BLOCK, y, stride)
            yield _case(f"shared load of {type_}, stride {stride}", f"shared_load<{type_}>", FEW, BLOCK, y, stride)


def _atomics() -> Iterator[Case]:
    for type_ in ("unsigned", "unsigned long long", "float", "double"):
        for words in (1, 8, 32, 1024):
            y, said = _zeros(type_, 1024), _zeros(type_, MANY * BLOCK)
            name = f"atomicAdd of {type_} on {words} words"
            yield _case(name, f"add<{type_}>", MANY, BLOCK, y, words)
            yield _case(f"{name}, with a result", f"add_and_say<{type_}>", MANY, BLOCK, y, said, words)
    some = ("32 lanes to one", "2 lanes to one", "4 in turns", "2 apart", "8 apart", "any order", "any of 16",
            "any of 64", "some lanes to any of 64", "two words")  # fmt: skip
    for name, where, lanes in _patterns():
        at, does = where.astype(np.int32), lanes.astype(np.int32)
        if name not in some:
            continue
        yield _case(f"shared count at {name}", "count_shared", 1, 32, _zeros("unsigned", 1024), at, does)
        for type_ in ("unsigned", "unsigned long long", "float"):
            y = _zeros(type_, 1024)
            yield _case(f"add {type_} at {name}", f"add_at<{type_}>", 1, 32, y, at, does)
            yield _case(f"shared add of {type_} at {name}", f"add_shared<{type_}>", 1, 32, y, at, does)
            if type_ != "float":
                yield _case(f"add {type_} and say at {name}", f"add_at_and_say<{type_}>", 1, 32, y, at, does, y)
                kernel = f"add_shared_and_say<{type_}>"
                yield _case(f"shared add of {type_} and say at {name}", kernel, 1, 32, y, at, does)
    y, said = _zeros("unsigned", MANY * BLOCK), _zeros("unsigned", MANY * BLOCK)
    yield _case("atomicExch", "exchanged", MANY, BLOCK, y, said)
    yield _case("atomicCAS", "compared", MANY, BLOCK, y, said)
    yield _case("atomicMax", "greatest", MANY, BLOCK, y)


def _whole() -> Iterator[Case]:
    rng, n = np.random.default_rng(2), 128
    x, y, flat = rng.random((n, n), np.float32), _zeros("float", n * n), _zeros("float", FEW * BLOCK)
    at = np.arange(32, dtype=np.int32) * 7 % 32
    yield _case("local array", "local", FEW, BLOCK, at, flat)
    for type_ in ("unsigned char", "float", "double", "float4"):
        yield _case(f"local array of {type_}", f"own_array<{type_}>", 4, BLOCK, at, _zeros(type_, 4 * BLOCK))
    for padded in ("false", "true"):
        yield _case(f"transpose, padded {padded}", f"transpose<{padded}>", (4, 4), (32, 32), x, y, n)
    yield _case("transpose without shared memory", "scattered_transpose", (4, 4), (32, 32), x, y, n)
    yield _case("product", "product", (8, 8), (16, 16), x, x, y, n)
    yield _case("product by tiles", "tiled_product", (8, 8), (16, 16), x, x, y, n)
    data = rng.integers(0, 256, FEW * BLOCK).astype(np.uint8)
    for kernel in ("histogram", "shared_histogram"):
        yield _case(kernel.replace("_", " "), kernel, FEW, BLOCK, data, _zeros("unsigned", 256))
    for kernel in ("sum_by_tree", "sum_by_interleaved_tree", "sum_by_shuffles", "sum_by_atomics"):
        yield _case(kernel.replace("_", " "), kernel, FEW, BLOCK, x.ravel(), flat, shared_bytes=4 * BLOCK)
    numbers = rng.integers(1, 99, 4 * BLOCK, np.int32)
    yield _case("branches", "branches", 4, BLOCK, numbers, _zeros("int", 8 * BLOCK))


# -- kernels of other tests ---------------------------------------------------------------------------------


def _others() -> Iterator[Case]:
    """Name the tests whose kernels come to the same addresses every time: they launch, and look at the results."""
    for case in KERNELS:
        yield Case(f"kernels: {case.kernel}", functools.partial(test_kernels.run, case, target="compute_90"))
    given: list[tuple[Callable[..., object], tuple[object, ...]]] = [
        *((test_cub.test_block_reduce_sums_its_tile, (kernel,))
          for kernel in ("sum_raking", "sum_raking_commutative", "sum_by_warps")),
        *((test_cub.test_block_scan_scans_its_tile, (kernel,))
          for kernel in ("scan_raking", "scan_raking_memoized", "scan_by_warps")),
        *((test_cub.test_block_radix_sort_sorts_its_keys, (type_,)) for type_ in ("int32", "float32", "float64")),
        *((test_cub.test_block_counts_bytes, (f"histogram_by_{how}",)) for how in ("atomics", "sorting")),
        (test_cub.test_block_reduce_finds_the_maximum_of_a_partial_tile, (70,)),
        *((test, ()) for test in (
            test_cub.test_warps_sum_groups_of_lanes_and_segments, test_cub.test_warps_scan_sums_and_maxima,
            test_cub.test_block_scans_tile_after_tile_with_a_running_prefix, test_cub.test_block_encodes_runs,
            test_cub.test_block_decodes_runs_window_after_window,
            test_cub.test_block_exchanges_blocked_for_striped_order,
            test_cub.test_block_radix_sort_is_stable_for_partial_keys,
            test_cub.test_block_merges_by_a_comparison_of_the_user,
            test_matrix.test_tiled_product_of_halves, test_pipelines.test_transposition_by_tensor_maps,
            test_pipelines.test_each_block_of_a_cluster_loads_a_part_for_all,
            test_bulk_sums.test_blocks_add_rows_to_the_same_sums, test_groups.test_tiles_reduce,
            test_groups.test_tiles_scan, test_groups.test_cluster_blocks_write_into_each_others_shared_memory,
            test_halves.test_half_pairs, test_halves.test_bfloat_operators,
        )),
        *((test_matrix.test_one_tile_of_every_kind, tile) for tile in test_matrix.TILES),
        (test_pipelines.test_producer_warpgroup_feeds_two_consumers, (3,)),
        (test_pipelines.test_product_in_three_stages_of_copies, (4,)),
        (test_pipelines.test_wgmma_product_with_tensor_maps, ((64, 64, 64),)),
        *((test, (target,)) for target in test_triton.TARGETS for test in (
            test_triton.test_softmax, test_triton.test_layer_norm, test_triton.test_matmul,
            test_triton.test_flash_attention, test_triton.test_sums_by_atomics,
        )),
    ]  # fmt: skip
    for test, arguments in given:
        about = f": {arguments[0]}" if arguments else ""
        where = test.__module__.rpartition("test_")[2]
        name = f"{where}{about}: {test.__name__.removeprefix('test_').replace('_', ' ')}"
        yield Case(name, _asked(test, arguments))


def _asked(test: Callable[..., object], arguments: tuple[object, ...]) -> Callable[[cujit.Device], object]:
    names = [name for name in inspect.signature(test).parameters if name != "device"]
    return functools.partial(_ask, test, dict(zip(names, arguments, strict=True)))


def _ask(test: Callable[..., object], arguments: dict[str, object], device: cujit.Device) -> object:
    return test(**arguments, device=device)


@functools.cache
def cases() -> tuple[Case, ...]:
    """List every case."""
    return (*_whole(), *_others(), *_atomics(), *_shared(), *_global())
