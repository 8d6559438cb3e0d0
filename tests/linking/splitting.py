"""A program in PTX, cut into modules at random: as a program of several files would have been compiled.

It works on the text of the items, by words: whoever cuts knows nothing of how the linker joins.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace

from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.printer import print_module
from cujit.formats.ptx.syntax import Function, PtxModule, Variable

_WORD = re.compile(r"(?<![\w$%.])[A-Za-z_$][\w$]*")
_LABEL = re.compile(r"^([A-Za-z_$][\w$]*):$", re.MULTILINE)
_NAMES_OF_ALL = ("helper", "data", "twice", "x", "loop", "y", "z")


@dataclass
class _Item:
    """A definition, the module in which it lies, and those that call it by its other name."""

    item: Function | Variable
    place: int
    linkage: str
    alias: str = ""
    alias_users: frozenset[int] = frozenset()
    copies: frozenset[int] = frozenset()

    @property
    def name(self) -> str:
        return self.item.name

    @property
    def places(self) -> frozenset[int]:
        return self.copies | {self.place}

    def text(self) -> str:
        """The definition."""
        return _text(replace(self.item, linkage=self.linkage))

    def declaration(self, linkage: str, name: str = "") -> str:
        """A declaration of it."""
        named = replace(self.item, name=name or self.name, linkage=linkage)
        if isinstance(named, Function):
            return _text(replace(named, body=None, directives=()))
        return _text(replace(named, initializer=None))


def split(ptx: str, seed: int, pieces: int, *, is_plain: bool = False) -> list[str]:
    """Cut a program into that many modules; the same seed cuts in the same way.

    What only one module needs becomes its own, under a name that other modules give theirs too; functions become weak
    and are there twice, or get an alias that others call; labels are called as another module's functions are. A plain
    cut has neither aliases nor anything twice.
    """
    chance = random.Random(seed)
    module = parse(ptx)
    head = print_module(replace(module, items=()))
    items = [_Item(item, chance.randrange(pieces), item.linkage) for item in _definitions(module)]
    declared: list[Function | Variable] = [*module.variables, *module.functions]
    outside = [item for item in declared if item.linkage == "extern"]
    items += [_Item(item, -1, "extern") for item in outside]  # dynamic shared memory, functions of the driver
    names = {item.name for item in items}
    uses = {item.name: names & set(_WORD.findall(item.text())) - {item.name} for item in items}
    for item in items if not is_plain else ():
        _draw_copies(item, pieces, chance)
    for item in items:
        users = {place for i in items if item.name in uses[i.name] for place in i.places}
        _draw_linkage(item, users - {item.place}, chance)
        if is_plain:
            item.alias, item.alias_users = "", frozenset()
    texts = [head + _module(items, uses, place, chance) for place in range(pieces)]
    chance.shuffle(texts)
    return texts


def _draw_copies(item: _Item, pieces: int, chance: random.Random) -> None:
    """What is weak, or becomes it here, may lie in several modules."""
    if isinstance(item.item, Function) and not item.item.is_entry and chance.random() < 0.2:
        item.linkage = "weak"
    if item.linkage == "weak":
        item.copies = frozenset(place for place in range(pieces) if chance.random() < 0.3)


def _draw_linkage(item: _Item, others: set[int], chance: random.Random) -> None:
    """Visible where another module needs it, and perhaps under two names; perhaps a module's own where none does."""
    if item.linkage in ("extern", "weak") or (isinstance(item.item, Function) and item.item.is_entry):
        return
    item.linkage = "visible" if others or chance.random() < 0.3 else ""
    # An alias that nobody uses makes nvJitLink 13.5 fail: "reference to deleted symbol".
    if isinstance(item.item, Function) and others and chance.random() < 0.3:
        item.alias = f"{item.name}_also"
        item.alias_users = frozenset(chance.sample(sorted(others), chance.randint(1, len(others))))


def _module(items: list[_Item], uses: dict[str, set[str]], place: int, chance: random.Random) -> str:
    """One module: what lies there, declarations of what it needs of others, and what comes of the dice."""
    here = [item for item in items if place in item.places]
    mine = {item.name for item in here}
    needed = {name for item in here for name in uses[item.name]} - mine
    others = [item for item in items if item.name in needed]
    called = {item.name: item.alias for item in others if place in item.alias_users}
    lines = [item.declaration("extern", called.get(item.name, "")) for item in others]
    functions = [item for item in here if isinstance(item.item, Function)]
    kept = [item for item in functions if not item.item.is_entry]  # type: ignore[union-attr]
    lines += [item.declaration(item.linkage) for item in kept]
    lines += [item.declaration("visible", item.alias) for item in functions if item.alias]
    lines += [f".alias {item.alias}, {item.name};" for item in functions if item.alias]
    lines += [_renamed(item.text(), called) for item in here if isinstance(item.item, Variable)]
    far = [item.name for item in items if item.name not in mine | needed]
    lines += [_relabelled(_renamed(item.text(), called), far, chance) for item in functions]
    own = sorted(item.name for item in here if not item.linkage)
    chance.shuffle(own)
    return _renamed("\n".join(lines), dict(zip(own, _NAMES_OF_ALL, strict=False)))


def _relabelled(text: str, names: list[str], chance: random.Random) -> str:
    """Call a label of a function as a function of another module is called."""
    labels = sorted(set(_LABEL.findall(text)))
    if not labels or not names or chance.random() < 0.5:
        return text
    return _renamed(text, {chance.choice(labels): chance.choice(names)})


def _renamed(text: str, names: dict[str, str]) -> str:
    return _WORD.sub(lambda match: names.get(match[0], match[0]), text)


def _definitions(module: PtxModule) -> list[Function | Variable]:
    functions = [f for f in module.functions if f.body is not None]
    return [*(v for v in module.variables if v.linkage != "extern"), *functions]


def _text(item: Function | Variable) -> str:
    return print_module(PtxModule((8, 0), ("sm_80",), 64, (item,))).split("\n\n", 1)[1]
