"""Forms of declarations and operands that compilers seldom write and assemblers take: values, against models."""

from __future__ import annotations

import numpy as np
import pytest

import cujit
from cujit.devices.device import Device
from cujit.errors import PtxSyntaxError, UnsupportedError
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.printer import print_module
from cujit.loading import load
from devices.cpu.launching import blank, run_ptx
from raising import raises

pytestmark = pytest.mark.verbatim

HEAD = ".version 8.6\n.target sm_90\n.address_size 64\n"
REGISTERS = ".reg .b8 %c<4>; .reg .b16 %h<4>; .reg .b32 %r<8>; .reg .b64 %a<8>; .reg .pred %p<4>; .reg .f32 %f<4>;"
START = f"{REGISTERS} ld.param.u64 %a1, [out]; mov.u32 %r1, %tid.x; mad.wide.u32 %a2, %r1, 4, %a1;"
T = np.arange(32)


def ran(device: Device, module: str, body: str, head: str = HEAD) -> list[int]:
    """What every thread stores of ``%r2``, which ``body`` makes of ``%r1``, its number."""
    text = f"{head}{module}\n.visible .entry k(.param .u64 out) {{ {START}\n{body}\nst.global.u32 [%a2], %r2; ret; }}\n"
    text = print_module(parse(text)) if "@" not in module else text
    out = device.zeros(32, np.uint32)
    load(text.encode(), device)["k"][1, 32](out)
    return [int(word) for word in out.numpy()]


@pytest.mark.parametrize("end", [";", "", "\n.abi_preserve 8", " .abi_preserve 8;"])
def test_function_declaration_may_lack_its_semicolon(cpu: Device, end: str) -> None:
    module = (
        f".func (.reg .u32 r) f(.reg .u32 x){end}\n.visible .global .u32 g = 5;\n"
        f".func (.reg .u32 r) f(.reg .u32 x) {end.strip(';')} {{ ld.global.u32 r, [g]; add.u32 r, r, x; ret; }}"
    )
    assert ran(cpu, module, "call (%r2), f, (%r1);", HEAD.replace("8.6", "9.0")) == [*(T + 5)]


def test_kernel_without_a_body_and_a_semicolon_is_wrong(cpu: Device) -> None:
    with raises(PtxSyntaxError, "ptx-syntax", ".visible"):
        load((HEAD + ".entry f(.param .u32 x)\n.visible .entry k() { ret; }").encode(), cpu)


VECTORS = """.func (.reg .v2 .b32 r, .reg .b32 s) turn(.reg .b32 a, .reg .v4 .u32 x) {
    add.u32 r.x, x.w, a; sub.u32 r.y, x.z, a; mul.lo.u32 s, x.x, x.y; ret; }
.func (.reg .v2 .b32 r) count(.reg .v2 .b32 x) {
    .reg .pred %p; .reg .v2 .b32 y; setp.eq.u32 %p, x.x, 0; mov.v2.b32 r, x; @%p ret;
    sub.u32 y.x, x.x, 1; add.u32 y.y, x.y, 3; call (r), count, (y); ret; }
"""


def test_functions_pass_and_return_vectors_in_registers(cpu: Device) -> None:
    body = """.reg .v4 .u32 v; .reg .v2 .b32 w; .reg .b32 s;
        mov.v4.b32 v, {%r1, 3, 100, 1000}; call (w, s), turn, (%r1, v);
        mad.lo.u32 %r2, w.x, 1, w.y; add.u32 %r2, %r2, s;"""
    assert ran(cpu, VECTORS, body) == [*(1000 + T + 100 - T + 3 * T)]


def test_recursive_and_indirect_calls_pass_vectors(cpu: Device) -> None:
    body = """.reg .v2 .b32 v; .reg .v2 .b32 w; mov.v2.b32 v, {%r1, 7}; call (w), count, (v);
        mov.u64 %a3, count; proto: .callprototype (.reg .v2 .b32 _) _ (.reg .v2 .b32 _);
        call (v), %a3, (w), proto; add.u32 %r2, v.y, w.x;"""
    assert ran(cpu, VECTORS, body) == [*(7 + 3 * T)]


def test_variables_of_global_and_constant_memory_in_functions(cpu: Device) -> None:
    module = """.global .u32 g = 1; .global .align 8 .u64 at = generic(g);
.func (.reg .u32 r) f() { .global .u32 g = 100; ld.global.u32 r, [g]; ret; }
.func (.reg .u32 r) h() { .const .align 4 .u32 g[2] = {1000, 2000}; ld.const.u32 r, [g+4]; ret; }"""
    body = """.reg .u32 x; .global .align 4 .u32 count = 50;
        call (%r2), f, (); call (x), h, (); add.u32 %r2, %r2, x;
        { .global .u32 g = 10000; ld.global.u32 x, [g]; add.u32 %r2, %r2, x; }
        ld.global.u32 x, [g]; add.u32 %r2, %r2, x; ld.global.u64 %a3, [at]; ld.u32 x, [%a3]; add.u32 %r2, %r2, x;
        atom.global.add.u32 x, [count], 1; and.b32 x, x, 0; add.u32 %r2, %r2, x;"""
    assert ran(cpu, module, body) == [100 + 2000 + 10000 + 1 + 1] * 32


def test_static_variable_is_shared_by_calls_and_has_no_name(cpu: Device) -> None:
    text = f"""{HEAD}.func (.reg .u32 r) next() {{ .global .u32 n = 7; atom.global.add.u32 r, [n], 1; ret; }}
.visible .entry k(.param .u64 out) {{ {START}
    call (%r2), next, (); call (%r2), next, (); st.global.u32 [%a1], %r2; ret; }}
"""
    for _ in range(2):  # the second time from the cache
        module = load(text.encode(), cpu)
        out = cpu.zeros(1, np.uint32)
        for expected in (8, 10):
            module["k"][1, 1](out)
            assert out.numpy()[0] == expected
        assert list(module.globals) == []


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("mov.u32 %r2, %r1 + 7;", T + 7),
        ("add.u32 %r2, %r1 + 0x20, 100;", T + 132),
        ("mul.lo.u32 %r2, %r1 + (1 + 2) * 3, 2;", (T + 9) * 2),
        ("cvt.u16.u32 %h1, %r1; add.u16 %h2, %h1 + 65535, 2; cvt.u32.u16 %r2, %h2;", T + 1),
        ("add.u64 %a3, %a1 + 8, 0; sub.u64 %a3, %a3, %a1; cvt.u32.u64 %r2, %a3;", T * 0 + 8),
        ("shfl.sync.bfly.b32 %r2, %r1+1, 1, 31, -1;", (T ^ 1) + 1),
        ("setp.eq.u32 %p1, %r1+1, 3; selp.b32 %r2, 1, 0, %p1;", T == 2),
        ("setp.lt.u32 %p1, %r1, 9; mov.u32 %r2, 0; @%p1 mov.b32 %r2, %r1 + 0x10;", np.where(T < 9, T + 16, 0)),
    ],
)
def test_operand_may_be_a_register_and_a_number(
    cpu: Device, body: str, expected: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> None:
    assert ran(cpu, "", body) == [*expected]


@pytest.mark.parametrize(
    "body", ["mov.b32 %r2 + 1, %r1;", "mov.u32 %r2, %tid.x + 1;", "mov.b32 %f1, %f2 + 1;", "mov.u32 %r2, %r1 - 1;"]
)
def test_result_special_register_or_float_is_refused(cpu: Device, body: str) -> None:
    with pytest.raises(PtxSyntaxError):
        load(f"{HEAD}.visible .entry k(.param .u64 out) {{ {START} {body} ret; }}".encode(), cpu)


def test_bytes_of_bf16_and_back(cpu: Device) -> None:
    values = np.array([-200, -128.5, -3.5, -0.5, 0, 0.49, 2.5, 126.6, 127.5, 128, 255.4, 300], np.float32)
    halves = (np.resize(values, 32).view(np.uint32) >> 16).astype(np.uint32)
    exact = (halves << 16).view(np.float32)
    body = "".join(
        f"""{{ .reg .b8 c; .reg .b16 h, g; .reg .b32 w; sub.u64 d0, at, p0; add.u64 d0, d0, p1; ld.global.u32 w, [d0];
        cvt.u16.u32 h, w; cvt.{mode}.{sign}8.bf16 c, h; cvt.rn.bf16.{sign}8 g, c; cvt.u32.u16 w, g;
        st.global.u32 [at+{128 * k}], w; }}\n"""
        for k, (mode, sign) in enumerate((mode, sign) for mode in ("rzi", "rni", "rmi", "rpi") for sign in "su")
    )
    out = np.asarray(run_ptx(cpu, body, blank(8 * 32), halves)[0], np.uint32).reshape(8, 32)
    rounds = (np.trunc, np.rint, np.floor, np.ceil)
    limits = ((-128, 127), (0, 255))
    for k, row in enumerate(out):
        whole = np.clip(rounds[k // 2](exact), *limits[k % 2])
        # A byte has 8 bits and a bf16 as many: it is exact, but for none.
        np.testing.assert_array_equal((row << 16).view(np.float32), whole)


def test_bf16_is_converted_in_registers_of_its_own_size(cpu: Device) -> None:
    for statement in ("cvt.rzi.s8.bf16 %h1, %h2;", "cvt.rzi.s16.bf16 %r2, %h2;", "cvt.rn.bf16.u8 %h1, %r2;"):
        with raises(PtxSyntaxError, "ptx-syntax", ".b8"):
            load(f"{HEAD}.visible .entry k() {{ {REGISTERS} {statement} ret; }}".encode(), cpu)


@pytest.mark.parametrize(
    ("head", "line", "why", "try_"),
    [
        (".version 99.9\n.target sm_90\n", 1, "99.9", "9.5"),
        (".version 10.0\n.target sm_90\n", 1, "10.0", "9.5"),
        (".version 8.0\n.target sm_9999\n", 2, "sm_9999", "sm_121"),
        (".version 8.0\n.target sm_9\n", 2, "sm_9", ""),
        (".version 8.0\n.target compute_90\n", 2, "compute_90", ""),
        (".version 8.0\n.target sm_90, fast\n", 2, "fast", ""),
    ],
)
def test_unknown_versions_and_targets_are_refused(cpu: Device, head: str, line: int, why: str, try_: str) -> None:
    with raises(PtxSyntaxError, "ptx-syntax", why) as caught:
        load((head + ".visible .entry k() { ret; }").encode(), cpu)
    assert try_ in (caught.value.help or "")
    assert caught.value.line == line


def test_newer_version_of_the_same_toolkit_loads(cpu: Device) -> None:
    load(b".version 9.9\n.target sm_130\n.address_size 64\n.visible .entry k() { ret; }", cpu)["k"][1, 1]()
    with raises(UnsupportedError, "unsupported", "anew"):
        load(b".version 9.9\n.target sm_130\n.address_size 64\n.visible .entry k() { anew.b32; ret; }", cpu)
    text = b".visible .entry k() { .reg .b32 r; mov.u32 r, %tid.x; add.anew.u32 r, r, 1; ret; }"
    with raises(UnsupportedError, "unsupported", "add.anew.u32"):
        load(b".version 9.9\n.target sm_130\n.address_size 64\n" + text, cpu)


def test_newest_version_is_named() -> None:
    with raises(cujit.errors.OptionError, "option", "PTX", "99.0", "9.5"):
        cujit.retarget(HEAD, version="99.0")


@pytest.mark.parametrize(
    ("directive", "why"),
    [
        (".maxntid 0", (".maxntid", "1")),
        (".minnctapersm 0", ("1", "numbers")),
        (".maxntid 1, 1, 1, 1", ("1", "3", "numbers")),
        (".maxnreg 1, 2", ("1", "number")),
        (".maxnreg", ("1", "number")),
        (".explicitcluster 3", ("numbers",)),
        (".maxntid 4294967296", ("32", "numbers")),
        (".nosuch 3", (".nosuch",)),
    ],
)
def test_directives_that_no_assembler_accepts_are_refused(cpu: Device, directive: str, why: tuple[str, ...]) -> None:
    with raises(PtxSyntaxError, "ptx-syntax", *why) as caught:
        load(f"{HEAD}.visible .entry k() {directive} {{ ret; }}".encode(), cpu)
    assert caught.value.column >= 21
