"""Variables of emitted code as values, over random control flow: each read finds what was written last, by few phis."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence

from cujit.devices.cpu.codegen.nodes import Node, Value
from cujit.devices.cpu.codegen.ssa import IrBlock, SsaVariable, in_ssa
from cujit.values import closure

VARIABLES = "xyz"

Graph = Sequence[Sequence[int]]
"""For each block, the blocks that it leads to. None leads to the first."""


class _Body:
    """A body of blocks that read variables, then write some, then go on."""

    def __init__(self, draw: random.Random) -> None:
        count = draw.randint(2, 10)
        self.graph = [[draw.randrange(1, count) for _ in range(draw.randint(0, 3))] for _ in range(count)]
        self.reads = [draw.sample(VARIABLES, draw.randint(0, 2)) for _ in self.graph]
        self.writes = [draw.sample(VARIABLES, draw.choice((0, 0, 1, 2))) for _ in self.graph]

    def in_ssa(self) -> list[Node]:
        """Emit the body, with a ``freeze`` for each read, and make its variables values."""
        blocks = [IrBlock(f"b{k}") for k in range(len(self.graph))]
        nodes = []
        for k, block in enumerate(blocks):
            nodes += [Node("label", name=block.label)] if k else []
            for variable in self.reads[k]:
                block.found[variable] = block.left[variable] = Value(f"%{variable}.in.{k}", "i32")
                nodes.append(Node("freeze", (block.found[variable],), name=variable))
            block.left |= {variable: Value(f"{variable}{k}", "i32") for variable in self.writes[k]}
            labels = tuple(f"b{to}" for to in self.graph[k])
            nodes.append(Node("switch", labels=labels) if labels else Node("ret"))
        variables = {variable: SsaVariable(Value(f"{variable}-", "i32"), "i32") for variable in VARIABLES}
        names = iter(range(1000))
        others = {block.label: block for block in blocks[1:]}
        found, _ = in_ssa(nodes, blocks[0], others, variables, lambda hint: f"%{hint}${next(names)}", _never)
        return found


def _never(size: int) -> Value:
    raise AssertionError(size)


def _by_label(nodes: Sequence[Node]) -> dict[str, list[Node]]:
    found: dict[str, list[Node]] = {"b0": []}
    for node in nodes:
        if node.opcode == "label":
            found[node.name] = []
        else:
            found[[*found][-1]].append(node)
    return found


def test_each_read_finds_the_last_write() -> None:
    draw, reads = random.Random(7), 0
    for _ in range(300):
        body = _Body(draw)
        blocks = _by_label(body.in_ssa())
        now, known, before, at = {variable: f"{variable}-" for variable in VARIABLES}, dict[str, str](), "", 0
        for _ in range(30):
            nodes = blocks[f"b{at}"]
            phis = {n.result: n.operands[n.labels.index(before)].text for n in nodes if n.opcode == "phi"}
            known |= {result: known.get(text, text) for result, text in phis.items()}
            for node in nodes:
                if node.opcode == "freeze":
                    reads += 1
                    assert known.get(node.operands[0].text, node.operands[0].text) == now[node.name]
            now |= {variable: f"{variable}{at}" for variable in body.writes[at]}
            if not body.graph[at]:
                break
            before, at = f"b{at}", draw.choice(body.graph[at])
    assert reads > 1000


def test_phis_are_placed_exactly_where_writes_join() -> None:
    draw, phis = random.Random(8), 0
    for _ in range(300):
        body = _Body(draw)
        found = _by_label(body.in_ssa())
        for variable in VARIABLES:
            placed = {at for at in range(1, len(body.graph)) if _has_phi(found.get(f"b{at}", []), variable)}
            assert placed == _expected(body, variable)
            phis += len(placed)
    assert phis > 200


def _has_phi(nodes: Sequence[Node], variable: str) -> bool:
    return any(node.opcode == "phi" and node.result.startswith(f"%{variable}") for node in nodes)


def _expected(body: _Body, variable: str) -> set[int]:
    """Find by the definition of dominance frontiers where a variable needs a phi."""
    reached, passed = _passed(body.graph)
    written = {at for at in reached if variable in body.writes[at]}
    placed: set[int] = set()
    while True:
        more = {
            at
            for at in reached
            if _is_read_from(body, at, variable)
            and any(
                at in body.graph[before] and by in passed[before] and by not in passed[at] - {at}
                for before in reached
                for by in written | placed
            )
        }
        if more == placed:
            return placed
        placed = more


def _passed(graph: Graph) -> tuple[Collection[int], Mapping[int, set[int]]]:
    """Find the blocks that are reached, and for each those that every way to it passes."""

    def reached(without: int) -> set[int]:
        return closure({0} - {without}, lambda at: [to for to in graph[at] if to != without])

    everything = reached(-1)
    return everything, {at: {by for by in everything if at not in reached(by)} for at in everything}


def _is_read_from(body: _Body, at: int, variable: str) -> bool:
    """Whether some block reads what a variable is at the begin of one."""
    found = closure({at}, lambda by: [] if variable in body.writes[by] else body.graph[by])
    return any(variable in body.reads[by] for by in found)
