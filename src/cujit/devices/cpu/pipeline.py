"""The compiler of the CPU device, from PTX to LLVM IR: every stage in order. ``docs/cpu-compiler.md`` follows a kernel.

``prepare`` needs the text alone, and refuses what is not executed; ``ir_of`` needs the shape of the block as well.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from cujit.devices.cpu import listing
from cujit.devices.cpu.analysis.body import Body
from cujit.devices.cpu.analysis.fission import Fission, Region, fission
from cujit.devices.cpu.analysis.uniformity import Divergence, analyse
from cujit.devices.cpu.codegen.nodes import IrModule
from cujit.devices.cpu.codegen.warp import Observer, WarpEmitter
from cujit.devices.cpu.control.flow import Flow
from cujit.devices.cpu.control.frame import emit_function, emit_regions
from cujit.devices.cpu.control.regions import RegionBoundary
from cujit.devices.cpu.control.rules import all_rules, check
from cujit.devices.cpu.frontend.flatten import flatten
from cujit.devices.cpu.ir.cfg import build_graph
from cujit.devices.cpu.ir.program import KernelProgram, Slot
from cujit.devices.cpu.ir.refusals import Refusals
from cujit.devices.cpu.run.debuglines import DebugInfo, Origin
from cujit.devices.cpu.stages import stage
from cujit.devices.shapes import Dim3
from cujit.formats.ptx.syntax import Function, Module

__all__ = ["ir_of", "prepare"]


def prepare(module: Module, entry: Function, globals_: dict[str, Slot], refusals: Refusals) -> Body:
    """Make a kernel ready; what cannot be taken over goes to ``refusals``."""
    name = entry.name
    program = stage("flatten", name, lambda: flatten(module, entry, globals_, refusals), listing.of_program)
    return stage("blocks", name, lambda: _with_blocks(program, refusals), listing.of_body)


def _with_blocks(program: KernelProgram, refusals: Refusals) -> Body:
    functions = {name: _with_blocks(each, refusals) for name, each in program.functions.items()}
    check(program, refusals)
    return Body(program, build_graph(program, refusals), functions)


def ir_of(
    body: Body, block: Dim3, observers: Sequence[Observer] = (), *, stacks: bool = False, origin: Origin | None = None
) -> str:
    """Write the LLVM IR of a kernel, and of the functions that it calls, for one block shape.

    ``observers`` add code of their own to it. Warps that wait at barriers get ``stacks`` of their own where they are
    wanted, where somebody watches, and where the kernel cannot be cut at its barriers. With an ``origin`` it has debug
    information.
    """
    name, whole = body.program.name, stacks or bool(observers)
    divergence = stage(
        "uniformity",
        name,
        lambda: analyse(body.program, body.graph, block),
        lambda made: listing.of_divergence(body, made),
    )
    regions = stage("fission", name, lambda: None if whole else fission(body, divergence, block), listing.of_fission)
    has_loops = any(each.graph.loops for each in (body, *body.functions.values()))
    ir = IrModule(None if origin is None else DebugInfo(origin), has_loops)
    return stage("emit", name, lambda: _emit(body, block, divergence, regions, observers, ir), str)


def _emit(
    body: Body,
    block: Dim3,
    divergence: Divergence,
    regions: Fission | None,
    observers: Sequence[Observer],
    ir: IrModule,
) -> str:
    handler_of = all_rules().handler_of
    make = functools.partial(WarpEmitter, block=block, handler_of=handler_of, flow_of=Flow, module=ir)

    def of_region(region: Region, boundary: RegionBoundary) -> WarpEmitter:
        return make(body, region.divergence, graph=region.graph, boundary=boundary)

    def of_function(each: Body) -> WarpEmitter:
        own = analyse(each.program, each.graph, block)
        return make(each, own, is_function=True, observers=observers)

    if regions is not None:
        return emit_regions(regions, of_region, "run")
    functions = {name: of_function(each) for name, each in body.functions.items()}
    kernel = make(body, divergence, observers=observers)
    return emit_function(kernel, "run", functions)
