"""LTO-IR: the header that every architecture gets, and what damage does."""

from __future__ import annotations

import pytest

from cujit.arch import Arch
from cujit.errors import FormatError
from cujit.formats.ltoir import Ltoir, read_ltoir
from formats import damage, images


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("compute_75", "lto_75"),
        ("compute_90", "lto_90"),
        ("compute_90a", "lto_90a"),
        ("compute_100", "lto_100"),
        ("compute_100f", "lto_100"),  # the family is not recorded
        ("compute_103a", "lto_103a"),
        ("compute_110", "lto_110"),  # the IR says 1010
        ("compute_121a", "lto_121a"),
    ],
)
def test_architecture_is_reported(target: str, told: str) -> None:
    assert read_ltoir(images.ltoir(images.SAXPY, target)).arch == Arch.parse(told)


def test_producer_is_reported() -> None:
    ir = read_ltoir(images.ltoir(images.SAXPY))
    assert ir.container_version[0] == 1
    assert ir.ir_version[0] == 2
    assert ir.toolkit is not None
    assert ir.toolkit >= (12, 9)


def test_ten_one_is_eleven_zero_only_since_cuda_13() -> None:
    image = bytearray(images.ltoir(images.SAXPY, "compute_110"))
    image[5], image[7] = 0x40, 0x5D
    assert read_ltoir(bytes(image)) == Ltoir(Arch.parse("lto_101"), (1, 0x40), (2, 0x5D), (12, 9))


def test_unknown_version_is_not_an_error() -> None:
    image = bytearray(images.ltoir(images.SAXPY))
    image[7] = 0xEE
    assert read_ltoir(bytes(image)).toolkit is None


def test_every_cut_of_the_header_is_refused() -> None:
    image = images.ltoir(images.SAXPY)
    assert all(damage.refuses(read_ltoir, image[:length]) for length in range(0x20))


@pytest.mark.parametrize(("at", "value"), [(0, 0), (0x18, 9), (0x1A, 0)])
def test_broken_header_is_refused(at: int, value: int) -> None:
    image = bytearray(images.ltoir(images.SAXPY))
    image[at] = value
    if at == 0x1A:
        image[0x1B] = 0
    with pytest.raises(FormatError):
        read_ltoir(bytes(image))


def test_damage_gives_a_value_or_a_format_error() -> None:
    image = images.ltoir(images.SAXPY)
    for damaged in damage.flips(image, 500, only=0x30):
        damage.survives(read_ltoir, damaged)
