"""What the code of the CPU device and of the launcher promises to LLVM: what is listed here, each with its reason.

``look`` is shown every module that the tests compile (``conftest.py``). A word that is in no list fails the test that
compiled it: LLVM has a hundred flags and attributes, and each is a promise whose breach is undefined.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from llvm_values import NAME, Function, functions_of

__all__ = ["broken", "look"]

_WORDS = """
    source_filename module asm target datalayout triple type define declare internal private external global constant
    section sideeffect attributes label to x splat null zeroinitializer true false
    i1 i2 i4 i6 i8 i16 i24 i32 i48 i64 i96 i128 i256 i512 half bfloat float double ptr void

    add sub mul and or xor icmp fcmp select phi br switch ret call load store alloca atomicrmw cmpxchg fence
    getelementptr bitcast inttoptr ptrtoint trunc zext sext sitofp uitofp fptrunc fpext fadd fsub fmul fdiv frem fneg
    freeze extractelement insertelement shufflevector extractvalue insertvalue

    eq ne ugt uge ult ule sgt sge slt sle oeq ogt oge olt ole one ord ueq une uno
    atomic monotonic acquire release acq_rel seq_cst syncscope volatile
    xchg max min umax umin uinc_wrap udec_wrap fmax fmin

    noinline alwaysinline cold optsize returns_twice null_pointer_is_valid optnone uwtable dbg srcloc distinct
    "cujit-huge" "cujit-long" "cujit-loops" "cujit-unrolls" "yes" "no"
"""
"""Words that promise nothing: structure and types; instructions that are defined for every value; conditions and
orders; what asks for something."""

_SAYS_NOTHING = frozenset(_WORDS.split())

_TRUE = {
    "nounwind": "nothing of ours, and nothing in PTX, throws",
    "noreturn": "cujit_fault, cujit_stop and the functions that end in them leave by longjmp",
    "memory(read)": "loads for each lane (cujit_gather_*, load.*.apart.*) read memory and do nothing else, "
    "and quotients (cujit_udiv_64 and cujit_sdiv_64) not even that",
    '"probe-stack"': "asks for something", '"inline-asm"': "asks for something",
    "willreturn": "loads and stores for each lane have no loop; one that faults ends the launch, and PTX has no order "
    "of a fault and the accesses around it",
    "unreachable": "stands behind calls of noreturn functions alone (held below)",
    "poison": "stands for elements that are replaced before a vector is used, and for vectors that a select leaves out",
    "align": "held below",
    "byval": "who calls makes the copy",
    "sret": "who calls makes the room for the result", "writable": "that room is on the stack of the caller",
    "dead_on_unwind": "nothing of ours throws",
    "udiv": "held below", "sdiv": "held below", "urem": "held below", "srem": "held below",
    "shl": "held below", "lshr": "held below", "ashr": "held below",
    "fptosi": "held below", "fptoui": "held below",
    "nontemporal": "a hint; those stores are found to be aligned to 64 bytes when they run",
}  # fmt: skip
"""Words that promise something, each with the reason why it is true."""

_ENDS = re.compile(
    r"call void @(cujit_(fault|stop|assert|trap)|abort|llvm\.trap|(sig)?longjmp|fail|fail_sync|fail_raw|fail_pending"
    r"|fail_far|fail_across|fail_in_tensor|stop|race|asker_fault|deadlock|leave|depart|no_room|warps_apart)\("
)

_NAMES = re.compile(
    r"""[%@$][-\w.$]+|!\d+|[%@$]"[^"]*"|c?"(?:[^"\\]|\\.)*"|;[^\n]*|^[-\w.$]+:|^"[^"]*":|\b(?:0x\w+|\d[\w.+]*)""",
    re.MULTILINE,
)
_WORD = re.compile(r"[A-Za-z_]\w*(?:\([a-z: ,]+\))?")
_TEXT = re.compile(r'"[^"]+"')
_GROUP = re.compile(r"^attributes (#\d+) = \{(.*)\}$", re.MULTILINE)
_OF_LLVM = re.compile(r"^declare [^\n]*@llvm\.[^\n]*$", re.MULTILINE)
_RISKY = re.compile(
    r"^  .*= (?:shl|lshr|ashr) .*, (?![0-7]$).*$"
    r"|^  .*= (?:[us]div|[us]rem|fpto[us]i) .*$"
    r"|^.*\n  unreachable$"
    r'|^  .*= (?:extract|insert)element .*, i\d+ (?:%"[^"]*"|%[-\w.$]+)$'
    r"|^  (?:store|%\S+ = load) .*, align (?:32|64|\d{3,})$"
    r"|^  .*@llvm\.assume\(.*$"
    r"|^  .*@llvm\.(?:abs|cttz|ctlz)\..*i1 true\).*$",
    re.MULTILINE,
)
"""What may be undefined. By PTX an access is aligned to its own size, of vectors the whole, so to 16 bytes. Source:
PTX ISA 9.1, "Operands: Addresses as Operands": misaligned ones have no defined result, and end the launch on a GPU."""

_PLACES = re.compile(r", !dbg !\d+$", re.MULTILINE)

_NAME = re.compile(r'%(?:"[^"]*"|[-\w.$]+)')
_SEEN: set[str] = set()
"""Lines without the names of values, which promise nothing: nine of ten lines are one of these."""


def look(text: str) -> None:
    """Fail where a module promises what is not listed; with CUJIT_PROMISES=all also by the lines around."""
    found = broken(text) if os.environ.get("CUJIT_PROMISES") == "all" else list(_unknown_words(text))
    assert not found, "promised to LLVM, and not listed in tests/promises.py:\n" + "\n".join(found[:10])


def broken(text: str) -> list[str]:
    """List the lines of a module, as LLVM prints it, that promise more than is listed."""
    return [*_unknown_words(text), *_risky_lines(text)]


def _unknown_words(text: str) -> Iterator[str]:
    groups = dict(_GROUP.findall(text))
    lines = [*({*_OF_LLVM.sub("", _GROUP.sub("", text)).split("\n")} - _SEEN)]
    for line, nameless in zip(lines, _NAME.sub("%", "\n".join(lines)).split("\n"), strict=True):
        attributes = " ".join(groups.get(group, "") for group in re.findall(r"#\d+", line)) if "#" in line else ""
        seen = f"{nameless} {attributes}" if attributes else nameless
        if seen in _SEEN or line.startswith("!"):  # metadata say what is told where they are used: !dbg has lines
            continue
        if line.startswith("define") and "null_pointer_is_valid" not in attributes:
            yield f"without null_pointer_is_valid: {line}"
        words = {*_WORD.findall(_NAMES.sub("", f"{line} {attributes}")), *_TEXT.findall(attributes)}
        unknown = words - _SAYS_NOTHING - _TRUE.keys()
        if unknown:
            yield f"{', '.join(sorted(unknown))}: {line.strip()}"
        else:
            _SEEN.add(seen)


# -- words that are true of what stands around them -------------------------------------------------------


def _risky_lines(text: str) -> Iterator[str]:
    for function in functions_of(_PLACES.sub("", text)):
        for match in _RISKY.finditer(function.text):
            line = match[0].strip()
            told = f"{function.name}: {line}"
            if not _holds(line, match[0], function) and not any(pattern.search(told) for pattern in _LISTED):
                yield told


def _holds(line: str, whole: str, function: Function) -> bool:
    if line.endswith("unreachable"):
        return _ENDS.search(whole) is not None
    if line.startswith("store ") or "= load " in line:
        return _is_aligned(line, function)
    op = line.partition("= ")[2].split(" ", 1)[0]
    if op in ("extractelement", "insertelement"):
        match = re.search(rf"element <(\d+) x .*, i(\d+) ({NAME})$", line)
        return match is not None and function.most(match[3], int(match[2])) < int(match[1])
    match = _SECOND.search(line)
    if match is None:
        return False
    width, operand = int(match[1]), match[2]
    if op in ("shl", "lshr", "ashr"):
        return function.most(operand, width) < width
    return _divides(op, operand, width, function)


_SECOND = re.compile(r"= \w+ (?:<\d+ x )?i(\d+)>? .*?, (<.*>|splat \(i\d+ -?\d+\)|[^\s,]+)$")


def _divides(op: str, by: str, width: int, function: Function) -> bool:
    """Whether a divisor is not zero, and not -1 where the number has a sign."""
    of_grid = by in ("%row", "%column")  # sizes of a grid or of a cluster
    return of_grid or all(function.never(by, n, width) for n in ((0, -1) if op[0] == "s" else (0,)))


def _is_aligned(line: str, function: Function) -> bool:
    """Whether an access is aligned to more than PTX says: in reserved memory, or found so when it runs."""
    align = re.search(r"align (\d+)", line)
    place = re.search(rf"ptr ({NAME})", line)
    known = align is not None and place is not None and function.align(place[1]) % int(align[1]) == 0
    return known or "!nontemporal" in line


_OURS = r"^(run|body|region\.\d+|version\S*|function \S+): "

_LISTED = {
    re.compile(pattern): reason
    for pattern, reason in {
        r"^tile: .* = fptosi <32 x float>": "sums of products of bytes are whole, and below 2**24",
        r"^(add_products|end_sum|sum_exactly|sum_scaled): .* = fptosi ": "factors are scaled to be below 2**62; "
        "what is no number goes another way",
        r"^value_of: .* = fptosi ": "what is below 2**-126 is times 2**149 below 2**23; what is no number is returned",
        r"^sum_scaled: .* = udiv i32 ": "scaled products have chunks, and four steps or more in each",
        r"^(find_place|place_block|make_block): .* = u(div|rem) ": "a cluster has a block in each direction",
        r"^started: .* = urem i64 ": "a launch that begins a block has a cluster",
        r"^copier: .* = urem i32 ": "by the number of warps of a block, which has one",
        r"^(shade|take|turned)\w*: .* = (shl|lshr) (i\d+|<(16|32) x i32>) ": "by the size of a grain, of two bits, or "
        "by a number below that of lanes",
        r"^take_range: .* = urem i32 ": "lanes lie a grain or more apart",
        r"^shade: .* align 64$": "vectors of 16 words, in registers or on the stack",
        r"^(take_row|end_plain): .*@llvm\.cttz\.": "a row has a lane, and a set of waiting warps is not empty",
        r"^pick: .* = urem i64 ": "by 1 where no warp can run, and then by their number where one can",
        r"^rounded: .* = udiv i64 ": "pages, units of memory and what it is aligned to have bytes",
        r"^(end_all|block_of|run_product): .* = u(div|rem) i32 ": "a block has a warp, and slots without blocks are "
        "below 2**31",
        r"^land_early: .* = urem ": "by numbers of copies and queues that are found not to be 0 just before",
        r"^resolve: .* = srem i32 ": "textures have a texel or more",
        r"^(find_\w+|add_products|end_sum|finish|sum_\w+|align|tile|fuse\w*|count\w*|multiply\w*|unpack\w*|widen\w*|decode"
        r"|float_of|power_of|placed|expand\w*|spread|metadata_at|scale_\w+|factor_of|read_factors|f16_\w+"
        r"|cujit_matrix_\w+|read_(left|right|rows|sums|scales)|write_sums|number_of|cujit_tensor_product)"
        r": .* align \d+$": "strips and registers are whole vectors, in reserved memory",
        r"^cujit_tensor_product: .* = u(div|rem) i32 ": "a product has strips, and a part of A has rows",
        r"^(find_column|find_stored|see_pieces): .* = u(div|rem) i(32|64) ": "a part of D has columns, and a "
        "chunk of k and a piece have elements",
        r"^cujit_tensor_fill: .* = u(div|rem) i32 ": "a copy has rows, and 1 or 32 of them for each group of lanes",
        r"^(offset|place)_in_shared: .* = u(div|rem) i64 ": "lines have bytes and elements, by a mode that exists",
        r"^take_codes: .* = u(div|rem) i32 ": "a piece of a line has an element or more",
        r"^code_in_\w+: .* = (u(div|rem)|lshr) i32 ": "a cell has 1, 2 or 4 elements, and shifts are by less than "
        "it has bits",
        r"^(multiply\w*|expand_all|scale_\w+|align): .* = u(div|rem) i32 ": "a product has strips, in halves, in "
        "chunks; groups, where it aligns",
        r"^(float_of|widen|expand|f16_at): .* = (shl|lshr) ": "widths of formats and of fields of metadata",
        r"^cujit_match_\d+: .* align \d+$": "values lie in reserved memory, and so do results",
        r"^cujit_ready: .*@llvm\.cttz\.": "the mask is not empty",
        r"^find_lines: .* = (u(div|rem) i64|ashr i32 16,) ": "rows have 1, 2, 4 or 8 chunks, by a mode of two bits",
        r"^check_operand: .* = u(div|rem) i32 ": "a line has two chunks or four",
        r"^(check_init|store_raw): .* = u(div|rem) i64 ": "elements that are accessed have a byte or more",
        r"^store_raw: .* = (shl|lshr) i64 ": "by eight times the number of a byte of eight",
        r"^(measure|find_row): .* = u(div|rem) ": "boxes of maps that were made by the driver, or here, have elements",
        rf"{_OURS}.* = fptosi (<\d+ x )?float": "ex2 bounds its operand; of NaN, small formats choose another code",
        rf"{_OURS}.* = fpto[us]i (<\d+ x )?double>? \S+ to (<\d+ x )?i32>?$": "quotients of 32 bits, never of 33",
        r"^cujit_[us]div_64: .* = [us]div ": "who calls it puts 1 for what does not divide",
        r"^float_tap: .* = fptosi ": "coordinates are cut to 1e9 before",
        r"^rounded_whole: .* = fptosi ": "a mean of integers of 32 bits",
        rf"{_OURS}.*, (i32 )?%trace.lane$": "the lane of a thread, which trace.py numbers in its warp",
        r"^(in_cluster|marks_of|cujit_check_filled): .* = u(div|rem) ": "a block has memory of 16 bytes or more",
        r"^is_same: .* = u(div|rem) ": "parts have a byte or more",
        r"^(find_lanes|note_rows): .* = u(div|rem) i32 ": "lanes lie in 1 to 32 rows",
        r"^note_shared: .* = urem i32 ": "a part that is served at once has 8 lanes or more",
        r"^stride_of: .* = s(div|rem) i64 ": "two lanes lie 2 to 31 apart there",
        r"^(find_lanes|note_\w+|lanes_from): .* = shl i32 ": "lanes are numbered below 32, first ones of a part too",
        r"^paired: .* = lshr i32 ": "of two lanes of a warp, whose numbers are below 32",
        r"^(cujit_texels|is_clear|whole_warp|sharing|merge): .* = (shl|lshr) i32 ": "by the number of a lane, which is "
        "below 32",
        r"^cujit_texture: .*@llvm\.cttz\.": "the last bit is added to the mask",
        r"^(tap_at|take_taps|float_taps): .* = fptosi ": "places are bounded to 1e9 before, weights lie from 0 to 255",
        r"^srgb_words: .* = (extract|insert)element <8 x i32> ": "by the number of one of eight elements",
        r"^rest_of: .* = fptosi ": "the rest of a division by a size, which is below 2**20",
        r"^(pick|resolved|bounded|scaled|rest_of|is_any|faces_of|at_most|pick_f32|weights_of|filtered|put|words_of"
        r"|take_steps|srgb_words|numbers_of|rounded|rounded_whole|elements_of|extended|filter_as|is_outside|add)"
        r": .* align (32|64)$": "vectors, and structures of vectors, on the stack",
        r"^(touch_all|look_up): .* align 64$": "struct Places is aligned to 64 bytes, and the field is at 1,152",
        r"^(extended|gather): .* = (shl|ashr|lshr) ": "by 32 less the 8, 16 or 32 bits of an element",
        r"^groups_of: .* = (shl|lshr) i32 ": "by the number of one of eight groups of lanes, and by 0 or 16",
        r"^place_of: .* = shl i32 ": "by a sixteenth of a lane, which is one of the warp's own or the fault before",
        r"^find_site: .* = urem i32 ": "a block has warps",
        r"^see_pieces: .* = udiv i32 128,": "elements of a factor have 4 bits or more",
        r"^cujit_check_commit: .* = shl i32 1,": "by the number of a lane",
        r"^mark_all: .* = (shl|lshr) i64 ": "of a word of 64 bits one to 64 are marked, from a bit of it on",
        r"^(cujit_launch|address): .* = (shl|lshr) ": "a layout has MOST_FIELDS, 64, at most",
        r"^stray_in: .*@llvm\.cttz\.": "of a word that differs",
        r"^row_is_ordered: .*(= (shl|lshr) |@llvm\.cttz\.)": "grains have 1 to 8 bytes, accesses one grain or more",
        r"^(check_races|check_each|refine|lanes_are_ordered\w*): .* = (shl|lshr) ": "grains have up to 8 bytes",
        r"^buckets_of: .* = shl i64 2,": "by 62 at most: more buckets are all of them",
        r"^stores_are_apart: .*(= (shl|lshr) |@llvm\.cttz\.)": "who stores has a part of a byte or more; by 63 at most",
        r"^(check_span|find_due|end_async|cujit_check_shuffled): .* = shl i32 ": "by the number of a lane",
        r"^warps_apart: .* = shl i32 1,": "by the number of a warp in its warpgroup",
        r"^check_pieces: .* = shl i32 1,": "by a count of lanes where it is below 32",
        r"^(cluster_of|leave_cluster): .* = u(div|rem) i64 ": "clusters have two blocks or more, and blocks a warp",
        r"^(leave_cluster|reach_far|check_\w+|stores_same_word): .* = (shl|lshr) i32 ": "by the rank of "
        "one of 16 blocks, by the number of a byte of a word, by the size of a grain",
        r"^cujit_check_turned: .* = (shl|lshr) i32 ": "by numbers of lanes, and of bits of four matrices, eight each",
        r"^cujit_check_product: .* = u(div|rem) i32 ": "C has a half or two, each of a register or more",
        r"^cujit_check_product: .* = (shl|lshr) i32 ": "by numbers of lanes, and four times those of 8 columns",
        r"^(first_lane: .*@llvm\.cttz|last_lane: .*@llvm\.ctlz)\.": "the mask is not empty",
        r"^(row_is_quick|check_lanes_across|plane_of|grains_are_quick|grain_at|lanes_left|check_grains): .*"
        r"(= (shl|lshr) |@llvm\.cttz\.)": "by the size of a grain, by a lane of a mask that is not empty, by "
        "the size of an access, which is not 0",
        r"^(stores_are_quick|open_stored|line_takes(_part)?|line_is_quick|grains_in_line|slot_takes|record_in): .*"
        r"= (shl|lshr|ashr) ": "by the size of a grain, by three bits for each kind of access, and by less than the "
        "32 grains of a line, of which a row has one",
        r"^(shape_of|find_share): .* = udiv i32 ": "by the number of blocks of a product, one or two",
        r"^is_shape: .* = urem i32 ": "by 8 columns for each block, or 16",
        r"^find_free: .* = u(div|rem) i32 ": "a count of columns is 32 to 512 by then",
        r"^(chunk_is_\w+|is_others|is_of_launch|note_where): .* align 64$": "vectors that are handed over on the stack",
        r"^(any|put|may_race|note_readers|part_is_ordered|row_is_ordered): .* align 64$": "they lie in reserved memory",
    }.items()
}
"""What is true by the ways that lead there, by function and line, each with the reason."""
