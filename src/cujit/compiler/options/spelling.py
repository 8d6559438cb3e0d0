"""How an option's value becomes arguments of a tool. The vocabulary of the option table."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cujit.values import NamedTuple
from cujit.values.typed import Any


class Spelling(NamedTuple):
    """A tool's spelling of an option: ``text`` for users, and ``render`` for the tool."""

    text: str
    render: Callable[[Any], list[str]]


class Rejects(NamedTuple):
    """A tool without an option. ``why`` completes the sentence "nvJitLink doesn't support the option: …"."""

    why: str


def flag(*spelled: str) -> Spelling:
    """Return a spelling in which True adds the arguments and False adds nothing."""
    return Spelling(" ".join(spelled), lambda on: list(spelled) if on else [])


def switch(spelled: str, on: str = "true", off: str = "false") -> Spelling:
    """True and False are both written: ``--fmad=true``, ``--fmad=false``."""
    return Spelling(f"{spelled}={on}|{off}", lambda is_on: [f"{spelled}={on if is_on else off}"])


def value(spelled: str) -> Spelling:
    """Return a spelling with one argument, in which the value replaces ``{}``."""
    return Spelling(spelled.format("…"), lambda v: [spelled.format(v)])


def each(spelled: str) -> Spelling:
    """One argument for every item of a list."""
    return Spelling(f"{spelled.format('…')} for each", lambda items: [spelled.format(v) for v in items])


def joined(spelled: str) -> Spelling:
    """One argument for the whole list, its items parted by commas."""
    return Spelling(spelled.format("…,…"), lambda items: [spelled.format(",".join(map(str, items)))] if items else [])


def pairs(spelled: str) -> Spelling:
    """Return a spelling with one argument for each name and value. If the value is None, it has only the name."""

    def render(items: Mapping[str, object]) -> list[str]:
        return [spelled.format(k if v is None else f"{k}={v}") for k, v in items.items()]

    return Spelling(f"{spelled.format('NAME=…')} for each", render)
