"""Directories of other tools: packed, pushed and pulled, and written only if trusted keys signed the pack."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cujit.artifact import Artifact, ImageKind
from cujit.cache.cache import Cache
from cujit.cache.files import pack_files
from cujit.cache.key import Part, make_key
from cujit.cache.pack import name_signers, write_pack
from cujit.errors import CacheRefusedError, FormatError, OptionError
from cujit.remote import extract_directory, pack_directory, pull_pack, push_pack
from pages import shell
from raising import raises
from remote.registries import Registry, registry
from remote.serving import Farm, farm_in

__all__ = ["registry"]

NAME = "tool-1.0"


@pytest.fixture
def farm(tmp_path: Path) -> Farm:
    return farm_in(tmp_path)


@pytest.fixture
def tool(tmp_path: Path) -> Path:
    """A tool's cache: two kernels, files at the top, and what other processes need no more."""
    top = tmp_path / "tool"
    for path, content in {
        "index.json": b"{}",
        "kernels/a/kernel.cubin": b"\x7fELF a",
        "kernels/a/kernel.cu": b"a",
        "kernels/b/kernel.cubin": b"\x7fELF b",
        "kernels/b/kernel.lock": b"",
        "kernels/.hidden/kernel.cubin": b"hidden",
        ".ninja_log": b"log",
    }.items():
        file = top / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    (top / "kernels" / "b" / "link").symlink_to("/etc/passwd")
    return top


def files_of(top: Path) -> dict[str, bytes]:
    return {str(path.relative_to(top)): path.read_bytes() for path in sorted(top.rglob("*")) if path.is_file()}


def signed(pack: Path, farm: Farm) -> Path:
    """Name a key in a pack, as ``pull_pack`` does after it proved the signature."""
    with pack.open("r+b") as file:
        name_signers(file, [farm.signer.id])
    return pack


def test_directory_is_restored_from_a_registry(
    registry: Registry, farm: Farm, tool: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack, here, there = tmp_path / "tool.pack", tmp_path / "here.pack", tmp_path / "there"
    said = json.loads(shell(f"cujit pack directory {tool} --tool {NAME} -o {pack} --json"))
    assert said["records"] == 3
    push_pack(f"{registry.url}:tool", pack, farm.signer)
    pull_pack(f"{registry.url}:tool", here, farm.trust)
    monkeypatch.setenv("CUJIT_TRUST", str(farm.trust))
    assert json.loads(shell(f"cujit pack extract {here} --tool {NAME} --into {there} --json")) == {"new": 4, "kept": 0}
    names = ["index.json", "kernels/a/kernel.cu", "kernels/a/kernel.cubin", "kernels/b/kernel.cubin"]
    assert files_of(there) == {name: (tool / name).read_bytes() for name in names}
    assert "0 new files, 4 kept" in shell(f"cujit pack extract {here} --tool {NAME} --into {there}")


def test_differing_files_are_rewritten(farm: Farm, tool: Path, tmp_path: Path) -> None:
    pack_directory(tool, tmp_path / "tool.pack", name=NAME)
    pack, there = signed(tmp_path / "tool.pack", farm), tmp_path / "there"
    extract_directory(pack, there, farm.trust, name=NAME)
    good = files_of(there)
    (there / "kernels/a/kernel.cubin").write_bytes(b"other")
    (there / "kernels/b/kernel.cubin").unlink()
    (there / "kernels/b/kernel.cubin").symlink_to(tmp_path / "elsewhere")
    (there / "kernels/a/kernel.cu").chmod(0o666)
    (there / "kernels/own").write_bytes(b"the tool's own")
    assert extract_directory(pack, there, farm.trust, name=NAME) == (3, 1)
    assert files_of(there) == {**good, "kernels/own": b"the tool's own"}
    assert not (tmp_path / "elsewhere").exists()


def test_unsigned_files_are_never_written(farm: Farm, tool: Path, tmp_path: Path) -> None:
    pack, there = tmp_path / "tool.pack", tmp_path / "there"
    pack_directory(tool, pack, name=NAME)
    with raises(CacheRefusedError, "cache-refused", "signed"):
        extract_directory(pack, there, farm.trust, name=NAME)
    signed(pack, farm)
    with raises(CacheRefusedError, "cache-refused", farm.signer.id[:16]):
        extract_directory(pack, there, farm_in(tmp_path, "other").trust, name=NAME)
    keys = json.loads(farm.trust.read_text())
    keys["keys"][0]["revoked"] = True
    farm.trust.write_text(json.dumps(keys))
    with raises(CacheRefusedError, "cache-refused", farm.signer.id[:16]):
        extract_directory(pack, there, farm.trust, name=NAME)
    assert not there.exists()


def test_one_damaged_record_prevents_all_files(farm: Farm, tool: Path, tmp_path: Path) -> None:
    pack_directory(tool, tmp_path / "tool.pack", name=NAME)
    pack = signed(tmp_path / "tool.pack", farm)
    data = bytearray(pack.read_bytes())
    data[-1] ^= 1
    pack.write_bytes(data)
    with raises(FormatError, "format"):
        extract_directory(pack, tmp_path / "there", farm.trust, name=NAME)
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize("path", ["..", "a/../../b", "/etc", "a//b", ".ssh", "a/.", "a\nb"])
def test_path_that_leads_elsewhere_is_refused(path: str, farm: Farm, tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    key = make_key("directory", [Part.text("name", NAME), Part.text("path", path)])
    cache.keep(key, Artifact(ImageKind.FILES, pack_files({"file": b"bad"}), None, name=NAME))
    write_pack(tmp_path / "tool.pack", cache.stores)
    there = tmp_path / "deep" / "there"
    with raises(FormatError, "format"):
        extract_directory(signed(tmp_path / "tool.pack", farm), there, farm.trust, name=NAME)
    assert not there.exists()


def test_directory_writable_by_others_is_refused(farm: Farm, tool: Path, tmp_path: Path) -> None:
    pack_directory(tool, tmp_path / "tool.pack", name=NAME)
    there = tmp_path / "there"
    there.mkdir()
    there.chmod(0o777)
    with raises(CacheRefusedError, "cache-refused"):
        extract_directory(signed(tmp_path / "tool.pack", farm), there, farm.trust, name=NAME)
    assert not list(there.iterdir())


def test_names_and_empty_directories_are_checked(farm: Farm, tool: Path, tmp_path: Path) -> None:
    pack, empty = tmp_path / "tool.pack", tmp_path / "empty"
    empty.mkdir()
    with raises(OptionError, "option"):
        pack_directory(empty, pack, name=NAME)
    assert not pack.exists()
    for name in ("", "A", "../x", 3):
        with raises(OptionError, "option"):
            pack_directory(tool, pack, name=name)  # type: ignore[arg-type]
    pack_directory(tool, pack, name=NAME)
    with raises(OptionError, "option", NAME):
        extract_directory(signed(pack, farm), tmp_path / "there", farm.trust, name="tool-2.0")
    assert not (tmp_path / "there").exists()


def test_two_tools_share_a_pack(farm: Farm, tool: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "index.json").write_bytes(b"[]")
    pack_directory(tool, tmp_path / "one.pack", name=NAME)
    pack_directory(other, tmp_path / "two.pack", name="other")
    shell(f"cujit pack merge {tmp_path / 'one.pack'} {tmp_path / 'two.pack'} -o {tmp_path / 'both.pack'}")
    pack = signed(tmp_path / "both.pack", farm)
    assert extract_directory(pack, tmp_path / "there", farm.trust, name="other") == (1, 0)
    assert files_of(tmp_path / "there") == {"index.json": b"[]"}
    assert os.stat(tmp_path / "there" / "index.json").st_mode & 0o777 == 0o600
