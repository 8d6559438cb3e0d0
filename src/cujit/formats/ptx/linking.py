"""Linking of several PTX modules into one PTX module, as nvJitLink links machine code.

Private names are renamed if another module has the same name. Extern declarations are resolved to their definitions.
Weak and common definitions are merged. All problems are reported together.
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
    """A module, and its name in messages."""

    name: str
    module: ptx.PtxModule


@dataclass(frozen=True)
class Linked:
    """One module linked from several. ``renamed`` maps the old private names of each input to their new names.

    ``notes`` are messages for users.
    """

    module: ptx.PtxModule
    renamed: tuple[Mapping[str, str], ...]
    notes: tuple[str, ...]


def link_modules(inputs: Sequence[Input], target: Arch | None = None) -> Linked:
    """Link PTX modules into one, for ``target`` if given, otherwise for the highest of their targets.

    Raises:
        LinkError: names can't be resolved, or the modules are incompatible. The message contains every reason
            with input and line.
    """
    return _Link(inputs).run(target)


def check_agreement(inputs: Sequence[Input]) -> None:
    """Refuse modules that define a name twice, or use one name for different things, as far as the modules show this.

    Raises:
        LinkError: the modules conflict. The message contains every reason.
    """
    _Link(inputs).refuse()


class _Link:
    """One link: the symbol tables of all inputs, the resolution of each name, and the complaints and notes so far."""

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
        """Return the labels in removed functions that debug data refer to, by function name."""
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
        """Return the aliases that are used, each with its prototype. nvJitLink 13.5 fails on an unused alias."""
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
        """Return declarations of the names that are used but not defined: functions of the driver, and dynamic shared
        memory.
        """
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
        """Return a module with the version, target, and address size of the result. Modules that don't fit cause
        complaints.

        The version is the highest of all modules. The target is the highest too, with the ``a`` or ``f`` of any module.
        The code of every module must run on that target. Code for an older architecture runs there, but not code for
        another ``a``, or for an ``f`` of another family. Texture modes must be equal.
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
    """Return the reasons why a module can't be part of a link for ``wanted`` and that version, with their lines."""
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
    """Return the texture mode of a module. Default: unified. Source: PTX ISA 9.1, ".target"."""
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
    """Return new names for the private symbols and labels of each module that conflict with names of other modules.

    The first module with a name keeps it, unless modules share a symbol of that name. A label is renamed if another
    module has a symbol of that name. It is also renamed if debug data refer to it and to another module's label of that
    name.
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
    """Return ``name$2`` for the second module, or a longer name that is not in use."""
    new = f"{name}${number}"
    while new in taken:
        new += "$"
    taken.add(new)
    return new


# -- order ------------------------------------------------------------------------------------------------


def _ordered(items: Sequence[ptx.ModuleItem], declared: Sequence[ptx.ModuleItem]) -> list[ptx.ModuleItem]:
    """Return the items in an order that declares names before their use: prototypes, declarations, variables,
    functions.

    Source: ptxas 13.5 accepts ``.extern`` before the definition of a variable, in the same module. It accepts a
    prototype with the linkage of the function before the function, but not after it (measured).
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
    """Return ``.extern`` declarations of variables with addresses in the initial values of earlier variables."""
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
    """Return a function with the labels of its removed definition at the end, because debug data still
    refer to them.
    """
    if not isinstance(item, ptx.Function) or item.body is None or not lost.get(item.name):
        return item
    there: list[ptx.Statement] = [ptx.Label(name) for name in lost[item.name]]
    return replace(item, body=(*item.body, *there))
