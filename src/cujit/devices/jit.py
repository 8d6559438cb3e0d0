"""From LLVM IR to a function of this process. The only file that opens llvmlite."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cujit.errors import CujitError, MissingError

if TYPE_CHECKING:
    import llvmlite.binding

__all__ = ["NativeFunction", "compile_ir"]


@dataclass(frozen=True)
class NativeFunction:
    """Machine code: its address, and the engine that owns it."""

    address: int
    engine: Any

    def other(self, symbol: str) -> int:
        """Address of another function of the same module."""
        return int(self.engine.get_function_address(symbol))


_MEND = "pip install --force-reinstall llvmlite"


@functools.cache
def _llvm() -> Any:
    """Open llvmlite and prepare it for this processor.

    Raises:
        MissingError: it is not installed, or its library does not load.
    """
    try:
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    except (ImportError, OSError) as e:
        raise MissingError(
            f"llvmlite, which the CPU device and the launcher compile with, does not load: {e}", help=_MEND
        ) from e
    return llvm


def _target_machine(level: int) -> llvmlite.binding.TargetMachine:
    llvm = _llvm()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=level,
        jit=True,
    )


def optimise(text: str, level: int = 2, *, passes: bool = True) -> Any:
    """Parse a module and, with ``passes``, optimise it.

    Raises:
        CujitError: LLVM refuses the text, which is a fault of cujit.
    """
    llvm = _llvm()
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as e:
        raise CujitError(f"LLVM refuses the code that cujit made: {e}", help="report this, with the PTX") from e
    if not passes:
        return module
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = False  # the code is vectors already
    options.slp_vectorization = False
    builder = llvm.create_pass_builder(_target_machine(level), options)
    builder.getModulePassManager().run(module, builder)
    return module


def compile_ir(text: str, symbol: str, level: int = 2, *, passes: bool = True) -> NativeFunction:
    """Compile a module and find one of its functions.

    ``passes`` is for code that gains by LLVM's optimiser; without, only the code generator looks at ``level``.

    Raises:
        CujitError: LLVM refuses the text, which is a fault of cujit.
    """
    llvm = _llvm()
    module = optimise(text, level, passes=passes)
    engine = llvm.create_mcjit_compiler(module, _target_machine(level))
    engine.finalize_object()
    return NativeFunction(int(engine.get_function_address(symbol)), engine)
