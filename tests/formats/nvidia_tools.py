"""What NVIDIA's own readers, cuobjdump and nvdisasm, say of a file; as values to compare with ours."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cuda import pathfinder

Records = dict[str, list[tuple[str, str]]]

_ENTRY = re.compile(r"^(?P<inside>\t?)Fatbin (?P<kind>elf|ptx|nvvm|concatenated entry) code:$", re.MULTILINE)
_FIELD = re.compile(r"^\t?(arch|code version|host|compile_size|identifier|ptxasOptions|nvvmOptions) = ?(.*)$", re.M)
_FUNCTION = re.compile(r"^\s*Function (\S+):\n\s*(REG:.*)$", re.MULTILINE)
_COMMON = re.compile(r"^\s*Common:\n\s*(GLOBAL:.*)$", re.MULTILINE)
_SYMBOL = re.compile(r"^(FUNC|OBJECT|NOTYPE) +\S+ +\S+ +(\S+) +(\S+)$", re.MULTILINE)
_INFO = re.compile(r"^\.nv\.info\.(\S+)\n(.*?)(?=^\S)", re.MULTILINE | re.DOTALL)
_RECORD = re.compile(r"Attribute:\t(\S+)[^\n]*\n\tFormat:[^\n]*\n((?:(?!\t<0x).)*)", re.DOTALL)


@dataclass
class Dumped:
    """One entry as cuobjdump lists it; ``is_inside`` where it is one of several that share a payload."""

    kind: str
    fields: dict[str, str]
    is_compressed: bool
    is_debug: bool
    is_inside: bool
    resources: dict[str, dict[str, int]] = field(default_factory=dict)
    common: dict[str, int] = field(default_factory=dict)
    symbols: list[tuple[str, str, str]] = field(default_factory=list)
    """Type, flag (ENTRY, MANAGED or -) and name."""


def tool(name: str) -> str:
    """The path of a tool; the test is skipped where it is not installed."""
    path = pathfinder.find_nvidia_binary_utility(name) or shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed: pip install nvidia-cuda-{name}")
    return path


def _run(name: str, *arguments: str | Path, cwd: Path | None = None) -> str:
    done = subprocess.run([tool(name), *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def entries(file: Path) -> list[Dumped]:
    """List the entries with their resources and symbols, in the order of the file."""
    text = _run("cuobjdump", "-all", "-res-usage", "-symbols", file)
    found: list[Dumped] = []
    shared: Dumped | None = None
    starts = list(_ENTRY.finditer(text))
    for start, end in zip(starts, [*(m.start() for m in starts[1:]), len(text)], strict=True):
        entry = _entry(start, text[start.end() : end])
        if entry.kind == "concatenated entry":
            shared = entry
            continue
        if entry.is_inside:
            assert shared is not None
            entry.is_compressed = shared.is_compressed
        found.append(entry)
    return found


def _entry(start: re.Match[str], body: str) -> Dumped:
    lines = [line.strip() for line in body.splitlines()]
    common = _COMMON.search(body)
    return Dumped(
        start["kind"],
        dict(_FIELD.findall(body)),
        "compressed" in lines,
        "has debug info" in lines,
        bool(start["inside"]),
        {name: _numbers(numbers) for name, numbers in _FUNCTION.findall(body)},
        _numbers(common[1]) if common else {},
        _SYMBOL.findall(body),
    )


def _numbers(text: str) -> dict[str, int]:
    """Read ``REG:12 STACK:UNKNOWN``; what is unknown is -1."""
    words = (word.rpartition(":") for word in text.split())
    return {key: -1 if value == "UNKNOWN" else int(value) for key, _, value in words}


def payloads(file: Path, folder: Path) -> tuple[list[bytes], list[bytes], tuple[int, int]]:
    """Extract cubins and PTX; the tool overwrites files of one name, so the counts are told beside."""
    said = [_run("cuobjdump", f"-x{what}", "all", "-all", file, cwd=folder) for what in ("elf", "ptx")]
    cubins, texts = ([f.read_bytes() for f in sorted(folder.glob(f"*.{end}"))] for end in ("cubin", "ptx"))
    return cubins, texts, (said[0].count("Extracting ELF"), said[1].count("Extracting PTX"))


def kernel_records(file: Path) -> Iterator[Records]:
    """The records of the kernels of each cubin, as cuobjdump prints them: kernel to (attribute, text)."""
    text = _run("cuobjdump", "-all", "-elf", file)
    for image in re.split(r"^64-?bit (?:ELF|elf):", text, flags=re.MULTILINE)[1:]:
        yield {
            kernel: [(name, value.strip()) for name, value in _RECORD.findall(body)]
            for kernel, body in _INFO.findall(image + "\n.")
        }


def disassembled(cubin: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """The header of nvdisasm's JSON, and where the code of each function ends in its section, in bytes."""
    header, functions = json.loads(_run("nvdisasm", "-json", cubin))
    return header, {f["function-name"]: f["start"] + f["length"] for f in functions}
