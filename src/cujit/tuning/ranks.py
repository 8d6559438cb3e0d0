"""A group of processes that decides once: the first rank does, and all take its answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from cujit.errors import CujitError, OptionError, read_int, spell
from cujit.values import NamedTuple

T = TypeVar("T")

_HELP = "group=MPI.COMM_WORLD of mpi4py, or whatever has rank and bcast(value, root=0)"


class Ranks(NamedTuple):
    """Who is who in a group: the ``rank`` of this process, and how something of rank 0 comes to all."""

    rank: int
    broadcast: Callable[[Any], Any]

    @classmethod
    def of(cls, group: object) -> Ranks:
        """Take a communicator of mpi4py, or what broadcasts as that or as ``torch.distributed`` does; None is alone.

        Raises:
            OptionError: the value has a different type.
        """
        if group is None:
            return cls(0, lambda value: value)
        if callable(getattr(group, "bcast", None)):
            return cls(_rank(getattr(group, "rank", None)), lambda value: group.bcast(value, root=0))  # type: ignore[attr-defined]
        if callable(getattr(group, "broadcast_object_list", None)) and callable(getattr(group, "get_rank", None)):

            def broadcast(value: object) -> object:
                values = [value]
                group.broadcast_object_list(values, src=0)  # type: ignore[attr-defined]
                return values[0]

            return cls(_rank(group.get_rank()), broadcast)  # type: ignore[attr-defined]
        raise OptionError(f"group is {spell(group)}, expected an object that can broadcast", help=_HELP)

    def agreed(self, decide: Callable[[], T]) -> T:
        """Let rank 0 decide, and return its decision on every rank. Its error is raised on every rank."""
        if self.rank == 0:
            try:
                answer = decide()
            except BaseException as e:
                self.give_up(e)
                raise
            return self.broadcast((answer, None))[0]  # type: ignore[no-any-return]
        answer, error = self.broadcast(None)
        if error is not None:
            raise error
        return answer

    def give_up(self, error: BaseException) -> None:
        """Take part where this rank failed, so that no other waits for it; what ends rank 0 ends all."""
        own = error if isinstance(error, CujitError) else CujitError(f"rank 0: {type(error).__name__}: {error}")
        self.broadcast((None, own) if self.rank == 0 else None)


def _rank(rank: object) -> int:
    return read_int(rank, "the rank of the group", OptionError, least=0)
