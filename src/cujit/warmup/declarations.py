"""Declarations of the kernels that a library will request, as code with parameters."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cujit.arch import Arch
from cujit.compiler.inputs.source import Source
from cujit.compiler.options.values import Options
from cujit.compiler.request import Request
from cujit.errors import OptionError, spell
from cujit.program import request, runner
from cujit.values import NamedTuple, dataclass, later
from cujit.worklist.lists import Worklist, of_requests
from cujit.worklist.places import Places, project_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from cujit.compiler.options.keywords import Keywords

dataclasses = later("dataclasses")  # for compile keys


class DeclaredVariant(NamedTuple):
    """One combination of a declaration's parameters, with its request."""

    title: str
    request: Request


@dataclass(frozen=True)
class Declared:
    """A declared kernel: its source, its names, and every combination of its parameters.

    Example::

        attention = cujit.warmup.declare("docs.scale", CODE, names="axpy<{dtype}>", over={"dtype": ["float"]})
        print([variant.title for variant in attention.variants("sm_90")])
    """

    name: str
    source: Source
    names: tuple[str, ...]
    over: Mapping[str, tuple[Any, ...]]
    options: Mapping[str, Any]
    when: Callable[..., object] | None = None
    keys: Callable[[], Iterable[object]] | None = None

    def variants(self, arch: Arch | str) -> Iterator[DeclaredVariant]:
        """Yield a request for each combination of the parameters.

        Raises:
            ArchError: the architecture is malformed or unknown.
            OptionError: a name or a macro has a parameter that isn't declared; or an option or compile key is invalid.
        """
        for chosen in self._combinations():
            if self.when is not None and not self.when(**chosen):
                continue
            title = ", ".join(f"{name}={value}" for name, value in chosen.items())
            names = [self._filled(name, chosen) for name in self.names]
            options = {**self.options}
            if isinstance(macros := options.get("define"), Mapping):
                options["define"] = {
                    macro: self._filled(text, chosen) if isinstance(text, str) else text
                    for macro, text in macros.items()
                }
            wanted = request(self.source, arch=arch, names=names, options=options)
            yield DeclaredVariant(f"{self.name}[{title}]" if title else self.name, wanted)

    def _combinations(self) -> Iterator[dict[str, Any]]:
        if self.keys is None:
            for values in itertools.product(*self.over.values()):
                yield dict(zip(self.over, values, strict=True))
            return
        yield from map(_fields, self.keys())

    def _filled(self, text: str, chosen: Mapping[str, Any]) -> str:
        try:
            return text.format_map(chosen)
        except (LookupError, ValueError, AttributeError) as e:
            raise OptionError(
                f"{self.name}: cujit can't fill in {spell(text)}: {e}",
                help=f"use one of the parameters {', '.join(chosen)}" if chosen else 'over={"head": [64, 128]}',
            ) from e


def _fields(key: object) -> dict[str, Any]:
    """Return the fields of a compile key.

    Raises:
        OptionError: it is not an instance of a data class.
    """
    if isinstance(key, type) or not dataclasses.is_dataclass(key):
        raise OptionError(
            f"{spell(key)} is not a compile key", help="return instances of a frozen data class from keys"
        )
    return {field.name: getattr(key, field.name) for field in dataclasses.fields(key)}


_DECLARED: dict[str, Declared] = {}


def declare(
    name: str,
    source: Source | str | os.PathLike[str],
    *,
    names: Sequence[str] | str = (),
    over: Mapping[str, Iterable[Any]] = MappingProxyType({}),
    when: Callable[..., object] | None = None,
    keys: Callable[[], Iterable[object]] | None = None,
    **options: Unpack[Keywords],
) -> Declared:
    """Declare kernels that a library will compile, and return the declaration. Nothing is compiled or opened.

    Call this at import. A service then calls ``cujit.warmup.run()`` at its start, and a build job writes the kernels to
    a worklist by ``cujit worklist declare``. To declare the same name again replaces the declaration.

    Args:
        name: name of the declaration, such as ``"mylib.attention"``. It begins with the name of the library.
        source: CUDA C++, as for ``cujit.compile``.
        names: template instances, with parameters in braces: ``"attention<{dtype}, {head}>"``.
        over: parameter names with their values. cujit requests every combination.
        when: function that gets the parameters as keyword arguments and returns whether a combination is needed.
        keys: function that returns compile keys, instead of ``over``. A compile key is an instance of a data class, and
            its fields are the parameters. cujit calls the function when a service starts or a worklist is written.
        options: compiler options. A macro in ``define`` can contain parameters in braces.

    Raises:
        OptionError: the name is invalid, or an argument has the wrong type.

    Example::

        cujit.warmup.declare("docs.axpy", CODE, names="axpy<{dtype}>", over={"dtype": ["float", "double"]})
    """
    if not isinstance(name, str) or not name or not name.isprintable():
        raise OptionError(f"{spell(name)} is not a valid name of a declaration", help='write "mylib.attention"')
    if when is not None and not callable(when):
        raise OptionError(f"when is {spell(when)}, expected a function", help="when=lambda head: head < 256")
    if not isinstance(over, Mapping) or any(isinstance(values, str) for values in over.values()):
        raise OptionError(f"over is {spell(over)}, expected a mapping to lists", help='over={"head": [64, 128]}')
    if keys is not None and (over or not callable(keys)):
        raise OptionError(
            f"keys is {spell(keys)}, expected a function and no over",
            help="keys=lambda: KERNEL.get_warmup_keys(config)",
        )
    Options.of(None, options, declare)
    listed = (names,) if isinstance(names, str) else tuple(names)
    values = MappingProxyType({key: tuple(each) for key, each in over.items()})
    made = Declared(name, Source.of(source), listed, values, MappingProxyType(dict(options)), when, keys)
    _DECLARED[name] = made
    return made


def declared(names: Iterable[str] = ()) -> tuple[Declared, ...]:
    """Return the declarations of this process whose names begin with one of ``names``; all of them without names.

    Raises:
        OptionError: no declaration has a name that begins so.

    Example::

        cujit.warmup.declare("docs.axpy", CODE, names="axpy<float>")
        assert "docs.axpy" in [one.name for one in cujit.warmup.declared(["docs"])]
    """
    chosen = (names,) if isinstance(names, str) else tuple(names)
    for beginning in chosen:
        if not any(name.startswith(beginning) for name in _DECLARED):
            raise OptionError(
                f"no declaration has a name that begins with {spell(beginning)}",
                help="import the library that declares it first",
            )
    return tuple(one for name, one in _DECLARED.items() if not chosen or name.startswith(chosen))


def worklist(
    names: Iterable[str] = (), *, arch: Sequence[Arch | str], project: str | os.PathLike[str] | None = None
) -> Worklist:
    """Return the worklist of what is declared, for architectures. Nothing is compiled.

    Args:
        names: beginnings of the names of declarations. Default: all.
        arch: the architectures.
        project: directory that cujit replaces with ``{project}`` in the names of headers, as for ``record_worklist``.

    Raises:
        OptionError: there is no architecture, or no such declaration, or a declaration is invalid.
        ArchError: an architecture is malformed or unknown.

    Example::

        cujit.warmup.declare("docs.axpy", CODE, names="axpy<float>")
        print(len(cujit.warmup.worklist(["docs.axpy"], arch=["sm_80", "sm_90"]).uses))
    """
    if not arch or isinstance(arch, str):
        raise OptionError(f"arch is {spell(arch)}, expected a list", help='arch=["sm_90"]')
    directory = project_of(os.getcwd()) if project is None else os.path.abspath(os.fspath(project))
    requests = [variant.request for one in declared(names) for each in arch for variant in one.variants(each)]
    return of_requests(requests, Places(directory, runner().toolkit))
