"""A module of the registry: kernels that go through ``configure`` once, and one thread for each piece of work."""

from __future__ import annotations

import functools
from _thread import get_ident
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from cujit.cache.flight import Flight, SingleFlight, awaited, fresh
from cujit.devices.device import Device
from cujit.errors import OptionError, listed, spell
from cujit.kernel import Kernel
from cujit.loading import Module
from cujit.program import Source
from cujit.registry.spec import Description, ModuleSpec, described
from cujit.values import dataclass

T = TypeVar("T")
U = TypeVar("U")


# -- one worker per key ---------------------------------------------------------------------------------------


class Tasks(SingleFlight[Any]):
    """Running work by key, with one thread for each key.

    Threads that would wait for each other in a cycle are refused.
    """

    not_shared = ()

    def __init__(self) -> None:
        super().__init__()
        self._waits_for: dict[int, Flight[Any]] = {}

    def run_for(self, wish: object, key: object, label: str, work: Callable[[], T]) -> T | None:
        """Run the work, or wait for the thread that runs it.

        Return None if that thread ran it for another wish, or was stopped. An exception of the work is raised in every
        thread that waited with the same wish.

        Raises:
            OptionError: the work, or work that it waits for, requests itself.
        """
        me, mine = get_ident(), Flight[Any](label, wish)
        with mine.running:
            with self._guard:
                task = self._claim(key, mine)
                if task is not mine:
                    self._refuse_ring(task, me)
                    self._waits_for[me] = task
            if task is mine:
                made: T = self._lead(key, mine, work)
                return made
        try:
            awaited(task)
        finally:
            with self._guard:
                self._waits_for.pop(me, None)
        if task.wish != wish:
            return None
        if task.error is not None:
            raise fresh(task.error)
        done: list[T] = task.results
        return done[0] if done else None

    def unless_busy(self, key: object, work: Callable[[U], T], of: U) -> T | None:
        """Run work that never waits. Return None if a thread already runs the work of this key."""
        with self._guard:
            return None if key in self._under_way else work(of)

    def _refuse_ring(self, task: Flight[Any], me: int) -> None:
        """Raise an error if the chain of waiting threads from ``task`` leads back to this thread."""
        ring: list[str] = []
        wanted: Flight[Any] | None = task
        while wanted is not None:
            held = [t for t in self._under_way.values() if t.thread == wanted.thread and t.running.locked()]
            if wanted not in held:  # done, and whoever waited is about to go on
                return
            ring += [t.label for t in held[held.index(wanted) :]]
            if wanted.thread == me:
                chain = " needs ".join([*ring, ring[0]])
                raise OptionError(
                    f"{chain}: the module would wait for itself", help="move what both modules need into a third module"
                )
            wanted = self._waits_for.get(wanted.thread)

    def after_fork(self) -> None:
        """Forget, in a forked child, the work of threads that are not there."""
        super().after_fork()
        self._waits_for = {}


# -- modules ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Ready:
    """A kernel that may be handed out, and the description of the ``configure`` that it went through."""

    kernel: Kernel
    configured: Description | None


class RegisteredModule:
    """A module in the registry, identified by its name and device.

    ``built`` is the builder's result, or None if the cache contained the name and cujit didn't call the builder.
    ``key`` is the cache key (``cujit cache show KEY --source``), or None. ``version`` is the library's version, if
    specified. ``hits`` is the number of lookups that found the module.

    Example::

        registered = cujit.module("example axpy", cujit.ModuleSpec(CODE, names=["axpy<float>"]), device=device)
        print(registered.name, registered.hits, registered.key)
    """

    def __init__(
        self, name: str, loaded: Module, tasks: Tasks, *, version: str | None, key: str | None, built: ModuleSpec | None
    ) -> None:
        self.name = name
        self.version = version
        self.key = key
        self.built = built
        self.hits = 0
        self._module = loaded
        self._ready: dict[str, _Ready] = {}
        self._tasks = tasks

    @property
    def module(self) -> Module:
        """The loaded module: its Artifact, route, log, and variables."""
        return self._module

    @property
    def device(self) -> Device:
        """The device that the module is loaded on."""
        return self._module.device

    @property
    def source(self) -> Source | None:
        """The compiled source. None for an image, or if the cache contained the name."""
        source = self.built.source if self.built is not None else None
        return source if isinstance(source, Source) else None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the kernels in the module."""
        return tuple(self._module)

    def get_kernel(self, name: str, configure: Callable[[Kernel], object] | None = None) -> Kernel:
        """Return a kernel. The result is always the same object, so all callers share its state.

        cujit calls ``configure(kernel)`` once, before any thread receives the kernel. All callers can pass the same
        function. If the function raises an error, no thread receives the kernel, and cujit calls the function again for
        the next caller.

        Args:
            name: as for ``Module``.
            configure: function that prepares the kernel.

        Raises:
            NameNotFoundError: no kernel or several kernels have this name. The message lists the names.
            OptionError: the kernel was configured by a different function or already returned without one, or
                ``configure`` requests the same kernel.
            ClosedError: the module was closed.

        Example::

            registered = cujit.module("example tuned", cujit.ModuleSpec(CODE, names=["axpy<float>"]), device=device)
            kernel = registered.get_kernel("axpy<float>", lambda kernel: kernel.occupancy(256))
        """
        ready = self._ready.get(name) if type(name) is str else None
        if ready is not None and configure is None:
            return ready.kernel
        if configure is not None and not callable(configure):
            raise OptionError(
                f"configure is {type(configure).__name__} {spell(configure)}, expected a function that accepts "
                "the kernel",
                help="write configure=lambda kernel: …",
            )
        description = None if configure is None else described(configure)
        return self._configured(name, ready, configure, description).kernel

    def _configured(
        self,
        name: str,
        ready: _Ready | None,
        configure: Callable[[Kernel], object] | None,
        description: Description | None,
    ) -> _Ready:
        while ready is None:
            kernel = self._module[name]
            lowered = kernel.lowered_name
            if configure is None:
                ready = self._tasks.unless_busy((self, lowered), self._hand_out, lowered)
                if ready is not None:
                    break
            label = f"the kernel {name} of the module {self.name!r}"
            work = functools.partial(self._configure, kernel, configure, description)
            ready = self._tasks.run_for(description, (self, lowered), label, work) or self._ready.get(lowered)
        self._ready[name] = ready
        if description is not None and description != ready.configured:
            first = "handed out without one" if ready.configured is None else "configured by another function"
            raise OptionError(
                f"the kernel {ready.kernel.name} of the module {spell(self.name)} was {first}, so this "
                "configure comes too late",
                help="pass the same configure wherever you request the kernel",
            )
        return ready

    def _hand_out(self, lowered: str) -> _Ready:
        """Return a kernel for a call without configuration."""
        return self._ready.get(lowered) or self._ready.setdefault(lowered, _Ready(self._module[lowered], None))

    def _configure(
        self, kernel: Kernel, configure: Callable[[Kernel], object] | None, description: Description | None
    ) -> _Ready:
        ready = self._ready.get(kernel.lowered_name)
        if ready is None:
            # Two threads may each have found a Kernel; the module keeps one.
            ready = _Ready(self._module[kernel.lowered_name], description)
            if configure is not None:
                configure(ready.kernel)
            self._ready[kernel.lowered_name] = ready
        return ready

    def __getitem__(self, name: str) -> Kernel:
        """Return a kernel, as ``get_kernel(name)`` does.

        Args:
            name: as for ``Module``.

        Raises:
            NameNotFoundError: no kernel or several kernels have this name. The message lists the kernels.
            ClosedError: the module was closed.

        Example::

            registered = cujit.module("example axpy", cujit.ModuleSpec(CODE, names=["axpy<float>"]), device=device)
            kernel = registered["axpy<float>"]
        """
        return self.get_kernel(name)

    def __repr__(self) -> str:
        version = f" {self.version}" if self.version else ""
        return f"<RegisteredModule {self.name!r}{version} on {self.device.name}: {_few(self.names)}>"


def _few(names: Iterable[str]) -> str:
    return listed((name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…" for name in names), _SHOWN)


_SHOWN, _LONGEST = 4, 60
