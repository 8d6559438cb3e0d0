"""Several PTX modules as one: what nvJitLink does for machine code, done to PTX, for those who want PTX back.

Names that a module keeps for itself are renamed where another has the same; externs meet their definitions; weak and
common definitions become one; what is in the way is said all at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from cujit.arch import Arch, ArchKind
from cujit.arch.support import Version
from cujit.errors import LinkError
from cujit.errors.hints import Hint
from cujit.formats.mangling import spelled
from cujit.formats.ptx import syntax as ptx
from cujit.formats.ptx.debug_merge import DebugData, Labels
from cujit.formats.ptx.obstacles import obstacles
from cujit.formats.ptx.parameters import alignment
from cujit.formats.ptx.renaming import Renaming, labels_of
from cujit.formats.ptx.resolving import Complaint, Symbol, is_of_nvidia, resolve, symbols_of, variable_bytes
from cujit.formats.ptx.versions import declared_target, target_version
from cujit.values import NamedTuple, dataclass, replace

_SHOWN = 24
_CONSTANT_BYTES = 65_536  # Source: PTX ISA 9.1, 5.1.3 "Constant State Space"; nvJitLink refuses one byte more.


class Input(NamedTuple):
    """A module and what messages call it."""

    name: str
    module: ptx.PtxModule


@dataclass(frozen=True)
class Linked:
    """One module of several; ``renamed`` tells for each input what its own names are called now; ``notes`` are lines
    for people.
    """

    module: ptx.PtxModule
    renamed: tuple[Mapping[str, str], ...]
    notes: tuple[str, ...]


def link_modules(inputs: Sequence[Input], target: Arch | None = None) -> Linked:
    """Link PTX modules into one, for ``target`` or else for the highest of their targets.

    Raises:
        LinkError: names do not resolve, or the modules do not go together; the message has every reason with input
            and line.
    """
    return _Link(inputs).run(target)


def check_agreement(inputs: Sequence[Input]) -> None:
    """Refuse modules that define a name twice, or take one name for different things, as far as they alone tell.

    Raises:
        LinkError: they do; the message has every reason.
    """
    _Link(inputs).refuse()


class _Link:
    """One link: the tables of all inputs, what each name means, and what was found on the way."""

    def __init__(self, inputs: Sequence[Input]) -> None:
        self._inputs = inputs
        self._complaints: list[Complaint] = []
        self._tables = [symbols_of(m, index, self._complaints) for index, (_, m) in enumerate(inputs)]
        self._resolution = resolve(self._tables, [name for name, _ in inputs])
        self._notes: list[str] = []

    def run(self, target: Arch | None) -> Linked:
        """Do it all."""
        labels = [Labels.of(module) for _, module in self._inputs]
        names = _new_names(self._tables, labels)
        debug = DebugData()
        renamings = [
            Renaming(frozenset(table), symbols, label_names, debug.files_of(item.module))
            for table, (symbols, label_names), item in zip(self._tables, names, self._inputs, strict=True)
        ]
        kept = [self._kept(index, renaming) for index, renaming in enumerate(renamings)]
        aliases = self._aliases(renamings)
        head = self._head(target)
        self._unresolved(renamings)
        self._constants(kept)
        self.refuse()
        for number, (renaming, (name, module)) in enumerate(zip(renamings, self._inputs, strict=True), start=1):
            self._notes += [f"{name}: {note}" for note in debug.add(module, renaming, number)]
        lost = self._lost_labels(renamings, labels)
        declared = [*self._externs(renamings), *aliases]
        items = _ordered([_with_labels(item, lost) for group in kept for item in group], declared)
        made = replace(head, items=(*debug.files(), *items, *debug.sections()))
        for (name, _), (symbols, _) in zip(self._inputs, names, strict=True):
            self._notes += [f"{name}: {spelled(old)} of its own is {new} here" for old, new in symbols.items()]
        return Linked(made, tuple(symbols for symbols, _ in names), tuple(self._notes))

    def _lost_labels(self, renamings: Sequence[Renaming], labels: Sequence[Labels]) -> dict[str, list[str]]:
        """The labels that debug data tell of in functions that are left out, by the name of the function."""
        lost: dict[str, list[str]] = {}
        for index, (renaming, own) in enumerate(zip(renamings, labels, strict=True)):
            for function in self._inputs[index].module.functions:
                if function.body is not None and not self._is_kept(function, index):
                    debugged = (label for label in labels_of(function.body) if label in own.debugged)
                    lost.setdefault(function.name, []).extend(map(renaming.label, debugged))
        return lost

    # -- what stays -----------------------------------------------------------------------------------------

    def _kept(self, index: int, renaming: Renaming) -> list[ptx.ModuleItem]:
        """The definitions of one input that stay, renamed, with the directives between them."""
        found: list[ptx.ModuleItem] = []
        for item in self._inputs[index].module.items:
            if isinstance(item, (ptx.Function, ptx.Variable)):
                if not self._is_kept(item, index):
                    continue
                linkage = self._tables[index][item.name].linkage
                found.append(
                    replace(renaming.function(item), linkage=linkage)
                    if isinstance(item, ptx.Function)
                    else replace(renaming.variable(item), linkage=linkage)
                )
            elif isinstance(item, ptx.Location):
                found.append(renaming.location(item))
            elif item.name == "pragma":
                found.append(item)
        return found

    def _is_kept(self, item: ptx.Function | ptx.Variable, index: int) -> bool:
        """Return whether an item is the definition that its name refers to."""
        symbol = self._tables[index][item.name]
        if item is not symbol.defined:
            return False
        return symbol.is_private or self._resolution.chosen.get(item.name) is symbol

    def _aliases(self, renamings: Sequence[Renaming]) -> list[ptx.ModuleItem]:
        """The aliases that somebody uses, each with its prototype; nvJitLink 13.5 fails on one that nobody does."""
        heads: list[ptx.ModuleItem] = []
        found: list[ptx.ModuleItem] = []
        for table, renaming in zip(self._tables, renamings, strict=True):
            for symbol in table.values():
                users = [renaming] if symbol.is_private else renamings
                if symbol.alias is None or not any(symbol.name in user.used for user in users):
                    continue
                if symbol.is_private or self._resolution.chosen.get(symbol.name) is symbol:
                    own = [f for f in symbol.declared if isinstance(f, ptx.Function) and f.linkage != "extern"]
                    heads += map(renaming.function, own[:1])
                    there = tuple(renaming.symbol(name, symbol.line) for name in symbol.alias.arguments)
                    found.append(replace(symbol.alias, arguments=there))
        return [*heads, *found]

    def _externs(self, renamings: Sequence[Renaming]) -> list[ptx.ModuleItem]:
        """Declarations of what is used and the link leaves open: functions of the driver, dynamic shared memory."""
        found: dict[str, list[Symbol]] = {}
        for table, renaming in zip(self._tables, renamings, strict=True):
            for name, symbol in table.items():
                if not symbol.is_defined and name not in self._resolution.chosen and name in renaming.used:
                    found.setdefault(name, []).append(symbol)
        return [_widest([symbol.item for symbol in symbols]) for symbols in found.values()]

    # -- what is in the way ---------------------------------------------------------------------------------

    def _unresolved(self, renamings: Sequence[Renaming]) -> None:
        """Complain of every name that is used and defined nowhere."""
        for index, (table, renaming) in enumerate(zip(self._tables, renamings, strict=True)):
            for name, line in renaming.used.items():
                symbol = table[name]
                if symbol.is_defined or is_of_nvidia(name) or symbol.is_dynamic:
                    continue
                if symbol.item.linkage != "extern":
                    what = f"is declared in line {symbol.line} without .extern, and not defined in this module"
                    self._complaints.append(Complaint(index, line, f"{spelled(name)} {what}"))
                elif name not in self._resolution.chosen:
                    text = f"{spelled(name)} is used, and no input defines it{self._near(name)}"
                    self._complaints.append(Complaint(index, line, text))

    def _constants(self, kept: Sequence[Sequence[ptx.ModuleItem]]) -> None:
        """Complain of the variable that makes constants more than a program may have."""
        end = 0
        for index, items in enumerate(kept):
            for v in items:
                if isinstance(v, ptx.Variable) and v.space == "const":
                    before, end = end, -(-end // alignment(v)) * alignment(v) + variable_bytes(v)
                    if before <= _CONSTANT_BYTES < end:
                        text = (
                            f"{spelled(v.name)} brings the constants to {end:,} bytes, and {_CONSTANT_BYTES:,} may be"
                        )
                        self._complaints.append(Complaint(index, v.line, text))

    def _near(self, name: str) -> str:
        """Describe where a name is that a module keeps private."""
        for (where, _), table in zip(self._inputs, self._tables, strict=True):
            if name in table and table[name].is_private:
                return f"; {where}:{table[name].line} has one for itself, without .visible"
        return ""

    def refuse(self) -> None:
        """Raise all complaints so far as one error, if there are any.

        Raises:
            LinkError: there are.
        """
        found = sorted((*self._complaints, *self._resolution.complaints))
        if not found:
            return
        places = (f"{self._inputs[c.input].name}{f':{c.line}' if c.line else ''}" for c in found[:_SHOWN])
        lines = [f"  {place}: {c.text}" for place, c in zip(places, found, strict=False)]
        if len(found) > _SHOWN:
            lines.append(f"  … and {len(found) - _SHOWN} more")
        raise LinkError("\n".join(("can't link these modules:", *lines)), help=_help(found))

    # -- the head -------------------------------------------------------------------------------------------

    def _head(self, target: Arch | None) -> ptx.PtxModule:
        """The version, target and address size of the result; complain of modules that do not fit it.

        The version is the highest, and so is the target, with the ``a`` or ``f`` of any: code of every module has to
        run there, as code for an older architecture does, but not code for another ``a``, or an ``f`` of another
        family. Modes of textures have to be the same.
        """
        modules = [module for _, module in self._inputs]
        targets = [declared_target(module) for module in modules]
        wanted = target.virtual if target is not None else _highest(list(filter(None, targets)))
        version = max(module.version for module in modules)
        if wanted is not None:
            version = max(version, target_version(wanted) or version)
        for index, (module, declared) in enumerate(zip(modules, targets, strict=True)):
            found = [] if wanted is None else _unfit(module, declared, wanted, version)
            found += [(0, f"has {text} {self._inputs[0].name} {first}") for text, first in _unlike(module, modules[0])]
            self._complaints += (Complaint(index, line, text) for line, text in found)
        words = dict.fromkeys(word for module in modules for word in module.target[1:])
        first = str(wanted.real) if wanted is not None else modules[0].target[0]
        return ptx.PtxModule(version, (first, *words), modules[0].address_size)


def _unfit(module: ptx.PtxModule, declared: Arch | None, wanted: Arch, version: Version) -> list[tuple[int, str]]:
    """List by line why a module cannot be part of a link for ``wanted`` and that version."""
    if declared is not None and not declared.runs_on(wanted.real):
        return [(0, f"is for {declared.real}, which does not run on {wanted.real}, the target of the link")]
    there = obstacles(module, version, wanted if declared else None)
    return [(o.line, f"{o.construct} {o.why}") for o in there]


def _unlike(module: ptx.PtxModule, first: ptx.PtxModule) -> Iterator[tuple[str, str]]:
    """Yield each property that differs but must be the same in all modules: the module's and the first module's."""
    if module.address_size != first.address_size:
        yield f"addresses of {module.address_size} bits, and", f"{first.address_size} bits"
    if _texture_mode(module) != _texture_mode(first):
        yield f"the mode of textures {_texture_mode(module)}, and", _texture_mode(first)


def _highest(targets: Sequence[Arch]) -> Arch | None:
    if not targets:
        return None
    suffixes = {target.suffix for target in targets}
    suffix = next((suffix for suffix in ("a", "f") if suffix in suffixes), "")
    return Arch(ArchKind.VIRTUAL, max(target.number for target in targets), suffix)


def _texture_mode(module: ptx.PtxModule) -> str:
    """Source: PTX ISA 9.1, ".target": unified where nothing is said."""
    return next((word for word in module.target if word.startswith("texmode_")), "texmode_unified")


def _help(complaints: Collection[Complaint]) -> str | None:
    if any("no input defines it" in c.text for c in complaints):
        return Hint(
            "add the module that defines it, and compile code to be linked with rdc=True",
            shell="add the module that defines it, and compile code to be linked with -O rdc",
        )
    if any("is defined again" in c.text for c in complaints):
        return "make one of them static or inline, or remove one module"
    return None


# -- names ------------------------------------------------------------------------------------------------


def _new_names(
    tables: Sequence[Mapping[str, Symbol]], labels: Sequence[Labels]
) -> list[tuple[dict[str, str], dict[str, str]]]:
    """New names for what modules keep to themselves and share the name of, and for labels.

    The first module that has a name keeps it, unless modules share a symbol of that name. A label changes where it
    is called as another module's symbol, or where debug data tell of it and of another module's label of that name.
    """
    owners = Counter(name for table in tables for name in table)
    taken = {*owners, *(label for own in labels for label in own.all)}
    given = {name for table in tables for name, symbol in table.items() if not symbol.is_private}
    debugged: set[str] = set()
    found = []
    for number, (table, own) in enumerate(zip(tables, labels, strict=True), start=1):
        private = [name for name, symbol in table.items() if symbol.is_private]
        symbols = {name: _fresh(name, number, taken) for name in private if name in given}
        given.update(private)
        clashing = (own.all & (owners.keys() - table.keys())) | (own.debugged & debugged)
        debugged |= own.debugged
        found.append((symbols, {label: _fresh(label, number, taken) for label in sorted(clashing)}))
    return found


def _fresh(name: str, number: int, taken: set[str]) -> str:
    """``name$2`` for the second module, or a longer one that nobody has."""
    new = f"{name}${number}"
    while new in taken:
        new += "$"
    taken.add(new)
    return new


# -- order ------------------------------------------------------------------------------------------------


def _ordered(items: Sequence[ptx.ModuleItem], declared: Sequence[ptx.ModuleItem]) -> list[ptx.ModuleItem]:
    """Prototypes first, then what is declared, then variables, then functions: what is used stands before it is.

    Source: ptxas 13.5 takes ``.extern`` before the definition of a variable, in the same module, and a prototype
    with the linkage of the function before a function, not after it (measured).
    """
    variables = [item for item in items if isinstance(item, ptx.Variable)]
    code = [item for item in items if not isinstance(item, ptx.Variable)]
    named = {name for v in variables for name in _names_in(v.initializer)}
    prototypes = [
        replace(item, body=None, directives=tuple(d for d in item.directives if d[0] in _OF_PROTOTYPES))
        for item in code
        if isinstance(item, ptx.Function) and (not item.is_entry or item.name in named)
    ]
    return [*prototypes, *declared, *_forward(variables), *variables, *code]


_OF_PROTOTYPES = frozenset(("noreturn", "abi_preserve", "abi_preserve_control"))


def _forward(variables: Sequence[ptx.Variable]) -> list[ptx.Variable]:
    """``.extern`` declarations of the variables whose address another holds that comes before them."""
    late: dict[str, ptx.Variable] = {v.name: v for v in variables}
    found: list[ptx.Variable] = []
    for v in variables:
        early = {name: late.pop(name) for name in _names_in(v.initializer) if name in late and name != v.name}
        found += (replace(other, linkage="extern", initializer=None) for other in early.values())
        late.pop(v.name, None)
    return found


def _names_in(initial: object) -> Iterable[str]:
    """The symbols in an initial value."""
    if isinstance(initial, ptx.Initializer):
        for item in initial.items:
            yield from _names_in(item)
    elif isinstance(initial, ptx.Generic):
        yield initial.symbol.name
    elif isinstance(initial, ptx.SymbolRef):
        yield initial.name


def _widest(items: Sequence[ptx.Function | ptx.Variable]) -> ptx.Function | ptx.Variable:
    """Of several declarations of dynamic shared memory the one that is aligned most; of a function the first."""
    variables = [item for item in items if isinstance(item, ptx.Variable)]
    return max(variables, key=alignment) if variables else items[0]


def _with_labels(item: ptx.ModuleItem, lost: Mapping[str, Sequence[str]]) -> ptx.ModuleItem:
    """End a function with labels of another definition of it, which left: debug data tell of them still."""
    if not isinstance(item, ptx.Function) or item.body is None or not lost.get(item.name):
        return item
    there: list[ptx.Statement] = [ptx.Label(name) for name in lost[item.name]]
    return replace(item, body=(*item.body, *there))
