"""A PTX text and its steps toward machine code. The text is parsed, and its kernels are prepared, on first need."""

from __future__ import annotations

import collections
import struct
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from cujit.artifact import Artifact, ImageKind
from cujit.cache.key import Part
from cujit.devices.cpu.ir.facts import MOST_IMAGE_BYTES, KernelFacts, ModuleFacts, RefusedFacts, Relocation
from cujit.devices.cpu.ir.refusals import Refusal, Refusals, unsupported
from cujit.devices.objects import keep, kept
from cujit.devices.shapes import Dim3
from cujit.forks import Lock
from cujit.values.garbage import collecting_rarely

if TYPE_CHECKING:  # what makes kernels ready is imported where that has to be done
    from cujit.devices.cpu.analysis.body import Body
    from cujit.devices.cpu.frontend.layout import ModuleLayout
    from cujit.formats.ptx.syntax import Function, PtxModule


_WITH_CODE = "cpu module with code"
_MOST_COMPANION_BYTES = 1 << 16
"""Bytes of facts that are kept a second time, with the code of the first launch."""
_AT = struct.Struct("<QIII")
"""Where code begins that is kept with facts, and the block that it is for. It is the end of the entry."""


_MOST_OPS, _MOST_OPS_EACH, _OPS_OF_FUNCTION = 120_000, 2, 20
"""Operations of functions that are called and not inlined, counted for each kernel, as each has its own: so many, or so
many for each statement of the text if that is more. A function itself counts as 20. Kernels after these are refused:
200,000 take 6 CPU seconds. Measured with ``benchmarks/shapes.py``."""

_TOO_MANY_OPS = "too many kernels of this module call its functions; load this kernel in a module of its own"


class _TooLargeError(Exception):
    """Variables that are too large to be kept."""


class _Parsed:
    """Results from a PTX text: its syntax tree, the layout of its variables, and the prepared kernels by name."""

    def __init__(self, ptx: PtxModule, length: int) -> None:
        self.ptx = ptx
        self.length = length
        """Characters of the text."""
        self.layout: ModuleLayout | None = None
        self.bodies: dict[str, Body] = {}


_RECENT: collections.deque[_Parsed] = collections.deque(maxlen=8)
"""What was used last, for the next kernel of a module and the next shape of a block. Each small kernel has 30 KiB."""

_MOST_RECENT = 500_000
"""Characters of all texts there but the last: what is made of a text takes some 100 times its memory."""


_RECENT_LOCK = Lock()


def _remember(parsed: _Parsed) -> None:
    """Keep the results of a text as the most recent, and drop older results beyond a total text length."""
    with _RECENT_LOCK:
        if not _RECENT or _RECENT[-1] is not parsed:
            _RECENT.append(parsed)
        left = _MOST_RECENT
        for each in [*_RECENT][-2::-1]:
            left -= each.length
            if left < 0:
                _RECENT.remove(each)


class Preparation:
    """The text of a module and its recent results, for any number of threads.

    With ``stays``, each kernel is prepared only once, because observers identify kernels by object identity. With
    ``contract``, a product and its sum are rounded once wherever ptxas fuses them.
    """

    def __init__(self, text: str, name: str, *, stays: bool = False, contract: bool = False) -> None:
        self.text = text
        self._name = name
        self._stays = stays
        self._contract = contract
        self._lock = Lock()
        self._parsed: weakref.ref[_Parsed] | None = None
        self._staying: _Parsed | None = None
        self._code: tuple[Dim3, bytes] | None = None
        self._facts_artifact: Artifact | None = None
        self.parts = (Part.content("PTX", text), *([Part.text("contract", "ptxas")] if contract else ()))
        """What stands for the text in the key of a piece of work."""

    def ptx(self) -> PtxModule:
        """Parse the text.

        Raises:
            FormatError: it is no PTX.
        """
        with self._lock:
            return self._ready().ptx

    def path(self) -> str:
        """Return the path of a file that contains the text. Users read its lines in debuggers and profilers.

        Raises:
            FileError: the file can't be written.
        """
        from cujit.devices.perf_files import ptx_path  # start-up: for profilers alone

        return str(ptx_path(self.text))

    @collecting_rarely()
    def body(self, name: str) -> Body:
        """Make one kernel ready, of a module of which ``facts`` are known."""
        with self._lock:
            parsed = self._ready()
            if name not in parsed.bodies:
                parsed.layout = parsed.layout or _layout_of(parsed.ptx, Refusals())
                entry = next(entry for entry in parsed.ptx.entries if entry.name == name)
                parsed.bodies[name] = self._prepared(entry, parsed.layout, Refusals())
            return parsed.bodies[name]

    def known_facts(self) -> ModuleFacts:
        """Return the facts that launches need, from the cache if possible. A module in the cache was already checked.

        Raises the same errors as ``facts``.
        """
        found = kept(_WITH_CODE, self.parts, is_native=True)
        if found is not None:
            return ModuleFacts.of_artifact(found, self._take(found.data))
        made: list[ModuleFacts] = []

        def make() -> Artifact:
            made.append(self.facts())
            if sum(len(piece) for _, piece in made[0].pieces) > MOST_IMAGE_BYTES:
                raise _TooLargeError
            return made[0].to_artifact()

        try:
            artifact = keep("cpu module", self.parts, make)
        except _TooLargeError:  # raised here, or by a thread that this one waited for
            return made[0] if made else self.facts()
        facts = made[0] if made else ModuleFacts.of_artifact(artifact)
        is_small = len(artifact.data) < _MOST_COMPANION_BYTES and len(facts.kernels) == 1
        self._facts_artifact = artifact if is_small and not facts.refused else None
        return facts

    def code_of(self, block: Dim3, make: Callable[[], bytes]) -> bytes | None:
        """Return the code of the only kernel for a block, stored with the facts. Return None if the stored code is for
        another block.

        A process then reads only one cache file for a module and its first launch.
        """
        facts = self._facts_artifact
        if self._code is None and facts is not None:

            def made() -> Artifact:
                code = make()
                data = b"".join((facts.data, code, _AT.pack(len(facts.data), *block)))
                return Artifact(ImageKind.OBJECT, data, signatures=facts.signatures)

            self._take(keep(_WITH_CODE, self.parts, made, is_native=True).data)
        return self._code[1] if self._code is not None and self._code[0] == block else None

    def _take(self, data: bytes) -> int:
        """Remember the code that is stored with the facts, and return its offset."""
        begin, *block = _AT.unpack_from(data, len(data) - _AT.size)
        self._code = Dim3(*block), data[begin : -_AT.size]
        return int(begin)

    @collecting_rarely()
    def facts(self) -> ModuleFacts:
        """Prepare every kernel, and return the facts that launches need. Kernels that the CPU device doesn't support
        are in ``refused``.

        Raises:
            UnsupportedError: the CPU device supports none of the kernels. The error names everything unsupported.
            PtxSyntaxError: the text is not valid PTX, so no assembler accepts it.
            LoadError: the initializers of its variables do not fit, or there isn't enough memory for the variables.
        """
        # Start-up: what the cache knows of a module needs no parser.
        from cujit.formats.ptx.validity import check_module

        with self._lock:
            parsed, refusals = self._ready(), Refusals()
            ptx = parsed.ptx
            check_module(ptx, self.text, self._name)
            _check_module(ptx, refusals)
            layout = _layout_of(ptx, refusals)
            self._end_mistakes(refusals)
            bodies: dict[str, Body] = {}
            refused: dict[str, list[Refusal]] = {}
            left = max(_MOST_OPS, _MOST_OPS_EACH * layout.graph.statements)
            for entry in ptx.entries:
                own = Refusals()
                if left < 0:
                    refused[entry.name] = [(entry.line, entry.name, _TOO_MANY_OPS)]
                    continue
                body = self._prepared(entry, layout, own)
                left -= sum([_OPS_OF_FUNCTION + len(each.program.ops) for each in body.functions.values()])
                self._end_mistakes(own)
                if own.items:
                    refused[entry.name] = own.items
                else:
                    bodies[entry.name] = body
            if refusals.items or (refused and not bodies):
                raise unsupported(sorted({*refusals.items, *(item for items in refused.values() for item in items)}))
            parsed.layout, parsed.bodies = layout, bodies
            kernels = tuple(_facts_of(entry, bodies[entry.name]) for entry in ptx.entries if entry.name in bodies)
            others = tuple(_refused_facts(entry, refused[entry.name]) for entry in ptx.entries if entry.name in refused)
            return _module_facts(kernels, others, layout)

    def _prepared(self, entry: Function, layout: ModuleLayout, refusals: Refusals) -> Body:
        from cujit.devices.cpu.pipeline import prepare  # start-up: what the cache knows of a module needs no parser

        return prepare(entry, layout, refusals, contract=self._contract)

    def _end_mistakes(self, refusals: Refusals) -> None:
        """Raise a ``PtxSyntaxError`` for the first mistake, if there is one."""
        # Start-up: what the cache knows of a module needs no parser.
        from cujit.formats.ptx.tokens import fail_at_construct

        if refusals.mistakes:
            line, construct, why, help_ = min(refusals.mistakes)
            fail_at_construct(self.text, self._name, line, construct, why, help=help_ or None)

    def _ready(self) -> _Parsed:
        """Return the results of the text, and parse the text if necessary. The caller must hold the lock."""
        parsed = self._parsed() if self._parsed is not None else None
        if parsed is None:
            from cujit.formats.ptx.parser import parse  # start-up: what the cache knows of a module needs no parser

            parsed = _Parsed(parse(self.text, name=self._name), len(self.text))
            self._parsed, self._staying = weakref.ref(parsed), parsed if self._stays else None
        _remember(parsed)
        return parsed


def _layout_of(ptx: PtxModule, refusals: Refusals) -> ModuleLayout:
    # Start-up: what the cache knows of a module needs no parser.
    from cujit.devices.cpu.frontend.layout import ModuleLayout

    return ModuleLayout(ptx, refusals)


def _check_module(ptx: PtxModule, refusals: Refusals) -> None:
    # Start-up: what the cache knows of a module needs no parser.
    from cujit.devices.cpu.run.textures import note_references

    if ptx.address_size != 64:
        refusals.add(0, f".address_size {ptx.address_size}", "addresses of other than 64 bits")
    if note_references(ptx, refusals):
        raise unsupported(refusals.items)


def _facts_of(entry: Function, body: Body) -> KernelFacts:
    # Start-up: what the cache knows of a module needs no parser.
    from cujit.devices.cpu.ir.program import Special
    from cujit.formats.ptx.parameters import signature_of_entry

    program = body.program
    ops = [op for each in (program, *program.functions.values()) for op in each.ops]
    return KernelFacts(
        name=entry.name,
        signature=signature_of_entry(entry),
        directives={
            name: tuple(map(int, values))
            for name, values in reversed(entry.directives)
            if all(map(str.isdecimal, values))
        },
        parameters_size=program.parameters_size,
        shared_size=program.shared_size,
        local_size=program.local_size,
        suspends=body.suspends,
        prints=any(op.opcode == "call.extern" and "vprintf" in op.modifiers for op in ops),
        dynamic=program.has_dynamic,
        meets=any(source == Special("envreg2") for op in ops for source in op.sources),
    )


def _refused_facts(entry: Function, items: list[Refusal]) -> RefusedFacts:
    # Start-up: what the cache knows of a module needs no parser.
    from cujit.formats.ptx.parameters import signature_of_entry

    return RefusedFacts(entry.name, signature_of_entry(entry), tuple(items))


def _module_facts(
    kernels: tuple[KernelFacts, ...], refused: tuple[RefusedFacts, ...], layout: ModuleLayout
) -> ModuleFacts:
    variables = {name: (slot.offset, slot.size) for name, slot in layout.slots.items() if "@" not in name}
    places = tuple(Relocation(offset, slot.offset + addend) for offset, slot, addend in layout.relocations)
    pieces = tuple((offset, bytes(piece)) for offset, piece in layout.pieces.items())
    return ModuleFacts(kernels, refused, variables, layout.size, pieces, places)
