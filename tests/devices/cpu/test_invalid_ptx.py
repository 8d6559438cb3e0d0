"""PTX that no assembler takes is called wrong, with line and caret; what is right and not executed, refused alone."""

from __future__ import annotations

import numpy as np
import pytest

from cujit.devices.device import Device
from cujit.errors import KernelFaultError, PtxSyntaxError, UnsupportedError
from cujit.inspection.needs import ptx_needs
from cujit.loading import load
from raising import raises

pytestmark = pytest.mark.verbatim

HEAD = ".version 8.6\n.target sm_100a\n.address_size 64\n"
REGISTERS = ".reg .b16 %h<4>; .reg .b32 %r<4>; .reg .s32 %s<4>; .reg .f32 %f<4>; .reg .b64 %a<4>; .reg .pred %p<4>;"


def kernel(body: str) -> str:
    return f"{HEAD}.visible .entry k(.param .u64 out) {{\n{REGISTERS}\n{body}\nret;\n}}\n"


@pytest.mark.parametrize(
    ("statement", "why", "try_"),
    [
        ("addd.s32 %r1, %r2, %r3;", "PTX has no instruction 'addd'", "add is one"),
        ("add.foo.s32 %r1, %r2, %r3;", "add has no modifier '.foo'", "its forms are add"),
        ("cvt.ftz.s32.s64 %r1, %a1;", "cvt.ftz.s32.s64 is not a form of cvt", "its forms are cvt"),
        ("cvt.rn.s32.s64 %r1, %a1;", "cvt.rn.s32.s64 is not a form of cvt", ""),
        ("cvt.f32.s32 %f1, %r1;", "cvt.f32.s32 is not a form of cvt", ""),
        ("cvt.sat.s64.s32 %a1, %r1;", "cvt.sat.s64.s32 is not a form of cvt", ""),
        ("ld.shared.L2::cache_hint.u32 %r1, [%a1], %a2;", "ld.shared.L2::cache_hint.u32 is not a form of ld", ""),
        ("mul.u32.lo %r1, %r2, %r3;", "mul.u32.lo is not a form of mul", ""),
        ("vote.ballot.b32 %r1, %p1;", "vote.ballot.b32 is gone since PTX 6.4", ""),
        ("div.f32 %f1, %f2, %f3;", "div.f32 is gone since PTX 1.4", ""),
        ("add.s32 %r1, %r2;", "other operands, or another number of them, than it takes", ""),
        ("mov.f32 %f1, 0;", "operand 2, 0, is an integer, expected .b32, .f32 or a float", "write 0f00000000"),
        (
            "ld.global.u32 %r1, [%f1+8];",
            "operand 2, [%f1+8], is memory at .f32, expected memory at a variable, or at a register of bits",
            "",
        ),
        ("add.u32 %a1, %r2, %r3;", "operand 1, %a1, is .b64, expected .b32, .u32, .s32", "declare %a1 as .b32, .u32"),
        ("add.f32 %f1, %s1, %f2;", "operand 2, %s1, is .s32", "declare %s1 as .b32 or .f32"),
        ("cvt.u32.u16 %h1, %h2;", "operand 1, %h1, is .b16, expected .b32", "declare %h1 as"),
        (
            "setp.eq.f16 %p1, %h1, 1.0;",
            "operand 3, 1.0, is a float of 64 bits, expected .b16 or .f16",
            "move it to",
        ),
        ("add.u32 %r1, %laneid, 1;", "operand 2, %laneid, is a special register, expected", "move it to a register"),
        ("ld.global.u32 %r1, [%f1];", "operand 2, [%f1], is memory at .f32, expected memory at a variable", ""),
        ("ld.global.v2.f32 {%f1, %s1}, [%a1];", "operand 1, %s1, is .s32", "declare %s1 as .b32 or .f32"),
        (
            "mbarrier.arrive.release.cluster.shared::cluster.b64 %a1, [%r1];",
            "operand 1, %a1, is .b64, expected _",
            "write _ in its place",
        ),
        ("mov.u32 %r1, %nosuch;", "%nosuch is declared nowhere", ""),
        ("mov.u64 %a1, nowhere;", "nowhere is declared nowhere", ""),
        ("@%p9 mov.u32 %r1, 0;", "an undeclared predicate", ""),
        ("bra nowhere;", "nowhere is a label that is defined nowhere", ""),
        ("add.s32 %r1, -%r2, %r3;", "a part of a register, or one with its sign changed", ""),
    ],
)
def test_ptx_that_no_assembler_accepts_gets_a_caret(cpu: Device, statement: str, why: str, try_: str) -> None:
    with pytest.raises(PtxSyntaxError) as caught:
        load(kernel(f"mov.u32 %r2, 1; {statement}").encode(), cpu)
    error = caught.value
    assert why in error.diagnostic.message
    assert error.line == 6
    assert error.diagnostic.source_line[error.column - 1 :].lstrip("@%p9 ").startswith(statement.lstrip("@%p9 ")[:3])
    assert "GPU" not in str(error)
    assert try_ in (error.help or "")


def test_caret_is_below_a_mnemonic_spread_over_lines(cpu: Device) -> None:
    with pytest.raises(PtxSyntaxError) as caught:
        load(kernel("add.s32 %r1, %r2, %r3; add\n  .foo\n .s32 %r1, %r2, %r3;").encode(), cpu)
    assert (caught.value.line, caught.value.column) == (6, 24)


PARTLY = (
    HEAD
    + f""".visible .entry good(.param .u64 out) {{ {REGISTERS} ld.param.u64 %a1, [out]; st.global.u32 [%a1], 7; ret; }}
.visible .entry bad(.param .u64 out, .param .f32 x) {{ {REGISTERS}
    tcgen05.mma.cta_group::1.kind::f16.ashift [%r1], [%r1], %a1, %r1, %p1; ret;
}}
"""
)


def test_unsupported_instructions_refuse_only_their_kernels(cpu: Device) -> None:
    for _ in range(2):  # the second time from the cache
        module = load(PARTLY.encode(), cpu)
        assert list(module) == ["good", "bad"]
        out = cpu.zeros(1, np.uint32)
        module["good"][1, 1](out)
        assert out.numpy()[0] == 7
        assert len(module["bad"].signature) == 2
        bad = module["bad"]
        with raises(UnsupportedError, "unsupported", "bad", "6", "tcgen05.mma", "ashift") as caught:
            bad[1, 1](out, 1.0)
        assert [line for line, _, _ in caught.value.items] == [6]
        with raises(UnsupportedError, "unsupported", "bad"):
            _ = bad.max_block


def test_module_of_only_unsupported_kernels_fails_to_load(cpu: Device) -> None:
    with raises(UnsupportedError, "unsupported", "6", "tcgen05"):
        load(kernel("tcgen05.mma.cta_group::1.kind::f16.ashift [%r1], [%r1], %a1, %r1, %p1;").encode(), cpu)


def test_requirements_list_each_kernels_instructions() -> None:
    assert [(refusal.line, refusal.construct) for refusal in ptx_needs(PARTLY).refusals] == [
        (6, "tcgen05.mma.cta_group::1.kind::f16.ashift")
    ]
    assert ptx_needs(kernel("addd.s32 %r1, %r2, %r3;")).refusals[0].why == "PTX has no instruction 'addd'"


def test_kernel_parameter_is_not_a_register(cpu: Device) -> None:
    text = kernel("ret;").replace(
        ".visible .entry k(", ".visible .entry other(.reg .u32 x) { ret; } .visible .entry k("
    )
    assert "other" in text
    with raises(PtxSyntaxError, "ptx-syntax", ".u32 x"):
        load(text.encode(), cpu)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (".reg .bf16 x;", (".bf16",)),
        (".reg .v4 .b64 x;", (".b64",)),
        (".local .pred x;", (".local", ".pred")),
        (".shared .b32 x = 3;", (".shared",)),
        (".reg .b32 x; .reg .b64 x;", (".b32 x",)),
        ("L: mov.u32 %r1, 0; L: mov.u32 %r2, 0;", ("L", "declared")),
        ("p: .callprototype _ (.param .pred _);", (".param", ".pred")),
        ("cp.async.ca.shared.global [%r1], [%a1], 7;", ("7", "stand")),
        ("bar.sync 16;", ("16", "bar.sync 16")),
        ("T: .branchtargets L; brx.idx %a1, T; L: ret;", ("32", "label")),
        ("{ .param .b32 x; ld.param.v2.b32 %r1, [x]; }", (".param .b32 x",)),
        ("{ .param .b32 x; ld.param.b32 {%r1, %r2}, [x]; }", (".param .b32 x",)),
    ],
)
def test_wrong_declarations_and_numbers_are_reported(cpu: Device, body: str, why: tuple[str, ...]) -> None:
    with raises(PtxSyntaxError, "ptx-syntax", *why) as caught:
        load(kernel(body).encode(), cpu)
    assert caught.value.line == 6


def test_device_functions_reject_arguments_of_odd_sizes(cpu: Device) -> None:
    text = kernel("{ .param .b8 x[3]; .param .b32 z; call (z), vprintf, (x, x); }")
    declared = ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);"
    with raises(PtxSyntaxError, "ptx-syntax", "vprintf", "3"):
        load(text.replace(HEAD, HEAD + declared).encode(), cpu)


def test_name_may_be_used_in_separate_scopes(cpu: Device) -> None:
    body = ".reg .b32 x; L: { .reg .b32 x; L: mov.u32 x, 0; } { .reg .b32 x; L: mov.u32 x, 1; } mov.u32 x, 2;"
    load(
        (".version 8.6\n.target sm_90\n.extern .global .u32 g; .global .u32 g;" + kernel(body)[len(HEAD) :]).encode(),
        cpu,
    )


def test_call_by_an_address_without_a_function_faults(cpu: Device) -> None:
    body = """ld.param.u64 %a1, [out]; { .param .b32 x; st.param.b32 [x], 1;
        p: .callprototype _ (.param .b32 _); call %a1, (x), p; }"""
    with raises(KernelFaultError, "fault-illegal-call"):
        load(kernel(body).encode(), cpu)["k"][1, 32](cpu.zeros(1, np.uint32))
