"""What each PTX instruction does, in a sentence of our own; ``docs/instructions.md`` and the pages show them.

A key is an opcode with the words that change what it does: ``meaning_key`` finds the one for an instruction. The manual
(PTX ISA 9.1, chapter 9.7) defines the instructions, and ``table`` has the section of each form.
"""

from __future__ import annotations

from collections.abc import Mapping

MEANINGS: Mapping[str, str] = {
    # arithmetic
    "add": "Adds two values.",
    "add.cc": "Adds two integers and keeps the carry for the next instruction.",
    "addc": "Adds two integers and the carry of the instruction before.",
    "sub": "Subtracts the second value from the first.",
    "sub.cc": "Subtracts two integers and keeps the borrow for the next instruction.",
    "subc": "Subtracts two integers and the borrow of the instruction before.",
    "mul": "Multiplies two values.",
    "mul.lo": "Multiplies two integers and returns the low half of the product.",
    "mul.hi": "Multiplies two integers and returns the high half of the product.",
    "mul.wide": "Multiplies two integers and returns the whole product, which is twice as wide.",
    "mul24": "Multiplies the low 24 bits of two integers.",
    "mad": "Multiplies two values and adds a third.",
    "mad.wide": "Multiplies two integers and adds a third that is twice as wide.",
    "mad.cc": "Multiplies two integers, adds a third, and keeps the carry.",
    "madc": "Multiplies two integers, and adds a third and the carry of the instruction before.",
    "mad24": "Multiplies the low 24 bits of two integers and adds a third integer.",
    "clmad": "Multiplies two words without carries, and combines the product with a third by XOR.",
    "fma": "Multiplies two numbers, adds a third, and rounds once.",
    "sad": "Adds the absolute difference of two integers to a third.",
    "div": "Divides the first value by the second.",
    "div.approx": "Divides two numbers by a fast approximation.",
    "div.full": "Divides two numbers by an approximation that covers the full range.",
    "rem": "Returns the remainder of an integer division.",
    "abs": "Returns the absolute value.",
    "neg": "Changes the sign.",
    "min": "Returns the smaller value.",
    "max": "Returns the larger value.",
    "rcp": "Returns the reciprocal.",
    "sqrt": "Returns the square root.",
    "rsqrt": "Returns the reciprocal of the square root.",
    "sin": "Returns an approximate sine of an angle in radians.",
    "cos": "Returns an approximate cosine of an angle in radians.",
    "lg2": "Returns an approximate logarithm to base 2.",
    "ex2": "Returns an approximate power of 2.",
    "tanh": "Returns an approximate hyperbolic tangent.",
    "testp": "Tests whether a number is of a kind, such as finite or NaN.",
    "copysign": "Returns the magnitude of one number with the sign of another.",
    "dp4a": "Multiplies four pairs of bytes and adds the products to an integer.",
    "dp2a": "Multiplies two pairs of a 16-bit and an 8-bit integer, and adds the products to an integer.",
    # bits
    "popc": "Counts the bits that are set.",
    "clz": "Counts the zero bits above the highest set bit.",
    "bfind": "Finds the highest bit that differs from the sign, or is set.",
    "fns": "Finds the position of the n-th set bit.",
    "brev": "Reverses the order of the bits.",
    "bfe": "Extracts a field of bits.",
    "bfi": "Inserts a field of bits into a word.",
    "bmsk": "Makes a mask of consecutive set bits.",
    "szext": "Extends the lowest bits of a word by zeros or by their sign.",
    "and": "Combines the bits of two values by AND.",
    "or": "Combines the bits of two values by OR.",
    "xor": "Combines the bits of two values by exclusive OR.",
    "not": "Inverts every bit.",
    "cnot": "Returns 1 for zero, and 0 for any other value.",
    "lop3": "Combines the bits of three values by a truth table of eight entries.",
    "shl": "Shifts bits to the left.",
    "shr": "Shifts bits to the right; a signed type keeps its sign.",
    "shf": "Shifts the 64 bits of two words and returns one word.",
    "prmt": "Picks four bytes from the eight bytes of two words.",
    # comparison
    "setp": "Compares two values and sets a predicate.",
    "set": "Compares two values and writes the result as a number.",
    "selp": "Selects one of two values by a predicate.",
    "slct": "Selects one of two values by the sign of a third.",
    # video
    "vadd": "Adds parts of two words, such as single bytes.",
    "vsub": "Subtracts parts of two words, such as single bytes.",
    "vabsdiff": "Returns the absolute difference of parts of two words.",
    "vmin": "Returns the smaller of parts of two words.",
    "vmax": "Returns the larger of parts of two words.",
    "vshl": "Shifts a part of a word to the left.",
    "vshr": "Shifts a part of a word to the right.",
    "vmad": "Multiplies parts of two words and adds a word.",
    "vset": "Compares parts of two words.",
    **{
        f"{name}{count}": f"{does} in each of the {word} parts of two words."
        for name, does in {
            "vadd": "Adds",
            "vsub": "Subtracts",
            "vavrg": "Averages",
            "vabsdiff": "Takes the absolute difference",
            "vmin": "Takes the smaller value",
            "vmax": "Takes the larger value",
            "vset": "Compares the values",
        }.items()
        for count, word in ((2, "two"), (4, "four"))
    },
    # data movement
    "mov": "Copies a value, or takes the address of a variable.",
    "cvt": "Converts a value to another type.",
    "cvt.pack": "Converts two integers to a narrower type and packs them into one word.",
    "cvta": "Converts an address of one memory space to a generic address.",
    "cvta.to": "Converts a generic address to an address of one memory space.",
    "isspacep": "Tests whether a generic address is in a memory space.",
    "ld": "Loads from memory, by a generic address if no space is named.",
    "ld.global": "Loads from global memory.",
    "ld.shared": "Loads from shared memory of the block.",
    "ld.shared::cluster": "Loads from shared memory of a block of the cluster.",
    "ld.local": "Loads from the thread's local memory, such as a spilled register.",
    "ld.const": "Loads from constant memory.",
    "ld.param": "Loads a parameter of the kernel or function.",
    "ldu": "Loads from global memory an address that is the same for all threads of a warp.",
    "st": "Stores to memory, by a generic address if no space is named.",
    "st.global": "Stores to global memory.",
    "st.shared": "Stores to shared memory of the block.",
    "st.shared::cluster": "Stores to shared memory of a block of the cluster.",
    "st.local": "Stores to the thread's local memory.",
    "st.param": "Stores an argument of a call, or a result.",
    "st.async": "Stores to shared memory of the cluster in the background; an mbarrier tracks the bytes.",
    "st.bulk": "Fills a range of shared memory.",
    "red": "Updates memory atomically and returns nothing.",
    "red.async": "Updates shared memory of the cluster in the background; an mbarrier tracks the bytes.",
    "atom": "Updates memory atomically and returns the old value.",
    "multimem": "Accesses the same place in the memory of several GPUs by one address.",
    "fabric": "Accesses memory across the fabric that connects GPUs.",
    "prefetch": "Asks for a cache line ahead of its use.",
    "prefetchu": "Asks for a cache line in the uniform cache ahead of its use.",
    "applypriority": "Changes the eviction priority of a cache line.",
    "discard": "Drops a cache line without writing it back.",
    "createpolicy": "Makes a cache policy for later accesses.",
    "mapa": "Maps an address in shared memory to another block of the cluster.",
    "getctarank": "Finds the block of the cluster that an address in shared memory belongs to.",
    "shfl": "Exchanges registers between the lanes of a warp.",
    "spcompress": "Compresses a sparse matrix for the tensor cores.",
    "spdecompress": "Decompresses a sparse matrix.",
    # copies
    "cp.async": "Copies 4 to 16 bytes from global to shared memory in the background.",
    "cp.async.commit_group": "Closes a group of the thread's asynchronous copies, for which it can wait later.",
    "cp.async.wait_group": "Waits until at most n of the thread's newest copy groups are pending.",
    "cp.async.wait_all": "Waits for all asynchronous copies of the thread.",
    "cp.async.mbarrier": "Lets an mbarrier track the thread's asynchronous copies.",
    "cp.async.bulk": "Copies a contiguous range between global and shared memory in the background.",
    "cp.async.bulk.tensor": "Copies a tile of a tensor between global and shared memory, by a tensor map.",
    "cp.async.bulk.prefetch": "Prefetches a contiguous range into the L2 cache.",
    "cp.async.bulk.prefetch.tensor": "Prefetches a tile of a tensor into the L2 cache, by a tensor map.",
    "cp.async.bulk.commit_group": "Closes a group of the thread's bulk copies, for which it can wait later.",
    "cp.async.bulk.wait_group": "Waits until at most n of the thread's newest bulk groups are pending.",
    "cp.reduce.async.bulk": "Combines a range of shared memory with other memory in the background.",
    "cp.reduce.async.bulk.tensor": "Combines a tile in shared memory with a tensor in global memory in the background.",
    "cp.mask": "Copies the bytes that a mask selects.",
    "tensormap": "Changes a field of a tensor map, or makes the changed map visible.",
    # textures and surfaces
    "tex": "Looks up a texture.",
    "tld4": "Returns one component of the four texels around a texture coordinate.",
    "txq": "Returns a property of a texture or sampler.",
    "istypep": "Tests whether a register holds a texture, sampler, or surface reference.",
    "suld": "Loads from a surface.",
    "sust": "Stores to a surface.",
    "sured": "Updates a surface atomically.",
    "suq": "Returns a property of a surface.",
    # control
    "bra": "Jumps to a label.",
    "brx": "Jumps to one of several labels by an index.",
    "call": "Calls a function.",
    "ret": "Returns from a function, or ends the thread in a kernel.",
    "exit": "Ends the thread.",
    "trap": "Ends the launch with an error.",
    "brkpt": "Stops the thread for a debugger.",
    "nanosleep": "Suspends the thread for about the given time.",
    "pmevent": "Triggers events of the performance monitor.",
    "trace": "Writes an entry for a tracing tool.",
    "setmaxnreg": "Changes how many registers each thread of the warp can use.",
    "griddepcontrol": "Starts the dependent grid, or waits for the grid that this one depends on.",
    "alloca": "Allocates local memory on the thread's stack.",
    "stacksave": "Reads the stack pointer.",
    "stackrestore": "Sets the stack pointer to a saved value.",
    # warps and barriers
    "vote": "Evaluates a predicate over the lanes of a warp.",
    "vote.ballot": "Returns a mask of the lanes whose predicate is true.",
    "match": "Finds the lanes of a warp that hold the same value.",
    "activemask": "Returns a mask of the lanes that execute the instruction.",
    "redux": "Combines a value of all lanes of a warp.",
    "elect": "Chooses one lane of a warp.",
    "bar": "Waits for the threads of the block.",
    "bar.arrive": "Arrives at a barrier of the block without waiting.",
    "bar.red": "Waits for the threads of the block and combines their predicates.",
    "bar.warp": "Waits for lanes of the warp.",
    "barrier": "Waits for the threads of the block, which can arrive at different instructions.",
    "barrier.arrive": "Arrives at a barrier of the block without waiting.",
    "barrier.red": "Waits for the threads of the block and combines their predicates.",
    "barrier.cluster.arrive": "Arrives at the barrier of the cluster without waiting.",
    "barrier.cluster.wait": "Waits until all threads of the cluster have arrived at its barrier.",
    "membar": "Orders the thread's memory accesses before and after it.",
    "fence": "Orders the thread's memory accesses before and after it.",
    "fence.proxy": "Orders accesses that reach memory in different ways, such as ordinary and asynchronous ones.",
    "fence.mbarrier_init": "Makes initialized mbarriers visible to the cluster.",
    "mbarrier.init": "Initializes an mbarrier with the number of arrivals per phase.",
    "mbarrier.inval": "Ends the use of an mbarrier, so that its memory can hold something else.",
    "mbarrier.arrive": "Arrives at an mbarrier without waiting.",
    "mbarrier.arrive.expect_tx": "Arrives at an mbarrier and adds to the bytes that its phase waits for.",
    "mbarrier.arrive_drop": "Arrives at an mbarrier and leaves it: later phases expect one arrival less.",
    "mbarrier.expect_tx": "Adds to the bytes that the phase of an mbarrier waits for.",
    "mbarrier.complete_tx": "Counts bytes as arrived at an mbarrier.",
    "mbarrier.test_wait": "Tests whether a phase of an mbarrier is complete.",
    "mbarrier.try_wait": "Tests whether a phase of an mbarrier is complete, and can suspend the thread for some time.",
    "mbarrier.pending_count": "Reads the number of missing arrivals from a state of an mbarrier.",
    "clusterlaunchcontrol": "Takes over the work of a cluster that has not started yet.",
    # tensor cores
    "ldmatrix": "Loads 8x8 matrices from shared memory into registers across the warp.",
    "stmatrix": "Stores 8x8 matrices from registers across the warp to shared memory.",
    "movmatrix": "Transposes an 8x8 matrix in registers across the warp.",
    "mma": "Multiplies two small matrices in registers of a warp and adds a third, on tensor cores.",
    "wmma.load": "Loads a matrix into registers across the warp.",
    "wmma.store": "Stores a matrix from registers across the warp.",
    "wmma.mma": "Multiplies two matrices of a warp and adds a third, on tensor cores.",
    "wgmma.mma_async": "Multiplies matrices of four warps on tensor cores in the background.",
    "wgmma.fence": "Orders register accesses before asynchronous products of the warpgroup.",
    "wgmma.commit_group": "Closes a group of asynchronous products, for which the warpgroup can wait later.",
    "wgmma.wait_group": "Waits until at most n of the newest product groups are pending.",
    "tcgen05.alloc": "Allocates columns of tensor memory.",
    "tcgen05.dealloc": "Frees columns of tensor memory.",
    "tcgen05.relinquish_alloc_permit": "Gives up the right to allocate tensor memory.",
    "tcgen05.ld": "Loads from tensor memory into registers.",
    "tcgen05.st": "Stores registers to tensor memory.",
    "tcgen05.wait": "Waits for the thread's loads from or stores to tensor memory.",
    "tcgen05.cp": "Copies from shared memory to tensor memory in the background.",
    "tcgen05.shift": "Shifts rows of tensor memory in the background.",
    "tcgen05.mma": "Multiplies matrices into tensor memory in the background; one thread starts the product.",
    "tcgen05.commit": "Lets an mbarrier track the thread's asynchronous operations on tensor memory.",
    "tcgen05.fence": "Orders operations on tensor memory around a synchronization of threads.",
}


def meaning_key(words: str, meanings: Mapping[str, str]) -> str:
    """Return the key whose words an instruction has in this order, with the opcode first. "" if there is none.

    Other words can stand between them, as in ``ld.global`` for ``ld.relaxed.gpu.global.u32``. The most words win, then
    the earliest words.
    """
    parts = words.split(".")
    found = ((_places(key.split("."), parts), key) for key in meanings if key.partition(".")[0] == parts[0])
    fitting = [(len(places), [-at for at in places], len(key), key) for places, key in found if places]
    return max(fitting, default=(0, [], 0, ""))[-1]


def _places(wanted: list[str], parts: list[str]) -> list[int]:
    """Find the places of words among others, in order. Empty if one is missing."""
    places, begin = [], 0
    for word in wanted:
        at = next((k for k in range(begin, len(parts)) if word in (parts[k], parts[k].partition("::")[0])), None)
        if at is None:
            return []
        places.append(at)
        begin = at + 1
    return places
