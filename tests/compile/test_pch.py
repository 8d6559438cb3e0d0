"""Precompiled headers: made when asked for or when they pay, never stale, and never seen in a result."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from cujit.artifact import Artifact
from cujit.cache.cache import Cache
from cujit.compiler.inputs.source import Source
from cujit.compiler.jobs import CompileJob
from cujit.compiler.keys.maker import KeyMaker
from cujit.compiler.options.values import Options
from cujit.compiler.request import Request
from cujit.compiler.runner import Runner
from cujit.errors import CompileWarning
from cujit.toolchain import nvrtc, precompiled
from cujit.toolchain.precompiled import PrecompiledHeaders
from cujit.toolchain.toolset import Toolchain

KERNEL = "namespace {{ __device__ int own; }} __global__ void k(int* p) {{ *p = VALUE + {} + own; own = 3; }}"
ONE, TWO = "#define VALUE 1\nstruct S { int x; };\n", "#define VALUE 2\nstruct S { int x; };\n"


@pytest.fixture(autouse=True)
def headers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[PrecompiledHeaders]:
    """Precompile headers of any size, in a directory of the test's."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(precompiled, "_AUTOMATIC_S", 0.0)
    monkeypatch.setattr(precompiled, "_FREE_BYTES", 0)
    made = PrecompiledHeaders()
    monkeypatch.setattr("cujit.compiler.backends.nvrtc.precompiled_headers", lambda: made)
    monkeypatch.setattr(precompiled, "precompiled_headers", lambda: made)
    yield made
    made.close()
    assert os.listdir(tmp_path / "temporary") == []


@pytest.fixture
def statuses(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """What each compile made of its precompiled header: 0 where it wrote one, None where it did without."""
    seen: list[int | None] = []
    real = nvrtc.nvrtcCompileProgram

    def compiled(program: int, count: int, options: list[bytes]) -> nvrtc.Answer:
        answer = real(program, count, options)
        is_used = any(option.startswith(b"--pch-dir") for option in options)
        seen.append(int(nvrtc.nvrtcGetPCHCreateStatus(program)[0]) if is_used else None)
        return answer

    monkeypatch.setattr(nvrtc, "nvrtcCompileProgram", compiled)
    return seen


NOT_ATTEMPTED = nvrtc.nvrtcResult.NVRTC_ERROR_NO_PCH_CREATE_ATTEMPTED


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(Toolchain(), Cache(tmp_path / "cache"))


def varied(runner: Runner, number: int, header: str, **options: object) -> Artifact:
    source = Source.cuda('#include "value.h"\n' + KERNEL.format(number), headers={"value.h": header})
    return runner.get(CompileJob(Request.of(source, "ptx", None, (), Options.of(options, {}), runner)))


def test_third_compile_precompiles_without_changing_results(
    runner: Runner, statuses: list[int | None], tmp_path: Path
) -> None:
    made = [varied(runner, number, ONE) for number in range(5)]
    assert statuses == [None, None, 0, NOT_ATTEMPTED, NOT_ATTEMPTED]
    plain = Runner(Toolchain(), Cache(tmp_path / "others"))
    for number, image in enumerate(made):
        other = varied(plain, number, ONE, pch=False)
        assert (other.data, other.log, other.names) == (image.data, image.log, image.names)
    assert statuses[5:] == [None] * 5


def test_pch_true_precompiles_the_first_compile_with_equal_key(runner: Runner, statuses: list[int | None]) -> None:
    first = varied(runner, 0, ONE, pch=True)
    varied(runner, 1, ONE, pch=True)
    assert statuses == [0, NOT_ATTEMPTED]
    again = varied(runner, 0, ONE)
    assert len(statuses) == 2, "with and without it is one key"
    assert again.data == first.data
    varied(Runner(Toolchain()), 2, ONE, pch=True)
    assert statuses[2:] == [NOT_ATTEMPTED], "without a cache too"


def test_header_of_equal_size_and_time_is_distinguished(
    runner: Runner, tmp_path: Path, statuses: list[int | None]
) -> None:
    assert varied(runner, 0, ONE, pch=True).data != varied(runner, 0, TWO, pch=True).data
    path = tmp_path / "value.h"

    def of_file(text: str) -> bytes:
        path.write_text(text)
        os.utime(path, (1e9, 1e9))
        source = Source.cuda("#include <value.h>\n" + KERNEL.format(7), include=[str(tmp_path)])
        return runner.get(CompileJob(Request.of(source, "ptx", None, (), Options(pch=True), runner))).data

    assert of_file(ONE) != of_file(TWO)
    assert statuses == [0] * 4


def test_headers_changed_during_a_compile_are_not_kept(
    runner: Runner, headers: PrecompiledHeaders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KeyMaker, "is_still", lambda *_: False)
    varied(runner, 0, ONE, pch=True)
    assert headers._directories == {}


def test_too_small_heap_grows_with_a_warning(
    runner: Runner, headers: PrecompiledHeaders, statuses: list[int | None]
) -> None:
    headers._heap_bytes = 0
    nvrtc.nvrtcSetPCHHeapSize(1 << 20)
    big = "#include <cuda_fp16.h>\n" + ONE
    with pytest.warns(CompileWarning, match=r"NVRTC's heap was too small. It has \d+ MiB for the next compile"):
        varied(runner, 0, big, pch=True)
    varied(runner, 1, big, pch=True)
    varied(runner, 2, big, pch=True)
    assert statuses == [nvrtc.nvrtcResult.NVRTC_ERROR_PCH_CREATE_HEAP_EXHAUSTED, 0, NOT_ATTEMPTED]
    assert nvrtc.nvrtcGetPCHHeapSize()[1] >= headers._heap_bytes > 1 << 20


def test_heap_is_not_replaced_during_another_compile(headers: PrecompiledHeaders) -> None:
    nvrtc.nvrtcSetPCHHeapSize(1 << 20)
    headers._heap_bytes = 1 << 20
    with headers.of("one", True):
        size = nvrtc.nvrtcGetPCHHeapSize()
        headers._heap_bytes = 1 << 22
        with headers.of("two", True) as other:
            assert other.arguments
        assert nvrtc.nvrtcGetPCHHeapSize() == size
    with headers.of("two", True):
        assert nvrtc.nvrtcGetPCHHeapSize()[1] >= 1 << 22


@pytest.mark.parametrize("options", [{"lineinfo": True}, {"pch": False}], ids=str)
def test_precompiled_headers_are_skipped_for_paths_or_by_option(
    runner: Runner, options: dict[str, object], statuses: list[int | None]
) -> None:
    for number in range(4):
        varied(runner, number, ONE, **options)
    assert statuses == [None] * 4


def test_process_keeps_two_and_a_child_creates_its_own(headers: PrecompiledHeaders) -> None:
    for name in ("one", "two", "three", "two"):
        with headers.of(name, True):
            pass
    assert sorted(os.listdir(headers._root)) == ["three", "two"]
    root = headers._root
    if not (child := os.fork()):
        headers.after_fork()
        headers.close()
        os._exit(0 if os.path.isdir(root) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_directories_of_dead_processes_are_removed(headers: PrecompiledHeaders, tmp_path: Path) -> None:
    (tmp_path / "temporary" / "cujit-pch-dead" / "x").mkdir(parents=True)
    holder = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(f"""
            import fcntl, os, time
            os.mkdir({str(tmp_path / "temporary" / "cujit-pch-alive")!r})
            fd = os.open({str(tmp_path / "temporary" / "cujit-pch-alive")!r}, os.O_RDONLY)
            fcntl.flock(fd, fcntl.LOCK_EX)
            print(flush=True)
            time.sleep(60)
        """)], stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout is not None
    holder.stdout.readline()
    with headers.of("one", True):
        kept = {
            name
            for name in os.listdir(tmp_path / "temporary")
            if not os.path.samefile(tmp_path / "temporary" / name, headers._root)
        }
    holder.kill()
    holder.wait()
    holder.stdout.close()
    assert kept == {"cujit-pch-alive"}
    os.rmdir(tmp_path / "temporary" / "cujit-pch-alive")


def test_full_disk_costs_only_time(headers: PrecompiledHeaders, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    with headers.of("one", True) as compile:
        assert compile.arguments == []
    monkeypatch.setattr(precompiled, "_FREE_BYTES", 1 << 62)
    assert not headers._pays("one")


NO_ROOM = """
import resource, sys
import cujit
from cujit.toolchain import precompiled

precompiled._AUTOMATIC_S = precompiled._FREE_BYTES = 0
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
text = '#include "own.h"\\nextern "C" __global__ void k(int *p) {{ *p = {}; }}'
for number in range(3):
    source = cujit.Source.cuda(text.format(number), headers={"own.h": "struct S { int x; };"})
    cujit.compile(source, arch="sm_90", to="ptx", **eval(sys.argv[1]))
print("all compiled")
"""


@pytest.mark.parametrize(("options", "warnings"), [("{}", 0), ("{'pch': True}", 1)])
def test_compile_continues_if_a_header_has_no_room(options: str, warnings: int, tmp_path: Path) -> None:
    environment = {**os.environ, "CUJIT_CACHE_DIR": str(tmp_path / "cache"), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", NO_ROOM, options]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "all compiled\n"
    assert done.stderr.count("CompileWarning: the headers are not precompiled because ") == warnings
