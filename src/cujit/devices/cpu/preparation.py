"""A PTX text on its way to machine code: parsed, and its kernels made ready, when something first needs that."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING

from cujit.artifact import Artifact
from cujit.cache.key import Part
from cujit.devices.cpu.facts import MOST_IMAGE_BYTES, KernelFacts, ModuleFacts, Relocation
from cujit.devices.cpu.refusals import Refusals
from cujit.devices.objects import keep
from cujit.errors import UnsupportedError

if TYPE_CHECKING:  # what makes kernels ready is imported where that has to be done
    from cujit.devices.cpu.body import Body
    from cujit.devices.cpu.layout import ModuleLayout
    from cujit.formats.ptx.syntax import Function, Module

__all__ = ["Preparation"]


class _TooLargeError(Exception):
    """Variables that are too large to be kept."""


class Preparation:
    """The text of a module, and what was made of it so far; for any number of threads."""

    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self._name = name
        self._lock = threading.RLock()
        self._bodies: dict[str, Body] = {}
        self.parts = (Part.content("PTX", text),)
        """What stands for the text in the key of a piece of work."""

    def ptx(self) -> Module:
        """Parse the text.

        Raises:
            FormatError: it is no PTX.
        """
        with self._lock:
            return self._ptx

    def body(self, name: str) -> Body:
        """Make one kernel ready, of a module of which ``facts`` are known."""
        with self._lock:
            if name not in self._bodies:
                entry = next(entry for entry in self._ptx.entries if entry.name == name)
                self._bodies[name] = self._prepare(entry, self._layout, Refusals())
            return self._bodies[name]

    def known_facts(self) -> ModuleFacts:
        """Tell what launches need to know, out of the cache if it is there; a module that is there was checked.

        Raises as ``facts`` does.
        """
        made: list[ModuleFacts] = []

        def make() -> Artifact:
            made.append(self.facts())
            if len(made[0].image) > MOST_IMAGE_BYTES:
                raise _TooLargeError
            return made[0].to_artifact()

        try:
            artifact = keep("cpu module", self.parts, make)
        except _TooLargeError:  # raised here, or by a thread that this one waited for
            return made[0] if made else self.facts()
        return made[0] if made else ModuleFacts.of_artifact(artifact)

    def facts(self) -> ModuleFacts:
        """Make every kernel ready, and tell what launches need to know.

        Raises:
            UnsupportedError: something in it is not executed here; all that is not is named.
            FormatError: the text is no PTX.
            LoadError: the initialisers of its variables do not fit, or there is no memory for them.
        """
        with self._lock:
            ptx, refusals = self._ptx, Refusals()
            self._check_module(refusals)
            layout = self._layout_for(refusals)
            bodies: dict[str, Body] = {}
            for entry in ptx.entries:
                if entry.name in bodies:
                    refusals.add(entry.line, f".entry {entry.name}", "a second kernel of that name")
                bodies[entry.name] = self._prepare(entry, layout, refusals)
            if refusals.items:
                raise _unsupported(refusals)
            self._bodies = bodies
            kernels = tuple(_facts_of(entry, self._bodies[entry.name]) for entry in ptx.entries)
            return _module_facts(kernels, layout)

    @functools.cached_property
    def _ptx(self) -> Module:
        from cujit.formats.ptx.parser import parse

        return parse(self.text, name=self._name)

    @functools.cached_property
    def _layout(self) -> ModuleLayout:
        return self._layout_for(Refusals())

    def _layout_for(self, refusals: Refusals) -> ModuleLayout:
        from cujit.devices.cpu.layout import ModuleLayout

        return ModuleLayout(self._ptx, refusals)

    def _check_module(self, refusals: Refusals) -> None:
        from cujit.devices.cpu.textures import note_references

        if self._ptx.address_size != 64:
            refusals.add(0, f".address_size {self._ptx.address_size}", "addresses of other than 64 bits")
        if note_references(self._ptx, refusals):
            raise _unsupported(refusals)

    def _prepare(self, entry: Function, layout: ModuleLayout, refusals: Refusals) -> Body:
        from cujit.devices.cpu.body import prepare

        return prepare(self._ptx, entry, layout.slots, refusals)


def _facts_of(entry: Function, body: Body) -> KernelFacts:
    from cujit.devices.cpu.program import Special
    from cujit.formats.ptx.parameters import signature_of_entry

    program = body.program
    ops = [op for each in (program, *program.functions.values()) for op in each.ops]
    return KernelFacts(
        name=entry.name,
        signature=signature_of_entry(entry),
        directives={name: tuple(map(int, values)) for name, values in reversed(entry.directives) if _are_sizes(values)},
        parameters_size=program.parameters_size,
        shared_size=program.shared_size,
        local_size=program.local_size,
        suspends=body.suspends,
        prints=any(op.opcode == "call.extern" and "vprintf" in op.modifiers for op in ops),
        meets=any(source == Special("envreg2") for op in ops for source in op.sources),
    )


def _are_sizes(values: tuple[str, ...]) -> bool:
    return all(value.isdecimal() for value in values)


def _module_facts(kernels: tuple[KernelFacts, ...], layout: ModuleLayout) -> ModuleFacts:
    variables = {name: (slot.offset, slot.size) for name, slot in layout.slots.items() if slot.offset is not None}
    places = []
    for offset, slot, addend, _ in layout.relocations:
        assert slot.offset is not None
        places.append(Relocation(offset, slot.offset + addend))
    return ModuleFacts(kernels, variables, bytes(layout.image), tuple(places))


def _unsupported(refusals: Refusals) -> UnsupportedError:
    items = sorted(refusals.items)
    lines = "\n".join(f"  line {line}: {text}: {why}" for line, text, why in items)
    stand = f"{len(items)} constructs stand" if len(items) > 1 else "one construct stands"
    return UnsupportedError(
        f"the CPU device cannot execute this PTX yet; {stand} in the way:\n{lines}",
        items=items,
        help="run it on a GPU; `cujit inspect --needs` lists what a PTX file needs, and what of it runs here",
    )
