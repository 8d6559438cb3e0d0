"""First bytes of images have one home."""

from __future__ import annotations

import ast
from pathlib import Path

import cujit
from cujit.artifact import ImageKind, kind_of, magic

SOURCE = Path(cujit.__file__).parent
FIRST = (
    magic.ELF, magic.ARCHIVE, magic.THIN_ARCHIVE, magic.FATBIN, magic.FATBIN_WRAPPER, magic.LTOIR, *magic.BITCODE,
)  # fmt: skip


def _repeated(text: str) -> list[int]:
    """Find the lines of literals that begin as an image does, and of the machine of CUDA."""
    literals = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)]
    return sorted(node.lineno for node in literals if isinstance(node.value, bytes) and node.value.startswith(FIRST))


def test_first_bytes_are_written_in_one_file() -> None:
    files = {path: text for path in SOURCE.rglob("*.py") if "\\x" in (text := path.read_text()) or "<arch>" in text}
    assert len(files) > 10
    assert [path.name for path, text in files.items() if _repeated(text)] == ["magic.py"]


def test_repeated_first_bytes_are_found() -> None:
    assert _repeated('A = b"\\x7fELF\\x02"\nB = "text"\nC = b"!<arch>"\nD = b"!<arch>\\n"\n') == [1, 4]


def test_kind_of_first_bytes_is_known() -> None:
    assert [kind_of(first + bytes(60)) for first in (magic.FATBIN, magic.LTOIR, magic.ARCHIVE)] == [
        ImageKind.FATBIN, ImageKind.LTOIR, ImageKind.LIBRARY,
    ]  # fmt: skip
