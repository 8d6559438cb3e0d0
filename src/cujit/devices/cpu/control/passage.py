"""The function around a kernel that is cut at its barriers: for each region a function that runs it in all warps.

Registers that a region begins with are kept in memory from the barrier before: one place for all warps where the whole
block has the same value, else one a warp. Where warps may come to different barriers, the regions take turns: in a
turn each warp runs the region behind the barrier at which it waits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

from cujit.devices.cpu.analysis.fission import EVERY, Cut, Region
from cujit.devices.cpu.analysis.patterns import VectorAccess, vector_access
from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import LARGEST_VECTOR, Builder, Value, type_width
from cujit.devices.cpu.codegen.names import FIRST_THREAD, WARP_NUMBER
from cujit.devices.cpu.codegen.warp import MASK, WarpEmitter, element_of, forms_of, storage_type
from cujit.devices.cpu.ir.cfg import Block
from cujit.devices.cpu.ir.program import Op, Reg
from cujit.devices.cpu.run.launch import PLACE

__all__ = [
    "RegionPassage",
    "define_region",
    "kept_places",
    "kept_pointers",
    "over_warps",
    "passages",
    "run_regions",
    "warp_place",
    "with_idle",
]

_SITES = ("sites.0", "sites.1")
_NOW, _THEN = Value("%now", "ptr"), Value("%then", "ptr")
"""The regions that warps are to run in this turn and in the next: each of the two ``_SITES`` in turn."""

_GONE = -1
"""Number of the region that a warp is to run which has none left."""

_WORD_KEPT = "i32"
_MASK_KEPT = f"<{WARP} x {_WORD_KEPT}>"
"""What a mask is kept as: processors are slow to make masks of single bits."""

_INLINED = 1900
"""Lines of IR of a kernel whose regions become one function: its warps' values may then stay in registers."""


class RegionPassage:
    """How the warps of one region begin, and how they come to the barriers behind it."""

    def __init__(self, cut: Cut, region: Region, version: int | None = None) -> None:
        self.cut = cut
        self._version = version
        self.region = region
        self._live = {r.number: r.live for r in cut.regions}

    @property
    def _registers(self) -> dict[int, Reg]:
        return {reg.index: reg for reg in self.cut.kept}

    @property
    def keeps_masks(self) -> bool:
        """Whether the lanes that go on are kept: some may have exited."""
        return _keeps_masks(self.cut)

    def uses(self, reg: Reg) -> bool:
        """Whether the code of this region reads or writes a register, or hands on its first value."""
        return bool(self.region.touched >> reg.index & 1) or (self.region.number == 0 and reg in self.cut.kept)

    def vector_access(self, op: Op) -> VectorAccess | None:
        """Find the vectors of a load or store; one with a predicate has some where all lanes come to it."""
        region = self.region
        return vector_access(op, region.patterns) if op.guard is None or op in region.if_converted else None

    def enter(self, e: WarpEmitter, first_mask: Value) -> Value:
        """Read what was kept for this warp; give the lanes that run."""
        mask = first_mask
        if not self.cut.blockwide.together:
            self._skip_others(e)
        if self.keeps_masks:
            mask = self._take_mask(e, first_mask)
        self._lend_vectors(e)
        for index in self.region.live:
            if not self.region.touched >> index & 1:
                continue
            self._move(e, index, "in")
        if self._version is not None and self._version != EVERY and self.region.choice is not None:
            type_ = storage_type(self._registers[self.region.choice])
            e.builder.write(f"r{self.region.choice}.b", Value(str(self._version), type_, constant=True))
        for op in self.region.rematerialised:
            e.emit_op(op)
        return mask

    def _lend_vectors(self, e: WarpEmitter) -> None:
        """Have kept vectors that are seldom needed stay where they are kept: to copy them costs those who do not."""
        for reg in self.cut.kept:
            if reg.index in e.divergence.lazy and self.uses(reg):
                e.lent[reg.index] = self._place(e, f"k{reg.index}.v", f"<{WARP} x {storage_type(reg)}>")

    def _take_mask(self, e: WarpEmitter, first_mask: Value) -> Value:
        """Find the lanes that go on, and skip a warp that has none; they exit unless they arrive somewhere."""
        b = e.builder
        place = self._place(e, "masks", "i32")
        if not self.region.number:
            b.store(b.integer(0, 32), place)
            return first_mask
        word = b.load("i32", place)
        b.store(b.integer(0, 32), place)
        go = b.label("alive")
        some = b.compare("icmp ne", word, b.integer(0, 32))
        b.branch(some, go, "warp.end")
        b.start(go)
        return b.mask_of(word)

    def _skip_others(self, e: WarpEmitter) -> None:
        """Warps that came to another barrier do not run this region."""
        b = e.builder
        mine = b.load("i32", self._place(e, "now", "i32"))
        same = b.compare("icmp eq", mine, b.integer(self.region.number, 32))
        go = b.label("mine")
        b.branch(same, go, "warp.end")
        b.start(go)

    def arrive(self, e: WarpEmitter, block: Block) -> None:
        """Keep what the region behind a barrier begins with; the lanes of the current mask are all that go on."""
        b = e.builder
        number = self.region.following[block.position]
        if number == _GONE:
            return
        if self.cut.blockwide.together:
            b.store(b.integer(number, 32), "%next")
        else:
            b.store(b.integer(number, 32), self._place(e, "then", "i32"))
            due = b.binary("or", b.load("i64", "%pending"), b.integer(1 << number, 64))
            b.store(due, "%pending")
        if self.keeps_masks:
            b.store(b.word(e.mask), self._place(e, "masks", "i32"))
        for index in self._live[number]:
            if not _changes(self.region, index):
                continue
            self._move(e, index, "out")

    def _move(self, e: WarpEmitter, index: int, way: str) -> None:
        """Copy a register from where it is kept (``in``), or there (``out``); a vector that is lent is there."""
        reg = self._registers[index]
        for form, type_ in forms_of(e, reg):
            if form == "v" and index in e.divergence.lazy:
                continue
            kept = self._kept(e, index, form, _type_kept(type_), way)
            if way == "in":
                e.write(reg, form, _taken(e, kept, reg, form))
            else:
                _keep(e, kept, reg, form)

    def _kept(self, e: WarpEmitter, index: int, form: str, type_: str, way: str) -> Value:
        if _is_common(e, self.cut, self._registers[index]):
            return Value(f"%k{index}.{way}", "ptr")
        return self._place(e, f"k{index}.{form}", type_)

    def _place(self, e: WarpEmitter, name: str, type_: str) -> Value:
        return e.builder.point(type_, f"%{name}", WARP_NUMBER)


def _taken(e: WarpEmitter, kept: Value, reg: Reg, form: str) -> Value:
    b, type_ = e.builder, element_of(reg, form)
    if form != "v" or type_ != "i1":
        return b.load(type_, kept, vector=form == "v")
    word = b.load(_WORD_KEPT, kept, vector=True)
    return b.compare("icmp slt", word, Value("zeroinitializer", _WORD_KEPT, True))


def _keep(e: WarpEmitter, kept: Value, reg: Reg, form: str) -> None:
    b = e.builder
    value = b.read(e.variable(reg, form), element_of(reg, form), vector=form == "v")
    b.store(b.cast("sext", value, _WORD_KEPT) if form == "v" and value.type == "i1" else value, kept)


def warp_place(b: Builder) -> None:
    """Find where it stands which warp runs, for those who end the launch."""
    b.offset("%shared", 16 - PLACE, into="%warp.at")


def with_idle(b: Builder) -> None:
    """Have memory for lanes that do not run."""
    b.cast("ptrtoint", b.allocate(f"[{WARP} x i8]", align=16), "i64", into="%idle.int")


@contextlib.contextmanager
def over_warps(e: WarpEmitter, warps: int, before: str, behind: str) -> Iterator[None]:
    """Run what is emitted inside for one warp after the other: from the label ``before``, then go on ``behind``.

    Which warp runs is stored where it may run for long: where there is a loop. It costs what is short.
    """
    b = e.builder
    b.jump("warp.start")
    b.start("warp.start")
    b.phi(WARP_NUMBER, ("0", before), ("%warp.next", "warp.end"), into=WARP_NUMBER.text)
    b.binary("mul", WARP_NUMBER, b.integer(WARP, 32), into=FIRST_THREAD.text)
    if e.graph.loops:
        b.store(WARP_NUMBER, "%warp.at", volatile=True)
    yield
    b.start("warp.end")
    following = b.binary("add", WARP_NUMBER, b.integer(1, 32), into="%warp.next")
    b.branch(b.compare("icmp ult", following, b.integer(warps, 32)), "warp.start", behind)


def _changes(region: Region, index: int) -> bool:
    """Whether a region writes a register; the first one begins with all of them, as zero."""
    return region.number == 0 or bool(region.written >> index & 1)


def _type_kept(type_: str) -> str:
    return _MASK_KEPT if type_ == MASK else type_


def _keeps_masks(cut: Cut) -> bool:
    return cut.blockwide.leaves or not cut.blockwide.together


def _is_common(e: WarpEmitter, cut: Cut, reg: Reg) -> bool:
    return cut.blockwide.together and e.shape(reg).is_uniform and cut.blockwide.is_common(reg)


def _places(e: WarpEmitter, cut: Cut, warps: int) -> list[tuple[str, str]]:
    """List the memory that regions hand on to each other, by name and type."""
    found = []
    if _keeps_masks(cut):
        found.append(("masks", f"[{warps} x i32]"))
    for reg in cut.kept:
        forms = forms_of(e, reg)
        if _is_common(e, cut, reg):
            found += [(f"k{reg.index}.{way}", forms[0][1]) for way in ("in", "out")]
        else:
            found += [(f"k{reg.index}.{form}", f"[{warps} x {_type_kept(type_)}]") for form, type_ in forms]
    if not cut.blockwide.together:
        found += [*((site, f"[{warps} x i32]") for site in _SITES), ("pending", "i64")]
    return found


def kept_places(b: Builder, e: WarpEmitter, cut: Cut, warps: int) -> None:
    """Take memory for what regions hand on to each other, in the function around them."""
    for name, type_ in _places(e, cut, warps):
        b.allocate(type_, align=LARGEST_VECTOR, into=f"%{name}")


def kept_pointers(e: WarpEmitter, cut: Cut, warps: int) -> list[Value]:
    """List the same memory as arguments of a region's function."""
    if cut.blockwide.together:
        return [Value(f"%{name}", "ptr") for name, _ in _places(e, cut, warps)]
    pointers = [Value(f"%{name}", "ptr") for name, _ in _places(e, cut, warps) if name not in _SITES]
    return [*pointers, _NOW, _THEN]


def passages(cut: Cut) -> dict[str, RegionPassage]:
    """List all regions and their versions, by the names of their functions."""
    found = {}
    for region in cut.regions:
        name = f"region.{region.number}"
        found[name] = RegionPassage(cut, region)
        for value, version in region.versions.items():
            found[f"{name}.{value}"] = RegionPassage(cut, replace(version, choice=region.choice), value)
    return found


def define_region(e: WarpEmitter, name: str, warps: int, arguments: Sequence[Value], size: int) -> None:
    """Define the function of one region: it runs in all warps and gives the region that follows.

    ``size`` counts the nodes of all regions together.
    """
    b, body = e.builder, e.builder.take()
    with_idle(b)
    following = b.allocate("i32", into="%next")
    b.store(b.integer(_GONE, 32), following)
    warp_place(b)
    b.body += b.entry
    with over_warps(e, warps, "entry", "region.end"):
        wide = b.cast("zext", WARP_NUMBER, "i64")
        far = b.binary("mul", wide, b.integer(e.program.local_size * WARP, 64))
        b.binary("add", Value("%local.first", "i64"), far, into="%local.int")
        b.body += body
    b.start("region.end")
    b.leave(b.load("i32", following))
    b.module.define(name, arguments, b.take(), "i32", "alwaysinline" if size < _INLINED else "noinline")


def run_regions(b: Builder, e: WarpEmitter, cut: Cut, warps: int, arguments: Sequence[Value]) -> None:
    """Run the regions of a block as they follow each other, and jump to ``block.end``."""
    if cut.blockwide.together:
        _one_after_another(b, e, cut, arguments)
    else:
        _in_turns(b, cut, warps, arguments)


def _one_after_another(b: Builder, e: WarpEmitter, cut: Cut, arguments: Sequence[Value]) -> None:
    b.jump("region.0")
    common = [reg for reg in cut.kept if _is_common(e, cut, reg)]
    for region in cut.regions:
        b.start(f"region.{region.number}")
        following = _call(b, e, cut, region, arguments)
        after = sorted({n for n in region.following.values() if n != _GONE})
        live = {index for n in after for index in cut.regions[n].live}
        for reg in common:
            if reg.index in live and _changes(region, reg.index):
                b.store(b.load(forms_of(e, reg)[0][1], f"%k{reg.index}.out"), f"%k{reg.index}.in")
        b.switch(following, [(n, f"region.{n}") for n in after], "block.end")


def _call(b: Builder, e: WarpEmitter, cut: Cut, region: Region, arguments: Sequence[Value]) -> Value:
    """Run a region, or the version of it that is for what a register has now."""
    name = f"region.{region.number}"
    if region.choice is None:
        return b.invoke(f"@{name}", "i32", *arguments)
    type_ = forms_of(e, next(reg for reg in cut.kept if reg.index == region.choice))[0][1]
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


def _in_turns(b: Builder, cut: Cut, warps: int, arguments: Sequence[Value]) -> None:
    def fill(at: Value, byte: int) -> None:
        size = b.integer(4 * warps, 64)
        b.call("llvm.memset.p0.i64", "void", at, b.integer(byte, 8), size, b.integer(0, 1))

    first, second = (Value(f"%{name}", "ptr") for name in _SITES)
    fill(first, 0)
    b.jump("turn")
    b.start("turn")
    b.phi(_NOW, (first, "block.run"), (_THEN, "turn.end"), into=_NOW.text)
    b.phi(_THEN, (second, "block.run"), (_NOW, "turn.end"), into=_THEN.text)
    due = b.phi(Value("", "i64"), ("1", "block.run"), ("%due.next", "turn.end"))
    b.store(b.integer(0, 64), "%pending")
    fill(_THEN, -1)
    for region in cut.regions:
        go, on = b.label("region"), b.label("try")
        some = b.compare("icmp ne", b.binary("and", due, b.integer(1 << region.number, 64)), b.integer(0, 64))
        b.branch(some, go, on)
        b.start(go)
        b.invoke(f"@region.{region.number}", "i32", *arguments)
        b.jump(on)
        b.start(on)
    b.jump("turn.end")
    b.start("turn.end")
    more = b.compare("icmp ne", b.load("i64", "%pending", into="%due.next"), b.integer(0, 64))
    b.branch(more, "turn", "block.end")
