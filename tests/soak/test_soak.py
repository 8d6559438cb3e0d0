"""Many threads that do everything at once, with signals and forks: for a moment, or as long as CUJIT_SOAK_S says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SECONDS = float(os.environ.get("CUJIT_SOAK_S", "1"))
THREADS = 32 if SECONDS > 10 else 6


@pytest.mark.skipif(not hasattr(os, "register_at_fork"), reason="needs fork")
def test_threads_signals_and_forks_give_right_results() -> None:
    script = Path(__file__).with_name("soak.py")
    done = subprocess.run(
        [sys.executable, str(script), str(SECONDS), str(THREADS)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["troubles"] == [], done.stderr
    assert outcome["counts"].keys() >= {"launch", "hit", "signals"}
