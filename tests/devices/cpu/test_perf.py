"""``CUJIT_PERF``: perf and gdb see kernels of the CPU device by name and line, out of the cache too."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import compiler_page
from cujit.devices.cpu.frontend.layout import ModuleLayout
from cujit.devices.cpu.ir.refusals import Refusals
from cujit.devices.cpu.pipeline import ir_of, prepare
from cujit.devices.cpu.run.dwarf import origin_of
from cujit.devices.cpu.run.source_map import Lines
from cujit.devices.jit import emit_object
from cujit.devices.line_table import code_lines
from cujit.devices.shapes import Dim3
from cujit.errors import FileError, OptionError
from cujit.formats.elf import read_elf
from cujit.formats.ptx.parser import parse
from processes import python

PTX = compiler_page.KERNEL
FLAGS = ("-k", "CLOCK_MONOTONIC")
PAGE = (Path(__file__).parents[3] / "docs" / "cpu.md").read_text()

SUMS = """
import ctypes, os, sys
from cujit import cpu, load
device = cpu()
sums = load({ptx!r}, device)["sums"]
data, out = device.zeros(128 * 512, "f4"), device.zeros(512, "f4")
for _ in range({times}):
    sums[512, 64](data, out)
"""
MAP = "print(open(f'/tmp/perf-{os.getpid()}.map').read())\nos.unlink(f'/tmp/perf-{os.getpid()}.map')\n"


@pytest.fixture(autouse=True)
def _few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the folder of dumps to each test; its name is in the keys of kernels, so that each test makes its own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("CUJIT_PERF", raising=False)


def script(end: str = "", begin: str = "", *, times: int = 1, ptx: str = PTX) -> str:
    return begin + SUMS.format(ptx=ptx, times=times) + end


def run(code: str, asked: str = "1") -> str:
    """Run Python in a process of its own, and give what it prints."""
    done = python(code, environment={"CUJIT_PERF": asked})
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def folder(tmp_path: Path) -> Path:
    return tmp_path / f"cujit-perf-{os.geteuid()}"


class Dumped(NamedTuple):
    """A function of a dump: its code, and the file and line of each address that has one."""

    address: int
    code: bytes
    lines: list[tuple[int, str, int]]


def read_dump(path: Path) -> dict[str, Dumped]:
    """Read a dump as "jitdump-specification.txt" of Linux has it."""
    data = path.read_bytes()
    magic, version, size, machine, _, pid, _, flags = struct.unpack_from("<IIIIIIQQ", data)
    machines = {"x86_64": 62, "aarch64": 183}
    assert (magic, version, size, machine, flags) == (0x4A695444, 1, 40, machines[os.uname().machine], 0)
    assert path.name == f"jit-{pid}.dump"
    at, count_of_functions, times = size, 0, []
    found: dict[str, Dumped] = {}
    lines: list[tuple[int, str, int]] = []
    while at < len(data):
        kind, size, when = struct.unpack_from("<IIQ", data, at)
        body = data[at + 16 : at + size]
        times.append(when)
        if kind == 2:
            begin, count = struct.unpack_from("<QQ", body)
            lines = read_lines(body[16:], count)
        else:
            assert kind == 0
            owner, _, vma, begin, length, number = struct.unpack_from("<IIQQQQ", body)
            name, _, code = body[40:].partition(b"\0")
            assert (owner, vma, length) == (pid, begin, len(code))
            count_of_functions += 1
            assert number == count_of_functions
            assert all(begin <= address < begin + length for address, _, _ in lines)
            found[name.decode()] = Dumped(begin, code, lines)
            lines = []
        at += size
    assert at == len(data)
    assert times == sorted(times)
    return found


def read_lines(body: bytes, count: int) -> list[tuple[int, str, int]]:
    rows = []
    for _ in range(count):
        address, line, discriminator = struct.unpack_from("<QII", body)
        file, _, body = body[16:].partition(b"\0")
        assert discriminator == 0
        rows.append((address, file.decode(), line))
    assert not body
    return rows


def test_map_and_dump_have_functions_and_ptx_lines_if_cached(tmp_path: Path) -> None:
    for _ in "made", "out of the cache":
        rows = [line.split(" ", 2) for line in run(script(MAP)).splitlines() if line]
        names = [name for _, _, name in rows]
        assert names.count("sums 64x1x1") == 1
        assert "cujit_enter" in names
        (dump,) = folder(tmp_path).glob("jit-*.dump")
        dumped = read_dump(dump)
        dump.unlink()
        assert all(int(at, 16) == dumped[name].address for at, _, name in rows if name.startswith("sums"))
        assert all(int(size, 16) == len(dumped[name].code) for _, size, name in rows if name.startswith("sums"))
        lines = dumped["sums 64x1x1"].lines
        files = {file for _, file, _ in lines}
        assert [Path(file).read_text() for file in files] == [PTX]
        texts = {PTX.splitlines()[line - 1].strip() for _, _, line in lines}
        assert {"ld.global.u32 x, [at];", "add.u32 x, x, y;", "st.global.u32 [at], x;"} <= texts
        for file in files:
            Path(file).unlink()  # a later process writes it again


SOURCED = PTX.replace("    add.u32 x", "    .loc 1 77 0\n    add.u32 x", 1) + '.file 1 "/somewhere/sums.cu"\n'


@pytest.mark.parametrize(("asked", "begins"), [("1", "/somewhere/sums.cu"), ("ptx", None)])
def test_lines_are_those_of_the_source_unless_ptx_is_requested(tmp_path: Path, asked: str, begins: str | None) -> None:
    run(script(MAP, ptx=SOURCED), asked)
    (dump,) = folder(tmp_path).glob("jit-*.dump")
    (ptx,) = folder(tmp_path).glob("*.ptx")
    lines = {(file, line) for _, file, line in read_dump(dump)["sums 64x1x1"].lines}
    added = SOURCED.splitlines().index("    add.u32 x, x, y;") + 1
    assert (("/somewhere/sums.cu", 77) in lines) == (begins is not None)
    assert ((str(ptx), added) in lines) == (begins is None)


def test_lines_keep_the_code_unchanged() -> None:
    module, refusals = parse(PTX, name="sums"), Refusals()
    body = prepare(module.entries[0], ModuleLayout(module, refusals), refusals)
    lines = Lines(lambda: module, PTX)
    origin = origin_of("sums", lines, "/sums.ptx", of_source=True)
    plain = emit_object(ir_of(body, Dim3(64)), kernel=True)
    lined = emit_object(ir_of(body, Dim3(64), origin=origin), kernel=True)
    texts = []
    for data in plain, lined:
        elf = read_elf(data)
        section = elf.section(".text")
        assert section is not None
        texts.append(elf.content(section))
    assert texts[0] == texts[1]
    assert not code_lines(plain)
    assert {row.file for row in code_lines(lined)} == {"/sums.ptx"}


def test_nothing_is_written_by_default(tmp_path: Path) -> None:
    gone = """
assert not os.path.exists(f'/tmp/perf-{os.getpid()}.map')
assert 'cujit.devices.perf_files' not in sys.modules
"""
    run(script(gone), "")
    run(script(gone), "0")
    assert not folder(tmp_path).exists()


def test_files_of_dead_processes_are_removed() -> None:
    begin = "import os\npath = f'/tmp/perf-{os.getpid()}.map'\nopen(path, 'w').write('1 1 other\\n')\n"
    assert "1 1 other\n" in run(script(MAP, begin))
    assert "1 1 other\n" not in run(script(MAP, begin + "os.utime(path, (0, 0))\n"))


def test_forked_child_has_its_own_map_and_dump(tmp_path: Path) -> None:
    end = f"""
os.unlink(f'/tmp/perf-{{os.getpid()}}.map')
if not os.fork():
    sums[512, 128](data, out)
    {MAP.replace(chr(10), ";")}
    sys.stdout.flush(); os._exit(0)
assert not os.wait()[1]
"""
    code = script(end, ptx=PTX.replace("tile[64]", "tile[128]"))
    names = [line.split(" ", 2)[2] for line in run(code).splitlines() if line]
    assert names.count("sums 64x1x1") == names.count("sums 128x1x1") == 1
    dumps = [read_dump(path) for path in folder(tmp_path).glob("jit-*.dump")]
    assert sorted("sums 128x1x1" in dump for dump in dumps) == [False, True]


def failing() -> str:
    """Launch, and print the error."""
    end = "    except Exception as e: print(type(e).__name__, e)"
    return script().replace("    sums[", "    try:\n     sums[") + end


def test_invalid_value_is_an_error() -> None:
    said = run(failing(), "yes")
    assert said.startswith(f"{OptionError.__name__} CUJIT_PERF is 'yes', expected 0, 1 or ptx")


def test_invalid_folder_is_an_error(tmp_path: Path) -> None:
    folder(tmp_path).symlink_to(tmp_path)
    assert run(failing()).startswith(FileError.__name__)


def gdb(tmp_path: Path, *commands: str, code: str | None = None) -> str:
    """Run gdb over a process, and give what it says."""
    if shutil.which("gdb") is None:
        pytest.skip("gdb is not installed")
    file = tmp_path / "script.py"
    file.write_text(script() if code is None else code)
    given = ["set breakpoint pending on", "set pagination off", *commands]
    words = [word for command in given for word in ("-ex", command)]
    done = subprocess.run(
        ["gdb", "-nx", "-batch", *words, "--args", sys.executable, str(file)],
        env={**os.environ, "CUJIT_PERF": "1"}, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    if "ptrace" in done.stdout + done.stderr:
        pytest.skip("gdb may not look into processes here")
    return done.stdout


def test_gdb_stops_in_a_kernel_by_name_and_line(tmp_path: Path) -> None:
    line = PTX.splitlines().index("    add.u32 x, x, y;") + 1
    for _ in "made", "out of the cache":
        # The file of the text has its name when the kernel is there.
        names = [path.name for path in folder(tmp_path).glob("*.ptx")]
        at_line = ("delete", f"break {names[0]}:{line}", "continue", "bt") if names else ()
        said = gdb(tmp_path, "break sums", "run", "bt", *at_line)
        assert "hit Breakpoint 1, sums () at" in said
        assert "4\t.visible .entry sums(.param .u64 from, .param .u64 to)" in said
        stack, _, behind = said.partition("#0")[2].partition("hit Breakpoint 2")
        assert "sums ()" in stack
        assert "cujit_pool_" in stack  # the thread that launched, or one that helps it
        assert "_PyEval_EvalFrame" in stack
        if at_line:
            assert f"{line}\t    add.u32 x, x, y;" in behind
            assert "#0  sums.region.1 () at" in behind
            assert "\n#1  sums () at" in behind


def test_unwinding_code_is_equal_and_has_unwind_tables() -> None:
    text = "declare void @abort()\ndefine void @k(ptr %p) noinline {\n  call void @abort()\n  ret void\n}\n"
    plain, unwinds = (read_elf(emit_object(text, unwinds=unwinds)) for unwinds in (False, True))
    assert (plain.section(".eh_frame") is None, unwinds.section(".eh_frame") is None) == (True, False)
    code = [elf.content(section) for elf in (plain, unwinds) if (section := elf.section(".text")) is not None]
    assert len(code) == 2
    assert code[0] == code[1]


def test_perf_reports_kernels_by_name_and_by_line(tmp_path: Path) -> None:
    if shutil.which("perf") is None:
        pytest.skip("perf is not installed")
    file, data, whole = tmp_path / "script.py", tmp_path / "perf.data", tmp_path / "whole.data"
    file.write_text(script(times=500))

    def perf(*words: str, asked: str = "1") -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "CUJIT_PERF": asked}
        return subprocess.run(["perf", *words], env=environment, capture_output=True, text=True, timeout=300)

    recorded = perf("record", "-q", *FLAGS, "-e", "cpu-clock:u", "-o", str(data), sys.executable, str(file))
    if recorded.returncode:
        pytest.skip(f"perf records nothing here: {recorded.stderr[-200:]}")
    report = ("report", "--stdio", "--percent-limit", "0.5")
    assert "sums 64x1x1" in perf(*report, "--sort", "symbol", "-i", str(data)).stdout
    assert perf("inject", "--jit", "-i", str(data), "-o", str(whole)).returncode == 0
    assert "sums 64x1x1" in perf(*report, "--sort", "symbol", "-i", str(whole)).stdout
    (ptx,) = folder(tmp_path).glob("*.ptx")
    notes = perf("annotate", "--stdio", "-l", "-i", str(whole), "-s", "sums 64x1x1").stdout
    if "Disassembly" not in notes:
        pytest.skip("this perf disassembles nothing")
    assert f"{ptx.name}:" in notes
    for path in Path("/tmp").glob("perf-*.map"):
        if "sums 64x1x1" in path.read_text(errors="replace") and path.stat().st_uid == os.geteuid():
            path.unlink()


def test_page_records_as_these_tests_do() -> None:
    assert f"perf record {' '.join(FLAGS)} " in PAGE
    assert "set breakpoint pending on" in PAGE
