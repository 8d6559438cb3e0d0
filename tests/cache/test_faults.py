"""A fault at every system call of a hit, a first put, a repair and an eviction: the result is right all the same.

``CUJIT_FAULTS=all`` tries every errno and SIGKILL at every call; else each gets one errno, in turn, and SIGKILL if it
changes something on disk.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ERRNOS = ["EIO", "ENOSPC", "EDQUOT", "ESTALE", "EACCES", "EMFILE", "ENOLCK"]
ALL = os.environ.get("CUJIT_FAULTS") == "all"


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize("scenario", ["first", "hit", "damaged", "full"])
def test_fault_at_any_system_call_keeps_result_and_cache_right(scenario: str) -> None:
    faults = ["SIGKILL", *ERRNOS] if ALL else ["SIGKILL", ",".join(ERRNOS)]
    script = Path(__file__).with_name("faults.py")
    path = os.pathsep.join([str(script.parents[1]), *sys.path])
    done = subprocess.run(
        [sys.executable, str(script), scenario, *faults],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=900,
    )
    if "strace: " in done.stderr and "ptrace" in done.stderr:
        pytest.skip("this machine forbids ptrace")
    assert done.returncode == 0, done.stderr
    outcomes = json.loads(done.stdout)
    assert outcomes["wrong"] == []
    assert outcomes["injected"] == outcomes["runs"] > 20
    assert {"openat", "read", "close"} <= set(outcomes["calls"])
    if scenario != "hit":
        assert {"link", "unlink", "fcntl", "write"} <= set(outcomes["calls"])
