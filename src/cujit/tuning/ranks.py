"""A group of processes with one decision: the first rank decides, and all ranks use its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from cujit.errors import CujitError, OptionError, read_int, spell
from cujit.values import NamedTuple

T = TypeVar("T")

_HELP = "group=MPI.COMM_WORLD of mpi4py, or whatever has rank and bcast(value, root=0)"


class Ranks(NamedTuple):
    """The ranks of a group: the ``rank`` of this process, and a function that broadcasts from rank 0."""

    rank: int
    broadcast: Callable[[Any], Any]

    @classmethod
    def of(cls, group: object) -> Ranks:
        """Return the ranks for an mpi4py communicator, or an object with its or ``torch.distributed``'s broadcast, or
        for None.

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
        """Join the broadcast after a failure of this rank, so that no other rank waits. A failure of rank 0 ends all
        ranks.
        """
        own = error if isinstance(error, CujitError) else CujitError(f"rank 0: {type(error).__name__}: {error}")
        self.broadcast((None, own) if self.rank == 0 else None)


def _rank(rank: object) -> int:
    return read_int(rank, "the rank of the group", OptionError, least=0)
