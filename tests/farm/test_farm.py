"""The farm: every compile once, on processes that die, hang, starve, or are of another machine."""

from __future__ import annotations

import functools
import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cujit
from cujit.cache.cache import Cache
from cujit.errors import ArchError, CacheWarning, CompileError, OptionError, ToolCrashError
from cujit.farm import processes
from cujit.integrations.wheels import WantedPack
from farming import DRIVER, Elsewhere, goes_on, killing_pool, pool, variants, workers
from llvm_ir import SCALE, VERSION
from raising import raises

GOOD = "__global__ void good() {}"
LONG = "".join(
    f"__global__ void k{i}(float* p) {{ for (int j = 0; j < p[1]; j++) p[j] = sinf(p[j]) + cosf(p[{i} + j]); }}\n"
    for i in range(400)
)
HEAD = SCALE[: SCALE.index("define")]
CRASH = f"{HEAD}define void @k(i32* %p) {{\n  ret void\n}}\n{VERSION}!nvvm.annotations = !{{!0}}\n!0 = !{{\n}}\n"
"""What kills libNVVM 13.5."""


@pytest.fixture(scope="module")
def two() -> Iterator[Executor]:
    """Two processes for all tests here."""
    with pool(2) as executor:
        yield executor


def test_each_key_is_compiled_once_and_found_later(two: Executor, tmp_path: Path) -> None:
    asked = variants(6)
    seen: list[tuple[int, int, str]] = []
    report = cujit.farm.build(
        [*asked, *asked[:2]], ["sm_80", "sm_90"], executor=two, sink=tmp_path, progress=lambda *tick: seen.append(tick)
    )
    assert (report.made, report.hit, report.failed, report.quarantined) == (12, 0, (), ())
    assert report.is_good
    assert seen[-1][:2] == (16, 16)
    cache = Cache(tmp_path)
    for request in asked:
        found = cujit.compile(request.source, names=request.names, arch="sm_80", cache=cache)
        assert found.provenance is not None
        assert found.provenance.is_hit
        assert found == cujit.compile(request.source, names=request.names, arch="sm_80", cache=False)
    assert report.cpu_s > 0.1
    assert len(report.slowest) == len(report.largest) == 12
    assert report.slowest[0].make_ms == max(one.make_ms for one in report.slowest)

    more = cujit.farm.build(
        iter(variants(7)), "sm_90", executor="processes:1", sink=cache, pack=tmp_path / "k.pack", made_s=1
    )
    assert (more.made, more.hit) == (1, 6)
    assert more.pack is not None
    assert (more.pack.records, more.pack.requests) == (7, 7)
    assert set(report.keys) >= {key for key in more.keys if key != more.slowest[0].key}
    said = json.loads(json.dumps(more.as_json()))
    assert (said["made"], said["hit"], said["slowest"][0]["arch"]) == (1, 6, "sm_90")

    build = functools.partial(cujit.farm.build, variants(7), "sm_90", executor=two, sink=cache)
    assert build(pack=tmp_path / "of no time.pack").hit == 7
    for n in range(2):
        build(pack=tmp_path / f"{n}.pack", made_s=n)
    packs = [(tmp_path / f"{name}.pack").read_bytes() for name in ("of no time", 0, 1)]
    assert packs[0] == packs[1] != packs[2]


def test_headers_are_identified_by_content_not_path(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "include/deep").mkdir(parents=True)
    (project / "src/k.cu").write_text('#include "near.h"\n#include <a.h>\n__global__ void k(int *x) { *x = A + NEAR; }')
    (project / "src/near.h").write_text('#include "../include/once.h"\n#define NEAR 1\n')
    (project / "include/a.h").write_text('#include "deep/b.h"\n#include "once.h"\n#define A B\n')
    (project / "include/deep/b.h").write_text("#define B 2\n")
    (project / "include/once.h").write_text("#pragma once\nstruct Once {};\n")
    (project / "include/unused.h").write_text("// not asked for\n")
    source = cujit.Source.cuda(project / "src/k.cu", include=[project / "include"])
    there = Elsewhere(project)
    request = cujit.request(source, arch="sm_90")
    report = cujit.farm.build([request, request], executor=there, sink=tmp_path / "cache")
    assert (report.made, report.failed) == (1, ())
    assert there.digests == [*report.keys], "what is asked for twice is handed out once"
    assert b"not asked for" not in there.sent
    found = cujit.compile(source, arch="sm_90", cache=Cache(tmp_path / "cache"))
    assert found.provenance is not None
    assert found.provenance.is_hit
    assert found.data == cujit.compile(source, arch="sm_90", cache=False).data
    entry = next(Cache(tmp_path / "cache").stores[0].entries())
    record = Cache(tmp_path / "cache").stores[0].get(entry.digest).record
    assert record is not None
    assert str(project).encode() in zlib.decompress(record.recipe), "made again by the paths of the user"

    lines = cujit.request(source, arch="sm_90", lineinfo=True)
    assert cujit.farm.build([lines], executor=there, sink=tmp_path / "cache").made == 1
    found = cujit.compile(source, arch="sm_90", lineinfo=True, cache=Cache(tmp_path / "cache"))
    assert found.provenance is not None
    assert found.provenance.is_hit
    assert found.data == cujit.compile(source, arch="sm_90", lineinfo=True, cache=False).data


def test_missing_parent_directory_is_found_elsewhere(tmp_path: Path) -> None:
    project = tmp_path / "project"
    for name in ("a/b/src", "c/d/include", "c/d/more", "e/f"):
        (project / name).mkdir(parents=True)
    (project / "a/b/src/k.cu").write_text('#include "../../../e/f/e.h"\n#include <../d.h>\n__global__ void k(E, D) {}')
    (project / "e/f/e.h").write_text("using E = int;\n")
    (project / "c/d/d.h").write_text("using D = int;\n")
    path, include = project / "a/b/src/k.cu", [project / "c/d/include", project / "c/d/more"]
    of_source = cujit.request(cujit.Source.cuda(path, include=include), arch="sm_90")
    by_option = cujit.request(cujit.Source.cuda(path), arch="sm_90", include=include)
    for n, request in enumerate((of_source, by_option)):
        report = cujit.farm.build([request], executor=Elsewhere(project), sink=tmp_path / f"cache {n}")
        assert (report.made, report.failed) == (1, ())


def test_instances_compiled_together_are_found_separately(two: Executor, tmp_path: Path) -> None:
    text = "template <typename T> __global__ void fill(T *x) { x[threadIdx.x] = T(sizeof(T)); }\n"
    text += "__global__ void plain() {}"
    names = ["fill<float>", "fill<double>", "fill<short>", "fill<what>"]
    asked = [cujit.request(text, names=[name], arch="compute_80") for name in names]
    report = cujit.farm.build(asked[:3], executor=two, sink=tmp_path, join=2, chunk_s=9)
    assert (report.made, report.is_good) == (3, True)
    cache = Cache(tmp_path)
    found = [cujit.compile(text, names=[name], arch="compute_80", cache=cache) for name in names[:3]]
    for name, image in zip(names, found, strict=False):
        alone = cujit.compile(text, names=[name], arch="compute_80", cache=False)
        assert image.provenance is not None
        assert image.provenance.is_hit
        assert (image.names, image.signatures) == (alone.names, alone.signatures)
        out = cujit.cpu().array(np.zeros(2, {"f": "f4", "d": "f8", "s": "i2"}[name[5]]))
        cujit.load(image, "cpu")[name][1, 2](out)
        assert out.numpy().tolist() == [out.numpy().itemsize] * 2
    assert sorted(image.text.count(".entry") for image in found) == [2, 3, 3], "two together, and one alone"

    again = cujit.farm.build([*asked, cujit.request(text, names="fill<char>", arch="compute_80")],
                             executor=two, sink=tmp_path, join=8, chunk_s=9)  # fmt: skip
    assert (again.made, again.hit, len(again.failed)) == (1, 3, 1), "one that fails keeps none of the others back"
    assert "fill<what>" in again.failed[0].reason


def test_joint_compile_time_is_divided(two: Executor, tmp_path: Path) -> None:
    asked, began = variants(8), time.perf_counter()
    assert cujit.farm.build(asked, executor=two, sink=tmp_path, join=8, chunk_s=9).made == 8
    took_ms = 1e3 * (time.perf_counter() - began)
    cache = Cache(tmp_path)
    made = [cujit.compile(one.source, names=one.names, arch=one.arch, cache=cache).provenance for one in asked]
    assert 0 < sum(each.make_ms for each in made if each is not None and each.is_hit) <= took_ms


def test_failed_compiles_are_reported_and_the_rest_compiled(two: Executor, tmp_path: Path) -> None:
    asked = [
        cujit.request("__global__ void k() { what; }", arch="sm_90"),
        cujit.request("__global__ void k() { const char *t = __TIME__; }", arch="sm_90"),
        cujit.request(cujit.Source.nvvm(CRASH, name="crash.ll"), arch="compute_90"),
        cujit.request(GOOD, arch="sm_90"),
    ]
    report = cujit.farm.build(asked, executor=two, sink=tmp_path)
    assert report.made == 1
    assert not report.is_good
    assert sorted(str(one) for one in report.failed) == [
        "source.cu for sm_90: not cached: source.cu has __TIME__, which is different at every compile",
        'source.cu for sm_90: source.cu:1:23: error: identifier "what" is undefined',
    ]
    (crash,) = report.quarantined
    assert (crash.name, crash.signal) == ("crash.ll", "SIGSEGV")
    assert crash.peak_bytes > 20 << 20
    assert re.search("quarantined: crash.ll for compute_90: .*libNVVM died of SIGSEGV", str(report))

    long = cujit.request(cujit.Source.cuda(LONG, name="long.cu"), arch="sm_90")
    (hang,) = cujit.farm.build([long], executor=two, sink=tmp_path, deadline_s=0.5).quarantined
    assert (hang.name, hang.signal) == ("long.cu", "deadline")
    assert "0.5 s" in hang.reason

    starved = cujit.request(cujit.Source.cuda("#include <cuda/std/tuple>\n" + GOOD, name="big.cu"), arch="sm_90")
    (failure,) = cujit.farm.build([starved], executor=two, sink=tmp_path, memory_bytes=48 << 20).quarantined
    assert "48 MiB of address space" in failure.reason


def test_killed_worker_loses_only_its_current_work(tmp_path: Path) -> None:
    killed: list[int] = []

    def kill(_done: int, _total: int, _name: str) -> None:
        if not killed and (ours := workers()):
            killed.append(ours[0])
            os.kill(killed[0], signal.SIGKILL)

    report = cujit.farm.build(variants(12), executor="processes:2", sink=tmp_path, chunk_s=0.2, progress=kill)
    assert killed
    assert (len(report.keys), report.failed, report.quarantined) == (12, (), ())


def test_request_that_kills_two_workers_is_isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_ENTRY", "farming:serve_or_die")
    report = cujit.farm.build(variants(6, 9), executor="processes:1", sink=tmp_path, chunk_s=0.2)
    (failure,) = report.quarantined
    assert failure.request is not None
    assert failure.request.names == ("scale<float, 13>",)
    assert (len(report.keys), report.failed, failure.signal) == (5, (), "worker")


def test_broken_user_executor_is_an_error_without_losses(tmp_path: Path) -> None:
    with killing_pool(1) as theirs, raises(ToolCrashError, "tool-crash", "executor='processes:8'") as caught:
        cujit.farm.build(variants(8, 8), executor=theirs, sink=tmp_path, chunk_s=0.06)
    assert "to continue" in (caught.value.help or "")
    assert any(Cache(tmp_path).stores[0].entries())


def test_images_compiled_before_an_executor_broke_are_counted(tmp_path: Path) -> None:
    begun: list[object] = []

    class Breaking(ThreadPoolExecutor):
        def submit(self, *work: Any, **more: Any) -> Any:
            if begun:
                raise BrokenExecutor("it does one")
            begun.append(work)
            return super().submit(*work, **more)

    with Breaking(1) as theirs, raises(ToolCrashError, "tool-crash", "1", "executor='processes:8'"):
        cujit.farm.build(variants(2), executor=theirs, sink=tmp_path, chunk_s=0.001)


class KilledWorker(Exception):
    """What Dask raises of a task whose workers died, by its name."""


def test_dead_task_is_repeated_and_an_impossible_one_an_error(tmp_path: Path) -> None:
    class Failing(ThreadPoolExecutor):
        error: Exception | None = KilledWorker("scale")

        def submit(self, *work: Any, **more: Any) -> Any:
            error, self.error = self.error, None
            return super().submit(*work, **more) if error is None else super().submit(_raise, error)

    with Failing(1) as theirs:
        report = cujit.farm.build(variants(2), executor=theirs, sink=tmp_path)
        assert (report.made, report.is_good, theirs.error) == (2, True, None)
        theirs.error = ModuleNotFoundError("No module named 'cujit'")
        with raises(ToolCrashError, "tool-crash", "ModuleNotFoundError", "named 'cujit'"):
            cujit.farm.build(variants(1, 2), executor=theirs, sink=tmp_path)


def _raise(error: Exception) -> None:
    raise error


def test_other_compiler_or_environment_is_refused(tmp_path: Path) -> None:
    with pool(1, build="feedbeef") as other:
        (failure,) = cujit.farm.build(variants(1), executor=other, sink=tmp_path).failed
    assert "has another key of it: nvrtc: " in failure.reason
    assert "-> feedbeef" in failure.reason
    with pool(1, NVVM_IR_VER_CHK="0") as other:
        (failure,) = cujit.farm.build(variants(1), executor=other, sink=tmp_path).failed
    assert "new environment: NVVM_IR_VER_CHK=0" in failure.reason
    assert not any(Cache(tmp_path).stores[0].entries())


def test_images_invisible_to_the_driver_are_reported(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    there = Elsewhere(tmp_path / "project", root=tmp_path / "theirs")
    (failure,) = cujit.farm.build(variants(1), executor=there, sink=tmp_path / "ours").failed
    assert f"it is not in {tmp_path}/ours here" in failure.reason
    assert "all machines have to see one directory" in failure.reason


def test_ten_unwritable_images_stop_further_attempts(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "file").touch()
    there = Elsewhere(tmp_path / "project", root=tmp_path / "file/theirs")
    with pytest.warns(CacheWarning, match="Not a directory"):
        report = cujit.farm.build(variants(40), executor=there, sink=tmp_path / "ours", workers=1, chunk_s=0.001)
    said = Counter(one.reason for one in report.failed)
    why, tried = said.most_common()[-1]
    assert why.startswith("not kept: [Errno 20] Not a directory")
    assert 10 <= tried < 20
    assert (report.made, dict(said)) == (0, {why: tried, f"not begun: {why}": 40 - tried})


FULL = """
import sys
from pathlib import Path
from farming import variants
import cujit
if __name__ == "__main__":
    report = cujit.farm.build(variants(40), executor="processes:1", sink=Path(sys.argv[1]) / "cache")
    assert 1 < report.made < 30, report
    assert report.failed[0].reason.startswith("not begun: not kept: "), report.failed[0]
    assert "not kept: [Errno 28] No space left" in report.failed[-1].reason
    assert report.made + len(report.failed) == 40
"""


@pytest.mark.farm
def test_full_disk_ends_the_farm_with_stored_images(tmp_path: Path) -> None:
    mount = f"mount -t tmpfs -o size=70k,mode=700 tmpfs {tmp_path} && exec {sys.executable} -W ignore {{}} {tmp_path}"
    unshare = ["unshare", "-m", *([] if os.geteuid() == 0 else ["-r"]), "sh", "-c"]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], capture_output=True).returncode:
        pytest.skip("this machine makes no mount namespaces")
    script = tmp_path.with_suffix(".py")
    script.write_text(FULL)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [*unshare, mount.format(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_workers_end_with_a_killed_driver_and_the_next_resumes(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", DRIVER, str(tmp_path / "cache")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout
        ours = driver.stdout.readline().split()
        driver.kill()
    assert len(ours) >= 2
    goes_on(tmp_path / "cache", ours)


@pytest.mark.farm
def test_script_needs_no_main_guard(tmp_path: Path) -> None:
    script = tmp_path / "unguarded.py"
    script.write_text(
        "import cujit\nk = cujit.request('__global__ void k() {}', arch='sm_90')\n"
        "cujit.farm.build([k], executor='processes:1', sink='cache')\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    direct = subprocess.run(
        [sys.executable, script], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert direct.returncode == 0, direct.stderr
    assert len([*Cache(tmp_path / "cache").stores[0].entries()]) == 1


def test_bad_orders_are_refused(tmp_path: Path) -> None:
    asked = variants(1)
    with raises(OptionError, "option-unknown", "threads"):
        cujit.farm.build(asked, executor="threads", sink=tmp_path)
    with raises(OptionError, "option-unknown", "3", "concurrent.futures.Executor"):
        cujit.farm.build(asked, executor=3, sink=tmp_path)  # type: ignore[arg-type]
    with raises(OptionError, "option", "workers", "0"):
        cujit.farm.build(asked, executor=ThreadPoolExecutor(1), sink=tmp_path, workers=0)
    with raises(OptionError, "option-conflict", "sink="):
        cujit.farm.build(asked, sink=Cache(None))
    with raises(OptionError, "option", "3", "cujit.Cache"):
        cujit.farm.build(variants(1), sink=3)  # type: ignore[arg-type]
    with raises(OptionError, "option", "join", "0"):
        cujit.farm.build(asked, sink=tmp_path, join=0)
    with raises(OptionError, "option", "memory_bytes", "3"):
        cujit.farm.build(asked, sink=tmp_path, memory_bytes=3)
    with raises(OptionError, "option", "timeout_s", "-1"):
        cujit.farm.build(asked, sink=tmp_path, deadline_s=-1)
    with pytest.raises(ArchError):
        cujit.farm.build(asked, ["sm_9000"], sink=tmp_path)
    astray = cujit.request(GOOD, arch="sm_90", include=[tmp_path / "nothing"])
    with raises(OptionError, "option", "nothing"):
        cujit.farm.build([astray], executor=ThreadPoolExecutor(1), sink=tmp_path)
    (failure,) = cujit.farm.build([*asked, astray], executor=ThreadPoolExecutor(1), sink=tmp_path).failed
    assert re.match(r"include: .*nothing is not there", failure.reason)
    with raises(OptionError, "option", "kernel", "cujit.request"):
        cujit.farm.build(["kernel"], executor=ThreadPoolExecutor(1), sink=tmp_path)  # type: ignore[list-item]


def test_example_builds_its_pack(two: Executor, tmp_path: Path) -> None:
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples/farmed_tiles.py"))
    report = example["build"](two, tmp_path, [4], ["sm_80"])
    assert (report.made, report.pack.records, report.is_good) == (2, 2, True)
    again = example["build"](two, tmp_path, [4], ["sm_80"])
    assert (again.made, again.hit) == (0, 2)


def test_wheel_contains_kernels_that_crash_their_compiler_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cache"))
    crash = cujit.Source.nvvm(CRASH, name="crash.ll")
    with cujit.record_worklist(tmp_path / "rec"), pytest.raises(ToolCrashError):
        cujit.compile(crash, arch="compute_90", isolate=True)
    wanted = WantedPack(tmp_path, ("rec",), "k.pack", ptx=False)
    with raises(CompileError, "compile", "1", "k.pack", "crash.ll", "SIGSEGV"):
        wanted.build(tmp_path / "k.pack")
