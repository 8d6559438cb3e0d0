"""Printed PTX is what the compilers would print, assembles, and refuses what PTX cannot say."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cujit.errors import FormatError
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.printer import print_instruction, print_module, print_operand
from cujit.formats.ptx.syntax import (
    Address,
    FloatLiteral,
    Immediate,
    Instruction,
    Operand,
    Predicate,
    PtxModule,
    Register,
    SymbolRef,
)

Assemble = Callable[[str, str], dict[str, bytes]]

# Assembles, and has every kind of item and statement that ptxas takes in one module.
EVERYTHING = """
.version 8.0
.target sm_90
.address_size 64
.file 1 "every.cu"
.extern .shared .align 16 .b8 pool[];
.func (.param .b32 out) helper(.param .b32 in, .param .align 8 .b8 pair[16]);
.global .align 4 .u32 numbers[4] = {1, 2, 0xFFFFFFFF, 4};
.global .align 8 .u64 pointers[3] = {generic(numbers)+4, numbers, helper};
.global .align 1 .u8 bytes[2] = {0xFF(generic(numbers)+4), 0xFF00(generic(numbers)+4)};
.global .align 4 .f32 matrix[2][2] = {{0f3F800000, 2.5}, {-1.0, 1e3}};
.visible .global .attribute(.managed) .align 4 .u32 shared_with_host;
.const .align 8 .f64 pi = 0d400921FB54442D18;
.visible .entry every(
    .param .u64 .ptr .global .align 16 data, .param .u32 n, .param .align 8 .b8 pair[16]
) .maxntid 128, 1, 1 .minnctapersm 2 {
    .reg .pred %p<3>; .reg .b32 %r<20>; .reg .b64 %rd<9>; .reg .f32 %f<5>; .reg .v2 .b32 %v;
    .local .align 16 .b8 depot[32];
    .loc 1 10 3
    ld.param.u64 %rd1, [data]; cvta.to.global.u64 %rd2, %rd1; ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
    setp.lt.and.u32 %p1|%p2, %r2, %r1, !%p2;
    @!%p1 bra $OUT;
    ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd2+16];
    mov.b32 %v.x, %r1; mov.b32 %r3, %v.x;
    fma.rn.ftz.f32 %f1, %f2, 0fBF800000, %f1;
    mov.u64 %rd3, numbers+8;
    st.global.u32 [numbers+4], %r3; ld.global.u32 %r4, [%rd3+-4];
    { .reg .b16 lo, hi; mov.b32 {lo, hi}, %r4; mov.b32 %r5, {hi, lo}; }
    { .param .b32 argument; .param .align 8 .b8 copy[16]; .param .b32 result;
      st.param.b32 [argument+0], %r5; st.param.b64 [copy+8], %rd1;
      call.uni (result), helper, (argument, copy); ld.param.b32 %r6, [result]; }
    mov.u64 %rd4, helper;
    { .param .b32 a0; .param .align 8 .b8 a1[16]; .param .b32 r0;
      proto: .callprototype (.param .b32 _) _ (.param .b32 _, .param .align 8 .b8 _[16]);
      st.param.b32 [a0], WARP_SZ; st.param.b64 [a1], -1; call (r0), %rd4, (a0, a1), proto;
      ld.param.b32 %r7, [r0]; }
    and.b32 %r8, %r7, 1;
    .pragma "nounroll";
    table: .branchtargets $A, $B;
    brx.idx %r8, table;
$A: add.sat.s32 %r9, %r6, 5; st.global.u32 [%rd2], %r9; bra.uni $OUT;
$B: atom.global.add.u32 %r10, [%rd2], %r8; shfl.sync.bfly.b32 %r11|%p1, %r10, 1, 31, -1;
    st.global.v2.b32 [%rd2+8], {%r11, %r10};
    bar.sync 0;
$OUT: ret;
}
.func (.param .b32 out) helper(.param .b32 in, .param .align 8 .b8 pair[16]) {
    .reg .b32 %r<3>; ld.param.b32 %r1, [in]; st.param.b32 [out], %r1; ret;
}
"""


def test_printed_constructs_assemble_to_the_same_sass(assemble: Assemble) -> None:
    module = parse(EVERYTHING)
    printed = print_module(module)
    assert parse(printed) == module
    assert assemble(printed, "sm_90") == assemble(EVERYTHING, "sm_90")


def test_printing_is_stable() -> None:
    printed = print_module(parse(EVERYTHING))
    assert print_module(parse(printed)) == printed


def test_instruction_is_one_line() -> None:
    instruction = Instruction(
        "ld",
        ("global", "f32"),
        (Register("%f1"), Address(Register("%rd1"), -4)),
        Predicate("%p1", True),
    )
    assert print_instruction(instruction) == "@!%p1 ld.global.f32 %f1, [%rd1+-4];"


def test_sections_are_printed_word_for_word() -> None:
    text = "\n.b8 1 // comment\n\t"
    module = parse(f".version 8.0 .target sm_90 .section .debug_str {{{text}}}")
    assert f"{{{text}}}" in print_module(module)


def test_empty_module_prints_its_head() -> None:
    assert print_module(PtxModule((8, 5), ("sm_90", "debug"))).split() == [
        *(".version", "8.5", ".target", "sm_90,", "debug", ".address_size", "64")
    ]


@pytest.mark.parametrize(
    "value",
    [
        Immediate(1 << 64),
        Immediate(-(1 << 63) - 1),
        Immediate(-1, True),
        FloatLiteral(1 << 32, 32),
        FloatLiteral(0, 16),
        Address(SymbolRef("a", 4)),
    ],
)
def test_unprintable_value_is_refused(value: Operand) -> None:
    with pytest.raises(FormatError):
        print_operand(value)
