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
    """A piece of work for NVIDIA's tools; its ``step`` is a verb, its ``subject`` says of what and for what.

    ``request`` is what its CompileErrors say was asked for; ``compiles`` is False where images are only packed.
    """

    step: ClassVar[str]
    compiles: ClassVar[bool] = True
    request: Request | None

    @property
    def tool(self) -> str:
        """The library that does it."""

    @property
    def subject(self) -> str:
        """The input and the architecture: ``axpy.cu for sm_90``."""

    @property
    def isolated(self) -> tuple[str, ...]:
        """Options that make the tool do later work otherwise, or end the process: the work is done in a process apart.

        Only work with the same ones shares that process.
        """
        return ()

    def check(self) -> None:
        """Refuse, before any library is opened, what the tool could not take.

        Raises:
            OptionError: it does not have an option that was said.
        """

    def key(self, keys: KeyMaker) -> Keyed | Uncacheable:
        """Make its key, or say why it has none."""

    def run(self, toolchain: Toolchain) -> Artifact:
        """Do it here.

        Raises:
            CujitError: whatever the tool says.
        """

    def recipe(self) -> bytes:
        """Write down how to do it again; nothing where that is not known."""
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
        """Those of its options, of ``extra`` too, which the table says are for a process apart."""
        options = self.request.options
        spelled = {argument.partition("=")[0] for argument in options.extra}
        rows = (row for row in OPTIONS.values() if row.isolated)
        return tuple(row.name for row in rows if options.get(row.name) or not spelled.isdisjoint(row.isolated))

    def check(self) -> None:
        """Refuse options that the compiler does not have, and include directories that are none."""
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
        """Return the result with the name of the source, and the directories behind the file names in it."""
        return renamed_as(result, self.request.source.name, places_of(self.request))


def renamed_as(artifact: Artifact, name: str, places: tuple[tuple[str, str], ...]) -> Artifact:
    """Return an Artifact under another name, in its log too, with the places of this machine.

    The log keeps the paths of headers of where it was made: which of its words are such paths is not known.
    """
    if artifact.places != places:
        artifact = replace(artifact, places=places)
    if artifact.name == name:
        return artifact
    beginning = re.compile(rf"^{re.escape(artifact.name)}(?=[(: ])", re.MULTILINE)
    log = beginning.sub(lambda _: name, artifact.log) if artifact.name else artifact.log
    return replace(artifact, name=name, log=log)
