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

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from cujit.artifact.writing import write_file
from cujit.toolchain.headers import HOST_DIRECTORY, STD_DIRECTORY

# fmt: off
_FORWARDED = (
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


_BODIES: dict[str, str] = {name: _forward(name) + _INTO_STD for name in _FORWARDED}
_BODIES |= {
    "cinttypes": _forward("cstdint") + _INTO_STD + _macros(_FORMATS),
    "cmath": _forward("cmath") + _INTO_STD + _macros(_MATH),
    # NVRTC declares va_list, va_start, va_arg, va_copy and va_end itself (measured, 13.4).
    "cstdarg": "namespace std { using ::va_list; }\n",
    "cstdio": "namespace std { using ::printf; }\n",
    "cstring": _if_there("cstring", _forward("cstring") + _INTO_STD, _OLD_CSTRING),
    "new": _if_there("__new_", _forward("__new_") + _INTO_STD),
    "assert.h": "",
    "float.h": _forward("cfloat"),
    "inttypes.h": _forward("cstdint") + _macros(_FORMATS),
    "limits.h": _forward("climits"),
    "math.h": _macros(_MATH),
    "stdarg.h": "",
    "stdbool.h": "",
    "stddef.h": _forward("cstddef") + _names("max_align_t", "nullptr_t"),
    "stdint.h": _forward("cstdint"),
    "stdio.h": "",
    "stdlib.h": _forward("cstddef"),
    # The CCCL of CUDA 13.0 has <cuda/std/cstring> without the string functions in it (measured, 13.0.85).
    "string.h": _if_there("__cstring/memcpy.h", _forward("cstring") + _names(*_STRING)),
    "time.h": _forward("ctime"),
}

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

HOST_HEADERS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(_HOST.split(), ""),
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
    """Give the text of the file that stands for the header ``name``."""
    return f"// <{name}> for NVRTC. Written by cujit.toolchain.std_headers.\n#pragma once\n{bodies[name]}"


def write_directory(directory: Path = Path(STD_DIRECTORY), bodies: Mapping[str, str] = STD_HEADERS) -> None:
    """Write every header into ``directory``; for developers, after a change of a table."""
    for name in bodies:
        (directory / name).parent.mkdir(exist_ok=True, parents=True)
        write_file(directory / name, render(name, bodies))


def write_host_directory(directory: Path = Path(HOST_DIRECTORY)) -> None:
    """Write the stand-ins; for developers too."""
    write_directory(directory, HOST_HEADERS)
