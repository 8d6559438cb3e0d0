"""Coverage: threads by lines of CUDA source, written for lcov."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path

import numpy as np
import pytest

from cujit.devices.cpu.observe.coverage import Coverage
from cujit.errors import KernelFaultError
from cujit.loading import Module, jit, load
from cujit.machine import cpu
from cujit.program import Source, compile

pytestmark = pytest.mark.usefixtures("unoptimised")

SOURCE = """\
__device__ __noinline__ int steps(int n) {
    int count = 0;
    while (n > 1) {
        n = n & 1 ? 3 * n + 1 : n / 2;
        count++;
    }
    return count;
}

template <typename T> __global__ void work(T* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
#if 0
    x[i] = 7;
#endif
    if (x[i] < 0)
        x[i] = atomicAdd(&x[0], T(1));
    x[i] = steps(i);
}

extern "C" __global__ void other(int* x) {
    *x = steps(*x);
}
"""
NAMES = ("work<int>", "work<float>")


def _module(coverage: Coverage, source: str = SOURCE, **options: object) -> Module:
    names = NAMES if "work" in source else ()
    return jit(source, name="work.cu", names=names, device=cpu(coverage=coverage), **options)  # type: ignore[arg-type]


def _work(module: Module, n: int, *, name: str = "work<int>") -> None:
    kernel = module[name]
    kernel[2, 32](module.device.array(np.zeros(64, np.int32 if "int" in name else np.float32)), n)


def _collatz(n: int) -> int:
    count = 0
    while n > 1:
        n = 3 * n + 1 if n & 1 else n // 2
        count += 1
    return count


def test_lines_count_the_threads_that_execute_them() -> None:
    coverage = Coverage()
    _work(_module(coverage), 40)
    lines = coverage.lines()["work.cu"]
    turns = sum(map(_collatz, range(40)))
    assert {n: lines[n] for n in (1, 2, 4, 5, 7) if n in lines} == {1: 40, 4: turns, 5: turns, 7: 40}
    assert {n: lines[n] for n in (10, 11, 12, 19, 20)} == {10: 64, 11: 64, 12: 64, 19: 40, 20: 64}


def test_removed_or_empty_lines_are_not_counted() -> None:
    coverage = Coverage()
    _work(_module(coverage), 40)
    assert not {9, 14, 15, 16, 21, 25}.intersection(coverage.lines()["work.cu"])


def test_unreached_lines_count_zero() -> None:
    coverage = Coverage()
    module = _module(coverage)
    assert set(coverage.lines()["work.cu"].values()) == {0}
    _work(module, 40)
    lines = coverage.lines()["work.cu"]
    assert (lines[18], lines[22], lines[23]) == (0, 0, 0)  # no value is negative; the other kernel is never launched


def test_launches_and_instances_add_up() -> None:
    coverage = Coverage()
    module = _module(coverage)
    for name in ("work<int>", "work<int>", "work<float>"):
        _work(module, 40, name=name)
    assert coverage.lines()["work.cu"][19] == 120
    _work(_module(coverage), 40)  # loaded once more
    assert coverage.lines()["work.cu"][19] == 160


def test_exact_coverage_has_the_line_of_an_early_return() -> None:
    coverage = Coverage(exact=True)
    _work(_module(coverage), 40)
    assert coverage.lines()["work.cu"][13] == 24


@pytest.mark.verbatim
def test_predicate_counts_only_active_threads() -> None:
    ptx = """
.version 8.4
.target sm_90
.address_size 64
.visible .entry k() {
    .reg .pred %p;
    .reg .b32 %r<3>;
    .loc 1 2 0
    mov.u32 %r1, %tid.x;
    setp.lt.u32 %p, %r1, 3;
    .loc 1 3 0
    @%p add.u32 %r2, %r1, 1;
    .loc 1 4 0
    @%p bra DONE;
    .loc 1 5 0
    add.u32 %r2, %r1, 2;
DONE:
    ret;
}
.file 1 "predicates.cu"
"""
    coverage = Coverage()
    load(ptx, cpu(coverage=coverage))["k"][1, 32]()
    assert coverage.lines()["predicates.cu"] == {2: 32, 3: 3, 4: 32, 5: 32}


def test_lines_before_a_fault_are_counted() -> None:
    code = 'extern "C" __global__ void k(int* x) {\n    *x = 1;\n    if (threadIdx.x == 3)\n        __trap();\n}\n'
    coverage = Coverage()
    module = _module(coverage, code)
    with pytest.raises(KernelFaultError):
        module["k"][1, 8](module.device.array(np.zeros(1, np.int32)))
    assert coverage.lines()["work.cu"][4] == 1


def test_kernels_with_barriers_and_calls_are_counted() -> None:
    code = """\
__device__ __noinline__ int sum(int n) {
    return n == 0 ? 0 : n + sum(n - 1);
}
extern "C" __global__ void k(int* x) {
    __shared__ int tile[64];
    tile[threadIdx.x] = sum(3);
    __syncthreads();
    x[threadIdx.x] = tile[63 - threadIdx.x];
}
"""
    coverage = Coverage()
    module = _module(coverage, code)
    module["k"][3, 64](module.device.array(np.zeros(64, np.int32)))
    lines = coverage.lines()["work.cu"]
    assert (lines[6], lines[7], lines[8]) == (192, 192, 192)
    assert lines[2] >= 192


def test_library_headers_are_omitted_unless_requested() -> None:
    code = """\
#include <cuda/std/numeric>
#include "own.h"
extern "C" __global__ void k(int* x) {
    x[threadIdx.x] = cuda::std::gcd(own(x[threadIdx.x]), 12);
}
"""
    own = "__device__ int own(int v) {\n    return v * v + 1;\n}\n"
    coverage = Coverage()
    module = jit(code, name="k.cu", headers={"own.h": own}, device=cpu(coverage=coverage))
    module["k"][1, 64](module.device.array(np.ones(64, np.int32)))
    assert coverage.lines().keys() == {"k.cu", "own.h"}
    assert coverage.lines()["own.h"] == {2: 64}
    coverage.library = True
    assert any("/cuda/std/" in file for file in coverage.lines())


def test_lcov_has_functions_lines_and_source_paths(tmp_path: Path) -> None:
    file = tmp_path / "work.cu"
    file.write_text(SOURCE)
    coverage = Coverage()
    module = jit(Source.cuda(file), names=NAMES, device=cpu(coverage=coverage))
    _work(module, 40)
    coverage.save(tmp_path / "c.info")
    (record,) = re.findall(r"TN:\n(.*?)end_of_record\n", (tmp_path / "c.info").read_text(), re.DOTALL)
    lines = record.splitlines()
    assert lines[0] == f"SF:{file}"
    assert {"FN:1,steps(int)", "FN:10,void work<int>(int*, int)", "FN:22,other"} <= set(lines)
    assert {"FNDA:40,steps(int)", "FNDA:64,void work<int>(int*, int)", "FNDA:0,void work<float>(float*, int)"} <= set(
        lines
    )
    assert {"FNF:4", "FNH:2"} <= set(lines)
    counted = {int(n): int(count) for n, count in re.findall(r"^DA:(\d+),(\d+)$", record, re.MULTILINE)}
    assert counted == coverage.lines()[str(file)]
    assert f"LF:{len(counted)}" in lines
    assert f"LH:{sum(n > 0 for n in counted.values())}" in lines
    assert not (tmp_path / "c.info.sources").exists()


def test_in_memory_sources_are_written_next_to_the_lcov_file(tmp_path: Path) -> None:
    coverage = Coverage()
    _module(coverage)
    coverage.save(tmp_path / "c.info")
    (file,) = re.findall("^SF:(.*)$", (tmp_path / "c.info").read_text(), re.MULTILINE)
    assert Path(file) == tmp_path / "c.info.sources" / "work.cu"
    assert Path(file).read_text() == SOURCE


def test_sources_with_equal_names_are_distinguished(tmp_path: Path) -> None:
    coverage = Coverage()
    codes = [f'extern "C" __global__ void k(int* x) {{\n    *x = {n};\n}}\n' for n in (1, 2)]
    for code, threads in zip(codes, (1, 2), strict=True):
        module = _module(coverage, code)
        module["k"][1, threads](module.device.array(np.zeros(1, np.int32)))
    assert sorted(lines[2] for lines in coverage.lines().values()) == [1, 2]
    coverage.save(tmp_path / "c.info")
    files = re.findall("^SF:(.*)$", (tmp_path / "c.info").read_text(), re.MULTILINE)
    assert sorted(Path(file).read_text() for file in files) == codes
    assert all(re.fullmatch(r"work-[0-9a-f]{8}\.cu", Path(file).name) for file in files)


@pytest.mark.parametrize("name", ["../../out.cu", "/etc/out.cu", "a/../../b.cu"])
def test_source_names_do_not_lead_out_of_the_directory(tmp_path: Path, name: str) -> None:
    coverage = Coverage()
    jit('extern "C" __global__ void k(int* x) { *x = 1; }', name=name, device=cpu(coverage=coverage))
    (tmp_path / "in").mkdir()
    coverage.save(tmp_path / "in" / "c.info")
    inside = tmp_path / "in" / "c.info.sources"
    assert all(inside in file.parents for file in tmp_path.rglob("*.cu"))
    assert len(list(tmp_path.rglob("*.cu"))) == 1


def test_counts_of_several_processes_are_merged() -> None:
    parts = [Coverage(), Coverage()]
    for coverage, n in zip(parts, (40, 10), strict=True):
        _work(_module(coverage), n)
    whole = Coverage()
    for coverage in parts:
        whole.merge(json.loads(json.dumps(coverage.dump())))
    assert whole.lines()["work.cu"][19] == 50
    again = Coverage()
    again.merge(whole.dump())
    assert again.lines() == whole.lines()


def test_launches_from_several_threads_lose_no_count() -> None:
    coverage = Coverage()
    module = _module(coverage)
    _work(module, 40)

    def launches() -> None:
        for _ in range(10):
            _work(module, 40)

    threads = [threading.Thread(target=launches) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert coverage.lines()["work.cu"][19] == 41 * 40


def test_ptx_without_lines_has_no_coverage() -> None:
    coverage = Coverage()
    module = load(compile(Source.cuda(SOURCE), to="ptx", arch="compute_90", names=NAMES), cpu(coverage=coverage))
    _work(module, 40)
    assert coverage.lines() == {}


def test_results_equal_those_without_coverage() -> None:
    code = 'extern "C" __global__ void k(float* x) { x[threadIdx.x] = sinf(x[threadIdx.x]) * 3.0f + 1.0f; }'
    results = []
    for device in (cpu(coverage=Coverage()), cpu()):
        x = device.array(np.arange(64, dtype=np.float32))
        jit(code, device=device)["k"][1, 64](x)
        results.append(x.numpy().tobytes())
    assert results[0] == results[1]
