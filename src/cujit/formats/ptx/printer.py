"""Printer of a ``PtxModule`` as PTX text, in the layout of NVIDIA's compilers.

The parser returns an equal module for the text, and ptxas generates the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from cujit.errors import FormatError, spell
from cujit.formats.ptx import syntax as ptx


def print_module(module: ptx.PtxModule) -> str:
    """Write ``module`` as PTX text that ``parser.parse`` reads back to an equal value.

    Raises:
        FormatError: a value in it has no spelling in PTX, such as an integer of more than 64 bits.
    """
    major, minor = module.version
    lines = [f".version {major}.{minor}", f".target {', '.join(module.target)}"]
    lines += [f".address_size {module.address_size}", ""]
    for item in module.items:
        if isinstance(item, ptx.Function):
            lines += _function(item)
        else:
            lines.append(_statement(item))
    return "\n".join(lines) + "\n"


# -- functions --------------------------------------------------------------------------------------------


def _function(function: ptx.Function) -> Iterable[str]:
    linkage = f".{function.linkage} " if function.linkage else ""
    words = [f"{linkage}.{'entry' if function.is_entry else 'func'}"]
    words += [f".attribute({_attributes(function.attributes)})"] if function.attributes else []
    words += [_parameters(function.results)] if function.results else []
    yield " ".join((*words, f"{function.name}("))
    if function.parameters:
        yield ",\n".join(f"\t{_declaration(parameter)}" for parameter in function.parameters)
    yield ")"
    for name, arguments in function.directives:
        yield f".{name} {', '.join(arguments)}".rstrip() + (";" if name == "pragma" else "")
    if function.body is None:
        yield ";"
        return
    yield "{"
    yield from _block(function.body, "\t")
    yield "}"


def _block(body: Iterable[ptx.Statement], indent: str) -> Iterable[str]:
    for statement in body:
        if isinstance(statement, ptx.Scope):
            yield indent + "{"
            yield from _block(statement.body, indent + "\t")
            yield indent + "}"
        elif isinstance(statement, ptx.Label):
            yield f"{statement.name}:"
        else:
            yield indent + _statement(statement)


def _statement(statement: ptx.Statement) -> str:
    return _STATEMENTS[type(statement)](statement)


def print_instruction(instruction: ptx.Instruction) -> str:
    """Write one instruction with its predicate and its ``;``."""
    predicate = f"{_predicate(instruction.predicate)} " if instruction.predicate else ""
    operands = f" {_listed(instruction.operands)}" if instruction.operands else ""
    return f"{predicate}{instruction.name}{operands};"


def _predicate(predicate: ptx.Predicate) -> str:
    return f"@{'!' if predicate.negated else ''}{predicate.register}"


def _register_declaration(declared: ptx.RegisterDecl) -> str:
    vector = f".v{declared.vector} " if declared.vector > 1 else ""
    names = (name if count is None else f"{name}<{count}>" for name, count in declared.names)
    return f".reg {vector}.{declared.type} {', '.join(names)};"


def _location(location: ptx.Location) -> str:
    rest = f", {location.rest}" if location.rest else ""
    return f".loc {location.file} {location.source_line} {location.column}{rest}"


def _directive(directive: ptx.Directive) -> str:
    name, arguments = directive.name, directive.arguments
    if name == "section":
        section, body = arguments
        return f".section {section} {{{body}}}"
    if name == "nv_intermediate_source_section":
        return f".{name} {{{arguments[0]}}}"
    if name == "file":
        number, *rest = arguments
        return f".file {number} {', '.join(rest)}"
    if name == "@@DWARF":
        return f"@@DWARF {arguments[0]}".rstrip()
    end = "" if name in ("target", "loc_intermediate") else ";"
    return f".{name} {', '.join(arguments)}{end}"


def _targets(targets: ptx.BranchTargets) -> str:
    return f"{targets.name}: .{targets.kind} {', '.join(targets.targets)};"


def _prototype(prototype: ptx.CallPrototype) -> str:
    results = f"{_parameters(prototype.results)} " if prototype.results else ""
    flags = "".join(f" .{flag}" for flag in prototype.flags)
    return f"{prototype.name}: .callprototype {results}_ {_parameters(prototype.parameters)}{flags};"


def _parameters(parameters: Iterable[ptx.Variable]) -> str:
    return f"({', '.join(map(_declaration, parameters))})"


# -- variables --------------------------------------------------------------------------------------------


def _variable(variable: ptx.Variable) -> str:
    initial = "" if variable.initializer is None else f" = {print_operand(variable.initializer)}"
    return f"{_declaration(variable)}{initial};"


def _declaration(variable: ptx.Variable) -> str:
    words = [f".{variable.linkage}"] if variable.linkage else []
    words.append(f".{variable.space}")
    if variable.attributes:
        words.append(f".attribute({_attributes(variable.attributes)})")
    if variable.align is not None:
        words.append(f".align {variable.align}")
    if variable.vector > 1:
        words.append(f".v{variable.vector}")
    words.append(f".{variable.type}")
    if variable.is_ptr:
        words += [".ptr"] + [f".{variable.ptr_space}"] * bool(variable.ptr_space)
        words += [f".align {variable.ptr_align}"] * (variable.ptr_align is not None)
    words.append(variable.name + "".join(f"[{size or ''}]" for size in variable.shape))
    return " ".join(words)


def _attributes(attributes: Iterable[str]) -> str:
    return ", ".join(f".{attribute}" for attribute in attributes)


# -- operands and initial values --------------------------------------------------------------------------


def print_operand(operand: ptx.Operand | ptx.Initializer | ptx.Generic | ptx.Property) -> str:
    """Write one operand, or one initial value.

    Raises:
        FormatError: it has no spelling in PTX.
    """
    return _OPERANDS[type(operand)](operand)


def _listed(items: Iterable[ptx.Operand | ptx.Initializer | ptx.Generic | ptx.Property]) -> str:
    return ", ".join([_OPERANDS[type(item)](item) for item in items])


def _immediate(immediate: ptx.Immediate) -> str:
    value = immediate.value
    if not -(1 << 63) <= value < 1 << 64 or (value < 0 and immediate.unsigned):
        raise FormatError(f"PTX can't represent the constant {value}", help="use a constant of at most 64 bits")
    return f"{value}{'U' if immediate.unsigned else ''}"


def _float(literal: ptx.FloatLiteral) -> str:
    if literal.width not in (32, 64) or not 0 <= literal.bits < 1 << literal.width:
        raise FormatError(
            f"{spell(literal)} is not a valid PTX constant", help="use a width of 32 or 64, and bits that fit"
        )
    return f"0f{literal.bits:08X}" if literal.width == 32 else f"0d{literal.bits:016X}"


def _symbol(symbol: ptx.SymbolRef) -> str:
    return symbol.name + _offset(symbol.offset)


def _offset(offset: int) -> str:
    return f"+{offset}" if offset else ""  # ptxas reads name+-4, but not name-4.


def _address(address: ptx.Address) -> str:
    base = address.base
    place = str(address.offset) if base is None else base.name + _offset(address.offset)
    if isinstance(base, ptx.SymbolRef) and base.offset:
        raise FormatError(f"{spell(address)} is not a valid PTX address", help="add the offset to the address")
    coordinates = "".join(f", {print_operand(item)}" for item in address.coords)
    return f"[{place}{coordinates}]{'.unified' if address.unified else ''}"


def _generic(item: ptx.Generic) -> str:
    symbol = item.symbol
    name = f"generic({symbol.name})" if item.generic else symbol.name
    place = name + _offset(symbol.offset)
    return place if item.mask is None else f"0x{item.mask:X}({place})"


_OPERANDS: dict[type, Callable[[Any], str]] = {
    ptx.Register: lambda item: item.name,
    ptx.SymbolRef: _symbol,
    ptx.LabelRef: lambda item: item.name,
    ptx.Immediate: _immediate,
    ptx.FloatLiteral: _float,
    ptx.Address: _address,
    ptx.VectorOperand: lambda item: f"{{{_listed(item.items)}}}",
    ptx.RegisterList: lambda item: f"({_listed(item.items)})",
    ptx.Minus: lambda item: f"-{print_operand(item.item)}",
    ptx.Negated: lambda item: f"!{print_operand(item.item)}",
    ptx.PairOperand: lambda item: f"{print_operand(item.first)}|{print_operand(item.second)}",
    ptx.ComponentOperand: lambda item: f"{item.base.name}.{item.component}",
    ptx.RegisterSum: lambda item: f"{item.base.name}+{item.offset}",
    ptx.Initializer: lambda item: f"{{{_listed(item.items)}}}",
    ptx.Generic: _generic,
    ptx.Property: lambda item: f"{item.name} = {item.value}",
}
_STATEMENTS: dict[type, Callable[[Any], str]] = {
    ptx.Instruction: print_instruction,
    ptx.RegisterDecl: _register_declaration,
    ptx.Variable: _variable,
    ptx.Location: _location,
    ptx.Directive: _directive,
    ptx.BranchTargets: _targets,
    ptx.CallPrototype: _prototype,
}
