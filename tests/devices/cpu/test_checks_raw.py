"""``check="init"`` reports a value that nobody wrote where it decides something, and nowhere else."""

from __future__ import annotations

import contextlib

import numpy as np
import numpy.typing as npt
import pytest

import cujit
from cujit.errors import KernelFaultError
from raising import raises

pytestmark = pytest.mark.usefixtures("unoptimised")

_HALF = "__shared__ {type} s[64]; int t = threadIdx.x; if (t < 16) s[t] = x[t]; __syncthreads();"
_SILENT = {
    "chosen against": "int v = s[t]; x[t] = t < 16 ? v : 7;",
    "masked": "int v = s[t]; x[t] = v & (t < 16 ? -1 : 0);",
    "or ones": "int v = s[t]; x[t] = v | (t < 16 ? 0 : -1);",
    "shifted out": "unsigned long long v = (unsigned)s[t]; v = t < 16 ? v : v << 63 << 1; x[t] = (int)v;",
    "never used": "volatile int v = s[t]; x[t] = 1;",
    "shuffled away": "int v = __shfl_sync(~0u, s[t], t % 16); x[t] = v;",
    "copied to shared memory": "s[t + 32] = s[t]; __syncwarp(); x[t] = t < 16 ? s[t + 32] : 0;",
    "copied to local memory": """int own[32]; for (int k = 0; k < 32; k++) own[(k + t) & 31] = s[k];
                                 x[t] = own[(t + t % 16) & 31];""",
    "overwritten": "s[t + 32] = s[t]; __syncwarp(); s[t + 32] = 3; __syncwarp(); x[t] = s[t + 32];",
}
_COPIED = "the host copies it here"
_FOUND = {
    "stored": ("x[t] = s[t];", _COPIED),
    "computed": ("x[t] = s[t] * 3 + 1;", _COPIED),
    "branch": ("if (s[t] > 5) { x[t] = 1; __nanosleep(20); x[t + 1] = 3; }", "depends on it"),
    "address": ("x[s[t] & 31] = 1;", "an address depends on it"),
    "shared address": ("s[s[t] & 31] = 1;", "an address depends on it"),
    "shuffled": ("x[t] = __shfl_xor_sync(~0u, s[t], 1);", _COPIED),
    "by shared memory": ("s[t + 32] = s[t]; __syncwarp(); x[t] = s[t + 32];", _COPIED),
    "by local memory": (
        "int own[32]; for (int k = 0; k < 32; k++) own[(k + t) & 31] = s[k]; x[t] = own[(t + 17) & 31];",
        _COPIED,
    ),
    "half masked": ("x[t] = s[t] & 0xff00;", _COPIED),
    "vote": ("x[t] = __any_sync(~0u, s[t] == 9);", _COPIED),
    "atomic": ("atomicAdd(x, s[t]);", "stored where other threads can read it"),
    "divided": ("x[t] = (int)(100.0f / (float)s[t]);", _COPIED),
}


def _run(body: str, type_: str = "int", check: str = "init") -> npt.NDArray[np.int32]:
    device = cujit.cpu(1, check=check)
    code = f'extern "C" __global__ void k(int *x) {{ {_HALF.format(type=type_)} {body} }}'
    x = device.array(np.arange(64, dtype=np.int32))
    cujit.jit(code, device=device)["k"][1, 32](x)
    return x.numpy()


@pytest.mark.parametrize("check", ["init", "all"])
@pytest.mark.parametrize("name", _SILENT)
def test_unused_uninitialized_value_is_no_finding(name: str, check: str) -> None:
    _run(_SILENT[name], check=check)


@pytest.mark.parametrize("name", _FOUND)
def test_used_uninitialized_value_is_found_with_load_and_use(name: str) -> None:
    body, words = _FOUND[name]
    with pytest.raises(KernelFaultError) as found:
        _run(body)
    assert found.value.kind == "init"
    message = found.value.message
    assert words in message
    if words != _COPIED:
        assert message.startswith("kernel k, block (0, 0, 0)")
        assert "of shared memory (the block has 256 bytes)" in message
        assert "loaded\n  at PTX line" in message
        return
    assert "of the 256-byte array allocated at" in message
    assert "stored by kernel k\n  at PTX line" in message
    assert f"loaded from {'local' if 'local' in name else 'shared'} memory\n  at PTX line" in message


_PACKED = """
extern "C" __global__ void k(const unsigned char *x, unsigned *out, int wrong) {
    __shared__ __align__(4) unsigned char s[128];
    int t = threadIdx.x;
    for (int k = 0; k < 4; k++) if (k != 2) s[4 * t + k] = x[4 * t + k];
    __syncwarp();
    unsigned word = *(const unsigned *)(s + 4 * t), byte;
    if (wrong == 0) byte = USE;
    out[t] = byte;
}
"""


@pytest.mark.parametrize(
    ("use", "is_right"),
    [
        ("word & 0xff", True), ("word >> 24", True), ("(word >> 8) & 0xff", True),
        ("__byte_perm(word, 0, 0x4413)", True),
        ("(word << 16) >> 16", True), ("word & 0xff00ffff", True), ("__funnelshift_l(word, word, 8) & 0xff", True),
        ("(unsigned char)word", True), ("(word ^ 0x00ff0000) & 0x0000ffff", True), ("~word >> 24", True),
        ("(word >> 16) & 0xff", False), ("__byte_perm(word, 0, 0x4423)", False), ("word & 0x00010000", False),
        ("(word << 8) >> 24", False), ("word + 1", False), ("(unsigned char)(word >> 16)", False),
    ],
)  # fmt: skip
def test_single_bits_are_followed(use: str, *, is_right: bool) -> None:
    device = cujit.cpu(1, check="init")
    kernel = cujit.jit(_PACKED.replace("USE", use), device=device)["k"]
    x, out = device.array(np.arange(128, dtype=np.uint8)), device.zeros(32, np.uint32)
    if is_right:
        kernel[1, 32](x, out, np.int32(0))
        return
    kernel[1, 32](x, out, np.int32(0))
    with pytest.raises(KernelFaultError) as found:
        out.numpy()
    assert found.value.kind == "init"


_PREDICATES = {
    # What is joined with a raw predicate, pr, or compared with a raw number, r; and whether p is raw.
    "and false": ("and.pred p, pr, pf;", False), "and true": ("and.pred p, pr, pt;", True),
    "or true": ("or.pred p, pt, pr;", False), "or false": ("or.pred p, pf, pr;", True),
    "xor": ("xor.pred p, pr, pt;", True), "not": ("not.pred p, pr;", True),
    "raw and false": ("setp.lt.and.u32 p, r, 5, pf;", False), "raw and true": ("setp.lt.and.u32 p, r, 5, pt;", True),
    "raw or true": ("setp.lt.or.u32 p, r, 5, pt;", False), "raw or false": ("setp.lt.or.u32 p, r, 5, pf;", True),
    "false and raw": ("setp.eq.and.u32 p, k, 8, pr;", False), "true and raw": ("setp.eq.and.u32 p, k, 7, pr;", True),
    "true or raw": ("setp.eq.or.u32 p, k, 7, pr;", False), "false or raw": ("setp.eq.or.u32 p, k, 8, pr;", True),
    "xor raw": ("setp.eq.xor.u32 p, k, 7, pr;", True),
    "second of two": ("setp.eq.and.u32 q|p, k, 7, pr;", False),
    "second, true": ("setp.eq.and.u32 q|p, k, 8, pr;", True),
    "bits differ": ("setp.eq.u32 p, part, 2;", False), "bits may differ": ("setp.eq.u32 p, part, 1;", True),
    "bits differ, joined": ("setp.ne.and.u32 p, part, 2, pt;", False),
    "bits are less": ("setp.lt.u32 p, part, 2;", True),
}  # fmt: skip
_DECIDES = """.visible .entry k{number}() {{ .shared .b32 s[32];
.reg .b32 r, k, part, t; .reg .pred p, q, pr, pt, pf;
mov.u32 t, %tid.x; mad.lo.u32 t, t, 4, 0; mov.u32 r, s; add.u32 t, t, r; ld.shared.u32 r, [t]; mov.u32 k, 7;
and.b32 part, r, 0xffffff00; or.b32 part, part, 1;
setp.eq.u32 pr, r, 99; setp.eq.u32 pt, k, 7; setp.eq.u32 pf, k, 8;
{text} @p bra END; bar.sync 0; END: ret; }}
"""


def test_predicate_is_uninitialized_only_if_it_decides() -> None:
    device = cujit.cpu(1, check="init")
    bodies = [_DECIDES.format(number=n, text=text) for n, (text, _) in enumerate(_PREDICATES.values())]
    module = cujit.load(".version 8.0 .target sm_80 .address_size 64\n" + "".join(bodies), device)
    for n, (_, is_raw) in enumerate(_PREDICATES.values()):
        how = raises(KernelFaultError, "fault-init", "ld.shared.u32 r") if is_raw else contextlib.nullcontext()
        with how:
            module[f"k{n}"][1, 32]()


_CUB = """
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_load.cuh>
#include <cub/block/block_store.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>
#define N 4
extern "C" __global__ void reduce(const int *x, int *out, int n) {
    using Reduce = cub::BlockReduce<int, 128, cub::ALGORITHM>;
    __shared__ typename Reduce::TempStorage store;
    int sum = Reduce(store).Sum(x[threadIdx.x], n);
    if (threadIdx.x == 0) out[0] = sum;
}
extern "C" __global__ void tile(const int *x, int *out, int n) {
    using Load = cub::BlockLoad<int, 128, N, cub::BLOCK_LOAD_TRANSPOSE>;
    using Scan = cub::BlockScan<int, 128>;
    using Store = cub::BlockStore<int, 128, N, cub::BLOCK_STORE_TRANSPOSE>;
    __shared__ union {
        typename Load::TempStorage load;
        typename Scan::TempStorage scan;
        typename Store::TempStorage store;
    } s;
    int own[N];
    Load(s.load).Load(x, own, n, 0);
    __syncthreads();
    Scan(s.scan).ExclusiveSum(own, own);
    __syncthreads();
    Store(s.store).Store(out, own, n);
}
extern "C" __global__ void loose(const int *x, int *out, int n) {
    using Load = cub::BlockLoad<int, 128, N, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
    using Store = cub::BlockStore<int, 128, N, cub::BLOCK_STORE_WARP_TRANSPOSE>;
    __shared__ union { typename Load::TempStorage load; typename Store::TempStorage store; } s;
    int own[N];
    Load(s.load).Load(x, own, n);
    __syncthreads();
    for (int k = 0; k < N; k++) own[k] += 1;
    Store(s.store).Store(out, own, n);
}
extern "C" __global__ void sort(const int *x, int *out, int n) {
    using Load = cub::BlockLoad<int, 128, N, cub::BLOCK_LOAD_STRIPED>;
    using Sort = cub::BlockRadixSort<int, 128, N>;
    __shared__ typename Sort::TempStorage store;
    int own[N];
    Load().Load(x, own, n, 0x7fffffff);
    Sort(store).Sort(own);
    cub::StoreDirectBlocked(threadIdx.x, out, own, n);
}
extern "C" __global__ void lanes(const int *x, int *out, int n) {
    using Reduce = cub::WarpReduce<int>;
    using Scan = cub::WarpScan<int>;
    __shared__ typename Reduce::TempStorage store[4];
    __shared__ typename Scan::TempStorage scan[4];
    int own = x[threadIdx.x], warp = threadIdx.x / 32, left = min(max(n - warp * 32, 1), 32), sum;
    Scan(scan[warp]).InclusiveSum(own, sum);
    int most = Reduce(store[warp]).Reduce(own, cub::Max(), left);
    if (threadIdx.x % 32 == 0) out[warp] = most;
    out[threadIdx.x + 4] = sum;
}
"""


@pytest.fixture(scope="module")
def cub() -> cujit.Artifact:
    text = _CUB.replace("cub::ALGORITHM", "cub::BLOCK_REDUCE_WARP_REDUCTIONS").replace(
        "cub::Max()", "cuda::maximum<>{}"
    )
    return cujit.compile(cujit.Source.cuda("#include <cuda/functional>\n" + text, name="cub.cu"), arch="compute_80")


@pytest.mark.parametrize("name", ["reduce", "tile", "loose", "sort", "lanes"])
def test_cub_is_silent_over_partial_tiles(name: str, cub: cujit.Artifact) -> None:
    device = cujit.cpu(1, check="init")
    kernel = cujit.load(cub, device)[name]
    for n in (1, 31, 33, 100, 127, 128, 129, 511, 512):
        x = np.random.default_rng(n).integers(-99, 99, 512).astype(np.int32)
        count = min(n, 128) if name in ("reduce", "lanes") else n
        out = device.zeros(512, np.int32)
        kernel[1, 128](device.array(x), out, np.int32(count))
        read = x[:n]
        expected = {"reduce": x[:count].sum(keepdims=True), "tile": np.cumsum(read) - read, "sort": np.sort(read)}
        if name in expected:
            np.testing.assert_array_equal(out.numpy()[: expected[name].size], expected[name], err_msg=f"{n=}")


_MMA = r"""
extern "C" __global__ void product(const unsigned short *A, float *D, int m, int stored) {
    __shared__ __align__(16) unsigned short s[16 * 16];
    for (int i = threadIdx.x; i < m * 16; i += 32) s[i] = A[i];
    __syncwarp();
    unsigned a[4], b[2]; unsigned at = (unsigned)__cvta_generic_to_shared(s);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]),
                 "=r"(a[3]) : "r"(at + (threadIdx.x % 16) * 32 + threadIdx.x / 16 * 16));
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(b[0]), "=r"(b[1])
                 : "r"(at + threadIdx.x % 8 * 32 + threadIdx.x / 8 % 2 * 16));
    float d[4] = {0, 0, 0, 0};
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    for (int i = 0; i < 4; i++) {
        int r = threadIdx.x / 4 + 8 * (i / 2);
        if (r < stored) D[r * 8 + threadIdx.x % 4 * 2 + i % 2] = d[i];
    }
}
"""


def test_only_padded_rows_of_a_product_are_uninitialized() -> None:
    device = cujit.cpu(1, check="init")
    kernel = cujit.load(cujit.compile(_MMA, arch="compute_80"), device)["product"]
    for rows in (8, 9, 13, 15):
        a = np.random.default_rng(0).integers(-3, 4, (rows, 16)).astype(np.float16)
        out = device.zeros((16, 8), np.float32)
        kernel[1, 32](device.array(a.view(np.uint16)), out, np.int32(rows), np.int32(rows))
        np.testing.assert_array_equal(out.numpy()[:rows], a.astype(np.float32) @ a[:8].T.astype(np.float32))
        kernel[1, 32](device.array(a.view(np.uint16)), out, np.int32(rows), np.int32(rows + 1))
        out[:rows].numpy()
        with raises(KernelFaultError, "fault-init", 8 * rows) as found:
            out.numpy()
        assert found.value.kind == "init"


_WGMMA = r"""
extern "C" __global__ void product(const unsigned short *A, float *D, int m, int stored, int adds) {
    __shared__ __align__(128) unsigned short s[64 * 16], right[8 * 16];
    for (int i = threadIdx.x; i < m * 16; i += 128) s[i] = A[i];
    right[threadIdx.x] = 0x3f80;
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    int r = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, c = threadIdx.x % 4 * 2;
    unsigned a[4];
    for (int k = 0; k < 4; k++) a[k] = *(unsigned *)(s + (r + k % 2 * 8) * 16 + c + k / 2 * 8);
    unsigned long long at = __cvta_generic_to_shared(right) >> 4 | 8ull << 16 | 16ull << 32;
    float d[4];
    for (int k = 0; k < 4; k++) d[k] = __uint_as_float(a[1 - k / 2]); // of the other row: it counts if it is added to
    asm volatile("{.reg .pred p; setp.ne.u32 p, %9, 0; wgmma.fence.sync.aligned;"
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, p, 1, 1, 0;"
                 "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(at), "r"(adds) : "memory");
    for (int k = 0; k < 4; k++) if (r + k / 2 * 8 < stored) D[(r + k / 2 * 8) * 8 + c + k % 2] = d[k];
}
"""


def test_wgmma_keeps_uninitialized_rows_of_a() -> None:
    device = cujit.cpu(1, check="init")
    kernel = cujit.load(cujit.compile(_WGMMA, arch="compute_90a"), device)["product"]
    for rows in (5, 8, 29):
        a = np.full((rows, 16), 0x4000, np.uint16)  # 2, as bf16
        out = device.zeros((64, 8), np.float32)
        kernel[1, 128](device.array(a), out, np.int32(rows), np.int32(rows), np.int32(0))
        assert (out[:rows].numpy() == 32).all()
        kernel[1, 128](device.array(a), out, np.int32(rows), np.int32(64), np.int32(0))
        out[:rows].numpy()
        with raises(KernelFaultError, "fault-init", 8 * rows):
            out.numpy()
        kernel[1, 128](device.array(a), out, np.int32(rows), np.int32(rows), np.int32(1))
        with raises(KernelFaultError, "fault-init", "x[:n].numpy()"):
            out[:rows].numpy()


_TILE = r"""
#include <cuda_pipeline.h>
extern "C" __global__ void tile(const float4 *x, float *out, int n) {
    __shared__ float4 s[32];
    __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], 16, threadIdx.x == 31 ? 16 : 0);
    __pipeline_commit(); __pipeline_wait_prior(0); __syncthreads();
    s[31] = make_float4(0, 0, 0, 0);
    __pipeline_memcpy_async(&s[threadIdx.x], &x[threadIdx.x], 16);
    __pipeline_commit(); __pipeline_wait_prior(0); __syncthreads();
    float sum = 0;
    for (int k = 0; k < 32; k++) { float4 v = s[k]; sum += k < n ? v.x + v.y + v.z + v.w : 0; }
    out[threadIdx.x] = sum;
}
"""


@pytest.mark.parametrize("check", ["init", "all"])
def test_asynchronous_copies_keep_uninitialized_values(check: str) -> None:
    device = cujit.cpu(1, check=check)
    kernel = cujit.jit(_TILE, device=device)["tile"]
    x, out = device.empty((32, 4), np.float32), device.zeros(32, np.float32)
    x[:20].fill(1)
    kernel[1, 32](x, out, 20)
    assert out.numpy().tolist() == [80] * 32
    kernel[1, 32](x, out, 21)
    with raises(KernelFaultError, "fault-init", "0", "x[:n].numpy()"):
        out.numpy()
