"""The function around a kernel that is cut at its barriers: for each region a function that runs it in all warps.

Registers that a region begins with are kept in memory from the barrier before: one place for all warps where the whole
block has the same value, else one a warp. Where warps may come to different barriers, the regions take turns: in a
turn each warp runs the region behind the barrier at which it waits.
"""

from __future__ import annotations

from dataclasses import replace

from cujit.devices.cpu.cfg import Block
from cujit.devices.cpu.emit.builder import LARGEST_VECTOR, Value
from cujit.devices.cpu.emit.names import WARP_NUMBER
from cujit.devices.cpu.emit.warp import MASK, WarpEmitter, forms_of, storage_type
from cujit.devices.cpu.launch import PLACE
from cujit.devices.cpu.program import Reg
from cujit.devices.cpu.regions import EVERY, Cut, Region
from cujit.devices.cpu.shapes import WARP

__all__ = [
    "RegionPassage",
    "context_lines",
    "dispatch_lines",
    "kept_arguments",
    "passages",
    "region_text",
    "tell_warp",
    "warp_place",
]

_GONE = -1
"""Number of the region that a warp is to run which has none left."""

_WORD_KEPT = "i32"
_MASK_KEPT = f"<{WARP} x {_WORD_KEPT}>"
"""What a mask is kept as: processors are slow to make masks of single bits."""

_INLINED = 3000
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
            e.builder.store(Value(str(self._version), type_, constant=True), f"%r{self.region.choice}.b")
        for op in self.region.remade:
            e.emit_op(op)
        return mask

    def _lend_vectors(self, e: WarpEmitter) -> None:
        """Have kept vectors that are seldom needed stay where they are kept: to copy them costs those who do not."""
        for reg in self.cut.kept:
            name = f"%r{reg.index}.v"
            if reg.index in e.divergence.seldom and e.builder.has_entry(name):
                e.builder.drop(name)
                place = self._place(e, f"k{reg.index}.v", f"<{WARP} x {storage_type(reg)}>")
                e.builder.offset(place, 0, into=name)

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
        for form, type_ in forms_of(e, self._registers[index]):
            if form != "v" or index not in e.divergence.seldom:
                self._copy(e, index, form, type_, way)

    def _copy(self, e: WarpEmitter, index: int, form: str, type_: str, way: str) -> None:
        b = e.builder
        kept, own = self._kept(e, index, form, _type_kept(type_), way), Value(f"%r{index}.{form}", "ptr")
        from_, to = (kept, own) if way == "in" else (own, kept)
        if type_ != MASK:
            b.store(b.load(type_, from_), to)
        elif way == "in":
            word = b.load(_WORD_KEPT, from_, vector=True)
            b.store(b.compare("icmp slt", word, Value("zeroinitializer", _WORD_KEPT, True)), to)
        else:
            b.store(b.cast("sext", b.load("i1", from_, vector=True), _WORD_KEPT), to)

    def _kept(self, e: WarpEmitter, index: int, form: str, type_: str, way: str) -> Value:
        if _is_common(e, self.cut, self._registers[index]):
            return Value(f"%k{index}.{way}", "ptr")
        return self._place(e, f"k{index}.{form}", type_)

    def _place(self, e: WarpEmitter, name: str, type_: str) -> Value:
        return e.builder.point(type_, f"%{name}", WARP_NUMBER)


def tell_warp(e: WarpEmitter) -> list[str]:
    """Store which warp runs where it may run for long: where there is a loop. It costs what is short."""
    return ["  store volatile i32 %warp, ptr %warp.at"] if e.graph.loops else []


def warp_place() -> list[str]:
    """Find where it stands which warp runs, for those who end the launch."""
    return [f"  %warp.at = getelementptr i8, ptr %shared, i64 -{PLACE - 16}"]


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
        found += [("sites.0", f"[{warps} x i32]"), ("sites.1", f"[{warps} x i32]"), ("pending", "i64")]
    return found


def context_lines(e: WarpEmitter, cut: Cut, warps: int) -> list[str]:
    """Take memory for what regions hand on to each other, in the entry of the function around them."""
    return [f"  %{name} = alloca {type_}, align {LARGEST_VECTOR}" for name, type_ in _places(e, cut, warps)]


def kept_arguments(e: WarpEmitter, cut: Cut, warps: int) -> list[str]:
    """Write the same memory as arguments of a region's function."""
    names = [name for name, _ in _places(e, cut, warps) if not name.startswith("sites.")]
    if not cut.blockwide.together:
        names += ["now", "then"]
    return [f"ptr %{name}" for name in names]


def passages(cut: Cut) -> dict[str, RegionPassage]:
    """List all regions and their versions, by the names of their functions."""
    found = {}
    for region in cut.regions:
        name = f"region.{region.number}"
        found[name] = RegionPassage(cut, region)
        for value, version in region.versions.items():
            found[f"{name}.{value}"] = RegionPassage(cut, replace(version, choice=region.choice), value)
    return found


def region_text(e: WarpEmitter, name: str, warps: int, arguments: str, size: int) -> list[str]:
    """Write the function of one region: it runs in all warps and gives the region that follows.

    ``size`` is the lines of IR of all regions together.
    """
    inline = "alwaysinline" if size < _INLINED else "noinline"
    local_bytes = e.program.local_size * 32
    return [
        f"define internal i32 @{name}({arguments}) {inline} {{",
        "entry:",
        "  %idle = alloca [32 x i8], align 16",
        "  %idle.int = ptrtoint ptr %idle to i64",
        "  %next = alloca i32",
        f"  store i32 {_GONE}, ptr %next",
        *warp_place(),
        *e.builder.entry_lines(),
        "  br label %warp.start",
        "warp.start:",
        "  %warp = phi i32 [ 0, %entry ], [ %warp.next, %warp.end ]",
        "  %first.thread = mul i32 %warp, 32",
        *tell_warp(e),
        "  %warp.wide = zext i32 %warp to i64",
        f"  %local.offset = mul i64 %warp.wide, {local_bytes}",
        "  %local.int = add i64 %local.first, %local.offset",
        *e.builder.body_lines(),
        "warp.end:",
        "  %warp.next = add i32 %warp, 1",
        f"  %warps.left = icmp ult i32 %warp.next, {warps}",
        "  br i1 %warps.left, label %warp.start, label %region.end",
        "region.end:",
        "  %following = load i32, ptr %next",
        "  ret i32 %following",
        "}",
    ]


def dispatch_lines(e: WarpEmitter, cut: Cut, warps: int, arguments: str) -> list[str]:
    """Write how the regions of a block follow each other, from ``block.run`` to a jump to ``block.end``."""
    if cut.blockwide.together:
        return _one_after_another(e, cut, arguments)
    return _in_turns(cut, warps, arguments)


def _one_after_another(e: WarpEmitter, cut: Cut, arguments: str) -> list[str]:
    lines = ["block.run:", "  br label %region.0"]
    common = [reg for reg in cut.kept if _is_common(e, cut, reg)]
    for region in cut.regions:
        k = region.number
        lines += [f"region.{k}:", *_call_lines(e, cut, region, arguments)]
        after = sorted({n for n in region.following.values() if n != _GONE})
        live = {index for n in after for index in cut.regions[n].live}
        for reg in common:
            if reg.index in live and _changes(region, reg.index):
                type_ = forms_of(e, reg)[0][1]
                lines += [
                    f"  %k{reg.index}.at.{k} = load {type_}, ptr %k{reg.index}.out",
                    f"  store {type_} %k{reg.index}.at.{k}, ptr %k{reg.index}.in",
                ]
        cases = " ".join(f"i32 {n}, label %region.{n}" for n in after)
        lines.append(f"  switch i32 %following.{k}, label %block.end [ {cases} ]")
    return lines


def _call_lines(e: WarpEmitter, cut: Cut, region: Region, arguments: str) -> list[str]:
    """Run a region, or the version of it that is for what a register has now."""
    k = region.number
    if region.choice is None:
        return [f"  %following.{k} = call i32 @region.{k}({arguments})"]
    type_ = forms_of(e, next(reg for reg in cut.kept if reg.index == region.choice))[0][1]
    cases = " ".join(f"{type_} {value}, label %version.{k}.{value}" for value in region.versions)
    lines = [
        f"  %value.{k} = load {type_}, ptr %k{region.choice}.in",
        f"  %low.{k} = and {type_} %value.{k}, {EVERY - 1}",
        f"  %none.{k} = icmp eq {type_} %low.{k}, 0",
        f"  %choice.{k} = select i1 %none.{k}, {type_} {EVERY}, {type_} %value.{k}",
        f"  switch {type_} %choice.{k}, label %version.{k} [ {cases} ]",
    ]
    ends = []
    for suffix in ("", *(f".{value}" for value in region.versions)):
        lines += [
            f"version.{k}{suffix}:",
            f"  %found.{k}{suffix} = call i32 @region.{k}{suffix}({arguments})",
            f"  br label %versions.end.{k}",
        ]
        ends.append(f"[ %found.{k}{suffix}, %version.{k}{suffix} ]")
    return [*lines, f"versions.end.{k}:", f"  %following.{k} = phi i32 {', '.join(ends)}"]


def _in_turns(cut: Cut, warps: int, arguments: str) -> list[str]:
    lines = [
        "block.run:",
        f"  call void @llvm.memset.p0.i64(ptr %sites.0, i8 0, i64 {4 * warps}, i1 false)",
        "  br label %turn",
        "turn:",
        "  %now = phi ptr [ %sites.0, %block.run ], [ %then, %turn.end ]",
        "  %then = phi ptr [ %sites.1, %block.run ], [ %now, %turn.end ]",
        "  %due = phi i64 [ 1, %block.run ], [ %due.next, %turn.end ]",
        "  store i64 0, ptr %pending",
        f"  call void @llvm.memset.p0.i64(ptr %then, i8 -1, i64 {4 * warps}, i1 false)",
        "  br label %try.0",
    ]
    for region in cut.regions:
        k = region.number
        after = f"try.{k + 1}" if k + 1 < len(cut.regions) else "turn.end"
        lines += [
            f"try.{k}:",
            f"  %due.{k} = and i64 %due, {1 << k}",
            f"  %some.{k} = icmp ne i64 %due.{k}, 0",
            f"  br i1 %some.{k}, label %region.{k}, label %{after}",
            f"region.{k}:",
            f"  call i32 @region.{k}({arguments})",
            f"  br label %{after}",
        ]
    return [
        *lines,
        "turn.end:",
        "  %due.next = load i64, ptr %pending",
        "  %more.turns = icmp ne i64 %due.next, 0",
        "  br i1 %more.turns, label %turn, label %block.end",
    ]
