"""Nodes of the emitted code: how each kind is printed, which LLVM then reads, and where they stand."""

from collections import Counter
from collections.abc import Callable

import pytest

from cujit.devices.cpu.codegen.builder import Builder, Value
from cujit.devices.cpu.codegen.nodes import IrModule, Node, text_of
from cujit.devices.cpu.run.dwarf import PTX_ALONE, DebugInfo
from cujit.devices.jit import optimise

_P, _I, _LANES = Value("%p", "ptr"), Value("%i", "i32"), Value("%v", "i32", 32)


def _all_kinds(b: Builder) -> None:
    """One instruction of every kind, in a function of ``%p``, ``%i`` and the lanes ``%v``."""
    with b.at_entry():
        b.allocate("i64", into="%own")
    b.reserve("%more", "[2 x i64]")
    b.allocate("i8", size=b.cast("zext", _I, "i64"), align=16)
    b.store(b.load("i32", _P, align=4, volatile=True), b.offset(_P, 4), align=4)
    b.store(b.load("i32", _P, lanes=32, align=4), b.offset(_P, 128), align=64, nontemporal=True)
    b.store(b.load("i32", _P, order="acquire", align=4), "%own", order="release", align=4, volatile=True)
    b.update("umax", _P, _I, "monotonic", align=4)
    b.exchange(_P, _I, b.integer(7, 32), "acq_rel acquire", align=4)
    b.fence('syncscope("singlethread") seq_cst')
    b.load("i32", b.extract(b.point("i32", _P, _LANES), _I))
    b.select(b.compare("icmp slt", _LANES, _I), b.freeze(_LANES), b.binary("mul", _I, _LANES))
    b.shuffle(_LANES, None, [-1, 3])
    b.rows([_I, b.integer(-1, 32)])
    b.mask_of(b.word(b.compare("icmp ne", _LANES, b.integer(0, 32))))
    b.reduce("add", b.intrinsic("abs", _LANES, flag=b.integer(1, 1)))
    b.invoke('asm sideeffect "", "r"', "void", _I)
    b.jump("loop")
    b.start("loop")
    turn = b.phi(_I, ("0", "entry"), ("%next", "loop"), into="%turn")
    b.binary("add", turn, b.integer(1, 32), into="%next")
    b.switch(turn, [(3, "loop"), (-1, "out")], "test")
    b.start("test")
    b.branch(b.any_lane(b.compare("icmp eq", _LANES, _I)), "out", "nowhere")
    b.start("nowhere")
    b.unreachable()
    b.start("out")
    b.leave(_LANES)


def _function(b: Builder) -> str:
    body = [*b.module.declared.values(), "define <32 x i32> @f(ptr %p, i32 %i, <32 x i32> %v) {", "entry:"]
    return "\n".join([*body, *map(text_of, (*b.entry, *b.body)), "}"])


def test_llvm_reads_every_node_as_its_instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUJIT_PROMISES", raising=False)  # no kernel does what stands here
    b = Builder()
    _all_kinds(b)
    nodes = [node for node in (*b.entry, *b.body) if node.opcode != "label"]
    read = str(optimise(_function(b), passes=False))
    body = read[read.index("entry:") : read.index("\n}")].splitlines()
    instructions = [line.rpartition(" = ")[2].split()[0] for line in body if line.startswith("  ")]
    wanted = Counter(node.opcode.split()[0] for node in nodes)
    assert {opcode: instructions.count(opcode) for opcode in wanted} == wanted


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (Node("store", (_LANES, _P), align=4), "  store <32 x i32> %v, ptr %p, align 4"),
        (Node("store", (_I, _P), order="release", align=4), "  store atomic i32 %i, ptr %p release, align 4"),
        (Node("load", (_P,), "%x", "i32", volatile=True), "  %x = load volatile i32, ptr %p"),
        (Node("add", (_I, _I), "%x", line=12), "  %x = add i32 %i, %i"),
        (Node("label", name="loop", line=12), "loop:"),
        (Node("ret"), "  ret void"),
    ],
)
def test_node_is_one_line(node: Node, text: str) -> None:
    assert text_of(node) == text


def test_reserved_memory_is_in_the_entry_block_once() -> None:
    b = Builder(IrModule(DebugInfo(PTX_ALONE)))
    b.come_to(3)
    for _ in range(2):
        b.reserve("%place", "i32")
    with b.at_entry():
        b.load("ptr", _P, into="%read")
    b.jump("on")
    assert list(map(text_of, b.entry)) == ["  %place = alloca i32, align 512", "  %read = load ptr, ptr %p"]
    assert [(text_of(node), node.line) for node in b.take()] == [("  br label %on", 3)]
    assert b.has_entry("%place")
    assert b.has_entry("%read")


@pytest.mark.parametrize("first", ["value", "label"])
@pytest.mark.parametrize("second", ["value", "label"])
def test_names_are_unique(first: str, second: str) -> None:
    """Values and blocks share one namespace in LLVM."""
    b = Builder()
    give: dict[str, Callable[[], object]] = {
        "value": lambda: b.binary("add", _I, _I, into="%x"),
        "label": lambda: b.start("x"),
    }
    give[first]()
    with pytest.raises(AssertionError, match="%x is given twice"):
        give[second]()


def test_counted_names_never_equal_chosen_names() -> None:
    b = Builder()
    hints = ["", "x", "x$1", "x", ""]
    names = [b.name(hint) for hint in hints] + [f"%{b.label(hint)}" for hint in hints if hint]
    assert len({*names}) == len(names)
    assert all("$" in name for name in names)
