"""How a load of every lane is done: the first way that the ``Gather`` allows, of those in ``_WAYS``."""

from __future__ import annotations

from collections.abc import Callable

from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.access import Gather, addresses, joined, native_lanes, repeated, short_name
from cujit.devices.cpu.codegen.builder import Builder, Value, int_type, type_width
from cujit.devices.cpu.codegen.order import in_order
from cujit.devices.cpu.codegen.shared_windows import load_window
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.codegen.wide import load_wide

__all__ = ["load"]


def load(e: WarpEmitter, g: Gather) -> list[Value]:
    """Load in the order that is asked for, and give each element: a vector, or a scalar that all lanes have."""
    way = next(way for fits, way in _WAYS if fits(g))
    with in_order(e, g.op):
        values = way(e, g) if g.place.holds is None or way is _each_lane else _if_it_holds(e, g, way)
        if g.op.form.is_strong and g.element != "i128":
            _keep(e.builder, values)
    return values


def _keep(b: Builder, values: list[Value]) -> None:
    """Keep loads whose values nobody reads, so that they fault where there is no memory."""
    for value in values:
        if value.is_vector:
            bits = b.bits_as(value, int_type(type_width(value.type)))
            first = b.extract(bits, b.integer(0, 32))
            b.invoke('asm sideeffect "", "r"', "void", b.resize(first, 64, signed=False))


def _if_it_holds(e: WarpEmitter, g: Gather, way: Callable[[WarpEmitter, Gather], list[Value]]) -> list[Value]:
    """Load in the way that is for the place's bases if these are right, else lane by lane."""
    b = e.builder
    assert g.place.holds is not None
    fast, slow, done = b.label("contiguous"), b.label("scattered"), b.label("loaded")
    b.branch(g.place.holds, fast, slow)
    b.start(fast)
    found = way(e, g)
    b.jump(done)
    b.start(slow)
    careful = _each_lane(e, g)
    b.jump(done)
    b.start(done)
    return [b.phi(q, (q, fast), (c, slow)) for q, c in zip(found, careful, strict=True)]


# -- ways -------------------------------------------------------------------------------------------------


def _uniform(e: WarpEmitter, g: Gather) -> list[Value]:
    """Load once for all lanes, if any runs; one that is strong is done though nobody reads its value."""
    b = e.builder
    pointer = b.cast("inttoptr", g.place.bases[0], "ptr")

    def each() -> list[Value]:
        return _elements(b, g, pointer, volatile=g.op.form.is_strong)

    if g.op.guard is None:
        return each()
    go, done, skip = b.label("load"), b.label("loaded"), b.label("skip")
    b.branch(b.any_lane(g.mask) if g.mask.is_vector else g.mask, go, skip)
    b.start(go)
    values = each()
    b.jump(done)
    b.start(skip)
    b.jump(done)
    b.start(done)
    return [b.phi(v, (v, go), ("zeroinitializer", skip)) for v in values]


def _elements(b: Builder, g: Gather, pointer: Value, *, volatile: bool = False) -> list[Value]:
    size = g.element_bytes
    places = [b.offset(pointer, k * size) if k else pointer for k in range(g.count)]
    return [b.load(g.element, at, align=size, volatile=volatile) for at in places]


def _contiguous(e: WarpEmitter, g: Gather) -> list[Value]:
    """Load neighbouring elements of all lanes as one vector a row, and deal them out."""
    b, count, rows = e.builder, g.count, len(g.place.bases)
    n = WARP // rows * count
    wide, name = f"<{n} x {g.element}>", f"llvm.masked.load.v{n}{short_name(g.element)}.p0"
    align, nothing = b.integer(g.element_bytes, 32), Value("zeroinitializer", wide)
    parts = []
    for k, base in enumerate(g.place.bases):
        pointer = b.cast("inttoptr", base, "ptr")
        parts.append(b.call(name, wide, pointer, align, repeated(b, g.mask, count, k, rows), nothing))
    whole = joined(b, parts, n)
    if count == 1:
        return [Value(whole.text, g.element, True)]
    return [b.shuffle(whole, None, [lane * count + k for lane in range(WARP)]) for k in range(count)]


def _each_row(e: WarpEmitter, g: Gather) -> list[Value]:
    """Load what the lanes of each row have in common."""
    b = e.builder
    pointers = [b.cast("inttoptr", base, "ptr") for base in g.place.bases]
    found = [_elements(b, g, pointer) for pointer in pointers]
    return [b.rows(list(values)) for values in zip(*found, strict=True)]


def _apart(e: WarpEmitter, g: Gather) -> list[Value]:
    """Load one element after another, which lie the stride apart."""
    b, stride, base = e.builder, g.place.stride, Value("%base", "ptr")

    def body(f: Builder) -> Value:
        found = Value("poison", g.element, True)
        for lane in range(WARP):
            one = f.load(g.element, f.offset(base, lane * stride), align=g.element_bytes)
            found = f.insert(found, one, lane)
        return found

    name = f"load.{g.element}.apart.{stride}"
    b.define(name, [base], body, f"<{WARP} x {g.element}>", "noinline nounwind willreturn memory(read)")
    return [b.invoke(f"@{name}", g.element, b.cast("inttoptr", g.place.bases[0], "ptr"), vector=True)]


def _each_lane(e: WarpEmitter, g: Gather) -> list[Value]:
    """Load from each lane's own address."""
    b, bits = e.builder, type_width(g.element)
    found = [b.invoke(native_lanes(b, "gather", bits), int_type(bits), at, vector=True) for at in addresses(b, g)]
    return [b.bits_as(each, g.element) for each in found]


_WAYS: tuple[tuple[Callable[[Gather], bool], Callable[[WarpEmitter, Gather], list[Value]]], ...] = (
    (lambda g: g.element == "i128", load_wide),
    (lambda g: g.place.window is not None, load_window),
    (lambda g: g.place.is_uniform, _uniform),
    (lambda g: g.is_contiguous, _contiguous),
    (lambda g: g.is_whole and len(g.place.bases) > 1 and g.place.stride == 0, _each_row),
    (lambda g: g.is_whole and len(g.place.bases) == 1 and g.count == 1, _apart),
    (lambda _: True, _each_lane),
)
"""What each way is for; the last one is right for every place."""
