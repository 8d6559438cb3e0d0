"""The run-time in C: what the package has is what its sources give, and Python sees it as it is; it is sound."""

from __future__ import annotations

import functools
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from cujit.devices.cpu.native import library
from cujit.errors import UnsupportedError
from raising import raises
from runtime import SOURCES, shared

ROOT = Path(__file__).parents[3]
TOOL = ROOT / "tools" / "runtime.py"

found = importlib.util.find_spec("ziglang")
ZIG = Path(found.origin).parent if found is not None and found.origin is not None else Path()
needs_clang = pytest.mark.skipif(found is None or not TOOL.exists(), reason="needs the clang of `ziglang`")


def make(directory: Path, sources: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOOL), str(directory), str(sources)]
    return subprocess.run(command, capture_output=True, text=True)


def write_shared(directory: Path) -> Path:
    """Write the header that the C of the run-time shares with Python."""
    header = directory / "shared.h"
    header.write_text(shared())
    return header


@needs_clang
@pytest.mark.parametrize("sources", [SOURCES], ids=["run-time"])
def test_packaged_bitcode_matches_its_sources(tmp_path: Path, sources: Path) -> None:
    made = make(tmp_path, sources)
    assert made.returncode == 0, made.stderr
    there = {path.relative_to(tmp_path).as_posix(): path.read_bytes() for path in tmp_path.rglob("*.*")}
    kept = {path.relative_to(sources).as_posix(): path.read_bytes() for path in sources.rglob("*.[bt]*")}
    assert there == kept, "run `make runtime`"


@pytest.mark.parametrize(("was", "now"), [("i32 width, height", "i32 height, width"), ("i64 row,", "i32 row,")])
def test_structure_that_differs_in_python_does_not_compile(tmp_path: Path, was: str, now: str) -> None:
    header = write_shared(tmp_path)
    compiler = shutil.which("clang") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no compiler here")
    command = [compiler, "-fsyntax-only", "-I", str(tmp_path), "-I", str(SOURCES), str(SOURCES / "heap.c")]
    assert subprocess.run(command, capture_output=True).returncode == 0
    assert was in header.read_text()
    header.write_text(header.read_text().replace(was, now))
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 1
    assert "as Python has it" in made.stderr


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_part_exists_for_each_processor(machine: str) -> None:
    assert {path.stem for path in (SOURCES / machine).glob("*.bc")} == {
        part.name for part in library.PARTS if part.text is None
    }


def test_unsupported_processor_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_RUNTIME", tmp_path)
    with raises(UnsupportedError, "unsupported", "CPU", "aarch64") as caught:
        library.PARTS[0].bitcode()
    assert "x86_64 and aarch64" in str(caught.value.help)


NATIVE = ROOT / "tests" / "native"
PROGRAMS = {
    "threads": ("faults", "heap", "output", "pool", "trace"),
    "turns": ("faults", "pool", "blocks"),
    "checked": ("faults", "pool", "blocks", "checks", "copies", "output"),
    "profiled": ("faults", "pool", "profile"),
    "samples": ("faults", "pool", "textures"),
    "landing": ("faults", "pool", "copies", "pending"),
    "known": ("faults", "pool", "checked_launch"),
    "lanes": ("warps", "matrix", "rows", "directed", "copies"),
    "tensors": ("faults", "pool", "copies", "pending", "tensor_memory", "tensor_product"),
}
"""What runs parts of the run-time by itself: the parts that each has."""


def test_every_part_is_run_under_sanitizers() -> None:
    assert {part for parts in PROGRAMS.values() for part in parts} == {path.stem for path in SOURCES.glob("*.c")}


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for the parts that several programs have, compiled once for each sanitizer and compiler."""
    directory = tmp_path_factory.mktemp("objects")
    write_shared(directory)
    return directory


@pytest.mark.parametrize("name", ["threads", "turns", "profiled", "landing", "known"])
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_run_time_is_sound_under_sanitizers(sanitizer: str, name: str, objects: Path, tmp_path: Path) -> None:
    compiler = compiler_with(sanitizer)
    hold(name, sanitizer, [compiler], compiler, objects, tmp_path)


FOREIGN = {
    "address,undefined": ["-fno-sanitize=function"],
    "thread": ["-mllvm", "-tsan-instrument-memintrinsics=false"],
}
"""What clang instruments by calls that gcc's run-time does not have: for ``memset`` and its like that has its own."""


@needs_clang
@pytest.mark.parametrize(
    ("sanitizer", "name"),
    [*(("address,undefined", name) for name in ("checked", "samples", "lanes", "tensors")), ("thread", "checked")],
)
def test_code_for_clang_passes_the_sanitizers(sanitizer: str, name: str, objects: Path, tmp_path: Path) -> None:
    """The wheel's clang has no sanitizers of its own, and calls those of the compiler that links.

    It compiles in a third of the time without its optimiser, which leaves all accesses to be looked at.
    """
    clang = [sys.executable, "-m", "ziglang", "clang", "-isystem", str(ZIG / "lib" / "include")]
    hold(name, sanitizer, clang, compiler_with(sanitizer), objects, tmp_path, "-O0", *FOREIGN[sanitizer])


def hold(name: str, sanitizer: str, compiler: list[str], linker: str, objects: Path, folder: Path, *more: str) -> None:
    options = ["-std=gnu11", "-D_GNU_SOURCE", "-g", "-O1", "-fwrapv", "-fno-strict-aliasing", f"-fsanitize={sanitizer}"]
    included = ["-fno-sanitize-recover=all", f"-I{objects}", f"-I{SOURCES}", *more, "-c"]
    parts = objects / f"{sanitizer} {len(compiler)}"
    parts.mkdir(exist_ok=True)
    missing = [SOURCES / f"{part}.c" for part in PROGRAMS[name] if not (parts / f"{part}.o").exists()]
    for sources, directory in (missing, parts), ([NATIVE / f"{name}.c"], folder):
        if sources:
            run([*compiler, *options, *included, *map(str, sources)], directory)
    wrapped = ["-Wl,--wrap=malloc"] if name == "turns" else []
    linked = [*(str(parts / f"{part}.o") for part in PROGRAMS[name]), f"{folder / name}.o"]
    run([linker, f"-fsanitize={sanitizer}", *wrapped, *linked, "-o", name, "-lpthread", "-lm"], folder)
    done = subprocess.run([str(folder / name)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "good\n"), done.stderr[:4000]


def compiler_with(sanitizer: str) -> str:
    compiler = shutil.which("clang") or shutil.which("gcc")
    if compiler is None or not has_sanitizer(compiler, sanitizer):
        pytest.skip("no compiler here has it")
    return compiler


def run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@functools.cache
def has_sanitizer(compiler: str, sanitizer: str) -> bool:
    """Whether a program that does nothing compiles and runs with it."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = Path(folder, "nothing.c"), Path(folder, "nothing")
        source.write_text("int main(void) { return 0; }\n")
        command = [compiler, f"-fsanitize={sanitizer}", str(source), "-o", str(program)]
        built = subprocess.run(command, capture_output=True)
        return built.returncode == 0 and subprocess.run([str(program)], capture_output=True).returncode == 0
