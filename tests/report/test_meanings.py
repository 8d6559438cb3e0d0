"""Sentences about instructions and counters: each has one, and the one that fits it best."""

from __future__ import annotations

import re

import pytest

import cujit
from cujit.devices.cpu.observe.measures import Measures, ProfiledKernel
from cujit.formats import sass_meanings
from cujit.formats.ptx.isa import meanings as ptx_meanings
from cujit.formats.ptx.isa.meanings import meaning_key
from cujit.formats.ptx.isa.table import opcodes
from cujit.inspection.sass import disassemble
from cujit.profile import meanings as counter_meanings
from cujit.profile.meanings import metric_meaning
from cujit.report.listings import Listing
from cujit.report.meanings import meanings_of

KERNELS = r"""
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda;
extern "C" __device__ int printf(const char *, ...);
__global__ void numbers(float *f, double *d, int *i, unsigned long long *u, __half2 *h, int n) {
    int t = threadIdx.x + blockIdx.x * blockDim.x;
    if (t >= n) return;
    f[t] = sinf(f[t]) + sqrtf(f[t]) / f[t + 1] + expf(f[t]) + tanhf(f[t]) + fminf(f[t], 2) + rintf(f[t]) + i[t];
    d[t] = d[t] * d[t + 1] + sqrt(d[t]) + fmax(d[t], 1.0) + i[t] + f[t];
    i[t] = i[t] / i[t + 1] + __popc(i[t]) + __clz(i[t]) + __brev(i[t]) + abs(i[t]) + min(i[t], 5) + (int)f[t];
    u[t] = u[t] * u[t + 1] + __umul64hi(u[t], 3) + (u[t] >> i[t]);
    h[t] = __hfma2(h[t], h[t + 1], h[t + 2]);
    i[t] += __shfl_xor_sync(~0u, i[t], 1) + __ballot_sync(~0u, i[t] > 3) + __match_any_sync(~0u, i[t]);
    atomicAdd(f, 1.0f);
    i[3] = atomicCAS(i, 1, 2);
}
__global__ void memory(float *x, int n) {
    extern __shared__ float s[];
    float l[64];
    for (int k = 0; k < 64; k++) l[k] = x[k * n];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    atomicAdd(&s[0], 1.f);
    __threadfence();
    x[threadIdx.x] = s[n] + l[n];
    if (n == 3) __trap();
    if (n == 4) printf("%d", n);
}
__global__ void tensor(half *a, half *b, float *c) {
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
    wmma::fill_fragment(fc, 0.f);
    wmma::load_matrix_sync(fa, a, 16);
    wmma::load_matrix_sync(fb, b, 16);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(c, fc, 16, wmma::mem_row_major);
}
"""
ALL = {**ptx_meanings.MEANINGS, **sass_meanings.MEANINGS, **counter_meanings.MEANINGS}


def test_every_opcode_of_the_manual_has_a_meaning() -> None:
    assert not opcodes() - {key.partition(".")[0] for key in ptx_meanings.MEANINGS}
    assert not {key.partition(".")[0] for key in ptx_meanings.MEANINGS} - opcodes()


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_120"])
def test_every_opcode_that_an_assembler_writes_has_a_meaning(arch: str) -> None:
    text = disassemble(cujit.compile(KERNELS, to="cubin", arch=arch).data, [], lines=False)
    found = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", text)
    assert len(found) > 500
    assert {name for name in found if not meaning_key(name, sass_meanings.MEANINGS)} == set()


@pytest.mark.parametrize(
    ("words", "key"),
    [
        ("ld.global.f32", "ld.global"),
        ("ld.relaxed.gpu.global.u32", "ld.global"),
        ("ld.shared::cluster.u32", "ld.shared::cluster"),
        ("ld.shared::cta.u32", "ld.shared"),
        ("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32", "st.async"),
        ("mad.lo.cc.u32", "mad.cc"),
        ("vote.sync.ballot.b32", "vote.ballot"),
        ("cp.async.ca.shared.global", "cp.async"),
        ("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes", "cp.async.bulk.tensor"),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32", "cp.reduce.async.bulk"),
        ("barrier.cluster.arrive.aligned", "barrier.cluster.arrive"),
        ("tcgen05.wait::ld.sync.aligned", "tcgen05.wait"),
        ("add.s32", "add"),
        ("added.s32", ""),
        ("", ""),
    ],
)
def test_meaning_with_most_words_is_found(words: str, key: str) -> None:
    assert meaning_key(words, ptx_meanings.MEANINGS) == key


def test_every_counter_has_a_meaning() -> None:
    assert not {*Measures.__match_args__} - set(counter_meanings.MEANINGS)
    empty = ProfiledKernel(
        name="k", lowered_name="k", instructions=(), launches=1, distinct_sectors=0, block_sectors=0, blocks=1, warps=1,
        threads=1,
    )  # fmt: skip
    metrics = [*empty.metrics(), *empty.metrics_of_ptx(), "sm__ops_path_tensor_src_fp16.sum"]
    assert [name for name in metrics if not metric_meaning(name)] == []
    assert len({metric_meaning(name) for name in metrics}) == len(metrics)
    assert metric_meaning("sm__cycles_elapsed.max") == ""


def test_sentences_are_short_and_whole() -> None:
    for key, sentence in ALL.items():
        assert sentence[0].isupper() or sentence[0].isdigit(), key
        assert sentence.endswith("."), key
        assert all(len(part.split()) <= 25 for part in sentence.split(". ")), key


def test_report_has_the_meanings_of_what_it_lists_and_no_others() -> None:
    ptx = Listing(
        "ptx", "PTX", ("// add.s32 is a comment", "@%p1 bra $L;", "{ ld.global.f32 %f1, [%rd1];", ".target sm_90")
    )
    sass = Listing("sass", "SASS", ("/*0000*/ @!P0 IMAD.WIDE R2, R0, 0x4, R2 ;", ".L_x_1:"))
    found = meanings_of([ptx, sass, Listing("source", "k.cu", ("ld.global", "LDG"))], ["warps", "nothing"])
    assert set(found["ptx"]) == {"add.s32", "bra", "ld.global.f32"}
    assert found["ptx"]["ld.global.f32"] == ["Loads from global memory.", "9.7.9.8"]
    assert found["sass"] == {"IMAD.WIDE": [sass_meanings.MEANINGS["IMAD.WIDE"], ""]}
    assert set(found["counter"]) == {"warps"}
