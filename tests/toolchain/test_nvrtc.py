"""NVRTC: checked calls and owned handles."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from cujit.errors import ClosedError, ToolError
from cujit.toolchain import nvrtc
from cujit.toolchain.process_state import process_state
from cujit.toolchain.stopping import Stop, finish
from cujit.toolchain.toolset import Toolchain
from processes import printed
from raising import raises
from waiting import eventually

KERNEL = b"template <typename T> __global__ void fill(T* x, T v) { x[threadIdx.x] = v; }"


def test_version_and_architectures_are_returned(toolchain: Toolchain) -> None:
    nvrtc = toolchain.nvrtc
    assert nvrtc.version >= (12, 9)
    assert nvrtc.tool == f"NVRTC {nvrtc.version[0]}.{nvrtc.version[1]}"
    assert 90 in nvrtc.arches
    assert list(nvrtc.arches) == sorted(nvrtc.arches)


def test_program_returns_images_names_and_a_log(toolchain: Toolchain) -> None:
    with toolchain.nvrtc.program(b"#warning look here\n" + KERNEL, b"fill.cu") as program:
        program.add_name(b"fill<float>")
        program.compile([b"-arch=sm_90"])
        assert program.lowered_name(b"fill<float>") == "_Z4fillIfEvPT_S0_"
        assert program.cubin().startswith(b"\x7fELF")
        assert b".entry _Z4fillIfEvPT_S0_" in program.ptx()
        assert not program.ptx().endswith(b"\0")
        assert "look here" in program.log()


def test_compile_returns_ltoir_for_the_link(toolchain: Toolchain) -> None:
    with toolchain.nvrtc.program(b"__global__ void k() {}", b"k.cu") as program:
        program.compile([b"-arch=compute_90", b"-dlto"])
        assert program.ltoir()[:4] == b"\xed\x43\x4e\x7f"


def test_headers_in_memory_are_found(toolchain: Toolchain) -> None:
    headers = [(b"value.h", b"#define VALUE 42\n")]
    with toolchain.nvrtc.program(b'#include "value.h"\nstatic_assert(VALUE == 42);', b"v.cu", headers) as p:
        p.compile([b"-arch=compute_90"])


def test_failed_compile_has_call_result_tool_and_log(toolchain: Toolchain) -> None:
    with toolchain.nvrtc.program(b"__global__ void k() { what; }", b"k.cu") as program:
        with pytest.raises(ToolError) as caught:
            program.compile([b"-arch=compute_90"])
        assert caught.value.call == "nvrtcCompileProgram"
        assert caught.value.result == "NVRTC_ERROR_COMPILATION"
        assert caught.value.tool == toolchain.nvrtc.tool
        assert 'identifier "what" is undefined' in caught.value.log


def test_compiles_keep_the_stack_limit(toolchain: Toolchain) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_STACK)
    assert before[0] != before[1], "the soft limit is the hard one already: nothing to see"

    def compile_text(number: int) -> None:
        text = b"__global__ void k() { what; }" if number % 2 else b"__global__ void k() {}"
        with toolchain.nvrtc.program(text, b"k.cu") as program, contextlib.suppress(ToolError):
            program.compile([b"-arch=compute_90"])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(compile_text, range(16)))
    assert resource.getrlimit(resource.RLIMIT_STACK) == before


def test_wait_for_a_lock_hears_a_signal_after_a_compile(toolchain: Toolchain) -> None:
    # NVRTC 13.0 gave the handler back with SA_RESTART.
    with toolchain.nvrtc.program(b"__global__ void k() {}", b"k.cu") as program:
        program.compile([b"-arch=compute_90"])
    lock, timer = threading.Lock(), threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT))
    lock.acquire()
    timer.start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        lock.acquire(timeout=20)
    assert time.monotonic() - begin < 10
    timer.join()


def _restarts(number: int) -> bool:
    """Whether a wait goes on after a signal (``SA_RESTART``); the flags are behind the handler and 1,024 bits."""
    action = (ctypes.c_uint32 * 128)()
    ctypes.CDLL(None).sigaction(number, None, action)
    return bool(action[34] & 0x10000000)


def test_signal_handlers_are_restored_after_a_compile() -> None:
    changed, go = threading.Event(), threading.Event()

    def change() -> None:
        with process_state():
            signal.siginterrupt(signal.SIGINT, False)  # as NVRTC 13.0 does
            changed.set()
            go.wait(60)

    assert not _restarts(signal.SIGINT)
    thread = threading.Thread(target=finish, args=(change, Stop()))
    thread.start()
    try:
        assert changed.wait(60)
        eventually(lambda: not _restarts(signal.SIGINT), within_s=20)
    finally:
        go.set()
        thread.join()
    with process_state():
        signal.siginterrupt(signal.SIGINT, False)
        assert _restarts(signal.SIGINT)
    assert not _restarts(signal.SIGINT)


def test_closed_program_refuses_work_and_closes_again_in_peace(toolchain: Toolchain) -> None:
    program = toolchain.nvrtc.program(b"", b"k.cu")
    assert toolchain.live_handles == 1
    program.close()
    program.close()
    assert program.closed
    assert toolchain.live_handles == 0
    with raises(ClosedError, "closed"):
        program.compile([])


def test_dropped_program_is_released_with_its_last_reference(toolchain: Toolchain) -> None:
    program = toolchain.nvrtc.program(b"", b"k.cu")
    assert toolchain.live_handles == 1
    del program
    gc.collect()
    assert toolchain.live_handles == 0


def test_ending_process_releases_no_handle() -> None:
    """The libraries may be gone by then."""
    code = """
    from cujit.toolchain.handles import HandleNumber, LibraryHandle
    class Handle(LibraryHandle):
        destroy = staticmethod(lambda raw: print(raw.what))
    forgotten, kept = (Handle(HandleNumber.of(what, 1)) for what in ("forgotten", "kept"))
    del forgotten
    """
    assert printed(code).split() == ["forgotten"]


def test_error_inside_the_with_statement_releases_the_handle(toolchain: Toolchain) -> None:
    with pytest.raises(ZeroDivisionError), toolchain.nvrtc.program(b"", b"k.cu"):
        raise ZeroDivisionError
    assert toolchain.live_handles == 0


NO_BINDINGS = """
import sys
import threading
import time
sys.modules["cuda.bindings.{module}"] = None
from cujit.errors import ToolchainNotFoundError
from cujit.toolchain.toolset import Toolchain
try:
    Toolchain().{module}
except ToolchainNotFoundError as e:
    print(e)
"""

NO_LIBRARY = """
from cuda import pathfinder
from cuda.pathfinder import DynamicLibNotFoundError
import cuda.pathfinder._dynamic_libs.load_nvidia_dynamic_lib as loader
def gone(name):
    raise DynamicLibNotFoundError(f"Failure finding {{name}}")
pathfinder.load_nvidia_dynamic_lib = loader.load_nvidia_dynamic_lib = gone
from cujit.errors import ToolchainNotFoundError
from cujit.toolchain.toolset import Toolchain
try:
    Toolchain().{module}
except ToolchainNotFoundError as e:
    print(e)
"""


@pytest.mark.parametrize("script", [NO_BINDINGS, NO_LIBRARY], ids=["no bindings", "no library"])
@pytest.mark.parametrize(
    ("module", "library"),
    [("nvrtc", "NVRTC"), ("nvvm", "libNVVM"), ("nvjitlink", "nvJitLink"), ("nvfatbin", "nvFatbin")],
)
def test_missing_library_names_the_extra_to_install(script: str, module: str, library: str) -> None:
    text = printed(script.format(module=module))
    assert text.startswith(f"{library} is not installed, or can't be loaded: ")
    assert "pip install 'cujit[cu13]'" in text


def test_importing_the_toolchain_opens_no_library() -> None:
    script = (
        "import sys, cujit.program\n"
        "assert not [m for m in sys.modules if m.startswith('cuda.bindings.')], 'cuda was imported'\n"
        "maps = open('/proc/self/maps').read()\n"
        "assert 'libnvrtc' not in maps and 'libcuda' not in maps and 'libnvJitLink' not in maps\n"
    )
    printed(script)


def test_heap_of_precompiled_headers_is_set_and_queried() -> None:
    ok = nvrtc.nvrtcResult.NVRTC_SUCCESS
    found, before = nvrtc.nvrtcGetPCHHeapSize()
    if found:
        pytest.skip("this NVRTC makes no precompiled headers")
    try:
        for size in (0, 1 << 20, 64 << 20):
            assert nvrtc.nvrtcSetPCHHeapSize(size) == (ok,)
            assert nvrtc.nvrtcGetPCHHeapSize() == (ok, size)
        for wrong in (-1, True, "1", 1.0, 1 << 63):
            with raises(nvrtc.nvrtcError, "tool", "0", "NVRTC_ERROR_INVALID_INPUT"):
                nvrtc.nvrtcSetPCHHeapSize(wrong)  # type: ignore[arg-type]
        result, program = nvrtc.nvrtcCreateProgram("__global__ void k() {}", "k.cu", 0, [], [])
        assert result == ok
        nvrtc.nvrtcCompileProgram(program, 1, ["-arch=compute_90"])
        assert nvrtc.nvrtcGetPCHCreateStatus(program)[0].name == "NVRTC_ERROR_NO_PCH_CREATE_ATTEMPTED"
        assert nvrtc.nvrtcGetPCHHeapSizeRequired(program) == (ok, 0)
        nvrtc.nvrtcDestroyProgram(program)
    finally:
        nvrtc.nvrtcSetPCHHeapSize(before)
