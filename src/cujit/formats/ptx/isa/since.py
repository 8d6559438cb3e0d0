"""The first ISA version that supports a construct, for each target. Target suffixes form sets, not an order.

A list of targets contains words, separated by spaces. ``80`` means every target from 80 on, and ``90a`` or ``86=``
means only that target. ``100f`` means the family: targets with ``f`` or ``a``, of the same major capability, from that
number on. ``89@8.1 90@7.8`` specifies versions that differ from the version of the list.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

from cujit.values import dataclass

Version = tuple[int, int]

_FIRST = (
    "10@1.0 11@1.0 12@1.2 13@1.2 20@2.0 21@2.0 30@3.0 32@4.0 35@3.1 37@4.1 50@4.0 52@4.1 53@4.2 60@5.0 61@5.0 62@5.0 "
    "70@5.1 72@6.1 75@6.3 80@7.0 86@7.1 87@7.4 88@7.3 89@7.8 90@7.8 90a@8.0 100@8.6 100f@8.8 100a@8.6 101@8.6 101f@8.8 "
    "101a@8.6 103@8.8 103f@8.8 103a@8.8 107@9.4 107f@9.4 107a@9.4 110@9.0 110f@9.0 110a@9.0 120@8.7 120f@8.8 120a@8.7 "
    "121@8.8 121f@8.8 121a@8.8"
)


def version_of(text: str) -> Version:
    """Read ``8.4``."""
    major, _, minor = text.partition(".")
    return int(major), int(minor)


FIRST: Mapping[str, Version] = {
    name: version_of(version) for name, _, version in (word.partition("@") for word in _FIRST.split())
}
"""Every target without its ``sm_``, older before newer, with the first ISA version that has it.

Source: ptxas of every release from 11.7 to 13.5, asked with every version (``tests/toolkits/record_boundaries.py``).
"""


LAST: Mapping[int, Version] = {101: (8, 8)}
"""The last version with an architecture, where that is not the newest: later ones have 110 for 101."""


@dataclass(frozen=True, eq=False)
class Since:
    """The targets that have a construct, each with the first ISA version that has it there."""

    versions: Mapping[str, Version]

    def __and__(self, other: Since) -> Since:
        """Return the first version of each target that supports both constructs."""
        return both(self, other)

    def of(self, target: str) -> Version | None:
        """Return the first version for a target, or None if no version supports the construct for that target."""
        return self.versions.get(target)

    def is_as_old_as_its_target(self, target: str) -> bool:
        """Whether a target has it since the target's own first version."""
        return self.versions.get(target) == FIRST.get(target, ())

    @property
    def first(self) -> Version:
        """The first version in which any target has it."""
        return min(self.versions.values(), default=(99, 0))

    @property
    def least(self) -> str:
        """The lowest target: the lowest number, with the suffix that requires the least."""
        return next(iter(self.versions), "")

    def nearest(self, target: str, version: Version = (99, 0)) -> str:
        """Return the target to suggest instead of a target that lacks the construct.

        It has the same number, otherwise the next number, otherwise the lowest number. Targets that support the
        construct in ``version`` are preferred.
        """
        number = number_of(target)
        order = sorted(self.versions, key=lambda name: (self.versions[name] > version, number_of(name) < number))
        return next((name for name in order if number_of(name) == number), next(iter(order), ""))


def number_of(target: str) -> int:
    """Return the number in a target's name: 90 for ``90a``."""
    return int(target.rstrip("af"))


@functools.lru_cache(maxsize=4096)
def both(first: Since, second: Since) -> Since:
    """Return the first version of each target that supports both constructs."""
    shared = ((name, version, second.versions.get(name)) for name, version in first.versions.items())
    return Since({name: max(one, other) for name, one, other in shared if other is not None})


def either(several: Iterable[Since]) -> Since:
    """Return the first version of each target that supports any of several constructs."""
    found: dict[str, Version] = {}
    for each in several:
        for name, version in each.versions.items():
            found[name] = min(version, found.get(name, version))
    return Since({name: found[name] for name in FIRST if name in found})


@functools.lru_cache(maxsize=1024)
def since(ptx: str, targets: str = "10") -> Since:
    """Return the first version of each target in a list. ``ptx`` is the version if the list specifies
    no other version.
    """
    found: dict[str, Version] = {}
    for word in targets.split():
        what, _, version = word.partition("@")
        for name in _matching(what):
            needed = max(version_of(version or ptx), FIRST[name])
            if needed <= LAST.get(number_of(name), needed):
                found[name] = min(needed, found.get(name, needed))
    return Since({name: found[name] for name in FIRST if name in found})


def _place(number: int) -> tuple[int, int]:
    """The major and the minor capability of a target: 101 is 110 by its old number."""
    return divmod(110 if number == 101 else number, 10)


def _matching(what: str) -> Iterable[str]:
    if what[-1] in "a=":
        return (what.rstrip("="),)
    number = number_of(what)
    if what[-1] == "f":
        specific = ((name, *_place(number_of(name))) for name in FIRST if not name.isdigit())
        family, least = _place(number)
        return (name for name, own, minor in specific if own == family and minor >= least)
    return (name for name in FIRST if number_of(name) >= number)


ANYWHERE = since("1.0")
"""Since the first version, for every target."""
