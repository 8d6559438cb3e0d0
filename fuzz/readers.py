"""Every reader of foreign bytes, by the name that ``guided.py`` takes.

A reader may answer with a value or with an error of cujit's own; anything else is a finding.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable

from cujit.arch import Arch
from cujit.cache import record
from cujit.errors import CujitError
from cujit.formats.cubin import read_cubin
from cujit.formats.elf import read_elf
from cujit.formats.expressions import normalise_expression
from cujit.formats.fatbin import Fatbin, FatbinEntry, find_fatbins, read_fatbin, select
from cujit.formats.ltoir import read_ltoir
from cujit.formats.mangling import entity_name
from cujit.formats.ptx.heads import entry_signatures
from cujit.formats.ptx.linking import Input, link_modules
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.printer import print_module
from cujit.formats.ptx.recovered import ptx_of_cubin
from cujit.formats.salvage import salvage
from cujit.formats.saved_launch import PREFIX_BYTES, read_saved
from cujit.formats.tileir import read_tileir
from cujit.inspection.read import inspect

_DEVICE = Arch.parse("sm_90")
_HASH_BYTES = 32


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _mangling(data: bytes) -> None:
    entity_name(_text(data))
    normalise_expression(_text(data))


def _fatbin(data: bytes) -> None:
    _payloads(read_fatbin(data))


def _find_fatbins(data: bytes) -> None:
    for fatbin in find_fatbins(data):
        _payloads(fatbin)


def _payloads(fatbin: Fatbin) -> None:
    """Unpack every entry; one that is damaged hides none behind it."""
    for entry in fatbin:
        with contextlib.suppress(CujitError):
            entry.payload()
    select(fatbin, _DEVICE)


def _elf(data: bytes) -> None:
    elf = read_elf(data)
    elf.symbols()
    for section in elf.sections:
        if section.name.startswith(".note"):
            elf.notes(section)


def _salvage(data: bytes) -> None:
    for entries in salvage(data):
        for entry in entries:
            if isinstance(entry, FatbinEntry):
                with contextlib.suppress(CujitError):
                    entry.payload()


def _inspect(data: bytes) -> None:
    """Read the content of every image, and the types that the PTX beside machine code tells."""
    for image in inspect(data):
        _ = image.content


def _linking(data: bytes) -> None:
    """Link the modules between form feeds; what comes out is PTX again."""
    texts = _text(data).split("\f")
    linked = link_modules([Input(str(number), parse(text)) for number, text in enumerate(texts)])
    text = print_module(linked.module)
    try:
        parse(text)
    except CujitError as e:
        raise AssertionError("the linked text does not parse") from e


def _record(data: bytes) -> None:
    """Read an entry of the cache by its head, then whole, with the hash that it should have: none is guessed."""
    with contextlib.suppress(CujitError):
        record.peek(data)
    fields, body = data[: record.PREFIX_BYTES - _HASH_BYTES], data[record.PREFIX_BYTES :]
    hashed = fields + hashlib.sha256(fields + body).digest() + body
    record.decode(hashed, fields[-_HASH_BYTES:].hex())


def _saved(data: bytes) -> None:
    """Read a saved launch, with the hash that it should have."""
    fields, rest = data[: PREFIX_BYTES - _HASH_BYTES], data[PREFIX_BYTES:]
    read_saved(fields + hashlib.sha256(fields + rest).digest() + rest)


READERS: dict[str, Callable[[bytes], object]] = {
    "linking": _linking,
    "ptx": lambda data: parse(_text(data)),
    "fatbin": _fatbin,
    "find_fatbins": _find_fatbins,
    "cubin": read_cubin,
    "elf": _elf,
    "ltoir": read_ltoir,
    "tileir": read_tileir,
    "mangling": _mangling,
    "salvage": _salvage,
    "inspect": _inspect,
    "heads": entry_signatures,
    "recovered": ptx_of_cubin,
    "record": _record,
    "saved": _saved,
}


def read_foreign(reader: str, data: bytes) -> None:
    """Have one reader read, and take an error of cujit's own for an answer."""
    with contextlib.suppress(CujitError):
        READERS[reader](data)
