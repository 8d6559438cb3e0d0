"""Combined compiles: several instances of one source, and several architectures of one family.

An image that results is stored under the key of each request that it answers.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from cujit.arch import Arch
from cujit.artifact import Artifact
from cujit.artifact.writing import temporary_directory
from cujit.cache.provenance import Outcome, Provenance
from cujit.compiler.jobs import CompileJob
from cujit.compiler.keys.maker import Keyed
from cujit.compiler.keys.recipe import request_of
from cujit.compiler.options.limits import WorkLimits
from cujit.compiler.request import Request
from cujit.compiler.runner import Runner
from cujit.errors import CujitError
from cujit.farm.arch_sharing import alike, assembled, common
from cujit.farm.tasks import Piece, PieceResult, WorkChunk, job_of
from cujit.values import NamedTuple, replace

_ONLY_ONE = "no other architecture of its family is asked for"


class _GroupMember(NamedTuple):
    """A piece that may be compiled with others: its request on this machine, and its key."""

    request: Request
    keyed: Keyed

    @property
    def digest(self) -> str:
        return self.keyed.key.digest


class Together:
    """The pieces of one task that are compiled together.

    ``ended`` contains their results by digest, and ``why_alone`` the reasons for separate compiles.
    """

    def __init__(self, chunk: WorkChunk, runner: Runner) -> None:
        assert runner.keys is not None
        assert runner.cache is not None
        self.ended: dict[str, PieceResult] = {}
        self.why_alone: dict[str, str] = {}
        self._chunk, self._keys, self._cache = chunk, runner.keys, runner.cache
        self._tools = Runner(runner.toolchain, compiling=runner.compiling)

    def work(self) -> None:
        """Compile the pieces that can be combined. The caller compiles the others separately, which also reports their
        errors.
        """
        groups: defaultdict[Request, list[_GroupMember]] = defaultdict(list)
        with contextlib.ExitStack() as files:
            for piece in self._chunk.pieces:
                with contextlib.suppress(CujitError, OSError):
                    request = files.enter_context(laid_out(piece)).request
                    if keyed := self._keyed(piece, request):
                        share = self._chunk.share if piece.is_shared else ""
                        groups[alike(request_of(piece.recipe), share)].append(_GroupMember(request, keyed))
            for members in groups.values():
                for some in _bunches(members, self._chunk.join):
                    self._make(some, {member.request.arch for member in some})

    def _keyed(self, piece: Piece, request: Request) -> Keyed | None:
        """Return the key of a piece that can be combined.

        Return None if its image exists, its key differs from the driver's, or it must be compiled separately.
        """
        if not (piece.is_shared or (self._chunk.join > 1 and request.names)):
            return None
        request.check()
        keyed = self._keys.of_request(request)
        if not isinstance(keyed, Keyed) or keyed.key.digest != piece.digest:
            return None
        return None if self._cache.find(keyed.key) else keyed

    def _make(self, members: Sequence[_GroupMember], arches: set[Arch]) -> None:
        if len(arches) == 1:
            self._note(members, _ONLY_ONE)
        if len(members) == 1:
            return
        names = dict.fromkeys(name for member in members for name in member.request.names)
        request = replace(members[0].request, names=tuple(names))
        if len(arches) == 1:
            with contextlib.suppress(CujitError):  # one by one they say whose fault it is
                self._keep(members, self._within().get(CompileJob(request)), 0.0)
            return
        first = min(arches)
        try:
            shared = common(request, self._chunk.share, first, self._within())
        except CujitError as e:
            self._note(members, f"it does not compile for {first.virtual}: {_line(e)}")
            return
        for arch in sorted(arches):
            some = [member for member in members if member.request.arch == arch]
            try:
                image = assembled(shared, arch, request.options, self._within())
                self._keep(some, image, make_ms(shared) / len(arches))
            except CujitError as e:
                self._note(some, f"nothing comes of what it shares with {first}: {_line(e)}")

    def _within(self) -> Runner:
        return self._tools.within(WorkLimits.of(self._chunk.deadline_s, True, self._chunk.memory_mib))

    def _note(self, members: Sequence[_GroupMember], why: str) -> None:
        self.why_alone.update((member.digest, why) for member in members)

    def _keep(self, members: Sequence[_GroupMember], image: Artifact, more_ms: float) -> None:
        """Store an image under the key of each member. The compile time is divided equally among the members."""
        every = {name for member in members for name in member.request.names}
        each_ms = (make_ms(image) + more_ms) / len(members)
        for member in members:
            own = member.request.names
            names = {name: low for name, low in image.names.items() if name in own or name not in every}
            signatures = {low: image.signatures[low] for low in names.values() if low in image.signatures}
            if self._keys.is_still(member.keyed):
                mine = replace(image, names=names, signatures=signatures)
                known = self._cache.keep(member.keyed.key, mine, make_ms=each_ms)
                why = self.why_alone.get(member.digest, "")
                ended = result_of(replace(image, provenance=known))
                self.ended[member.digest] = ended._replace(is_shared=not why, why_alone=why)


def _bunches(members: Sequence[_GroupMember], join: int) -> Iterator[list[_GroupMember]]:
    """Split similar requests into groups by instances.

    A group has at most ``join`` different sets of names, for all their architectures.
    """
    names = list(dict.fromkeys(member.request.names for member in members))
    for first in range(0, len(names), join):
        some = names[first : first + join]
        yield [member for member in members if member.request.names in some]


@contextlib.contextmanager
def laid_out(piece: Piece) -> Iterator[CompileJob]:
    """Yield the job of a piece. The files of the piece are in a temporary directory until the context ends.

    Raises:
        FormatError: the piece is invalid.
        OSError: the files can't be written.
    """
    if piece.tree is None:
        yield job_of(piece, Path())
        return
    with temporary_directory() as directory:
        yield job_of(piece, directory)


def make_ms(artifact: Artifact) -> float:
    """Return how long an Artifact took to make, in milliseconds."""
    assert isinstance(artifact.provenance, Provenance)
    return artifact.provenance.make_ms


def result_of(artifact: Artifact) -> PieceResult:
    """Return the result of a piece that has an image."""
    known = artifact.provenance
    assert isinstance(known, Provenance)
    if known.outcome is Outcome.UNCACHED:
        return PieceResult("not kept", f"not kept: {known.reason}")
    outcome = "made" if known.outcome is Outcome.MADE else "hit"
    return PieceResult(outcome, make_ms=known.make_ms, size_bytes=len(artifact.data))


def _line(error: CujitError) -> str:
    return error.message.partition("\n")[0]
