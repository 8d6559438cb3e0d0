"""Python's garbage collector, kept from looking again and again through what stays."""

from __future__ import annotations

import gc
import sys

TYPE_CHECKING = False  # as type checkers know it: this is imported before the rest
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    _F = TypeVar("_F", bound=Callable[..., object])

_NEW_OBJECTS = 10_000
"""Source: measured. From 5,000 on, the collector took at most 2 % of a compile; with Python's 700, an eighth."""


class collecting_rarely:  # noqa: N801 - said as a verb, in a ``with`` statement or before a function
    """Make Python collect garbage only after so many new objects, as nearly all that is made meanwhile stays.

    Who sets the threshold meanwhile, in another thread, keeps what was set; who turned the collector off keeps it off.
    """

    def __init__(self, new_objects: int = _NEW_OBJECTS) -> None:
        self._new_objects = new_objects

    def __enter__(self) -> None:
        self._often, *self._others = gc.get_threshold()
        self._rarely = max(self._often, self._new_objects) if self._often else 0
        gc.set_threshold(self._rarely, *self._others)

    def __exit__(self, *_raised: object) -> None:
        if gc.get_threshold()[0] == self._rarely:
            gc.set_threshold(self._often, *self._others)

    def __call__(self, work: _F) -> _F:
        """Wrap a function so that each call does so."""
        import functools  # start-up: the driver is started before anything else is imported

        @functools.wraps(work)
        def call(*arguments: object, **named: object) -> object:
            with collecting_rarely(self._new_objects):
                return work(*arguments, **named)

        return call  # type: ignore[return-value]


class importing(collecting_rarely):  # noqa: N801 - as above
    """Keep Python from collecting what modules make while they are imported: all of it stays.

    It becomes old at once. The collector took a twelfth of the time of a warm process for that. If all modules were
    there already, the program's objects keep their age, and nothing is counted: counting takes long if many are frozen.
    """

    def __init__(self) -> None:
        super().__init__(1 << 30)

    def __enter__(self) -> None:
        super().__enter__()
        self._modules = len(sys.modules)

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)
        if len(sys.modules) == self._modules:
            return
        if gc.isenabled() and not gc.get_freeze_count():  # what the program froze stays frozen
            gc.freeze()
            gc.unfreeze()
