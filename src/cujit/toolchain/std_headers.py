"""The C++ standard headers that people write, forwarded to libcu++: ``<cstdint>``, ``<math.h>`` …

NVRTC has no standard library. Each header here includes its ``cuda/std`` counterpart and makes the names
visible in namespace ``std``; a C header (``stdint.h``) puts them where C has them, in the global namespace.

They are files of a directory that is searched last, and not headers in memory, because NVRTC takes a header
in memory before any directory and even before a file beside the including one: ``memory.h`` would then break
every library that has a ``memory.h`` of its own. Searched last, whatever the user or the toolkit has under
the same name wins.

Limits: a program cannot specialise a template of ``std`` there (``std::hash<T>``), and after ``using namespace
std`` a plain ``sqrt(x)`` is ambiguous between CUDA's and libcu++'s: write ``std::sqrt(x)``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from cujit.artifact.writing import write_file
from cujit.toolchain.headers import HOST_DIRECTORY, STD_DIRECTORY

# fmt: off
FORWARDED = (
    "algorithm", "array", "atomic", "barrier", "bit", "bitset", "cassert", "ccomplex", "cfloat",
    "charconv", "chrono", "climits", "cmath", "complex", "concepts", "cstddef", "cstdint", "cstdlib",
    "cstring", "ctime", "execution", "expected", "functional", "initializer_list", "inplace_vector",
    "iterator", "latch", "limits", "linalg", "mdspan", "memory", "numbers", "numeric", "optional",
    "random", "ranges", "ratio", "semaphore", "source_location", "span", "string_view", "tuple",
    "type_traits", "utility", "variant"
)
# fmt: on

# Warnings about the toolkit's own text: a floating-point constant that is not exact (1046), vector types that
# CUDA 13 renamed (1444), INFINITY and NAN defined again after <math.h> (47).
_QUIET = "#pragma nv_diagnostic push\n#pragma nv_diag_suppress 47, 1046, 1444\n{}#pragma nv_diagnostic pop\n"
_INTO_STD = "namespace cuda { namespace std {} }\nnamespace std { using namespace cuda::std; }\n"


def _forward(*headers: str) -> str:
    return _QUIET.format("".join(f"#include <cuda/std/{header}>\n" for header in headers))


def _if_there(header: str, then: str, otherwise: str = "") -> str:
    """For headers that older releases of CCCL lack and that NVRTC can do without."""
    text = f"#if __has_include(<cuda/std/{header}>)\n{then}"
    return text + (f"#else\n{otherwise}" if otherwise else "") + "#endif\n"


def _macros(pairs: Mapping[str, str]) -> str:
    return "".join(f"#ifndef {name}\n#define {name} {value}\n#endif\n" for name, value in pairs.items())


# Sources: POSIX.1-2024, <math.h>, symbolic constants; ISO C 7.12 for HUGE_VAL, INFINITY and NAN.
_MATH = {
    "HUGE_VAL": "__builtin_bit_cast(double, 0x7ff0000000000000ULL)",
    "HUGE_VALF": "__builtin_bit_cast(float, 0x7f800000)",
    "INFINITY": "__builtin_bit_cast(float, 0x7f800000)",
    "NAN": "__builtin_bit_cast(float, 0x7fffffff)",
    "M_E": "2.71828182845904523536",
    "M_LOG2E": "1.44269504088896340736",
    "M_LOG10E": "0.43429448190325182765",
    "M_LN2": "0.69314718055994530942",
    "M_LN10": "2.30258509299404568402",
    "M_PI": "3.14159265358979323846",
    "M_PI_2": "1.57079632679489661923",
    "M_PI_4": "0.78539816339744830962",
    "M_1_PI": "0.31830988618379067154",
    "M_2_PI": "0.63661977236758134308",
    "M_2_SQRTPI": "1.12837916709551257390",
    "M_SQRT2": "1.41421356237309504880",
    "M_SQRT1_2": "0.70710678118654752440",
}

# The libcu++ of CUDA 12.9 has no macros in <cuda/std/cfloat>. Source: IEEE 754-2019 by ISO C 5.2.4.2.2.
_FLOAT = {
    "FLT_RADIX": "2",
    "FLT_DIG": "6",
    "FLT_MANT_DIG": "24",
    "FLT_MIN_EXP": "(-125)",
    "FLT_MAX_EXP": "128",
    "FLT_MIN_10_EXP": "(-37)",
    "FLT_MAX_10_EXP": "38",
    "FLT_MIN": "__builtin_bit_cast(float, 0x00800000)",
    "FLT_MAX": "__builtin_bit_cast(float, 0x7f7fffff)",
    "FLT_EPSILON": "__builtin_bit_cast(float, 0x34000000)",
    "DBL_DIG": "15",
    "DBL_MANT_DIG": "53",
    "DBL_MIN_EXP": "(-1021)",
    "DBL_MAX_EXP": "1024",
    "DBL_MIN_10_EXP": "(-307)",
    "DBL_MAX_10_EXP": "308",
    "DBL_MIN": "__builtin_bit_cast(double, 0x0010000000000000ULL)",
    "DBL_MAX": "__builtin_bit_cast(double, 0x7fefffffffffffffULL)",
    "DBL_EPSILON": "__builtin_bit_cast(double, 0x3cb0000000000000ULL)",
}

# There is no <version>: libcu++ asks with __has_include whether a host library is there, and takes it for one.
#
# NVRTC declares these itself, in the global namespace: memcpy, memset, malloc, free, abs, labs, llabs, clock,
# printf, assert and the functions of <math.h> (measured, 12.9 and 13.4). The others come from libcu++.
_STRING = ("memchr", "memcmp", "memmove", "strchr", "strcmp", "strcpy", "strlen", "strncmp", "strncpy", "strrchr")

# Conversions of <inttypes.h>, for the printf of device code, which knows h, l and ll; there is no scanf. Small
# types arrive as int. `long` has 64 bits on Linux only, `long long` everywhere. Source: ISO C 7.8.1; CUDA C++
# Programming Guide, "Format Specifiers"; the sizes are libcu++'s.
_WIDTHS = {"8": "", "16": "", "32": "", "64": "ll"}
_LENGTHS = {
    **{f"{kind}{width}": length for kind in ("", "LEAST", "FAST") for width, length in _WIDTHS.items()},
    "MAX": "ll",
    "PTR": "ll",
}
_FORMATS = {f"PRI{c}{width}": f'"{length}{c}"' for c in "diouxX" for width, length in _LENGTHS.items()}

_OLD_CSTRING = "namespace std { using ::memcpy; using ::memset; }\n"


def _names(*names: str) -> str:
    return "".join(f"using cuda::std::{name};\n" for name in names)


_BODIES: dict[str, str] = {name: _forward(name) + _INTO_STD for name in FORWARDED}
_BODIES |= {
    "algorithm": _if_there("algorithm", _forward("algorithm"), _forward("detail/libcxx/include/algorithm")) + _INTO_STD,
    "cfloat": _forward("cfloat") + _INTO_STD + _macros(_FLOAT),
    "cinttypes": _forward("cstdint") + _INTO_STD + _macros(_FORMATS),
    "cmath": _forward("cmath") + _INTO_STD + _macros(_MATH),
    # NVRTC declares va_list, va_start, va_arg, va_copy and va_end itself (measured, 13.4).
    "cstdarg": "namespace std { using ::va_list; }\n",
    "cstdio": "namespace std { using ::printf; }\n",
    "cstring": _if_there("cstring", _forward("cstring") + _INTO_STD, _OLD_CSTRING),
    "new": _if_there("__new_", _forward("__new_") + _INTO_STD),
    "assert.h": "",
    "float.h": _forward("cfloat") + _macros(_FLOAT),
    "inttypes.h": _forward("cstdint") + _macros(_FORMATS),
    "limits.h": _forward("climits"),
    "math.h": _macros(_MATH),
    "stdarg.h": "",
    "stdbool.h": "",
    "stddef.h": _forward("cstddef") + _names("max_align_t", "nullptr_t"),
    "stdint.h": _forward("cstdint"),
    "stdio.h": "",
    "stdlib.h": _forward("cstddef"),
    # CUDA 13.1 brought <cuda/std/string_view> and the string functions in <cuda/std/cstring> (measured, 13.0 to 13.5).
    "string.h": _if_there("string_view", _forward("cstring") + _names(*_STRING)),
    "time.h": _forward("ctime"),
}

_INTS = (8, 16, 32, 64)
NVCC_HEADER = "cujit/nvcc.h"
"""What ``dialect="nvcc"`` includes before the first line: words that nvcc accepts and NVRTC does not."""

_BUILTINS = {
    "ctz(x)": "cujit_ctz((unsigned)(x))",
    "ctzl(x)": "cujit_ctz((unsigned long long)(x))",
    "ctzll(x)": "cujit_ctz((unsigned long long)(x))",
    "clz(x)": "cujit_clz((unsigned)(x))",
    "clzl(x)": "cujit_clz((unsigned long long)(x))",
    "clzll(x)": "cujit_clz((unsigned long long)(x))",
    "popcount(x)": "cujit_popcount((unsigned)(x))",
    "popcountl(x)": "cujit_popcount((unsigned long long)(x))",
    "popcountll(x)": "cujit_popcount((unsigned long long)(x))",
    "parity(x)": "(cujit_popcount((unsigned)(x)) & 1)",
    "ffs(x)": "__ffs(x)",
    "ffsl(x)": "__ffsll(x)",
    "ffsll(x)": "__ffsll(x)",
    "bswap16(x)": "((unsigned short)__byte_perm(x, 0, 0x4401))",
    "bswap32(x)": "__byte_perm(x, 0, 0x0123)",
    "trap()": "__trap()",
    "prefetch(...)": "((void)0)",
    "inf()": "HUGE_VAL",
    "inff()": "HUGE_VALF",
    "huge_val()": "HUGE_VAL",
    "huge_valf()": "HUGE_VALF",
    "nan(x)": "::nan(x)",
    "nanf(x)": "::nanf(x)",
    "memcpy(...)": "::memcpy(__VA_ARGS__)",
    "memset(...)": "::memset(__VA_ARGS__)",
    "abs(...)": "::abs(__VA_ARGS__)",
    "labs(...)": "::labs(__VA_ARGS__)",
    "llabs(...)": "::llabs(__VA_ARGS__)",
    **{
        f"{name}{end}(...)": f"::{name}{end}(__VA_ARGS__)"
        for name in "fabs sqrt fma fmax fmin floor ceil exp exp2 log log2 pow sin cos tanh rint trunc round".split()  # noqa: SIM905
        for end in ("", "f")
    },
}
# A function for constants and for kernels: the builtins of a host compiler are both.
_BIT_FUNCTION = """\
template <class T> constexpr __device__ __forceinline__ int cujit_{name}(T x) {{
    if (!__builtin_is_constant_evaluated()) return sizeof(T) > 4 ? {long} : {short};
    int n = 0;
    {loop}
    return n;
}}
"""
_NVCC = """\
#include <stddef.h>
#include <stdint.h>
#include <limits.h>
#include <float.h>
#include <math.h>
#define __asm__ asm
#define __asm asm
#define __volatile__ volatile
#define __volatile volatile
#define __extension__
#define __inline inline
#define __const const
#define __signed__ signed
#define __typeof__(x) cujit_typeof<decltype(x)>::type
#define typeof(x) cujit_typeof<decltype(x)>::type
template <class T> struct cujit_typeof { using type = T; };
template <class T> struct cujit_typeof<T &> { using type = T; };
template <class T> struct cujit_typeof<T &&> { using type = T; };
typedef unsigned char u_char;
typedef unsigned short ushort, u_short;
typedef unsigned int uint, u_int;
typedef unsigned long ulong, u_long;
typedef unsigned char u_int8_t;
typedef unsigned short u_int16_t;
typedef unsigned int u_int32_t;
typedef long ssize_t;
#ifndef offsetof
#define offsetof(type, member) __builtin_offsetof(type, member)
#endif
#ifndef RAND_MAX
#define RAND_MAX 2147483647
#endif
"""
_NVCC += _BIT_FUNCTION.format(
    name="ctz", short="__ffs((int)x) - 1", long="__ffsll((long long)x) - 1", loop="for (; x && !(x & 1); x >>= 1) ++n;"
)
_NVCC += _BIT_FUNCTION.format(
    name="clz",
    short="__clz((int)x)",
    long="__clzll((long long)x)",
    loop="for (n = (int)sizeof(T) * 8; x; x >>= 1) --n;",
)
_NVCC += _BIT_FUNCTION.format(
    name="popcount", short="__popc((unsigned)x)", long="__popcll(x)", loop="for (; x; x &= x - 1) ++n;"
)
_NVCC += "".join(f"#define __builtin_{name} {value}\n" for name, value in _BUILTINS.items())
_BODIES[NVCC_HEADER] = _NVCC
NVCC_WORDS = frozenset(
    (
        *re.findall(r"#define (\w+)", _NVCC),
        *re.findall(r"\b(u_?\w+|ssize_t)[,;]", _NVCC),
        *(f"{sign}int{kind}{width}_t" for sign in ("", "u") for kind in ("", "_least", "_fast") for width in _INTS),
        *(f"{sign}INT{width}_{end}" for sign in ("", "U") for width in _INTS for end in ("MAX", "MIN")),
        *_MATH,
        *(f"{kind}_{end}" for kind in ("FLT", "DBL", "INT", "LONG", "LLONG", "CHAR", "SHRT") for end in ("MAX", "MIN")),
        *("UINT_MAX", "ULONG_MAX", "ULLONG_MAX", "SIZE_MAX", "CHAR_BIT", "FLT_EPSILON", "DBL_EPSILON", "offsetof"),
    )
)
"""The words of that header."""

STD_HEADERS: Mapping[str, str] = MappingProxyType(dict(sorted(_BODIES.items())))
"""Header name -> what it does, without the frame that ``render`` adds."""


# Headers of the standard library, and of systems, with nothing in them that a kernel could use.
_HOST = """
any codecvt condition_variable deque filesystem forward_list fstream future iomanip ios iosfwd iostream istream list
locale map memory_resource mutex ostream queue regex set shared_mutex sstream stack stdexcept stop_token streambuf
string strstream syncstream system_error thread unordered_map unordered_set valarray vector
errno.h fcntl.h pthread.h signal.h strings.h sys/stat.h sys/time.h sys/types.h unistd.h windows.h
helper_functions.h helper_timer.h
"""
_SILENT = """\
#define stdout ((void*)0)
#define stderr ((void*)0)
template <class... T> __device__ inline int fprintf(void*, const char*, T...) { return 0; }
__device__ inline int fflush(void*) { return 0; }
"""
_ENDING = """\
#define EXIT_SUCCESS 0
#define EXIT_FAILURE 1
__device__ inline void exit(int) { __trap(); }
__device__ inline void abort() { __trap(); }
"""

TORCH_HEADER = "cujit/torch.h"
"""What stands for every header of PyTorch (``torch/``, ``ATen/``, ``c10/``): its types and macros for kernels."""

_TORCH = f"""\
#include <{NVCC_HEADER}>
#include <cuda.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
namespace c10 {{ using Half = ::__half; using BFloat16 = ::__nv_bfloat16; }}
namespace at {{
using c10::Half;
using c10::BFloat16;
template <class T> struct OpMathType {{ using type = T; }};
template <> struct OpMathType<Half> {{ using type = float; }};
template <> struct OpMathType<BFloat16> {{ using type = float; }};
template <class T> using opmath_type = typename OpMathType<T>::type;
template <class T, bool is_cuda> using acc_type = typename OpMathType<T>::type;
}}
namespace torch {{ using c10::Half; using c10::BFloat16; }}
#define C10_HOST_DEVICE __host__ __device__
#define C10_DEVICE __device__
#define C10_HOST __host__
#define C10_ALWAYS_INLINE __forceinline__
#define C10_RESTRICT __restrict__
#define C10_LIKELY(x) (x)
#define C10_UNLIKELY(x) (x)
#define C10_WARP_SIZE 32
#define C10_LAUNCH_BOUNDS_0 __launch_bounds__(256, 4)
#define C10_LAUNCH_BOUNDS_1(threads) __launch_bounds__(threads)
#define C10_LAUNCH_BOUNDS_2(threads, blocks) __launch_bounds__(threads, blocks)
#define CUDA_KERNEL_ASSERT(condition) assert(condition)
#define CUDA_KERNEL_LOOP_TYPE(i, n, type) \\
    for (type i = blockIdx.x * (type)blockDim.x + threadIdx.x; i < (n); i += (type)blockDim.x * gridDim.x)
#define CUDA_KERNEL_LOOP(i, n) CUDA_KERNEL_LOOP_TYPE(i, n, int)
"""
# Those of PyTorch's that headers of projects include.
_TORCH_HEADERS = """
torch/all.h torch/extension.h torch/library.h torch/python.h torch/torch.h torch/types.h torch/cuda.h
ATen/ATen.h ATen/AccumulateType.h ATen/Dispatch.h ATen/OpMathType.h ATen/cuda/Atomic.cuh ATen/cuda/CUDAContext.h
ATen/cuda/Exceptions.h ATen/cuda/CUDAGeneratorImpl.h c10/core/ScalarType.h c10/cuda/CUDAException.h c10/cuda/CUDAGuard.h
c10/cuda/CUDAMathCompat.h c10/cuda/CUDAStream.h c10/macros/Macros.h c10/util/BFloat16.h c10/util/Exception.h
c10/util/Half.h c10/util/Optional.h
"""
# Source: CUDA driver API manual 13, ``CUtensorMap``.
_DRIVER = """\
typedef struct alignas(64) CUtensorMap_st { unsigned long long opaque[16]; } CUtensorMap;
#ifndef CUDA_VERSION
#define CUDA_VERSION CUDART_VERSION
#endif
"""

HOST_HEADERS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(_HOST.split(), ""),
        TORCH_HEADER: _TORCH,
        **dict.fromkeys(_TORCH_HEADERS.split(), f"#include <{TORCH_HEADER}>\n"),
        "cuda.h": _DRIVER,
        # Beside std, so that functions that check an error and end, and that no kernel calls, compile for the GPU.
        "stdio.h": _SILENT,
        "cstdio": "#include <stdio.h>\n" + _BODIES["cstdio"],
        "stdlib.h": _BODIES["stdlib.h"] + _ENDING,
        "cstdlib": "#include <stdlib.h>\n" + _BODIES["cstdlib"],
        # Of NVIDIA's CUDA samples.
        "helper_cuda.h": "#define checkCudaErrors(call) ((void)(call))\n#define getLastCudaError(said)\n",
    }
)
"""Headers for hosts -> what stands in for them where ``host_headers`` is ``"stub"``; most are empty."""


def render(name: str, bodies: Mapping[str, str] = STD_HEADERS) -> str:
    """Return the text of the file that replaces the header ``name``."""
    return f"// <{name}> for NVRTC. Written by cujit.toolchain.std_headers.\n#pragma once\n{bodies[name]}"


def write_directory(directory: Path = Path(STD_DIRECTORY), bodies: Mapping[str, str] = STD_HEADERS) -> None:
    """Write every header into ``directory``; for developers, after a change of a table."""
    for name in bodies:
        (directory / name).parent.mkdir(exist_ok=True, parents=True)
        write_file(directory / name, render(name, bodies))


def write_host_directory(directory: Path = Path(HOST_DIRECTORY)) -> None:
    """Write the replacement headers. Developers use this function too."""
    write_directory(directory, HOST_HEADERS)
