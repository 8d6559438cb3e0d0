"""The words that an assembler knows: found among the strings of its file, and asked for one by one.

An assembler says of a word that it does not know that it is unknown, and of another one what is wrong with it there.
Some words are in no string, so words made of the parts of known ones are asked for too.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

__all__ = [
    "HEAD", "Complain", "directives", "known", "made", "modifiers", "names", "registers", "strings", "taken_directives",
    "targets", "with_directive",
]  # fmt: skip

Complain = Callable[[str], str | None]
"""What an assembler writes about a text; None where it dies."""
HEAD = ".version {}\n.target {}\n.address_size 64\n"
_KERNEL = ".visible .entry k(.param .u64 p)\n{\n.reg .b32 %r<9>;\n"
_LINE = re.compile(r"line (\d+); (error|fatal)\s*:\s*(.*)")
_STRING = re.compile(rb"\0([%.A-Za-z0-9_:]{2,48})(?=\0)")


def strings(path: Path) -> set[str]:
    """Find the strings of a file that may hold words, each with all its ends: linkers let one string end another."""
    whole = {found[1].decode() for found in _STRING.finditer(path.read_bytes())}
    return {text[start:] for text in whole for start in range(len(text) - 1)}


# -- candidates -----------------------------------------------------------------------------------------------


def modifiers(ends: Iterable[str]) -> set[str]:
    """Choose what may be a modifier, without its dot."""
    shape = re.compile(r"\.[A-Za-z0-9_]+(?:::[A-Za-z0-9_]+)*(?::\d+)?")
    return {text[1:] for text in ends if shape.fullmatch(text)}


def names(ends: Iterable[str]) -> set[str]:
    """Choose what may be the name of an instruction, with the words that belong to it."""
    shape = re.compile(r"[a-z][a-z0-9_]{1,20}(?:\.[a-z0-9_:]+)*")
    return {text for text in ends if shape.fullmatch(text)}


def registers(ends: Iterable[str]) -> set[str]:
    """Choose what may be a special register."""
    return {text for text in ends if re.fullmatch(r"%[a-z][a-z0-9_]*", text)}


def directives(ends: Iterable[str]) -> set[str]:
    """Choose what may be a directive."""
    return {text for text in ends if re.fullmatch(r"\.[a-z][a-z0-9_]{2,40}", text)}


def targets(ends: Iterable[str]) -> set[str]:
    """Choose the targets, without what is before their numbers."""
    return {found[1] for text in ends if (found := re.fullmatch(r"compute_(\d+[af]?)", text))}


def made() -> Iterator[str]:
    """Make words as those are that assemblers keep in no string: types of few bits, shapes, and words of two parts."""
    for sign, exponent, fraction in itertools.product(("", "u"), range(1, 9), range(8)):
        yield from (f"{sign}e{exponent}m{fraction}{times}" for times in ("", "x2", "x4", "x8"))
    for kind, bits in itertools.product("busf", (1, 2, 4, 8, 16, 32, 64, 128, 256)):
        yield from (f"{kind}{bits}{times}" for times in ("", "x2", "x4", "x8"))
    yield from (f"{letter}{number}" for letter in "vx" for number in (1, 2, 3, 4, 8, 16, 32, 64, 128, 256))
    yield from (f"scaled::n{count}::{scale}" for count in (1, 2, 4) for scale in ("ue8m0", "ue4m3", "ue5m3"))
    yield from (f"multicast::cluster::{bits}b" for bits in (8, 16, 32, 64))
    yield from (f"{word}::v{number}" for word in ("layout", "version") for number in range(4))
    yield from (f"phase_type::{phase}" for phase in ("primary", "conditional", "secondary"))
    for what in ("read", "reads", "write", "proxy::async", "shared::cta", "shared::cluster", "shared::read::mma::a"):
        yield f"sync_restrict::{what}"
    for what in ("disabled", "fabric", "validity::per_element::ff"):
        yield f"mbarrier::report::{what}"
    yield from (f"mbarrier::report::validity::per_16bytes::8{'0' * zeros}" for zeros in range(9))
    yield from (f"override::{what}" for what in ("global_address", "global_dim", "global_dim_stride", "box_dim"))
    yield from (f"sp::{few}:{many}" for few in (1, 2, 4) for many in (2, 4, 8, 16, 32))
    yield from ("pzo", "noftz", "exclusive", "im2col_no_offs::w", "kind::ti16", "decompress::lut::b", "ignore_oob")


# -- asking ---------------------------------------------------------------------------------------------------


def known(
    words: Iterable[str], statement: str, unknown: str, complain: Complain, version: str, target: str
) -> list[str]:
    """Return the words of which an assembler does not say that they are ``unknown``, each put into a statement."""
    todo, found = [sorted(set(words))], list[str]()
    head = HEAD.format(version, target) + _KERNEL
    first = head.count("\n") + 1
    while todo:
        some = todo.pop()
        log = complain(head + "\n".join(statement.format(word) for word in some) + "\nret.no.such.form;\n}\n")
        if log is None:  # it dies of a word, which it knows then
            half = len(some) // 2
            found += [] if half else some
            todo += [some[:half], some[half:]] if half else []
            continue
        told = [(int(line) - first, kind, why) for line, kind, why in _LINE.findall(log)]
        strange = {line for line, _, why in told if unknown in why}
        stop = min((line for line, kind, _ in told if kind == "fatal"), default=len(some))
        found += [word for k, word in enumerate(some[:stop]) if k not in strange]
        todo += [some[stop + 1 :]] if stop + 1 < len(some) else []
    return sorted(found)


def with_directive(word: str, version: str, target: str) -> list[str]:
    """Put a directive into a module, before the body of a function, and into one."""
    head = HEAD.format(version, target)
    places = ("{}\n", ".visible .entry k() {}\n{{ ret; }}\n", ".visible .entry k() {{ {}\nret; }}\n")
    return [head + place.format(word) for place in places]


def taken_directives(words: Sequence[str], complain: Complain, version: str, target: str) -> set[str]:
    """Return the directives that an assembler reads on from."""
    return {
        word
        for word in words
        for text in with_directive(word, version, target)
        if f"near '{word}'" not in (complain(text) or "")
    }
