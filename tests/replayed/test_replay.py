"""The replay says of equal trees that they are, and finds what was changed by the name of the launch."""

from __future__ import annotations

import shutil
import zlib
from pathlib import Path

from replay import ROOT, compare, replay, report
from replayed.cases import RECORDED, every_case, read_cases, write_cases
from replaying.case import Case, Outcome, Pointer

TEXT = """.version 8.6
.target sm_90
.address_size 64
.visible .entry k(.param .u64 to)
{{
    .reg .b64 at, place;
    .reg .b32 t, r;
    ld.param.u64 at, [to];
    mov.u32 t, %tid.x;
    mad.wide.u32 place, t, 4, at;
    {}
    st.global.u32 [place], r;
    ret;
}}
"""


def case(name: str, body: str) -> Case:
    return Case(name, TEXT.format(body), "k", (1,), (32,), bytes(8), (bytes(128),), (Pointer(-1, 0, 0),))


CASES = [case("xor", "xor.b32 r, t, 12;"), case("brev", "brev.b32 r, t;"), case("fault", "trap;")]


def changed(folder: Path, how: str) -> Path:
    """Give a copy of the sources in which ``how`` stands before each module is read."""
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    with (folder / "src/cujit/devices/jit.py").open("a") as file:
        file.write(f"\n\n_right = optimise\n\n\ndef optimise(text, *given, **named):\n    {how}\n")
        file.write("    return _right(text, *given, **named)\n")
    return folder


def test_changed_source_is_found_by_name_and_others_are_equal(tmp_path: Path) -> None:
    other = changed(
        tmp_path, "text = text.replace('@llvm.bitreverse', '@llvm.bswap') if isinstance(text, str) else text"
    )
    outcomes = replay(ROOT, other, CASES)
    same, different, fault = (compare(case, [pair]) for case, pair in zip(CASES, outcomes, strict=True))
    assert (same.ir, same.results, fault.ir, fault.results) == ("", "", "", "")
    assert different.ir is not None
    assert "llvm.bswap.v32i32" in different.ir
    assert different.results == "array 0: 30 of 128 bytes, the first at 7: 0x80, now 0x01"
    assert "KernelFaultError" in outcomes[2][0].error
    told = report([same, different, fault])
    assert told.startswith("brev\n")
    assert "IR equal          2 of 3\nresults equal     2 of 3\n" in told


def test_crashed_process_is_reported_and_later_launches_run(tmp_path: Path) -> None:
    other = changed(tmp_path, "__import__('os')._exit(7) if '@llvm.bitreverse' in str(text) else None")
    (_, after), (before, again) = replay(ROOT, other, [CASES[1], CASES[0]], looks=False)
    assert after.error == "the process ended with 7"
    assert (before.error, before.arrays) == (again.error, again.arrays)


def test_difference_is_reported() -> None:
    one = Outcome(b"", b"", (b"\0\1\2", b"\0"), "a", "", 1.0, 2.0)
    assert compare(CASES[0], [(one, one)]).results == ""
    other = Outcome(b"", b"", (b"\0\1\2", b"\5"), "a", "", 2.0, 1.0)
    found = compare(CASES[0], [(one, other)])
    assert found.results == "array 1: 1 of 1 bytes, the first at 0: 0x00, now 0x05"
    assert (found.ir, found.compile_ratio, found.launch_ratio) == (None, 2.0, 0.5)
    printed = Outcome(b"", b"", one.arrays, "b", "")
    assert "printed: 'a'" in compare(CASES[0], [(one, printed)]).results
    far, near = Outcome(error="at 0x7f1200000000"), Outcome(error="at 0x7f3400000000")
    assert compare(CASES[0], [(far, near)]).results == ""
    assert "error: none" in compare(CASES[0], [(one, far)]).results


def test_launches_are_read_as_they_were_written(tmp_path: Path) -> None:
    write_cases(tmp_path / "some", CASES)
    assert read_cases(tmp_path / "some") == CASES


def test_launches_have_many_different_names() -> None:
    cases = every_case()
    assert len({case.name for case in cases}) == len(cases) >= 600
    assert RECORDED.stat().st_size < 3 << 20


def test_launches_contain_no_process_address() -> None:
    for case in read_cases(RECORDED):
        own = {pointer.offset for pointer in case.pointers if pointer.into < 0}
        for offset in range(0, len(case.parameters) - 7, 8):
            word = int.from_bytes(case.parameters[offset : offset + 8], "little")
            assert offset in own or not 1 << 44 <= word < 1 << 47, f"{case.name}: {word:#x} at {offset}"


def test_value_and_block_names_depend_only_on_their_order() -> None:
    def made(ir: str) -> Outcome:
        return Outcome(zlib.compress(ir.encode()), b"", (), "", "", 1.0, 1.0)

    one = made("%a$1 = add i32 %x, 1\nbr label %done$2\ndone$2:")
    assert compare(CASES[0], [(one, made("%$7 = add i32 %x, 1\nbr label %store.end\nstore.end:"))]).ir == ""
    assert compare(CASES[0], [(one, made("%a$1 = add i32 %x, 1\nbr label %done$2\ndone$3:"))]).ir
