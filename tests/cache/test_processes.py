"""Many processes and one cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

CAP_BYTES = 8 << 20


def crowd(what: str, root: Path, count: int) -> Any:
    script = Path(__file__).with_name("crowd.py")
    path = os.pathsep.join([str(script.parents[1]), *sys.path])
    command = [sys.executable, "-W", "error", str(script), what, str(root), str(count)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_256_processes_compile_one_cold_key_once(tmp_path: Path) -> None:
    outcome = crowd("stampede", tmp_path / "cache", 256)
    assert outcome["makes"] == 1
    assert outcome["failed"] == 0
    assert outcome["took_s"] < 60  # one after the other, they would need 77


def test_64_writers_stay_below_8_times_the_cap(tmp_path: Path) -> None:
    outcome = crowd("writers", tmp_path / "cache", 64)
    assert outcome["failed"] == 0
    assert outcome["peak"] <= 8 * CAP_BYTES
    assert 0 < outcome["final"] <= CAP_BYTES


def test_killed_processes_leave_no_wrong_entry_or_files(tmp_path: Path) -> None:
    outcome = crowd("killed", tmp_path / "cache", 60)
    assert outcome["wrong"] == 0
    assert outcome["damaged"] == 0
    assert outcome["left"] == 0
