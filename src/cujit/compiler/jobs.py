"""Jobs: a piece of work as one frozen value, which knows its key, its run and its recipe; a compile.

A job goes to a process apart by pickle.
"""

from __future__ import annotations

from cujit.artifact import Artifact
from cujit.compiler.keys.maker import Keyed, KeyMaker, Uncacheable
from cujit.compiler.options.table import OPTIONS
from cujit.compiler.recorded import places_of
from cujit.compiler.request import Request
from cujit.errors import CompileError
from cujit.toolchain.toolset import Toolchain
from cujit.values import later, replace
from cujit.values.typed import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    import re
else:
    re = later("re")  # start-up: few calls need it


_TOOLS = {"cuda": "NVRTC", "nvvm": "libNVVM", "tile": "tileiras"}


class Job(Protocol):
    """A piece of work for NVIDIA's tools. ``step`` is a verb, and ``subject`` describes the input and the target.

    ``request`` is the request for its CompileErrors. ``compiles`` is False if images are only packed.
    """

    step: ClassVar[str]
    compiles: ClassVar[bool] = True
    request: Request | None

    @property
    def tool(self) -> str:
        """The library that does the work."""

    @property
    def subject(self) -> str:
        """The input and the architecture: ``axpy.cu for sm_90``."""

    @property
    def isolated(self) -> tuple[str, ...]:
        """Options that affect later work of the tool or end the process, so that the job needs a separate process.

        Only work with the same options shares that process.
        """
        return ()

    def check(self) -> None:
        """Refuse invalid input before a library is opened.

        Raises:
            OptionError: the tool doesn't support an option.
        """

    def key(self, keys: KeyMaker) -> Keyed | Uncacheable:
        """Return the key of the job, or the reason why it has none."""

    def run(self, toolchain: Toolchain) -> Artifact:
        """Do the job in this process.

        Raises:
            CujitError: the tool failed.
        """

    def recipe(self) -> bytes:
        """Return instructions to repeat the job, or nothing if they are unknown."""
        return b""

    def renamed(self, result: Artifact) -> Artifact:
        """Return a result under the name that it has here, as the result may have been made elsewhere."""
        return result


class CompileJob(Job):
    """One source for one architecture."""

    step = "compile"

    def __init__(self, request: Request, headers: str = "") -> None:
        self.request: Request = request
        self.headers = headers
        """What names its headers by their content, where they may be precompiled."""

    @property
    def tool(self) -> str:
        """The compiler of its language."""
        return _TOOLS[self.request.source.language]

    @property
    def subject(self) -> str:
        """The source and the architecture."""
        return f"{self.request.source.name} for {self.request.arch}"

    @property
    def isolated(self) -> tuple[str, ...]:
        """The options, including ``extra``, that the table assigns to a separate process."""
        options = self.request.options
        spelled = {argument.partition("=")[0] for argument in options.extra}
        rows = (row for row in OPTIONS.values() if row.isolated)
        return tuple(row.name for row in rows if options.get(row.name) or not spelled.isdisjoint(row.isolated))

    def check(self) -> None:
        """Refuse options that the compiler doesn't support, and include directories that don't exist."""
        self.request.check()

    def key(self, keys: KeyMaker) -> Keyed | Uncacheable:
        """Make its key from the request, the headers that it could read, and the compiler."""
        return keys.of_request(self.request)

    def run(self, toolchain: Toolchain) -> Artifact:
        """Compile with the back end for the source's language."""
        try:
            return self._compiled(toolchain)
        except CompileError as e:
            e.request = self.request
            raise

    def _compiled(self, toolchain: Toolchain) -> Artifact:
        if self.request.source.language == "nvvm":
            from cujit.compiler.backends.nvvm import compile_nvvm  # start-up: a hit of the cache calls no tool

            return compile_nvvm(self.request, toolchain)
        if self.request.source.language == "tile":
            from cujit.compiler.backends.tileiras import compile_tile  # start-up: a hit of the cache calls no tool

            return compile_tile(self.request, toolchain)
        from cujit.compiler.backends.nvrtc import compile_cuda  # start-up: a hit of the cache calls no tool

        return compile_cuda(self.request, toolchain, self.headers)

    def recipe(self) -> bytes:
        """Write down the request."""
        from cujit.compiler.keys.recipe import write_recipe  # for what is made and kept

        return write_recipe(self.request)

    def renamed(self, result: Artifact) -> Artifact:
        """Return the result with the name of the source and the directories of the file names in it."""
        return renamed_as(result, self.request.source.name, places_of(self.request))


def renamed_as(artifact: Artifact, name: str, places: tuple[tuple[str, str], ...]) -> Artifact:
    """Return an Artifact with another name, also in its log, and with the paths of this machine.

    The log keeps header paths of the machine that compiled it, because such paths can't be recognized.
    """
    if artifact.places != places:
        artifact = replace(artifact, places=places)
    if artifact.name == name:
        return artifact
    beginning = re.compile(rf"^{re.escape(artifact.name)}(?=[(: ])", re.MULTILINE)
    log = beginning.sub(lambda _: name, artifact.log) if artifact.name else artifact.log
    return replace(artifact, name=name, log=log)
