"""The grammar of PTX, rule by rule, on text written by hand."""

from __future__ import annotations

import time

import pytest

from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.syntax import (
    Address,
    BranchTargets,
    CallPrototype,
    ComponentOperand,
    Directive,
    FloatLiteral,
    Function,
    Generic,
    Immediate,
    Initializer,
    InitValue,
    Instruction,
    Label,
    LabelRef,
    Location,
    Negated,
    Operand,
    PairOperand,
    Predicate,
    Property,
    Register,
    RegisterDecl,
    RegisterList,
    Scope,
    Statement,
    SymbolRef,
    Variable,
    VectorOperand,
)

HEAD = ".version 8.5\n.target sm_90\n.address_size 64\n"


def body(text: str, before: str = "") -> tuple[Statement, ...]:
    """The statements of a kernel made of ``text``."""
    (entry,) = parse(f"{HEAD}{before}\n.visible .entry k() {{ {text} }}").entries
    assert entry.body is not None
    return entry.body


def instruction(text: str, before: str = "") -> Instruction:
    """The last instruction of ``text``."""
    last = body(text, before)[-1]
    assert isinstance(last, Instruction)
    return last


def operand(text: str, before: str = "") -> Operand:
    """``text`` as the last operand of a ``mov``."""
    return instruction(f"mov.u32 %r1, {text};", before).operands[-1]


def variable(text: str) -> Variable:
    """The one variable that ``text`` declares in a module."""
    (found,) = parse(HEAD + text).variables
    return found


def initial(text: str) -> InitValue | None:
    """``text`` as the initial value of a variable."""
    return variable(f".global .u64 v[4] = {text};").initializer


# -- module -----------------------------------------------------------------------------------------------


def test_version_target_and_address_size_are_read() -> None:
    module = parse(".version 7.0 .target sm_80, texmode_independent, debug .address_size 32")
    assert (module.version, module.address_size) == ((7, 0), 32)
    assert module.target == ("sm_80", "texmode_independent", "debug")


def test_default_address_size_is_64() -> None:
    assert parse(".version 9.10 .target sm_100a").address_size == 64


def test_old_targets_are_read() -> None:
    assert parse(".version 6.5\n.target sm_30\n").target == ("sm_30",)


def test_comments_and_a_final_nul_are_skipped() -> None:
    module = parse("// é\n/* two\nlines */ .version 8.5 /**/ .target sm_90 // end\n\0")
    assert module.items == ()


def test_module_directives_keep_their_arguments() -> None:
    items = parse(
        HEAD + '.file 1 "a b.cu", 12, 34\n.alias new, old;\n.pragma "one", "two";\n.target sm_90, debug\n'
    ).items
    assert items == (
        Directive("file", ("1", '"a b.cu"', "12", "34")),
        Directive("alias", ("new", "old")),
        Directive("pragma", ('"one"', '"two"')),
        Directive("target", ("sm_90", "debug")),
    )


def test_section_keeps_its_body_verbatim() -> None:
    text = "\n\t.b8 1, 2 // }\n$L__x:\n.b32 .debug_abbrev+4\n"
    (section,) = parse(f"{HEAD}.section\t.debug_info\n{{{text}}}").items
    assert section == Directive("section", (".debug_info", text))


def test_lines_of_the_oldest_debug_data_are_kept() -> None:
    (item,) = parse(f"{HEAD}@@DWARF .section .debug_info, (x\n").items
    assert item == Directive("@@DWARF", (".section .debug_info, (x",))


# -- variables --------------------------------------------------------------------------------------------


def test_variable_has_space_type_alignment_shape_and_linkage() -> None:
    assert variable(".visible .global .align 16 .v4 .f32 v[4][2];") == Variable(
        "global", "f32", "v", (4, 2), 16, 4, "visible"
    )
    assert variable(".extern .shared .align 8 .b8 s[];") == Variable("shared", "b8", "s", (0,), 8, 1, "extern")
    assert variable(".common .global .u32 c;").linkage == "common"
    assert variable(".weak .const .f64 w;").linkage == "weak"
    assert variable(".global .attribute(.managed, .unified(1, 0x2)) .s32 m;").attributes == (
        "managed",
        "unified(1, 2)",
    )


def test_declaration_may_have_many_variables() -> None:
    module = parse(HEAD + ".global .u32 a, b[2] = {1}, c = 3; .shared .b32 s<2>;")
    assert [v.name for v in module.variables] == ["a", "b", "c", "s0", "s1"]
    assert module.variables[2].initializer == Immediate(3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{1, {2, -3}, {}}", (Immediate(1), Initializer((Immediate(2), Immediate(-3))), Initializer(()))),
        ("{0f3F800000, -1.5}", (FloatLiteral(0x3F800000, 32), FloatLiteral(0xBFF8000000000000, 64))),
        ("{a, a+4, a+-4}", (SymbolRef("a"), SymbolRef("a", 4), SymbolRef("a", -4))),
        ("{generic(a), generic(a)+8}", (Generic(SymbolRef("a")), Generic(SymbolRef("a", 8)))),
        (
            "{0xFF(a), 0xFF00(generic(a)+4)}",
            (Generic(SymbolRef("a"), False, 0xFF), Generic(SymbolRef("a", 4), True, 0xFF00)),
        ),
    ],
)
def test_initial_values(text: str, expected: tuple[InitValue, ...]) -> None:
    assert initial(text) == Initializer(expected)


def test_settings_of_a_sampler_are_an_initial_value() -> None:
    sampler = variable(".global .samplerref s = { addr_mode_0 = clamp_to_edge, filter_mode = linear };")
    assert sampler.initializer == Initializer(
        (Property("addr_mode_0", "clamp_to_edge"), Property("filter_mode", "linear"))
    )


# -- functions --------------------------------------------------------------------------------------------


def test_every_form_of_parameter_is_read() -> None:
    (entry,) = parse(
        HEAD
        + """.visible .entry k(.param .u64 .ptr .global .align 1 p, .param .u64 .ptr q,
             .param .align 8 .b8 s[24], .param .u32 n) { ret; }"""
    ).entries
    assert entry.parameters == (
        Variable("param", "u64", "p", is_ptr=True, ptr_space="global", ptr_align=1),
        Variable("param", "u64", "q", is_ptr=True),
        Variable("param", "b8", "s", (24,), 8),
        Variable("param", "u32", "n"),
    )


def test_functions_have_results_and_registers_as_parameters() -> None:
    (function,) = parse(
        HEAD + ".weak .func (.reg .b32 %out) f(.reg .b32 in, .param .b32 x) { mov.b32 %out, in; }"
    ).functions
    assert (function.linkage, function.is_entry) == ("weak", False)
    assert function.results == (Variable("reg", "b32", "%out"),)
    assert function.body == (Instruction("mov", ("b32",), (Register("%out"), Register("in"))),)


def test_declarations_have_no_body() -> None:
    (function,) = parse(HEAD + ".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b)\n;").functions
    assert function.body is None
    assert function.linkage == "extern"


def test_function_directives_keep_their_numbers() -> None:
    function, other = parse(
        HEAD
        + """.entry k() .maxntid 256, 1, 1 .minnctapersm 2 .maxnreg 64 .explicitcluster
             .reqnctapercluster 2, 1, 1 .blocksareclusters .pragma "x"; .noreturn { ret; }
             .entry m() .reqntid 32 .maxclusterrank 8 { ret; }"""
    ).functions
    assert function.directives == (
        ("maxntid", ("256", "1", "1")),
        ("minnctapersm", ("2",)),
        ("maxnreg", ("64",)),
        ("explicitcluster", ()),
        ("reqnctapercluster", ("2", "1", "1")),
        ("blocksareclusters", ()),
        ("pragma", ('"x"',)),
        ("noreturn", ()),
    )
    assert other.directives == (("reqntid", ("32",)), ("maxclusterrank", ("8",)))


def test_function_may_have_attributes() -> None:
    (function,) = parse(HEAD + ".func .attribute(.unified(1, 2)) f;").functions
    assert function == Function("f", False, attributes=("unified(1, 2)",))


# -- statements -------------------------------------------------------------------------------------------


def test_instruction_has_predicate_modifiers_and_operands() -> None:
    assert instruction("@!%p1 ld.shared::cta.v2.f32 {%f1, _}, [%r1+8];") == Instruction(
        "ld",
        ("shared::cta", "v2", "f32"),
        (VectorOperand((Register("%f1"), Register("_"))), Address(Register("%r1"), 8)),
        Predicate("%p1", True),
    )


def test_modifiers_may_be_separated_by_spaces() -> None:
    assert instruction("add .sat\n.s32 %r1, %r2, 3;").name == "add.sat.s32"


def test_modifiers_may_begin_with_a_digit() -> None:
    assert instruction("tex.2d.v4.f32.s32 {%a, %b, %c, %d}, [t, {%x, %y}];").modifiers[0] == "2d"


def test_statement_has_its_line() -> None:
    statements = body("\nret;\n@%p1\nbra L;\nL:\n.reg .b32 %r;\n")
    assert [s.line for s in statements] == [6, 7, 9, 10]


def test_register_declarations() -> None:
    assert body(".reg .pred %p<5>, q; .reg .v4 .f32 v;") == (
        RegisterDecl("pred", (("%p", 5), ("q", None))),
        RegisterDecl("f32", (("v", None),), 4),
    )


def test_locations_with_and_without_inlining() -> None:
    assert body(".loc 1 10 3\n.loc 2 20 5, function_name $L__str+4, inlined_at 1 10 3\n") == (
        Location(1, 10, 3),
        Location(2, 20, 5, "function_name $L__str+4, inlined_at 1 10 3"),
    )


def test_labels_targets_and_prototypes() -> None:
    statements = body(
        """ts: .branchtargets L1, $L2; brx.idx.uni %r1, ts; L1: $L2: @%p bra.uni L1;
            fs: .calltargets f, g; pr: .callprototype (.param .b32 _) _ (.param .align 8 .b8 _[16]) .noreturn;
            none: .callprototype _ () .abi_preserve 8;"""
    )
    assert statements == (
        BranchTargets("ts", ("L1", "$L2")),
        Instruction("brx", ("idx", "uni"), (Register("%r1"), LabelRef("ts"))),
        Label("L1"),
        Label("$L2"),
        Instruction("bra", ("uni",), (LabelRef("L1"),), Predicate("%p")),
        BranchTargets("fs", ("f", "g"), "calltargets"),
        CallPrototype("pr", (Variable("param", "b32", "_"),), (Variable("param", "b8", "_", (16,), 8),), ("noreturn",)),
        CallPrototype("none", flags=("abi_preserve 8",)),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("call f", (SymbolRef("f"),)),
        ("call f, (a)", (SymbolRef("f"), RegisterList((SymbolRef("a"),)))),
        ("call.uni (r), f", (RegisterList((SymbolRef("r"),)), SymbolRef("f"))),
        (
            "call (%o), %rd1, (%a, 4), proto",
            (
                RegisterList((Register("%o"),)),
                Register("%rd1"),
                RegisterList((Register("%a"), Immediate(4))),
                LabelRef("proto"),
            ),
        ),
        ("call %rd1, proto", (Register("%rd1"), LabelRef("proto"))),
        ("call f, ()", (SymbolRef("f"), RegisterList(()))),
    ],
)
def test_every_form_of_call(text: str, expected: tuple[Operand, ...]) -> None:
    assert instruction(f"{text};").operands == expected


def test_scopes_have_their_own_registers_and_labels() -> None:
    outer = ".reg .b32 r; { .reg .b32 s; .param .b32 r; LOOP: mov.b32 s, r; bra LOOP; } mov.b32 r, s;"
    _, scope, after = body(outer)
    assert isinstance(scope, Scope)
    assert isinstance(scope.body[3], Instruction)
    assert scope.body[3].operands == (Register("s"), SymbolRef("r"))
    assert isinstance(after, Instruction)
    assert after.operands == (Register("r"), SymbolRef("s"))


# -- operands ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5", Immediate(5)),
        ("-5", Immediate(-5)),
        ("5U", Immediate(5, True)),
        ("0x1f", Immediate(31)),
        ("0XFFU", Immediate(255, True)),
        ("017", Immediate(15)),
        ("0b101", Immediate(5)),
        ("0", Immediate(0)),
        ("-9223372036854775808", Immediate(-(1 << 63))),
        ("18446744073709551615", Immediate((1 << 64) - 1)),
        ("WARP_SZ", Immediate(32)),
        ("0f3F800000", FloatLiteral(0x3F800000, 32)),
        ("-0f3F800000", FloatLiteral(0xBF800000, 32)),
        ("0d3FF0000000000000", FloatLiteral(0x3FF0000000000000, 64)),
        ("1.0", FloatLiteral(0x3FF0000000000000, 64)),
        ("1e0", FloatLiteral(0x3FF0000000000000, 64)),
        ("2.", FloatLiteral(0x4000000000000000, 64)),
    ],
)
def test_every_form_of_constant(text: str, expected: Operand) -> None:
    assert operand(text) == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1+2*3", 7),
        ("(1+2)*3", 9),
        ("10-4-3", 3),
        ("-7/2", -3),
        ("-7 % 2", -1),
        ("1<<4|3", 19),
        ("~0", -1),
        ("!5 + !0", 1),
        ("3 > 2 && 2 >= 2 ? 10 : 20", 10),
        ("1 == 2 || 0 != 0 ? 10 : 20", 20),
        ("6 & 3 ^ 1", 3),
        ("5 ^ 6 | 8", 11),
        ("(.s64) 0xFFFFFFFFFFFFFFFF", -1),
        ("WARP_SZ - 1", 31),
        ("-1 >> 60", -1),
    ],
)
def test_constant_expressions_are_folded_as_64_bit_integers(text: str, value: int) -> None:
    assert operand(text) == Immediate(value)


def test_unsigned_constants_wrap() -> None:
    assert operand("-(5U)") == Immediate((1 << 64) - 5, True)
    assert operand("(.u64) -1") == Immediate((1 << 64) - 1, True)
    assert operand("-1 > 0U") == Immediate(1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[%rd1]", Address(Register("%rd1"))),
        ("[%rd1+4]", Address(Register("%rd1"), 4)),
        ("[%rd1 + -4]", Address(Register("%rd1"), -4)),
        ("[%rd1-4]", Address(Register("%rd1"), -4)),
        ("[%rd1+2*8]", Address(Register("%rd1"), 16)),
        ("[table]", Address(SymbolRef("table"))),
        ("[table+0]", Address(SymbolRef("table"))),
        ("[240]", Address(None, 240)),
        ("[table].unified", Address(SymbolRef("table"), unified=True)),
        (
            "[t, {%f1, %f2}]",
            Address(SymbolRef("t"), coords=(VectorOperand((Register("%f1"), Register("%f2"))),)),
        ),
        ("[%rd1, s, {%f1}]", Address(Register("%rd1"), 0, (SymbolRef("s"), VectorOperand((Register("%f1"),))))),
        ("{%r1, 2, _}", VectorOperand((Register("%r1"), Immediate(2), Register("_")))),
        ("{}", VectorOperand(())),
        ("%p1|%p2", PairOperand(Register("%p1"), Register("%p2"))),
        ("_|!%p2", PairOperand(Register("_"), Negated(Register("%p2")))),
        ("!%p1", Negated(Register("%p1"))),
        ("symbol+4", SymbolRef("symbol", 4)),
        ("%tid.x", Register("%tid.x")),
        ("%clock64", Register("%clock64")),
        ("%tid", Register("%tid")),
    ],
)
def test_every_form_of_operand(text: str, expected: Operand) -> None:
    assert operand(text) == expected


def test_declared_register_without_percent_is_a_register() -> None:
    assert operand("lo", ".global .u32 hi;") == SymbolRef("lo")
    assert instruction(".reg .b32 lo; mov.b32 lo, lo;").operands == (Register("lo"), Register("lo"))
    assert instruction(".reg .b32 r<3>; mov.b32 r2, r3;").operands == (Register("r2"), SymbolRef("r3"))
    assert instruction(".reg .b32 r1<3>; mov.b32 r12, r2;").operands == (Register("r12"), SymbolRef("r2"))


def test_declared_variable_with_percent_is_a_symbol() -> None:
    assert instruction(".local .b32 %slot; mov.u64 %rd1, %slot;").operands[1] == SymbolRef("%slot")


def test_components_of_declared_registers_are_components() -> None:
    assert instruction(".reg .v4 .f32 %v; mov.f32 %f1, %v.x;").operands[1] == ComponentOperand(Register("%v"), "x")


def test_elements_of_an_array_become_byte_offsets() -> None:
    array = ".global .u32 a[4];"
    assert operand("a[2]", array) == SymbolRef("a", 8)
    assert instruction("ld.global.u32 %r1, a[3];", array).operands[1] == Address(SymbolRef("a"), 12)


# -- whole texts ------------------------------------------------------------------------------------------

TRITON = """//
// Generated by LLVM NVPTX Back-End
//
.version 8.8
.target sm_80
.address_size 64

	// .globl	add_kernel              // -- Begin function add_kernel
.extern .shared .align 16 .b8 global_smem[];
                                        // @add_kernel
.visible .entry add_kernel(
	.param .u64 .ptr .global .align 1 add_kernel_param_0,
	.param .u64 .ptr .global .align 1 add_kernel_param_1,
	.param .u32 add_kernel_param_2
)
.reqntid 128
{
	.reg .pred 	%p<3>;
	.reg .b32 	%r<12>;
	.reg .b64 	%rd<6>;
	.loc	1 5 0
$L__func_begin0:
	.loc	1 5 0
// %bb.0:
	ld.param.b64 	%rd3, [add_kernel_param_0];
	ld.param.b64 	%rd4, [add_kernel_param_1];
$L__tmp0:
	mov.u32 %r1, %ctaid.x;
	mov.u32 %r2, %tid.x;
	shl.b32 %r3, %r1, 7;
	bfe.u32 %r4, %r2, 0, 5;
	or.b32 %r5, %r3, %r4;
	ld.param.b32 %r6, [add_kernel_param_2];
	setp.lt.s32 %p1, %r5, %r6;
	mul.wide.s32 %rd5, %r5, 4;
	add.s64 %rd1, %rd3, %rd5;
	add.s64 %rd2, %rd4, %rd5;
	// begin inline asm
	mov.u32 %r7, 0x0;
	@%p1 ld.global.b32 { %r7 }, [ %rd1 + 0 ];
	// end inline asm
	div.full.f32 %r8, %r7, 0f40000000;
	// begin inline asm
	{ .reg .b16 lo, hi; mov.b32 {lo, hi}, %r8; mov.b32 %r9, {hi, lo}; }
	// end inline asm
	@%p1 st.global.b32 [ %rd2 + 0 ], { %r9 };
	.loc	1 20 4, function_name $L__info_string0, inlined_at 1 20 4
	ret;
$L__tmp1:
$L__func_end0:
}
	.file	1 "/kernels/add.py"
	.section	.debug_abbrev
	{
.b8 1                                   // Abbreviation Code
.b8 17                                  // DW_TAG_compile_unit
	}
	.section	.debug_macinfo	{	}
"""


def test_triton_output_is_parsed() -> None:
    module = parse(TRITON, name="add_kernel.ptx")
    (entry,) = module.entries
    assert entry.directives == (("reqntid", ("128",)),)
    assert [i.name for i in module.items if isinstance(i, Directive)] == ["file", "section", "section"]


def test_parsing_is_fast_enough_for_whole_programs() -> None:
    lines = "\tfma.rn.f32 %f1, %f2, %f3, %f1;\n\tst.global.f32 [%rd1+4], %f1;\n" * 5_000
    text = HEAD + ".entry k() {\n" + lines + "}\n"
    start = time.process_time()
    parse(text)
    assert 10_000 / (time.process_time() - start) > 10_000, "fewer than 10,000 lines per second"
