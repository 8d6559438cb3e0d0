"""Tile IR of NVRTC and of cuda-tile: its version and kernels; damaged, it is an error of cujit's and nothing else."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from cujit.arch import Arch
from cujit.errors import FormatError
from cujit.formats.tileir import first_release_for, read_tileir
from raising import raises

GOLDENS = Path(__file__).parent.parent / "goldens" / "tileir"
_WORD = "integer or pointer of 4 bytes"
_KNOWN = {
    "add-13.3.tileir": ((13, 3), {"add": f"({', '.join(['float*', _WORD, _WORD] * 3)})"}),
    "add-13.4.tileir": ((13, 4), {"add": f"({', '.join(['float*', _WORD, _WORD] * 3)})"}),
    "attention-13.4.tileir": (
        (13, 4),
        {"attention": f"({', '.join(['__half*', *[_WORD] * 6] * 3 + ['float*', *[_WORD] * 6])}, float)"},
    ),
    "scale-13.5.tileir": (
        (13, 5),
        {"_Z5scaleIfEvPT_S1_i": f"(float*, float*, {_WORD})", "_Z5twicePfS_": "(float*, float*)"},
    ),
}


@pytest.mark.parametrize("name", sorted(_KNOWN))
def test_version_and_kernels_are_read(name: str) -> None:
    found = read_tileir((GOLDENS / name).read_bytes())
    assert found.kernels is not None
    taken = {kernel: str(signature) for kernel, signature in found.kernels.items()}
    assert (found.version, taken) == _KNOWN[name]
    assert found.has_lines


def test_every_golden_is_read() -> None:
    assert {path.name for path in GOLDENS.glob("*.tileir")} == _KNOWN.keys()


@pytest.mark.parametrize("name", sorted(_KNOWN))
def test_truncated_file_is_refused(name: str) -> None:
    data = (GOLDENS / name).read_bytes()
    for size in range(len(data)):
        with raises(FormatError, "format"):
            read_tileir(data[:size])


@pytest.mark.parametrize("name", sorted(_KNOWN))
def test_damaged_file_is_read_or_refused(name: str) -> None:
    data, choose = (GOLDENS / name).read_bytes(), random.Random(name)
    refused = 0
    for _ in range(2000):
        damaged = bytearray(data)
        for _ in range(choose.choice((1, 2, 8))):
            damaged[choose.randrange(8, len(data))] = choose.randrange(256)
        with contextlib.suppress(FormatError):
            read_tileir(bytes(damaged))
            continue
        refused += 1
    assert refused > 100


def test_declared_sizes_allocate_no_memory() -> None:
    huge = b"\xff" * 8 + b"\x7f"
    for section in (1, 2, 5):
        with raises(FormatError, "format"):
            read_tileir(b"\x7fTileIR\0\x0d\x04\0\0" + bytes([section]) + huge)


def test_attribute_of_a_later_version_hides_only_the_kernels() -> None:
    data = (GOLDENS / "scale-13.5.tileir").read_bytes()
    at = data.index(b"\x0b\0\x06\0")  # no hints, no attributes of arguments
    found = read_tileir(data[:at] + b"\x3f" + data[at + 1 :])
    assert (found.version, found.kernels) == ((13, 5), None)


def test_releases_know_more_and_more_architectures() -> None:
    first = {number: first_release_for(Arch.parse(f"sm_{number}")) for number in (75, 80, 89, 90, 100, 107, 120)}
    assert first == {75: None, 80: (13, 2), 89: (13, 2), 90: (13, 3), 100: (13, 1), 107: (13, 4), 120: (13, 1)}
