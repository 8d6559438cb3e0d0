"""What `make fuzz` runs is there, and reads; the fuzzer itself is not among the dependencies."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import seeds
from readers import READERS, read_foreign

MAKEFILE = (Path(__file__).parents[2] / "Makefile").read_text()


def test_make_fuzzes_every_reader() -> None:
    listed = re.search(r"for reader in (.*); do", MAKEFILE)
    assert listed
    assert set(listed[1].split()) == set(READERS)


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_refuses_other_files_with_cujits_errors(reader: str) -> None:
    for data in (b"", b"\x7fELF\x02\x01", bytes(range(256)) * 4):
        read_foreign(reader, data)


def test_images_to_start_from_are_read() -> None:
    found = [(reader, data) for reader, _, data in seeds.kept()]
    assert {reader for reader, _ in found} <= set(READERS)
    for reader, data in found:
        read_foreign(reader, data)
