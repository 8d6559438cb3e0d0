"""The compiler of the CPU device, from PTX to LLVM IR, with every stage in order.

``docs/cpu-compiler.md`` follows one kernel through the stages. ``prepare`` needs only the PTX, and refuses unsupported
constructs. ``ir_of`` also needs the block shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from cujit.devices.cpu.analysis.body import Body
from cujit.devices.cpu.analysis.contraction import contracted
from cujit.devices.cpu.analysis.dataflow import bits_of
from cujit.devices.cpu.analysis.fission import Fission, fission
from cujit.devices.cpu.analysis.loads import watch_loads
from cujit.devices.cpu.analysis.narrowing import narrowed
from cujit.devices.cpu.analysis.uniformity import Divergence, Shape, analyse
from cujit.devices.cpu.codegen.builder import Builder, Value
from cujit.devices.cpu.codegen.nodes import MOST_LOOPS, NODES_EACH, IrModule, TooLargeError
from cujit.devices.cpu.codegen.outlining import Often
from cujit.devices.cpu.codegen.warp import Observer, WarpEmitter
from cujit.devices.cpu.control.flow import Flow
from cujit.devices.cpu.control.frame import emit_function, emit_regions
from cujit.devices.cpu.control.plan import ControlPlan, fenced, make_plan
from cujit.devices.cpu.control.regions import RegionBoundary, boundaries
from cujit.devices.cpu.control.rules import all_rules, check, check_groups
from cujit.devices.cpu.frontend.flatten import flatten
from cujit.devices.cpu.frontend.layout import ModuleLayout
from cujit.devices.cpu.ir.cfg import BasicBlock, ControlFlowGraph, build_graph
from cujit.devices.cpu.ir.decoding import spelled
from cujit.devices.cpu.ir.program import KernelProgram, Op, Reg
from cujit.devices.cpu.ir.refusals import Refusals
from cujit.devices.cpu.run.dwarf import DebugInfo, DebugOrigin
from cujit.devices.cpu.stages import stage
from cujit.devices.shapes import Dim3
from cujit.errors import UnsupportedError
from cujit.formats.ptx.syntax import Function
from cujit.values import replace
from cujit.values.garbage import collecting_rarely


def prepare(entry: Function, layout: ModuleLayout, refusals: Refusals, *, contract: bool = False) -> Body:
    """Return the body of a kernel, ready for ``ir_of``. Unsupported constructs are added to ``refusals``.

    With ``contract``, a product and its sum are rounded only once, as by ptxas.
    """
    name = entry.name
    program = stage("flatten", name, lambda: flatten(entry, layout, refusals), _of_program)
    body = stage("blocks", name, lambda: _with_blocks(program, refusals), _of_body)
    check_groups((each.program for each in body.bodies), refusals)
    return body if not contract or refusals.items or refusals.mistakes else _contracted(body)


def _with_blocks(program: KernelProgram, refusals: Refusals) -> Body:
    functions = {name: _with_blocks(each, refusals) for name, each in program.functions.items()}
    check(program, refusals)
    graph = build_graph(program, refusals)
    if watch_loads(program.ops, graph):
        graph = build_graph(program, refusals)
    return Body(program, graph, functions)


def _contracted(body: Body) -> Body:
    functions = {name: _contracted(each) for name, each in body.functions.items()}
    program = contracted(body.program, body.graph)
    if program is body.program and not any(each.contracts for each in functions.values()):
        return body
    program = replace(program, functions={name: each.program for name, each in functions.items()})
    return Body(program, build_graph(program, Refusals()), functions, contracts=True)


@collecting_rarely()
def ir_of(
    body: Body,
    block: Dim3,
    observers: Sequence[Observer] = (),
    *,
    stacks: bool = False,
    origin: DebugOrigin | None = None,
) -> str:
    """Return the LLVM IR of a kernel, and of the functions that it calls, for one block shape.

    ``observers`` add code to the IR. Warps that wait at barriers have separate stacks if ``stacks`` is set or an
    observer requires it. They also have separate stacks if the kernel can't be cut at its barriers. With an ``origin``,
    the IR has debug information.

    Raises:
        UnsupportedError: the kernel is so large that LLVM would need more than 1 GB of memory.
    """
    try:
        return _ir_of(body, block, observers, stacks=stacks, origin=origin)
    except TooLargeError:
        raise UnsupportedError(
            f"the kernel {body.program.name} is too large for the CPU device: LLVM would need more than 1 GB of memory",
            help="split the kernel, or run it on a GPU: cujit.gpu(0)",
        ) from None


def _ir_of(body: Body, block: Dim3, observers: Sequence[Observer], *, stacks: bool, origin: DebugOrigin | None) -> str:
    name = body.program.name
    for each in body.bodies:
        IrModule().grow(len(each.program.ops) + NODES_EACH * len(each.graph.blocks))  # so many at least
    if not observers:
        body = _narrowed(body)
    whole = stacks or any(observer.begin_region is None for observer in observers)
    divergence = stage(
        "uniformity", name, lambda: analyse(body.program, body.graph, block), lambda made: _of_divergence(body, made)
    )
    regions = stage("fission", name, lambda: None if whole else _cut(body, divergence, block, observers), _of_fission)
    loops = max(len(each.graph.loops) for each in body.bodies)
    ir = IrModule(None if origin is None else DebugInfo(origin), loops > 0, loops > MOST_LOOPS)
    flows = stage(
        "plan", name, lambda: _planned(body, block, divergence, regions, observers, ir, stacks=stacks), _of_flows
    )
    return stage("emit", name, lambda: _emit(flows, regions), str)


def _narrowed(body: Body) -> Body:
    """Return a body that accesses shared memory by 32-bit addresses. Observers see the operations of the PTX text
    instead.
    """
    program = narrowed(body.program)
    return body if program is body.program else _with_blocks(program, Refusals())


def _cut(body: Body, divergence: Divergence, block: Dim3, observers: Sequence[Observer]) -> Fission | None:
    """Return the regions between a kernel's barriers, or None if the kernel isn't split.

    With observers, a kernel is split only if all its warps reach every barrier.
    """
    found = fission(body, divergence, block)
    if observers and found is not None and (found.blockwide.leaves or not found.blockwide.together):
        return None
    return found


def _planned(
    kernel: Body,
    block: Dim3,
    whole: Divergence,
    regions: Fission | None,
    observers: Sequence[Observer],
    ir: IrModule,
    *,
    stacks: bool = False,
) -> dict[str, Flow]:
    """Return a plan for each function to emit: the regions of a kernel with their versions, otherwise the kernel and
    its callees.
    """
    parameters: dict[tuple[int, str], Value] = {}
    often = Often()

    def flow(
        body: Body, graph: ControlFlowGraph, divergence: Divergence, boundary: RegionBoundary | None = None
    ) -> Flow:
        is_function, vectors = body is not kernel, {} if boundary is None else boundary.vectors()
        e = WarpEmitter(
            body, fenced(graph), divergence, block, all_rules().handler_of, Builder(ir, first="warp.start"), observers,
            vectors, suspends=boundary is None and (is_function or body.suspends or stacks), is_function=is_function,
            parameters={} if is_function else parameters, often=often,
        )  # fmt: skip
        return Flow(e, make_plan(e, boundary))

    if regions is not None:
        parts = boundaries(regions).items()
        return {name: flow(kernel, each.region.graph, each.region.divergence, each) for name, each in parts}
    flows = {kernel.program.name: flow(kernel, kernel.graph, whole)}
    for name, each in kernel.functions.items():
        flows[name] = flow(each, each.graph, analyse(each.program, each.graph, block))
    return flows


def _emit(flows: Mapping[str, Flow], regions: Fission | None) -> str:
    if regions is not None:
        return emit_regions(regions, flows, "run")
    (_, kernel), *functions = flows.items()
    return emit_function(kernel, "run", dict(functions))


# -- what the stages leave, as texts for people ---------------------------------------------------------


def _of_program(program: KernelProgram) -> str:
    """Return the flat operations as text, in source order. Functions that were not inlined follow the kernel."""
    lines = [_sizes(program), *map(_line, program.ops)]
    for name, function in program.functions.items():
        lines += [f"function {name}", *map(_line, function.ops)]
    return "\n".join(lines)


def _sizes(program: KernelProgram) -> str:
    sizes = (("parameters", program.parameters_size), ("shared", program.shared_size), ("local", program.local_size))
    return ", ".join(f"{what} {size} bytes" for what, size in sizes)


def _line(op: Op) -> str:
    return f"{op.targets[0]}:" if op.opcode == "label" else f"    {spelled(op)}"


def _of_body(body: Body) -> str:
    """Write the basic blocks in the order in which a warp scans them, and where each leads."""
    lines = list(_blocks(body.graph))
    for name, function in body.functions.items():
        lines += [f"function {name}", *_blocks(function.graph)]
    return "\n".join(lines)


def _blocks(graph: ControlFlowGraph) -> Iterator[str]:
    for block in graph.blocks:
        yield _head(block, graph)
        yield from map(_line, block.ops)


def _head(block: BasicBlock, graph: ControlFlowGraph) -> str:
    leads = " or ".join("the exit" if s == graph.exit else str(s) for s in block.successors)
    loop = f", in the loop of {block.loop.head} to {block.loop.last}" if block.loop is not None else ""
    return f"block {block.position}{loop}" + (f", then {leads}" if leads else "")


def _of_divergence(body: Body, divergence: Divergence) -> str:
    """Return a listing of each register's shape, and of the places where lanes of a warp may diverge."""
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


def _of_flows(flows: Mapping[str, Flow]) -> str:
    """Write how each function is emitted, and the blocks that are others where all lanes are active."""
    return "\n".join(
        line for name, flow in flows.items() for line in (f"function {name}", *_of_plan(flow.e, flow.plan))
    )


def _of_plan(e: WarpEmitter, plan: ControlPlan) -> Iterator[str]:
    if e.suspends:
        yield "every warp has a stack of its own"
    facts = (
        ("loops that may wait for others begin at", sorted(plan.polls)),
        ("lanes wait for others at", [b.position for b in (*plan.parking, *plan.gathering)]),
        ("strip-mined is", plan.strips),
        ("the first and the last lane decide where all go behind", plan.ends),
        ("warps take turns in the loops that begin at", sorted(plan.walks.kept)),
    )
    yield from (f"{what} {_numbers(where, e.graph)}" for what, where in facts if where)
    if plan.together:
        some = f" for {_numbers(plan.together, e.graph)}" if e.counts_lanes else ""
        yield f"a warp whose lanes are all active has blocks of its own{some}" if plan.parts else "lanes never part"
    for position, other in plan.together.items():
        block = e.graph.blocks[position]
        if other.ops != block.ops:
            yield from (f"block {block.position}, where all lanes are active", *map(_line, other.ops))


def _numbers(positions: Iterable[int], graph: ControlFlowGraph) -> str:
    return ", ".join("the exit" if p == graph.exit else str(p) for p in positions)


def _of_fission(fission: Fission | None) -> str:
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
