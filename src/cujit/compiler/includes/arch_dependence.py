"""Whether a text may ask for the architecture that it is compiled for, by a macro or by a word of the compiler's own.

NVRTC's built-in functions are other code on other architectures too (``__vadd2`` from 9.0 on, ``atomicExch``,
``sinpif``), and so are its attributes. So a reserved word counts as asking unless it is known not to.
Source: PTX of NVRTC 13.5 for each of its architectures, with each word; tests hold it against the NVRTC that is there.
"""

from __future__ import annotations

import re

from cujit.compiler.includes.directives import code_of

_WORD = re.compile(r"[^\W\d][\w$]*|\$[\w$]+")
_RESERVED = re.compile(r"__|_[A-Z]")
# What may make a word that no text holds: pasting, trigraphs, names of characters; and a launch, which calls for some.
_MAKES_WORDS = re.compile(r"##|%:%:|\?\?|\\[uUN]|<<<")
# What is not reserved and is the compiler's own all the same. Atomics that are the same everywhere do not count.
_NAMED = re.compile(
    r"nv|nvcuda|NV_\w*|cuda(?!(?:Texture|Surface)Object_t$)\w*"
    r"|atomic(?!(?:Add|Sub|Min|Max|And|Or|Xor|Inc|Dec)(?:_block|_system)?$)\w*|(?:sin|cos|sincos)pif?|tgammaf?"
)
_GUARD = re.compile(r"_+[A-Z0-9_]*_(?:H|HH|HPP|HXX|CUH|INC|INCLUDED)_*")

SILENT = frozenset(
    """
    __cplusplus __VA_ARGS__ __CUDACC__ __CUDACC_RTC__ __global__ __device__ __host__ __shared__ __constant__
    __restrict__ __restrict __forceinline__ __noinline__ __inline__ __launch_bounds__ __grid_constant__ __align__
    __syncthreads __syncthreads_count __syncthreads_and __syncthreads_or __syncwarp __threadfence __threadfence_block
    __threadfence_system __shfl_sync __shfl_up_sync __shfl_down_sync __shfl_xor_sync __any_sync __all_sync
    __ballot_sync __activemask __match_any_sync __match_all_sync __ldg __ldcg __ldca __ldcs __ldlu __ldcv __stcg __stwb
    __stcs __stwt __nanosleep __trap __clz __popc __ffs __brev __clzll __popcll __ffsll __brevll __byte_perm __mulhi
    __umulhi __mul64hi __umul64hi __mul24 __umul24 __sad __usad __hadd __rhadd __uhadd __funnelshift_l
    __funnelshift_r __dp4a __dp2a_lo __float_as_int __int_as_float __uint_as_float __float2int_rn __float2uint_rd
    __float2ll_rn __int2float_rn __uint2float_rz __ll2float_rn __double2int_rz __double2ll_rz __double2hiint
    __double2loint __hiloint2double __longlong_as_double __double_as_longlong __fadd_rn __fsub_rn __fmul_rz __fmaf_rn
    __fdiv_rn __fsqrt_rn __frcp_rn __frsqrt_rn __saturatef __fdividef __expf __exp10f __logf __log2f __log10f __powf
    __sinf __cosf __tanf __dadd_rn __dsub_rn __dmul_rn __fma_rn __ddiv_rn __dsqrt_rn __drcp_rn
    """.split()  # noqa: SIM905
)
"""Reserved words with which NVRTC writes the same for architectures of one family."""


def find_arch_dependence(data: bytes) -> str:
    """Return the word by which a text may query the architecture, or that may create such a word, or
    an empty string.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "UTF-16"
    code = code_of(data)
    if match := _MAKES_WORDS.search(code):
        return str(match[0])
    word: str
    for word in dict.fromkeys(_WORD.findall(code)):
        if _RESERVED.match(word):
            if word not in SILENT and not _GUARD.fullmatch(word):
                return word
        elif _NAMED.fullmatch(word):
            return word
    return ""
