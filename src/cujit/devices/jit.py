"""Compilation of LLVM IR to a function of this process. Only this file opens llvmlite.

llvmlite guards LLVM with a lock. The lock's ``__enter__`` is written in Python. If a signal handler raises there, as
Ctrl-C does, the lock stays held, and every other thread waits forever. Python runs signal handlers in the main thread
only, so the main thread never calls LLVM. Instead, ``aside`` runs the work in another thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from cujit.cache.process import default_cache
from cujit.errors import CujitError, MissingError
from cujit.forks import fork_lock, once
from cujit.toolchain.stopping import Stop, end_if_requested, finish, to_its_end
from cujit.values import NamedTuple, dataclass, later
from cujit.values.hashing import sha256
from cujit.values.imported import find_spec

if TYPE_CHECKING:
    import re

    import llvmlite.binding
else:
    re = later("re")  # start-up: few calls need it


@dataclass(frozen=True)
class NativeFunction:
    """Machine code: its address, the engine that owns it, and where all of its code is, with the size in bytes."""

    address: int
    engine: Any
    code: tuple[int, int] = (0, 0)

    def other(self, symbol: str) -> int:
        """Address of another function of the same module."""
        return int(self.engine.get_function_address(symbol))


_T = TypeVar("_T")

_STACK_BYTES = 64 << 20
"""The stack of a thread in which LLVM works, eight times that of clang's main thread. Limits of memory count all of it
(``RLIMIT_DATA``)."""


def aside(work: Callable[[], _T], is_late: Callable[[], bool] | None = None) -> _T:
    """Return the result of ``work()``, which runs in a thread that no signal handler interrupts.

    Without a deadline, a thread other than the main thread runs the work directly. Ctrl-C and the deadline end the
    wait. After Ctrl-C, the thread ends after its current LLVM call. After a deadline, the thread finishes the work.

    Args:
        work: function that creates no LLVM objects that outlive it, except through ``_Engine``.
        is_late: function that returns whether the time for the work is over.

    Raises:
        Ended: the work was not done in time.
        Whatever ``work`` raises.
    """
    if is_late is None and threading.current_thread() is not threading.main_thread():
        return _freeing(work)
    heeded = work if is_late is None else lambda: to_its_end(work)
    return finish(lambda: _freeing(heeded), Stop(), is_late, stack_bytes=_STACK_BYTES)


def _freeing(work: Callable[[], _T]) -> _T:
    """Do the work, and free LLVM objects in this thread: engines that were dropped, and objects in the frames of an
    error.

    The garbage collector may otherwise free a context before the context's module, which ends the process.
    """
    with contextlib.suppress(IndexError):  # other threads take from it
        while True:
            _ENGINES.pop(_DROPPED.pop(), None)
    try:
        return work()
    except Exception as e:
        import traceback  # for errors

        found: BaseException | None = e
        while found is not None:
            traceback.clear_frames(found.__traceback__)
            found = found.__cause__ or found.__context__
        raise


class _Engine:
    """An engine of LLVM's that holds machine code. The garbage collector of any thread may drop this."""

    def __init__(self, engine: Any) -> None:
        self._key = weakref.ref(self, _DROPPED.append)  # in C: no signal handler runs in this callback
        _ENGINES[self._key] = engine

    def get_function_address(self, symbol: str) -> int:
        """Return the address of a function, or 0 if the engine has no function with that name."""
        return aside(lambda: int(_ENGINES[self._key].get_function_address(symbol)))

    def detach(self) -> None:
        """Keep the machine code for as long as the process lives."""
        aside(lambda: _ENGINES[self._key].detach())


_ENGINES: dict[weakref.ref[_Engine], Any] = {}
_DROPPED: deque[weakref.ref[_Engine]] = deque()
"""References whose object is gone; the next work frees their engines."""


_MEND = "pip install --force-reinstall llvmlite"


@once
def _llvm() -> Any:
    """Return llvmlite, initialized for this processor.

    Raises:
        MissingError: llvmlite is not installed, or its library can't be loaded.
    """
    try:
        import llvmlite.binding as llvm  # optional: llvmlite is for the CPU device and quicker launches

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.initialize_native_asmparser()  # module-level assembly of the CPU device
        # Who is inside LLVM when another thread forks would be so for ever in the child. The functions are in C.
        lock = llvm.ffi.lib._lock._lock
        fork_lock(lock.acquire, lock.release)
    except (ImportError, OSError) as e:
        raise MissingError(
            f"can't load llvmlite, which the CPU device and the launcher need for compiling: {e}", help=_MEND
        ) from e
    return llvm


def _target_machine(level: int) -> llvmlite.binding.TargetMachine:
    host = processor()
    target = _llvm().Target.from_triple(host.triple)
    return target.create_target_machine(cpu=host.name, features=host.features, opt=level, jit=True)


@functools.cache
def _compiler(level: int) -> llvmlite.binding.TargetMachine:
    """Return the target machine that optimizes and compiles at a level. llvmlite allows only one thread at a time in
    LLVM.
    """
    return _target_machine(level)


_LOOKERS: list[Callable[[str], object]] = []


def show_modules(look: Callable[[str], object]) -> None:
    """Call ``look`` with the text of every module from now on, after LLVM has read it and before LLVM optimizes it."""
    _LOOKERS.append(look)


def optimise(
    ir: str | bytes, level: int = 2, *, passes: bool = True, kernel: bool = False, unwinds: bool = False
) -> Any:
    """Parse a module and, with ``passes``, optimize it as ``clang`` would at ``level``. With ``kernel``, fewer passes
    run.

    ``ir`` is text or bitcode. With ``unwinds``, debuggers can find the callers of its functions. The functions' code
    stays the same.

    Raises:
        CujitError: LLVM rejects the module, which is a bug in cujit.
    """
    try:
        module = _parse(ir)
        if unwinds:
            module = _parse(re.sub(_HEAD, r"\1 uwtable\2", str(module)))
        module.verify()
    except RuntimeError as e:
        raise CujitError(
            f"LLVM rejects code that cujit generated: {e}", help="report this bug with the PTX", code="internal"
        ) from e
    try:
        _prepare(module, level, passes=passes, kernel=kernel)
    except BaseException:
        module.close()  # the frames of the error hold it
        raise
    return module


def _prepare(module: Any, level: int, *, passes: bool, kernel: bool) -> None:
    defined = [function for function in module.functions if not function.is_declaration]
    for function in defined:
        function.add_function_attribute("null_pointer_is_valid")  # PTX may load from address 0, and faults
    for look in _LOOKERS:
        look(str(module))
    end_if_requested()
    words = _words(defined)
    if passes and _HUGE not in words:
        if kernel and b"alwaysinline" not in words:
            _optimise_kernel(module, defined, level, words)
        else:
            _optimise_all(module, level, unrolls=_ROLLED not in words)


_HEAD = r"(?m)^(define .*?)((?: ![\w.]+ !\d+)* \{)$"
"""The head of a function, in which attributes come before metadata."""

_ROLLED = b'"cujit-unrolls"="no"'
"""What a function says whose loops stay loops, those of its whole module too."""

_LONG = b'"cujit-long"="yes"'
"""What a function says that is too long for passes which thread jumps, as level 2 has them and level 1 has not.

Level 1 of the code generator makes as much code of the long shapes of ``benchmarks/compile_tail.py`` in 0.83 to 0.92 of
level 2's time. Measured with LLVM 22.1.
"""


_HUGE = b'"cujit-huge"="yes"'
"""What a function says that is too long for any pass."""

_FLAT = b'"cujit-loops"="no"'
"""What a function says that has no loops but those over warps and blocks."""


def _parse(ir: str | bytes) -> Any:
    """Parse a module. Bitcode is made for a family of processors, and receives the triple and data layout of this
    processor.
    """
    llvm = _llvm()
    context = llvm.create_context()  # with its types and constants, which it keeps
    if isinstance(ir, str):
        return llvm.parse_assembly(ir, context)
    module = llvm.parse_bitcode(ir, context)
    module.triple = processor().triple
    module.data_layout = str(_compiler(2).target_data)
    return module


def with_numbers(bitcode: bytes, numbers: Mapping[str, int]) -> str:
    """Return a module as text, with values for the 64-bit constants that it declares."""
    text = aside(lambda: str(_parse(bitcode)))
    for name, number in numbers.items():
        text = text.replace(f"@{name} = external constant i64", f"@{name} = internal constant i64 {number}")
    return text


_MODULES_EACH = 8
"""Modules that are optimised with one pass builder. Each builder takes 1.6 kB for good, and each function that it runs
for makes the next take longer: with 64 modules each, optimising takes a fifth more. Measured with llvmlite 0.50."""

_modules = itertools.count()


def _pass_builder(level: int, *, unrolls: bool) -> Any:
    """Return the builder of pass pipelines, the same for several modules."""
    return _new_pass_builder(level, unrolls, next(_modules) // _MODULES_EACH)


@functools.lru_cache(maxsize=4)
def _new_pass_builder(level: int, unrolls: bool, number: int) -> Any:
    del number
    llvm = _llvm()
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization = False  # the code is vectors already
    options.slp_vectorization = False
    options.loop_unrolling = unrolls
    return llvm.create_pass_builder(_compiler(level), options)


@contextlib.contextmanager
def _once(passes: Any) -> Iterator[Any]:
    """Yield passes for one module only, because some passes keep data about the module. Then free the passes.

    Their ``close()`` method calls an empty ``_dispose``, which leaks 30 kB. Source: llvmlite 0.50,
    ``newpassmanagers.py``.
    """
    try:
        yield passes
    finally:
        _llvm().NewPassManager._dispose(passes)
        passes.detach()


def _optimise_all(module: Any, level: int, *, unrolls: bool) -> None:
    builder = _pass_builder(level, unrolls=unrolls)
    with _once(builder.getModulePassManager()) as passes:
        passes.run(module, builder)


_AROUND = ("ipsccp", "dead_arg_elimination", "global_dead_code_eliminate")
"""What is done for several functions besides what ``-O2`` does in each, by llvmlite's names of LLVM's passes.

Measured on the kernels of ``benchmarks/cpu.py``: the rest of ``-O2`` takes as long again. Only those with loops over
warps that become one function, and are then unrolled, gain by it.
"""

_OF_FLAT = ("simplify_cfg", "instruction_combine", "jump_threading", "simplify_cfg")
"""All that is done in each function of a kernel without loops, by the same names.

Level 1 takes three to four times as long, as it combines instructions four times; and a sort of ``benchmarks/cpu.py``
runs in 0.8 times the time that it takes with level 1 and jump threading. Level 1 of the code generator would take 0.92
times as long as level 2, and a reduction loses by it. Measured with LLVM 22.1 on the launches of ``tools/replay.py``.
"""

_OF_LONG_FLAT = ("simplify_cfg", "instruction_combine", "simplify_cfg")
"""The same without what takes the square of the blocks. Level 1 takes 5 times as long for a megabyte of products, half
of which is ``instcombine``, as it asks for each product which bits of 64 others are known. Measured with LLVM 22.1.
"""


def _optimise_kernel(module: Any, defined: Sequence[Any], level: int, words: Container[bytes]) -> None:
    """Optimize a module of one function, or of many functions that have one call site each and are not inlined.

    ``words`` contains the attributes of the functions.
    """
    is_flat, is_long = _FLAT in words, _LONG in words
    builder = _pass_builder(1 if is_flat or is_long else level, unrolls=False)
    if not is_flat:
        with _once(builder.getFunctionPassManager()) as simplify:
            for function in defined:
                end_if_requested()
                simplify.run(function, builder)
    own = (_OF_LONG_FLAT if is_long else _OF_FLAT) if is_flat else ()
    names = (*own, *(_AROUND if len(defined) > 1 else ()))
    if names:
        with _once(_llvm().create_new_module_pass_manager()) as around:
            for name in names:
                getattr(around, f"add_{name}_pass")()
            around.run(module, builder)


def _words(functions: Iterable[Any]) -> set[bytes]:
    """List the attributes of functions, of LLVM's and of our own."""
    return {word for function in functions for attribute in function.attributes for word in attribute.split()}


def compile_ir(text: str, symbol: str, level: int = 2, *, passes: bool = True) -> NativeFunction:
    """Compile a module, and return one of its functions.

    ``passes`` is for code that benefits from LLVM's optimizer. Without it, only the code generator uses ``level``.

    Raises:
        CujitError: LLVM rejects the text, which is a bug in cujit.
    """
    return load_object(emit_object(text, level, passes=passes), symbol)


def emit_object(
    ir: str | bytes, level: int = 2, *, passes: bool = True, kernel: bool = False, unwinds: bool = False
) -> bytes:
    """Compile a module into an object file for ``processor()``; the rest is as of ``optimise``.

    Raises:
        CujitError: LLVM refuses it, which is a fault of cujit.
    """

    def emit() -> bytes:
        module = optimise(ir, level, passes=passes, kernel=kernel, unwinds=unwinds)
        end_if_requested()
        words = _words(module.functions)
        most = 0 if _HUGE in words else 1 if _LONG in words else level
        return bytes(_compiler(min(level, most)).emit_object(module))

    return aside(emit)


def load_object(data: bytes, symbol: str) -> NativeFunction:
    """Load an object file of ``emit_object``, and return one of its functions.

    LLVM ends the process if the object is damaged, or if it calls a symbol unknown to ``address_of_name``. Check the
    object first.
    """
    return aside(lambda: _loaded(data, symbol))


def _loaded(data: bytes, symbol: str) -> NativeFunction:
    llvm = _llvm()
    for name, address in list(_NAMED.items()):  # other threads add to it
        llvm.add_symbol(name, address)
    machine = llvm.Target.from_triple(processor().triple).create_target_machine(opt=0, jit=True)  # compiles nothing
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(data))
    engine.finalize_object()
    return NativeFunction(int(engine.get_function_address(symbol)), _Engine(engine))


_NAMED: dict[str, int] = {}
"""What machine code may call by a name, besides the functions of the process."""


def name_address(symbol: str, address: int) -> None:
    """Publish an address in this process by name, for machine code that is loaded later."""
    _NAMED[symbol] = address


def address_of_name(symbol: str) -> int | None:
    """Return the address of a symbol for machine code: a published symbol, or a symbol of this process. Return None if
    the symbol is unknown.
    """
    found = _NAMED.get(symbol) or getattr(_process(), symbol, None)
    return found if found is None or isinstance(found, int) else ctypes.cast(found, ctypes.c_void_p).value


@functools.cache
def _process() -> ctypes.CDLL:
    """Return the libraries of this process, in which LLVM looks up functions."""
    return ctypes.CDLL(None)


class Processor(NamedTuple):
    """The processor that machine code is compiled for, and the LLVM that compiles it."""

    triple: str
    name: str
    features: str
    llvm: str


@functools.cache
def processor() -> Processor:
    """Return the processor that this process compiles machine code for.

    LLVM detects the processor once per machine. A hint stores the result while llvmlite and the processor stay the
    same.

    Raises:
        MissingError: llvmlite is not installed.
    """
    name = _hint_of_processor()
    hints = default_cache().hints if name else None
    known = hints.get(name) if hints is not None else None
    if known is not None:
        words = known.decode("ascii", "replace").split("\n")
        if len(words) == len(Processor._fields):
            return Processor(*words)
    found = aside(_processor)
    if hints is not None:
        hints.put(name, "\n".join(found).encode())
    return found


_HARDWARE = (16, 26)  # Source: Linux, include/uapi/linux/auxvec.h, AT_HWCAP and AT_HWCAP2
FIRST_PROCESSOR_BYTES = 4096
"""Bytes of ``/proc/cpuinfo`` that describe the first processor; the others are alike, and take a while to list."""


def _hint_of_processor() -> str:
    """Return the name of the hint for this processor and this llvmlite, which covers all facts that distinguish them.

    Return "" if these facts are unknown.
    """
    spec = find_spec("llvmlite")
    places = (spec.submodule_search_locations if spec is not None else None) or ()
    try:
        library = os.stat(os.path.join(next(iter(places)), "binding", "libllvmlite.so"))
        with open("/proc/cpuinfo", "rb", buffering=0) as file:
            lines = file.read(FIRST_PROCESSOR_BYTES).partition(b"\n\n")[0].split(b"\n")
        hardware = [ctypes.CDLL(None).getauxval(kind) for kind in _HARDWARE]
    except (OSError, AttributeError, StopIteration):
        return ""
    facts = [line for line in lines if not line.startswith((b"cpu MHz", b"bogomips", b"BogoMIPS", b"processor"))]
    stats = (library.st_size, library.st_ino, library.st_mtime_ns, library.st_ctime_ns)
    identity = (stats, facts, hardware, os.uname().machine)
    return "processor-" + sha256(repr(identity).encode()).hexdigest()


def _processor() -> Processor:
    llvm = _llvm()
    import llvmlite  # optional: as in ``_llvm``

    version = ".".join(map(str, llvm.llvm_version_info))
    return Processor(
        llvm.get_default_triple(),
        llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
        f"llvmlite {llvmlite.__version__}, LLVM {version}",
    )


def publish(code: NativeFunction, symbols: Iterable[str]) -> dict[str, int]:
    """Publish functions of this module by name for all code that is compiled later, and return the functions'
    addresses.

    The machine code is never released, because signal handlers and ending threads may call it while the process ends.
    """
    addresses = {symbol: code.other(symbol) for symbol in symbols}
    for symbol, address in addresses.items():
        name_address(symbol, address)
    code.engine.detach()
    return addresses
