"""Many processes and one cache: ``python crowd.py WHAT ROOT COUNT`` prints what came of it as JSON."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from cache.samples import artifact_of, key_of
from cujit.artifact import Artifact
from cujit.cache.cache import Cache
from cujit.cache.provenance import Outcome

CAP_BYTES = 8 << 20
ENTRY_BYTES = 256 << 10
EACH = 12


def crowd(count: int, work: Callable[[int], None]) -> tuple[list[int], Callable[[], bool]]:
    """Fork processes that all begin at once; also gives a call that tells whether some are still at it."""
    go, tell = os.pipe()
    pids = []
    for n in range(count):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.close(tell)
                os.read(go, 1)
                work(n)
                status = 0
            finally:
                os._exit(status)
        pids.append(pid)
    os.close(go)
    os.close(tell)
    statuses: list[int] = []

    def going() -> bool:
        while len(statuses) < count:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return True
            statuses.append(os.waitstatus_to_exitcode(status))
        return False

    return statuses, going


def stampede(root: Path, count: int) -> dict[str, object]:
    """All want one cold key, whose making takes 0.3 s."""
    made = root.with_name("made")

    def make() -> Artifact:
        with made.open("ab", buffering=0) as file:
            file.write(b"x")
        time.sleep(0.3)
        return artifact_of(0, 65536)

    def work(_: int) -> None:
        artifact, _provenance = Cache(root).get_or_make(key_of(0), make)
        assert artifact == artifact_of(0, 65536)

    begin = time.monotonic()
    statuses, going = crowd(count, work)
    while going():
        time.sleep(0.01)
    return {"makes": made.stat().st_size, "failed": sum(map(bool, statuses)), "took_s": time.monotonic() - begin}


def writers(root: Path, count: int) -> dict[str, object]:
    """All write entries of their own, more than the cap lets stay."""

    def work(n: int) -> None:
        cache = Cache(root, cap_bytes=CAP_BYTES, memory_bytes=0)
        for i in range(EACH):
            wanted = artifact_of(n * EACH + i, ENTRY_BYTES)
            assert cache.get_or_make(key_of(n * EACH + i), lambda wanted=wanted: wanted)[0] == wanted  # type: ignore[misc]

    statuses, going = crowd(count, work)
    peak = 0
    while going():
        peak = max(peak, size_of(root))
        time.sleep(0.02)
    return {"peak": peak, "final": size_of(root), "failed": sum(map(bool, statuses))}


def size_of(root: Path) -> int:
    """The bytes of all files under a directory that changes meanwhile."""
    total = 0
    for directory, _, names in os.walk(root):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(os.path.join(directory, name)).st_size
    return total


def killed(root: Path, count: int) -> dict[str, object]:
    """Writers and readers are killed at any time; what is there afterwards is right."""

    def work(n: int) -> None:
        while True:
            cache = Cache(root, cap_bytes=1 << 20, memory_bytes=0)
            for i in range(20):
                wanted = artifact_of(i, 65536)
                assert cache.get_or_make(key_of(i), lambda wanted=wanted: wanted)[0] == wanted  # type: ignore[misc]
                if (i + n) % 3 == 0 and cache.store is not None:
                    cache.store.delete(key_of(i).digest)

    wrong = 0
    for n in range(count):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                work(n)
            finally:
                os._exit(status)
        time.sleep(0.005 + 0.0037 * (n % 11))
        os.kill(pid, signal.SIGKILL)
        wrong += os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != -signal.SIGKILL
    cache = Cache(root, memory_bytes=0)
    outcomes = []
    for i in range(20):
        artifact, provenance = cache.get_or_make(key_of(i), lambda i=i: artifact_of(i, 65536))  # type: ignore[misc]
        assert artifact == artifact_of(i, 65536)
        outcomes.append(provenance.outcome)
    left = len(list((root / "tmp").iterdir()))
    return {"wrong": wrong, "damaged": cache.counters.damaged, "hits": outcomes.count(Outcome.DISK), "left": left}


if __name__ == "__main__":
    what = {"stampede": stampede, "writers": writers, "killed": killed}[sys.argv[1]]
    print(json.dumps(what(Path(sys.argv[2]), int(sys.argv[3]))))
