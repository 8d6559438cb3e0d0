"""The snippets of docs/fleets.md run. The program for Triton runs where Triton is installed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from cache.samples import artifact_of, key_of
from cujit.cache.cache import Cache
from cujit.cache.pack import open_verified
from cujit.cache.remote.signing import Signer
from cujit.cache.settings import VARIABLES
from cujit.warmup import declarations
from pages import Page, shell
from remote.registries import Registry, registry
from remote.serving import running

__all__ = ["registry"]

PAGE = Page("fleets.md")
URL = "https://kernels.example/cuda"


def test_snippets_for_registries_run(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cache = Cache(Path("kernels"))
    cache.keep(key_of(1), artifact_of(1))
    shell("cujit cache keygen farm.key > believed.json")
    here = f"oci://127.0.0.1:{registry.port}"
    for title, code in PAGE.snippets("shell"):
        for line in code.splitlines() if title == "Container registries" else ():
            shell(line.replace("oci://registry.example", here))
    (named,) = open_verified(Path("ready.pack")).signers()
    signer = Signer.read("farm.key", scope="main")
    assert (open_verified(Path("kernels.pack")).signers(), named) == ((), signer.id)
    for title, code in PAGE.snippets():
        if title == "Container registries":
            PAGE.run(code.replace("oci://registry.example", here))
    assert Path("new.pack").exists()


def test_tool_directory_travels_as_the_page_says(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("compiled", "kernel").mkdir(parents=True)
    Path("compiled", "kernel", "kernel.cubin").write_bytes(b"\x7fELF")
    shell("cujit cache keygen farm.key > believed.json")
    for title, code in PAGE.snippets("shell"):
        for line in code.splitlines() if title == "Tools with a cache directory" else ():
            shell(line.replace("oci://registry.example", f"oci://127.0.0.1:{registry.port}"))
    assert Path("tilelang", "kernel", "kernel.cubin").read_bytes() == b"\x7fELF"


def test_declarations_of_the_page_are_warmed_up_and_covered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(declarations, "_DECLARED", {})
    section = "Declared warm-up"
    for name in ("mylib.py", "service.py"):
        ((code),) = (code for title, code in PAGE.snippets(f'python title="{name}"') if title == section)
        Path(name).write_text(code)
    done = subprocess.run([sys.executable, "service.py"], capture_output=True, text=True, check=True)
    assert re.fullmatch(r"rank 0: 3 kernels in [0-9.]+ s: 3 made; waited 0.00 s\n", done.stdout)
    (keyed,) = (code for title, code in PAGE.snippets('python title="keyed.py"') if title == section)
    Path("keyed.py").write_text(
        f"{keyed}\nprint(cujit.warmup.run(['keyed'], arch=['sm_90']).counts)\n"
        "print([Scale().compile(key).provenance.is_hit for key in Scale().get_warmup_keys([64, 128])])\n"
    )
    variables = {**os.environ, "CUJIT_CACHE_DIR": str(tmp_path / "keyed")}
    done = subprocess.run([sys.executable, "keyed.py"], capture_output=True, text=True, check=True, env=variables)
    assert done.stdout == "{'made': 2}\n[True, True]\n"
    ((code),) = (code for title, code in PAGE.snippets("shell") if title == section)
    said = [shell(line) for line in code.splitlines()]
    assert "6 requests of 3 sources" in said[0]
    assert "100.0% of 6 calls" in said[2]


def test_every_variable_of_the_page_is_one() -> None:
    assert {*re.findall(r"CUJIT_\w+", PAGE.text)} <= {*VARIABLES, "CUJIT_COMPILE"}


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed: `make clients`")
def test_program_for_triton_fills_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ((code),) = (code for title, code in PAGE.snippets('python title="warm.py"') if title == "Triton")
    Path("warm.py").write_text(code)
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cujit"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setenv("TRITON_CACHE_MANAGER", "cujit.integrations.triton:CacheManager")
    shell("cujit cache keygen farm.key > believed.json")
    subprocess.run([sys.executable, "warm.py"], check=True, timeout=300)
    entries = json.loads(shell("cujit cache ls --json"))
    assert sorted((entry["name"], entry["arch"]) for entry in entries) == [
        ("scale", arch) for arch in ("sm_80", "sm_80", "sm_90", "sm_90")
    ]
    with running() as server:
        shell(f"cujit cache push {server.url} --key farm.key")
        assert len(server.files) == 5
