"""Delivery of events to subscribed functions, and to ``logging`` if the process has imported it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from cujit.errors import OptionError, spell, warn
from cujit.events.values import Fallback, Happening
from cujit.forks import once
from cujit.values.imported import imported
from cujit.values.typed import Any

_SUBSCRIPTIONS: list[Subscription] = []


class Subscription:
    """A function that hears of events until ``end()``, or until its ``with`` block ends."""

    def __init__(self, listener: Callable[[Happening], object], kinds: tuple[type[Happening], ...]) -> None:
        self._listener = listener
        self._kinds = kinds
        _SUBSCRIPTIONS.append(self)

    def end(self) -> None:
        """Hear no more; again is harmless."""
        with contextlib.suppress(ValueError):
            _SUBSCRIPTIONS.remove(self)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_error: object) -> None:
        self.end()

    def _deliver(self, event: Happening) -> None:
        try:
            self._listener(event)
        except Exception as e:  # of anybody's function
            warn(f"a listener of cujit.events raised {type(e).__name__}: {e}", RuntimeWarning)


def subscribe(listener: Callable[[Happening], object], *kinds: type[Happening]) -> Subscription:
    """Call a function with each event of the process from here on, in the thread where it happens.

    What the function raises becomes a ``RuntimeWarning``: whatever listens, the work goes on. A launch that succeeds is
    no event, so it is no slower.

    Args:
        listener: takes one event.
        kinds: the kinds that it wants, ``Made``, ``CacheHit``, ``Fallback`` or ``LaunchFailure``; all if none is named.

    Raises:
        OptionError: ``listener`` is no function, or a kind is none.

    Example::

        with cujit.events.subscribe(print, cujit.events.Made):
            cujit.compile("__global__ void k() {}")
    """
    if not callable(listener):
        raise OptionError(
            f"listener is {spell(listener)}, expected a function", help="write cujit.events.subscribe(print)"
        )
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, Happening)):
            raise OptionError(
                f"{spell(kind)} is not a kind of event",
                help="pass cujit.events.Made, CacheHit, Fallback or another kind of event",
                code="option-unknown",
            )
    return Subscription(listener, kinds)


def emit(kind: type[Happening], *values: object) -> None:
    """Emit an event with the given values if a subscriber or a logger receives this kind of event."""
    hearing = [s for s in tuple(_SUBSCRIPTIONS) if not s._kinds or issubclass(kind, s._kinds)]
    logging = imported("logging")
    name = f"{kind.logger}.{values[0]}" if kind is Fallback else kind.logger
    logger = logging.getLogger(name) if logging is not None else None
    is_logged = logger is not None and logger.isEnabledFor(kind.level)
    if not hearing and not is_logged:
        return
    event = kind(*values)
    if logger is not None and is_logged:
        logger.log(kind.level, "%s", event, extra={"event": event})
    for subscription in hearing:
        subscription._deliver(event)


def warn_of(floor: str, what: str, message: str, category: type[Warning]) -> None:
    """Emit a warning and a ``Fallback`` event because cujit continues without a feature."""
    emit(Fallback, floor, what, "goes on without", message)
    warn(message, category)


@contextlib.contextmanager
def nvtx_range(text: str) -> Iterator[None]:
    """Show the block as an NVTX range in NVIDIA's profilers if the package ``nvtx`` is installed."""
    nvtx = _nvtx()
    with contextlib.nullcontext() if nvtx is None else nvtx.annotate(text, domain="cujit"):
        yield


@once
def _nvtx() -> Any:
    """Return the package ``nvtx``, or None if it is not installed. The search for a missing package is slow."""
    try:
        import nvtx  # optional: nobody needs it
    except ImportError:
        return None
    return nvtx
