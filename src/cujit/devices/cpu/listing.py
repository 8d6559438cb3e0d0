"""What the stages of the compiler leave, as texts for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cujit.devices.cpu.analysis.body import Body
from cujit.devices.cpu.analysis.dataflow import bits_of
from cujit.devices.cpu.analysis.fission import Fission
from cujit.devices.cpu.analysis.uniformity import Divergence, Shape
from cujit.devices.cpu.ir.cfg import Block, Graph
from cujit.devices.cpu.ir.decoding import spelled
from cujit.devices.cpu.ir.program import KernelProgram, Op, Reg

__all__ = ["of_body", "of_divergence", "of_fission", "of_program"]


def of_program(program: KernelProgram) -> str:
    """Write flat operations in the order of the text, the functions that were not inlined behind the kernel."""
    lines = [_sizes(program), *map(_line, program.ops)]
    for name, function in program.functions.items():
        lines += [f"function {name}", *map(_line, function.ops)]
    return "\n".join(lines)


def _sizes(program: KernelProgram) -> str:
    sizes = (("parameters", program.parameters_size), ("shared", program.shared_size), ("local", program.local_size))
    return ", ".join(f"{what} {size} bytes" for what, size in sizes)


def _line(op: Op) -> str:
    return f"{op.targets[0]}:" if op.opcode == "label" else f"    {spelled(op)}"


def of_body(body: Body) -> str:
    """Write the basic blocks in the order in which a warp scans them, and where each leads."""
    lines = list(_blocks(body.graph))
    for name, function in body.functions.items():
        lines += [f"function {name}", *_blocks(function.graph)]
    return "\n".join(lines)


def _blocks(graph: Graph) -> Iterator[str]:
    for block in graph.blocks:
        yield _head(block, graph)
        yield from map(_line, block.ops)


def _head(block: Block, graph: Graph) -> str:
    leads = " or ".join("the exit" if s == graph.exit else str(s) for s in block.successors)
    loop = f", in the loop of {block.loop.head} to {block.loop.last}" if block.loop is not None else ""
    return f"block {block.position}{loop}" + (f", then {leads}" if leads else "")


def of_divergence(body: Body, divergence: Divergence) -> str:
    """Write the shape of every register, and where the lanes of a warp may be apart from each other."""
    lines = [f"{reg.name} {_shape(divergence, reg)}" for reg in body.program.registers]
    for block in body.graph.blocks:
        waiting = list(bits_of(divergence.inactive[block.position]))
        if waiting:
            lines.append(f"in block {block.position} lanes may be waiting at {_numbers(waiting, body.graph)}")
    if divergence.non_reconverging:
        lines.append(f"lanes do not reconverge at {_numbers(bits_of(divergence.non_reconverging), body.graph)}")
    return "\n".join(lines)


def _shape(divergence: Divergence, reg: Reg) -> str:
    if reg.index in divergence.constants:
        return f"constant {divergence.constants[reg.index]}"
    return _words(divergence.shapes[reg.index])


def _words(shape: Shape) -> str:
    rows = "" if shape.is_uniform or len(shape.first_lanes) == 1 else f" in rows of {shape.row}"
    align = f", a multiple of {shape.align}" if shape.align > 1 else ""
    guarded = ", if it does not wrap" if shape.guarded else ""
    if shape.stride is None:
        return "varying"
    return ("uniform" if not shape.stride else f"affine {shape.stride:+d}") + rows + align + guarded


def _numbers(positions: Iterable[int], graph: Graph) -> str:
    return ", ".join("the exit" if p == graph.exit else str(p) for p in positions)


def of_fission(fission: Fission | None) -> str:
    """Write the regions between barriers, and the registers that are kept over them."""
    if fission is None:
        return "not cut"
    names = {reg.index: reg.name for reg in fission.kept}
    lines = [f"kept over barriers: {', '.join(names.values()) or 'nothing'}"]
    for region in fission.regions:
        begins = ", ".join(names[r] for r in region.live)
        lines.append(f"region {region.number}" + (f", which begins with {begins}" if begins else ""))
        lines += [f"made again: {spelled(op)}" for op in region.rematerialised]
        lines += [f"block {p} ends at the barrier before region {then}" for p, then in region.following.items()]
        lines += _blocks(region.graph)
    return "\n".join(lines)
