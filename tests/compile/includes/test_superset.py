"""The closure holds every header that NVRTC says it opened."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from compile.includes.traced import Unit, can_trace, read_by_nvrtc
from cujit.compiler.includes.closure import scan
from cujit.compiler.includes.files import Files, NotModelledError
from cujit.compiler.includes.search import HeaderPlace, Search
from cujit.toolchain.toolset import Toolchain

# Each line is one translation unit.
_GROUPS = """
cuda_fp16.h cuda_bf16.h cuda_fp8.h cuda_fp6.h cuda_fp4.h cuComplex.h math_constants.h library_types.h vector_types.h
mma.h device_types.h builtin_types.h vector_functions.h driver_types.h cuda_runtime_api.h surface_types.h
cooperative_groups.h cooperative_groups/reduce.h cooperative_groups/scan.h texture_types.h cuda_device_runtime_api.h
cuda/std/array cuda/std/complex cuda/std/tuple cuda/std/utility cuda/std/cstdint cuda/std/limits cuda/std/cmath
cuda/std/atomic cuda/std/barrier cuda/std/latch cuda/std/semaphore cuda/std/chrono cuda/std/ratio cuda/std/bit
cuda/std/optional cuda/std/variant cuda/std/expected cuda/std/span cuda/std/mdspan cuda/std/functional cuda/std/numeric
cuda/std/algorithm cuda/std/iterator cuda/std/ranges cuda/std/concepts cuda/std/initializer_list cuda/std/cstring
cuda/atomic cuda/barrier cuda/pipeline cuda/annotated_ptr cuda/functional cuda/ptx nv/target
cub/block/block_reduce.cuh cub/block/block_scan.cuh cub/block/block_load.cuh cub/block/block_store.cuh
cub/block/block_radix_sort.cuh cub/block/block_histogram.cuh cub/block/block_exchange.cuh cub/block/block_shuffle.cuh
cub/warp/warp_reduce.cuh cub/warp/warp_scan.cuh cub/warp/warp_load.cuh cub/warp/warp_store.cuh
cstdint cmath climits array type_traits stdint.h string.h math.h stddef.h inttypes.h complex
"""


def _units() -> list[list[str]]:
    lines = [line.split() for line in _GROUPS.strip().splitlines()]
    return [lines[i] + (lines[i + 1] if i + 1 < len(lines) else []) for i in range(0, len(lines), 2)]


def _missed(headers: list[str], toolchain: Toolchain) -> list[str] | None:
    text = "".join(f"#include <{header}>\n" for header in headers) + "__global__ void k() {}\n"
    paths = toolchain.headers.paths
    unit: Unit = (
        text,
        "/cujit-source/s.cu",
        (),
        ["--gpu-architecture=compute_90", *(f"--include-path={path}" for path in paths)],
    )
    opened = read_by_nvrtc([unit], toolchain.nvrtc.version)[0]
    if opened is None:
        return None
    search = Search({}, tuple((f"toolkit[{i}]", path) for i, path in enumerate(paths)), os.getcwd())
    closure = scan(search, HeaderPlace("source", "s.cu", "/cujit-source/s.cu"), text.encode(), files=Files())
    found = {os.path.realpath(header.place.path) for header in closure.found}
    real = [path for path in opened if path.startswith(paths) and os.path.isfile(path)]
    assert len(set(real)) >= len(headers) - 1, "the trace lists nothing"
    return sorted({path for path in real if os.path.realpath(path) not in found})


def test_sweep_covers_enough_headers() -> None:
    assert sum(map(len, _units())) >= 75


@pytest.mark.parametrize(
    "units",
    [
        pytest.param([[header for unit in _units() for header in unit]], id="together"),
        pytest.param(
            _units(),
            id="some at a time",
            marks=pytest.mark.skipif(
                "CUJIT_TOOLKITS" not in os.environ, reason="`make toolkits` compiles some at a time"
            ),
        ),
    ],
)
def test_every_header_that_nvrtc_opens_is_in_the_closure(units: list[list[str]], shared_toolchain: Toolchain) -> None:
    if not can_trace(shared_toolchain.nvrtc.version):
        pytest.skip("the time trace lists headers since NVRTC 13.0, and strace is not installed")
    paths = shared_toolchain.headers.paths
    for headers in units:
        there = [header for header in headers if any(os.path.isfile(f"{path}/{header}") for path in paths)]
        assert len(there) >= len(headers) * 0.8, "of a release's headers, all but a few are in every other"
        assert _missed(there, shared_toolchain) == []


@pytest.mark.skipif("CUJIT_ALL_HEADERS" not in os.environ, reason="CUJIT_ALL_HEADERS=1 compiles every header: 30 min")
def test_every_toolkit_header_compiles_alone(shared_toolchain: Toolchain) -> None:
    root = Path(shared_toolchain.headers.paths[0])
    names = [str(p.relative_to(root)).removeprefix("cccl/") for p in sorted(root.rglob("*")) if p.is_file()]
    missed: dict[str, list[str]] = {}
    for name in names:
        with contextlib.suppress(NotModelledError):
            if told := _missed([name], shared_toolchain):
                missed[name] = told
    assert not missed
