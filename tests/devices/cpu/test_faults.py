"""Kernels that cannot go on: an exception with words, and a process that lives on."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from cujit.devices.cpu.native.library import address_of, compile_kernel
from cujit.devices.cpu.native.structures import FaultKind
from cujit.devices.cpu.run.grid import Pool, settle
from cujit.devices.cpu.run.launch import PLACE, HostBlock, Launch, field_offset
from cujit.devices.cpu.run.site import FaultSite
from cujit.devices.device import Device
from cujit.devices.shapes import Dim3
from cujit.errors import CujitError, KernelFaultError
from cujit.loading import jit, load
from raising import raises

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="faults are caught on Linux")

# A kernel as machine code: it takes blocks from the counter, and does %body with the number of each.
_KERNEL = f"""
declare void @cujit_fault(ptr, i32, i64, i32, i32, i64)
declare i64 @pthread_self()
declare i32 @usleep(i32)
define void @kernel(ptr %launch, ptr %shared, ptr %local) {{
entry:
  %next.at = getelementptr i8, ptr %launch, i64 {field_offset("next")}
  %blocks.at = getelementptr i8, ptr %launch, i64 {field_offset("blocks")}
  %parameters.at = getelementptr i8, ptr %launch, i64 {field_offset("parameters")}
  %parameter = load i64, ptr %parameters.at
  %kind.at = getelementptr i8, ptr %launch, i64 {field_offset("fault_kind")}
  %blocks = load i64, ptr %blocks.at
  %place = getelementptr i8, ptr %shared, i64 -{PLACE}
  br label %fetch
fetch:
  %block = atomicrmw add ptr %next.at, i64 1 monotonic
  store volatile i64 %block, ptr %place
  %some = icmp ult i64 %block, %blocks
  br i1 %some, label %body, label %return
body:
%BODY
  br label %fetch
return:
  ret void
}}
"""

WILD = "  %wild = inttoptr i64 %parameter to ptr\n  store volatile i32 1, ptr %wild"
GOOD = "  %good = inttoptr i64 %parameter to ptr\n  atomicrmw add ptr %good, i64 1 monotonic"

# The thread that launched waits for another one to fail.
WILD_IN_HELPER = """
  %self = call i64 @pthread_self()
  %mine = icmp eq i64 %self, %parameter
  br i1 %mine, label %wait, label %wild
wait:
  %kind = load volatile i32, ptr %kind.at
  %none = icmp eq i32 %kind, 0
  call i32 @usleep(i32 100)
  br i1 %none, label %wait, label %fetch
wild:
  store volatile i32 1, ptr inttoptr (i64 64 to ptr)
"""

_DEEP = """
define i64 @deep(i64 %n) noinline optnone {
  %room = alloca [1024 x i8]
  store volatile i8 1, ptr %room
  %more = add i64 %n, 1
  %sum = call i64 @deep(i64 %more)
  %back = load volatile i8, ptr %room
  %wide = zext i8 %back to i64
  %all = add i64 %sum, %wide
  ret i64 %all
}
"""

Runner = Callable[..., Launch]


@pytest.fixture(scope="module")
def pool() -> Pool:
    return Pool(2)


@pytest.fixture(scope="module")
def run(pool: Pool) -> Runner:
    """Run a kernel made of IR: ``run(body, parameter, blocks=1, helpers=0)``."""
    compiled = {}
    lock = threading.Lock()  # what is compiled twice would be released while somebody runs it

    def call(body: str, parameter: int = 0, blocks: int = 1, helpers: int = 0, more: str = "") -> Launch:
        text = _KERNEL.replace("%BODY", body) + more
        with lock:
            if text not in compiled:
                compiled[text] = compile_kernel(text, "kernel")
        launch = Launch(blocks=blocks, chunk=1, parameters=parameter, grid_x=4, grid_y=3, grid_z=9)
        site = FaultSite("k", Dim3(8, 4, 2), "{0}th line".format, "k.cu:{0}".format)
        pool.run(compiled[text].address, ctypes.addressof(launch), helpers, 1 << 16, 0, site)
        return launch

    return call


def counted(run: Runner, blocks: int = 7) -> int:
    """Run a kernel that counts its blocks."""
    count = ctypes.c_uint64()
    run(GOOD, ctypes.addressof(count), blocks)
    return count.value


# -- wild addresses ---------------------------------------------------------------------------------------


def test_invalid_address_names_kernel_block_and_address(run: Runner) -> None:
    with pytest.raises(KernelFaultError) as caught:
        run(WILD, 0x123450000010, blocks=3)
    error = caught.value
    assert (error.kind, error.kernel, error.block, error.thread) == ("illegal_address", "k", (0, 0, 0), None)
    assert error.address == 0x123450000010
    assert "kernel k, block (0, 0, 0): an access to address 0x123450000010, where there is no memory" in str(error)
    assert 'cujit.cpu(check="memory")' in str(error)
    assert counted(run) == 7


def test_null_pointer_is_called_one(run: Runner) -> None:
    with raises(KernelFaultError, "fault-illegal-address", "0x40"):
        run(WILD, 0x40)


def test_noncanonical_address_is_an_ordinary_fault(run: Runner) -> None:
    with raises(KernelFaultError, "fault-illegal-address", 'cujit.cpu(check="memory")'):
        run(WILD, 0x8000_0000_0000_0010)


def test_nearest_allocation_is_named() -> None:
    block = HostBlock(1000)
    launch = Launch(fault_kind=FaultKind.ILLEGAL_ADDRESS, fault_address=block.address + 1004, grid_x=1, grid_y=1)
    with raises(KernelFaultError, "fault-illegal-address", "4", "1,000", f"{block.address:#x}"):
        settle(launch)
    launch.fault_address = block.address - 1
    with raises(KernelFaultError, "fault-illegal-address", 'cujit.cpu(check="memory")'):
        settle(launch)


def test_read_only_memory_is_distinguished(run: Runner) -> None:
    import mmap

    page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    ctypes.CDLL(None).mprotect(ctypes.c_void_p(address), ctypes.c_size_t(mmap.PAGESIZE), mmap.PROT_READ)
    with raises(KernelFaultError, "fault-illegal-address", 'cujit.cpu(check="memory")'):
        run(WILD, address)


def test_helper_thread_may_fail(run: Runner) -> None:
    for _ in range(20):
        with raises(KernelFaultError, "fault-illegal-address", "0x40"):
            run(WILD_IN_HELPER, threading.get_ident(), blocks=1000, helpers=2)
    assert counted(run) == 7


def test_blocks_after_a_fault_do_not_start(run: Runner) -> None:
    fails = (
        "  %fifth = icmp eq i64 %block, 5\n  br i1 %fifth, label %fail, label %count\nfail:\n"
        f"  call void @cujit_fault(ptr %launch, i32 {int(FaultKind.TRAP)}, i64 5, i32 0, i32 0, i64 0)\n"
        "  unreachable\ncount:\n  call i32 @usleep(i32 500)\n"
    )
    count = ctypes.c_uint64()
    with raises(KernelFaultError, "fault-trap", "1", "0"):
        run(fails + GOOD, ctypes.addressof(count), blocks=1000, helpers=2)
    assert 4 <= count.value < 100


def test_concurrent_launches_fail_and_succeed_independently(run: Runner) -> None:
    def work(k: int) -> bool:
        if k % 2:
            return counted(run, 20) == 20
        with pytest.raises(KernelFaultError) as caught:
            run(WILD, 0x1000 * k + 64, blocks=3, helpers=k % 3)
        return caught.value.address == 0x1000 * k + 64

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(work, range(200)))


def test_1000_faults_leak_no_memory(run: Runner) -> None:
    def resident() -> int:
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def fail(times: int) -> None:
        for _ in range(times):
            with pytest.raises(KernelFaultError):
                run(WILD, 64)

    fail(100)
    before = resident()
    fail(1000)
    assert resident() - before < 8 << 20  # the blocks of these launches had 64 MiB of shared memory


def test_processor_exception_ends_only_the_launch(run: Runner) -> None:
    with raises(KernelFaultError, "fault-illegal-instruction"):
        run("  call void @llvm.trap()\n  unreachable\nnever:", more="declare void @llvm.trap()")
    with raises(KernelFaultError, "fault-arithmetic"):
        run('  %q = call i64 asm sideeffect "xorl %ecx, %ecx; xorl %edx, %edx; divl %ecx", "={ax},~{ecx},~{edx}"()')


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forked_child_survives_a_fault(run: Runner) -> None:
    with pytest.raises(KernelFaultError):
        run(WILD, 64)
    child = os.fork()
    if child == 0:
        try:
            run(WILD, 64)
        except KernelFaultError:
            os._exit(0 if counted(run) == 7 else 2)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert counted(run) == 7


# -- other handlers of signals ----------------------------------------------------------------------------

_SETUP = f"""
import ctypes, faulthandler, os, signal, sys, threading
from cujit.errors import KernelFaultError
from cujit.devices.cpu.run.launch import Launch
from cujit.devices.cpu.native.library import compile_kernel
from cujit.devices.cpu.run.grid import Pool
code = compile_kernel('''{_KERNEL.replace("%BODY", WILD)}''', "kernel")
pool = Pool(1)
def fail(address=64):
    launch = Launch(blocks=2, chunk=1, parameters=address, grid_x=2, grid_y=1)
    try:
        pool.run(code.address, ctypes.addressof(launch), 0, 64, 0)
    except KernelFaultError as e:
        return e
    raise AssertionError("no fault")
"""


def process(script: str, faulthandler_first: bool = False, stack_limit: str = "") -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, in which a kernel may be run to its fault; the limit is ``ulimit``'s."""
    options = ["-X", "faulthandler"] if faulthandler_first else []
    text = _SETUP + textwrap.dedent(script)
    command = [sys.executable, *options, "-c", text]
    if stack_limit:
        command = ["sh", "-c", f'ulimit -S -s {stack_limit} && exec "$@"', "sh", *command]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(
    ("script", "dumps"),
    [
        pytest.param("fail(); ctypes.string_at(0)", 0, id="alone"),
        pytest.param("fail(); ctypes.string_at(0)", 1, id="faulthandler first"),
        pytest.param("fail(); faulthandler.enable(); fail(); ctypes.string_at(0)", 1, id="faulthandler later"),
        pytest.param("fail(); signal.raise_signal(signal.SIGSEGV)", 1, id="raised"),
        pytest.param("fail(); faulthandler.enable(); fail(); os.kill(os.getpid(), signal.SIGSEGV)", 1, id="sent"),
        pytest.param("fail(); t = threading.Thread(target=ctypes.string_at, args=(0,)); t.start()", 0, id="thread"),
    ],
)
def test_crash_elsewhere_is_a_crash_as_before(script: str, dumps: int) -> None:
    done = process(script, faulthandler_first=dumps > 0 and "enable" not in script)
    assert done.returncode == -signal.SIGSEGV, done.stderr
    assert done.stderr.count("Fatal Python error: Segmentation fault") == dumps, done.stderr


@pytest.mark.parametrize("limit", ["8192", "unlimited"])
def test_stack_overflow_is_reported_as_such(limit: str) -> None:
    # A limit holds for the main stack of whoever is started under it.
    script = f"""
        text = {(_KERNEL.replace("%BODY", "  %sum = call i64 @deep(i64 0)") + _DEEP)!r}
        code = compile_kernel(text, "kernel")
        for _ in range(2):
            error = fail()
            assert error.kind == "stack_overflow" and "the stack overflowed" in str(error), error
    """
    done = process(script, stack_limit=limit)
    assert (done.returncode, done.stderr) == (0, "")


def test_launch_by_python_puts_the_guard_in_front_again() -> None:
    done = process("fail(); faulthandler.enable(); assert fail().address == 64")
    assert (done.returncode, done.stderr) == (0, "")


def test_later_signal_handler_does_not_hide_a_kernel_fault() -> None:
    # Machine code launches without looking who is in front: here as there, the pool is called directly.
    done = process("""
        fail()
        faulthandler.enable()
        for _ in range(3):
            launch = Launch(blocks=1, chunk=1, parameters=64, grid_x=1, grid_y=1)
            pool._run(pool.address, code.address, ctypes.addressof(launch), 0, 64, 0)
            assert launch.fault_kind == 1, launch.fault_kind
        assert fail().address == 64
        print("alive")
    """)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr


def test_pythons_signal_handlers_get_their_own_signals() -> None:
    done = process("""
        signal.signal(signal.SIGSEGV, lambda *_: print("theirs", flush=True))
        fail()
        os.kill(os.getpid(), signal.SIGSEGV)
        fail()
        print("alive")
    """)
    assert (done.returncode, done.stdout.split()) == (0, ["theirs", "alive"]), done.stderr


# -- what machine code says -------------------------------------------------------------------------------


def test_fault_names_block_thread_and_lines(run: Runner) -> None:
    body = f"  call void @cujit_fault(ptr %launch, i32 {int(FaultKind.TRAP)}, i64 17, i32 45, i32 12, i64 0)\n"
    with pytest.raises(KernelFaultError) as caught:
        run(body)
    error = caught.value
    assert (error.kind, error.block, error.thread, error.line) == ("trap", (1, 1, 1), (5, 1, 1), 12)
    assert str(error).splitlines() == [
        "kernel k, block (1, 1, 1), thread (5, 1, 1): the kernel executed trap",
        "  at PTX line 12: 12th line",
        "  from k.cu:12",
        "  hint: check the condition that the code tests before the trap",
    ]


@pytest.mark.parametrize("kind", [k for k in FaultKind if k], ids=lambda k: k.name)
def test_every_fault_kind_has_a_message(kind: FaultKind) -> None:
    launch = Launch(fault_kind=kind, fault_address=1 << 40, grid_x=1, grid_y=1)
    with pytest.raises(KernelFaultError) as caught:
        settle(launch, FaultSite("k", Dim3(1)))
    assert caught.value.kind == kind.name.lower()
    assert kind is FaultKind.CHECK or "of kind" not in str(caught.value)


def test_fault_message_uses_the_most_specific_description() -> None:
    launch = Launch(fault_kind=int(FaultKind.CHECK) + 3, grid_x=1, grid_y=1)
    with raises(KernelFaultError, "fault-sync", "race"):
        settle(launch, FaultSite("k", Dim3(1), explain=lambda found: f"a race ({found.fault_kind})"))


def test_successful_launch_raises_nothing() -> None:
    settle(Launch(), FaultSite("k", Dim3(1)))


# -- the device heap --------------------------------------------------------------------------------------

_LANES = ctypes.c_uint64 * 32
_MALLOC = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p)


def allocate(sizes: list[int]) -> list[int]:
    asked, results = _LANES(*sizes), _LANES(*[7] * 32)
    lanes = (1 << len(sizes)) - 1
    _MALLOC(address_of("cujit_malloc"))(lanes, ctypes.addressof(asked), ctypes.addressof(results))
    assert all(r == 7 for r in results[len(sizes) :])
    return results[: len(sizes)]


_FREE = """
  call void @cujit_free(ptr %launch, i32 2, ptr %shared, i64 %block, i32 32, i32 9)
"""


def free(run: Runner, address: int) -> None:
    at = "  %two = getelementptr i64, ptr %shared, i64 1\n  store i64 %parameter, ptr %two\n"
    run(at + _FREE, address, more="declare void @cujit_free(ptr, i32, ptr, i64, i32, i32)")


def test_heap_returns_aligned_memory_or_null(run: Runner) -> None:
    blocks = allocate([1, 16, 1000, 0, 1 << 46, (1 << 64) - 1])
    assert all(b and b % 16 == 0 for b in blocks[:3])
    assert blocks[3:] == [0, 0, 0]
    for b, size in zip(blocks[:3], [1, 16, 1000], strict=True):
        ctypes.memset(b, 1, size)
        free(run, b)
    free(run, 0)


def test_wrong_free_is_a_fault_and_not_the_end(run: Runner) -> None:
    (block,) = allocate([100])
    free(run, block)
    own = np.zeros(64, np.uint64)
    middle = (own.ctypes.data + 64) // 16 * 16
    for wrong in (block, middle, middle + 1):
        with raises(KernelFaultError, "fault-bad-free", f"{wrong:#x}") as caught:
            free(run, wrong)
        assert (caught.value.kind, caught.value.thread, caught.value.line) == ("bad_free", (1, 0, 1), 9)
    with raises(KernelFaultError, "fault-illegal-address", "0x38"):
        free(run, 0x40)


# -- native code ------------------------------------------------------------------------------------------


def test_missing_native_code_is_an_error_without_a_crash() -> None:
    with raises(CujitError, "internal", "cujit_nothing"):
        compile_kernel("declare void @cujit_nothing()\ndefine void @k() { call void @cujit_nothing() ret void }", "k")


# -- kernels of CUDA C++ and PTX --------------------------------------------------------------------------

_PTX = ".version 8.0\n.target sm_80\n.address_size 64\n"


@pytest.mark.parametrize("opcode", ["trap", "brkpt"])
@pytest.mark.verbatim
def test_first_lane_at_a_trap_is_named(cpu: Device, opcode: str) -> None:
    ptx = (
        _PTX
        + f""".visible .entry k(.param .u32 n) {{ .reg .pred p; .reg .b32 %r<4>;
ld.param.u32 %r1, [n]; mov.u32 %r2, %tid.x; setp.ge.u32 p, %r2, %r1;
@p {opcode};
ret; }}"""
    )
    kernel = load(ptx.encode(), cpu)["k"]
    kernel[2, 64](64)
    with raises(KernelFaultError, {"trap": "fault-trap", "brkpt": "fault-breakpoint"}[opcode], opcode) as caught:
        kernel[2, 64](37)
    error = caught.value
    assert (error.block, error.thread, error.line, error.kernel) == ((0, 0, 0), (37, 0, 0), 6, "k")


def test_wild_pointer_raises_and_the_next_launch_succeeds(cpu: Device) -> None:
    text = 'extern "C" __global__ void k(int *p, long long by) { p[by + threadIdx.x] = threadIdx.x; }'
    kernel, out = jit(text, device=cpu)["k"], cpu.array(np.zeros(64, np.int32))
    for _ in range(3):
        with raises(KernelFaultError, "fault-illegal-address", "k"):
            kernel[4, 64](out, -(1 << 36))
        kernel[1, 64](out, 0)
        assert out.numpy().tolist() == list(range(64))


def test_warps_with_their_own_stacks_fail_and_overflow_alike(cpu: Device) -> None:
    text = """__device__ __noinline__ int deep(int n, int *p) {
        volatile int own[40]; own[n & 31] = n;
        return *p == 77 ? n : deep(n + 1, p) + own[n & 31];
    }
    extern "C" __global__ void k(int *p, long long by, int way) {
        __shared__ int s[64];
        s[threadIdx.x] = threadIdx.x; __syncthreads();
        if (way == 1) p[by + s[63 - threadIdx.x]] = 1;
        if (way == 2 && s[threadIdx.x] == 40) __trap();
        if (way == 3) p[0] = deep(0, p + 1);
        __syncthreads(); p[s[63 - threadIdx.x]] = threadIdx.x;
    }"""
    kernel, out = jit(text, names=["k"], device=cpu)["k"], cpu.array(np.zeros(64, np.int32))
    for way, kind in ((1, "illegal_address"), (2, "trap"), (3, "stack_overflow")) * 2:
        with pytest.raises(KernelFaultError) as caught:
            kernel[2, 64](out, -(1 << 36), way)
        assert (caught.value.kind, caught.value.thread) == (kind, (40, 0, 0) if way == 2 else None)
        kernel[2, 64](out, 0, 0)
        assert out.numpy().tolist() == list(range(63, -1, -1))


def test_assertion_names_file_line_function_block_and_thread(cpu: Device) -> None:
    text = """#include <cassert>
    __device__ void check(int i, int n) { assert(i < n && "too far"); }
    extern "C" __global__ void k(int n) { check(blockIdx.y * blockDim.x + threadIdx.x, n); }"""
    kernel = jit(text, names=["k"], device=cpu)["k"]
    kernel[(1, 2), 8](16)
    with pytest.raises(KernelFaultError) as caught:
        kernel[(1, 2), 8](13)
    error = caught.value
    assert (error.kind, error.block, error.thread) == ("assert", (0, 1, 0), (5, 0, 0))
    assert 'assertion `i < n && "too far"` failed' in str(error)
    assert ":2: void check(int, int)" in str(error)


def test_kernels_allocate_and_free(cpu: Device) -> None:
    text = """extern "C" __global__ void k(int n, long long *out) {
        int t = threadIdx.x;
        long long *list = 0;
        for (int i = 0; i < n + t % 5; i++) {
            long long *cell = (long long *)malloc(16); if (!cell) return;
            cell[0] = i; cell[1] = (long long)list; list = cell;
        }
        long long sum = 0;
        while (list) { long long *next = (long long *)list[1]; sum += list[0]; free(list); list = next; }
        out[t] = malloc(1ull << 46) ? -1 : sum;
    }"""
    out = cpu.array(np.zeros(70, np.int64))
    jit(text, names=["k"], device=cpu)["k"][1, 70](10, out)
    counts = 10 + np.arange(70) % 5
    np.testing.assert_array_equal(out.numpy(), counts * (counts - 1) // 2)
