"""The codes of cujit's errors: the classes that raise each, what it means and what to do.

``cujit explain CODE`` prints a row, and the documentation's page of errors lists them all. A code never changes its
meaning, so that tests, scripts and searches can rely on it; messages may change.
"""

from __future__ import annotations

from cujit.errors import OptionError, alike
from cujit.values import NamedTuple


class ErrorCode(NamedTuple):
    """What a code means; ``errors`` are the classes that raise it, separated by spaces."""

    errors: str
    meaning: str
    remedy: str


CODES = {
    "arch": ErrorCode(
        "ArchError",
        "The name of a GPU architecture is malformed, or no such architecture exists.",
        "Write a name such as sm_90, sm_90a or compute_90; cujit.doctor() lists the architectures of this machine.",
    ),
    "arch-mismatch": ErrorCode(
        "ArchError",
        "An image or kernel holds code for another architecture than the one that you asked for.",
        "Build for that architecture: cujit build FILE --target sm_90 --target compute_80.",
    ),
    "arch-unsupported": ErrorCode(
        "ArchError",
        "The installed CUDA toolkit doesn't generate code for this architecture: it is too old or too new.",
        "Choose an architecture from the message, or install another toolkit: pip install 'cujit[cu12]'.",
    ),
    "argument": ErrorCode(
        "ArgumentError",
        "A value doesn't fit the call that it was passed to.",
        "Compare the value with what the message expects.",
    ),
    "argument-count": ErrorCode(
        "ArgumentError",
        "The number of arguments differs from the number of kernel parameters.",
        "Pass one argument for each parameter, in order; kernel.signature shows the parameters.",
    ),
    "argument-type": ErrorCode(
        "ArgumentError",
        "An argument's type or range doesn't fit the kernel parameter, such as a float64 array for float*.",
        "Convert the argument: array.astype(np.float32), np.int32(n), or device.array(x) for a NumPy array.",
    ),
    "array-dtype": ErrorCode(
        "ArgumentError",
        "The dtype can't be stored in this device array.",
        "Convert first: device.array(x.astype(np.float32)).",
    ),
    "array-index": ErrorCode(
        "ArgumentError",
        "A device array supports integers and slices with step 1 along its first axis.",
        "Copy the array to NumPy and index it there: array.numpy()[::2].",
    ),
    "array-shape": ErrorCode(
        "ArgumentError",
        "The shapes of two arrays differ, or a shape isn't a tuple of non-negative integers.",
        "Compare array.shape with the shape in the message.",
    ),
    "attribute-not-found": ErrorCode(
        "AttributeNotFoundError",
        "The name belongs to CuPy, PyCUDA, Numba or torch, and cujit uses another name.",
        "Write the name from the hint; see the page Coming from.",
    ),
    "block-size": ErrorCode(
        "LaunchError",
        "The block has more threads than the kernel or the device allows, or another shape than it was compiled for.",
        "Launch smaller blocks; kernel.max_block is the largest block of this kernel.",
    ),
    "budget": ErrorCode(
        "BudgetError",
        "A kernel exceeds its budget, or its resource usage can't be determined.",
        "Reduce what the kernel uses, or raise the limit in the budget.",
    ),
    "bundle": ErrorCode(
        "BundleError",
        "The images don't fit into one fatbin: a fatbin contains cubins, PTX and LTO-IR.",
        "Pass the images of one source: cujit.build(source, targets=['sm_80', 'sm_90']).",
    ),
    "bundle-conflict": ErrorCode(
        "BundleError",
        "Two images of a fatbin exclude each other, so that a loader finds only the kernels of one.",
        "Bundle one image per architecture, each with all kernels; link separate sources first with cujit.link.",
    ),
    "cache-refused": ErrorCode(
        "CacheRefusedError",
        "cujit doesn't use this cache, pack or key, because other users could have written to it or nobody signed it.",
        "Run the command in the hint, which repairs owner and permissions; for signatures, see the page Shared cache.",
    ),
    "closed": ErrorCode(
        "ClosedError",
        "An array, module, stream, event or graph is used after it was closed.",
        "Close it after its last use, or use it inside its with block.",
    ),
    "cluster-size": ErrorCode(
        "LaunchError",
        "The launch has no valid thread block cluster: the GPU has none, or the size doesn't fit the kernel or grid.",
        "Use a cluster of at most 8 blocks that divides the grid: kernel.prepare(grid, block, cluster=2)(…).",
    ),
    "compile": ErrorCode(
        "CompileError",
        "The source doesn't compile; the message shows the compiler's first errors with file and line.",
        "Correct the first error; error.diagnostics holds all of them as Python objects.",
    ),
    "cooperative-size": ErrorCode(
        "LaunchError",
        "All blocks of a cooperative launch must be resident at the same time, and the grid has more.",
        "Launch at most kernel.cooperative_limit(block) blocks, or kernel.cooperative_shape().",
    ),
    "device-mismatch": ErrorCode(
        "ArgumentError",
        "An array, stream, event or graph belongs to another device than the one that uses it.",
        "Create all of them on one device, or copy the array: device.array(array.numpy()).",
    ),
    "device-not-found": ErrorCode(
        "DeviceNotFoundError",
        "You asked for a GPU, and there is none with this number or none that cujit supports.",
        "Use the CPU device, cujit.cpu(), or check CUDA_VISIBLE_DEVICES and run cujit doctor.",
    ),
    "driver": ErrorCode(
        "DriverError",
        "A call of the CUDA driver failed; error.call and error.result name the call and its result.",
        "Run the kernel on the CPU device with checks to find the cause: cujit.cpu(check='memory').",
    ),
    "driver-not-found": ErrorCode(
        "DriverNotFoundError",
        "The CUDA driver isn't installed, is too old, or doesn't answer.",
        "Install NVIDIA's driver, or use the CPU device, cujit.cpu(); cujit doctor shows what is missing.",
    ),
    "duplicate-symbol": ErrorCode(
        "LinkError",
        "Two inputs of a link define the same function or variable.",
        "Make one of them static or put it into an anonymous namespace, or pass only one of the inputs.",
    ),
    "environment-value": ErrorCode(
        "OptionError",
        "An environment variable of cujit has an invalid value.",
        "Set the value from the message, or unset the variable; cujit --help lists the variables.",
    ),
    "failure": ErrorCode(
        "CujitError",
        "The operation failed for a reason that no other code describes.",
        "Read the message; if it doesn't help, report it with the output of cujit doctor --report.",
    ),
    "fault-arithmetic": ErrorCode(
        "KernelFaultError",
        "The CPU rejected an arithmetic operation of the kernel.",
        "Report the error with the PTX: cujit run FILE --save bug.launch.",
    ),
    "fault-assert": ErrorCode(
        "KernelFaultError",
        "An assert() of the kernel failed; the message has the expression, the block and the thread.",
        "Correct the condition, or compile without asserts: cujit.jit(source, define={'NDEBUG': None}).",
    ),
    "fault-bad-free": ErrorCode(
        "KernelFaultError",
        "free() or delete got a pointer that malloc() or new didn't return, or that was already freed.",
        "Free each pointer once, in the kernel and the process that allocated it.",
    ),
    "fault-breakpoint": ErrorCode(
        "KernelFaultError",
        "The kernel executed a breakpoint, and no debugger is attached.",
        "Remove the brkpt instruction or __brkpt().",
    ),
    "fault-bulk-align": ErrorCode(
        "KernelFaultError",
        "An address or size of a bulk copy isn't a multiple of 16 bytes, or of 128 for a tensor in shared memory.",
        "Align shared arrays with __align__(128), and copy multiples of 16 bytes.",
    ),
    "fault-cancelled": ErrorCode(
        "KernelFaultError",
        "The host canceled the launch with kernel.cancel().",
        "Nothing to correct; the memory that the kernel wrote may be incomplete.",
    ),
    "fault-check": ErrorCode(
        "KernelFaultError",
        "A check of the CPU device found an error.",
        "Read the message: it names the block, the thread and the line.",
    ),
    "fault-deadlock": ErrorCode(
        "KernelFaultError",
        "All threads wait, and none can continue, usually because only some threads reach a barrier.",
        "Move __syncthreads() out of conditions that differ between threads.",
    ),
    "fault-illegal-address": ErrorCode(
        "KernelFaultError",
        "The kernel accessed memory that isn't mapped.",
        "Run it with cujit.cpu(check='memory'), which names the array and the distance from its end.",
    ),
    "fault-illegal-call": ErrorCode(
        "KernelFaultError",
        "The kernel called a function pointer that points to no function of its module with these parameters.",
        "Initialize the pointer, or the object with virtual functions, in device code of the same module.",
    ),
    "fault-illegal-instruction": ErrorCode(
        "KernelFaultError",
        "The CPU rejected an instruction of the compiled kernel.",
        "Report the error with the PTX: cujit run FILE --save bug.launch.",
    ),
    "fault-init": ErrorCode(
        "KernelFaultError",
        "The kernel or the host read memory that nothing has written.",
        "Write the element first, or allocate the array with device.zeros(n).",
    ),
    "fault-interrupted": ErrorCode(
        "KernelFaultError",
        "A signal handler raised an exception while the kernel ran.",
        "Nothing to correct; the memory that the kernel wrote may be incomplete.",
    ),
    "fault-lanes-apart": ErrorCode(
        "KernelFaultError",
        "Lanes of a warp wait for each other at different .sync instructions.",
        "Let all lanes of the mask execute the same instruction, such as one __shfl_sync outside the branch.",
    ),
    "fault-memory": ErrorCode(
        "KernelFaultError",
        "The memory check found an access outside of an allocation, or to memory that was freed.",
        "Compare the index with the size of the array in the message, often: if (i < n).",
    ),
    "fault-misaligned": ErrorCode(
        "KernelFaultError",
        "The address of an access isn't a multiple of its size, often after a cast such as (float4*)(p + 1).",
        "Align the pointer to the size of the type.",
    ),
    "fault-no-cluster": ErrorCode(
        "KernelFaultError",
        "The kernel executed an instruction that requires a launch with a cluster.",
        "Launch with a cluster, kernel.prepare(grid, block, cluster=1)(…), or declare __cluster_dims__(1, 1, 1).",
    ),
    "fault-no-memory": ErrorCode(
        "KernelFaultError",
        "The host has too little memory for the blocks of a cooperative grid.",
        "Launch fewer blocks, or blocks with less shared and local memory.",
    ),
    "fault-race": ErrorCode(
        "KernelFaultError",
        "Two threads access the same memory without synchronization, and one of them writes.",
        "Put __syncthreads() between the accesses, or __syncwarp() within a warp, or make both atomic.",
    ),
    "fault-stack-overflow": ErrorCode(
        "KernelFaultError",
        "A thread used up its stack.",
        "Check that the recursion ends; put large local arrays into global memory.",
    ),
    "fault-sync": ErrorCode(
        "KernelFaultError",
        "A barrier or mask is used wrongly: not all threads that it names arrive, or others do.",
        "Let exactly the threads of the barrier or mask reach it.",
    ),
    "fault-tensor-map": ErrorCode(
        "KernelFaultError",
        "The tensor map wasn't created for this device, or its axes or element type don't fit the instruction.",
        "Create it with device.tensor_map(…), with as many axes as the instruction has coordinates.",
    ),
    "fault-tensor-start": ErrorCode(
        "KernelFaultError",
        "A tensor store or reduction starts before the tensor along the innermost axis.",
        "Start at coordinate 0 or later.",
    ),
    "fault-timeout": ErrorCode(
        "KernelFaultError",
        "The launch didn't end within timeout_s; the message shows where its threads were.",
        "Correct the loop that doesn't end, or raise the limit: kernel.prepare(grid, block, timeout_s=60)(…).",
    ),
    "fault-trap": ErrorCode(
        "KernelFaultError",
        "The kernel executed __trap().",
        "Find the condition that the code tests before its trap.",
    ),
    "fault-warps-apart": ErrorCode(
        "KernelFaultError",
        "Not all four warps of a warpgroup reach a warpgroup instruction, such as wgmma.",
        "Branch by threadIdx.x / 128 instead of threadIdx.x / 32, and launch a multiple of 128 threads.",
    ),
    "file": ErrorCode(
        "FileError",
        "A file doesn't exist, isn't a regular file, or can't be read or written; error.filename is its path.",
        "Correct the path or the permissions.",
    ),
    "format": ErrorCode(
        "FormatError",
        "The content of a file or of bytes is damaged, or isn't of the expected format.",
        "Build the file again; cujit inspect FILE shows what it contains.",
    ),
    "graph-update": ErrorCode(
        "LaunchError",
        "A CUDA graph can be updated only by a graph with the same nodes and edges.",
        "Capture and instantiate a new graph.",
    ),
    "grid-missing": ErrorCode(
        "LaunchError",
        "A kernel is called without a launch configuration.",
        "Write kernel[grid, block](…), or kernel.over(n)(…) for n elements.",
    ),
    "grid-size": ErrorCode(
        "LaunchError",
        "The grid isn't one to three positive integers, or exceeds the device's limit.",
        "Write kernel[(x, y, z), block](…), or kernel.over(n)(…), which chooses the grid.",
    ),
    "header-not-found": ErrorCode(
        "HeaderNotFoundError",
        "The compiler didn't find an #include; the message lists the directories that it searched.",
        "Add the directory, cujit.compile(source, include=['DIR']), or cujit compile FILE -I DIR.",
    ),
    "internal": ErrorCode(
        "CujitError",
        "cujit made a mistake.",
        "Report it with the message, the PTX and the output of cujit doctor --report.",
    ),
    "launch": ErrorCode(
        "LaunchError",
        "An option of a launch is invalid, or this device doesn't support it.",
        "Compare the option with what the message expects.",
    ),
    "link": ErrorCode(
        "LinkError",
        "The linker failed; error.log holds its output.",
        "Read the log; cujit inspect FILE shows what each input contains.",
    ),
    "link-empty": ErrorCode(
        "LinkError",
        "The linked image contains no code for the architecture.",
        "Build the inputs for it, with relocatable code: cujit.compile(source, arch='sm_90', rdc=True).",
    ),
    "link-input": ErrorCode(
        "LinkError",
        "An input can't be linked: it is finished code, of another architecture, or of another kind.",
        "Compile it as relocatable code: cujit.compile(source, arch='sm_90', rdc=True).",
    ),
    "link-version": ErrorCode(
        "LinkError",
        "An input was created by a newer toolkit than the linker.",
        "Compile the input with the installed toolkit, or install the newer one.",
    ),
    "load": ErrorCode(
        "LoadError",
        "The device can't load this image.",
        "Pass PTX or the source; for a GPU, cujit compat FILE shows where an image loads.",
    ),
    "load-mismatch": ErrorCode(
        "LoadError",
        "The image has no code for this GPU, or its code is too new for the driver.",
        "Add a target, such as compute_80; cujit compat FILE shows where an image loads.",
    ),
    "missing": ErrorCode(
        "MissingError",
        "An optional dependency, or a feature of the operating system, is missing.",
        "Install the extra or the package that the message names.",
    ),
    "name-expression": ErrorCode(
        "OptionError",
        "An entry of names= isn't a name expression of CUDA C++.",
        "Write the kernel as C++ does: names=['axpy<float>'].",
    ),
    "name-not-found": ErrorCode(
        "NameNotFoundError",
        "No kernel, variable or cache entry has this name, or several have.",
        "List the names: list(module), or cujit inspect FILE; write templates as axpy<float>.",
    ),
    "not-compiled": ErrorCode(
        "NotCompiledError",
        "The image isn't in the cache, and CUJIT_COMPILE or the cache forbids compilation.",
        "Build it beforehand with cujit worklist or cujit pack, or allow compilation with CUJIT_COMPILE=warn.",
    ),
    "not-tuned": ErrorCode(
        "NotTunedError",
        "The cache has no tuning result, and CUJIT_TUNE forbids measuring; or no candidate ran.",
        "Tune beforehand on the same GPU, or set CUJIT_TUNE=auto.",
    ),
    "option": ErrorCode(
        "OptionError",
        "An option has a value of the wrong type or range.",
        "Compare the value with what the message expects.",
    ),
    "option-conflict": ErrorCode(
        "OptionError LaunchError",
        "Two options exclude each other, or one requires the other.",
        "Remove one of the options that the message names, or add the one that is missing.",
    ),
    "option-rejected": ErrorCode(
        "OptionError",
        "The compiler or linker that does this work doesn't support the option.",
        "Remove the option; the page Compiler options lists which tool supports it.",
    ),
    "option-unknown": ErrorCode(
        "OptionError",
        "No option, device, check or setting has this name.",
        "Write the name that the hint suggests; the page Compiler options lists the options of the compilers.",
    ),
    "out-of-memory": ErrorCode(
        "CujitError",
        "The host has too little memory for what the CPU device or the emulator was asked to do.",
        "Allocate less, or launch fewer blocks at a time.",
    ),
    "ptx-syntax": ErrorCode(
        "PtxSyntaxError",
        "The PTX is malformed; the message shows line and column.",
        "Correct the line, or compile it again from its source.",
    ),
    "remote": ErrorCode(
        "RemoteError",
        "A shared cache doesn't answer, or its answer is invalid; work goes on with the local cache.",
        "Check the address in CUJIT_REMOTE; see the page Shared cache.",
    ),
    "shared-memory-size": ErrorCode(
        "LaunchError",
        "The block needs more shared memory than the device has, or shared_bytes is invalid.",
        "Use a smaller tile; device.limits has the largest size.",
    ),
    "stream": ErrorCode(
        "LaunchError",
        "The value passed as stream= isn't a stream of this device.",
        "Pass device.stream(), or the address of a cudaStream_t.",
    ),
    "stream-capture": ErrorCode(
        "LaunchError DriverError",
        "The operation isn't allowed while a stream is captured into a graph, or needs a capture.",
        "Capture on a stream of its own: with device.capture() as graph.",
    ),
    "tool": ErrorCode(
        "ToolError",
        "A call into one of NVIDIA's libraries failed; error.call and error.result name the call and its result.",
        "Read error.log; cujit doctor shows which libraries are in use.",
    ),
    "tool-crash": ErrorCode(
        "ToolCrashError",
        "The separate process that did the work crashed, or reached its memory limit.",
        "Raise memory_mib, or reduce the source to the part that crashes the compiler and report it to NVIDIA.",
    ),
    "tool-timeout": ErrorCode(
        "ToolTimeoutError",
        "The work took longer than timeout_s.",
        "Raise timeout_s, or split the source; cujit.compile(source, timeout_s=60).",
    ),
    "toolchain-not-found": ErrorCode(
        "ToolchainNotFoundError",
        "A library of the CUDA toolkit isn't installed.",
        "Install it: pip install 'cujit[cu13]'; cujit doctor shows what is missing.",
    ),
    "trust-missing": ErrorCode(
        "OptionError",
        "A shared cache needs a key: one to sign with, or the public keys that you trust.",
        "Set CUJIT_TRUST=FILE or --trust FILE to read, and --key FILE to publish; cujit cache keygen creates keys.",
    ),
    "undefined-symbol": ErrorCode(
        "LinkError",
        "The inputs use a function or variable that none of them defines.",
        'Add the source or library that defines it, and compare the spelling and extern "C" of both.',
    ),
    "unsupported": ErrorCode(
        "UnsupportedError",
        "The device doesn't support this operation or PTX instruction; error.items lists each with its line.",
        "Run cujit inspect --needs FILE to list what a file needs; the page PTX instructions lists what is supported.",
    ),
    "wrong-result": ErrorCode(
        "CujitError",
        "A kernel computed another result than the check expects.",
        "Find the cause on the CPU device with checks: cujit.cpu(check='memory,race').",
    ),
}
"""The codes in alphabetical order."""


def explain(code: str) -> ErrorCode:
    """Return what a code means, and what to do.

    Raises:
        OptionError: there is no such code.

    Example::

        from cujit.errors.codes import explain

        assert explain("grid-missing").errors == "LaunchError"
    """
    if code not in CODES:
        near = alike(code, CODES)
        help = f"did you mean {' or '.join(near)}?" if near else "cujit explain, with no code, lists all codes"
        raise OptionError(f"no error has the code '{code}'", help=help, code="option-unknown")
    return CODES[code]
