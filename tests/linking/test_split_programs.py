"""A program cut into modules at random and linked again does what it did, on every device and by every route."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cujit.artifact import Artifact
from cujit.devices.device import Device
from cujit.loading import load
from cujit.program import Source, compile, link
from linking.splitting import split
from property.effort import times

SEEDS = range(times(3))
SEEDS_ON_A_GPU = range(times(16))


@pytest.fixture(scope="module")
def whole() -> Artifact:
    """The program in one piece."""
    source = Source.cuda(Path(__file__).with_name("many.cu").read_text(), name="many.cu")
    return compile(source, to="ptx", arch="compute_80", rdc=True)


def run(image: Artifact, device: Device) -> list[list[int]]:
    """What both kernels write, twice, for they count."""
    found = []
    with load(image, device) as module:
        for kernel, shared_bytes in (("first", 0), ("second", 256)) * 2:
            out = device.array(np.zeros(64, np.uint32))
            module[kernel][1, 64, shared_bytes](out)
            found.append(out.numpy().tolist())
    return found


@pytest.fixture(scope="module")
def expected(whole: Artifact) -> list[list[int]]:
    """What the program computes in one piece on the CPU device."""
    from cujit.machine import cpu

    return run(whole, cpu())


@pytest.mark.parametrize("seed", SEEDS)
def test_split_program_has_unchanged_results(
    whole: Artifact, expected: list[list[int]], cpu: Device, seed: int
) -> None:
    linked = link(split(whole.text, seed, 2 + seed % 4), to="ptx")
    assert run(linked, cpu) == expected
    link([linked], arch="sm_90")


def test_modules_in_any_order_link_to_the_same_program(whole: Artifact, cpu: Device) -> None:
    parts = split(whole.text, 7, 4)
    assert run(link(parts, to="ptx"), cpu) == run(link(parts[::-1], to="ptx"), cpu)


def test_linked_ptx_links_to_itself_unchanged(whole: Artifact) -> None:
    linked = link(split(whole.text, 3, 5), to="ptx")
    assert link([linked], to="ptx").text == linked.text


@pytest.mark.gpu
def test_split_program_has_unchanged_results_on_a_gpu(whole: Artifact, expected: list[list[int]], gpu: Device) -> None:
    for seed in SEEDS_ON_A_GPU:
        linked = link(split(whole.text, seed, 2 + seed % 4), to="ptx")
        assert run(linked, gpu) == expected, f"by load, seed {seed}"
        assert run(link([linked], device=gpu), gpu) == expected, f"by nvJitLink, seed {seed}"


@pytest.mark.gpu
def test_nvjitlink_links_the_modules_to_an_equal_program(
    whole: Artifact, expected: list[list[int]], gpu: Device
) -> None:
    """Of plain ones: nvJitLink 13.0 and 13.5 fail on some aliases ("reference to deleted symbol"), and 13.5 leaves the
    address of a weak function that several modules have out of a weak table; 13.0 links such a program to one that
    ends in an illegal memory access on an H200."""
    for seed in SEEDS_ON_A_GPU:
        parts = split(whole.text, seed, 2 + seed % 4, is_plain=True)
        assert run(link(parts, to="ptx"), gpu) == expected, f"by us, seed {seed}"
        assert run(link(parts, device=gpu), gpu) == expected, f"by nvJitLink, seed {seed}"


def test_function_that_calls_itself_by_an_alias_ends(cpu: Device) -> None:
    text = """.version 8.0
.target sm_80
.address_size 64
.visible .func (.param .b32 r) f(.param .b32 a);
.visible .func (.param .b32 r) also(.param .b32 a);
.alias also, f;
.visible .global .u64 table[2] = {f, also};
.visible .func (.param .b32 r) f(.param .b32 a) {
    .reg .u32 %a, %r; .reg .pred %p;
    ld.param.b32 %a, [a]; mov.u32 %r, 0;
    setp.eq.u32 %p, %a, 0;
    @%p bra done;
    sub.u32 %r, %a, 1;
    { .param .b32 x; .param .b32 y; st.param.b32 [x], %r; call (y), also, (x); ld.param.b32 %r, [y]; }
    add.u32 %r, %r, %a;
done:
    st.param.b32 [r], %r;
    ret;
}
.visible .entry k(.param .u64 p) {
    .reg .u64 %p, %f, %g; .reg .u32 %r, %n;
t:  .callprototype (.param .b32 _) _ (.param .b32 _);
    ld.param.u64 %p, [p]; ld.global.u32 %n, [%p];
    ld.global.u64 %f, [table]; ld.global.u64 %g, [table+8];
    { .param .b32 x; .param .b32 y; st.param.b32 [x], %n; call (y), also, (x); ld.param.b32 %r, [y]; }
    st.global.u32 [%p], %r;
    { .param .b32 x; .param .b32 y; st.param.b32 [x], %n; call (y), %g, (x), t; ld.param.b32 %r, [y]; }
    st.global.u32 [%p+4], %r;
    ret;
}
"""
    p = np.array([100, 0], np.uint32)
    load(text, cpu)["k"][1, 1](p)
    assert p.tolist() == [5050, 5050]
    link([text], arch="sm_90")
