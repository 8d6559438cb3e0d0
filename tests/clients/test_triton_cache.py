"""Triton with cujit's cache behind it: who compiles, what reaches Triton's directory, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from cujit.cache.cache import Cache
from cujit.remote import push
from pages import shell
from remote.serving import Server, farm_in, running

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed: `make clients`")

PROGRAM = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import triton
import triton.language as tl
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def axpy(x, y, n, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = at < n
    tl.store(y + at, tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside), mask=inside)


@triton.jit
def wrong(x, y, n, SIZE: tl.constexpr):
    tl.static_assert(SIZE == 3)


def make(fn=axpy, **options):
    types = {"x": "*fp32", "y": "*fp32", "n": "i32", "SIZE": "constexpr"}
    source = ASTSource(fn=fn, signature=types, constexprs={"SIZE": 128})
    begin = time.perf_counter()
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    return made, time.perf_counter() - begin


def listen(**said):
    print(json.dumps({"hit": said["cache_hit"], "name": said["metadata"]["name"]}))


knobs.compilation.listener = listen
"""

Run = Callable[..., list[dict[str, Any]]]


class Machine:
    """A machine: a directory of Triton's, a cache of cujit's, and the variables that lead to them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(mode=0o700)
        self.triton, self.cache = root / "triton", root / "cujit"
        self.variables = {
            "TRITON_CACHE_MANAGER": "cujit.integrations.triton:CacheManager",
            "TRITON_CACHE_DIR": str(self.triton),
            "CUJIT_CACHE_DIR": str(self.cache),
            "HOME": str(root),
        }

    def run(self, code: str = "make()", **variables: str) -> subprocess.CompletedProcess[str]:
        program = self.root / f"{threading.get_ident()}.py"  # several ranks may start at once
        program.write_text(PROGRAM + code)
        environment = {**os.environ, **self.variables, **variables}
        return subprocess.run(
            [sys.executable, program], env=environment, capture_output=True, text=True, check=False, timeout=300
        )

    def hits(self, code: str = "make()", **variables: str) -> list[bool]:
        done = self.run(code, **variables)
        assert done.returncode == 0, done.stderr
        return [json.loads(line)["hit"] for line in done.stdout.splitlines()]

    def files(self) -> dict[str, bytes]:
        """What Triton could load, by its path in Triton's directory."""
        return {str(path.relative_to(self.triton)): path.read_bytes() for path in self.triton.glob("*/axpy.*")}

    def age(self, by_s: float = 7200) -> None:
        for path in (*self.triton.rglob("*"), self.triton):
            os.utime(path, (time.time() - by_s,) * 2)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "one")


@pytest.fixture
def other(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "two")


@pytest.fixture
def store(tmp_path: Path, machine: Machine) -> Iterator[tuple[Server, dict[str, str], Path]]:
    """A shared cache that has the kernel of ``machine``; with the variables of who trusts it, and its file of keys."""
    assert machine.hits() == [False]
    farm = farm_in(tmp_path)
    with running() as server:
        push(server.url, Cache(machine.cache).stores, farm.signer)
        variables = {"CUJIT_REMOTE": server.url, "CUJIT_TRUST": str(farm.trust), "CUJIT_REMOTE_WAIT_S": "5"}
        yield server, variables, farm.trust


def test_kernel_is_compiled_once_and_written_to_a_new_directory(machine: Machine) -> None:
    assert machine.hits("make(); make(); make(num_warps=8)") == [False, True, False]
    before = machine.files()
    shutil.rmtree(machine.triton)
    assert machine.hits(CUJIT_COMPILE="never") == [True]
    after = machine.files()
    assert len(after) == 7
    assert after.items() < before.items()


def test_one_of_eight_cold_ranks_compiles(machine: Machine) -> None:
    with ThreadPoolExecutor(8) as ranks:
        found = list(ranks.map(lambda _: machine.hits(), range(8)))
    assert sorted(found) == [[False], *[[True]] * 7]


def test_signed_entries_come_from_another_machine(
    store: tuple[Server, dict[str, str], Path], machine: Machine, other: Machine
) -> None:
    server, variables, _ = store
    assert other.hits(CUJIT_COMPILE="never", **variables) == [True]
    assert other.files() == machine.files()
    asked = len(server.asked)
    assert other.hits(CUJIT_COMPILE="never", **variables) == [True]
    assert len(server.asked) == asked


@pytest.mark.parametrize("damage", ["flip", "truncate", "other"])
def test_unsigned_entries_never_reach_the_directory(
    store: tuple[Server, dict[str, str], Path], other: Machine, damage: str
) -> None:
    server, variables, _ = store
    ((name, data),) = ((name, data) for name, data in server.files.items() if "/e/" in name)
    bad = {"flip": data[:-1] + bytes([data[-1] ^ 1]), "truncate": data[:-100], "other": data[224:]}[damage]
    server.files[name] = bad
    done = other.run(CUJIT_COMPILE="never", **variables)
    assert "NotCompiledError" in done.stderr
    assert other.files() == {}
    assert other.hits(**variables) == [False]


def test_entries_of_a_revoked_key_are_no_longer_used(
    store: tuple[Server, dict[str, str], Path], other: Machine
) -> None:
    _, variables, trust = store
    assert other.hits(CUJIT_COMPILE="never", **variables) == [True]
    keys = json.loads(trust.read_text())
    keys["keys"][0]["revoked"] = True
    trust.write_text(json.dumps(keys))
    assert "NotCompiledError" in other.run(CUJIT_COMPILE="never", **variables).stderr
    assert other.hits(**variables) == [False]


def test_pack_contains_triton_kernels(machine: Machine, other: Machine, tmp_path: Path) -> None:
    assert machine.hits() == [False]
    shell(f"cujit pack merge {machine.cache} -o {tmp_path / 'kernels.pack'}")
    assert other.hits(CUJIT_COMPILE="never", CUJIT_CACHE_ROOTS=str(tmp_path / "kernels.pack")) == [True]
    assert other.files() == machine.files()


def test_evicted_entries_are_removed_and_not_used(machine: Machine) -> None:
    assert machine.hits("make(); make(num_warps=8)") == [False, False]
    shell(f"cujit cache trim 0 --dir {machine.cache}")
    machine.age()
    assert machine.hits() == [False]
    assert len(list(machine.triton.glob("*/axpy.cubin"))) == 1


def test_used_entries_are_evicted_last(machine: Machine) -> None:
    assert machine.hits() == [False]
    (record,) = (path for path in (machine.cache / "e").rglob("*") if path.is_file())
    machine.age()
    os.utime(record, (0, 0))
    assert machine.hits(CUJIT_COMPILE="never") == [True]
    assert time.time() - record.stat().st_mtime < 600
    (listed,) = machine.triton.glob("*/__grp__axpy.json")
    assert time.time() - listed.stat().st_mtime < 600


def test_earlier_triton_entries_remain_and_are_stored(machine: Machine, other: Machine) -> None:
    del machine.variables["TRITON_CACHE_MANAGER"]
    machine.triton.mkdir(mode=0o700)
    assert machine.hits() == [False]
    machine.variables["TRITON_CACHE_MANAGER"] = other.variables["TRITON_CACHE_MANAGER"]
    assert machine.hits(CUJIT_COMPILE="never") == [True]
    other.variables["CUJIT_CACHE_DIR"] = str(machine.cache)
    assert other.hits(CUJIT_COMPILE="never") == [True]
    assert other.files() == machine.files()


@pytest.mark.parametrize("damage", ["cut", "gone", "link", "writable"])
def test_damaged_files_are_written_again(machine: Machine, damage: str) -> None:
    assert machine.hits() == [False]
    good = machine.files()
    (cubin,) = machine.triton.glob("*/axpy.cubin")
    if damage == "cut":
        cubin.write_bytes(b"")
    elif damage == "writable":
        cubin.chmod(0o666)
    else:
        cubin.unlink()
        if damage == "link":
            cubin.symlink_to("/dev/null")
    assert machine.hits(CUJIT_COMPILE="never") == [True]
    assert machine.files() == good


def test_directory_writable_by_others_is_refused(machine: Machine) -> None:
    machine.triton.mkdir()
    machine.triton.chmod(0o777)
    done = machine.run()
    assert "CacheRefusedError" in done.stderr
    assert "set TRITON_CACHE_DIR" in done.stderr
    assert not list(machine.triton.iterdir())


def test_failed_compile_blocks_no_other_process(machine: Machine) -> None:
    """Neither the process that failed nor another one waits, although somebody keeps the traceback."""
    failed, seen = machine.root / "failed", machine.root / "seen"
    keeping = f"""
import pathlib, threading
kept = []
def attempt():
    try:
        make(wrong)
    except Exception as e:
        kept.append(e)
begin = time.perf_counter()
attempt(); attempt()
thread = threading.Thread(target=attempt); thread.start(); thread.join()
try:
    make(wrong)
except Exception as first:
    attempt()           # while the first is being handled
assert len(kept) == 4 and time.perf_counter() - begin < 60
pathlib.Path({str(failed)!r}).touch()
while not pathlib.Path({str(seen)!r}).exists() and time.perf_counter() - begin < 250:
    time.sleep(0.01)
"""
    asking = """
begin = time.perf_counter()
try:
    make(wrong)
except Exception as e:
    assert "static_assert" in repr(e)
assert time.perf_counter() - begin < 60
"""
    with ThreadPoolExecutor(1) as one:
        keeper = one.submit(machine.hits, keeping)
        while not failed.exists() and not keeper.done():
            time.sleep(0.01)
        try:
            assert machine.hits(asking) == []
        finally:
            seen.touch()
        assert keeper.result() == []


def test_other_processes_wait_during_a_compile(machine: Machine) -> None:
    """The frame of a compile is on the stack of its thread, however long the compile takes."""
    begun, asked = machine.root / "begun", machine.root / "asked"
    slow = f"""
import pathlib
from triton.backends.nvidia import compiler
def make_cubin(self, *given, _make=compiler.CUDABackend.make_cubin):
    pathlib.Path({str(begun)!r}).touch()
    while not pathlib.Path({str(asked)!r}).exists():
        time.sleep(0.01)
    time.sleep(2)
    return _make(self, *given)
compiler.CUDABackend.make_cubin = make_cubin
make()
"""
    with ThreadPoolExecutor(1) as one:
        first = one.submit(machine.hits, slow)
        while not begun.exists() and not first.done():
            time.sleep(0.01)
        code = f"import pathlib; pathlib.Path({str(asked)!r}).touch(); make()"
        assert machine.hits(code) == [True]
        assert first.result() == [False]


def test_why_names_the_option_that_changed(machine: Machine) -> None:
    assert machine.hits("make(); make(num_warps=8)") == [False, False]
    entries = json.loads(shell(f"cujit cache ls --json --dir {machine.cache}"))
    assert {(entry["name"], entry["kind"], entry["arch"]) for entry in entries} == {("axpy", "files", "sm_90")}
    (eight,) = (entry["key"] for entry in entries if _warps(machine, entry["key"]) == 8)
    said = shell(f"cujit cache why {eight} --dir {machine.cache}")
    assert "axpy.json num_warps: 4 -> 8" in said
    assert "axpy.cubin: " in said
    assert "axpy.json num_stages" not in said


def _warps(machine: Machine, key: str) -> int:
    path = machine.root / "exported"
    shell(f"cujit cache export {key} {path} --dir {machine.cache}")
    head, _, content = path.read_bytes().partition(b"\n")
    sizes = dict(json.loads(head)["files"])
    begin = sum(size for name, size in sizes.items() if name < "axpy.json")
    return int(json.loads(content[begin : begin + sizes["axpy.json"]])["num_warps"])


_REMOTE = {
    "TRITON_CACHE_MANAGER": "triton.runtime.cache:RemoteCacheManager",
    "TRITON_REMOTE_CACHE_BACKEND": "cujit.integrations.triton:RemoteBackend",
}


def test_tritons_remote_manager_shares_the_entries(machine: Machine, other: Machine, tmp_path: Path) -> None:
    assert machine.hits("make(); make(); make(num_warps=8)", **_REMOTE) == [False, True, False]
    before = machine.files()
    shutil.rmtree(machine.triton)
    assert machine.hits(CUJIT_COMPILE="never", **_REMOTE) == [True]
    assert machine.files().items() < before.items()
    shell(f"cujit pack merge {machine.cache} -o {tmp_path / 'kernels.pack'}")
    variables = {"CUJIT_COMPILE": "never", "CUJIT_CACHE_ROOTS": str(tmp_path / "kernels.pack")}
    assert other.hits(**variables) == [True]  # by CacheManager
    shutil.rmtree(other.triton)
    assert other.hits("make(num_warps=8)", **variables, **_REMOTE) == [True]
    failed = other.run("make(num_warps=2)", **variables, **_REMOTE)
    assert "NotCompiledError" in failed.stderr


def test_tritons_remote_manager_gets_only_signed_entries(
    store: tuple[Server, dict[str, str], Path], machine: Machine, other: Machine
) -> None:
    server, variables, _ = store
    ((name, data),) = ((name, data) for name, data in server.files.items() if "/e/" in name)
    server.files[name] = data[:-1] + bytes([data[-1] ^ 1])
    assert "NotCompiledError" in other.run(CUJIT_COMPILE="never", **variables, **_REMOTE).stderr
    assert other.files() == {}
    server.files[name] = data
    assert other.hits(CUJIT_COMPILE="never", **variables, **_REMOTE) == [True]
    assert other.files() == machine.files()


def test_without_a_cache_of_cujits_triton_works_as_before(machine: Machine) -> None:
    assert machine.hits("make(); make()", CUJIT_CACHE="0") == [False, True]
    assert machine.hits(CUJIT_CACHE="0") == [True]
    assert not machine.cache.exists()
