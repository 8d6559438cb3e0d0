"""The stand-in library: how it is found, filled in, and what it is to programs that know nothing of Python."""

from __future__ import annotations

import ctypes
import json
import os
import struct
import sys
import textwrap
import warnings
from pathlib import Path

import pytest

from cujit.emulator import library_files
from cujit.emulator.functions import exports
from cujit.emulator.results import Result
from cujit.emulator.settings import EmulatorSettings
from cujit.emulator.shared_library import write_library
from cujit.emulator.structures import BootTable
from cujit.errors import CujitError, UnsupportedError
from cujit.formats.elf import read_elf
from emulator.programs import compiled, emulated, python

BINDINGS = """
from cuda.bindings import driver
print(driver.cuInit(0)[0].name, driver.cuDeviceGetCount()[1], driver.cuDriverGetVersion()[1])
"""


@pytest.mark.parametrize("perf", ["0", "1"])
def test_startup_code_is_compiled_for_profilers_too(perf: str, tmp_path: Path) -> None:
    code = "from cujit.emulator.machine import boot_code; print(boot_code().hex())"
    variables = {"CUJIT_PERF": perf, "CUJIT_CACHE_DIR": str(tmp_path), "JITDUMPDIR": str(tmp_path)}
    done = emulated(sys.executable, "-c", code, variables=variables)
    assert bytes.fromhex(done.stdout), done.stderr


def test_python_program_finds_the_library_unchanged() -> None:
    assert python(BINDINGS).split() == ["CUDA_SUCCESS", "1", "13050"]


def test_program_with_warnings_as_errors_gets_no_warning() -> None:
    code = "import ctypes, gc; print(ctypes.CDLL('libcuda.so.1').cuInit(0)); gc.collect()"
    done = emulated(sys.executable, "-X", "dev", "-W", "error", "-c", code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


def test_linked_c_program_starts_python_by_itself(tmp_path: Path) -> None:
    program = compiled(
        tmp_path / "count",
        """
        #include <stdio.h>
        int cuInit(unsigned), cuDeviceGetCount(int *);
        int main(void) {
          int n = -1, first = cuInit(0), next = cuDeviceGetCount(&n);
          printf("%d %d %d", first, next, n);
        }
        """,
        library_files.folder() / library_files.SONAME,
    )
    done = emulated(program)
    assert (done.stdout, done.returncode) == ("0 0 1", 0), done.stderr


def test_c_program_reports_a_missing_python_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_files, "_SHARED", "libpython0.so.1.0")
    code = """
    int cuInit(unsigned);
    int main(void) { return cuInit(0) == 999 && cuInit(0) == 999 ? 0 : 1; }
    """
    done = emulated(compiled(tmp_path / "bare", code, library_files.folder() / library_files.SONAME))
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert "this program is not Python's, and needs libpython3" in line
    assert sys.base_prefix in line
    of_python = emulated(sys.executable, "-c", "import ctypes; assert not ctypes.CDLL('libcuda.so.1').cuInit(0)")
    assert of_python.stderr == ""


def test_unimplemented_function_returns_an_error_and_warns_once() -> None:
    program = """
    import ctypes
    driver = ctypes.CDLL("libcuda.so.1")
    print(driver.cuInit(0), driver.cuIpcCloseMemHandle(), driver.cuIpcCloseMemHandle())
    """
    done = emulated(sys.executable, "-c", textwrap.dedent(program))
    assert done.stdout.split() == ["0", "801", "801"]
    assert done.stderr.count("cuIpcCloseMemHandle is not emulated") == 1


def test_calls_before_start_or_in_a_forked_child_find_no_driver() -> None:
    program = """
    import ctypes, os
    lib = ctypes.CDLL('libcuda.so.1')
    count = ctypes.c_int()
    print(lib.cuDeviceGetCount(ctypes.byref(count)), lib.cuCtxSynchronize())
    print(lib.cuInit(1), lib.cuInit(0), lib.cuDeviceGetCount(ctypes.byref(count)), flush=True)
    if os.fork() == 0:
        print(lib.cuDeviceGetCount(ctypes.byref(count)), lib.cuInit(0), flush=True)
        os._exit(0)
    os.wait()
    """
    assert python(program).split() == ["3", "3", "1", "0", "0", "3", "3"]


@pytest.mark.parametrize("function", ["cuCtxSynchronize", "cuDriverGetVersion"], ids=["in C", "in Python"])
def test_calls_after_the_end_of_python_are_answered(function: str, tmp_path: Path) -> None:
    late = compiled(
        tmp_path / "late.so",
        """
        #include <unistd.h>
        int (*call)(int *);
        __attribute__((destructor)) static void last(void) { int answer; _exit(call(&answer)); }
        """,
        "-shared",
        "-fPIC",
    )
    program = f"""
    import ctypes
    driver, late = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("{late}")
    assert driver.cuInit(0) == 0
    driver.{function}(ctypes.byref(ctypes.c_int()))
    ctypes.c_void_p.in_dll(late, "call").value = ctypes.cast(driver.{function}, ctypes.c_void_p).value
    """
    done = emulated(sys.executable, "-c", textwrap.dedent(program))
    assert done.returncode == Result.DEINITIALIZED, done.stderr


def test_objects_freed_at_exit_get_deinitialized() -> None:
    program = """
    import ctypes, os, sys
    driver, number = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    asks = driver.cuDriverGetVersion, driver.cuIpcCloseMemHandle, driver.cuDeviceGetByPCIBusId
    assert [ask(ctypes.byref(number)) for ask in asks[:2]] == [0, 801]
    class Late:
        def __del__(self, asks=asks, number=number, byref=ctypes.byref, write=os.write):
            write(1, " ".join(str(ask(byref(number))) for ask in asks).encode())
    sys.late = Late()
    """
    done = emulated(sys.executable, "-c", textwrap.dedent(program))
    assert done.stdout == "4 4 4", done.stderr
    assert "Traceback" not in done.stderr


def test_c_thread_gets_answers_while_python_waits_for_it(tmp_path: Path) -> None:
    """Extensions keep Python's lock while they join their threads, as a function of ``ctypes.PyDLL`` does."""
    joins = compiled(
        tmp_path / "joins.so",
        """
        #include <pthread.h>
        typedef unsigned long long u64;
        int cuDeviceGetCount(int *), cuDeviceGet(int *, int), cuDeviceGetName(char *, int, int);
        int cuDeviceGetAttribute(int *, int, int), cuDeviceTotalMem_v2(u64 *, int), cuDeviceGetUuid(void *, int);
        int cuCtxSetCurrent(void *), cuCtxGetCurrent(void **), cuMemAlloc_v2(u64 *, u64), cuMemFree_v2(u64);
        int cuMemcpyHtoD_v2(u64, void *, u64), cuMemcpyDtoH_v2(void *, u64, u64), cuMemsetD8_v2(u64, char, u64);
        int cuStreamCreate(void **, int), cuStreamSynchronize(void *), cuEventCreate(void **, int);
        int cuEventRecord(void *, void *), cuEventSynchronize(void *), cuGetErrorName(int, const char **);
        static void *context;
        static void *work(void *failed) {
          int n; char text[64]; u64 bytes, memory, uuid[2]; void *found, *stream, *event;
          *(int *)failed = cuDeviceGetCount(&n) || cuDeviceGet(&n, 0) || cuDeviceGetName(text, 64, 0)
            || cuDeviceGetAttribute(&n, 75, 0) || n != 9 || cuDeviceTotalMem_v2(&bytes, 0) || cuDeviceGetUuid(uuid, 0)
            || cuCtxSetCurrent(context) || cuCtxGetCurrent(&found) || found != context
            || cuMemAlloc_v2(&memory, 64) || cuMemsetD8_v2(memory, 7, 64) || cuMemcpyDtoH_v2(text, memory, 64)
            || text[63] != 7 || cuMemcpyHtoD_v2(memory, text, 64) || cuStreamCreate(&stream, 1)
            || cuEventCreate(&event, 0) || cuEventRecord(event, stream) || cuEventSynchronize(event)
            || cuStreamSynchronize(stream)
            || cuMemFree_v2(memory);
          return 0;
        }
        int run(void *given) {
          pthread_t thread;
          int failed = 1;
          context = given;
          pthread_create(&thread, 0, work, &failed);
          pthread_join(thread, 0);
          return failed;
        }
        """,
        "-shared",
        "-fPIC",
        library_files.folder() / library_files.SONAME,
    )
    program = f"""
    import ctypes
    driver, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    assert driver.cuInit(0) == driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert ctypes.PyDLL("{joins}").run(context) == 0
    """
    done = emulated(sys.executable, "-c", textwrap.dedent(program), timeout_s=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("watches", [False, True])
def test_result_names_are_available_after_python_ended(watches: bool, tmp_path: Path) -> None:
    """Objects of Python ask for them while it ends, and destructors of C++ after that."""
    late = compiled(
        tmp_path / "late.so",
        """
        #include <stdio.h>
        int (*name)(int, const char **), (*sentence)(int, const char **);
        __attribute__((destructor)) static void last(void) {
          const char *texts[] = {"unwritten", "unwritten", "unwritten"};
          int answers[] = {name(4, texts), sentence(4, texts + 1), name(12345, texts + 2)};
          printf("%d %s %d %s %d %d", answers[0], texts[0], answers[1], texts[1], answers[2], texts[2] == 0);
          fflush(stdout);
        }
        """,
        "-shared",
        "-fPIC",
    )
    program = f"""
    import ctypes, os
    driver, late = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("{late}")
    for symbol, function in (("name", driver.cuGetErrorName), ("sentence", driver.cuGetErrorString)):
        ctypes.c_void_p.in_dll(late, symbol).value = ctypes.cast(function, ctypes.c_void_p).value
    class Late:
        def __del__(self, name=driver.cuGetErrorName, text=ctypes.c_char_p(), byref=ctypes.byref, write=os.write):
            write(1, b"%d %s\\n" % (name(100, byref(text)), text.value))
    driver.late = Late()
    assert driver.cuInit(0) == 0
    """
    settings = EmulatorSettings(log=str(tmp_path / "calls")) if watches else None
    done = emulated(sys.executable, "-c", textwrap.dedent(program), settings=settings)
    names = f"0 CUDA_ERROR_DEINITIALIZED 0 {Result.DEINITIALIZED.sentence} 1 1"
    assert done.stdout.splitlines() == ["0 CUDA_ERROR_NO_DEVICE", names], done.stderr


def test_changed_library_file_is_rewritten(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cache"))
    path = library_files.folder() / library_files.SONAME
    good = path.read_bytes()
    path.write_bytes(good[:-1] + b"x")
    assert library_files.folder() == path.parent
    assert path.read_bytes() == good
    path.chmod(0o777)
    assert library_files.folder() == path.parent
    assert path.stat().st_mode & 0o022 == 0


def test_folder_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cache"))
    library_files.folder().chmod(0o777)
    with pytest.raises(CujitError):
        library_files.folder()


def test_file_is_an_elf_library_for_both_processors() -> None:
    names = list(exports())
    for machine, number in (("x86_64", 62), ("aarch64", 183)):
        elf = read_elf(write_library("libcuda.so.1", names, b"\0" * 64, ["text"], machine))
        assert (elf.type, elf.machine) == (3, number)
        assert {symbol.name for symbol in elf.symbols(".dynsym") if symbol.section} == {*names, "cujit_table"}
        sections = {section.name: section for section in elf.sections}
        dynamic = dict(struct.iter_unpack("<QQ", elf.content(sections[".dynamic"])))
        strings = elf.content(sections[".dynstr"])
        assert strings[dynamic.pop(14) :].startswith(b"libcuda.so.1\0")  # DT_SONAME
        places = {4: ".hash", 5: ".dynstr", 6: ".dynsym", 7: ".rela.dyn"}
        sizes = {8: sections[".rela.dyn"].size, 9: 24, 10: len(strings), 11: 24, 0: 0}
        assert dynamic == {tag: sections[name].offset for tag, name in places.items()} | sizes
        assert {name: (each.type, each.flags, each.entry_bytes) for name, each in sections.items()} == {
            "": (0, 0, 0), ".hash": (5, 2, 4), ".dynsym": (11, 2, 24), ".dynstr": (3, 2, 0), ".rela.dyn": (4, 2, 24),
            ".text": (1, 6, 0), ".dynamic": (6, 3, 16), ".data": (1, 3, 0), ".shstrtab": (3, 0, 0),
        }  # fmt: skip
        linked = {name: elf.sections[each.link].name for name, each in sections.items()}
        assert linked[".hash"] == linked[".rela.dyn"] == ".dynsym"
        assert linked[".dynsym"] == linked[".dynamic"] == ".dynstr"
        assert sections[".dynsym"].info == 1  # the first symbol that is not local
    with pytest.raises(UnsupportedError):
        write_library("libcuda.so.1", names, b"", [], "riscv64")


# What an assembler makes of what the code is meant to be: `shared_library` has the numbers alone.
_ON_AARCH64 = """
common:
  stp x29, x30, [sp, #-224]!
  stp x0, x1, [sp, #16]
  stp x2, x3, [sp, #32]
  stp x4, x5, [sp, #48]
  stp x6, x7, [sp, #64]
  str x8, [sp, #80]
  stp q0, q1, [sp, #96]
  stp q2, q3, [sp, #128]
  stp q4, q5, [sp, #160]
  stp q6, q7, [sp, #192]
  mov x0, x17
  adrp x1, #{table_page}
  add x1, x1, #{table_in_page}
  ldr x9, [x1, #{resolve}]
  blr x9
  mov x17, x0
  ldp q6, q7, [sp, #192]
  ldp q4, q5, [sp, #160]
  ldp q2, q3, [sp, #128]
  ldp q0, q1, [sp, #96]
  ldr x8, [sp, #80]
  ldp x6, x7, [sp, #64]
  ldp x4, x5, [sp, #48]
  ldp x2, x3, [sp, #32]
  ldp x0, x1, [sp, #16]
  ldp x29, x30, [sp], #224
  br x17
  .zero 4
  mov w0, #999
  ret
  .zero 8
  ret
"""


def test_aarch64_code_matches_an_assembler(tmp_path: Path) -> None:
    names = [f"function{number}" for number in range(1500)]  # The slots of so many lie on several pages.
    file = read_elf(write_library("lib.so", names, bytes.fromhex("c0035fd6"), ["text", "more"], "aarch64"))
    places = {symbol.name: symbol.value for symbol in file.symbols(".dynsym")}
    text, table = file.section(".text"), places["cujit_table"]
    assert text is not None
    slots = table + ctypes.sizeof(BootTable)

    def page(of: int, at: int) -> int:
        return (of & ~0xFFF) - (at & ~0xFFF)

    lines = []
    for k, each in enumerate(names):
        at, slot = places[each], slots + 8 * k
        lines.append(f"adrp x16, #{page(slot, at)}\n ldr x17, [x16, #{slot & 0xFFF}]\n br x17\n .zero 4\n")
    lines += [f"mov w17, #{k}\n b common\n .zero 8\n" for k in range(len(names))]
    here = text.offset + 32 * len(names) + 11 * 4
    resolve = BootTable.resolve.offset
    lines.append(_ON_AARCH64.format(table_page=page(table, here), table_in_page=table & 0xFFF, resolve=resolve))
    in_c = f"__asm__({json.dumps('.text' + chr(10) + ''.join(lines))});"
    made = compiled(tmp_path / "code.o", in_c, "-c", "-target", "aarch64-linux-gnu")
    wanted = read_elf(made.read_bytes())
    (code,) = (section for section in wanted.sections if section.name == ".text")
    assert file.content(text) == wanted.content(code)


def test_folder_with_a_path_separator_stores_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("two words", "a:b", "$ORIGIN"):
        monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / name))
        done = emulated(sys.executable, "-c", BINDINGS)
        assert (done.stdout.split()[0], done.stderr) == ("CUDA_SUCCESS", "")
        assert library_files.root_folder() == Path(f"/tmp/cujit-{os.getuid()}/emulator")


def test_unwritable_cache_moves_the_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_CACHE_DIR", "/proc/cannot")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the cache, which goes on without its files
        assert python(BINDINGS).split()[0] == "CUDA_SUCCESS"


def test_folders_of_modules_may_be_many(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    many = [str(tmp_path / f"{number}{'x' * 99}é") for number in range(80)]
    monkeypatch.setattr(sys, "path", [*sys.path, *many])
    last = "import sys; assert sys.path[-1] == " + ascii(many[-1])
    program = f"import ctypes; assert ctypes.CDLL('libcuda.so.1').cuInit(0) == 0; {last}"
    assert python(program, EmulatorSettings()) == ""  # in a process that starts anew, with the folders


def test_symbols_of_a_program_stay_its_own() -> None:
    program = """
    import ctypes
    attach, open = 1, 2
    before = {*globals(), "before"}
    assert ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
    print(attach, open, {*globals()} - before - {"__warningregistry__"})
    """
    assert python(program) == "1 2 set()\n"


def test_interrupt_reaches_the_thread_that_called_the_driver() -> None:
    program = """
    import _thread, threading
    from cuda.bindings import driver as d
    d.cuInit(0)
    d.cuCtxSetCurrent(d.cuDevicePrimaryCtxRetain(0)[1])
    adds = "add.u64 %a, %a, 1; " * 40
    kernels = "".join(
        f".entry k{i}(.param .u64 p) {{ .reg .u64 %a; ld.param.u64 %a, [p]; {adds} ret; }}" for i in range(4000)
    )
    threading.Timer(0.2, _thread.interrupt_main).start()
    try:
        print(d.cuModuleLoadData(f".version 8.0 .target sm_90 .address_size 64 {kernels}".encode()))
    except KeyboardInterrupt:
        print("interrupted", d.cuCtxSynchronize()[0].name)
    """
    done = emulated(sys.executable, "-c", textwrap.dedent(program))
    assert (done.stdout, done.stderr) == ("interrupted CUDA_SUCCESS\n", "")


GIVING_BACK = """
import ctypes, os, sys
driver, context, library = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
driver.cuInit(0)
driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
driver.cuCtxSetCurrent(context)
ptx = b".version 8.0\\n.target sm_80\\n.address_size 64\\n.visible .entry k() { ret; }\\n"
driver.cuLibraryLoadData(ctypes.byref(library), ptx, None, None, 0, None, None, 0)
class Last:
    def __del__(self, driver=driver, library=library, write=os.write, has_ended=sys.is_finalizing):
        count = driver.cuLibraryGetModule(None, library)
        write(1, b"%d %d %d" % (has_ended(), driver.cuLibraryUnload(library), count))
last = Last()
"""


def test_frees_at_python_exit_are_accepted() -> None:
    done = emulated(sys.executable, "-c", GIVING_BACK)
    assert done.stdout == f"1 0 {int(Result.DEINITIALIZED)}", done.stdout + done.stderr
