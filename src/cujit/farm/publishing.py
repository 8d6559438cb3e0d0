"""Publishing: a farm signs its images and stores them in a shared cache, while it compiles others.

The driver signs the images. No worker has the key, and no worker accesses the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager

from cujit.cache.remote.filling import AT_ONCE, RemoteStore, record_of
from cujit.cache.remote.ledger import brought
from cujit.cache.store import Root
from cujit.compiler.request import Request
from cujit.errors import CujitError, FormatError, OptionError, RemoteError, spell
from cujit.farm.report import BuildTally, Failure
from cujit.farm.worker import first_message

_MOST_WAITING = 256
_MOST_UNPUBLISHED = 10
"""Images that could not be published, one after the other, before the rest is left in the root: the store is away."""


@contextmanager
def publishing(shared: RemoteStore | None, roots: Sequence[Root], tally: BuildTally) -> Iterator[Publisher | None]:
    """Yield a publisher, and finish publishing when the context ends. Yield None if there is no shared cache.

    Raises:
        OptionError: ``shared`` is not a shared cache that cujit can write to.
    """
    if shared is None:
        yield None
        return
    if not isinstance(shared, RemoteStore):
        raise OptionError(
            f"{spell(shared)} is not a shared cache that cujit can write to",
            help="write store=cujit.remote.RemoteStore(url, signer)",
        )
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="cujit-remote") as pool:
        publisher = Publisher(shared, roots, tally, pool)
        try:
            yield publisher
            publisher.finish()
        finally:
            pool.shutdown(cancel_futures=True)


class Publisher:
    """Publisher of images to a shared cache, several at a time. It adds the results to the tally."""

    def __init__(self, shared: RemoteStore, roots: Sequence[Root], tally: BuildTally, pool: ThreadPoolExecutor) -> None:
        """Store the shared cache, the roots that contain images, the tally, and the threads for network requests."""
        self._shared, self._roots, self._tally, self._pool = shared, roots, tally, pool
        self._under_way: dict[Future[bool], tuple[str, Request]] = {}
        self._found: dict[str, Request] = {}
        self._unpublished = 0

    def has(self, digests: Sequence[str]) -> list[bool]:
        """Return for each key whether the shared cache has a record by this signer. All are False if the cache does not
        answer.
        """
        return list(self._pool.map(self._has, digests))

    def put(self, digest: str, request: Request, *, is_made: bool) -> None:
        """Publish an image. An image that was found is checked at the end, as other processes may have published it."""
        if is_made:
            self._begin(digest, request)
        else:
            self._found[digest] = request

    def finish(self) -> None:
        """Wait until all is published."""
        theirs: set[str] = set()
        try:
            theirs = brought(self._roots) if self._found else theirs
        except (CujitError, OSError) as e:  # then it is not known of which of them
            for digest, request in self._found.items():
                self._failed(digest, request, e)
            self._found = {}
        for digest, request in self._found.items():
            self._begin(digest, request, is_theirs=digest in theirs)
        while self._under_way:
            self._collect()

    def _begin(self, digest: str, request: Request, *, is_theirs: bool = False) -> None:
        while len(self._under_way) >= _MOST_WAITING:
            self._collect()
        future = self._pool.submit(self._brought if is_theirs else self._put, digest)
        self._under_way[future] = digest, request

    def _collect(self) -> None:
        done, _ = wait(self._under_way, return_when=FIRST_COMPLETED)
        for future in done:
            digest, request = self._under_way.pop(future)
            try:
                self._tally.published += future.result()
                self._unpublished = 0
            except (CujitError, OSError) as e:
                self._unpublished += isinstance(e, RemoteError)
                self._failed(digest, request, e)

    def _failed(self, digest: str, request: Request, error: Exception) -> None:
        self._tally.failed.append(Failure.of(request, f"not published: {first_message(error)}", digest))

    def _has(self, digest: str) -> bool:
        try:
            return self._unpublished == 0 and self._shared.has(digest)
        except RemoteError:
            self._unpublished += 1
            return False

    def _put(self, digest: str) -> bool:
        """Publish a record. Return False if the store already has it.

        Raises:
            FormatError: the store has a different record, or this record is damaged.
            RemoteError: the store doesn't answer.
        """
        if self._unpublished >= _MOST_UNPUBLISHED:
            raise RemoteError(f"cujit didn't publish the image because {self._shared.url} doesn't respond")
        if self._shared.put(record_of(self._roots, digest)):
            return True
        if not self._shared.has(digest):
            raise FormatError(
                f"{self._shared.url} already contains an image that isn't signed with this key: run cujit "
                "cache push --replace"
            )
        return False

    def _brought(self, digest: str) -> bool:
        """Verify that the store has a record from another shared cache, and return False.

        cujit doesn't sign an image that another signer built.

        Raises:
            FormatError: the store doesn't have the record.
            RemoteError: the store doesn't answer.
        """
        if not self._shared.has(digest):
            raise FormatError(
                "the image comes from another shared cache and is signed with another key; to sign it, build "
                "it in a new cache directory"
            )
        return False
