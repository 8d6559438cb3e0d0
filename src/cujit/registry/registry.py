"""The registry: modules by name, each built once per device, for libraries that generate their kernels."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator, Mapping

from cujit.artifact import Artifact
from cujit.cache.cache import Cache
from cujit.cache.key import Key, Part, key_of_text, text_of
from cujit.cache.provenance import Outcome, Provenance
from cujit.cache.settings import values_of
from cujit.compiler.keys.maker import Keyed
from cujit.compiler.request import Request
from cujit.compiler.runner import LISTENERS, Runner
from cujit.devices.device import Device
from cujit.devices.process import process_devices
from cujit.errors import OptionError, ToolchainNotFoundError, spell
from cujit.forks import once, register_reset
from cujit.loading import Module, jit, load, load_artifact
from cujit.machine import default_device
from cujit.program import RUNNER_DECIDING, Options, Source, runner
from cujit.registry.registered import RegisteredModule, Tasks
from cujit.registry.spec import Builder, Description, ModuleSpec, built_of, code_text, described
from cujit.values import NamedTuple, dataclass
from cujit.version import __version__

__all__ = ["RegisteredModule", "Registry", "default_registry", "module"]

Given = ModuleSpec | Source | Artifact | str | bytes | tuple[object, ...]
"""What may stand in place of a builder: what it would have returned."""

_DEFAULT_OPTIONS = Options()
_MOST_WISHES = 64
_SCHEMA = "1"
"""Another number where entries by name stand on something else."""
_LONGEST_NAME = 200


# -- the registry -------------------------------------------------------------------------------------------


class _Wish(NamedTuple):
    """The known properties of a requested registration. Equal wishes are assumed to build equal modules."""

    description: Description
    options: Options
    version: str | None


class _Order(NamedTuple):
    """A wish with its builder or ModuleSpec, and the cache to use."""

    wish: _Wish
    builder: Builder | ModuleSpec
    cache: Cache | bool | None

    @classmethod
    def of(
        cls,
        builder: object,
        options: Mapping[str, object] | Options | None,
        version: object,
        cache: Cache | bool | None,
    ) -> _Order:
        """Create an order with every argument in its normalized form.

        Raises:
            OptionError: an argument has the wrong type.
            FormatError: the text or the bytes in place of a builder are invalid.
        """
        chosen = _DEFAULT_OPTIONS if options is None else Options.of(options, {})
        if version is not None and (not isinstance(version, str) or not version.strip()):
            raise OptionError(
                f"version is {spell(version)}, expected the version of the library as a str, or None",
                help="write version=mylibrary.__version__",
            )
        if not isinstance(builder, ModuleSpec) and not callable(builder):
            builder = built_of(builder)
        if isinstance(builder, ModuleSpec):
            return cls(_Wish(("built", builder.digest), chosen, version), builder, cache)
        return cls(_Wish(described(builder), chosen, version), builder, cache)

    def build(self) -> ModuleSpec:
        """Call the builder, and return its result with the options of the wish.

        Raises:
            OptionError: the result can't be loaded.
        """
        built = self.builder if isinstance(self.builder, ModuleSpec) else built_of(self.builder())
        return built.with_options(self.wish.options)


@dataclass(frozen=True)
class _Entry:
    """A module, and the wishes that it is known to fulfil."""

    registered: RegisteredModule
    wishes: tuple[_Wish, ...]

    def fulfils(self, wish: _Wish) -> _Entry:
        """Return an entry that knows this wish too. The oldest wish is dropped if there are too many."""
        if wish in self.wishes:
            return self
        return _Entry(self.registered, (*self.wishes[1 - _MOST_WISHES :], wish))


class Registry:
    """A thread-safe registry of modules by name and device. ``cujit.default_registry()`` returns the process's
    registry.

    A forked child process inherits the modules of its parent. In the child, modules on a GPU raise an error, because
    CUDA doesn't survive a fork.

    Example::

        registry = cujit.registry.Registry()
        own = registry.module("axpy", cujit.ModuleSpec(CODE, names=["axpy<float>"]), device=device)
        assert own not in cujit.default_registry()
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._entries: dict[tuple[str, Device], _Entry] = {}
        self._tasks = Tasks()
        register_reset(self)

    def module(
        self,
        name: str,
        builder: Builder | Given,
        *,
        device: Device | str | None = None,
        version: str | None = None,
        options: Mapping[str, object] | Options | None = None,
        cache: Cache | bool | None = None,
        check: bool = False,
    ) -> RegisteredModule:
        """Return the module with this name on a device; see ``cujit.module``.

        Args:
            name: as for ``cujit.module``.
            builder: as for ``cujit.module``.
            device: as for ``cujit.module``.
            version: as for ``cujit.module``.
            options: as for ``cujit.module``.
            cache: as for ``cujit.module``.
            check: as for ``cujit.module``.

        Example::

            registry = cujit.registry.Registry()
            own = registry.module("axpy", cujit.ModuleSpec(CODE, names=["axpy<float>"]), device=device)
        """
        key = _named(name), _place(device)
        order = _Order.of(builder, options, version, cache)
        wish = order.wish
        while True:
            entry = self._known(key)
            if entry is not None and not check and wish in entry.wishes:
                with self._guard:
                    entry.registered.hits += 1
                return entry.registered
            label = f"the module {name[:_LONGEST_NAME]!r}"
            found = self._tasks.run_for((wish, check), key, label, functools.partial(self._work, key, order, check))
            if found is not None:
                return found.registered

    def __iter__(self) -> Iterator[RegisteredModule]:
        """Return an iterator over the registered modules, sorted by name and device."""
        with self._guard:
            entries = sorted(self._entries.items(), key=lambda item: (item[0][0], item[0][1].name))
        return iter([entry.registered for _, entry in entries])

    def __len__(self) -> int:
        return len(self._entries)

    def forget(self, name: str, device: Device | str | None = None) -> int:
        """Remove a module from the registry, on one device or on all devices, and return the number of removed modules.

        Kernels that callers already hold still work. The cache keeps its entries, so a lookup with the same name and
        ``version`` finds them again. The call doesn't stop a compile in progress.

        Args:
            name: name of the module.
            device: a device or its name. Default: all devices.

        Raises:
            OptionError: ``name`` is not a str.
            DeviceNotFoundError: no device has this name.

        Example::

            assert cujit.default_registry().forget("what nobody registered") == 0
        """
        place = None if device is None else _place(device)
        _named(name)
        with self._guard:
            gone = [key for key in self._entries if key[0] == name and place in (None, key[1])]
            for key in gone:
                del self._entries[key]
        return len(gone)

    def _known(self, key: tuple[str, Device]) -> _Entry | None:
        entry = self._entries.get(key)
        return None if entry is None or entry.registered.module.closed else entry

    def _work(self, key: tuple[str, Device], order: _Order, check: bool) -> _Entry:
        """Make the entry, or hold another wish for it against it; one thread at a time."""
        entry = self._known(key)
        if entry is None:
            registered = _Maker(*key, order, self._tasks).make(check)
            entry = _Entry(registered, (order.wish,))
        elif check or order.wish not in entry.wishes:
            _require_same(entry.registered, order)
            entry = entry.fulfils(order.wish)
        with self._guard:
            self._entries[key] = entry
        return entry

    def after_fork(self) -> None:
        """Reset, in a forked child, the lock and the tasks that other threads of the parent may have been using."""
        self._guard = threading.Lock()
        self._tasks.after_fork()


# -- making -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Maker:
    """Builds the module of one order under one name on one device."""

    name: str
    device: Device
    order: _Order
    tasks: Tasks

    def make(self, check: bool) -> RegisteredModule:
        """Return the cached module of the name unless ``check`` is set. Otherwise build, load, and cache it."""
        common = _common_of(self.device, self.order)
        tools = runner(self.order.cache) if common is None else common.tools
        key = None if isinstance(self.order.builder, ModuleSpec) else self._key(tools, common)
        found = None if tools.cache is None or key is None else _found(tools.cache, key)
        if found is not None and key is not None and not check:
            return self._registered(load_artifact(found, self.device), key, None)
        built = self.order.build()
        loaded = _loaded(built, self.device, self.order.cache)
        if found is not None and not _is_same(found, loaded.artifact):
            raise _taken(self.name, self.device, f"the image that the cache has for version {self.order.wish.version}")
        kept = tools.cache is not None and key is not None and _is_kept(tools, tools.cache, key, built, loaded.artifact)
        return self._registered(loaded, key if kept else _content_key(loaded.artifact), built)

    def _registered(self, loaded: Module, key: Key | None, built: ModuleSpec | None) -> RegisteredModule:
        digest = None if key is None else key.digest
        return RegisteredModule(self.name, loaded, self.tasks, version=self.order.wish.version, key=digest, built=built)

    def _key(self, tools: Runner, common: _Common | None) -> Key | None:
        """Return the key of the name, or None without a version, a compiler, or a cache.

        The key of an empty source represents the compiler's build and the options.
        """
        if common is None:
            common = self._made_common(tools)
        if common is None:
            return None
        named, built = _named_part(self.name), _built_part(self.order.wish.description)
        whole = f"{named[1]}{common.text}{built[1]}"
        count = len(named[0]) + len(common.parts) + len(built[0])
        return key_of_text("module", count, whole, lambda: (*named[0], *common.parts, *built[0]))

    def _made_common(self, tools: Runner) -> _Common | None:
        wish = self.order.wish
        if wish.version is None:
            return None
        try:
            empty = tools.key_of_none(wish.options)
        except (OptionError, ToolchainNotFoundError):  # options of LLVM IR, or images alone
            return None
        if not isinstance(empty, Keyed):
            return None
        place = f"{self.device.arch} {'GPU' if self.device.is_gpu else 'CPU device'}"
        parts, text = _alike(__version__, wish.version, place, empty.key.digest, _part_of_options(wish.options))
        environment = values_of(RUNNER_DECIDING, os.environ)
        common = tuple.__new__(_Common, (environment, tools, empty, parts, text))  # start-up: no method is written
        if _is_usual(self.order):
            if len(self.device.shortcuts) >= _MOST_WISHES:
                self.device.shortcuts.clear()
            self.device.shortcuts[__version__, self.order.cache, wish.version] = common
        return common


class _Common(NamedTuple):
    """Shared values of the modules of one version on a device in one environment: the runner, and parts of keys."""

    environment: tuple[str | bytes | None, ...]
    tools: Runner
    empty: Keyed
    parts: tuple[Part, ...]
    text: str


def _is_usual(order: _Order) -> bool:
    return order.wish.options is _DEFAULT_OPTIONS and (order.cache is None or isinstance(order.cache, Cache))


def _common_of(device: Device, order: _Order) -> _Common | None:
    """Return the stored shared values of such modules, or None if they are missing or outdated."""
    if order.wish.version is None or not _is_usual(order):
        return None
    known: _Common | None = device.shortcuts.get((__version__, order.cache, order.wish.version))
    if known is None or LISTENERS or known.environment != values_of(RUNNER_DECIDING, os.environ):
        return None
    return known if known.tools.keys is not None and known.tools.keys.is_of(known.empty) else None


def _found(cache: Cache, key: Key) -> Artifact | None:
    hit = cache.hit(key.digest, key.kind) or cache.find(key)
    return None if hit is None else hit[0]


def _named_part(name: str) -> tuple[tuple[Part, ...], str]:
    """Return the parts of a key for a name, and their text."""
    if len(name) <= _LONGEST_NAME:
        return (Part.text("name", name),), f"4 {len(name)} None:name{name}"
    parts = Part.text("name", name[:_LONGEST_NAME]), Part.content("whole name", name)
    return parts, text_of(parts)


@functools.lru_cache(256)
def _built_part(description: Description) -> tuple[tuple[Part, ...], str]:
    """Return the part of a key for a builder, and its text. Builders of a library often have the same description."""
    parts = (Part.content("builder", code_text(description)),)
    return parts, text_of(parts)


@functools.lru_cache(64)
def _alike(cujit: str, version: str | None, place: str, compiler: str, options: Part) -> tuple[tuple[Part, ...], str]:
    """Return the parts that the keys of a library's modules share, and their text."""
    parts = (
        Part.text("schema", _SCHEMA),
        Part.text("cujit", cujit),
        Part.text("version", version or ""),
        Part.text("arch", place),
        Part.text("compiler", compiler),
        options,
    )
    return parts, text_of(parts)


def _part_of_options(options: Options) -> Part:
    """Return options as a part of a key. The part includes directories, which other keys don't contain."""
    return _NO_OPTIONS if options is _DEFAULT_OPTIONS else Part.content("options", repr(options))


_NO_OPTIONS = Part.content("options", repr(_DEFAULT_OPTIONS))


def _loaded(built: ModuleSpec, device: Device, cache: Cache | bool | None) -> Module:
    """Compile, if there is something to compile, and load; an image must have the kernels that were named."""
    if isinstance(built.source, Source):
        return jit(built.source, names=built.names, device=device, options=built.options, cache=cache)
    loaded = load(built.source, device)
    for name in built.names:
        loaded[name]  # raises if it is not there
    return loaded


def _is_kept(tools: Runner, cache: Cache, key: Key, built: ModuleSpec, artifact: Artifact) -> bool:
    """Keep an Artifact under its name, with how to make it; not if it could not be kept by its content."""
    source = built.source
    if isinstance(source, Artifact):
        return cache.get_or_make(key, lambda: artifact)[1].outcome is not Outcome.UNCACHED
    # The key stands on the compiler of CUDA C++ of here, and on the architecture: not on what is shipped in its place.
    known = artifact.provenance
    if source.language != "cuda" or known is None or known.reason:
        return False
    if known.outcome in (Outcome.UNCACHED, Outcome.SHIPPED):
        return False

    def recipe() -> bytes:
        from cujit.compiler.keys.recipe import write_recipe  # start-up: for what is made and kept

        return write_recipe(Request.of(source, artifact.kind, artifact.arch, built.names, built.options, tools))

    return cache.get_or_make(key, lambda: artifact, recipe=recipe)[1].outcome is not Outcome.UNCACHED


def _content_key(artifact: Artifact) -> Key | None:
    known = artifact.provenance
    return known.key if isinstance(known, Provenance) and known.outcome is not Outcome.UNCACHED else None


def _is_same(a: Artifact, b: Artifact) -> bool:
    return a.data == b.data and a.names == b.names


def _require_same(registered: RegisteredModule, order: _Order) -> None:
    """Build the module of another order, and compare it with the registered module.

    Raises:
        OptionError: the modules differ.
    """
    built = order.build()
    if registered.built is None:  # the cache knew the name: only the images can be compared
        with _loaded(built, registered.device, order.cache) as other:
            same = _is_same(other.artifact, registered.module.artifact)
        difference = "" if same else f"the image that the cache has for version {registered.version}"
    else:
        difference = registered.built.difference(built)
    if difference:
        raise _taken(registered.name, registered.device, difference)
    registered.built = built


def _taken(name: str, device: Device, difference: str) -> OptionError:
    return OptionError(
        f"the module {name[:_LONGEST_NAME]!r} on {device.name} already exists with different {difference}",
        help="put everything that the source depends on into the name, and change the version when the "
        "builder changes; cujit.default_registry().forget(name) removes the first module",
    )


# -- doors --------------------------------------------------------------------------------------------------


def default_registry() -> Registry:
    """Return the process's registry, which lists the loaded modules and can remove them.

    Example::

        for known in cujit.default_registry():
            print(known.name, known.device.name, known.hits)
    """
    return _of_the_process()


@once
def _of_the_process() -> Registry:
    return Registry()


def module(
    name: str,
    builder: Builder | Given,
    *,
    device: Device | str | None = None,
    version: str | None = None,
    options: Mapping[str, object] | Options | None = None,
    cache: Cache | bool | None = None,
    check: bool = False,
) -> RegisteredModule:
    """Return the module with this name on a device. If the name is unknown, cujit calls ``builder()``.

    cujit calls the builder and compiles its result once per name and device, while other threads wait. If the builder
    raises an error, all waiting threads raise the same error, and the next call runs the builder again. A builder can
    request other modules.

    The process keeps its modules, and the cache finds images by content. Without ``version``, another process therefore
    calls the builder again, but compiles nothing. With ``version``, the cache also finds the image by name, and other
    processes don't call the builder. A cache entry with a ``version`` is valid for the same architecture, options, and
    versions of the library, cujit, and the compiler. The builder must also have the same code and plain captured
    values. If other inputs of the builder change, such as header files, change ``version``. The cache finds LLVM IR
    only by content.

    The same name must always refer to the same source. cujit compares a ``ModuleSpec`` at each call. For a builder, it
    compares the code, default values, and plain captured values (numbers, text, enum members, types, functions, and
    short tuples of these). If any of them differ, cujit calls the builder and compares the result.

    If the compiler supports the GPU, cujit compiles SASS. For a newer GPU, it compiles PTX for the highest architecture
    below that of the GPU. For the CPU device, cujit compiles PTX.

    Args:
        name: name of the module in the process.
        builder: a function that returns a ``ModuleSpec`` or its arguments as a tuple: a source with template instances,
            or an image with kernel names. You can also pass the ModuleSpec or the tuple itself.
        device: a Device or its name. Default: the first GPU, or the CPU device if there is no GPU.
        version: version of the library that contains the builder.
        options: compiler options, in addition to those of the ModuleSpec.
        cache: as for ``compile``.
        check: whether to call the builder and compare the result at every call.

    Raises:
        OptionError: another source or image has the same name, the builder requests its own name, or an argument has a
            wrong type.
        NameNotFoundError: the image lacks a kernel in ``names``.
        CujitError: see ``jit`` and ``load``.

    Example::

        def builder():
            return cujit.ModuleSpec(CODE, names=["axpy<float>"])

        kernel = cujit.module("example axpy", builder, device=device)["axpy<float>"]
    """
    own = default_registry()
    return own.module(name, builder, device=device, version=version, options=options, cache=cache, check=check)


def _named(name: object) -> str:
    if not isinstance(name, str) or not name.strip():
        raise OptionError(
            f"the name of a module must be a str, not {spell(name)}"[:200], help="cujit.module('scale_float32', …)"
        )
    return name


def _place(device: Device | str | None) -> Device:
    return default_device() if device is None else process_devices().named(device)
