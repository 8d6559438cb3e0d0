"""A slow interpreter of PTX, thread by thread, with a parser of its own; it knows nothing of cujit.

``Module(text).launch(name, grid, block, arguments)`` runs a kernel; arguments are NumPy arrays, which it writes to.
Each thread goes on until threads of its warp or its block have to meet; a warp's instruction is done once every
thread that its mask names has come to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from property.ptx_semantics import carried, compared, evaluate, updated, width_of

__all__ = ["Module"]

Array = np.ndarray[Any, Any]
SHARED, LOCAL, CONSTANT, GLOBAL = 1 << 40, 2 << 40, 3 << 40, 4 << 40
"""Where the windows of generic addresses begin; each array of an argument has 2^32 bytes of the last."""
_WIDTHS = {"v2": 2, "v4": 4}


class Operand(NamedTuple):
    """A register, a number, an address, a list or a name, and what it holds."""

    kind: str
    value: Any
    offset: int = 0


class Instruction(NamedTuple):
    """One instruction, with the predicate before it."""

    guard: str
    negated: bool
    words: tuple[str, ...]
    operands: tuple[Operand, ...]


class Function:
    """A function or a kernel: its parameters, registers, variables, labels and instructions."""

    def __init__(self, name: str, returned: str, parameters: str) -> None:
        self.name = name
        self.returned = _parameters(returned)
        self.parameters = _parameters(parameters)
        self.widths: dict[str, int] = {}
        self.variables: dict[str, tuple[str, int]] = {}
        self.local_bytes = 0
        self.labels: dict[str, int] = {}
        self.tables: dict[str, list[str]] = {}
        self.code: list[Instruction] = []


class Frame:
    """A call that goes on: its registers, its ``.param`` variables and its place."""

    def __init__(self, function: Function, base: int) -> None:
        self.function = function
        self.base = base
        self.at = 0
        self.registers: dict[str, int] = {}
        self.parameters: dict[str, bytearray] = {}
        self.results: list[str] = []


class Thread:
    """A thread: its frames, its local memory, its carry and what it waits for."""

    def __init__(self, function: Function, lane: int, special: dict[str, int]) -> None:
        self.frames = [Frame(function, 0)]
        self.local = bytearray(function.local_bytes)
        self.lane = lane
        self.special = special
        self.carry = 0
        self.done = False
        self.waiting: Instruction | None = None


def _parameters(text: str) -> list[tuple[str, int]]:
    found = re.findall(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+([\w$]+)(?:\[(\d+)\])?", text)
    return [(name, width_of(kind) // 8 * int(count or 1)) for kind, name, count in found]


def _operand(text: str) -> Operand:
    text = text.strip()
    if text.startswith(("{", "(")):
        return Operand("list", tuple(_operand(each) for each in _split(text[1:-1])))
    if text.startswith("["):
        base, _, offset = text[1:-1].partition("+")
        return Operand("address", _operand(base), int(offset or 0))
    if re.fullmatch(r"0[fFdD][0-9A-Fa-f]{8,16}", text):
        return Operand("number", int(text[2:], 16))
    if re.fullmatch(r"-?(0x[0-9A-Fa-f]+|\d+)[uU]?", text):
        return Operand("number", int(text.rstrip("uU"), 0))
    if text.startswith("!"):
        return Operand("not", text[1:])
    if "|" in text:
        return Operand("list", tuple(_operand(each) for each in text.split("|")))
    return Operand("name", text)


def _split(text: str) -> list[str]:
    """Split at commas that stand in no brackets."""
    return [part for part in re.split(r",(?![^{}\[\]()]*[}\])])", text) if part.strip()]


class Module:
    """The functions and the variables of a text."""

    def __init__(self, text: str) -> None:
        self.functions: dict[str, Function] = {}
        self.constants: dict[str, tuple[int, int]] = {}
        self.shared_bytes = 0
        self._constant = bytearray()
        text = re.sub(r"//[^\n]*", "", text)
        head = re.compile(
            r"\.const\s+\.align \d+ \.b(\d+) (\w+)\[\d+\] = \{([^}]*)\};|"
            r"(?:\.visible\s+)?\.(?:func|entry)\s*(?:\(([^()]*)\)\s*)?(\w+)\s*\(([^()]*)\)\s*(;|\{)"
        )
        at = 0
        while found := head.search(text, at):
            at = found.end()
            if found[2]:
                self._declare(found[2], int(found[1]) // 8, found[3])
            elif found[7] == "{":
                end = _closing(text, at)
                self.functions[found[5]] = self._read(Function(found[5], found[4] or "", found[6]), text[at:end])
                at = end

    def _declare(self, name: str, size: int, numbers: str) -> None:
        self._constant += b"\0" * (-len(self._constant) % 16)
        self.constants[name] = (CONSTANT, len(self._constant))
        for number in numbers.split(","):
            self._constant += (int(number, 0) & ((1 << 8 * size) - 1)).to_bytes(size, "little")

    def _read(self, function: Function, body: str) -> Function:
        body = re.sub(r"(\w+):\s*\.branchtargets ([^;]*);", lambda m: self._table(function, m[1], m[2]), body)
        body = re.sub(r"\w+:\s*\.callprototype[^;]*;", "", body)
        body = re.sub(r"(?m)(^|[;{}]|:)\s*([A-Za-z_$][\w$]*):", r"\1 LABEL \2;", body)
        for line in re.split(r";|(?<=[\s{}])[{}](?=\s)", " " + body.replace("\n", " ") + " "):
            self._line(function, line.strip())
        return function

    def _table(self, function: Function, name: str, targets: str) -> str:
        function.tables[name] = [target.strip() for target in targets.split(",")]
        return ""

    def _line(self, function: Function, line: str) -> None:
        if line.startswith("LABEL "):
            function.labels[line.split()[1]] = len(function.code)
        elif line.startswith(".reg"):
            _, kind, names = line.split(None, 2)
            for name in names.split(","):
                stem, _, count = name.strip().rstrip(">").partition("<")
                several = [f"{stem}{n}" for n in range(int(count))] if count else [stem]
                function.widths.update(dict.fromkeys(several, width_of(kind[1:])))
        elif line.startswith((".shared", ".local", ".param")):
            self._variable(function, line)
        elif line:
            self._instruction(function, line)

    def _variable(self, function: Function, line: str) -> None:
        found = re.match(r"\.(\w+)\s+(?:\.align \d+ )?\.(\w+) (\w+)(?:\[(\d+)\])?", line)
        assert found, line
        space, kind, name, count = found.groups()
        size = width_of(kind) // 8 * int(count or 1)
        if space == "param":
            function.variables[name] = ("param", size)
            return
        place = self.shared_bytes if space == "shared" else function.local_bytes
        place += -place % 16
        function.variables[name] = (space, place)
        if space == "shared":
            self.shared_bytes = place + size
        else:
            function.local_bytes = place + size

    def _instruction(self, function: Function, line: str) -> None:
        found = re.match(r"(?:@(!?)([\w%$]+)\s+)?([\w.:]+)\s*(.*)", line)
        assert found, line
        negated, guard, mnemonic, rest = found.groups()
        words = tuple(mnemonic.replace("shared::cta", "shared").split("."))
        function.code.append(
            Instruction(guard or "", bool(negated), words, tuple(_operand(each) for each in _split(rest)))
        )

    def launch(self, name: str, grid: int, block: int, arguments: Sequence[Array]) -> None:
        """Run every block of a kernel, one after the other."""
        memory = [bytearray(argument.tobytes()) for argument in arguments]
        function = self.functions[name]
        for number in range(grid):
            Block(self, function, memory, number, grid, block).run()
        for argument, written in zip(arguments, memory, strict=True):
            if argument.flags.writeable:
                argument[...] = np.frombuffer(written, argument.dtype).reshape(argument.shape)


def _closing(text: str, at: int) -> int:
    depth = 1
    while depth:
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    return at - 1


class Block:
    """The threads of a block and its shared memory."""

    def __init__(
        self, module: Module, function: Function, memory: list[bytearray], number: int, grid: int, threads: int
    ) -> None:
        self.module = module
        self.memory = memory
        self.shared = bytearray(module.shared_bytes)
        self.threads = []
        for n in range(threads):
            lane = n % 32
            special = {"%tid.x": n, "%ntid.x": threads, "%ctaid.x": number, "%nctaid.x": grid, "%laneid": lane}
            special |= {"%lanemask_lt": (1 << lane) - 1, "%lanemask_eq": 1 << lane}
            special |= {"%lanemask_ge": 0xFFFFFFFF ^ ((1 << lane) - 1), "%warpid_of_tid": n // 32}
            thread = Thread(function, lane, special)
            for place, (name, _) in enumerate(function.parameters):
                thread.frames[0].parameters[name] = bytearray((GLOBAL + (place << 32)).to_bytes(8, "little"))
            self.threads.append(thread)

    def run(self) -> None:
        """Let the threads go on until all are done."""
        warps = [self.threads[first : first + 32] for first in range(0, len(self.threads), 32)]
        while not all(thread.done for thread in self.threads):
            went = False
            for thread in self.threads:
                went |= self._go(thread)
            for warp in warps:
                went |= self._meet(warp)
            left = [thread for thread in self.threads if not thread.done]
            if left and all(t.waiting and t.waiting.words[:2] == ("bar", "sync") for t in left):
                _release(left)
                went = True
            if left and not went:
                raise RuntimeError(f"deadlock at {left[0].waiting}")

    def _go(self, thread: Thread) -> bool:
        went = False
        while not thread.done and thread.waiting is None:
            went = True
            frame = thread.frames[-1]
            if frame.at >= len(frame.function.code):
                _return(thread)
                continue
            instruction = frame.function.code[frame.at]
            holds = not instruction.guard or frame.registers[instruction.guard] != instruction.negated
            if holds or instruction.words[0] == "testp":  # whose guard an H200 does not see
                self._do(thread, frame, instruction)
                continue
            frame.at += 1
            if instruction.words[0] == "set" and instruction.words[-2] == "f32":
                self._convert(frame, instruction)
        return went

    def _convert(self, frame: Frame, instruction: Instruction) -> None:
        """Do what an H200 does of a comparison whose predicate is false: the old result becomes a float."""
        name = instruction.operands[0].value
        wide = width_of(instruction.words[-1]) > 16
        bits = evaluate(("abs", "s32" if wide else "s16"), [frame.registers[name]])
        frame.registers[name] = evaluate(("cvt", "rn", "f32", "s32" if wide else "s16"), [bits])

    # -- operands ----------------------------------------------------------------------------------------

    def _read(self, thread: Thread, operand: Operand) -> int:
        frame, name = thread.frames[-1], operand.value
        if operand.kind == "number":
            return int(name)
        if operand.kind == "not":
            return 1 - frame.registers[name]
        if operand.kind == "list":  # the first is the lowest
            bits = sum(frame.function.widths[each.value] for each in operand.value) // len(operand.value)
            return sum(self._read(thread, each) << bits * k for k, each in enumerate(operand.value))
        if name in frame.registers:
            return frame.registers[name]
        if name in thread.special:
            return thread.special[name]
        return self._address_of(thread, name)

    def _address_of(self, thread: Thread, name: str) -> int:
        """Give the address of a variable in its own space, or the number of a function."""
        frame = thread.frames[-1]
        if name in frame.function.variables:
            space, place = frame.function.variables[name]
            return place + (frame.base if space == "local" else 0)
        if name in self.module.constants:
            return self.module.constants[name][1]
        return list(self.module.functions).index(name) * 16 + 16

    def _write(self, thread: Thread, operand: Operand, bits: int) -> None:
        frame = thread.frames[-1]
        if operand.kind == "list":
            for each in operand.value:
                width = frame.function.widths[each.value]
                self._write(thread, each, bits)
                bits >>= width
        elif operand.value != "_":
            frame.registers[operand.value] = bits & ((1 << frame.function.widths[operand.value]) - 1)

    def _place(self, thread: Thread, space: str, operand: Operand) -> tuple[bytearray, int]:
        base = operand.value
        frame = thread.frames[-1]
        if space == "param":
            if base.value not in frame.parameters:
                frame.parameters[base.value] = bytearray(frame.function.variables[base.value][1])
            return frame.parameters[base.value], operand.offset
        address = self._read(thread, base) + operand.offset
        window = {"shared": SHARED, "local": LOCAL, "const": CONSTANT}.get(space, 0)
        window, at = divmod(address + window, 1 << 40)
        if window == GLOBAL >> 40:
            return self.memory[at >> 32], at & 0xFFFFFFFF
        return {1: self.shared, 2: thread.local, 3: self.module._constant}[window], at

    # -- instructions ------------------------------------------------------------------------------------

    def _do(self, thread: Thread, frame: Frame, instruction: Instruction) -> None:
        words, operands = instruction.words, instruction.operands
        opcode = words[0]
        if opcode in _COLLECTIVE:
            thread.waiting = instruction
            return
        frame.at += 1
        if opcode in _FLOW:
            getattr(self, f"_{opcode}")(thread, frame, words, operands)
        elif opcode in ("ld", "st", "atom", "red"):
            getattr(self, f"_{opcode}")(thread, words, operands)
        elif opcode == "setp":
            both = compared(words, [self._read(thread, each) for each in operands[1:]])
            targets = operands[0].value if operands[0].kind == "list" else (operands[0],)
            for target, truth in zip(targets, both, strict=False):
                self._write(thread, target, truth)
        elif opcode in ("addc", "subc", "madc") or "cc" in words:
            values = [self._read(thread, each) for each in operands[1:]]
            result, carry = carried(words, values, thread.carry)
            thread.carry = carry if "cc" in words else thread.carry
            self._write(thread, operands[0], result)
        elif opcode == "cvta":
            window = {"shared": SHARED, "local": LOCAL, "const": CONSTANT}.get(words[-2], 0)
            self._write(thread, operands[0], self._read(thread, operands[1]) + (-window if "to" in words else window))
        else:
            self._write(thread, operands[0], evaluate(words, [self._read(thread, each) for each in operands[1:]]))

    def _elements(self, words: Sequence[str], operand: Operand) -> Sequence[Operand]:
        return operand.value if any(word in _WIDTHS for word in words) else (operand,)

    def _space(self, words: Sequence[str]) -> str:
        return next((word for word in words if word in ("param", "shared", "local", "const", "global")), "")

    def _ld(self, thread: Thread, words: Sequence[str], operands: Sequence[Operand]) -> None:
        size = width_of(words[-1]) // 8
        memory, at = self._place(thread, self._space(words), operands[1])
        for element in self._elements(words, operands[0]):
            raw = int.from_bytes(memory[at : at + size], "little", signed=words[-1][0] == "s")
            self._write(thread, element, raw)
            at += size

    def _st(self, thread: Thread, words: Sequence[str], operands: Sequence[Operand]) -> None:
        size = width_of(words[-1]) // 8
        memory, at = self._place(thread, self._space(words), operands[0])
        for element in self._elements(words, operands[1]):
            assert 0 <= at <= len(memory) - size, (words, at)
            memory[at : at + size] = (self._read(thread, element) & ((1 << 8 * size) - 1)).to_bytes(size, "little")
            at += size

    def _atom(self, thread: Thread, words: Sequence[str], operands: Sequence[Operand]) -> None:
        kind = words[-1]
        size = width_of(kind) // 8
        memory, at = self._place(thread, self._space(words), operands[1])
        old = int.from_bytes(memory[at : at + size], "little")
        assert 0 <= at <= len(memory) - size, (words, at)
        values = [self._read(thread, each) & ((1 << 8 * size) - 1) for each in operands[2:]]
        new = updated(words, kind, old, values) & ((1 << 8 * size) - 1)
        memory[at : at + size] = new.to_bytes(size, "little")
        self._write(thread, operands[0], old)

    def _red(self, thread: Thread, words: Sequence[str], operands: Sequence[Operand]) -> None:
        self._atom(thread, words, (Operand("name", "_"), *operands))

    # -- flow --------------------------------------------------------------------------------------------

    def _bra(self, _: Thread, frame: Frame, __: Sequence[str], operands: Sequence[Operand]) -> None:
        frame.at = frame.function.labels[operands[0].value]

    def _brx(self, thread: Thread, frame: Frame, _: Sequence[str], operands: Sequence[Operand]) -> None:
        table = frame.function.tables[operands[1].value]
        frame.at = frame.function.labels[table[self._read(thread, operands[0])]]

    def _call(self, thread: Thread, frame: Frame, _: Sequence[str], operands: Sequence[Operand]) -> None:
        lists = [each.value for each in operands if each.kind == "list"]
        results, arguments = (lists[0], lists[1]) if operands[0].kind == "list" and len(lists) > 1 else ((), lists[0])
        called = next(each for each in operands if each.kind == "name")
        if called.value in self.module.functions:
            function = self.module.functions[called.value]
        else:
            function = list(self.module.functions.values())[self._read(thread, called) // 16 - 1]
        frame.results = [each.value for each in results]
        base = frame.base + frame.function.local_bytes
        base += -base % 16
        thread.local += b"\0" * max(0, base + function.local_bytes - len(thread.local))
        new = Frame(function, base)
        for (name, _size), argument in zip(function.parameters, arguments, strict=True):
            new.parameters[name] = bytearray(frame.parameters[argument.value])
        new.parameters.update((name, bytearray(size)) for name, size in function.returned)
        thread.frames.append(new)

    def _ret(self, thread: Thread, *_: Any) -> None:
        _return(thread)

    def _exit(self, thread: Thread, *_: Any) -> None:
        thread.done = True

    # -- warps -------------------------------------------------------------------------------------------

    def _meet(self, warp: list[Thread]) -> bool:
        went = False
        for thread in warp:
            waiting = thread.waiting
            if waiting is None or waiting.words[:2] == ("bar", "sync"):
                continue
            mask = self._mask(thread, waiting)
            members = [t for t in warp if mask >> t.lane & 1 and not t.done]
            if all(t.waiting is waiting and self._mask(t, waiting) == mask for t in members):
                self._together(waiting, members)
                _release(members)
                went = True
        return went

    def _mask(self, thread: Thread, instruction: Instruction) -> int:
        return self._read(thread, instruction.operands[-1]) & 0xFFFFFFFF

    def _together(self, instruction: Instruction, members: list[Thread]) -> None:
        words, operands = instruction.words, instruction.operands
        if words[0] == "bar":
            return
        values = [[self._read(thread, each) for each in operands[1:-1]] for thread in members]
        found: Iterable[tuple[int, int]] = {"shfl": _shuffled, "vote": _voted, "match": _matched, "redux": _reduced}[
            words[0]
        ](words, members, values)
        for thread, both in zip(members, found, strict=True):
            targets = operands[0].value if operands[0].kind == "list" else (operands[0],)
            for target, bits in zip(targets, both, strict=False):
                self._write(thread, target, bits)


_COLLECTIVE = frozenset({"bar", "shfl", "vote", "match", "redux"})
_FLOW = frozenset({"bra", "brx", "call", "ret", "exit"})
Found = list[tuple[int, int]]


def _release(threads: list[Thread]) -> None:
    for thread in threads:
        thread.frames[-1].at += 1
        thread.waiting = None


def _return(thread: Thread) -> None:
    done = thread.frames.pop()
    if not thread.frames:
        thread.done = True
        return
    caller = thread.frames[-1]
    for (name, _), target in zip(done.function.returned, caller.results, strict=True):
        caller.parameters[target] = done.parameters[name]


def _shuffled(words: Sequence[str], members: list[Thread], values: list[list[int]]) -> Found:
    by_lane = {thread.lane: value[0] for thread, value in zip(members, values, strict=True)}
    found = []
    for thread, (own, b, c) in zip(members, values, strict=True):
        segment, clamp, by, lane = c >> 8 & 31, c & 31, b & 31, thread.lane
        most = (lane & segment) | (clamp & ~segment & 31)
        least = lane & segment
        source, inside = {
            "up": (lane - by, lane - by >= most),
            "down": (lane + by, lane + by <= most),
            "bfly": (lane ^ by, lane ^ by <= most),
            "idx": (least | (by & ~segment & 31), (least | (by & ~segment & 31)) <= most),
        }[words[2]]
        found.append((by_lane[source] if inside else own, int(inside)))
    return found


def _voted(words: Sequence[str], members: list[Thread], values: list[list[int]]) -> Found:
    truths = [value[0] for value in values]
    one = {
        "all": int(all(truths)),
        "any": int(any(truths)),
        "uni": int(len(set(truths)) == 1),
        "ballot": sum(truth << thread.lane for truth, thread in zip(truths, members, strict=True)),
    }[words[2]]
    return [(one, 0)] * len(members)


def _matched(words: Sequence[str], members: list[Thread], values: list[list[int]]) -> Found:
    every = sum(1 << thread.lane for thread in members)
    bits = (1 << width_of(words[-1])) - 1
    own = [value[0] & bits for value in values]
    if words[1] == "all":
        same = len(set(own)) == 1
        return [(every if same else 0, int(same))] * len(members)
    return [(sum(1 << t.lane for t, w in zip(members, own, strict=True) if w == value), 0) for value in own]


def _reduced(words: Sequence[str], members: list[Thread], values: list[list[int]]) -> Found:
    total = values[0][0]
    for value in values[1:]:
        total = evaluate((words[2], words[-1]), [total, value[0]])
    return [(total, 0)] * len(members)
