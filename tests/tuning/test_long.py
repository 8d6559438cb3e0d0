"""What takes a while: ranks of MPI, started by mpirun, and compilers that die."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import cujit
from cujit.errors import NotTunedError
from llvm_ir import HEAD, VERSION
from raising import raises

RANK = """
import functools, os, sys
from mpi4py import MPI
import numpy as np
import cujit
comm, (source, folder) = MPI.COMM_WORLD, sys.argv[1:]
os.environ["CUJIT_CACHE_DIR"] = f"{folder}/{comm.rank}"
device = cujit.cpu()
x, asked = device.zeros(64, np.float32), 0
def workload(kernel, v):
    global asked
    asked += 1
    return functools.partial(kernel[1, 32], x, v["WORK"])
def tune(**more):
    return cujit.tune(source, {"WORK": [100_000, 1]}, workload, becomes={"WORK": "launch"}, device=device, **more)
if comm.rank == 1:  # it alone has a record of its own
    tune(shape=1)
    asked = 0
first, second = tune(shape=1, group=comm), tune(shape=1, group=comm)
os.environ["CUJIT_TUNE"] = "never"
try:
    tune(shape=2, group=comm)
except cujit.errors.NotTunedError as e:
    is_of_rank_0 = e.searched == (f"{folder}/0",)
    said = comm.rank, first.values["WORK"], second.provenance.is_hit, asked > 0, is_of_rank_0
    os.write(1, f"{' '.join(map(str, said))}\\n".encode())  # at once: lines of ranks that print get into each other
"""


pytestmark = pytest.mark.skipif(not os.environ.get("CUJIT_FARM"), reason="it takes a while: make farm")

CRASH = f"{HEAD}define void @k(i32* %p) {{\n  ret void\n}}\n{VERSION}!nvvm.annotations = !{{!0}}\n!0 = !{{\n}}\n"
"""What kills libNVVM 13.5."""


def test_candidate_that_crashes_a_compiler_loses(tmp_path: Path) -> None:
    asked: dict[str, Any] = {
        "shape": 1,
        "becomes": {"A": "launch"},
        "executor": "processes:1",
        "cache": cujit.Cache(tmp_path),
    }
    with raises(NotTunedError, "not-tuned", "crash.ll", "libNVVM", "SIGSEGV"):
        cujit.tune(
            cujit.Source.nvvm(CRASH, name="crash.ll"), {"A": [1]}, lambda *_: pytest.fail("it runs"),
            device="cpu", **asked,
        )  # fmt: skip


def test_ranks_of_mpi_decide_once(tmp_path: Path) -> None:
    if shutil.which("mpirun") is None:
        pytest.skip("there is no mpirun")
    pytest.importorskip("mpi4py")
    kernel = 'extern "C" __global__ void busy(float *x, int work) { while (work--) x[threadIdx.x] += 1; }'
    options = ["--allow-run-as-root", "--oversubscribe", "-n", "3"]
    command = ["mpirun", *options, sys.executable, "-c", RANK, kernel, str(tmp_path)]
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=path)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"{rank} 1 True {rank == 0} True" for rank in range(3)], done.stderr
