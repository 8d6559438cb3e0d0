"""The codes of cujit's errors: the classes that raise each code, its meaning, and its remedy.

``cujit explain CODE`` prints a row, and the documentation's page of errors lists all codes. A code never changes its
meaning, so that tests, scripts, and searches can rely on it. Messages may change.
"""

from __future__ import annotations

from cujit.errors import OptionError, alike
from cujit.values import NamedTuple


class ErrorCode(NamedTuple):
    """The meaning and the remedy of a code. ``errors`` are the classes that raise it, separated by spaces."""

    errors: str
    meaning: str
    remedy: str


CODES = {
    "arch": ErrorCode(
        "ArchError",
        "The name of a GPU architecture is malformed, or no such architecture exists.",
        "Use a name such as sm_90, sm_90a or compute_90; cujit.doctor() lists the architectures of this machine.",
    ),
    "arch-mismatch": ErrorCode(
        "ArchError",
        "The image or kernel was built for a different architecture than the one that you requested.",
        "Build for the requested architecture: cujit build FILE --target sm_90 --target compute_80.",
    ),
    "arch-unsupported": ErrorCode(
        "ArchError",
        "The installed CUDA toolkit can't generate code for this architecture, which is too old or too new.",
        "Choose an architecture that the message lists, or install another toolkit: pip install 'cujit[cu12]'.",
    ),
    "argument": ErrorCode(
        "ArgumentError",
        "A function received a value that it doesn't accept.",
        "Compare the value with what the message expects.",
    ),
    "argument-count": ErrorCode(
        "ArgumentError",
        "The number of arguments differs from the number of kernel parameters.",
        "Pass one argument for each parameter, in order; kernel.signature shows the parameters.",
    ),
    "argument-type": ErrorCode(
        "ArgumentError",
        "An argument's type or range doesn't match the kernel parameter; for example, a float64 array for float*.",
        "Convert the argument: array.astype(np.float32), np.int32(n), or device.array(x) for a NumPy array.",
    ),
    "array-dtype": ErrorCode(
        "ArgumentError",
        "A device array can't store elements of this dtype.",
        "Convert the array first: device.array(x.astype(np.float32)).",
    ),
    "array-index": ErrorCode(
        "ArgumentError",
        "Device arrays support only integers and slices with step 1, and only along the first axis.",
        "Copy the array to NumPy and index the copy: array.numpy()[::2].",
    ),
    "array-shape": ErrorCode(
        "ArgumentError",
        "The shapes of two arrays differ, or a shape isn't a tuple of non-negative integers.",
        "Compare array.shape with the shape in the message.",
    ),
    "attribute-not-found": ErrorCode(
        "AttributeNotFoundError",
        "The name belongs to CuPy, PyCUDA, Numba or torch; cujit uses a different name.",
        "Use the name in the hint; see the page Migrate from CuPy, PyCUDA, Numba, PyTorch and cuda.core.",
    ),
    "block-size": ErrorCode(
        "LaunchError",
        "The block has too many threads for the kernel or device, or isn't the shape that the kernel was compiled for.",
        "Launch smaller blocks; kernel.max_block is the largest block size for this kernel.",
    ),
    "budget": ErrorCode(
        "BudgetError",
        "A kernel exceeds its budget, or its resource usage can't be determined.",
        "Reduce the kernel's resource usage, or raise the limit in the budget.",
    ),
    "bundle": ErrorCode(
        "BundleError",
        "The images can't be combined into one fatbin, which can contain cubins, PTX, LTO-IR and Tile IR.",
        "Pass images that were built from one source: cujit.build(source, targets=['sm_80', 'sm_90']).",
    ),
    "bundle-conflict": ErrorCode(
        "BundleError",
        "Two images of the fatbin conflict, so a loader would find the kernels of only one image.",
        "Bundle one image per architecture, each with all kernels. Link separate sources first with cujit.link.",
    ),
    "cache-refused": ErrorCode(
        "CacheRefusedError",
        "This cache, pack or key can't be trusted: other users could have modified it, or it isn't signed.",
        "Run the command in the hint to repair owner and permissions. For signatures, see Shared remote cache.",
    ),
    "closed": ErrorCode(
        "ClosedError",
        "An array, module, stream, event or graph was used after it was closed.",
        "Close the object after its last use, or use it inside its with block.",
    ),
    "cluster-size": ErrorCode(
        "LaunchError",
        "The cluster is invalid: the GPU doesn't support clusters, or the size doesn't fit the kernel or grid.",
        "Use a cluster of at most 8 blocks that divides the grid evenly: kernel.prepare(grid, block, cluster=2)(…).",
    ),
    "compile": ErrorCode(
        "CompileError",
        "The source doesn't compile. The message shows the compiler's first errors with their files and lines.",
        "Fix the first error; error.diagnostics contains all compiler messages as Python objects.",
    ),
    "cooperative-size": ErrorCode(
        "LaunchError",
        "The grid of a cooperative launch has more blocks than can be resident on the device at the same time.",
        "Launch at most kernel.cooperative_limit(block) blocks, or use the sizes from kernel.cooperative_shape().",
    ),
    "device-mismatch": ErrorCode(
        "ArgumentError",
        "An array, stream, event or graph belongs to a different device than the one that uses it.",
        "Create all objects on one device, or copy the array: device.array(array.numpy()).",
    ),
    "device-not-found": ErrorCode(
        "DeviceNotFoundError",
        "You requested a GPU, but no GPU has this number, or cujit doesn't support the GPU.",
        "Use the CPU device, cujit.cpu(), or check CUDA_VISIBLE_DEVICES and run cujit doctor.",
    ),
    "driver": ErrorCode(
        "DriverError",
        "A CUDA driver call failed; error.call and error.result name the call and its result.",
        "To find the cause, run the kernel on the CPU device with checks enabled: cujit.cpu(check='memory').",
    ),
    "driver-not-found": ErrorCode(
        "DriverNotFoundError",
        "The CUDA driver isn't installed, is too old, or doesn't respond.",
        "Install NVIDIA's driver, or use the CPU device, cujit.cpu(); cujit doctor shows what is missing.",
    ),
    "duplicate-symbol": ErrorCode(
        "LinkError",
        "Two inputs of a link define the same function or variable.",
        "Make one definition static, move it to an anonymous namespace, or pass only one of the inputs.",
    ),
    "environment-value": ErrorCode(
        "OptionError",
        "One of cujit's environment variables has an invalid value.",
        "Use a value that the message describes, or unset the variable; cujit --help lists the variables.",
    ),
    "failure": ErrorCode(
        "CujitError",
        "The operation failed for a reason that no other code describes.",
        "Read the message. If it doesn't help, report the error with the output of cujit doctor --report.",
    ),
    "fault-arithmetic": ErrorCode(
        "KernelFaultError",
        "The CPU rejected an arithmetic operation in the kernel.",
        "Report the error with a saved launch, which contains the PTX: cujit run FILE --save bug.launch.",
    ),
    "fault-assert": ErrorCode(
        "KernelFaultError",
        "An assert() in the kernel failed; the message contains the expression, the block and the thread.",
        "Fix the condition, or compile without asserts: cujit.jit(source, define={'NDEBUG': None}).",
    ),
    "fault-bad-free": ErrorCode(
        "KernelFaultError",
        "free() or delete received a pointer that malloc() or new didn't return, or that was already freed.",
        "Free each pointer exactly once, in the kernel and the process that allocated it.",
    ),
    "fault-breakpoint": ErrorCode(
        "KernelFaultError",
        "The kernel executed a breakpoint, and no debugger is attached.",
        "Remove the brkpt instruction or the __brkpt() call.",
    ),
    "fault-bulk-align": ErrorCode(
        "KernelFaultError",
        "The address or size of a bulk copy isn't a multiple of 16 bytes (128 bytes for a tensor in shared memory).",
        "Align shared arrays with __align__(128), and copy multiples of 16 bytes.",
    ),
    "fault-cancelled": ErrorCode(
        "KernelFaultError",
        "The host canceled the launch with kernel.cancel().",
        "You don't need to fix anything, but the memory that the kernel wrote may be incomplete.",
    ),
    "fault-check": ErrorCode(
        "KernelFaultError",
        "A CPU-device check found an error in the kernel.",
        "Read the message, which names the block, the thread and the line.",
    ),
    "fault-deadlock": ErrorCode(
        "KernelFaultError",
        "All threads are waiting and none can continue, usually because only some threads reached a barrier.",
        "Move __syncthreads() out of branches that only some threads take.",
    ),
    "fault-illegal-address": ErrorCode(
        "KernelFaultError",
        "The kernel accessed unmapped memory.",
        "Run the kernel with cujit.cpu(check='memory'), which names the array and the distance from its end.",
    ),
    "fault-illegal-call": ErrorCode(
        "KernelFaultError",
        "The kernel called a function pointer that doesn't point to a function of its module with matching parameters.",
        "Initialize the function pointer, or the object with virtual functions, in device code of the same module.",
    ),
    "fault-illegal-instruction": ErrorCode(
        "KernelFaultError",
        "The CPU rejected an instruction of the compiled kernel.",
        "Report the error with a saved launch, which contains the PTX: cujit run FILE --save bug.launch.",
    ),
    "fault-init": ErrorCode(
        "KernelFaultError",
        "The kernel or the host read memory that was never written.",
        "Write the element before reading it, or allocate the array with device.zeros(n).",
    ),
    "fault-interrupted": ErrorCode(
        "KernelFaultError",
        "A signal handler raised an exception while the kernel was running.",
        "You don't need to fix anything, but the memory that the kernel wrote may be incomplete.",
    ),
    "fault-lanes-apart": ErrorCode(
        "KernelFaultError",
        "Lanes of a warp are waiting for each other at different .sync instructions.",
        "Make all lanes of the mask execute the same instruction; for example, move __shfl_sync out of the branch.",
    ),
    "fault-memory": ErrorCode(
        "KernelFaultError",
        "The memory check found an access outside an allocation, or an access to freed memory.",
        "Compare the index with the array size in the message. Often, a bounds check is missing: if (i < n).",
    ),
    "fault-misaligned": ErrorCode(
        "KernelFaultError",
        "An accessed address isn't a multiple of the access size, often after a cast such as (float4*)(p + 1).",
        "Align the pointer to the size of the accessed type.",
    ),
    "fault-no-cluster": ErrorCode(
        "KernelFaultError",
        "The kernel executed an instruction that requires a launch with a cluster.",
        "Launch with a cluster, kernel.prepare(grid, block, cluster=1)(…), or declare __cluster_dims__(1, 1, 1).",
    ),
    "fault-no-memory": ErrorCode(
        "KernelFaultError",
        "The host doesn't have enough memory for the blocks of a cooperative grid.",
        "Launch fewer blocks, or use less shared and local memory per block.",
    ),
    "fault-race": ErrorCode(
        "KernelFaultError",
        "Two threads access the same memory without synchronization, and at least one of them writes.",
        "Put __syncthreads() between the accesses, use __syncwarp() within a warp, or make both accesses atomic.",
    ),
    "fault-stack-overflow": ErrorCode(
        "KernelFaultError",
        "A thread ran out of stack space.",
        "Make sure that any recursion ends, and move large local arrays to global memory.",
    ),
    "fault-sync": ErrorCode(
        "KernelFaultError",
        "A barrier or mask is used incorrectly: some of its threads don't arrive, or other threads do.",
        "Make sure that exactly the threads of the barrier or mask reach the instruction.",
    ),
    "fault-tensor-map": ErrorCode(
        "KernelFaultError",
        "The tensor map wasn't created for this device, or its axes or element type don't match the instruction.",
        "Create the tensor map with device.tensor_map(…), with as many axes as the instruction has coordinates.",
    ),
    "fault-tensor-memory": ErrorCode(
        "KernelFaultError",
        "The kernel used tensor memory that isn't allocated, that the warp can't access, or that it never deallocated.",
        "Read the message, which names the column or lane and the line; allocate with tcgen05.alloc before the access.",
    ),
    "fault-tensor-start": ErrorCode(
        "KernelFaultError",
        "A tensor store or reduction starts at a negative coordinate along the innermost axis.",
        "Use a starting coordinate of 0 or greater.",
    ),
    "fault-timeout": ErrorCode(
        "KernelFaultError",
        "The launch didn't finish within timeout_s; the message shows where its threads were.",
        "Fix the loop that doesn't end, or raise the limit: kernel.prepare(grid, block, timeout_s=60)(…).",
    ),
    "fault-trap": ErrorCode(
        "KernelFaultError",
        "The kernel executed __trap().",
        "Find the condition that the code tests before the trap.",
    ),
    "fault-warps-apart": ErrorCode(
        "KernelFaultError",
        "Not all four warps of a warpgroup reached the same warpgroup instruction, such as wgmma.",
        "Branch on threadIdx.x / 128 instead of threadIdx.x / 32, and launch a multiple of 128 threads.",
    ),
    "file": ErrorCode(
        "FileError",
        "A file doesn't exist, isn't a regular file, or can't be read or written; error.filename is its path.",
        "Correct the path or the file permissions.",
    ),
    "format": ErrorCode(
        "FormatError",
        "The content of a file or byte string is damaged, or isn't in the expected format.",
        "Build the file again; cujit inspect FILE shows what the file contains.",
    ),
    "graph-update": ErrorCode(
        "LaunchError",
        "A CUDA graph can be updated only from a graph with the same nodes and edges.",
        "Capture and instantiate a new graph.",
    ),
    "grid-missing": ErrorCode(
        "LaunchError",
        "A kernel is called without a launch configuration.",
        "Write kernel[grid, block](…), or kernel.over(n)(…) for n elements.",
    ),
    "grid-size": ErrorCode(
        "LaunchError",
        "The grid isn't one to three positive integers, or it exceeds the device's limit.",
        "Write kernel[(x, y, z), block](…), or kernel.over(n)(…), which chooses the grid.",
    ),
    "header-not-found": ErrorCode(
        "HeaderNotFoundError",
        "The compiler didn't find an included header; the message lists the directories that it searched.",
        "Add the header's directory: cujit.compile(source, include=['DIR']), or cujit compile FILE -I DIR.",
    ),
    "internal": ErrorCode(
        "CujitError",
        "An internal check failed because of a bug in cujit.",
        "Report the error with its message, the PTX and the output of cujit doctor --report.",
    ),
    "launch": ErrorCode(
        "LaunchError",
        "A launch option is invalid, or this device doesn't support it.",
        "Compare the option with what the message expects.",
    ),
    "link": ErrorCode(
        "LinkError",
        "The linker failed; error.log contains its output.",
        "Read the log; cujit inspect FILE shows what each input contains.",
    ),
    "link-empty": ErrorCode(
        "LinkError",
        "The linked image contains no code for the requested architecture.",
        "Build the inputs for the architecture, as relocatable code: cujit.compile(source, arch='sm_90', rdc=True).",
    ),
    "link-input": ErrorCode(
        "LinkError",
        "An input can't be linked: it is already linked, is for another architecture, or has an unsupported format.",
        "Compile the input as relocatable code: cujit.compile(source, arch='sm_90', rdc=True).",
    ),
    "link-version": ErrorCode(
        "LinkError",
        "An input was created by a newer toolkit than the linker's.",
        "Compile the input with the installed toolkit, or install the newer toolkit.",
    ),
    "load": ErrorCode(
        "LoadError",
        "The device can't load this image.",
        "Pass PTX or source code; for a GPU, cujit compat FILE shows where an image can be loaded.",
    ),
    "load-mismatch": ErrorCode(
        "LoadError",
        "The image has no code for this GPU, or its code is too new for the driver.",
        "Add a target, such as compute_80; cujit compat FILE shows where an image can be loaded.",
    ),
    "missing": ErrorCode(
        "MissingError",
        "An optional dependency or an operating-system feature is missing.",
        "Install the extra or the package that the message names.",
    ),
    "name-expression": ErrorCode(
        "OptionError",
        "An entry of names= isn't a valid C++ name expression.",
        "Write the kernel's name as in C++: names=['axpy<float>'].",
    ),
    "name-not-found": ErrorCode(
        "NameNotFoundError",
        "No kernel, variable or cache entry has this name, or more than one has it.",
        "List the names with list(module) or cujit inspect FILE. Write template instances as axpy<float>.",
    ),
    "not-compiled": ErrorCode(
        "NotCompiledError",
        "The image isn't in the cache, and CUJIT_COMPILE or the cache forbids compilation.",
        "Build the image beforehand with cujit worklist or cujit pack, or allow compilation with CUJIT_COMPILE=warn.",
    ),
    "not-tuned": ErrorCode(
        "NotTunedError",
        "The cache has no tuning result and CUJIT_TUNE forbids measuring, or none of the candidates ran.",
        "Tune beforehand on the same GPU, or set CUJIT_TUNE=auto.",
    ),
    "option": ErrorCode(
        "OptionError",
        "An option's value has the wrong type or is out of range.",
        "Compare the value with what the message expects.",
    ),
    "option-conflict": ErrorCode(
        "OptionError LaunchError",
        "Two options are mutually exclusive, or one option requires the other.",
        "Remove one of the options that the message names, or add the missing option.",
    ),
    "option-rejected": ErrorCode(
        "OptionError",
        "The compiler or linker that cujit uses for this task doesn't support the option.",
        "Remove the option; the page Compiler options shows which tools support each option.",
    ),
    "option-unknown": ErrorCode(
        "OptionError",
        "No option, device, check or setting has this name.",
        "Use the name that the hint suggests; the page Compiler options lists all compiler options.",
    ),
    "out-of-memory": ErrorCode(
        "CujitError",
        "The host doesn't have enough memory for the operation on the CPU device or in the emulator.",
        "Allocate less, or launch fewer blocks at a time.",
    ),
    "ptx-syntax": ErrorCode(
        "PtxSyntaxError",
        "The PTX is malformed; the message shows the line and column.",
        "Correct the line, or regenerate the PTX from its source.",
    ),
    "remote": ErrorCode(
        "RemoteError",
        "The shared cache doesn't respond, or its response is invalid; cujit continues with the local cache.",
        "Check the address in CUJIT_REMOTE; see the page Shared remote cache.",
    ),
    "shared-memory-size": ErrorCode(
        "LaunchError",
        "The block requires more shared memory than the device has, or shared_bytes is invalid.",
        "Use a smaller tile; device.limits contains the maximum size.",
    ),
    "sm-count": ErrorCode(
        "LaunchError",
        "The GPU has fewer SMs than the green contexts need in whole groups.",
        "Request fewer SMs: device.green_contexts(8, None).",
    ),
    "stream": ErrorCode(
        "LaunchError",
        "The value passed as stream= isn't a stream of this device.",
        "Pass device.stream(), or the address of a cudaStream_t.",
    ),
    "stream-capture": ErrorCode(
        "LaunchError DriverError",
        "The operation isn't allowed while a stream is being captured into a graph, or it requires a capture.",
        "Capture on a separate stream: with device.capture() as graph.",
    ),
    "tool": ErrorCode(
        "ToolError",
        "A call to an NVIDIA library failed; error.call and error.result name the call and its result.",
        "Read error.log; cujit doctor shows which libraries are in use.",
    ),
    "tool-crash": ErrorCode(
        "ToolCrashError",
        "The separate process that did the work crashed or reached its memory limit.",
        "Raise memory_mib, or reduce the source to the code that crashes the compiler and report it to NVIDIA.",
    ),
    "tool-timeout": ErrorCode(
        "ToolTimeoutError",
        "The operation took longer than timeout_s.",
        "Raise timeout_s, as in cujit.compile(source, timeout_s=60), or split the source.",
    ),
    "toolchain-not-found": ErrorCode(
        "ToolchainNotFoundError",
        "A library of the CUDA toolkit isn't installed.",
        "Install the library: pip install 'cujit[cu13]'; cujit doctor shows what is missing.",
    ),
    "trust-missing": ErrorCode(
        "OptionError",
        "A shared cache requires a key: a private key to sign with, or the public keys that you trust.",
        "To read, set CUJIT_TRUST=FILE or --trust FILE; to publish, --key FILE. cujit cache keygen creates keys.",
    ),
    "undefined-symbol": ErrorCode(
        "LinkError",
        "The inputs use a function or variable that none of them defines.",
        'Add the source or library that defines the symbol, and check that spelling and extern "C" match.',
    ),
    "unsupported": ErrorCode(
        "UnsupportedError",
        "The device doesn't support this operation or PTX instruction; error.items lists each one with its line.",
        "Run cujit inspect --needs FILE to list what the file requires; see PTX instructions of the CPU device.",
    ),
    "wrong-result": ErrorCode(
        "CujitError",
        "A kernel's result differs from the result that the check expects.",
        "Find the cause on the CPU device with checks enabled: cujit.cpu(check='memory,race').",
    ),
}
"""The codes in alphabetical order."""


def explain(code: str) -> ErrorCode:
    """Return the meaning and the remedy of an error code.

    Raises:
        OptionError: the code is unknown.

    Example::

    from cujit.errors.codes import explain

    assert "LaunchError" in explain("grid-missing").errors
    """
    if code not in CODES:
        near = alike(code, CODES)
        help = f"did you mean {' or '.join(near)}?" if near else "cujit explain, with no code, lists all codes"
        raise OptionError(f"unknown error code '{code}'", help=help, code="option-unknown")
    return CODES[code]
