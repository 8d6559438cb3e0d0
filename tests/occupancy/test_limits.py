from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from cujit.arch import Arch
from cujit.arch.arch import KNOWN_ARCHES
from cujit.arch.multiprocessor import LIMITS, WARP_SIZE, limits_of
from cujit.errors import ArchError
from cujit.toolchain.toolset import Toolchain
from raising import raises

# CCCL's own table, as rows on standard output. It refers to one function of the runtime, which is not called.
_PRINTER = r"""
#include <cuda/__device/arch_traits.h>
#include <cstdio>
extern "C" const char* cudaGetErrorString(cudaError_t) { return ""; }
int main() {
    for (int number : {NUMBERS}) {
        auto t = cuda::arch_traits_for(cuda::compute_capability{number});
        printf("%d %d %d %d %d %d %d %d %d\n", number, t.max_threads_per_multiprocessor,
            t.max_blocks_per_multiprocessor, (int)t.max_shared_memory_per_multiprocessor,
            (int)t.max_shared_memory_per_block_optin, t.max_registers_per_multiprocessor, t.max_registers_per_block,
            t.max_registers_per_thread, (int)t.reserved_shared_memory_per_block);
    }
}
"""
_NOT_IN_CCCL = {72, 101}


@pytest.fixture(scope="module")
def cccl_rows(shared_toolchain: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, ...]]:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    paths = shared_toolchain.headers.paths
    header = next((h for p in paths if (h := Path(p) / "cuda" / "__device" / "arch_traits.h").is_file()), None)
    if header is None:
        pytest.skip("this CCCL has no table of architectures")
    numbers = [n for n in LIMITS if f"arch_id::sm_{n}>" in header.read_text()]
    place = tmp_path_factory.mktemp("traits")
    (place / "traits.cpp").write_text(_PRINTER.replace("NUMBERS", ", ".join(map(str, numbers))))
    include = [argument for path in paths[:-1] for argument in ("-I", path)]
    command = ["g++", "-std=c++17", "-w", *include, str(place / "traits.cpp"), "-o", str(place / "traits")]
    subprocess.run(command, check=True, capture_output=True)
    said = subprocess.run([place / "traits"], check=True, capture_output=True, text=True).stdout
    return [tuple(map(int, line.split())) for line in said.splitlines()]


def test_table_matches_cccl(cccl_rows: list[tuple[int, ...]]) -> None:
    assert len(cccl_rows) > 10
    for row in cccl_rows:
        ours = LIMITS[row[0]]
        assert row == (
            ours.number,
            ours.threads,
            ours.blocks,
            ours.shared_bytes,
            ours.block_shared_bytes,
            ours.registers,
            ours.block_registers,
            ours.thread_registers,
            ours.reserved_shared_bytes,
        )


def test_every_known_architecture_has_limits() -> None:
    assert set(LIMITS) == set(KNOWN_ARCHES)
    assert all(row.number == number for number, row in LIMITS.items())


def test_splits_rise_and_hold_all_shared_memory() -> None:
    for row in LIMITS.values():
        assert list(row.shared_configs) == sorted(set(row.shared_configs))
        assert not row.shared_configs or row.shared_bytes in row.shared_configs
        assert row.threads % WARP_SIZE == 0
        assert row.warps == row.threads // WARP_SIZE


def test_variants_have_the_limits_of_their_number() -> None:
    assert limits_of(Arch.parse("sm_100f")) is limits_of(Arch.parse("compute_100a")) is LIMITS[100]


def test_architecture_without_limits_is_refused_with_known_ones() -> None:
    with raises(ArchError, "arch", "sm_99", "sm_90", "sm_100"):
        limits_of(Arch.of_capability(9, 9))
