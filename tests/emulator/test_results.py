"""What the driver's functions answer, by name and number."""

from __future__ import annotations

from cuda.bindings import driver

from cujit.emulator.results import Result
from emulator.programs import python


def test_every_result_has_the_number_of_the_bindings() -> None:
    assert {result.spelled: int(result) for result in Result} == {each.name: int(each) for each in driver.CUresult}


def test_result_name_has_a_description() -> None:
    assert Result.ILLEGAL_ADDRESS.sentence == "illegal address"


def test_refused_call_says_what_to_do() -> None:
    said = python("""
    import ctypes
    lib, text, context, link = ctypes.CDLL("libcuda.so.1"), ctypes.c_char_p(), ctypes.c_void_p(), ctypes.c_void_p()
    assert not lib.cuInit(0) and not lib.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
    assert not lib.cuLinkCreate_v2(0, None, None, ctypes.byref(link))
    status = lib.cuLinkComplete(link, ctypes.byref(ctypes.c_void_p()), None)
    lib.cuGetErrorString(status, ctypes.byref(text))
    print(text.value.decode())
    """)
    assert said == "the link has no inputs\n  hint: add an image with `cuLinkAddData` or `cuLinkAddFile`\n"
