"""Words by which a source may ask for its architecture; with all others NVRTC writes the same PTX for a family."""

from __future__ import annotations

import itertools
import re

import pytest

import cujit
from built_code import code
from cujit.compiler.includes.arch_dependence import SILENT, find_arch_dependence
from cujit.farm.arch_sharing import _FAMILIES
from cujit.toolchain.toolset import Toolchain

_FLOAT = """
    acosf acoshf asinf asinhf atanf atanhf cbrtf ceilf cosf coshf erfcf erfinvf erff exp10f exp2f expf expm1f fabsf
    floorf j0f lgammaf log10f log1pf log2f logbf logf nearbyintf normcdff rcbrtf rintf roundf rsqrtf sinf sinhf sqrtf
    tanf tanhf truncf y0f
    """.split()  # noqa: SIM905
_DOUBLE = """
    acos atan cbrt cos cosh erf erfc exp exp10 floor lgamma log log1p rint round rsqrt sin sinh sqrt tan tanh
    """.split()  # noqa: SIM905
_ATOMICS = [f"atomic{verb}{scope}" for verb in ("Add", "Sub", "Min", "Max", "And", "Or", "Xor", "Inc", "Dec")
            for scope in ("", "_block", "_system")]  # fmt: skip


def _each(functions: list[str]) -> str:
    return " ".join(f"x[{i}] = {name}(x[{i} + 99]);" for i, name in enumerate(functions))


KERNELS = {
    "words": """
#if defined(__CUDACC_RTC__) && defined(__CUDACC__) && __cplusplus >= 201703L
#define CALL(f, ...) f(__VA_ARGS__)
#endif
struct __align__(16) Pair { int a[4]; };
__constant__ float table[4];
__device__ __noinline__ int far(int n) { return n < 2 ? 1 : n * far(n - 1); }
__device__ __forceinline__ float near(float a) { return a * table[1]; }
static __device__ __host__ __inline__ int both(int a) { return a + 1; }
__global__ void __launch_bounds__(128, 2) k(const __grid_constant__ Pair p, float *__restrict__ x, int *__restrict y) {
    __shared__ float tile[32];
    extern __shared__ int more[];
    tile[threadIdx.x] = near(x[threadIdx.x]);
    more[threadIdx.x] = far(y[1]) + both(p.a[y[2]]);
    __syncthreads();
    CALL(printf, "%f %d", tile[y[3] & 31], more[0]);
}""",
    "integers": """
__global__ void k(int *x, unsigned *u, long long *l) {
    x[0] = __clz(x[1]) + __popc(u[1]) + __ffs(x[2]) + __brev(u[2]) + __byte_perm(u[1], u[2], 0x3210)
        + __mulhi(x[1], x[2]) + __umulhi(u[1], u[2]) + __mul24(x[1], x[2]) + __umul24(u[1], u[2])
        + __sad(x[1], x[2], u[3]) + __usad(u[1], u[2], u[3]) + __hadd(x[3], x[4])
        + __rhadd(x[3], x[4]) + __uhadd(u[3], u[4])
        + __funnelshift_l(u[1], u[2], u[3]) + __funnelshift_r(u[1], u[2], u[3]) + __dp4a(x[1], x[2], x[3])
        + __dp2a_lo(x[1], x[2], x[3]) + max(x[5], min(x[6], x[7])) + abs(x[8]);
    l[0] = __popcll(l[1]) + __clzll(l[1]) + __ffsll(l[2]) + __brevll(l[3]) + __mul64hi(l[1], l[2])
        + __umul64hi(l[1], l[2]) + l[5] / l[6] % l[7] + clock64();
}""",
    "floats": """
__global__ void k(int *x, unsigned *u, float *f, double *d, long long *l) {
    x[5] = __float_as_int(f[1]) + __float2int_rn(f[2]) + __double2int_rz(d[1]) + __double2hiint(d[2])
        + __double2loint(d[2]) + __float2uint_rd(f[3]);
    f[0] = __int_as_float(x[1]) + __uint_as_float(u[2]) + __int2float_rn(x[1]) + __uint2float_rz(u[1])
        + __ll2float_rn(l[0]) + __fadd_rn(f[1], f[2]) + __fmul_rz(f[1], f[2]) + __fmaf_rn(f[1], f[2], f[3])
        + __fdiv_rn(f[1], f[2]) + __fsqrt_rn(f[3]) + __frcp_rn(f[1]) + __frsqrt_rn(f[2]) + __fsub_rn(f[1], f[2])
        + __saturatef(f[2]) + __fdividef(f[1], f[2]) + __expf(f[1]) + __exp10f(f[1]) + __logf(f[1]) + __log2f(f[1])
        + __log10f(f[1]) + __powf(f[1], f[2]) + __sinf(f[1]) + __cosf(f[1]) + __tanf(f[1]);
    d[0] = __dadd_rn(d[1], d[2]) + __dmul_rn(d[1], d[2]) + __fma_rn(d[1], d[2], d[3]) + __ddiv_rn(d[1], d[2])
        + __dsqrt_rn(d[1]) + __drcp_rn(d[1]) + __hiloint2double(x[1], x[2]) + __longlong_as_double(l[1])
        + __dsub_rn(d[1], d[2]);
    l[2] = __double_as_longlong(d[1]) + __float2ll_rn(f[1]) + __double2ll_rz(d[3]);
}""",
    "threads": """
__global__ void k(int *x) {
    int v = x[threadIdx.x], p;
    v += __syncthreads_count(v) + __syncthreads_and(v) + __syncthreads_or(v);
    __syncwarp();
    v += __shfl_sync(~0u, v, 1) + __shfl_up_sync(~0u, v, 1) + __shfl_down_sync(~0u, v, 1) + __shfl_xor_sync(~0u, v, 1);
    v += __any_sync(~0u, v) + __all_sync(~0u, v) + __ballot_sync(~0u, v) + __activemask() + __match_any_sync(~0u, v);
    v += __match_all_sync(~0u, v, &p) + p;
    __threadfence();
    __threadfence_block();
    __threadfence_system();
    x[threadIdx.x] = v + __ldg(x + 1) + __ldcg(x + 2) + __ldca(x + 3) + __ldcs(x + 4) + __ldlu(x + 5) + __ldcv(x + 6);
    __stcg(x + 100, v);
    __stwb(x + 101, v);
    __stcs(x + 102, v);
    __stwt(x + 103, v);
    __nanosleep(10);
    if (v == 77) __trap();
}""",
    "atomics": f"__global__ void k(unsigned *u) {{ {' '.join(f'{name}(u, 3u);' for name in _ATOMICS)} }}",
    "textures": "__global__ void k(cudaTextureObject_t t, cudaSurfaceObject_t s, float *x) {"
    " x[0] = tex1Dfetch<float>(t, 3) + tex2D<float4>(t, 1.f, 2.f).x; surf2Dwrite(x[0], s, 4, 2); }",
    "float": f"__global__ void k(float *x) {{ {_each(_FLOAT)} }}",
    "double": f"__global__ void k(double *x) {{ {_each(_DOUBLE)} }}",
}  # fmt: skip


def ptx(text: str, number: int) -> str:
    return re.sub(r"^\.target sm_\d+", "", cujit.compile(text, arch=f"compute_{number}").text, flags=re.MULTILINE)


@pytest.mark.parametrize("name", KERNELS)
def test_words_without_queries_are_equal_in_a_family(name: str, toolchain: Toolchain) -> None:
    assert find_arch_dependence(KERNELS[name].encode()) == ""
    firsts = _FAMILIES["ptx"]
    for first, end in itertools.pairwise(firsts):
        numbers = [number for number in toolchain.nvrtc.arches if first <= number < end]
        if numbers:
            assert ptx(KERNELS[name], numbers[0]) == ptx(KERNELS[name], numbers[-1]), numbers


@pytest.mark.parametrize("name", KERNELS)
def test_one_ltoir_gives_the_code_of_each_architecture(name: str, toolchain: Toolchain) -> None:
    for first, end in itertools.pairwise(_FAMILIES["ltoir"]):
        numbers = [number for number in toolchain.nvrtc.arches if first <= number < end]
        if numbers:
            shared = cujit.compile(KERNELS[name], arch=f"lto_{numbers[0]}")
            made = cujit.link([shared], arch=f"sm_{numbers[-1]}")
            alone = cujit.compile(KERNELS[name], arch=f"sm_{numbers[-1]}")
            assert code(made.data) == code(alone.data), numbers


def test_every_silent_word_is_compared() -> None:
    assert set(re.findall(r"__\w+", " ".join(KERNELS.values()))) == SILENT


# What NVRTC makes other code of, for one architecture and another.
@pytest.mark.parametrize(
    "code",
    [
        "*x = __CUDA_ARCH__;",
        "*x = __CUDA_MINIMUM_ARCH__;",
        "*x = __vadd2(x[1], x[2]);",
        "*x = __viaddmax_s32(x[1], x[2], x[3]);",
        "*x = sinpif(x[1]);",
        "*x = tgammaf(x[1]);",
    ],
)
def test_words_that_query_the_architecture_are_found(code: str, toolchain: Toolchain) -> None:
    text = f"__global__ void k(int *x) {{ {code} }}"
    assert find_arch_dependence(text.encode())
    numbers = [number for number in toolchain.nvrtc.arches if 75 <= number <= 90]
    assert ptx(text, numbers[0]) != ptx(text, numbers[-1])


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("#if __CUDA_\\\nARCH__ > 800\n#endif", "__CUDA_ARCH__"),
        ("#if defined __CUDA_ARCH_FEAT_SM90_ALL\n#endif", "__CUDA_ARCH_FEAT_SM90_ALL"),
        ("#define A __CUDA_ARCH_LIST__", "__CUDA_ARCH_LIST__"),
        ("#define GLUE(a, b) a##b", "##"),
        ("#define GLUE(a, b) a %:%: b", "%:%:"),
        ("int a??(3??);", "??"),
        ("int \\u005f\\u005fa;", "\\u"),
        ("NV_IF_TARGET(NV_PROVIDES_SM_90, (f();))", "NV_IF_TARGET"),
        ("nv::target::is_device", "nv"),
        ("cuda::barrier<int> b;", "cuda"),
        ("__cluster_dims__(2) void k();", "__cluster_dims__"),
        ("other<<<1, 1>>>();", "<<<"),
        ('const char *s = R"(/*)"; int a = __vadd2(1, 2); // */', "__vadd2"),
        ("_Float16 h;", "_Float16"),
    ],
)
def test_query_is_found_in_any_spelling(text: str, word: str) -> None:
    assert find_arch_dependence(text.encode()) == word
    assert find_arch_dependence("\ufeff".encode() + text.encode()) == word


def test_text_outside_compiled_code_makes_no_query() -> None:
    assert not find_arch_dependence(b'// __CUDA_ARCH__\n/* __vadd2 */ int search, _private, my_ARCH, nvidia; "it\'s";')
    assert not find_arch_dependence(b"#ifndef __TILE_CUH__\n#define __TILE_CUH__\n#endif")
    assert find_arch_dependence("int x;".encode("utf-16")) == "UTF-16"


@pytest.mark.parametrize("name", ["atomicExch", "atomicCAS"])
def test_queries_in_some_overloads_are_found(name: str) -> None:
    assert find_arch_dependence(f"__global__ void k(int *x) {{ *x = {name}(x, 1, 3); }}".encode())
