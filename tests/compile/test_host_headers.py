"""Ordinary .cu files: headers for hosts with nothing in them, and words for what stays with the host."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from cujit.cache.cache import Cache
from cujit.cache.provenance import Outcome
from cujit.cli import main
from cujit.errors import CompileError, HeaderNotFoundError, OptionError
from cujit.program import Source, build, compile, toolchain
from cujit.toolchain.std_headers import HOST_HEADERS
from raising import raises
from toolchain.including import available

SAMPLE = """\
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <vector>
#include <sys/time.h>
#include "helper_cuda.h"
#include <cub/block/block_reduce.cuh>
void die(const char* why) { fprintf(stderr, "%s", why); exit(EXIT_FAILURE); }
int twice(int x) { checkCudaErrors(x); return 2 * x; }
__global__ void k(int* x) { *x = twice(*x); printf("%d", *x); }
#ifndef __CUDACC_RTC__
int main() { std::vector<int> v(1); k<<<1, 1>>>(v.data()); std::cout << v[0]; }
#endif
"""
LAUNCHING = """\
// k<<<1, 1>>>() is what "k<<<1, 1>>>" does, in
/* several
   lines */
#include <vector>
__global__ void k(int* x) { *x = 1; }
void launch(std::vector<int>& v) {
    k<<<1, 1>>>(v.data());
}
"""


def test_ordinary_file_compiles() -> None:
    made = compile(SAMPLE, arch="compute_75", default_device=True, host_headers="stub")
    assert made.names == {"k": "_Z1kPi"}
    assert made.log == ""


def test_all_stubs_compile_together_and_with_standard_headers() -> None:
    text = "".join(f"#include <{name}>\n" for name in HOST_HEADERS if name != "stdlib.h")
    text += "#include <algorithm>\n#include <cmath>\n#include <tuple>\n#include <cuda/std/span>\n"
    if available(toolchain(), "string_view"):
        text += "#include <string_view>\n"
    assert compile(text + "__global__ void k() {}", host_headers="stub").names


def test_missing_host_header_names_the_option() -> None:
    with raises(HeaderNotFoundError, "header-not-found", "source.cu:3") as caught:
        compile(SAMPLE, default_device=True)
    assert "host_headers='stub'" in (caught.value.help or "")


def test_unlisted_header_is_an_error_with_its_line() -> None:
    with raises(HeaderNotFoundError, "header-not-found", "source.cu:2", "mpi.h"):
        compile("#include <vector>\n#include <mpi.h>\n__global__ void k() {}", host_headers="stub")
    with raises(OptionError, "option", "host_headers", "empty", "stub"):
        compile("__global__ void k() {}", options={"host_headers": "empty"})


def test_launch_is_an_error_with_its_line() -> None:
    with pytest.raises(CompileError) as caught:
        compile(LAUNCHING, host_headers="stub", default_device=True)
    assert "source.cu:7 launches a kernel" in (caught.value.help or "")
    assert "#ifndef __CUDACC_RTC__" in (caught.value.help or "")


def test_host_function_error_names_the_option() -> None:
    with pytest.raises(CompileError) as caught:
        compile(LAUNCHING.replace("std::vector<int>& v", "int* v").replace("v.data()", "v"), host_headers="stub")
    assert "set host_code='skip' to skip main and kernel launches" in (caught.value.help or "")
    with pytest.raises(CompileError) as unmarked:
        compile("int twice(int x) { return 2 * x; }\n__global__ void k(int* x) { *x = twice(*x); }")
    assert "default_device=True" in (unmarked.value.help or "")


def test_user_headers_take_precedence_over_stubs(tmp_path: Path) -> None:
    (tmp_path / "vector").write_text("#define OWN 42\n")
    text = "#include <vector>\n__global__ void k(int* x) { *x = OWN; }"
    assert "42" in compile(Source.cuda(text, include=tmp_path), host_headers="stub").text
    assert "42" in compile(text, include=tmp_path, host_headers="stub").text


def test_result_is_cached_and_built_for_every_target(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    said = {"default_device": True, "host_headers": "stub"}
    small = SAMPLE.replace("#include <cub/block/block_reduce.cuh>\n", "")  # which takes a second for each target
    made = [compile(small, cache=cache, options=said).provenance for _ in range(2)]
    outcomes = [origin.outcome for origin in made if origin]
    assert outcomes == [Outcome.MADE, Outcome.MEMORY]
    assert build(small, ["sm_90", "compute_80"], options=said, cache=cache, jobs=os.cpu_count()).names


def test_example_kernel_runs_as_its_file_says() -> None:
    file = Path(__file__).parents[2] / "examples" / "ordinary.cu"
    (line,) = (said for said in file.read_text().splitlines() if said.startswith("//   cujit "))
    said = line.split()[2:]
    said[said.index("ordinary.cu")] = str(file)
    done = CliRunner().invoke(main, [*said, "--device", "cpu"], catch_exceptions=False)
    assert done.stdout == "[ 0.  2.  4.  6.  8. 10. 12. 14.]\n"
