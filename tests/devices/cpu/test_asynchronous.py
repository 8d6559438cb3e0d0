"""Asynchronous copies, barriers in memory and the shared memory of clusters, against what the manual says of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cujit.devices.device import Device
from instructions.atomic_reference import array_of, bits_of, step, words
from instructions.scene import Scene, difference, entry, run_scene
from instructions.scenes_async import SCENES

pytestmark = pytest.mark.usefixtures("unoptimised")

Array = npt.NDArray[Any]
BY_NAME = {scene.name: scene for scene in SCENES}


def names(start: str) -> list[str]:
    """Scenes whose names begin so."""
    return [name for name in BY_NAME if name.startswith(start)]


COPIES = [name for name in names("cp.async.c") if name.count(".") == 4]


@pytest.mark.parametrize("name", COPIES)
def test_copy_fills_with_zeros_beyond_its_source(cpu: Device, name: str) -> None:
    scene = BY_NAME[name]
    size, form = int(name.split(".")[3]), name.split(".")[4]
    source = scene.arrays[0].reshape(32, 16)
    expected = np.full((32, 16), 255, np.uint8)
    for i in range(32):
        count = {"part": i % (size + 1), "none": 0 if i % 4 == 1 else size}.get(form, size)
        expected[i, :size] = 0
        expected[i, :count] = source[i, :count]
    assert not difference(scene, run_scene(cpu, scene), [scene.arrays[0], expected.reshape(-1)])


def test_barrier_counts_phases_arrivals_and_bytes(cpu: Device) -> None:
    got = run_scene(cpu, BY_NAME["mbarrier.steps"])[0].tolist()
    # Phase 0 of 5 arrivals: 5 were pending before the arrival of 2, then 3; it ends with the fifth.
    phase_0 = [5, 0, 0, 1, 3, 1, 1, 1, 0]
    # Phase 1: three drop out; a fourth expects 100 bytes, a fifth arrives; it ends with the bytes.
    phase_1 = [5, 0, 0, 1, 1]
    # Phase 2 of 2 arrivals: 8 bytes come before 24 are expected, so that 16 are left after both arrivals.
    phase_2 = [2, 0, 1, 1]
    assert got == [*phase_0, *phase_1, *phase_2]


def test_threads_waiting_at_a_barrier_see_earlier_writes(cpu: Device) -> None:
    got = run_scene(cpu, BY_NAME["mbarrier.threads"])[0].reshape(3, 64)
    np.testing.assert_array_equal(got, 1000 * np.arange(3)[:, None] + (np.arange(64) ^ 37))


def test_copies_arrive_at_a_barrier(cpu: Device) -> None:
    source, got = run_scene(cpu, BY_NAME["cp.async.mbarrier"])
    np.testing.assert_array_equal(got, source)


@pytest.mark.parametrize("name", ["cp.async.bulk.shared_cluster", "cp.async.bulk.shared_cta"])
def test_bulk_copies_signal_their_bytes(cpu: Device, name: str) -> None:
    source, got = run_scene(cpu, BY_NAME[name])
    np.testing.assert_array_equal(got, source)


def test_bulk_copies_write_global_memory(cpu: Device) -> None:
    got = run_scene(cpu, BY_NAME["cp.async.bulk.out"])[0]
    expected = np.zeros(100, np.uint32)
    expected[16:48], expected[64:80] = 77 * np.arange(32) + 5, np.arange(16)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("name", names("cp.reduce."))
def test_bulk_reduction_updates_every_element(cpu: Device, name: str) -> None:
    scene = BY_NAME[name]
    operation, type_ = name.split(".")[-2:]
    bits = bits_of(type_)
    target, source = (words(a, bits) for a in scene.arrays)
    for start, count in ((0, 128 * 8 // bits), (16 * 8 // bits, 96 * 8 // bits)):
        for k in range(count):
            target[start + k] = step(operation, type_, target[start + k], source[k], flush=True)
    expected = [array_of(target, bits, scene.arrays[0]), scene.arrays[1]]
    assert not difference(scene, run_scene(cpu, scene), expected)


def test_blocks_of_a_cluster_access_each_others_shared_memory(cpu: Device) -> None:
    got = run_scene(cpu, BY_NAME["cluster.addresses"])[0].reshape(5, 2, 32)
    thread = np.arange(32)
    other = np.stack([100 + thread, thread])
    np.testing.assert_array_equal(got[0], other)
    np.testing.assert_array_equal(got[1], other)
    np.testing.assert_array_equal(got[2], 1000 + np.stack([thread, 100 + thread]))
    assert (got[3] == thread.sum()).all()
    # Ranks of the far address (twice), the own generic one and the own one; then what lies in which space.
    told = [1 | 2 | 16 | 64 | 256, 4 | 8 | 16 | 64 | 256]
    np.testing.assert_array_equal(got[4], np.repeat([told], 32, 0).T)


def test_operations_reach_the_barrier_of_another_block(cpu: Device) -> None:
    stored, reduced = run_scene(cpu, BY_NAME["cluster.remote"])
    for rank, got in enumerate(stored.reshape(2, 32, 4)):
        first = 1000 * (1 - rank) + np.arange(32)
        np.testing.assert_array_equal(got, np.stack([first, first + 1, first + 1, first], 1))
    np.testing.assert_array_equal(reduced.reshape(-1, 2), np.repeat([[496, 31]], 64, 0))


def test_copy_reaches_every_block_of_its_mask(cpu: Device) -> None:
    scene = BY_NAME["cluster.multicast"]
    source, got, ends = run_scene(cpu, scene)
    expected = np.zeros(72 * 16, np.uint8)
    expected[:256] = source[:256]
    expected[36 * 16 : 36 * 16 + 512] = source
    np.testing.assert_array_equal(got, expected)
    assert ends.tolist() == [7, 9, 7, 9]


@pytest.mark.parametrize("name", names("cluster.reduce."))
def test_bulk_reduction_reaches_another_block(cpu: Device, name: str) -> None:
    scene = BY_NAME[name]
    operation, type_ = name.split(".")[-2:]
    bits = bits_of(type_)
    own = [words(half, bits) for half in (scene.arrays[0][:128], scene.arrays[0][128:])]
    expected = []
    for rank in (0, 1):
        count = 64 * 8 // bits
        reduced = [step(operation, type_, a, b) for a, b in zip(own[rank][count:], own[1 - rank], strict=False)]
        expected += own[rank][:count] + reduced
    assert words(run_scene(cpu, scene)[0], bits) == expected


@pytest.mark.parametrize("place", ["v", "mem"])
def test_bulk_store_clears_memory(place: str, cpu: Device) -> None:
    body = f""".reg .b32 i, s, v; .reg .b64 at; .reg .pred first; .shared .align 16 .b8 mem[512];
        mov.u32 i, %tid.x; setp.eq.u32 first, i, 0; mov.b32 s, mem; mad.lo.u32 s, i, 4, s; st.shared.u32 [s], 7;
        bar.warp.sync -1; mov.b32 v, mem; @first st.bulk.weak.shared::cta [{place}+16], 64, 0;
        bar.warp.sync -1; ld.shared.u32 v, [s]; mul.wide.u32 at, i, 4; add.u64 at, at, p0; st.global.u32 [at], v;"""
    got = run_scene(cpu, Scene("clear", entry(body, 1, target="sm_100"), (np.zeros(32, np.uint32),), 1, 32))
    assert got[0].tolist() == [7] * 4 + [0] * 16 + [7] * 12


@pytest.mark.parametrize("hint", ["", ".L2::cache_hint"])
def test_masked_bulk_copy_leaves_other_bytes_unchanged(hint: str, cpu: Device) -> None:
    body = f""".reg .b64 policy; createpolicy.fractional.L2::evict_first.b64 policy, 1.0;
        .reg .b32 i, s, v; .reg .b16 m; .reg .pred first; .shared .align 16 .b8 mem[32];
        mov.u32 i, %tid.x; setp.eq.u32 first, i, 0; mov.b32 s, mem; add.u32 s, s, i; add.u32 v, i, 1;
        st.shared.u8 [s], v;
        bar.warp.sync -1; mov.b16 m, 0x8105; fence.proxy.async;
        @first cp.async.bulk.global.shared::cta.bulk_group{hint}.cp_mask [p0], [mem], 32{hint and ", policy"}, m;
        cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"""
    got = run_scene(cpu, Scene("mask", entry(body, 1, target="sm_100"), (np.zeros(32, np.uint8),), 1, 32))
    expected = [k + 1 if 0x8105 >> k % 16 & 1 else 0 for k in range(32)]
    assert got[0].tolist() == expected
