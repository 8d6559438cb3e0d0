"""A process that is forked while other threads compile: the child compiles and launches as if it were alone."""

from __future__ import annotations

import os

import pytest

from processes import printed

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")

# Each of two threads compiles one block shape after the other of kernels that it shares with the children.
SCRIPT = """
import os, sys, threading, time
import numpy as np
import cujit

os.environ["CUJIT_CACHE"] = "0"
TEXT = '''.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p) {
    .reg .b64 a, o; .reg .b32 r, t; .shared .u32 kept[1024];
    ld.param.u64 a, [p]; mov.u32 t, %tid.x; mul.wide.u32 o, t, 4; add.s64 a, a, o;
    st.shared.u32 [kept], t; bar.sync 0; ld.shared.u32 r, [kept];
    add.u32 r, r, NUMBER; mul.lo.u32 r, t, r; mad.lo.u32 r, t, r, 7; st.global.u32 [a], t; ret;
}'''
device = cujit.cpu(2)
out = device.zeros(1024, np.uint32)
shared = cujit.load(TEXT.replace("NUMBER", "0"), device)["k"]
shared[1, 32](out)
stop = threading.Event()

def busy(which):
    module, number = shared, 0
    while not stop.is_set():
        number += 1
        if which:
            module = cujit.load(TEXT.replace("NUMBER", str(number)), device)["k"]
        module[1, 33 + number % 900](out)

threads = [threading.Thread(target=busy, args=(which,)) for which in (0, 1)]
for thread in threads:
    thread.start()
try:
    for turn in range(int(sys.argv[1])):
        time.sleep(0.02)
        child = os.fork()
        if child == 0:
            own = device.zeros(1024, np.uint32)
            shared[1, 1024 - turn](own)
            cujit.load(TEXT.replace("NUMBER", str(-turn)), device)["k"][1, 40](own)
            os._exit(7 if (own.numpy()[:900] == np.arange(900)).all() else 1)
        end = time.monotonic() + float(sys.argv[2])
        while True:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > end:
                os.kill(child, 9)
                sys.exit(f"fork {turn} hangs")
            time.sleep(0.002)
        if os.waitstatus_to_exitcode(status) != 7:
            sys.exit(f"fork {turn} ended with {status}")
finally:
    stop.set()
    for thread in threads:
        thread.join()
"""


# A thread allocates under checks in kernels all the time, and so takes the lock of what the checks know of the heap.
HEAP = """
import os, signal, sys, threading
import cujit

TEXT = '#include <cstdlib>\\nextern "C" __global__ void k(int n) { for (int i = 0; i < n; i++) free(malloc(8)); }'
kernel = cujit.jit(TEXT, device=cujit.cpu(1, check="memory"))["k"]
kernel[1, 32](1)
stop = threading.Event()

def busy():
    while not stop.is_set():
        kernel[1, 32](200)

thread = threading.Thread(target=busy)
thread.start()
try:
    for turn in range(int(sys.argv[1])):
        child = os.fork()
        if child == 0:
            signal.alarm(int(sys.argv[2]))
            kernel[1, 32](1)
            os._exit(7)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code != 7:
            sys.exit(f"fork {turn} ended with {code}")
finally:
    stop.set()
    thread.join()
"""


@pytest.mark.parametrize(("script", "forks", "most_s"), [(SCRIPT, 6, 60), (HEAP, 10, 30)], ids=["compile", "allocate"])
def test_child_forked_from_busy_threads_compiles_and_launches(script: str, forks: int, most_s: int) -> None:
    warnings = ("-W", "ignore::DeprecationWarning")  # of fork in a process with threads, from 3.12 on
    printed(script, forks, most_s, options=warnings, timeout_s=300)
