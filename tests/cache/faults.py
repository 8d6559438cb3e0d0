"""Run one scenario of the cache once per system call in it, with a fault there, and print what came of it as JSON.

``python faults.py SCENARIO FAULTS…`` where FAULTS are ``SIGKILL`` or names of errnos; of several with commas between
them, each call gets the next. Each run is a forked child that strace is attached to; afterwards the cache that it
leaves behind is used again, without faults.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cache.samples import artifact_of, key_of
from cujit.cache import filesystem
from cujit.cache.cache import Cache
from cujit.cache.provenance import Outcome
from cujit.errors import CacheWarning

CAP_BYTES = 8000
WANTED = 0
# Calls of the interpreter itself; what they do is not the cache's.
NOT_OURS = frozenset(
    {
        *("brk", "exit_group", "futex", "kill", "madvise", "mmap", "mprotect", "mremap", "munmap", "restart_syscall"),
        *("geteuid", "getpid", "gettid", "getuid", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sched_yield"),
    }
)
# Calls that change nothing on disk: who is killed at one leaves what he leaves who is killed at the next that does.
CHANGES_NOTHING = frozenset({"getdents64", "getrandom", "ioctl", "lseek", "newfstatat", "pread64", "read"})
DONE = "/cujit-is-done"
CALL = re.compile(r"(\w+)\((.*)")


@dataclass
class Outcomes:
    """What happened over all runs."""

    runs: int = 0
    injected: int = 0
    calls: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


def prepare(scenario: str, root: Path) -> None:
    """Leave in ``root`` what the scenario begins with."""
    if scenario == "first":
        return
    cache = Cache(root, cap_bytes=CAP_BYTES)
    for n in range(1, 5):
        cache.get_or_make(key_of(n), lambda n=n: artifact_of(n))  # type: ignore[misc]
    path = entry(root, WANTED)
    if scenario in ("hit", "damaged"):
        cache.get_or_make(key_of(WANTED), lambda: artifact_of(WANTED))
        os.utime(path, (1, 1))  # so old that the hit marks it as used
    if scenario == "damaged":
        path.write_bytes(path.read_bytes()[:-1])
    if scenario == "full":
        (root / "usage").write_bytes((CAP_BYTES - 10).to_bytes(8, "little") + (root / "usage").read_bytes()[8:])


def entry(root: Path, n: int) -> Path:
    """The file of the n-th entry."""
    digest = key_of(n).digest
    return root / "e" / digest[:2] / digest[2:]


def use(root: Path) -> Outcome:
    """Do what every scenario does, and check that the result is right."""
    cache = Cache(root, cap_bytes=CAP_BYTES)
    artifact, provenance = cache.get_or_make(key_of(WANTED), lambda: artifact_of(WANTED))
    assert artifact == artifact_of(WANTED)
    return provenance.outcome


def child(root: Path) -> None:
    """Be traced: wait for the tracer, use the cache, and say by the exit status how it went."""
    status = 2
    with contextlib.suppress(Exception):
        ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1), 0, 0, 0)  # PR_SET_PTRACER: a sibling may trace us
    try:
        filesystem._is_remote.cache_clear()  # each child looks at its file system for the first time
        os.kill(os.getpid(), signal.SIGSTOP)  # until strace is there; so no call is cut in two by its arrival
        use(root)
        status = 0
    except AssertionError:
        status = 1
    except BaseException as e:
        os.write(2, f"{type(e).__name__}: {e}\n".encode())
    finally:
        os.access(DONE, os.F_OK)
        os._exit(status)


def traced(root: Path, log: Path, *options: str) -> int:
    """Run a child under strace and return its exit status, negative for a signal."""
    pid = os.fork()
    if pid == 0:
        child(root)
    os.waitpid(pid, os.WUNTRACED)
    strace = subprocess.Popen(["strace", "-p", str(pid), "-o", str(log), *options], stderr=subprocess.PIPE)
    assert strace.stderr is not None
    first = strace.stderr.readline()
    os.kill(pid, signal.SIGCONT)
    _, status = os.waitpid(pid, 0)
    strace.wait()
    strace.stderr.close()
    if b"attached" not in first:
        raise SystemExit(f"strace: {first.decode()}")
    return os.waitstatus_to_exitcode(status)


def calls_of(log: Path) -> Iterator[tuple[str, int]]:
    """List the calls of a run as (name, how many of that name before it, from 1), up to its end."""
    count: collections.Counter[str] = collections.Counter()
    for line in log.read_text(errors="replace").splitlines():
        match = CALL.match(line)
        if match is None:
            continue
        if DONE in match[2]:
            return
        count[match[1]] += 1
        if match[1] not in NOT_OURS:
            yield match[1], count[match[1]]


def after(root: Path) -> str:
    """Use the cache that a run left behind, twice, and say what is wrong with it."""
    use(root)
    again = use(root)
    if again is not Outcome.DISK:
        return f"the second use after the fault was {again.value}, not a hit"
    return ""


def sweep(scenario: str, faults: list[str], scratch: Path) -> Outcomes:
    """Run the scenario with each fault at each call."""
    template, root, log = scratch / "template", scratch / "root", scratch / "log"
    use(scratch / "warm")  # what a process asks once is asked
    prepare(scenario, template)
    outcomes = Outcomes()

    def run(*options: str) -> int:
        shutil.rmtree(root, ignore_errors=True)
        if template.exists():
            shutil.copytree(template, root)
            for path in template.rglob("*"):
                os.utime(root / path.relative_to(template), (path.stat().st_mtime, path.stat().st_mtime))
        return traced(root, log, *options)

    assert run() == 0
    shutil.rmtree(root, ignore_errors=True)
    assert run() == 0
    calls = list(calls_of(log))
    outcomes.calls = sorted({name for name, _ in calls})
    for place, (name, nth) in enumerate(calls):
        for several in faults:
            fault = several.split(",")[place % (1 + several.count(","))]
            if fault == "SIGKILL" and name in CHANGES_NOTHING and len(faults) == 2:
                continue
            inject = "signal=SIGKILL" if fault == "SIGKILL" else f"error={fault}"
            status = run("-e", f"trace={name}", "-e", f"inject={name}:{inject}:when={nth}")
            outcomes.runs += 1
            outcomes.injected += "INJECTED" in log.read_text(errors="replace") or status == -9
            fine = (0, -9) if fault == "SIGKILL" else (0,)
            trouble = "" if status in fine else f"exit status {status}"
            try:
                trouble = trouble or after(root)
            except Exception as e:
                trouble = f"{type(e).__name__} afterwards: {e}"
            if trouble:
                outcomes.wrong.append(f"{scenario}: {fault} at {name} number {nth}: {trouble}")
    return outcomes


def main() -> None:
    """Print the outcomes of the scenario and the faults named by the arguments."""
    warnings.simplefilter("ignore", CacheWarning)
    with tempfile.TemporaryDirectory() as scratch:
        print(json.dumps(asdict(sweep(sys.argv[1], sys.argv[2:], Path(scratch)))))


if __name__ == "__main__":
    main()
