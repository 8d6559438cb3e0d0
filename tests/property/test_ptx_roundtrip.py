"""Any module that PTX can say is the same after printing and reading."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.printer import print_module
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
    Instruction,
    Label,
    LabelRef,
    Location,
    Negated,
    PairOperand,
    Predicate,
    Property,
    PtxModule,
    Register,
    RegisterDecl,
    RegisterList,
    Scope,
    SymbolRef,
    Variable,
    VectorOperand,
)

# Names of one kind never look like those of another, so that reading does not depend on declarations.
plain = st.from_regex(r"[a-z$][a-zA-Z0-9_$]{0,6}", fullmatch=True).filter(lambda name: name != "generic")
symbols = plain.map(lambda name: "s_" + name)
labels = plain.map(lambda name: "$L_" + name)
registers = st.from_regex(r"%[a-z]{1,2}[0-9]{0,3}", fullmatch=True)
offsets = st.integers(-(1 << 40), 1 << 40)
small = st.integers(0, 1000)
strings = st.text(st.characters(codec="utf-8", exclude_characters='"\\\n\r\0'), max_size=8).map('"{}"'.format)

integers = st.integers(-(1 << 63), (1 << 64) - 1).map(Immediate) | st.integers(0, (1 << 64) - 1).map(
    lambda value: Immediate(value, True)
)
floats = st.integers(0, (1 << 32) - 1).map(lambda bits: FloatLiteral(bits, 32)) | st.integers(0, (1 << 64) - 1).map(
    lambda bits: FloatLiteral(bits, 64)
)
register = st.sampled_from(["%r1", "%tid.x", "_", "%clock64"]).map(Register) | registers.map(Register)
symbol = st.builds(SymbolRef, symbols, offsets)
component = st.sampled_from("xyzw").map(lambda name: ComponentOperand(Register("%vec"), name))
scalar = register | integers | floats | symbol | component
vector = st.lists(scalar, max_size=4).map(lambda items: VectorOperand(tuple(items)))
address = st.builds(
    Address,
    register | symbols.map(SymbolRef) | st.none(),
    offsets,
    st.lists(vector | register, max_size=2).map(tuple),
    st.booleans(),
)
operand = (
    scalar
    | vector
    | address
    | register.map(Negated)
    | st.builds(PairOperand, register | vector, register | register.map(Negated))
)
words = st.sampled_from(["b32", "global", "shared::cta", "2d", "v4", "rn", "L1::evict_last", "f64"])
predicates = st.none() | st.builds(Predicate, registers, st.booleans())
opcodes = st.sampled_from(["mov", "add", "tex", "cvt", "vadd4", "mma"])
calls = st.builds(
    lambda results, name, arguments, prototype: Instruction("call", ("uni",), (*results, name, *arguments, *prototype)),
    st.lists(st.lists(scalar, max_size=2).map(lambda items: RegisterList(tuple(items))), max_size=1),
    symbols.map(SymbolRef) | registers.map(Register),
    st.lists(st.lists(scalar, max_size=3).map(lambda items: RegisterList(tuple(items))), max_size=1),
    st.lists(labels.map(LabelRef), max_size=1),
)
instructions = (
    st.builds(
        Instruction,
        opcodes,
        st.lists(words, max_size=4).map(tuple),
        st.lists(operand, max_size=4).map(tuple),
        predicates,
    )
    | st.builds(lambda label, p: Instruction("bra", (), (LabelRef(label),), p), labels, predicates)
    | calls
)

scalar_types = st.sampled_from(["b8", "u16", "s32", "b64", "f32", "f64", "b128"])
aligns = st.none() | st.integers(0, 7).map(lambda power: 1 << power)
vectors = st.sampled_from([1, 2, 4])
shapes = st.lists(small, max_size=3).map(tuple)
init_items = (
    integers
    | floats
    | symbol
    | st.builds(Generic, symbol, st.just(True), st.none())
    | st.builds(Generic, symbol, st.booleans(), st.integers(0, (1 << 64) - 1))
    | st.builds(Property, plain, plain)
)
initializers = st.recursive(
    init_items, lambda inner: st.lists(inner, max_size=3).map(lambda items: Initializer(tuple(items))), max_leaves=6
)
attributes = st.lists(st.sampled_from(["managed", "unified(1, 2)"]), max_size=2, unique=True).map(tuple)
variables = st.builds(
    Variable,
    st.sampled_from(["global", "const", "shared", "local", "param"]),
    scalar_types,
    symbols,
    shapes,
    aligns,
    vectors,
    st.just(""),
    st.none() | initializers,
    st.just(False),
    st.just(""),
    st.none(),
    attributes,
).filter(lambda variable: variable.initializer is None or variable.shape[:1] != (0,))  # [] = {…} takes its extent
parameters = st.builds(
    lambda kind, name, shape, align: Variable("param", kind, name, shape, align), scalar_types, symbols, shapes, aligns
) | st.builds(
    lambda name, space, align: Variable("param", "u64", name, is_ptr=True, ptr_space=space, ptr_align=align),
    symbols,
    st.sampled_from(["", "global", "shared"]),
    aligns,
)
parameter_lists = st.lists(parameters, max_size=3).map(tuple)
locations = st.builds(Location, small, small, small, st.sampled_from(["", "function_name $L__s+4, inlined_at 1 2 3"]))
pragmas = st.lists(strings, min_size=1, max_size=2).map(lambda args: Directive("pragma", tuple(args)))
targets = st.builds(
    BranchTargets,
    labels,
    st.lists(labels, min_size=1, max_size=3).map(tuple),
    st.sampled_from(["branchtargets", "calltargets"]),
)
prototypes = st.builds(
    CallPrototype,
    labels,
    parameter_lists,
    parameter_lists,
    st.lists(st.sampled_from(["noreturn", "abi_preserve 8"]), max_size=2).map(tuple),
)
declarations = st.builds(
    RegisterDecl,
    scalar_types | st.just("pred"),
    st.lists(st.tuples(registers, st.none() | small), min_size=1, max_size=3)
    .filter(lambda names: all(not name.startswith("%ve") for name, _ in names))
    .map(tuple),
    vectors,
)
simple = instructions | labels.map(Label) | variables | locations | pragmas | targets | prototypes | declarations
statements = st.recursive(
    simple, lambda inner: st.lists(inner, max_size=4).map(lambda body: Scope(tuple(body))), max_leaves=10
)
vector_register = RegisterDecl("b32", (("%vec", None),), 4)
bodies = st.lists(statements, max_size=6).map(lambda body: (vector_register, *body))
directives = st.lists(
    st.sampled_from([("maxntid", ("256", "1", "1")), ("noreturn", ()), ("maxnreg", ("64",)), ("pragma", ('"x"',))]),
    max_size=3,
).map(tuple)
linkages = st.sampled_from(["", "extern", "visible", "weak"])
functions = st.builds(
    lambda results, is_entry, *rest: Function(rest[0], is_entry, rest[1], () if is_entry else results, *rest[2:]),
    parameter_lists,
    st.booleans(),
    symbols,
    parameter_lists,
    st.none() | bodies,
    linkages,
    directives,
    attributes,
)
items = (
    functions
    | variables
    | locations
    | pragmas
    | st.builds(lambda new, old: Directive("alias", (new, old)), symbols, symbols)
    | st.builds(lambda number, name: Directive("file", (str(number), name)), small, strings)
    | st.sampled_from(["", "\n.b8 1, 2\n", " $L: .b64 x+4 // y\n"]).map(
        lambda body: Directive("section", (".debug_info", body))
    )
)
modules = st.builds(
    PtxModule,
    st.tuples(st.integers(0, 99), st.integers(0, 99)),
    st.lists(st.sampled_from(["sm_90a", "debug", "texmode_independent"]), min_size=1, max_size=2).map(tuple),
    st.sampled_from([32, 64]),
    st.lists(items, max_size=5).map(tuple),
)


@settings(max_examples=200)
@given(modules)
def test_module_is_equal_after_printing_and_reading(module: PtxModule) -> None:
    assert parse(print_module(module)) == module
