"""The toolkit's headers: found with nothing set, and the standard headers over libcu++."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import cujit
from cujit.toolchain import std_headers
from cujit.toolchain.headers import HOST_DIRECTORY, STD_DIRECTORY, Settings, find_headers
from cujit.toolchain.std_headers import HOST_HEADERS, STD_HEADERS, render
from cujit.toolchain.toolset import Toolchain
from toolchain.including import available, compiles

TOOLKIT_HEADERS = [
    "cuda_fp16.h",
    "cuda_bf16.h",
    "cuda/std/complex",
    "cub/block/block_reduce.cuh",
    "cooperative_groups.h",
    "cooperative_groups/reduce.h",
    "cuda/barrier",
    "mma.h",
]


def test_toolkit_headers_compile_without_settings(toolchain: Toolchain) -> None:
    """All together; ``make toolkits`` compiles each by itself."""
    compiles(toolchain, "".join(f"#include <{header}>\n" for header in TOOLKIT_HEADERS) + "__global__ void k() {}")


def test_every_hit_names_its_search_rule(toolchain: Toolchain) -> None:
    assert not toolchain.headers.missing
    parts = {d.part: d.found_via for d in toolchain.headers.directories}
    assert parts == dict.fromkeys(("CUDA runtime headers", "CCCL", "crt"), "NVRTC's directory")
    assert "found via NVRTC's directory" in toolchain.headers.report()


def make_toolkit(home: Path, version: int) -> None:
    for name in ("cuda_runtime_api.h", "cuda/std/version", "crt/mma.h"):
        (home / "include" / name).parent.mkdir(parents=True, exist_ok=True)
        (home / "include" / name).write_text(f"#define CUDART_VERSION  {version}\n")


def test_cuda_home_is_used_if_the_wheels_have_nothing(tmp_path: Path) -> None:
    make_toolkit(tmp_path / "home", 99010)
    settings = Settings.from_environment({"CUDA_HOME": str(tmp_path / "home"), "CUDA_PATH": ""})
    search = find_headers(settings, 99, str(tmp_path / "lib" / "libnvrtc.so"))
    runtime = search.directories[0]
    assert runtime.path == str(tmp_path / "home" / "include")
    assert runtime.found_via == "CUDA_HOME or CUDA_PATH"


def test_headers_of_another_major_version_are_skipped(tmp_path: Path) -> None:
    make_toolkit(tmp_path / "home", 12090)
    settings = Settings((("CUDA_HOME", str(tmp_path / "home")),))
    search = find_headers(settings, 99, None)
    assert "CUDA runtime headers" in search.missing
    assert "headers of CUDA 12, but NVRTC is 99 (CUDA_HOME or CUDA_PATH)" in search.report()


def test_miss_lists_everything_that_was_tried() -> None:
    search = find_headers(Settings((("CUDA_PATH", "/nowhere/cuda"),)), 99, "/nowhere/lib/libnvrtc.so")
    for place in ("/nowhere/include", "/nowhere/cuda/include", "/usr/local/cuda/include"):
        assert place in search.report()


def test_toolkit_of_nvrtc_precedes_cuda_home(toolchain: Toolchain, tmp_path: Path) -> None:
    make_toolkit(tmp_path, 1000 * toolchain.nvrtc.version[0])
    settings = Settings((("CUDA_HOME", str(tmp_path)),))
    search = find_headers(settings, toolchain.nvrtc.version[0], toolchain.nvrtc.library_path)
    assert str(tmp_path / "include") not in search.paths


def test_standard_header_files_match_the_table() -> None:
    for directory, table in ((STD_DIRECTORY, STD_HEADERS), (HOST_DIRECTORY, HOST_HEADERS)):
        files = [path for path in Path(directory).rglob("*") if path.is_file()]
        on_disk = {path.relative_to(directory).as_posix(): path.read_text() for path in files}
        assert on_disk == {name: render(name, table) for name in table}


BOTH = ["c++17", *(["c++20"] if "CUJIT_TOOLKITS" in os.environ else [])]
"""All of libcu++ takes two seconds: ``make toolkits`` compiles it as C++20 too."""


@pytest.mark.parametrize("std", BOTH)
def test_all_standard_headers_compile_together(toolchain: Toolchain, std: str) -> None:
    text = "".join(f"#include <{h}>\n" for h in STD_HEADERS if available(toolchain, h))
    compiles(toolchain, text + "__global__ void k() {}", f"-std={std}")


NAMES = """
#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <initializer_list>
#include <limits>
#include <new>
#include <numeric>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

template <class T> __device__ T sum(std::initializer_list<T> items) {
    T total = 0;
    for (T item : items) total += item;
    return total;
}

__global__ void k(int* p, float* q, std::complex<float> c) {
    auto [a, b] = std::tuple<int, float>(1, 2.f);
    auto [x, y] = std::pair<int, float>(a, b);
    std::array<int, 3> three{1, 2, 3};
    auto [u, v, w] = three;
    static_assert(std::is_same_v<std::int32_t, int>);
    static_assert(std::numeric_limits<float>::max() > 1);
    p[0] = x + u + v + w + std::get<0>(three) + sum({1, 2, 3}) + std::max(p[1], p[2]);
    p[1] = std::accumulate(three.begin(), three.end(), 0) + std::plus<int>()(1, 2);
    q[0] = y + std::sqrt(q[1]) + std::abs(q[2]) + std::norm(c) + INFINITY + float(M_PI);
    std::swap(p[2], p[3]);
    int moved = std::move(p[4]);
    p[5] = moved;
    if (std::optional<int> maybe = p[6]) new (p) int(*maybe);
    std::printf("%d", std::forward<int>(p[7]));
}
"""

C_NAMES = """
#include <assert.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__global__ void k(int* p, char* q, double* d) {
    uint32_t u = 1;
    int64_t i = INT64_MAX;
    ptrdiff_t n = p - p;
    assert(u == 1);
    memcpy(p, q, 3);
    memmove(p, q, 3);
    p[0] = memcmp(p, q, 3) + (int)strlen(q) + INT_MAX + (int)n + (int)i + abs(p[1]);
    d[0] = M_PI + NAN + HUGE_VAL + fma(d[1], d[2], d[3]) + FLT_MAX + isnan(d[4]);
    bool is_null = p == NULL;
    if (is_null) printf("null");
    free(malloc(4));
}
"""


FORMATS_AND_ARGUMENTS = """
#include <cinttypes>
#include <cstdarg>
#include <inttypes.h>
#include <stdarg.h>
static_assert(sizeof(int_fast16_t) <= 4 && sizeof(int_fast32_t) == 4, "PRIdFAST32 is an int's");
__device__ int sum(int n, ...) {
    std::va_list a, b;
    va_start(a, n);
    va_copy(b, a);
    int total = 0;
    while (n--) total += va_arg(b, int);
    va_end(b);
    va_end(a);
    return total;
}
__global__ void k(std::int64_t i, uint8_t u, intptr_t p, int_fast16_t f) {
    printf("%d %" PRId64 " %" PRIu8 " %" PRIxPTR " %" PRIiFAST16 " %" PRIdMAX, sum(1, 2), i, u, p, f, (intmax_t)i);
}
"""


@pytest.mark.parametrize("std", ["c++17", "c++20"])
@pytest.mark.parametrize("text", [NAMES, C_NAMES, FORMATS_AND_ARGUMENTS], ids=["namespace std", "C", "formats"])
def test_names_are_where_the_standard_has_them(toolchain: Toolchain, text: str, std: str) -> None:
    if not available(toolchain, "string_view"):
        pytest.skip("the CCCL of CUDA 12.9 has fewer of them")
    compiles(toolchain, text, f"-std={std}")


def test_float_limits_match_ieee_754() -> None:
    """Those of libcu++, and cujit's own, which libcu++ of CUDA 12.9 needs."""
    own = std_headers._macros(std_headers._FLOAT)
    forget = "".join(f"#undef {name}\n" for name in std_headers._FLOAT)
    device = cujit.cpu()
    for text in ("#include <cfloat>\n", f"#include <cfloat>\n{forget}{own}"):
        stores = (
            "f[0] = FLT_MAX; f[1] = FLT_MIN; f[2] = FLT_EPSILON; d[0] = DBL_MAX; d[1] = DBL_MIN; d[2] = DBL_EPSILON;"
        )
        floats, doubles = device.zeros(3, np.float32), device.zeros(3, np.float64)
        kernel = cujit.jit(f"{text}__global__ void k(float *f, double *d) {{ {stores} }}", device=device)["k"]
        kernel[1, 1](floats, doubles)
        for found, info in ((floats, np.finfo(np.float32)), (doubles, np.finfo(np.float64))):
            assert found.numpy().tolist() == [info.max, info.tiny, info.eps]
