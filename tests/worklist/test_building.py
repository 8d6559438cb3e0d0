"""Worklists on another machine: what one recorded, another builds to the bit, and a pack covers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import cujit
import cujit.worklist
from cujit.cache.cache import Cache
from cujit.errors import ArchError, FormatError, OptionError
from cujit.worklist import Worklist
from raising import raises

KERNEL = 'extern "C" __global__ void k(float *x) { x[threadIdx.x] = SCALE + NEAR; }'
USER = """
import cujit, pathlib
for arch in ("sm_90", "sm_90", "compute_80"):
    cujit.compile(pathlib.Path("src/mylib/k.cu"), include=["src/mylib/include"], arch=arch, define={"A": 1})
held = cujit.Source.cuda('#include "held.h"\\ntemplate <typename T> __global__ void t(T *x) { *x = HELD; }',
                         headers={"held.h": "#define HELD 3\\n"}, name="held.cu")
cujit.compile(held, names=["t<float>", "t<int>"], arch="sm_90", lineinfo=False)
cujit.compile(cujit.Source.cuda('#include <cuda_fp16.h>\\n__global__ void h(__half *x) {}', name="h.cu"), to="ltoir",
              arch="sm_90", rdc=True)
"""


def project(root: Path) -> Path:
    """A project with a kernel, a header beside it and one in a directory."""
    (root / "src/mylib/include").mkdir(parents=True)
    (root / "pyproject.toml").touch()
    (root / "src/mylib/__init__.py").touch()
    (root / "src/mylib/k.cu").write_text(f'#include "near.h"\n#include <scale.h>\n{KERNEL}')
    (root / "src/mylib/near.h").write_text("#define NEAR 1\n")
    (root / "src/mylib/include/scale.h").write_text("#define SCALE 2\n")
    return root


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the project's tests recorded, under a home that is gone since."""
    home = tmp_path_factory.mktemp("home")
    at, directory = project(home / "me/work/mylib"), home / "recordings"
    environment = {**os.environ, "CUJIT_CACHE_DIR": str(home / "me/cache"), "CUJIT_RECORD": str(directory)}
    subprocess.run([sys.executable, "-c", USER], cwd=at, env=environment, check=True)
    shutil.rmtree(home / "me")
    return directory


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same project on this machine, as the working directory, and an empty cache."""
    at = project(tmp_path / "another/home/checkout")
    monkeypatch.chdir(at)
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def worklist(recordings: Path) -> Worklist:
    return cujit.worklist.merge(recordings).worklist


def test_list_recorded_in_another_home_covers_all(recordings: Path, here: Path) -> None:
    path = here / "kernels.pack"
    assert str(recordings.parent / "me") not in "".join(file.read_text() for file in recordings.iterdir())
    listed = cujit.worklist.read(recordings)
    built = cujit.worklist.build(listed, pack=path)
    assert (len(built.keys), built.made, built.failed) == (4, 4, ())
    assert built.pack is not None
    assert built.pack.closures >= 3, "what was found of headers: k.cu's, held.cu's and h.cu's"
    assert built.pack.requests >= 4
    cover = cujit.worklist.cover(listed, [path])
    assert (cover.calls, cover.share_of_calls, cover.share_of_time, cover.missing) == (5, 1.0, 1.0, ())
    assert cover.make_ms > 0

    environment = {**os.environ, "CUJIT_COMPILE": "never", "CUJIT_CACHE_ROOTS": str(path)}
    environment["CUJIT_CACHE_DIR"] = str(here / "empty")
    done = subprocess.run([sys.executable, "-c", USER], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_equal_lists_give_equal_bytes(worklist: Worklist, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, three = (here / f"{n}.pack" for n in range(3))
    # NVRTC 13.5 writes the working directory into LTO-IR, and into nothing else here (measured).
    worklist = replace(worklist, uses=tuple(use for use in worklist.uses if not use.arch.is_lto))
    cujit.compile(Path("src/../src/mylib/k.cu"), include=["src/mylib/include"], arch="sm_90", define={"A": 1})
    first = cujit.worklist.build(worklist, pack=one)
    assert first.made == 2, "one was there, under another path"
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(here / "anew"))
    monkeypatch.chdir(project(here / "third"))
    assert cujit.worklist.build(worklist, pack=two, jobs=2).made == 3
    assert cujit.worklist.build(worklist, pack=three).made == 0
    assert one.read_bytes() == two.read_bytes() == three.read_bytes()


def test_other_architectures_and_ptx_are_built(worklist: Worklist, here: Path) -> None:
    path = here / "k.pack"
    cujit.worklist.build(worklist, arch=["sm_80", "sm_100"], ptx=True, pack=path)
    pack = Cache(None, read_only=[path]).stores[0]
    heads = [head[0] for entry in pack.entries() if (head := pack.peek(entry.digest))]
    assert sorted((head.name, str(head.arch)) for head in heads) == [
        *(("h.cu", arch) for arch in ("lto_100", "lto_80")),
        *(("held.cu", arch) for arch in ("compute_100", "sm_100", "sm_80")),
        *(("k.cu", arch) for arch in ("compute_100", "sm_100", "sm_80")),
    ]
    asked = cujit.worklist.cover(worklist, [path], arch=["sm_80"])
    assert (asked.calls, asked.share_of_calls) == (5, 1.0)
    as_it_was = cujit.worklist.cover(worklist, [path])
    assert (as_it_was.share_of_calls, {one.reason for one in as_it_was.missing}) == (0.0, {"it is missing"})
    both = cujit.worklist.build(worklist, arch=["recorded", "sm_120"])
    assert (len(both.keys), both.made) == (7, 7)


def test_failed_compile_is_reported_by_its_first_message(worklist: Worklist, here: Path) -> None:
    Path("src/mylib/near.h").write_text("#define NEAR nothing_of_the_sort\n")
    built = cujit.worklist.build(worklist, pack=here / "k.pack")
    assert [(one.name, str(one.arch)) for one in built.failed] == [("k.cu", "compute_80"), ("k.cu", "sm_90")]
    assert 'identifier "nothing_of_the_sort" is undefined' in built.failed[0].reason
    assert built.pack is not None
    assert built.pack.records == 2
    cover = cujit.worklist.cover(worklist, [here / "k.pack"])
    assert (cover.share_of_calls, len(cover.missing)) == (0.4, 2)


def test_request_without_a_key_is_reported_with_its_reason(worklist: Worklist, here: Path) -> None:
    Path("src/mylib/near.h").write_text("#define NEAR sizeof(__TIME__)\n")
    found, without = cujit.worklist.keys(worklist)
    assert (len(found), [one.name for one in without]) == (2, ["k.cu", "k.cu"])
    reasons = {one.reason for one in without}
    missing = cujit.worklist.cover(worklist, [here / "cache"]).missing
    assert reasons == {one.reason for one in missing if one.name == "k.cu"}
    assert [r for r in reasons if not (r.startswith("the image can't be cached: ") and "__TIME__" in r)] == []


def test_missing_headers_are_named(worklist: Worklist, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree("src/mylib/include")
    for reasons in (
        [one.reason for one in cujit.worklist.build(worklist).failed],
        [one.reason for one in cujit.worklist.cover(worklist, [here / "cache"]).missing],
    ):
        assert len(reasons) == 2
        assert all(f"include: {Path.cwd()}/src/mylib/include is not there" in reason for reason in reasons)
    found, without = cujit.worklist.keys(worklist)
    assert (len(found), len(without)) == (2, 2)
    assert all("src/mylib/include is not there" in one.reason for one in without)
    monkeypatch.chdir(here)
    assert len(cujit.worklist.build(worklist, project=project(here / "again")).failed) == 0


def test_package_is_found_installed_or_in_the_project(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = here / "venv/site-packages"
    shutil.copytree("src/mylib", installed / "mylib")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([*sys.path, str(installed)]))
    include = str(installed / "mylib/include")
    code = f"import cujit; cujit.compile({KERNEL!r}, include={include!r}, arch='sm_90', define=dict(SCALE=1, NEAR=2))"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "CUJIT_RECORD": str(here / "r")}, check=True)
    shutil.rmtree(here / "venv")
    assert cujit.worklist.build(cujit.worklist.read(here / "r")).failed == (), "in src/mylib of the project"
    shutil.move("src/mylib", here / "mylib")
    ((failed),) = cujit.worklist.build(cujit.worklist.read(here / "r")).failed
    assert failed.reason == "source.cu requires the headers in {package:mylib}/include"
    monkeypatch.syspath_prepend(str(here))
    assert cujit.worklist.build(cujit.worklist.read(here / "r")).failed == ()


def test_bad_orders_are_refused(worklist: Worklist, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArchError):
        cujit.worklist.build(worklist, arch=["sm_9000"])
    with raises(ArchError, "arch-unsupported", "sm_50"):
        cujit.worklist.build(worklist, arch=["sm_50"])
    with raises(OptionError, "option", "jobs", "0"):
        cujit.worklist.build(worklist, jobs=0)
    with raises(OptionError, "option-conflict", "sink="):
        cujit.worklist.build(worklist, cache=Cache(None))
    with raises(FormatError, "format"):
        cujit.worklist.build(Worklist({}, ()))
    with pytest.raises(OSError, match=r"No such file"):
        cujit.worklist.build(worklist, pack=here / "not/there.pack")
    monkeypatch.setenv("CUJIT_COMPILE", "never")
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(here / "empty"))
    never = cujit.worklist.build(worklist)
    assert len(never.failed) == 4
    assert all(one.reason.startswith("no cache has ") for one in never.failed)
