"""Kernels that are split at their barriers: the order of the regions, and the values kept from one region to the next.

    st.shared.u32 [s], x;            region.0:  for each warp: the code; y to %k3.v at the warp number; returns 1
    bar.sync 0;                ->    region.1:  for each warp: y from there; the code; returns -1
    add.u32 z, z, y;                 block.run: calls the region that the last one returned, until that is -1

The registers that a region needs at its start are stored in memory at the preceding barrier. A value that is equal in
the whole block has one place for all warps. Other values have one place per warp. If warps may reach different
barriers, the regions take turns. In each turn, each warp runs the region after the barrier at which it waits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from cujit.devices.cpu.analysis.dataflow import joined
from cujit.devices.cpu.analysis.fission import EVERY, Fission, Region
from cujit.devices.cpu.analysis.patterns import VectorAccess, by_rows, vector_access
from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import LARGEST_VECTOR, Builder, Value, type_width
from cujit.devices.cpu.codegen.nodes import WARP_NUMBER, type_of
from cujit.devices.cpu.codegen.warp import MASK, WarpEmitter, element_of, forms_of, storage_type
from cujit.devices.cpu.ir.cfg import BasicBlock
from cujit.devices.cpu.ir.program import Op, Reg
from cujit.devices.cpu.native.checking import Place
from cujit.values import replace

_SITES = ("sites.0", "sites.1")
_NOW, _THEN = Value("%now", "ptr"), Value("%then", "ptr")
"""The regions that warps are to run in this turn and in the next: each of the two ``_SITES`` in turn."""

WATCHED = "watched"
"""Where somebody watches, three words that a block keeps. In the first is which warp begins a region: as on stacks,
where the last to come to a barrier goes on first, so that the same is found first. The others are the watcher's, and
begin as zeros. Behind them is room for a ``Place``, which the first region fills in."""

PLACE_AT = 64
"""Bytes before the ``Place``, so that vectors in it do not cross lines of the cache."""

GONE = -1
"""Number of the region that a warp is to run which has none left."""

_WORD_KEPT = "i32"
_MASK_KEPT = f"<{WARP} x {_WORD_KEPT}>"
"""What a mask is kept as: processors are slow to make masks of single bits."""


class RegionBoundary:
    """The start of one region for each warp, and the arrival of warps at the barriers that end the region."""

    def __init__(self, fission: Fission, region: Region, version: int | None = None) -> None:
        self.fission = fission
        self._version = version
        self.region = region

    @property
    def _registers(self) -> dict[int, Reg]:
        return {reg.index: reg for reg in self.fission.kept}

    def uses(self, reg: Reg) -> bool:
        """Whether the code of this region reads or writes a register, or hands on its first value."""
        return bool(self.region.touched >> reg.index & 1) or (self.region.number == 0 and reg in self.fission.kept)

    def vectors(self) -> dict[Op, VectorAccess]:
        """Return the vector accesses of loads and stores. A predicated operation has one only if all lanes reach the
        operation.
        """
        region = self.region
        ops = [op for op in region.graph.ops if op.guard is None or op in region.if_converted]
        found = {op: access for op in ops if (access := vector_access(op, region.patterns)) is not None}
        stored = {op.memory.base for op in found if op.opcode == "st"}
        for op, access in found.items():
            base = op.memory.base
            if base in stored and isinstance(base, Reg):
                found[op] = by_rows(op, access, region.patterns[base.index])
        return found

    def lend(self, e: WarpEmitter) -> None:
        """Leave kept vectors in place if only wrong bases need them. Most warps then copy none."""
        for reg in self.fission.kept:
            if reg.index in e.divergence.lazy and self.uses(reg):
                e.lent[reg.index] = self._place(e, f"k{reg.index}.v", f"<{WARP} x {storage_type(reg)}>")

    def enter(self, e: WarpEmitter, first_mask: Value) -> Value:
        """Load the values that were kept for this warp, and return the lanes that run."""
        b, mask = e.builder, first_mask
        if not self.fission.blockwide.together:
            # Warps that came to another barrier do not run this region.
            mine = b.load("i32", self._place(e, "now", "i32"))
            b.only_if(b.compare("icmp eq", mine, b.integer(self.region.number, 32)), "warp.end", "mine")
        if self.fission.keeps_masks:
            mask = self._take_mask(e, first_mask)
        for index in self.region.live:
            if self.region.touched >> index & 1:
                self._move(e, index, "in")
        if self._version is not None and self._version != EVERY and self.region.choice is not None:
            type_ = storage_type(self._registers[self.region.choice])
            b.write(f"r{self.region.choice}.b", Value(str(self._version), type_, constant=True))
        for observer in e.observers:
            assert observer.begin_region is not None
            observer.begin_region(e, self.region.number)
        for op in self.region.rematerialised:
            e.emit_op(op)
        return mask

    def _take_mask(self, e: WarpEmitter, first_mask: Value) -> Value:
        """Return the lanes that continue, and skip a warp that has none. Lanes that do not arrive at a barrier exit."""
        b = e.builder
        place = self._place(e, "masks", "i32")
        if not self.region.number:
            b.store(b.integer(0, 32), place)
            return first_mask
        word = b.load("i32", place)
        b.store(b.integer(0, 32), place)
        b.only_if(b.compare("icmp ne", word, b.integer(0, 32)), "warp.end", "alive")
        return b.mask_of(word)

    def arrive(self, e: WarpEmitter, block: BasicBlock) -> None:
        """Store the values that the region after a barrier needs. Only the lanes of the current mask continue."""
        b = e.builder
        number = self.region.following[block.position]
        if number == GONE:
            return
        if self.fission.blockwide.together:
            b.store(b.integer(number, 32), "%next")
        else:
            b.store(b.integer(number, 32), self._place(e, "then", "i32"))
            due = b.binary("or", b.load("i64", "%pending"), b.integer(1 << number, 64))
            b.store(due, "%pending")
        if self.fission.keeps_masks:
            b.store(b.word(e.mask), self._place(e, "masks", "i32"))
        for index in self._handed_on(number):
            self._move(e, index, "out")

    def _handed_on(self, number: int) -> list[int]:
        """List the registers that are kept for another region."""
        live = () if number == GONE else self.fission.regions[number].live
        return [index for index in live if _changes(self.region, index)]

    @property
    def handed_on(self) -> int:
        """The registers that are kept for the regions that follow, as bits."""
        return joined(1 << index for number in self.region.following.values() for index in self._handed_on(number))

    def _move(self, e: WarpEmitter, index: int, way: str) -> None:
        """Copy a register from its place in memory (``in``), or to that place (``out``). A lent vector is already
        there.
        """
        reg = self._registers[index]
        for form, type_ in forms_of(e, reg):
            if form == "v" and index in e.divergence.lazy:
                continue
            kept = Value(f"%k{index}.{way}", "ptr")
            if not _is_common(e, self.fission, reg):
                kept = self._place(e, f"k{index}.{form}", type_kept(type_))
            if way == "in":
                load_kept(e, reg, form, type_, kept)
            else:
                store_kept(e, reg, form, kept)
        for variable, type_, lanes in _shadows(e, reg):
            place = self._place(e, variable, f"<{lanes} x {type_}>" if lanes else type_)
            if way == "in":
                e.builder.write(variable, e.builder.load(type_, place, lanes=lanes))
            else:
                e.builder.store(e.builder.read(variable, type_, lanes=lanes), place)

    def _place(self, e: WarpEmitter, name: str, type_: str) -> Value:
        return e.builder.point(type_, f"%{name}", WARP_NUMBER)


def _shadows(e: WarpEmitter, reg: Reg) -> list[tuple[str, str, int]]:
    """List the variables that observers keep for a register."""
    return [named for observer in e.observers if (named := observer.shadow_of(e, reg)) is not None]


def load_kept(e: WarpEmitter, reg: Reg, form: str, type_: str, place: Value) -> None:
    """Load a register from memory, in one of its forms."""
    b, is_mask = e.builder, type_ == MASK
    value = b.load(_WORD_KEPT if is_mask else element_of(reg, form), place, lanes=WARP if form == "v" else 0)
    nothing = Value("zeroinitializer", _WORD_KEPT, WARP)
    e.write(reg, form, b.compare("icmp slt", value, nothing) if is_mask else value)


def store_kept(e: WarpEmitter, reg: Reg, form: str, place: Value) -> None:
    """Store one form of a register at a place. A mask is stored as words."""
    b = e.builder
    value = b.read(e.variable(reg, form), element_of(reg, form), lanes=WARP if form == "v" else 0)
    b.store(b.cast("sext", value, _WORD_KEPT) if type_of(value) == MASK else value, place)


def type_kept(type_: str) -> str:
    """LLVM type in which something of a type is kept."""
    return _MASK_KEPT if type_ == MASK else type_


def _changes(region: Region, index: int) -> bool:
    """Whether a region writes a register; the first one begins with all of them, as zero."""
    return region.number == 0 or bool(region.written >> index & 1)


def _is_common(e: WarpEmitter, fission: Fission, reg: Reg) -> bool:
    return fission.blockwide.together and e.shape(reg).is_uniform and not fission.blockwide.differing >> reg.index & 1


def _places(e: WarpEmitter, fission: Fission, warps: int) -> list[tuple[str, str]]:
    """List the memory that regions hand on to each other, by name and type."""
    found = []
    if fission.keeps_masks:
        found.append(("masks", f"[{warps} x i32]"))
    for reg in fission.kept:
        forms = forms_of(e, reg)
        if _is_common(e, fission, reg):
            found += [(f"k{reg.index}.{way}", forms[0][1]) for way in ("in", "out")]
        else:
            found += [(f"k{reg.index}.{form}", f"[{warps} x {type_kept(type_)}]") for form, type_ in forms]
        found += [(v, f"[{warps} x {f'<{n} x {type_}>' if n else type_}]") for v, type_, n in _shadows(e, reg)]
    if e.watched:
        found.append((WATCHED, f"[{PLACE_AT + ctypes.sizeof(Place)} x i8]"))
    if not fission.blockwide.together:
        found += [*((site, f"[{warps} x i32]") for site in _SITES), ("pending", "i64")]
    return found


def kept_places(b: Builder, e: WarpEmitter, fission: Fission, warps: int) -> None:
    """Allocate memory, in the enclosing function, for the values that regions pass to each other."""
    for name, type_ in _places(e, fission, warps):
        b.allocate(type_, align=LARGEST_VECTOR, into=f"%{name}")


def kept_pointers(e: WarpEmitter, fission: Fission, warps: int) -> list[Value]:
    """List the same memory as arguments of a region's function."""
    pointers = [Value(f"%{name}", "ptr") for name, _ in _places(e, fission, warps) if name not in _SITES]
    return pointers if fission.blockwide.together else [*pointers, _NOW, _THEN]


def boundaries(fission: Fission) -> dict[str, RegionBoundary]:
    """Return the boundaries of all regions and of their versions, by function name."""
    found = {}
    for region in fission.regions:
        name = f"region.{region.number}"
        found[name] = RegionBoundary(fission, region)
        for value, version in region.versions.items():
            found[f"{name}.{value}"] = RegionBoundary(fission, replace(version, choice=region.choice), value)
    return found


def run_regions(b: Builder, e: WarpEmitter, fission: Fission, warps: int, arguments: Sequence[Value]) -> None:
    """Run the regions of a block as they follow each other, and jump to ``block.end``."""
    if fission.blockwide.together:
        _one_after_another(b, e, fission, arguments)
    else:
        _in_turns(b, fission, warps, arguments)


def _one_after_another(b: Builder, e: WarpEmitter, fission: Fission, arguments: Sequence[Value]) -> None:
    common = [reg for reg in fission.kept if _is_common(e, fission, reg)]
    if e.watched:
        for k in range(3):
            b.store(b.integer(0, 64), b.offset(f"%{WATCHED}", 8 * k))
    for region in fission.regions:
        b.start(f"region.{region.number}")
        following = _call(b, e, fission, region, arguments)
        after = sorted({n for n in region.following.values() if n != GONE})
        live = {index for n in after for index in fission.regions[n].live}
        for reg in common:
            if reg.index in live and _changes(region, reg.index):
                b.store(b.load(forms_of(e, reg)[0][1], f"%k{reg.index}.out"), f"%k{reg.index}.in")
        b.switch(following, [(n, f"region.{n}") for n in after], "block.end")


def _call(b: Builder, e: WarpEmitter, fission: Fission, region: Region, arguments: Sequence[Value]) -> Value:
    """Emit a call of a region, or of its version for the current value of a register. Return the number of the next
    region.
    """
    name = f"region.{region.number}"
    if region.choice is None:
        return b.invoke(f"@{name}", "i32", *arguments)
    type_ = forms_of(e, next(reg for reg in fission.kept if reg.index == region.choice))[0][1]
    value, bits = b.load(type_, f"%k{region.choice}.in"), type_width(type_)
    none = b.compare("icmp eq", b.binary("and", value, b.integer(EVERY - 1, bits)), b.integer(0, bits))
    choice = b.select(none, b.integer(EVERY, bits), value)
    versions = {value: b.label("version") for value in region.versions}
    other, end = b.label("version"), b.label("versions.end")
    b.switch(choice, versions.items(), other)
    found = []
    for callee, label in ((name, other), *((f"{name}.{value}", label) for value, label in versions.items())):
        b.start(label)
        found.append((b.invoke(f"@{callee}", "i32", *arguments), label))
        b.jump(end)
    b.start(end)
    return b.phi(Value("", "i32"), *found)


def _in_turns(b: Builder, fission: Fission, warps: int, arguments: Sequence[Value]) -> None:
    def fill(at: Value, byte: int) -> None:
        size = b.integer(4 * warps, 64)
        b.call("llvm.memset.p0.i64", "void", at, b.integer(byte, 8), size, b.integer(0, 1))

    first, second = (Value(f"%{name}", "ptr") for name in _SITES)
    fill(first, 0)
    b.start("turn")
    b.phi(_NOW, (first, "block.run"), (_THEN, "turn.end"), into=_NOW.text)
    b.phi(_THEN, (second, "block.run"), (_NOW, "turn.end"), into=_THEN.text)
    due = b.phi(Value("", "i64"), ("1", "block.run"), ("%due.next", "turn.end"))
    b.store(b.integer(0, 64), "%pending")
    fill(_THEN, -1)
    for region in fission.regions:
        some = b.compare("icmp ne", b.binary("and", due, b.integer(1 << region.number, 64)), b.integer(0, 64))
        with b.when(some, "region"):
            b.invoke(f"@region.{region.number}", "i32", *arguments)
    b.start("turn.end")
    more = b.compare("icmp ne", b.load("i64", "%pending", into="%due.next"), b.integer(0, 64))
    b.branch(more, "turn", "block.end")
