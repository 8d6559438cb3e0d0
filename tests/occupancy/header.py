"""NVIDIA's occupancy header of the installed toolkit, compiled by g++ and asked in one process for many cases."""

from __future__ import annotations

import array
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path

from cujit.arch.multiprocessor import MAX_BLOCK_THREADS, SHARED_DEFAULT_BYTES, WARP_SIZE, ProcessorLimits

__all__ = ["Answer", "Best", "Case", "Header", "build_header"]

UNLIMITED = 2**31 - 1

# Every case is a row of 64-bit numbers on standard input, every answer one on standard output.
_DRIVER = r"""
#include <cstdio>
#include "cuda_occupancy.h"

struct Case {
    long long number, threads, sm_registers, block_registers, sm_shared, block_shared, reserved;
    long long registers, shared, dynamic, per_thread, opt_in, allowed, carveout, barriers, virtuals, max_threads, block;
};

int main() {
    Case c;
    while (fread(&c, sizeof c, 1, stdin) == 1) {
        cudaOccDeviceProp p;
        p.computeMajor = c.number / 10;
        p.computeMinor = c.number % 10;
        p.maxThreadsPerBlock = MAX_BLOCK;
        p.maxThreadsPerMultiprocessor = c.threads;
        p.regsPerBlock = c.block_registers;
        p.regsPerMultiprocessor = c.sm_registers;
        p.warpSize = WARP;
        p.sharedMemPerBlock = DEFAULT_SHARED;
        p.sharedMemPerMultiprocessor = c.sm_shared;
        p.numSms = 10;
        p.sharedMemPerBlockOptin = c.block_shared;
        p.reservedSharedMemPerBlock = c.reserved;
        cudaOccFuncAttributes a;
        a.maxThreadsPerBlock = c.max_threads;
        a.numRegs = c.registers;
        a.sharedSizeBytes = c.shared;
        a.shmemLimitConfig = c.opt_in ? FUNC_SHMEM_LIMIT_OPTIN : FUNC_SHMEM_LIMIT_DEFAULT;
        a.maxDynamicSharedSizeBytes = c.allowed;
        a.numBlockBarriers = c.barriers;
#ifdef HAS_VIRTUAL
        a.virtualResourceCount = c.virtuals;
#endif
        cudaOccDeviceState s;
        s.carveoutConfig = c.carveout;
        long long out[11] = {};
        if (c.block) {
            cudaOccResult r = {};
            out[0] = cudaOccMaxActiveBlocksPerMultiprocessor(&r, &p, &a, &s, c.block, c.dynamic);
            long long said[] = {r.activeBlocksPerMultiprocessor, r.blockLimitWarps, r.blockLimitBlocks,
                r.blockLimitRegs, r.blockLimitSharedMem, r.blockLimitBarriers,
#ifdef HAS_VIRTUAL
                r.blockLimitVirtual,
#else
                UNLIMITED,
#endif
                r.limitingFactors, r.allocatedRegistersPerBlock, (long long)r.allocatedSharedMemPerBlock};
            for (int i = 0; i < 10; i++) out[i + 1] = said[i];
        } else {
            int grid = 0, block = 0;
            out[0] = cudaOccMaxPotentialOccupancyBlockSizeVariableSMem(&grid, &block, &p, &a, &s,
                [&](int n) { return (size_t)(c.dynamic + c.per_thread * n); });
            out[1] = grid;
            out[2] = block;
        }
        fwrite(out, sizeof out, 1, stdout);
    }
}
"""


@dataclass(frozen=True)
class Case:
    """One question; ``block`` None asks for the best block. ``carveout`` -1 is no preference."""

    limits: ProcessorLimits
    block: int | None
    registers: int
    shared: int = 0
    dynamic: int = 0
    per_thread: int = 0
    opt_in: bool = False
    allowed: int = 0
    carveout: int = -1
    barriers: int = 0
    virtuals: int = 0
    max_threads: int = MAX_BLOCK_THREADS

    def row(self) -> tuple[int, ...]:
        """Write it as the driver reads it."""
        of = self.limits
        device = (of.number, of.threads, of.registers, of.block_registers, of.shared_bytes, of.block_shared_bytes)
        kernel = (self.registers, self.shared, self.dynamic, self.per_thread, int(self.opt_in), self.allowed)
        rest = (self.carveout, self.barriers, self.virtuals, self.max_threads, self.block or 0)
        return (*device, of.reserved_shared_bytes, *kernel, *rest)


@dataclass(frozen=True)
class Answer:
    """What the header says of one block size; a limit that is not there is UNLIMITED."""

    status: int
    blocks: int
    warps: int
    slots: int
    registers: int
    shared: int
    barriers: int
    virtuals: int
    factors: int
    block_registers: int
    block_shared: int


@dataclass(frozen=True)
class Best:
    """What the header suggests: blocks for ten multiprocessors, and threads of a block."""

    status: int
    grid: int
    block: int


@dataclass(frozen=True)
class Header:
    """The header, compiled. That of CUDA 13.0 lacks 10.7 and has another number of barriers for 10.3."""

    program: Path
    knows_107: bool
    has_virtual: bool

    def ask(self, cases: Iterable[Case]) -> list[Answer]:
        """Answer many questions about single block sizes."""
        return [Answer(*row) for row in self._rows(cases)]

    def best(self, cases: Iterable[Case]) -> list[Best]:
        """Answer many questions about the best block."""
        return [Best(*row[:3]) for row in self._rows(cases)]

    def _rows(self, cases: Iterable[Case]) -> list[tuple[int, ...]]:
        asked = array.array("q")
        for case in cases:
            asked.extend(case.row())
        done = subprocess.run([self.program], input=asked.tobytes(), capture_output=True, check=True)
        said = array.array("q", done.stdout)
        width = len(astuple(Answer(*range(11))))
        return [tuple(said[i : i + width]) for i in range(0, len(said), width)]


def build_header(directories: Iterable[str], place: Path) -> Header | str:
    """Compile the first header of the directories; or say why that cannot be."""
    if shutil.which("g++") is None:
        return "g++ is not installed"
    found = next((d for d in map(Path, directories) if (d / "cuda_occupancy.h").is_file()), None)
    if found is None:
        return "there is no cuda_occupancy.h"
    text = (found / "cuda_occupancy.h").read_text()
    source, program = place / "occupancy.cpp", place / "occupancy"
    source.write_text(_DRIVER)
    has_virtual = "virtualResourceCount" in text
    defines = [
        f"-DMAX_BLOCK={MAX_BLOCK_THREADS}",
        f"-DWARP={WARP_SIZE}",
        f"-DDEFAULT_SHARED={SHARED_DEFAULT_BYTES}",
        f"-DUNLIMITED={UNLIMITED}",
        *(["-DHAS_VIRTUAL"] if has_virtual else []),
    ]
    command = ["g++", "-std=c++17", "-O1", "-w", *defines, "-I", str(found), str(source), "-o", str(program)]
    subprocess.run(command, check=True, capture_output=True)
    return Header(program, "328 * 1024" in text, has_virtual)
