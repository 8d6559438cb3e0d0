"""Validation of instructions: constructs that no assembler accepts are refused with line and caret before they are
used.
"""

from __future__ import annotations

from cujit.arch.support import dotted
from cujit.errors import alike
from cujit.formats.ptx.declared import declaration_mistakes
from cujit.formats.ptx.isa.later import removed_of
from cujit.formats.ptx.isa.table import InstructionRow, lookup, rows
from cujit.formats.ptx.syntax import Function, Instruction, PtxModule, instructions
from cujit.formats.ptx.tokens import fail_at_construct
from cujit.formats.ptx.uses import construct_needs, target_number
from cujit.formats.ptx.versions import check_head, declared_target, is_known_version, target_version

_SHOWN_FORMS = 3
# The most numbers that a directive of a function takes, none of them 0 (the parser asks more of two).
# Source: PTX ISA manual 9.1, 11.3 to 11.8; ptxas 13.0 and nvJitLink 13.5.
_NUMBERS = {
    "maxntid": 3, "reqntid": 3, "reqnctapercluster": 3, "minnctapersm": 1, "maxnctapersm": 1, "maxnreg": 1,
    "maxclusterrank": 1, "abi_preserve": 1, "abi_preserve_control": 1, "noreturn": 0, "explicitcluster": 0,
    "blocksareclusters": 0, "language": 1, "minperctamemory": 1,
}  # fmt: skip
_POSITIVE = frozenset({"minnctapersm", "maxnctapersm", "maxnreg"})
_HIGHEST = {"language": 10}


def check_module(module: PtxModule, text: str, name: str) -> None:
    """Check that a module says what an assembler takes, as far as single words tell; it was parsed from ``text``.

    Of a module of a newer ISA than the table, but of the same major version, nothing else is looked at.

    Raises:
        PtxSyntaxError: its version, its target, a directive or an instruction is none, or is of a later version or
            architecture than it declares; ``name`` stands for the file.
    """
    check_head(module, text, name)
    if not is_known_version(module):
        return
    for mistake in declaration_mistakes(module):
        fail_at_construct(text, name, *mistake)
    for function in module.functions:
        _check_directives(function, text, name)
        for i in instructions(function.body):
            if lookup(i) is None:
                fail_at_construct(text, name, i.line, i.name, _why(i), help=_forms_like(i))
            gone = removed_of(i.opcode, i.modifiers)
            if gone is not None and module.version >= gone.ptx and target_number(module) >= gone.sm:
                fail_at_construct(text, name, i.line, i.name, f"{i.name} is gone since PTX {dotted(gone.ptx)}")
    _check_needs(module, text, name)


def _check_needs(module: PtxModule, text: str, name: str) -> None:
    """Check that the used constructs exist in the declared version and architecture."""
    target, arch = module.target[0], declared_target(module)
    since = target_version(arch) if arch is not None else None
    if since is not None and since > module.version:
        why = f"{target} came with PTX {dotted(since)}, and this is a text of {dotted(module.version)}"
        fail_at_construct(text, name, 1, ".target", why, help=f"declare .version {dotted(since)}, or an older target")
    own = target.removeprefix("sm_")
    for need in construct_needs(module):
        first, known = need.since.of(own), f"{need.construct} came with"
        wanted = need.ptx if first is None else first
        if need.is_known and wanted > module.version:
            why = f"{known} PTX {dotted(wanted)}, and this is a text of {dotted(module.version)}"
            help = f"write .version {dotted(wanted)}, or what came before it"
            fail_at_construct(text, name, need.line, need.construct, why, help=help)
        if need.is_known and first is None:
            near = need.since.nearest(own, module.version)
            why = f"{known} sm_{near}, and this is a text for {target}"
            help = f"write .target sm_{near}{', or a later one' * near.isdigit()}"
            fail_at_construct(text, name, need.line, need.construct, why, help=help)


def _check_directives(function: Function, text: str, name: str) -> None:
    """Check the numbers of ``.maxntid`` and its like."""
    for directive, values in function.directives:
        if directive == "pragma":
            continue
        why, most = "", _NUMBERS.get(directive)
        if most is None:
            why = f"functions have no directive '.{directive[:60]}'"
        elif (most == 0) != (not values) or len(values) > most:
            why = f".{directive} takes {f'1 to {most}' if most > 1 else most or 'no'} number{'s' * (most != 1)}"
        elif not all(0 <= int(value) < 1 << 32 for value in values):
            why = f".{directive} takes numbers of 32 bits"
        elif directive in _POSITIVE and "0" in values:
            why = f".{directive} takes numbers from 1 on"
        elif any(int(value) > _HIGHEST.get(directive, 1 << 32) for value in values):
            why = f".{directive} takes numbers up to {_HIGHEST[directive]}"
        if why:
            fail_at_construct(text, name, function.line, f".{directive}", why)


def _why(i: Instruction) -> str:
    """Describe the error in the mnemonic."""
    forms = _rows_of(i.opcode)
    if not forms:
        return f"PTX has no instruction {i.opcode[:60]!r}"
    words = {choice for row in forms for place in row.modifiers for choice in place.choices}
    strange = next((word for word in i.modifiers if word not in words), None)
    if strange is not None:
        return f"{i.opcode} has no modifier '.{strange[:60]}'"
    return f"{i.name[:120]} is not a form of {i.opcode}"


def _forms_like(i: Instruction) -> str:
    """Name the instruction that was meant, or the forms that have most in common."""
    forms = _rows_of(i.opcode)
    if not forms:
        close = alike(i.opcode, {row.opcode for row in rows()}, most=1)
        return f"{close[0]} is one" if close else "the instructions are listed in docs/instructions.md"
    given = set(i.modifiers)
    common = sorted(forms, key=lambda row: -sum(not place.choices.isdisjoint(given) for place in row.modifiers))
    shown = "; ".join(row.form for row in common[:_SHOWN_FORMS])
    return f"its forms are {shown}" + (" …" if len(forms) > _SHOWN_FORMS else "")


def _rows_of(opcode: str) -> list[InstructionRow]:
    return [row for row in rows() if row.opcode == opcode]
