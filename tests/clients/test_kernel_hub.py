"""Packs in the layout of the kernel hub: what is written, what is refused, and that ``kernels`` loads it."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest

import cujit
from cache.samples import artifact_of, key_of
from cujit.cache.cache import Cache
from cujit.cache.pack import write_pack
from cujit.errors import CacheRefusedError, FileError, FormatError, OptionError
from cujit.remote import export_hub
from pages import Page, shell
from raising import raises

HOW: dict[str, Any] = {"name": "my-kernel", "license": "Apache-2.0"}


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    cache = Cache(tmp_path / "cache")
    cache.keep(key_of(1), artifact_of(1))
    write_pack(tmp_path / "made.pack", cache.stores)
    return tmp_path / "made.pack"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    (tmp_path / "package" / "deeper" / "__pycache__").mkdir(parents=True)
    for name in ("__init__.py", "deeper/k.cuh", "deeper/__pycache__/x.pyc", ".hidden"):
        (tmp_path / "package" / name).write_text(name)
    return tmp_path / "package"


def test_variant_contains_package_pack_and_digests(pack: Path, package: Path, tmp_path: Path) -> None:
    variant = export_hub(pack, package, tmp_path / "one", version=3, **HOW)
    assert variant == tmp_path / "one" / "build" / "torch-universal"
    files = {str(path.relative_to(variant)): path.read_bytes() for path in variant.rglob("*") if path.is_file()}
    about = json.loads(files.pop("metadata.json"))
    assert {*files} == {"__init__.py", "deeper/k.cuh", "kernels.pack"}
    digests = {name: base64.b64encode(hashlib.sha256(data).digest()).decode() for name, data in files.items()}
    assert about["digest"] == {"algorithm": "sha256", "files": digests}
    assert (about["name"], about["version"], about["license"]) == ("my-kernel", 3, "Apache-2.0")
    again = export_hub(pack, package, tmp_path / "two", version=3, **HOW)
    assert (again / "metadata.json").read_bytes() == (variant / "metadata.json").read_bytes()


@pytest.mark.parametrize("how", [{"name": "My"}, {"name": "a"}, {"name": "a/b"}, {"name": 3}, {"version": 0}])
def test_invalid_hub_name_or_version_is_refused(how: dict[str, Any], pack: Path, package: Path, tmp_path: Path) -> None:
    with raises(OptionError, "option"):
        export_hub(pack, package, tmp_path / "out", **{**HOW, **how})
    assert not (tmp_path / "out").exists()


def test_package_that_cannot_be_written_whole_is_refused(pack: Path, package: Path, tmp_path: Path) -> None:
    (package / "kernels.pack").write_bytes(b"")
    with raises(OptionError, "option", "kernels.pack"):
        export_hub(pack, package, tmp_path / "out", **HOW)
    (package / "kernels.pack").unlink()
    (package / "link").symlink_to("/etc/passwd")
    with raises(OptionError, "option", "link"):
        export_hub(pack, package, tmp_path / "out", **HOW)
    (package / "link").unlink()
    (package / "__init__.py").unlink()
    with raises(OptionError, "option", "__init__.py"):
        export_hub(pack, package, tmp_path / "out", **HOW)
    assert not (tmp_path / "out").exists()


def test_existing_files_remain_and_a_damaged_pack_is_refused(pack: Path, package: Path, tmp_path: Path) -> None:
    export_hub(pack, package, tmp_path / "out", **HOW)
    with raises(FileError, "file"):
        export_hub(pack, package, tmp_path / "out", **HOW)
    data = bytearray(pack.read_bytes())
    data[-1] ^= 1
    pack.write_bytes(data)
    with pytest.raises((FormatError, CacheRefusedError)):
        export_hub(pack, package, tmp_path / "other", **HOW)
    assert not (tmp_path / "other").exists()


def test_page_creates_a_kernel_that_the_library_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page("fleets.md")
    section = "Hugging Face kernel hub"
    code = {language: [text for title, text in page.snippets(language) if title == section] for language in
            ('python title="scaling/__init__.py"', "shell", 'python title="use.py"')}  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cache"))
    ((init,), (line,), (use,)) = code.values()
    Path("scaling").mkdir()
    Path("scaling/__init__.py").write_text(init)
    source: dict[str, Any] = {"__file__": str(tmp_path / "scaling/__init__.py")}
    exec(init, source)
    cujit.compile(source["_SOURCE"], arch="sm_90")
    shell("cujit pack merge cache -o scaling.pack")
    assert "get_local_kernel" in shell(line.strip())
    exec(Path("repository/build/torch-universal/__init__.py").read_text(),
         loaded := {"__file__": str(tmp_path / "repository/build/torch-universal/__init__.py")})  # fmt: skip
    assert loaded["image"]("sm_90").provenance.outcome.value == "disk"  # type: ignore[operator]
    if not any(one.name == "kernels" for one in distributions()):
        pytest.skip("the kernels library is not installed: the layout alone was checked")
    done = subprocess.run([sys.executable, "-c", use], capture_output=True, text=True, check=True)
    assert done.stdout == "disk\n"
    checked = """
from pathlib import Path
from kernels._rust import Digest, DigestAlgorithm, Metadata
variant = Path("repository/build/torch-universal")
Metadata.read_from_file(variant / "metadata.json").digest.validate(Digest.hash_variant(DigestAlgorithm.SHA256, variant))
"""
    subprocess.run([sys.executable, "-c", checked], check=True, timeout=60)
