"""What of a cubin is code, for tests that hold two of them equal."""

from __future__ import annotations

from cujit.formats.elf import read_elf

_KEPT = (".text", ".nv.constant", ".nv.global")


def code(cubin: bytes) -> dict[str, bytes]:
    """Instructions, constants and initial values, by section."""
    elf = read_elf(cubin)
    return {one.name: elf.content(one) for one in elf.sections if one.is_in_file and one.name.startswith(_KEPT)}
