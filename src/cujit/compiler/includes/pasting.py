"""Names that ``##`` may paste together out of pieces, so that no text holds them whole: ``__has_ ## include``."""

from __future__ import annotations

import re

__all__ = ["pasted_name"]

_NAMES = ("__has_include", "__has_embed", "__DATE__", "__TIME__", "__TIMESTAMP__")
# Of two pieces, one is a begin of four characters or more, or else the other lacks no more than three. `include` by
# itself is in every text; what goes before it is not.
_BEGINS = {name[:k] for name in _NAMES for k in range(4, len(name))}
_ENDS = {name[k:] for name in _NAMES for k in (1, 2, 3)}
# Three pieces: the underscores apart.
_CORES = {name.strip("_") for name in _NAMES}
_PIECES = sorted(_BEGINS | _ENDS - _CORES, key=len, reverse=True)
_PIECE = re.compile(rf"(?<![\w$])(?:{'|'.join(_PIECES)})(?![\w$])")
_CORE = re.compile(rf"(?<![\w$])(?:{'|'.join(sorted(_CORES, key=len, reverse=True))})(?![\w$])")
_UNDERSCORES = re.compile(r"(?<![\w$])__?\s*##|##\s*__?(?![\w$])")
# What a text with such a piece surely holds, to look for quickly.
_HINTS = tuple(sorted({piece[:4] for piece in _PIECES}))


def pasted_name(plain: str) -> str:
    """Give a piece in a text, without comments, of a name that tells of files or of the time; "" where none is.

    One piece is enough: the macro that pastes may be in another header. The words ``DATE`` and ``TIME`` count only
    beside a ``##`` with underscores. A name in more pieces than that is not seen.
    """
    if any(hint in plain for hint in _HINTS) and (match := _PIECE.search(plain)):
        return match[0]
    if "##" in plain and _UNDERSCORES.search(plain) and (match := _CORE.search(plain)):
        return match[0]
    return ""
