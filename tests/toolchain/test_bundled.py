"""The headers that NVRTC bundles: with NVRTC alone they are installed, once, and found."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from cujit.cache.cache import Cache
from cujit.cache.provenance import Provenance
from cujit.compiler.jobs import CompileJob
from cujit.compiler.options.values import Options
from cujit.compiler.request import Request
from cujit.compiler.runner import Runner
from cujit.errors import CompileError, HeaderNotFoundError
from cujit.machine import health
from cujit.toolchain import bundled, headers, nvrtc
from cujit.toolchain.headers import BUNDLED_SINCE, Settings, bundle_directory
from cujit.toolchain.toolset import Toolchain
from raising import raises

SOURCE = """
#include <cstdint>
#include <cuda_fp16.h>
#include <mma.h>
#include <cub/block/block_reduce.cuh>
__global__ void k(__half* p) { *p = 1; }
"""


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Search as where no wheel but NVRTC's is installed, and no toolkit."""
    if Toolchain().nvrtc.version < BUNDLED_SINCE:
        pytest.skip("this NVRTC bundles no headers")
    monkeypatch.setattr(headers, "_STEPS", [step for step in headers._STEPS if step[0] == headers.BUNDLE])


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toolchain:
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cache"))
    return Toolchain()


def job(source: str, runner: Runner) -> CompileJob:
    return CompileJob(Request.of(source, "ptx", None, (), Options(syntax_only=True), runner))


def installed(tools: Toolchain) -> Path:
    directory = bundle_directory(tools.nvrtc.library_path)
    assert directory is not None
    return Path(directory)


def test_headers_bundled_with_nvrtc_compile_and_have_a_key(tools: Toolchain) -> None:
    runner = Runner(tools)
    runner.get(job("__global__ void k() {}", runner))
    assert not installed(tools).exists(), "a source that includes nothing needs no header"
    assert set(tools.headers.missing) == {"CUDA runtime headers", "CCCL", "crt"}
    runner.get(job(SOURCE, runner))
    assert not tools.headers.missing
    assert {d.found_via for d in tools.headers.directories} == {headers.BUNDLE}
    assert installed(tools).name == f"{tools.nvrtc.version[0]}.{tools.nvrtc.version[1]}-{installed(tools).name[-16:]}"


def test_key_installs_headers_and_is_equal_everywhere(
    tools: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = []
    for place in ("one", "two"):
        monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / place))
        runner = Runner(Toolchain(), Cache(tmp_path / "results"))
        made = runner.get(job("#include <cuda_fp16.h>\n__global__ void k(__half* p) { *p = 1; }", runner))
        assert isinstance(made.provenance, Provenance)
        keys.append(made.provenance.key)
        assert made.provenance.is_hit is (place == "two")
    assert keys[0] == keys[1]
    assert str(tmp_path / "two") in headers.find_headers(Settings(), 13, tools.nvrtc.library_path).paths[0]


def test_of_several_at_once_one_installs(tools: Toolchain, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, calls = installed(tools), []
    install = nvrtc.nvrtcInstallBundledHeaders

    def counted(path: str, flags: int) -> object:
        calls.append((path, flags))
        return install(path, flags)

    monkeypatch.setattr(bundled, "nvrtcInstallBundledHeaders", counted)
    said: list[str] = []
    # flock(2) tells open file descriptions apart, not processes: a thread with one of its own is as good.
    threads = [threading.Thread(target=lambda: said.append(bundled.install_bundle(str(directory)))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == [""] * 4
    [(path, flags)] = calls
    assert flags == 0, "neither overwriting nor removing"
    assert path != str(directory), "what is not complete has another name"
    assert sorted(os.listdir(directory.parent)) == sorted([directory.name, "lock"])


def test_leftovers_are_removed_and_damage_is_replaced(tools: Toolchain) -> None:
    directory = installed(tools)
    (directory.parent / ".new-left" / "cccl").mkdir(parents=True, mode=0o700)
    directory.parent.chmod(0o700)
    directory.mkdir()
    (directory / "cuda_fp16.h").write_text("#error damaged")
    assert bundled.install_bundle(str(directory)) == ""
    assert "error damaged" not in (directory / "cuda_fp16.h").read_text()
    assert sorted(os.listdir(directory.parent)) == sorted([directory.name, "lock"])
    assert not (directory / "damaged").exists()


def test_directory_writable_by_others_is_refused(tools: Toolchain) -> None:
    parent = installed(tools).parent
    parent.mkdir(parents=True)
    parent.chmod(0o777)
    runner = Runner(tools)
    with pytest.raises(HeaderNotFoundError) as refused:
        runner.get(job("#include <cuda_fp16.h>\n", runner))
    assert f"{parent}: others can write to it" in str(refused.value)
    assert os.listdir(parent) == []


def test_write_failure_of_nvrtc_is_reported_and_cleaned_up(tools: Toolchain, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = installed(tools)
    failed = nvrtc.nvrtcResult.NVRTC_ERROR_BUILTIN_OPERATION_FAILURE
    monkeypatch.setattr(bundled, "nvrtcInstallBundledHeaders", lambda *_: (failed, b"no space"))
    assert bundled.install_bundle(str(directory)) == f"{directory}: no space ({headers.BUNDLE})"
    assert os.listdir(directory.parent) == ["lock"]
    directory.parent.parent.joinpath("file").write_text("")
    assert "Not a directory" in bundled.install_bundle(str(directory.parent.parent / "file" / "headers" / "x"))


def test_deleting_flags_are_refused(tmp_path: Path) -> None:
    result, info, _ = nvrtc.nvrtcGetBundledHeadersInfo()
    assert (result, info.available) == (0, 1)
    (tmp_path / "mine").write_text("kept")
    for flags in (1, 3, True):
        with raises(nvrtc.nvrtcError, "tool", "0", "nvrtcInstallBundledHeaders"):
            nvrtc.nvrtcInstallBundledHeaders(str(tmp_path), flags)
    assert os.listdir(tmp_path) == ["mine"]


@pytest.mark.parametrize(
    ("header", "wheel"),
    [
        ("curand_kernel.h", "nvidia-curand"),
        ("cuda_runtime.h", "nvidia-cuda-runtime"),
        ("cuda_tile.h", "nvidia-cuda-crt"),
    ],
)
def test_missing_bundled_header_names_the_wheel(tools: Toolchain, header: str, wheel: str) -> None:
    runner = Runner(tools)
    with pytest.raises(CompileError) as missed:
        runner.get(job(f"#include <{header}>\n", runner))
    assert missed.value.help == f"run `pip install {wheel}` to install <{header}>"


def test_doctor_names_the_future_directory(tools: Toolchain) -> None:
    parts = health._headers(tools, tools.nvrtc.version, 13, "install them")
    assert {(part.state, part.path, part.found_via) for part in parts} == {
        ("ok", str(installed(tools)), health._BUNDLED)
    }


def test_removed_headers_are_installed_again(tools: Toolchain, tmp_path: Path) -> None:
    runner, cache = Runner(tools), tmp_path / "cache"
    assert bundled.remove_bundles(str(cache)) == bundled.bundle_bytes(str(cache)) == 0
    runner.get(job(SOURCE, runner))
    directory = installed(tools)
    (directory.parent / "mine").mkdir()
    size = sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())
    assert bundled.bundle_bytes(str(cache)) == bundled.remove_bundles(str(cache)) == size > 1 << 20
    assert sorted(os.listdir(directory.parent)) == ["lock", "mine"]
    runner.get(job(SOURCE, runner))
    assert directory.exists()


def test_headers_of_another_user_remain(tools: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = Runner(tools)
    runner.get(job(SOURCE, runner))
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert bundled.remove_bundles(str(tmp_path / "cache")) == 0
    assert installed(tools).exists()


def test_headers_remain_while_another_process_installs(
    tools: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = Runner(tools)
    runner.get(job(SOURCE, runner))
    monkeypatch.setattr(bundled, "_MOST_WAIT_S", 0.1)
    with bundled._alone(str(installed(tools).parent)), pytest.raises(TimeoutError):
        bundled.remove_bundles(str(tmp_path / "cache"))
    assert installed(tools).exists()
