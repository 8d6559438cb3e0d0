"""The process apart: what kernels do there to get out, and what is said of it."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import cujit
from cujit import reproducer
from cujit.errors import CujitError, KernelFaultError, MissingError, OptionError, ToolCrashError, ToolTimeoutError
from cujit.formats.saved_launch import SavedBlock
from cujit.reproducer import fork_server, running, sandbox
from cujit.reproducer.child import NAME
from cujit.values import replace
from processes import children_of, lives, printed
from raising import raises
from reproducer.serving import WITHOUT_FILTERS, serving_after
from waiting import eventually

_PRINTF = 'extern "C" __device__ int printf(const char *, ...);\n'


def _saved(tmp_path: Path, body: str, grid: int = 1, block: int = 1, before: str = "") -> Path:
    device = cujit.cpu()
    module = cujit.jit(f'{before}extern "C" __global__ void attack(long *p) {{ {body} }}', device=device)
    return module["attack"][grid, block].save(tmp_path / "attack.launch", device.zeros(16, "int64"))


# -- kernels that do harm ---------------------------------------------------------------------------------------


def test_endless_kernel_is_ended_at_its_line(tmp_path: Path) -> None:
    path = _saved(tmp_path, "while (*(volatile long *)p == 0); p[1] = 1;")
    said = ("timeout_s=0.5", "PTX")
    with raises(KernelFaultError, "fault-timeout", *said):
        reproducer.run(path, device="cpu", timeout_s=0.5)


def test_hanging_process_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_READY_S", -0.9)
    path = _saved(tmp_path, "while (*(volatile long *)p == 0); p[1] = 1;")
    began = time.monotonic()
    with raises(ToolTimeoutError, "tool-timeout", "attack", "1"):
        reproducer.run(path, device="cpu", timeout_s=1)
    assert time.monotonic() - began < 30
    assert not _children()


@pytest.mark.parametrize(
    "body",
    [
        "for (long i = 0; i < 1l << 40; i += 64) p[i] = p[-i] = i;",
        "for (long i = 0; i < 1l << 40; i++) p[i] = 0x4141414141414141;",
    ],
)
def test_wild_writes_end_only_the_kernels_process(tmp_path: Path, body: str) -> None:
    path = _saved(tmp_path, body)
    with pytest.raises((ToolCrashError, ToolTimeoutError, KernelFaultError)) as caught:
        reproducer.run(path, device="cpu", timeout_s=10)
    assert "attack" in str(caught.value)
    with raises(KernelFaultError, "fault-memory", "1", "argument"):
        reproducer.run(path, check="memory")


@pytest.mark.parametrize("name", ["NameError", "MemoryError", "FormatError"])
def test_answer_of_a_damaged_process_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    damage = f"""
import cujit.devices.arrays.array as arrays
from cujit.errors import FormatError
def numpy(self): raise {name}("name 'time' is not defined")
arrays.DeviceArray.numpy = numpy
"""
    path = _saved(tmp_path, "p[0] = 1;")
    monkeypatch.setattr(fork_server, "_BEGIN", serving_after(damage))
    with raises(ToolCrashError, "tool-crash", "attack"):
        reproducer.run(path, device="cpu")


def test_1_of_50_printed_megabytes_is_kept(tmp_path: Path) -> None:
    path = _saved(tmp_path, r'printf("%49999d\n", 1);', 4, 256, _PRINTF)
    rerun = reproducer.run(path, device="cpu")
    assert len(rerun.printed) == running.OUTPUT_BYTES
    assert len(rerun.printed) + rerun.dropped_bytes == 1024 * 50_000


def test_memory_is_limited(tmp_path: Path) -> None:
    body = (
        "char *q; while ((q = (char *)malloc(1 << 20))) { for (int i = 0; i < 1 << 20; i += 4096) q[i] = 1; p[0]++; }"
    )
    rerun = reproducer.run(_saved(tmp_path, body), device="cpu", memory_mib=2048)
    (counted,) = rerun.arguments
    assert not isinstance(counted, bytes)
    assert 100 < counted[0] < 2048


def test_too_little_memory_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ToolCrashError):
        reproducer.run(_saved(tmp_path, "p[0] = 1;"), device="cpu", memory_mib=1)
    with raises(OptionError, "option", "memory_mib", "0"):
        reproducer.run(_saved(tmp_path, "p[0] = 1;"), device="cpu", memory_mib=0)


def test_memory_limit_grows_with_the_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    says_it = """
import json, os, struct, sys
from cujit.reproducer import child
def main(answers, parent):
    size, = struct.unpack("<Q", sys.stdin.buffer.read(8))
    message = str(json.loads(sys.stdin.buffer.read(size))["memory_mib"])
    said = json.dumps({"error": {"class": "CujitError", "message": message}}).encode()
    with os.fdopen(answers, "wb") as file: file.write(struct.pack("<Q", len(said)) + said)
    os._exit(0)
child.main = main
"""
    monkeypatch.setattr(fork_server, "_BEGIN", serving_after(says_it))
    saved = reproducer.open(_saved(tmp_path, "p[0] = 1;"))
    for size, asked, mib in ((0, None, 4096), (128, None, 4096), (4 << 20, None, 4096 + 6 * 4), (4 << 20, 100, 100)):
        launch = replace(saved, arguments=(), memory=(SavedBlock(bytes(size)),) if size else ())
        with pytest.raises(CujitError) as e:
            reproducer.run(launch, device="cpu", memory_mib=asked)
        assert e.value.message == str(mib)


def test_ptx_cannot_call_functions_of_the_c_library(tmp_path: Path) -> None:
    ptx = """.version 7.0
    .target sm_70
    .address_size 64
    .extern .func (.param .b32 r) system(.param .b64 p);
    .visible .entry attack(.param .u64 p) { .reg .b64 %rd<2>; ld.param.u64 %rd1, [p];
      { .param .b64 a; .param .b32 r; st.param.b64 [a], %rd1; call.uni (r), system, (a); } ret; }
    """
    path = _saved(tmp_path, "p[0] = 1;")
    saved = reproducer.open(path)
    with raises(CujitError, "unsupported", "system") as e:
        reproducer.run(replace(saved, images=(ptx.encode(),)), device="cpu")
    assert not isinstance(e.value, ToolCrashError)


def _answering(*answers: str) -> str:
    """Write the code of a server whose processes give these answers, by the seconds that they are allowed."""
    code = f"""
import json, os, struct, sys
from cujit.reproducer import child
def main(answers, parent):
    size, = struct.unpack("<Q", sys.stdin.buffer.read(8))
    number = round(json.loads(sys.stdin.buffer.read(size))["timeout_s"]) - 1
    answer = [{", ".join(f"lambda file: {each}" for each in answers)}][number]
    with os.fdopen(answers, "wb") as file: file.write(answer(file))
    os._exit(0)
child.main = main
"""
    return serving_after(code)


def test_malformed_answer_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _saved(tmp_path, "p[0] = 1;")
    endless = "b''.join(file.write(b'x' * 65536) and b'' for _ in iter(int, 1))"
    unread = """struct.pack('<Q', 32) + b'{"error": {"class": "system"}, 1}'"""
    small = "struct.pack('<Q', 2)"
    said = json.dumps({"device": "cpu", "product": "", "route": "", "seconds": 0, "without_filter": ""}).encode()
    too_much = f"{struct.pack('<Q', len(said)) + said!r} + bytes(16 * 8 + 1)"
    answers = (
        "b''",
        "b'x' * 7",
        "struct.pack('<Q', 1 << 60)",
        f"{small} + b'{{}}'",
        f"{small} + b'[]'",
        unread,
        too_much,
        endless,
    )
    monkeypatch.setattr(fork_server, "_BEGIN", _answering(*answers))
    for timeout_s, _ in enumerate(answers, 1):
        with raises(ToolCrashError, "tool-crash", 'check="memory"'):
            reproducer.run(path, device="cpu", timeout_s=timeout_s)


def test_unknown_error_becomes_cujits_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    error = {"class": "SystemExit", "message": "\x1b[2J"}
    said = [json.dumps({"error": facts}).encode() for facts in (error, error | {"help": "\x1b[1m"})]
    answers = (repr(struct.pack("<Q", len(each)) + each) for each in said)
    monkeypatch.setattr(fork_server, "_BEGIN", _answering(*answers))
    for timeout_s, help in ((1, None), (2, "\ufffd[1m")):
        with pytest.raises(CujitError) as e:
            reproducer.run(_saved(tmp_path, "p[0] = 1;"), device="cpu", timeout_s=timeout_s)
        assert (e.value.message, e.value.help) == ("\ufffd[2J", help)


def test_failure_before_the_launch_is_a_cujit_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damage = """
from cujit.reproducer import child
def read_saved(data): raise KeyError("lost")
child.read_saved = read_saved
"""
    monkeypatch.setattr(fork_server, "_BEGIN", serving_after(damage))
    with raises(CujitError, "failure", "KeyError('lost')"):
        reproducer.run(_saved(tmp_path, "p[0] = 1;"), device="cpu")


# -- the rights of the process ----------------------------------------------------------------------------------


def _children() -> list[int]:
    """List the processes that run launches: of the servers that are children of this one."""
    return [each for server in children_of(os.getpid()) for each in children_of(server) if _read(each, "comm") == _COMM]


_COMM = f"{NAME}\n".encode()


def _read(process: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{process}/{name}").read_bytes()
    except OSError:  # it ends
        return b""


_ROOMS = ("devices", "formats", "events", "values", "errors", "kernel.py", "loading.py", "forks.py", "signature.py")
_NOT_THERE = {
    "_sha2",  # Python 3.12's, which is imported with what hashes
    "_sha256",  # that of older ones
    "concurrent.futures",  # who compiles in the background
    "cujit.compiler.linking",  # jit of kernels that launch kernels
    "cujit.compiler.tiles",  # jit of CUDA Tile C++
    "cujit.toolchain.driver",  # who has a GPU
    "nvtx",  # optional
}


def _late_imports(path: Path) -> Iterator[str]:
    """Give the modules that functions of a file import when they are called."""
    for function in ast.walk(ast.parse(path.read_text())):
        for node in ast.walk(function) if isinstance(function, ast.FunctionDef) else ():
            if isinstance(node, ast.ImportFrom) and node.module:
                yield node.module
            elif isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)


def test_late_imports_are_loaded_before_files_are_blocked() -> None:
    root = Path(cujit.__file__).parent
    files = [
        file for room in _ROOMS for file in ((root / room).rglob("*.py") if (root / room).is_dir() else [root / room])
    ]
    late = {name for file in files if "cuda" not in file.parts for name in _late_imports(file)}
    code = """
    import cujit, sys
    from cujit.reproducer.child import _import_all, _ready
    _import_all()
    _ready(cujit.cpu())
    print(*sys.modules)
    """
    there = set(printed(code).split())
    assert "elftools.elf.elffile" in late
    assert {name for name in late - there - _NOT_THERE if ".cuda" not in name} == set()


def test_kernel_runs_without_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_SECRET", "hush")
    path = _saved(tmp_path, "while (*(volatile long *)p == 0); p[1] = 1;", 64, 256)

    def run() -> None:
        with pytest.raises(KernelFaultError):
            reproducer.run(path, device="cpu", timeout_s=1)

    worker = threading.Thread(target=run)
    worker.start()
    found: dict[str, set[str]] = {}
    files: dict[str, str] = {}
    limits, environment = "", b""
    while worker.is_alive():
        for child in _children():
            now = _status(child)
            if now.get("Seccomp") == {"2"}:
                found = now
                limits = _read(child, "limits").decode() or limits
                with contextlib.suppress(OSError):  # it ends
                    for link in Path(f"/proc/{child}/fd").iterdir():
                        files[link.name] = os.readlink(link).partition(":")[0]
                environment = _read(child, "environ") or environment
        time.sleep(0.02)
    worker.join()
    assert (found["Seccomp"], found["NoNewPrivs"]) == ({"2"}, {"1"})  # of every thread
    rows = {line[:25].strip(): line[26:46].strip() for line in limits.splitlines()}
    assert [rows[f"Max {what}"] for what in ("open files", "file size", "core file size")] == ["0", "0", "0"]
    assert files == {"0": "/memfd", "1": "pipe", "2": "pipe", "3": "pipe"}
    assert b"CUJIT_CACHE_DIR" in environment
    assert b"hush" not in environment


def _status(process: int) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    try:
        for task in Path(f"/proc/{process}/task").iterdir():
            for line in (task / "status").read_text().splitlines():
                name, _, value = line.partition(":")
                found.setdefault(name, set()).add(value.strip())
    except OSError:  # it ends
        return {}
    return found


_BEFORE = """
import ctypes, mmap, os, resource, signal, socket, subprocess, sys, threading
from cujit.reproducer.sandbox import give_up_rights
libc = ctypes.CDLL(None, use_errno=True)
def code(hexadecimal):
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(bytes.fromhex(hexadecimal))
    return ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
give_up_rights()
"""


_FOR_MORE = (
    "open('/etc/passwd')",
    "open('/tmp/written', 'w')",
    "os.open('.', os.O_RDONLY)",
    "os.listdir('/')",
    "os.stat('/')",
    "os.readlink('/proc/self/exe')",
    "os.mkdir('/tmp/made')",
    "os.unlink('/tmp/any')",
    "os.memfd_create('x')",
    "os.pipe()",
    "os.setuid(0)",
    "os.chdir('/')",
    "resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (1, 1))",
    "resource.prlimit(os.getppid(), resource.RLIMIT_CPU)",
    "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))",
    "os.sched_setaffinity(0, {0})",
)


@pytest.fixture(scope="module")
def refused() -> dict[str, str]:
    """Have one process without rights ask for more again and again; give what each attempt ended with."""
    done = printed(f"""{_BEFORE}
for attempt in sys.argv[1:]:
    try:
        eval(attempt)
        print("done")
    except (OSError, ValueError) as e:
        print(type(e).__name__)
""", *_FOR_MORE)  # fmt: skip
    return dict(zip(_FOR_MORE, done.splitlines(), strict=True))


@pytest.mark.parametrize("attempt", _FOR_MORE)
def test_system_call_for_more_fails(attempt: str, refused: dict[str, str]) -> None:
    assert refused[attempt] in ("FileNotFoundError", "PermissionError", "ValueError")


_ATTACKS = (
    "os.execv('/bin/true', ['true'])",
    "os.fork()",
    "os.posix_spawn('/bin/true', ['true'], {})",
    "os.kill(os.getppid(), 0)",
    "libc.syscall(234 if os.uname().machine == 'x86_64' else 131, os.getppid(), os.getppid(), 9)",
    "socket.socket()",
    "libc.ptrace(0, 0, 0, 0)",
)
_OF_X86 = {
    "int 0x80": "code('b814000000cd80c3')",
    "x32": "libc.syscall(0x40000000 | 59, 0, 0, 0)",
    "execve in machine code": "code('48c7c03b0000000f05c3')",
}
"""What is machine code, or numbers, of one processor."""
_IS_X86 = os.uname().machine == "x86_64"


@pytest.fixture(scope="module")
def ends() -> dict[str, str]:
    """Have a process for each attack, forked from one, give up its rights; give what each wrote, and its status."""
    asked = [*_ATTACKS, *(_OF_X86.values() if _IS_X86 else ())]
    done = printed(f"""{_BEFORE.replace("give_up_rights()", "")}
for attempt in sys.argv[1:]:
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(writes, 1)
        os.close(writes)
        give_up_rights()
        try:
            eval(attempt)
        finally:
            print("went on", flush=True)
            os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as file:
        said = file.read()
    print(said, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
""", *asked)  # fmt: skip
    return dict(zip(asked, done.splitlines(), strict=True))


@pytest.mark.parametrize("attempt", [*_ATTACKS, *(pytest.param(code, id=id) for id, code in _OF_X86.items())])
def test_forbidden_system_call_ends_the_process(attempt: str, ends: dict[str, str]) -> None:
    if attempt in _OF_X86.values() and not _IS_X86:
        pytest.skip("machine code of another processor")
    assert ends[attempt] == " -31"  # SIGSYS, and nothing was written


def test_threads_and_memory_still_work() -> None:
    done = printed(f"""{_BEFORE}
before = threading.active_count()
seen = []
thread = threading.Thread(target=lambda: seen.append(len(bytes(1 << 24))))
thread.start(); thread.join()
print(seen, resource.getrlimit(resource.RLIMIT_CORE) is not None, code('b82a000000c3'))
""")
    assert done.strip() == "[16777216] True 42"


def test_existing_threads_are_filtered_too() -> None:
    done = printed(f"""{_BEFORE.replace("give_up_rights()", "")}
come, found = threading.Event(), []
def look():
    come.wait()
    try:
        open('/etc/passwd')
    except OSError as e:
        found.append(type(e).__name__)
thread = threading.Thread(target=look)
thread.start()
give_up_rights()
come.set(); thread.join()
print(found)
""")
    assert done.strip() == "['FileNotFoundError']"


def test_processor_without_a_filter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with raises(MissingError, "missing", "riscv64"):
        sandbox.give_up_rights()


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("sandbox.give_up_rights()", "can't limit the privileges of this process: Operation not permitted"),
        ("sandbox._PR_SET_NO_NEW_PRIVS = -1", "can't limit the privileges of this process: Invalid argument"),
        ("sandbox._SET_MODE_FILTER = 99", "this system doesn't support system-call filters: Invalid argument"),
    ],
)
def test_unsupported_system_is_reported(before: str, said: str) -> None:
    code = "from cujit.errors import MissingError\nfrom cujit.reproducer import sandbox\n"
    after = "try: sandbox.give_up_rights()\nexcept MissingError as e: print(e.message)\n"
    assert printed(f"{code}{before}\n{after}") == f"{said}\n"


def test_output_about_the_process_hides_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = """
import os, time
from cujit.reproducer import child
def main(answers, parent, own=child.main):
    for n in range(9): os.write(2, b"w" * 1000); time.sleep(0.02)
    own(answers, parent)
child.main = main
"""
    monkeypatch.setattr(fork_server, "_BEGIN", serving_after(begin))
    rerun = reproducer.run(_saved(tmp_path, "p[0] = 1;"), device="cpu")
    assert not isinstance(rerun.arguments[0], bytes)
    assert (rerun.arguments[0][0], rerun.printed) == (1, "")
    begin = begin.replace("own(answers, parent)", "os.write(2, b'its end'); os._exit(1)")
    monkeypatch.setattr(fork_server, "_BEGIN", serving_after(begin))
    with pytest.raises(ToolCrashError) as e:
        reproducer.run(_saved(tmp_path, "p[0] = 1;"), device="cpu")
    assert "its end" in str(e.value)
    assert str(e.value).count("w") < 4200


def test_untrusted_launch_needs_seccomp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _saved(tmp_path, "p[0] = 1;")
    monkeypatch.setattr(fork_server, "_BEGIN", WITHOUT_FILTERS)
    for ask in (reproducer.run, running.run_once):
        with raises(MissingError, "missing", "riscv64"):
            ask(path, device="cpu")
    rerun = reproducer.run(path, device="cpu", trusted=True)
    assert "riscv64" in rerun.without_filter
    assert not isinstance(rerun.arguments[0], bytes)
    assert rerun.arguments[0][0] == 1


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_jump_of_the_filter_stays_inside(machine: str) -> None:
    text = sandbox.filter_of(sandbox._MACHINES[machine], 1234)
    steps = [text[at : at + 8] for at in range(0, len(text), 8)]
    for k, step in enumerate(steps):
        if step[0] & 7 == 5:  # BPF_JMP
            assert max(step[2], step[3]) + k + 1 < len(steps)
    assert steps[-1][0] == 6  # BPF_RET
    assert len(steps) < 4096


_NUMBERS = {
    "read": (0, 63), "mkdirat": (258, 34), "openat": (257, 56), "execve": (59, 221), "clone": (56, 220),
    "clone3": (435, 435), "tgkill": (234, 131), "rt_tgsigqueueinfo": (297, 240), "prlimit64": (302, 261),
}  # fmt: skip
_ALLOWED, _KILLED, _NOT_PERMITTED, _NOT_FOUND, _NO_SUCH_CALL = 0x7FFF0000, 0x80000000, 0x50001, 0x50002, 0x50026
_THREAD = 0x10000


@pytest.mark.parametrize(
    ("call", "arguments", "ruling"),
    [
        ("read", (0, 1 << 40, 8), _ALLOWED),
        ("mkdirat", (), _NOT_PERMITTED),
        ("openat", (), _NOT_FOUND),
        ("execve", (), _KILLED),
        ("clone", (0x3D0F00, 0), _ALLOWED),
        ("clone", (17, _THREAD), _KILLED),
        ("clone3", (), _NO_SUCH_CALL),
        ("tgkill", (1234, 1235, 6), _ALLOWED),
        ("tgkill", (1, 1234, 9), _KILLED),
        ("rt_tgsigqueueinfo", (1234, 1235, 6), _ALLOWED),
        ("rt_tgsigqueueinfo", (1, 1234, 9), _KILLED),
        ("prlimit64", (0, 7, 0, 1 << 40), _ALLOWED),
        ("prlimit64", (1, 7, 0, 1 << 40), _NOT_PERMITTED),
        ("prlimit64", (0, 7, 1, 0), _NOT_PERMITTED),
        ("prlimit64", (0, 7, 1 << 32, 0), _NOT_PERMITTED),
    ],
)
def test_system_calls_are_filtered_by_number_and_arguments(call: str, arguments: tuple[int, ...], ruling: int) -> None:
    x86, arm = sandbox._MACHINES["x86_64"], sandbox._MACHINES["aarch64"]
    assert _ruled(x86, x86.audit, _NUMBERS[call][0], *arguments) == ruling
    assert _ruled(x86, x86.audit, _NUMBERS[call][0] | 0x40000000, *arguments) == _KILLED
    assert _ruled(arm, arm.audit, _NUMBERS[call][1], *arguments) == ruling
    assert _ruled(arm, x86.audit, _NUMBERS[call][1], *arguments) == _KILLED


def _ruled(machine: sandbox.Machine, audit: int, number: int, *arguments: int) -> int:
    """Run the filter of process 1234, as Linux does, for one system call."""
    data = struct.pack("<IIQ6Q", number, audit, 0, *arguments, *(6 - len(arguments)) * (0,))
    text, at, value = sandbox.filter_of(machine, 1234), 0, 0
    while True:
        code, if_true, if_false, k = struct.unpack_from("<HBBI", text, 8 * at)
        at += 1
        if code == 0x06:  # BPF_RET
            return int(k)
        if code == 0x20:  # BPF_LD | BPF_W | BPF_ABS
            (value,) = struct.unpack_from("<I", data, k)
        else:  # BPF_JMP: JEQ, JGE, JSET
            at += if_true if {0x15: value == k, 0x35: value >= k, 0x45: value & k}[code] else if_false


_HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}


@pytest.mark.parametrize("machine", _HEADERS)
def test_system_call_numbers_match_the_headers(machine: str) -> None:
    if not _HEADERS[machine].exists():
        pytest.skip("the headers of the system are not installed")
    found = re.findall(r"#define __NR(?:3264)?_(\w+) (\d+)", _HEADERS[machine].read_text())
    known = {name: int(number) for name, number in found}
    known.setdefault("newfstatat", known.get("fstatat", -1))
    numbers = {
        **sandbox._ALLOWED,
        **sandbox._KILLED,
        **sandbox._PATHS,
        "clone": sandbox._CLONE,
        "clone3": sandbox._CLONE3,
    }
    numbers |= {"tgkill": sandbox._TGKILL, "rt_tgsigqueueinfo": sandbox._TGQUEUE, "prlimit64": sandbox._PRLIMIT}
    numbers |= {"seccomp": sandbox._SECCOMP}
    column = sandbox._MACHINES[machine].column
    assert {name: pair[column] for name, pair in numbers.items()} == {name: known.get(name, -1) for name in numbers}


@pytest.mark.parametrize("processor", ["x86_64", "aarch64"])
def test_system_call_numbers_match_linux(processor: str) -> None:
    command = [sys.executable, "-m", "ziglang", "cc", "-target", f"{processor}-linux-gnu", "-E", "-dM", "-x", "c", "-"]
    said = subprocess.run(command, input="#include <asm/unistd.h>", capture_output=True, text=True, check=True).stdout
    numbers = {name: int(number) for name, number in re.findall(r"#define __NR_(\w+) (\d+)$", said, re.MULTILINE)}
    own = sandbox._ALLOWED | sandbox._KILLED | sandbox._PATHS
    own |= {
        "clone": sandbox._CLONE,
        "clone3": sandbox._CLONE3,
        "tgkill": sandbox._TGKILL,
        "prlimit64": sandbox._PRLIMIT,
    }
    own |= {"rt_tgsigqueueinfo": sandbox._TGQUEUE, "seccomp": sandbox._SECCOMP}
    column = sandbox._MACHINES[processor].column
    assert {name: pair[column] for name, pair in own.items()} == {name: numbers.get(name, -1) for name in own}


_STARTS_ONE = """
import cujit.reproducer, os, sys
cujit.reproducer.run(sys.argv[1], device="cpu", timeout_s=300)
"""


def test_launch_does_not_outlive_its_parent(tmp_path: Path) -> None:
    """A process that is killed cannot end its own; the system does."""
    path = _saved(tmp_path, "while (*(volatile long *)p == 0); p[1] = 1;")
    with subprocess.Popen([sys.executable, "-c", _STARTS_ONE, str(path)]) as waiting:
        (child,) = eventually(lambda: [each for server in children_of(waiting.pid) for each in children_of(server)])
        time.sleep(1)
        assert lives(child)
        waiting.kill()
    eventually(lambda: not lives(child))
