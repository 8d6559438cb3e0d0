"""Kernel lookup by name expression, source name, or lowered name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from cujit.errors import NameNotFoundError, alike, listed, spell
from cujit.errors.hints import Hint
from cujit.forks import cached_property
from cujit.formats.mangling import demangle, entity_name
from cujit.values import group_by, later
from cujit.values.typed import TYPE_CHECKING

if TYPE_CHECKING:
    import re

    from cujit.formats import expressions
else:
    # Start-up: a kernel of C linkage has one name, which is found without these.
    re, expressions = later("re"), later("cujit.formats.expressions")

# How compilers and demanglers spell a namespace without a name.
_UNNAMED = r"(?:\(\s*anonymous\s+namespace\s*\)|<unnamed>|\{anonymous\})\s*::\s*"


class NameTable:
    """The kernels of a module by name. ``requested`` maps the name expressions of the build to lowered names.

    ``place`` is the description of the module in messages.
    """

    def __init__(self, requested: Mapping[str, str], lowered: Iterable[str], place: str = "this module") -> None:
        self.lowered = tuple(lowered)
        self._place = place
        present = set(self.lowered)
        self._requested: dict[str, str] = {}
        for text, name in requested.items():
            if name in present:
                self._requested.setdefault(name_key(text), name)
        # Of several names for one kernel the first that was asked for.
        self.display = display_names(self.lowered, {name: text for text, name in reversed(self._requested.items())})
        self._shown = {text: name for name, text in self.display.items()}

    def find(self, name: str) -> str:
        """Return the lowered name of the kernel called ``name``.

        Raises:
            NameNotFoundError: no kernel has this name, or several kernels have it. The message lists the kernels.
        """
        if not isinstance(name, str):
            raise NameNotFoundError(
                f"the name of a kernel must be a str, not {type(name).__name__} {spell(name)}",
                help="module['axpy<float>']",
            )
        if name in self.display:
            return name
        if name in self._shown:
            return self._shown[name]
        wanted = name_key(name)
        if wanted in self._requested:
            return self._requested[wanted]
        found = self._entities.get(wanted) or self._templates.get(wanted) or self._overloads.get(wanted) or []
        if len(found) == 1:
            return found[0]
        if found:
            listing = "".join(f"\n  {self.display[n]}" for n in found)
            raise NameNotFoundError(
                f"{len(found)} kernels are named {spell(name)}:{listing}", help="use the full name of one of them"
            )
        raise self._missing(name, wanted)

    @cached_property
    def _entities(self) -> dict[str, list[str]]:
        """The kernels by the names that the source has."""
        known = ((entity_name(name), name) for name in self.lowered)
        return group_by((expressions.normalise_expression(of), name) for of, name in known if of is not None)

    @cached_property
    def _templates(self) -> dict[str, list[str]]:
        """The lowered names of kernels, grouped by the names of their templates."""
        known = ((entity_name(name), name) for name in self.lowered)
        return group_by((without_arguments(of), name) for of, name in known if of is not None)

    @cached_property
    def _overloads(self) -> dict[str, list[str]]:
        """The lowered names of kernels, grouped by name and parameter types. Most lookups don't need this table."""
        known = ((demangle(name), name) for name in self.lowered)
        return group_by((name_key(whole), name) for whole, name in known if whole is not None)

    def _missing(self, name: str, wanted: str) -> NameNotFoundError:
        if not self.lowered:
            return NameNotFoundError(
                f"there is no kernel named {spell(name)}: {self._place} contains no kernels",
                help=Hint(
                    "declare a kernel with __global__; for a template, list its instances: names=['k<float>']",
                    shell="declare a kernel with __global__; for a template, list its instances: <-n> 'k<float>'",
                ),
            )
        near = alike(name, self.display.values())
        likely = f"did you mean {', '.join(near)}?" if near else None
        return NameNotFoundError(
            f"there is no kernel named {spell(name)} in {self._place}; it contains "
            f"{listed(self.display.values(), 12, wanted)}",
            help=f"add this instance to the list: names=[{spell(name)}]" if "<" in name else likely,
        )


def display_names(lowered: Iterable[str], requested: Mapping[str, str]) -> dict[str, str]:
    """Return the display name of each kernel: its ``requested`` name, otherwise its source name, otherwise its lowered
    name.

    If several kernels would have the same display name, such as a C kernel and a C++ kernel, each has its lowered name.
    """
    entities = {name: entity_name(name) for name in lowered}
    count = Counter(entities.values())
    shown = {
        name: requested.get(name) or (entity if count[entity] == 1 else None) or demangle(name) or name
        for name, entity in entities.items()
    }
    spelled = Counter(shown.values())
    return {name: text if spelled[text] == 1 else name for name, text in shown.items()}


def name_key(text: str) -> str:
    """Return the normalized spelling of a name, with or without parameter types, for comparisons.

    Unnamed scopes are removed, as in ``entity_name``. A leading ``void`` is also removed, because every kernel returns
    it.
    """
    return expressions.normalise_expression(re.sub(_UNNAMED, "", text).strip().removeprefix("void ")).removeprefix("::")


def without_arguments(entity: str) -> str:
    """Drop the template arguments at the end of a name: ``ns::k<int>`` is ``ns::k``."""
    return re.sub(r"<.*>$", "", entity)
