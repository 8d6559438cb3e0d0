"""Threads that do everything at once for some minutes, while signals come and children are forked; print what came.

``python soak.py SECONDS [THREADS] [SEED]``. Each result is compared with what it has to be. A forked child does the
same work and has to end within a minute; one that does not prints the stacks of its threads and is ended.
"""

from __future__ import annotations

import collections
import contextlib
import faulthandler
import itertools
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import cujit
import cujit.reproducer
from cujit.artifact.writing import write_file

CODE = 'extern "C" __global__ void k(const float *x, float *y) {{ y[threadIdx.x] = x[threadIdx.x] * {0}.0f + {0}; }}'
CHILD_S = 60.0
SIGNALS = (signal.SIGUSR1, signal.SIGALRM, signal.SIGWINCH, signal.SIGCHLD, signal.SIGHUP)


class Soak:
    """What all threads share: the directory, the cache, the CPU device, counts and troubles."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        self.cache = cujit.Cache(folder / "cache")
        self.device = cujit.cpu(2)
        self.counts: collections.Counter[str] = collections.Counter()
        self.troubles: list[str] = []
        self.is_over = threading.Event()
        self.children: dict[int, float] = {}
        self.number = itertools.count()

    # -- the operations: each raises if what comes is wrong -----------------------------------------------------------

    def hit(self, chosen: random.Random) -> None:
        """Compile what the cache has, mostly."""
        n = chosen.randrange(8)
        assert "k" in cujit.compile(CODE.format(n), arch="compute_90", cache=self.cache).names

    def miss(self, chosen: random.Random) -> None:
        """Compile what nobody has compiled."""
        text = f"// {chosen.random()}\n{CODE.format(1)}"
        assert cujit.compile(text, arch=chosen.choice(["compute_90", "sm_90", "lto_90"]), cache=self.cache).data

    def launch(self, chosen: random.Random) -> None:
        """Load and launch; the numbers are right."""
        n = chosen.randrange(8)
        module = cujit.load(cujit.compile(CODE.format(n), arch="compute_90", cache=self.cache), self.device)
        x = self.device.array(np.arange(64, dtype=np.float32))
        y = self.device.zeros(64, np.float32)
        for _ in range(chosen.randrange(1, 8)):
            module["k"][1, 64](x, y)
        assert np.array_equal(y.numpy(), np.arange(64, dtype=np.float32) * n + n)
        if chosen.random() < 0.5:
            module.close()

    def write(self, chosen: random.Random) -> None:
        """Write a file that others write and read; it is whole."""
        path = self.folder / f"file{chosen.randrange(4)}"
        write_file(path, bytes([chosen.randrange(256)]) * 20_000)
        data = path.read_bytes()
        assert len(data) == 20_000
        assert len(set(data)) == 1

    def save(self, chosen: random.Random) -> None:
        """Save a launch and read it."""
        path = self.folder / f"{chosen.randrange(4)}.launch"
        image = cujit.compile(CODE.format(2), arch="compute_90", cache=self.cache)
        x = self.device.zeros(64, np.float32)
        cujit.load(image, self.device)["k"][1, 64].save(path, x, x)
        assert cujit.reproducer.open(path).kernel == "k"

    def inspect(self, chosen: random.Random) -> None:
        """Read an image."""
        image = cujit.compile(CODE.format(chosen.randrange(8)), arch="compute_90", cache=self.cache)
        assert [kernel.name for kernel in cujit.inspect(image).kernels] == ["k"]

    def fault(self, chosen: random.Random) -> None:
        """A source that does not compile is an error."""
        with contextlib.suppress(cujit.errors.CompileError):
            cujit.compile(f"__global__ void k() {{ nothing_{chosen.randrange(100)}; }}", arch="compute_90")
            raise AssertionError("it compiled")

    def fork(self, chosen: random.Random) -> None:
        """Fork a child that does some of that."""
        if len(self.children) > 8:
            return
        seed = chosen.randrange(1 << 30)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pid = os.fork()
        if pid == 0:
            status = 1
            try:
                child = random.Random(seed)
                for _ in range(4):
                    child.choice([self.hit, self.launch, self.write, self.inspect, self.miss])(child)
                status = 0
            except BaseException as e:
                os.write(2, f"child {os.getpid()}: {type(e).__name__}: {e}\n".encode())
            finally:
                os._exit(status)
        self.children[pid] = time.monotonic()

    # -- the run ------------------------------------------------------------------------------------------------------

    def work(self, name: int) -> None:
        """Do what chance says until it is over."""
        chosen = random.Random(f"{self.seed}/{name}")
        acts: list[Callable[[random.Random], None]] = [
            *[self.hit] * 6, *[self.launch] * 6, *[self.write] * 4, self.save, self.inspect, self.fault, self.miss,
            self.fork,
        ]  # fmt: skip
        while not self.is_over.is_set():
            act = chosen.choice(acts)
            try:
                act(chosen)
            except BaseException as e:
                self.troubles.append(f"{act.__name__}: {type(e).__name__}: {e}")
            self.counts[act.__name__] += 1

    def reap(self) -> None:
        """Collect children; one that does not end tells where it is."""
        for pid, begun in list(self.children.items()):
            try:
                ended, status = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                ended, status = pid, 0
            if ended:
                del self.children[pid]
                self.counts["children"] += 1
                if status:
                    self.troubles.append(f"child {pid} ended with {status}")
            elif time.monotonic() - begun > CHILD_S:
                self.troubles.append(f"child {pid} does not end")
                os.kill(pid, signal.SIGUSR2)  # faulthandler writes all stacks
                time.sleep(2)
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                del self.children[pid]

    def run(self, seconds: float, threads: int) -> dict[str, Any]:
        """Go on for some seconds, send signals meanwhile, and give what came."""
        chosen, end = random.Random(self.seed), time.monotonic() + seconds
        for number in SIGNALS:
            signal.signal(number, lambda *_: self.counts.update(["signals"]))
        workers = [threading.Thread(target=self.work, args=(n,), daemon=True) for n in range(threads)]
        for worker in workers:
            worker.start()
        while time.monotonic() < end:
            time.sleep(chosen.random() / 10)
            os.kill(os.getpid(), chosen.choice(SIGNALS))
            self.reap()
        self.is_over.set()
        for worker in workers:
            worker.join(CHILD_S)
            if worker.is_alive():
                self.troubles.append(f"{worker.name} does not end")
                faulthandler.dump_traceback(all_threads=True)
        while self.children:
            time.sleep(0.1)
            self.reap()
        return {"counts": dict(self.counts), "troubles": self.troubles}


def main(seconds: float, threads: int = 32, seed: int = 1) -> int:
    """Print the outcome; 1 if anything was wrong."""
    faulthandler.register(signal.SIGUSR2, all_threads=True)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as made:
        outcome = Soak(Path(made), seed).run(seconds, threads)
    print(json.dumps(outcome), flush=True)
    os._exit(bool(outcome["troubles"]))  # a thread that does not end would hold the process


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), *map(int, sys.argv[2:])))
