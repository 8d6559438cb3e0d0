"""Variables of the emitted code: they are values, with phis where different ones meet and are read."""

import ctypes
import random
import re

import pytest

from cujit.devices.cpu.codegen.builder import Builder, Value
from cujit.devices.cpu.codegen.nodes import text_of
from cujit.devices.jit import compile_ir, optimise

_P, _C, _V = Value("%p", "ptr"), Value("%c", "i1"), Value("%v", "i32")


def _lines(b: Builder) -> list[str]:
    return [text_of(node) for node in b.take()]


def _text(b: Builder) -> str:
    return "\n".join(["define void @f(ptr %p, i1 %c, i32 %v) {", "entry:", *_lines(b), "}"])


def _store(b: Builder, variable: str) -> None:
    b.store(b.read(variable, "i32"), _P)


def test_a_variable_that_is_read_where_it_is_written_is_the_value() -> None:
    b = Builder()
    b.write("x", _V)
    _store(b, "x")
    b.leave()
    assert _lines(b) == ["  store i32 %v, ptr %p", "  ret void"]


def test_a_phi_stands_where_different_values_meet_that_are_read() -> None:
    b = Builder()
    b.write("x", _V)
    b.write("y", _V)  # which is not written again
    b.write("z", _V)  # which is not read
    b.branch(_C, "yes", "out")
    b.start("yes")
    b.write("x", b.integer(1, 32))
    b.write("z", b.integer(2, 32))
    b.jump("out")
    b.start("out")
    _store(b, "x")
    _store(b, "y")
    b.leave()
    text = _text(b)
    optimise(text)
    phis = [line for line in text.splitlines() if " phi " in line]
    assert len(phis) == 1
    assert sorted(re.findall(r"\[ (.*?) \]", phis[0])) == ["%v, %entry", "1, %yes"]
    assert "  store i32 %v, ptr %p" in text


def test_what_was_never_written_is_zero() -> None:
    b = Builder()
    b.jump("out")
    b.start("out")
    _store(b, "x")
    b.store(b.read("lanes", "i1", lanes=32), _P)
    b.leave()
    assert _lines(b)[-3:-1] == [
        "  store i32 zeroinitializer, ptr %p",
        "  store <32 x i1> zeroinitializer, ptr %p",
    ]


def test_blocks_that_nothing_leads_to_are_left_out_and_no_phi_names_them() -> None:
    b = Builder()
    b.write("x", _V)
    b.jump("out")
    b.start("nowhere")
    b.write("x", b.integer(1, 32))
    b.jump("out")
    b.start("out")
    chosen = b.phi(_V, (_V, "entry"), (b.integer(3, 32), "nowhere"))
    b.store(chosen, _P)
    _store(b, "x")
    b.leave()
    text = _text(b)
    optimise(text)
    assert "nowhere" not in text
    assert "store i32 %v, ptr %p" in text


def test_a_phi_has_a_way_for_each_edge_of_a_jump() -> None:
    b = Builder()
    b.switch(_V, [(1, "out"), (2, "out"), (3, "other")], "out")
    b.start("other")
    b.write("x", _V)
    b.jump("out")
    b.start("out")
    _store(b, "x")
    b.leave()
    optimise(_text(b))


class _Random:
    """A function of some blocks that read and write variables, and what it does, step by step, in Python."""

    BLOCKS, VARIABLES, STEPS = 9, 4, 60

    def __init__(self, seed: int) -> None:
        choose = random.Random(seed)
        self.blocks = [
            [(choose.choice("rwwc"), choose.randrange(self.VARIABLES), choose.randrange(99)) for _ in range(4)]
            for _ in range(self.BLOCKS)
        ]
        self.ways = [[choose.randrange(1, self.BLOCKS) for _ in range(2)] for _ in range(self.BLOCKS)]

    def run(self) -> int:
        values, total, at = [0] * self.VARIABLES, 0, 0
        for _ in range(self.STEPS):
            for kind, variable, number in self.blocks[at]:
                if kind == "w":
                    values[variable] = total + number & 0xFFFFFFFF
                elif kind == "c":
                    values[variable] = values[number % self.VARIABLES]
                else:
                    total = total * 31 + values[variable] & 0xFFFFFFFF
            at = self.ways[at][total >> 3 & 1]
        return total

    def text(self) -> str:
        """Write it: the total and the steps are in memory, and are no variables."""
        b = Builder()
        steps = Value("%steps", "ptr")
        for k, (ops, ways) in enumerate(zip(self.blocks, self.ways, strict=True)):
            if k:
                b.start(f"b{k}")
            for kind, variable, number in ops:
                total = b.load("i32", _P)
                if kind == "w":
                    b.write(f"x{variable}", b.binary("add", total, b.integer(number, 32)))
                elif kind == "c":
                    b.write(f"x{variable}", b.read(f"x{number % self.VARIABLES}", "i32"))
                else:
                    more = b.read(f"x{variable}", "i32")
                    b.store(b.binary("add", b.binary("mul", total, b.integer(31, 32)), more), _P)
            left = b.binary("sub", b.load("i32", steps), b.integer(1, 32))
            b.store(left, steps)
            go = b.label("go")
            b.branch(b.compare("icmp eq", left, b.integer(0, 32)), "out", go)
            b.start(go)
            bit = b.binary("and", b.load("i32", _P), b.integer(8, 32))
            b.branch(b.compare("icmp eq", bit, b.integer(0, 32)), *(f"b{way}" for way in ways))
        b.start("out")
        b.leave()
        return "\n".join(["define void @f(ptr %p, ptr %steps) {", "entry:", *_lines(b), "}"])


@pytest.mark.parametrize("seed", range(60))
def test_variables_are_what_was_written_last_on_the_way_that_was_come(seed: int) -> None:
    made = _Random(seed)
    function = compile_ir(made.text(), "f", passes=False)
    total, steps = ctypes.c_uint32(0), ctypes.c_uint32(made.STEPS)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(function.address)(
        ctypes.addressof(total), ctypes.addressof(steps)
    )
    assert total.value == made.run()


def test_a_block_goes_on_into_the_next_unless_it_has_ended() -> None:
    b = Builder()
    b.start("next")
    b.leave()
    b.start("other")
    b.unreachable()
    assert _lines(b) == ["  br label %next", "next:", "  ret void", "other:", "  unreachable"]


@pytest.mark.parametrize("holds", [True, False])
def test_what_is_emitted_for_a_condition_runs_where_it_holds_or_does_not(holds: bool) -> None:
    b = Builder()
    with b.when(_C, holds=holds):
        b.store(_V, _P)
    b.leave()
    ways = "%if, label %if.end" if holds else "%if.end, label %if"
    ends = ["  br label %if.end", "if.end:", "  ret void"]
    unnumbered = [re.sub(r"\$\d+", "", line) for line in _lines(b)]
    assert unnumbered == [f"  br i1 %c, label {ways}", "if:", "  store i32 %v, ptr %p", *ends]


def test_values_of_two_ways_come_from_where_each_of_them_ends() -> None:
    b = Builder()

    def yes() -> list[Value]:
        with b.when(_C, "inner"):
            b.store(_V, _P)
        return [_V]

    b.store(b.either(_C, yes, lambda: [b.integer(3, 32)])[0], _P)
    b.leave()
    text = _text(b)
    optimise(text)
    assert re.search(r"phi i32 \[ %v, %inner\.end\$\d+ \], \[ 3, %if\.not\$\d+ \]", text)
