"""A statement with plain operands for any form of the instruction table, for assemblers and loaders to judge."""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = ["OF_EVERY_TYPE", "minimal", "module_of"]


def _each(words: str) -> list[str]:
    return words.split()


# How the types of operands are kept in registers.
_REGISTER = {
    **dict.fromkeys(_each("b8 u8 s8 b16 u16 s16 f16 bf16"), "%h"),
    **dict.fromkeys(_each("e4m3x2 e5m2x2 e2m3x2 e3m2x2 ue8m0x2 ue5m3x2 s2f6x2 e2m1x4"), "%h"),
    **dict.fromkeys(_each("b32 u32 s32 f16x2 bf16x2 u16x2 s16x2 tf32 u8x4 s8x4 u4 s4 u2 s2 b1"), "%r"),
    **dict.fromkeys(_each("e4m3x4 e5m2x4 e2m3x4 e3m2x4"), "%r"),
    **dict.fromkeys(_each("b64 u64 s64 f32x2"), "%rd"),
    "f32": "%f",
    "f64": "%fd",
    "pred": "%p",
    "b128": "%q",
    "e2m1x2": "%c",
}
_WIDE = {"u16": "%r", "s16": "%r", "u32": "%rd", "s32": "%rd"}
_SPACES = {"const": "c", "local": "l", "param": "p", "param::entry": "p", "global": "a"}


def _all_of_the_last_type(words: str, count: int) -> dict[str, int]:
    return dict.fromkeys(words.split(), count)


# How many operands follow the result, for the opcodes whose operands are all of the last type.
_SOURCES = {
    **_all_of_the_last_type("abs neg not cnot rcp sqrt rsqrt sin cos lg2 ex2 tanh brev mov cvta", 1),
    **_all_of_the_last_type("add sub mul mul24 div rem min max and or xor addc subc copysign", 2),
    **_all_of_the_last_type("mad mad24 fma madc vmad prmt clmad", 3),
}

_FIXED = {
    "sad": "{t}1, {t}2, {t}3, {u}4",
    "popc": "%r1, {t}2",
    "clz": "%r1, {t}2",
    "bfind": "%r1, {t}2",
    "fns": "%r1, %r2, %r3, %r4",
    "bfe": "{t}1, {t}2, %r3, %r4",
    "bfi": "{t}1, {t}2, {t}3, %r4, %r5",
    "szext": "%r1, %r2, %r3",
    "bmsk": "%r1, %r2, %r3",
    "dp4a": "%r1, %r2, %r3, %r4",
    "dp2a": "%r1, %r2, %r3, %r4",
    "testp": "%p1, {t}2",
    "selp": "{t}1, {t}2, {t}3, %p4",
    "slct": "{d}1, {d}2, {d}3, {t}4",
    "shf": "%r1, %r2, %r3, %r4",
    "shl": "{t}1, {t}2, %r3",
    "shr": "{t}1, {t}2, %r3",
    "ldu": "{v1}, [a]",
    "prefetchu": "[%rd1]",
    "mapa": "{t}1, {t}2, %r3",
    "getctarank": "%r1, {t}2",
    "isspacep": "%p1, %rd2",
    "istypep": "%p1, %rd2",
    "activemask": "%r1",
    "elect": "%r1|%p2, %r3",
    "stacksave": "{t}1",
    "stackrestore": "{t}1",
    "alloca": "{t}1, {t}2",
    "nanosleep": "%r1",
    "pmevent": "3",
    "setmaxnreg": "40",
    "bra": "L",
    "call": "f",
    "brx": "%r1, T",
    "suq": "%r1, [%rd2]",
    "movmatrix": "%r1, %r2",
    "trace": "3",
    "discard": "[a], 128",
}


def minimal(opcode: str, words: tuple[str, ...]) -> str | None:
    """Write a statement of a form, or None where its operands are not known here."""
    name = ".".join((opcode, *words))
    operands = _operands(opcode, words)
    return None if operands is None else f"{name} {operands};" if operands else f"{name};"


def _operands(opcode: str, words: tuple[str, ...]) -> str | None:
    types = [word for word in words if word in _REGISTER]
    last = _REGISTER[types[-1]] if types else ""
    if opcode in _BY_OPCODE:
        return _BY_OPCODE[opcode](words, types)
    if opcode in _FIXED:
        return _FIXED[opcode].format(
            t=last,
            d=_REGISTER[types[0]] if types else "",
            u=f"{last}" if not types or types[-1][0] != "s" else last,
            v1=_vector(last, words, 1),
        )
    if opcode in _SOURCES:
        return _arithmetic(opcode, words, types, last)
    if re.fullmatch("v(add|sub|absdiff|min|max|shl|shr|set|avrg)[24]?", opcode):
        more = {"add", "min", "max"} & set(words) or opcode[-1] in "24"
        return "%r1, %r2, %r3" + (", %r4" if more else "")
    return "" if not types and opcode in _BARE else None


_BARE = frozenset(_each("ret exit trap brkpt membar griddepcontrol"))


def _arithmetic(opcode: str, words: tuple[str, ...], types: list[str], last: str) -> str:
    count = _SOURCES[opcode] + (opcode in ("min", "max") and "abs" in words and "xorsign" not in words)
    sources = [f"{last}{n + 2}" for n in range(count)]
    target = _WIDE[types[-1]] if "wide" in words else last
    if (len(types) > 2 and "f32x2" in types) or set(types) == {
        "f16x2",
        "bf16x2",
    }:  # add.f32x2.f16x2.f32x2 d, a, c: a register for each type
        registers = [_REGISTER[type_] for type_ in types]
        return ", ".join(f"{register}{n}" for n, register in enumerate(registers, 1))
    if len(types) == 2:  # add.f32.f16 d, a, c: a is narrow
        target = _REGISTER[types[0]]
    if opcode in ("mad", "fma", "madc") or len(types) == 2:
        sources[-1] = f"{target}{count + 1}"
    if opcode == "fma" and len(types) == 2:
        sources[1] = f"{last}3"
    if opcode == "mov" and words[0] in ("v2", "v4"):
        return f"{_vector(last, words, 1)}, {_vector(last, words, 5)}"
    return f"{target}1, {', '.join(sources)}"


# -- memory -----------------------------------------------------------------------------------------------


def _count(words: tuple[str, ...]) -> int:
    return next((int(word[1:]) for word in words if word in ("v2", "v4", "v8")), 1)


def _list(register: str, start: int, count: int) -> str:
    return "{" + ", ".join(f"{register}{start + n}" for n in range(count)) + "}"


def _vector(register: str, words: tuple[str, ...], start: int) -> str:
    count = _count(words)
    return f"{register}{start}" if count == 1 else _list(register, start, count)


def _address(words: tuple[str, ...]) -> str:
    if any(word.startswith("shared") for word in words):
        return "[s]"
    return next((f"[{text}]" for space, text in _SPACES.items() if space in words), "[%rd9]")


def _hint(words: tuple[str, ...]) -> str:
    return ", %rd8" if "L2::cache_hint" in words else ""


def _load(words: tuple[str, ...], types: list[str]) -> str | None:
    if "param::func" in words:
        return None
    return f"{_vector(_REGISTER[types[-1]], words, 1)}, {_address(words)}{_hint(words)}"


def _store(words: tuple[str, ...], types: list[str]) -> str | None:
    if {"const", "param", "param::entry", "param::func"} & set(words):
        return None
    if "bulk" in words:
        return ("[%r1]" if "shared::cta" in words else "[%rd1]") + ", %rd2, 0"
    value = _vector(_REGISTER[types[-1]], words, 1)
    if "async" in words:
        return f"[s], {value}, [mb]" if "mbarrier::complete_tx::bytes" in words else f"[%rd9], {value}"
    return f"{_address(words)}, {value}{_hint(words)}"


def _atom(words: tuple[str, ...], types: list[str]) -> str:
    register = _REGISTER[types[-1]]
    count = _count(words)
    compare = f", {register}3" if "cas" in words else ""
    operands = (_vector(register, words, 1), _address(words), _vector(register, words, 1 + count))
    return f"{', '.join(operands)}{compare}{_hint(words)}"


def _red(words: tuple[str, ...], types: list[str]) -> str:
    value = _vector(_REGISTER[types[-1]], words, 1)
    if "mbarrier::complete_tx::bytes" in words:
        return f"[s], {value}, [mb]"
    return f"{_address(words)}, {value}{_hint(words)}"


def _convert(words: tuple[str, ...], types: list[str]) -> str:
    target, source = ("%c" if t in ("u8", "s8") and "bf16" in types else _REGISTER[t] for t in (types[0], types[1]))
    if "pack" in words:
        return "%r1, %r2, %r3" + (", %r4" if len(types) == 3 else "")
    if types[0].endswith("x4"):
        return f"{target}1, {{%f2, %f3, %f4, %f5}}, %r6"
    random = ", %r4" if "rs" in words else ""
    pair = f", {source}3" if types[0].endswith("x2") and types[1] == "f32" else ""
    scale = ", %h5" if "scaled::n2::ue8m0" in words else ", %c3" if "scaled::n1::ue8m0" in words else ""
    return f"{target}1, {source}2{pair}{random}{scale}"


def _compare(words: tuple[str, ...], types: list[str], target: str) -> str:
    source = _REGISTER[types[-1]]
    boolean = ", %p4" if {"and", "or", "xor"} & set(words) else ""
    pair = "|%p5" if target == "%p" and types[-1] in ("f16x2", "bf16x2") else ""
    return f"{target}1{pair}, {source}2, {source}3{boolean}"


def _lop3(words: tuple[str, ...], _types: list[str]) -> str:
    return "%r1|%p1, %r2, %r3, %r4, 5, %p2" if {"or", "and"} & set(words) else "%r1, %r2, %r3, %r4, 5"


def _shuffle(words: tuple[str, ...], _types: list[str]) -> str:
    return "%r1|%p2, %r3, %r4, %r5" + (", %r6" if "sync" in words else "")


def _vote(words: tuple[str, ...], types: list[str]) -> str:
    return f"{_REGISTER[types[0]]}1, %p2" + (", %r3" if "sync" in words else "")


def _prefetch(words: tuple[str, ...], _types: list[str]) -> str:
    return "[p]" if "param" in words else "[c]" if "const" in words else "[a]" if "global" in words else "[%rd1]"


def _policy(words: tuple[str, ...], _types: list[str]) -> str:
    if "cvt" in words:
        return "%rd1, %rd2"
    if "range" in words:
        return f"%rd1, [{'a' if 'global' in words else '%rd2'}], 128, 256"
    return "%rd1, 0.5"


def _fence(words: tuple[str, ...], _types: list[str]) -> str:
    return "[%rd1], 128" if {"tensormap::generic", "acquire"} <= set(words) else ""


# -- synchronisation --------------------------------------------------------------------------------------


def _priority(words: tuple[str, ...], _types: list[str]) -> str:
    if "tensor" in words:
        return _tensor_copy(words)
    place = "[a]" if "global" in words else "[%rd1]"
    return f"{place}, {'%r1' if 'bulk' in words else '128'}"


def _compressed(words: tuple[str, ...], _types: list[str]) -> str | None:
    element, index, count = (int(word[1:]) for word in (*words[:2], words[3]))
    data, kept = 2 * count, -(-count * index // element)
    if data > 128:
        return None
    groups = (_list("%r", 1, kept), _list("%r", 10, count), _list("%r", 72, data))
    return ", ".join((*groups, "%r199"))


def _expanded(words: tuple[str, ...], _types: list[str]) -> str | None:
    element, index, count = (int(word[1:]) for word in (*words[:2], words[3]))
    few, many = map(int, words[2].removeprefix("sp::").split(":"))
    sizes = [-(-each * count // 32) for each in (many * element, few * index, few * element)]
    is_one = few * element <= 32 and 1 << index >= many and 32 <= many * element * count <= 4096 and sum(sizes) <= 253
    return ", ".join(_list("%r", 1 + sum(sizes[:k]), size) for k, size in enumerate(sizes)) if is_one else None


def _barrier(words: tuple[str, ...], types: list[str]) -> str:
    if "warp" in words:
        return "%r1"
    if "cluster" in words:
        return ""
    if "red" in words:
        return f"{_REGISTER[types[0]]}1, 0, %p2"
    return "0, 64" if "arrive" in words else "0"


def _mbarrier(words: tuple[str, ...], _types: list[str]) -> str:
    verb = words[0]
    place = "[mb]" if any(w.startswith("shared") for w in words) else "[%rd9]"
    remote = "_" if {"shared::cluster", "multicast::cluster::32b"} & set(words) else "%rd1"
    if verb == "inval":
        return place
    if verb == "check_layout":
        return f"%p1, {place}"
    several = ", %r3" if "multicast::cluster::32b" in words else ""
    if verb == "pending_count":
        return "%r1, %rd2"
    if verb in ("init", "expect_tx", "complete_tx"):
        return f"{place}, %r1{several}"
    if verb in ("arrive", "arrive_drop"):
        return f"{remote}, {place}" + (", %r2" if {"expect_tx", "noComplete"} & set(words) else "") + several
    return f"%p1, {place}, {'%r2' if 'parity' in words else '%rd2'}"


def _match(words: tuple[str, ...], types: list[str]) -> str:
    return f"%r1{'|%p2' if 'all' in words else ''}, {_REGISTER[types[0]]}2, %r3"


def _redux(_words: tuple[str, ...], types: list[str]) -> str:
    register = _REGISTER[types[0]]
    return f"{register}1, {register}2, %r3"


def _cluster_control(words: tuple[str, ...], _types: list[str]) -> str:
    if words[0] == "try_cancel":
        return f"{'[s]' if 'shared::cta' in words else '[%rd1]'}, {'[mb]' if 'shared::cta' in words else '[%rd2]'}"
    return f"{'%p1' if 'pred' in words else _vector('%r', words, 1)}, %q1"


# -- copies -----------------------------------------------------------------------------------------------


def _copy(words: tuple[str, ...], _types: list[str]) -> str:
    has = set(words)
    if "mbarrier" in has:
        return "[mb]" if {"shared", "shared::cta"} & has else "[%rd1]"
    if {"commit_group", "wait_all"} & has:
        return ""
    if "wait_group" in has:
        return "0"
    if "tensor" in has:
        return _tensor_copy(words)
    if "bulk" in has:
        return _bulk_copy(words)
    return f"[s], [%rd1], {16 if 'cg' in has else 4}{_hint(words)}"


def _bulk_copy(words: tuple[str, ...]) -> str:
    if "prefetch" in words:
        return f"[%rd1], %r1{_hint(words)}"
    if "mbarrier::complete_tx::bytes" in words:
        source = "[%rd1]" if "global" in words else "[s]"
        many = _blocks(words, 1)
        ends = ", %r2, %r3" if "ignore_oob" in words else ""
        return f"[s], {source}, %r1{ends}, [mb]{many}{_hint(words)}"
    return f"[%rd1], [s], %r1{_hint(words)}{', %h1' if 'cp_mask' in words else ''}"


def _tensor_copy(words: tuple[str, ...]) -> str:
    rank = next(int(word[0]) for word in words if re.fullmatch("[1-5]d", word))
    if {"tile::gather4", "tile::scatter4"} & set(words):
        rank = 5
    place = f"[%rd1, {_overrides(words, rank)}{_list('%r', 1, rank)}]"
    if "mbarrier::complete_tx::bytes" in words:
        many = _blocks(words, 7)
        return f"[s], {place}, [mb]{_im2col(words, rank)}{many}{_hint(words)}"
    if "prefetch" in words or "L2::evict_normal" in words:
        return f"{place}{_im2col(words, rank)}{_hint(words)}"
    return f"{place}, [s]{_hint(words)}"


def _blocks(words: tuple[str, ...], register: int) -> str:
    if "multicast::cluster::32b" in words:
        return f", %r{register}"
    return f", %h{register}" if {"multicast::cluster", "multicast::cluster::16b"} & set(words) else ""


def _overrides(words: tuple[str, ...], rank: int) -> str:
    address = "%rd2, " if "override::global_address" in words else ""
    if "override::global_dim" in words:
        return f"{address}{{%h1}}, "
    if "override::global_dim_stride" in words:
        return f"{address}{_list('%h', 1, rank)}, {_list('%r', 10, rank - 1)}, %h9, "
    return address


def _im2col(words: tuple[str, ...], rank: int) -> str:
    if {"im2col::w", "im2col::w::128"} & set(words):
        return ", {%h1, %h2}"
    return f", {_list('%h', 1, rank - 2)}" if "im2col" in words and rank > 2 else ""


def _tensor_map(words: tuple[str, ...], types: list[str]) -> str:
    place = "[s]" if "shared::cta" in words else "[a]" if "global" in words else "[%rd1]"
    if words[0] == "cp_fenceproxy":
        return "[a], [s], 128"
    if words[0] == "query":
        return f"%p1, {'[p]' if 'param' in words else '[c]' if 'const' in words else place}"
    if "global_address" not in words and any(word.startswith("alloc_") for word in words):
        return place
    value = "%rd2" if types[-1] == "b64" else "%r2"
    numbered = {"box_dim", "global_dim", "global_stride", "element_stride"} & set(words)
    named = {"elemtype", "interleave_layout", "swizzle_mode", "swizzle_atomicity", "fill_mode"} & set(words)
    return f"{place}, {'0, ' if numbered else ''}{'0' if named else value}"


# -- textures ---------------------------------------------------------------------------------------------


def _coordinates(words: tuple[str, ...], register: str) -> str:
    geometry = next(w for w in words if w.removeprefix("a") in ("1d", "2d", "3d", "cube", "2dms"))
    first = "%r1, " if geometry[0] == "a" or geometry.endswith("ms") else ""
    if geometry == "2dms":
        rest = 3
    elif geometry == "a2dms":
        return "{%r1, %r2, " + f"{register}3, {register}4}}"
    else:
        rest = {"1d": 1, "2d": 2, "3d": 4, "a1d": 1, "a2d": 3, "cube": 4, "acube": 3}[geometry]
    return "{" + first + ", ".join(f"{register}{n + 2}" for n in range(rest)) + "}"


def _texture(words: tuple[str, ...], types: list[str]) -> str:
    place = f"[%rd1, {_coordinates(words, _REGISTER[types[-1]])}]"
    result = _list(_REGISTER[types[0]], 1, 2 if "v2" in words else 4)
    if "level" in words:
        return f"{result}, {place}, {_REGISTER[types[-1]]}9"
    if "grad" in words:
        axes = next((4 if w in ("3d", "cube", "acube") else int(w.lstrip("a")[0])) for w in words if w in _AXES)
        each = _list("%f", 1, axes) if axes > 1 else "{%f1}"
        return f"{result}, {place}, {each}, {each}"
    return f"{result}, {place}"


_AXES = frozenset(_each("1d 2d 3d a1d a2d cube acube 2dms a2dms"))


def _query(words: tuple[str, ...], _types: list[str]) -> str:
    return f"%r1, [%rd2]{', %r3' if 'level' in words else ''}"


def _surface(words: tuple[str, ...], _types: list[str]) -> str:
    return f"[%rd1, {_coordinates(words, '%r')}]"


def _surface_load(words: tuple[str, ...], types: list[str]) -> str:
    return f"{_vector(_REGISTER[types[0]], words, 5)}, {_surface(words, types)}"


def _surface_store(words: tuple[str, ...], types: list[str]) -> str:
    return f"{_surface(words, types)}, {_vector(_REGISTER[types[0]], words, 5)}"


# -- matrices ---------------------------------------------------------------------------------------------

_BITS = {
    "f16": 16, "bf16": 16, "tf32": 32, "f32": 32, "f64": 64, "s32": 32, "u8": 8, "s8": 8, "u4": 4, "s4": 4, "b1": 1,
    "e4m3": 8, "e5m2": 8, "e3m2": 8, "e2m3": 8, "e2m1": 8,
}  # fmt: skip
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")
_MATRIX_TYPES = frozenset(_BITS)


def _shape(words: tuple[str, ...]) -> tuple[int, int, int]:
    found = next(match for word in words if (match := _SHAPE.fullmatch(word)))
    return int(found[1]), int(found[2]), int(found[3])


def _fragment(type_: str, elements: int, start: int = 1, threads: int = 32, bits: int = 0) -> str:
    """The registers that a thread has of a matrix of so many elements."""
    if type_ in ("f32", "f64"):
        return _list({"f32": "%f", "f64": "%fd"}[type_], start, elements // threads)
    return _list("%r", start, max(1, elements * (bits or _BITS[type_]) // threads // 32))


def _matrix_types(words: tuple[str, ...]) -> list[str]:
    return [word for word in words if word in _MATRIX_TYPES]


def _multiply(words: tuple[str, ...], _types: list[str]) -> str:
    m, n, k = _shape(words)
    d, a, b, c = _matrix_types(words)
    sparse = bool({"sp", "sp::ordered_metadata"} & set(words))
    narrow = 4 if {"kind::mxf4", "kind::mxf4nvf4"} & set(words) else 0
    threads = 8 if (m, n, k) == (8, 8, 4) and a == "f16" else 32
    text = ", ".join(
        (
            _fragment(d, m * n, 1, threads),
            _fragment(a, m * k // (2 if sparse else 1), 9, threads, narrow),
            _fragment(b, k * n, 17, threads, narrow),
            _fragment(c, m * n, 25, threads),
        )
    )
    text += ", %r5, 0" if sparse else ""
    return text + (", {%r7}, {0, 0}, {%r8}, {0, 0}" if "block_scale" in words else "")


_WMMA_FACTORS = {
    ("m16n16k16", "8"): (2, 2), ("m32n8k16", "8"): (4, 1), ("m8n32k16", "8"): (1, 4),
    ("m16n16k16", "16"): (4, 4), ("m32n8k16", "16"): (8, 2), ("m8n32k16", "16"): (2, 8),
}  # fmt: skip


def _wmma_fragment(words: tuple[str, ...], which: str, type_: str, start: int) -> str:
    shape = next(word for word in words if _SHAPE.fullmatch(word))
    m, n, _ = _shape(words)
    if which in "cd":
        return _fragment(type_, m * n, start)
    if type_ == "f64":
        return f"{{%fd{start}}}"
    if type_ == "f16":
        return _list("%r", start, 8)
    if type_ == "tf32":
        return _list("%r", start, 4)
    sizes = _WMMA_FACTORS.get((shape, str(_BITS[type_])))
    return _list("%r", start, sizes[which == "b"] if sizes else 1)


def _wmma(words: tuple[str, ...], _types: list[str]) -> str:
    kinds = _matrix_types(words)
    place = "[s]" if {"shared", "shared::cta"} & set(words) else "[a]" if "global" in words else "[%rd1]"
    if words[0] == "load":
        return f"{_wmma_fragment(words, words[1], kinds[0], 1)}, {place}"
    if words[0] == "store":
        return f"{place}, {_wmma_fragment(words, 'd', kinds[0], 1)}"
    d, a, b, c = kinds if len(kinds) == 4 else (kinds[0], "f16", "f16", kinds[1])
    return ", ".join(
        _wmma_fragment(words, which, kind, 1 + 8 * n)
        for n, (which, kind) in enumerate((("d", d), ("a", a), ("b", b), ("c", c)))
    )


def _warpgroup(words: tuple[str, ...], _types: list[str]) -> str:
    if words[0] != "mma_async":
        return "0" if words[0] == "wait_group" else ""
    m, n, _ = _shape(words)
    d, a, _ = _matrix_types(words)
    text = _fragment(d, m * n, 1, 128) + ", %rd1, %rd2" + (", %r9, 0" if "sp" in words else "") + ", %p1"
    if a in ("s8", "u8", "b1"):
        return text
    return text + ", 1, 1" + (", 0, 0" if a in ("f16", "bf16") else "")


def _load_matrix(words: tuple[str, ...], _types: list[str]) -> str:
    count = next(int(word[1]) for word in words if word in ("x1", "x2", "x4"))
    return f"{_list('%r', 1, count * (2 if 'm16n16' in words else 1))}, {_address(words)}"


def _store_matrix(words: tuple[str, ...], _types: list[str]) -> str:
    count = next(int(word[1]) for word in words if word in ("x1", "x2", "x4"))
    return f"{_address(words)}, {_list('%r', 1, count)}"


_BY_OPCODE: dict[str, Callable[[tuple[str, ...], list[str]], str | None]] = {
    "applypriority": _priority,
    "spcompress": _compressed,
    "spdecompress": _expanded,
    "ld": _load,
    "st": _store,
    "atom": _atom,
    "red": _red,
    "cvt": _convert,
    "set": lambda words, types: _compare(words, types, _REGISTER[types[0]]),
    "setp": lambda words, types: _compare(words, types, "%p"),
    "lop3": _lop3,
    "shfl": _shuffle,
    "vote": _vote,
    "match": _match,
    "redux": _redux,
    "prefetch": _prefetch,
    "createpolicy": _policy,
    "fence": _fence,
    "bar": _barrier,
    "barrier": _barrier,
    "mbarrier": _mbarrier,
    "clusterlaunchcontrol": _cluster_control,
    "cp": _copy,
    "tensormap": _tensor_map,
    "tex": _texture,
    "tld4": _texture,
    "txq": _query,
    "suld": _surface_load,
    "sust": _surface_store,
    "sured": _surface_store,
    "mma": _multiply,
    "wmma": _wmma,
    "wgmma": _warpgroup,
    "ldmatrix": _load_matrix,
    "stmatrix": _store_matrix,
}


OF_EVERY_TYPE = (
    ".reg .b8 xb8; .reg .b16 xb16; .reg .u16 xu16; .reg .f16 xf16; .reg .f16x2 xh2; .reg .b32 xb32; .reg .u32 xu32; "
    ".reg .s32 xs32; .reg .f32 xf32; .reg .b64 xb64; .reg .u64 xu64; .reg .s64 xs64; .reg .f64 xf64; .reg .pred xp;"
)


def module_of(statements: list[str], version: str, target: str) -> str:
    """Put statements into a kernel, one a line, the first in line 18."""
    body = "\n".join(statements)
    return f"""\
.version {version}
.target {target}
.address_size 64
.global .align 128 .b8 a[256]; .const .align 16 .b8 c[64];
.func f() {{ ret; }}
.visible .entry k(.param .align 64 .b8 p[128])
{{
.shared .align 128 .b8 s[256]; .shared .align 8 .b64 mb; .local .align 16 .b8 l[64];
.reg .b32 %r<200>; .reg .b16 %h<32>; .reg .f32 %f<200>; .reg .f64 %fd<64>;
.reg .b64 %rd<32>; .reg .pred %p<8>;
{".reg .b128 %q<16>;" if version >= "8.3" else ""}
{".reg .b8 %c<4>;"}
{OF_EVERY_TYPE}


T: .branchtargets L;
L:
{body}
ret;
}}
"""
