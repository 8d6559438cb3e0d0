"""Heads of PTX entries: their parameters, read without the function bodies."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cujit.errors import FormatError
from cujit.formats.ptx.parameters import signature_of_entry
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.syntax import PtxModule
from cujit.signature import Signature

# Source: PTX ISA 9.0, 4.2 "Comments" and 5.4.4 (texts of directives): what can hide a brace. Alternatives
# that begin with one character each are searched three times as fast as a set of them.
_PIECES = re.compile(
    r'\.source_begin\b.*?(?:\.source_end|\Z)|//[^\n]*|/\*.*?(?:\*/|\Z)|"[^"\n]*"|\{|\}|\.entry\b', re.DOTALL
)
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_FRONT = ".version 9.0\n.target sm_90\n.address_size 64\n"


def heads(text: str) -> PtxModule:
    """Return a module with only the entries of a text, and with empty bodies.

    Raises:
        PtxSyntaxError: a head is not PTX.
    """
    return parse(_FRONT + "\n".join(f"{head}\n{{}}" for head in _heads(text)))


def entry_signatures(data: bytes) -> dict[str, Signature]:
    """Return the signatures of the entries that PTX defines, by name. Return no signatures if the PTX is damaged.

    A full parse returns the same signatures, but is much slower, because it parses the function bodies.
    """
    try:
        return {entry.name: signature_of_entry(entry) for entry in heads(data.rstrip(b"\0").decode()).entries}
    except (UnicodeDecodeError, FormatError):
        return {}


def _heads(text: str) -> Iterator[str]:
    """Yield the text from ``.entry`` to the brace that opens the body, for each entry without comments."""
    depth, start = 0, -1
    for piece in _PIECES.finditer(text):
        word = piece[0]
        if word == "}":
            depth -= 1
        elif word == ".entry":
            start = piece.start()
        elif word == "{":
            if depth == 0 and start >= 0:
                head = _COMMENTS.sub(" ", text[start : piece.start()])
                if ";" not in head:  # else it was declared, and the brace is another's
                    yield head
                start = -1
            depth += 1
