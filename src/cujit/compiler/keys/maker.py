"""The key of a piece of work: every input that reaches a compiler, a linker or a packer, by content and not by path.

The same sources on another machine, in another directory, by another user give the same key. Work whose inputs
cannot all be known has none, and says why. Parts, in their order: this module's schema, the kind of result, the builds
of the tools, arguments, the source with its name, name expressions, headers in memory, the include closure, the names
that must stay absent; and paths only where the result holds them.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from cujit.artifact import ImageKind
from cujit.cache.key import Key, Part, make_key
from cujit.cache.settings import values_of
from cujit.compiler.includes.files import NotModelledError
from cujit.compiler.includes.location import says_where
from cujit.compiler.includes.stat_cache import HintStore, Manifest, Memo
from cujit.compiler.inputs.prelude import DEPENDENT_LAUNCH
from cujit.compiler.inputs.source import KEPT
from cujit.compiler.keys.builds import NAMES, Build, build_of, unopened_build_of
from cujit.compiler.keys.frame import KeyFrame, has_includes, is_plain, outline_of
from cujit.compiler.keys.scans import RECORDED, Scan, absent_part, found_parts, path_parts, says_paths
from cujit.compiler.options.arguments import macros, unmodelled, wants_paths
from cujit.compiler.options.values import Tool
from cujit.compiler.recorded import may_hold_paths, numbers_of
from cujit.compiler.request import Request
from cujit.errors import FileError, ToolchainNotFoundError
from cujit.formats.mangling import SIGNATURE_PROBE
from cujit.toolchain.aliases import aliases
from cujit.toolchain.headers import bundle_directory, find_headers
from cujit.toolchain.libraries import is_emulated, may_be_emulated
from cujit.toolchain.toolset import Compiler, Toolchain
from cujit.values import NamedTuple, later
from cujit.values.hashing import sha256
from cujit.values.typed import TYPE_CHECKING
from cujit.workers.environment import COMPILERS_READ

if TYPE_CHECKING:
    import pathlib

    from cujit.compiler.includes.closure import Closure, Found
    from cujit.compiler.includes.packaged import Shipped
else:
    pathlib = later("pathlib")  # start-up: a hit works with text

_SCHEMA = "2"
"""Another number where the back ends make something else of the same input."""

_PROVED_KEPT = 256


class Uncacheable(NamedTuple):
    """Work that has no key, and why: the end of the sentence "not cached: …"."""

    reason: str


class Keyed(NamedTuple):
    """The key of a piece of work, with what it stands on: builds of tools, and headers as they were.

    ``manifest.via`` says how headers were known: by ``request table``, ``hints``, ``scan``; empty where there are none.
    ``emulated`` tells of what would be a cubin whether it is made under ``cujit emulate``; None of all else, which is
    the same there. What is made has ``numbers`` for directories, not their paths.
    """

    key: Key
    builds: tuple[Build, ...] = ()
    manifest: Manifest = Manifest()
    emulated: bool | None = None
    numbers: tuple[int, ...] = ()

    def headers_of(self, request: Request) -> str:
        """Name, by content, what a compile of CUDA C++ reads before its first declaration. ``""`` if it reads nothing.

        Source, names and seed are not in it; NVRTC compares the text of the source itself.
        """
        if request.source.language != "cuda" or not self.manifest.via:
            return ""
        lines = [line for line in request.source.text.split("\n") if line.lstrip().startswith("#")]
        return make_key("precompiled headers", [
            *(Part.text(build.library, build.identity) for build in self.builds),
            *(part for part in request.parts() if part.label not in ("source", "name", "shown as", "name expression")),
            Part.content("directives", "\n".join(lines)),
            *self.manifest.parts,
        ]).digest[:32]  # fmt: skip


_BEFORE = Part.content("before", DEPENDENT_LAUNCH + SIGNATURE_PROBE)


class _Alike:
    """What compiles of sources of one name with the same options have in common.

    ``bare`` is the manifest of the compiles that read no header; ``reads_more``: their options may have all read some.
    """

    def __init__(self, build: Build, arguments: tuple[str, ...], reads_more: bool, frame: KeyFrame) -> None:
        self.build, self.arguments, self.reads_more, self.frame = build, arguments, reads_more, frame
        self.bare = Manifest((absent_part(()),))


class KeyMaker:
    """Makes the keys of one toolchain. Headers and libraries are looked at through a memo; nothing is opened early.

    ``store`` keeps hints from one process to the next, or is None. ``environment`` is what the compilers will see.
    ``closures`` gives what packs know of a search for headers, by its digest, if ``has_closures()``. Unless
    ``may_open``, tools are found and not opened.
    """

    def __init__(
        self,
        toolchain: Toolchain,
        store: HintStore | None = None,
        environment: Mapping[str, str] | None = None,
        *,
        closures: Callable[[str], Iterable[bytes]] = lambda _: (),
        has_closures: Callable[[], bool] = lambda: True,
        may_open: bool = True,
    ) -> None:
        self.toolchain = toolchain
        self._has_closures = has_closures
        self._may_open = may_open
        self._build_of = build_of if may_open else unopened_build_of
        self.memo = Memo(store)
        self._environment = os.environ if environment is None else environment
        self._closures = closures
        self._proved: dict[tuple[object, ...], Shipped] = {}
        self._builds: dict[str, Build] = {}
        self._alike: dict[object, _Alike] = {}
        self._directories: tuple[str, ...] | None = None
        self._release: str | None = None

    def of_request(self, request: Request) -> Keyed | Uncacheable:
        """Make the key of a compile.

        Raises:
            OptionError: the compiler doesn't support one of the options.
            FileError: a header is a FIFO or a device.
        """
        try:
            return _MAKERS[request.source.language](self, request)
        except NotModelledError as e:
            return Uncacheable(str(e))
        except ToolchainNotFoundError as e:
            return Uncacheable(e.message)
        except FileError:  # what NVRTC would wait for
            raise
        except OSError as e:  # a working directory that was removed, a library that is being replaced
            return Uncacheable(str(e))

    def own_headers(self, request: Request) -> list[Found]:
        """Follow the includes of a compile, and return the files among its headers that aren't the toolkit's.

        Raises:
            NotModelledError: the inputs of the compile can't be determined.
        """
        return [one for one in self._headers(request) if not one.place.root.startswith("toolkit")]

    def has_include_calls(self, request: Request) -> str:
        """Return how a source depends on its architecture, directly or in a header, or an empty string.

        The toolkit's headers don't count, because nearly all of them query the architecture.

        Raises:
            NotModelledError: the inputs of the compile can't be determined.
            OSError: a header can't be read.
        """
        from cujit.compiler.includes.arch_dependence import find_arch_dependence  # start-up: for a farm that shares

        arguments = request.arguments()
        texts = (request.source.text, *(text for _, text in request.source.headers), *macros(arguments))
        for text in texts:
            if word := find_arch_dependence(text.encode("utf-8", "surrogateescape")):
                return word
        for found in self._headers(request):
            if found.place.root.startswith("toolkit"):
                return "a header of the toolkit"
            if word := find_arch_dependence(pathlib.Path(found.place.path).read_bytes()):
                return f"{word} in {found.place.name}"
        return ""

    def _headers(self, request: Request) -> list[Found]:
        work = Scan.of(request, request.arguments())
        found = self._scanned(work, self.toolkit()).found if work.has_includes else ()
        return [one for one in found if one.place.path]

    def answers(self, made: Mapping[str, Request]) -> tuple[dict[str, str], dict[str, bytes]]:
        """Return what lets a pack answer compiles quickly and pinned, by the digests of their keys.

        That is ``requests`` and ``closures`` as ``write_pack`` takes them.

        Raises:
            OptionError, ToolchainNotFoundError, FileError: as of ``closures``.
        """
        pins, headers = self.pins(made)
        return pins, self.closures(made.values()) | headers

    def closures(self, requests: Iterable[Request]) -> dict[str, bytes]:
        """Search for the headers of compiles, and give what was found, by search, as ``write_pack`` takes it.

        From a pack that holds it, no machine with the same headers has to search for them again. Compiles that include
        nothing, or have no key, have none; one search may do for many architectures.

        Raises:
            OptionError: the compiler doesn't support one of the options.
            ToolchainNotFoundError: NVRTC is not installed.
            FileError: a header is a FIFO or a device.
        """
        found: dict[str, bytes] = {}
        for request in requests:
            arguments = request.arguments()
            if request.source.language != "cuda" or unmodelled(arguments, Tool.NVRTC, request.options.extra):
                continue
            work, toolkit = Scan.of(request, arguments), self.toolkit()
            name = work.shipped_name(toolkit)
            if work.has_includes and name not in found:
                with contextlib.suppress(NotModelledError):
                    found[name] = self._written(work, toolkit)
        return found

    def _written(self, work: Scan, toolkit: Sequence[str]) -> bytes:
        from cujit.compiler.includes.packaged import write_closure  # start-up: for whoever makes a pack

        closure = self._scanned(work, toolkit)
        says = says_paths(closure)
        return write_closure(closure, found_parts(closure), work.bases(toolkit), says_where=says)

    def _makes_containers(self) -> bool:
        """Return whether this process has a compiler of ``cujit emulate``, without opening any."""
        if not may_be_emulated():
            return False
        try:
            return is_emulated(unopened_build_of("nvrtc", self.toolchain, self.memo.store, self._environment).path)
        except ToolchainNotFoundError:
            return False

    # -- pins: what a distribution's own pack is asked by ------------------------------------------------------

    def pin(self, request: Request) -> str | None:
        """Name a compile by what the user said of it, whatever the compiler and the toolkit are.

        None where the result may hold more than that and the user's headers, as paths; and of a cubin under ``cujit
        emulate``, where machine code that a distribution brings does not run.

        Raises:
            OptionError: the compiler doesn't support one of the options.
        """
        arguments = request.arguments()
        texts = (request.source.text, *arguments, *(text for _, text in request.source.headers))
        if (
            request.source.language != "cuda"
            or unmodelled(arguments, Tool.NVRTC, request.options.extra)
            or wants_paths(arguments)
            or any(map(says_where, texts))
            or any(map(self._environment.get, COMPILERS_READ))
            or (request.kind is ImageKind.CUBIN and self._makes_containers())
        ):
            return None
        before = (Part.text("schema", _SCHEMA), Part.text("include directories", str(len(request.include))))
        return make_key("pin", [*before, *request.parts()]).digest

    def pins(self, made: Mapping[str, Request]) -> tuple[dict[str, str], dict[str, bytes]]:
        """Return the pins of compiles, by the digests of their keys, as ``write_pack`` accepts requests and closures.

        What includes a header by an absolute path has none, and what has no pin.

        Raises:
            OptionError, ToolchainNotFoundError, FileError: as of ``closures``.
        """
        keys: dict[str, str] = {}
        headers: dict[str, bytes] = {}
        known: dict[str, bytes | None] = {}
        for key, request in made.items():
            pin, work = self.pin(request), Scan.of(request, request.arguments())
            search = work.shipped_name(())
            if pin is not None and work.has_includes and search not in known:
                known[search] = self._own_headers(work)
            own = known.get(search, b"")
            if pin is not None and own is not None:
                keys[pin] = key
                headers.update({_headers_of(pin): own} if work.has_includes else {})
        return keys, headers

    def _own_headers(self, work: Scan) -> bytes | None:
        """Write what a scan finds of the user's headers, and misses of them."""
        # Start-up: for whoever makes a pack.
        from cujit.compiler.includes.closure import Closure
        from cujit.compiler.includes.packaged import write_closure

        bases = work.bases(())
        try:
            whole = self._scanned(work, self.toolkit())
        except NotModelledError:
            return None
        found = tuple(one for one in whole.found if not one.place.root.startswith("toolkit"))
        own = Closure(
            found,
            tuple(place for place in whole.absent if place.root in bases),
            tuple(place for place in whole.unsettled if place.root in bases),
        )
        if says_paths(own) or any(one.place.root not in bases for one in found):
            return None
        return write_closure(own, (), bases, says_where=False)

    def is_as_pinned(self, request: Request, pin: str, closures: Callable[[str], Iterable[bytes]]) -> bool:
        """Return whether the user's headers are unchanged since a pack was made. ``closures`` are
        those of that pack.
        """
        try:
            work = Scan.of(request, request.arguments())
        except OSError:  # a working directory that was removed
            return False
        return not work.has_includes or any(
            self._prove(data, work.bases(())) is not None for data in closures(_headers_of(pin))
        )

    def release(self) -> str:
        """Return the name of the local compiler as in records (``NVRTC 13.5``) without opening it, or
        an empty string.
        """
        if self._release is None:
            try:
                build = unopened_build_of("nvrtc", self.toolchain, self.memo.store, self._environment)
                self._release = "NVRTC {}.{}".format(*build.version)
            except ToolchainNotFoundError:
                self._release = ""
        return self._release

    def of_images(self, kind: str, library: str, makes: ImageKind, parts: Iterable[Part]) -> Keyed | Uncacheable:
        """Create the key for a link or a bundle of images from the user's part of it."""
        try:
            build = self._build(library)
        except ToolchainNotFoundError as e:
            return Uncacheable(e.message)
        emulated = _emulated(makes, build)
        return Keyed(
            make_key(kind, [*self._frame(build), *parts, *_as_emulated(emulated)]), (build,), emulated=emulated
        )

    def compiler(self, language: str) -> Compiler:
        """Return the capabilities of the compiler for ``cuda``, ``nvvm``, or ``tile``.

        The library stays closed if an earlier process recorded them.

        Raises:
            ToolchainNotFoundError: the compiler is not installed.
        """
        build = self._build({"nvvm": "nvvm", "tile": "tileiras"}.get(language, "nvrtc"))
        return Compiler(NAMES[build.library], build.arches, build.version)

    def after_fork(self) -> None:
        """Reset the state that other threads of the parent may have been changing, in a forked child."""
        self.memo = Memo(self.memo.store)

    def is_still(self, keyed: Keyed) -> bool:
        """Return whether the inputs still match the key, after the work. If not, the result must not be stored."""
        try:
            same = all(build.is_still(self.toolchain) for build in keyed.builds)
            was_emulated = keyed.emulated is not None and any(b.was_emulated(self.toolchain) for b in keyed.builds)
        except ToolchainNotFoundError:
            same = was_emulated = False
        if not same:
            self._builds.clear()
            self.toolchain.notes.clear()
            self._directories = None
        has_numbers = not keyed.numbers or aliases().are_ours(keyed.numbers)
        return same and has_numbers and was_emulated == bool(keyed.emulated) and keyed.manifest.holds(self.memo.files)

    def _of_nvvm(self, request: Request) -> Keyed | Uncacheable:
        arguments, assembler = request.arguments(), request.assembler_arguments()
        why = unmodelled(arguments, Tool.NVVM, request.options.extra) or unmodelled(assembler, Tool.NVJITLINK)
        if why:
            return Uncacheable(why)
        builds = [self._build("nvvm"), *([self._build("nvJitLink")] if assembler else [])]
        parts = [*self._frame(*builds), *request.parts()]
        if request.source.libdevice:
            from cujit.toolchain.nvvm import find_libdevice  # start-up: for LLVM IR alone

            parts.append(Part.content("libdevice", find_libdevice(pathlib.Path(builds[0].path)).read_bytes()))
        emulated = _emulated(request.kind, *builds)
        return Keyed(make_key("nvvm", [*parts, *_as_emulated(emulated)]), tuple(builds), emulated=emulated)

    def _of_tile(self, request: Request) -> Keyed | Uncacheable:
        if why := unmodelled(request.arguments(), Tool.TILEIRAS, request.options.extra):
            return Uncacheable(why)
        build = self._build("tileiras")
        return Keyed(make_key("tileiras", [*self._frame(build), *request.parts()]), (build,), emulated=None)

    def _of_cuda(self, request: Request) -> Keyed | Uncacheable:
        build = self._build("nvrtc")
        emulated = _emulated(request.kind, build)
        if not is_plain(request.source):
            return self._of_all(request, build, emulated)
        source, known = request.source, self._known(request, build, emulated)
        if known is None:
            return self._of_all(request, build, emulated)
        manifest = known.bare
        if known.reads_more or has_includes(source.text):
            manifest = self._manifest(Scan.of(request, known.arguments))
            if any(part.label == RECORDED for part in manifest.parts):
                return self._of_all(request, build, emulated)
        key = known.frame.key(request.names, source.text, manifest.parts)
        return Keyed(key, (build,), manifest, emulated)

    def is_of(self, keyed: Keyed) -> bool:
        """Return whether the compiler is still the one in a key of CUDA C++."""
        return self._build("nvrtc") is keyed.builds[0]

    def alike(self, request: Request) -> Callable[[str, tuple[str, ...]], Keyed | None] | None:
        """Return what makes the keys of other texts with other names, in a request that is otherwise as this one.

        It takes a text and sorted names, and gives None for a text that needs a look at more than that, and once the
        compiler has changed. It is None if the request has paths or headers in memory, or under ``cujit emulate``.

        Raises:
            ToolchainNotFoundError: the compiler is not installed.
        """
        build, source = self._build("nvrtc"), request.source
        if not (source.language == "cuda" and is_plain(source)) or request.include or may_be_emulated():
            return None
        known = self._known(request, build, _emulated(request.kind, build))
        if known is None or known.reads_more:
            return None
        return functools.partial(self._keyed, known, request, {})

    def _keyed(
        self, known: _Alike, request: Request, shared: dict[tuple[str, str], str], text: str, names: tuple[str, ...]
    ) -> Keyed | None:
        if self._build("nvrtc") is not known.build:
            return None
        manifest, frame = known.bare, known.frame
        key = frame.native_key(names, text, manifest.parts, False)
        if key is None:
            if says_where(text):
                return None
            if has_includes(text):
                outlined = self._outlined(known, request, shared, text)
                if outlined is None or any(part.label == RECORDED for part in outlined.parts):
                    return None
                manifest = outlined
            key = frame.native_key(names, text, manifest.parts, True) or frame.key(names, text, manifest.parts)
        return tuple.__new__(Keyed, (key, (known.build,), manifest, None, ()))  # start-up: no method is written

    def _outlined(
        self, known: _Alike, request: Request, shared: dict[tuple[str, str], str], text: str
    ) -> Manifest | None:
        """Return the manifest of a text, if the manifest of its outline is known. ``shared`` contains the names of
        these manifests.
        """
        outline = None if self._has_closures() else outline_of(text)
        if outline is None:
            return None
        around = outline, os.getcwd()
        if around not in shared:
            if len(shared) >= KEPT:
                shared.clear()
            work = Scan.of(request, known.arguments)
            shared[around] = "" if work.is_old_dialect else work.name(self.toolkit(), outline)
        return self._shared(shared[around], text) if shared[around] else None

    def _known(self, request: Request, build: Build, emulated: bool | None) -> _Alike | None:
        """Return the common part of requests that differ only in names and source, or None if the key may contain
        paths.
        """
        source = request.source
        place = (source.name, source.define, request.kind, request.arch, request.options, emulated)
        around = *place, values_of(COMPILERS_READ, self._environment)
        known = self._alike.get(around)
        if known is None or known.build is not build:
            known = self._made_known(request, build, emulated)
            if known is not None:
                if len(self._alike) >= KEPT:
                    self._alike.clear()
                self._alike[around] = known
        return known

    def _made_known(self, request: Request, build: Build, emulated: bool | None) -> _Alike | None:
        arguments = tuple(request.arguments())
        if unmodelled(arguments, Tool.NVRTC, request.options.extra) or may_hold_paths(request):
            return None
        reads_more = bool(request.options.get("pre_include")) or any(map(has_includes, arguments))
        frame = KeyFrame.of("nvrtc", self._frame(build), request, (_BEFORE,), _as_emulated(emulated))
        return _Alike(build, arguments, reads_more, frame)

    def _of_all(self, request: Request, build: Build, emulated: bool | None) -> Keyed | Uncacheable:
        arguments = request.arguments()
        if why := unmodelled(arguments, Tool.NVRTC, request.options.extra):
            return Uncacheable(why)
        work = Scan.of(request, arguments)
        if may_hold_paths(request):
            work = work.named(self.toolkit())
        manifest = self._manifest(work)
        is_named = any(part.label == RECORDED for part in manifest.parts)
        numbers = numbers_of(request, self.toolkit()) if is_named else ()
        parts = [*self._frame(build), *request.parts(), _BEFORE, *manifest.parts, *_as_emulated(emulated)]
        return Keyed(make_key("nvrtc", parts), (build,), manifest, emulated, numbers)

    def _frame(self, *builds: Build) -> Iterator[Part]:
        yield Part.text("schema", _SCHEMA)
        for build in builds:
            yield Part.text(build.library, build.identity)
        for name in COMPILERS_READ:
            if value := self._environment.get(name):
                yield Part.text("environment", f"{name}={value}")

    def _build(self, library: str) -> Build:
        known = self._builds.get(library)
        if known is None or not (known.is_opened or library.lower() not in self.toolchain.__dict__):
            known = self._builds[library] = self._build_of(library, self.toolchain, self.memo.store, self._environment)
        return known

    def toolkit(self) -> tuple[str, ...]:
        """Return the directories of the toolkit's headers that the compile will use, without opening NVRTC.

        Raises:
            ToolchainNotFoundError: it is not installed.
        """
        if self._directories is None:
            build, settings = self._build("nvrtc"), self.toolchain.settings
            search = find_headers(settings, build.version[0], build.path)
            if search.missing and self._may_open and bundle_directory(build.path):
                self.toolchain.install_headers()
                search = self.toolchain.headers
            self._directories = search.paths
        return self._directories

    def _manifest(self, work: Scan) -> Manifest:
        """Return the possible inputs of a compile: known here, known from a pack, or from the includes."""
        if not work.has_includes:
            return Manifest((absent_part(()), *path_parts(work, {}, (), says=False)))
        toolkit = self.toolkit()
        outline = None if self._has_closures() else work.outline
        shared = None if outline is None else self._shared(work.name(toolkit, outline), work.source.text)
        if shared is not None:
            return shared
        name = work.name(toolkit)
        manifest = self.memo.find(name, functools.partial(self._shipped, work, toolkit))
        if manifest is None:
            closure = self._scanned(work, toolkit)
            directories = work.directories(toolkit)
            roots = {found.place.root: directories.get(found.place.root) for found in closure.found}
            parts = [*found_parts(closure), *path_parts(work, roots, toolkit, says=says_paths(closure))]
            manifest = Manifest.of(closure, parts)._replace(via="scan")
            if outline is not None and not _has_include(manifest, work.source.text):
                name = work.name(toolkit, outline)
            self.memo.keep(name, manifest)
        return manifest

    def _shared(self, name: str, text: str) -> Manifest | None:
        """Return the manifest of sources with the outline of a text, or None if it is unknown or the text tests for
        more headers.
        """
        manifest = self.memo.find(name)
        return None if manifest is None or _has_include(manifest, text) else manifest

    def _scanned(self, work: Scan, toolkit: Sequence[str]) -> Closure:
        # Start-up: a hit whose headers are as they were searches none.
        from cujit.compiler.includes.closure import scan
        from cujit.compiler.includes.search import HeaderPlace

        return scan(
            work.search(toolkit),
            HeaderPlace("source", os.path.basename(work.program), work.program),
            work.source.text.encode(),
            pre_include=work.pre_include,
            define=macros(work.arguments),
            is_old_dialect=work.is_old_dialect,
            files=self.memo.files,
        )

    def _shipped(self, work: Scan, toolkit: Sequence[str]) -> Manifest | None:
        """Verify a pack's information about headers. Files of distributions are checked once per process."""
        if not self._has_closures():
            return None
        bases, directories = work.bases(toolkit), work.directories(toolkit)
        for data in self._closures(work.shipped_name(toolkit)):
            shipped = self._prove(data, bases)
            if shipped is not None:
                roots = {root: directories.get(root) for root in shipped.roots}
                paths = path_parts(work, roots, toolkit, says=shipped.says_where)
                found = shipped.manifest
                return found._replace(parts=(*found.parts, *paths), via="request table")
        return None

    def _prove(self, data: bytes, bases: Mapping[str, str]) -> Shipped | None:
        from cujit.compiler.includes.packaged import prove  # start-up: where there are packs

        place = sha256(data).digest(), tuple(bases.values())
        shipped = self._proved.get(place)
        if shipped is None or not shipped.manifest.holds(self.memo.files, wholly=False):
            shipped = prove(data, bases)
        if shipped is not None:
            if len(self._proved) >= _PROVED_KEPT:
                self._proved.clear()
            self._proved[place] = shipped
        return shipped


_MAKERS: Mapping[str, Callable[[KeyMaker, Request], Keyed | Uncacheable]] = {
    "cuda": KeyMaker._of_cuda,
    "nvvm": KeyMaker._of_nvvm,
    "tile": KeyMaker._of_tile,
}


def _has_include(manifest: Manifest, text: str) -> bool:
    """Return whether a text may call a macro that tests for headers."""
    return any(asker in text for asker in manifest.askers)


def _emulated(makes: ImageKind, *builds: Build) -> bool | None:
    """Return whether a cubin is compiled under ``cujit emulate`` and is therefore a container, or None
    for other kinds.
    """
    return any(is_emulated(build.path) for build in builds) if makes is ImageKind.CUBIN else None


def _as_emulated(emulated: bool | None) -> Iterator[Part]:
    """Distinguish containers of ``cujit emulate`` from cubins. Other kinds are the same there."""
    if emulated:
        yield Part.text("made", "under cujit emulate: PTX in place of machine code")


def _headers_of(pin: str) -> str:
    """Name, for a pack, the user's headers of a compile that is pinned."""
    return make_key("headers of a pin", [Part.text("pin", pin)]).digest
