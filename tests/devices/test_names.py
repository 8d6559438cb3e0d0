from __future__ import annotations

from typing import Any

import pytest

from cujit.devices.name_table import NameTable
from cujit.errors import NameNotFoundError
from raising import raises

AXPY_F = "_Z4axpyIfEvT_PKS0_PS0_m"
AXPY_D = "_Z4axpyIdEvT_PKS0_PS0_m"
SCALE_F = "_Z5scalePf"
SCALE_D = "_Z5scalePd"
INNER = "_ZN2ns5innerEPf"


def test_kernel_is_found_by_expression_source_and_lowered_name() -> None:
    table = NameTable({"axpy<float>": AXPY_F}, [AXPY_F, "plain", INNER])
    assert table.find("axpy<float>") == AXPY_F
    assert table.find("axpy< float >") == AXPY_F
    assert table.find(AXPY_F) == AXPY_F
    assert table.find("plain") == "plain"
    assert table.find("ns::inner") == table.find("::ns::inner") == INNER


def test_template_instance_is_found_without_a_name_map() -> None:
    table = NameTable({}, [AXPY_F, AXPY_D])
    assert table.find("axpy<float>") == AXPY_F
    assert table.find("axpy<double>") == AXPY_D


def test_plain_name_finds_a_single_instance() -> None:
    assert NameTable({}, [AXPY_F]).find("axpy") == AXPY_F


def test_ambiguous_plain_name_lists_its_instances() -> None:
    with raises(NameNotFoundError, "name-not-found", "2", "axpy<double>") as caught:
        NameTable({}, [AXPY_F, AXPY_D]).find("axpy")
    assert "axpy<float>" in str(caught.value)
    assert "axpy<double>" in str(caught.value)


def test_overloads_are_listed_with_their_parameters() -> None:
    table = NameTable({}, [SCALE_F, SCALE_D])
    with raises(NameNotFoundError, "name-not-found", "2", "kernels") as caught:
        table.find("scale")
    assert "float" in str(caught.value)
    assert "double" in str(caught.value)
    assert table.find(SCALE_D) == SCALE_D
    assert [table.find(shown) for shown in table.display.values()] == [SCALE_F, SCALE_D]


def test_missing_name_lists_the_nearest_names_first() -> None:
    with pytest.raises(NameNotFoundError) as caught:
        NameTable({}, ["zebra", "scale_rows", "scale_cols"]).find("scale_row")
    message = str(caught.value)
    assert message.index("scale_rows") < message.index("scale_cols") < message.index("zebra")
    assert isinstance(caught.value, KeyError)


def test_missing_instance_explains_how_to_build_it() -> None:
    with raises(NameNotFoundError, "name-not-found", "names=", "axpy<int>"):
        NameTable({}, [AXPY_F]).find("axpy<int>")


def test_module_without_kernels_is_reported() -> None:
    with raises(NameNotFoundError, "name-not-found", "names=['k<float>']"):
        NameTable({}, []).find("axpy")


def test_requested_name_missing_from_the_image_is_not_found() -> None:
    with pytest.raises(NameNotFoundError):
        NameTable({"gone<int>": "_Z4goneIiEvv"}, ["k"]).find("gone<int>")


def test_kernels_are_shown_under_their_requested_names() -> None:
    table = NameTable({"axpy<float>": AXPY_F}, [AXPY_F, INNER, "k"])
    assert table.display == {AXPY_F: "axpy<float>", INNER: "ns::inner", "k": "k"}


@pytest.mark.parametrize(
    ("asked", "lowered"),
    [
        ("ov(int*)", "_Z2ovPi"),
        ("ov(int *)", "_Z2ovPi"),
        ("void ov( int* )", "_Z2ovPi"),
        ("ov(int*,int)", "_Z2ovPii"),
        ("::ov(int *, signed)", "_Z2ovPii"),
        ("ns::in::k(int*)", "_ZN2ns2in1kEPi"),
        ("(anonymous namespace)::anon", "_ZN12_GLOBAL__N_14anonEv"),
        ("(anonymous namespace)::anon()", "_ZN12_GLOBAL__N_14anonEv"),
        ("anon", "_ZN12_GLOBAL__N_14anonEv"),
        ("axpy<float>(float, float const *, float*, unsigned long)", AXPY_F),
    ],
)
def test_kernel_is_found_with_types_and_unnamed_namespace(asked: str, lowered: str) -> None:
    table = NameTable({}, ["_Z2ovPi", "_Z2ovPii", "_ZN2ns2in1kEPi", "_ZN12_GLOBAL__N_14anonEv", AXPY_F, AXPY_D])
    assert table.find(asked) == lowered


def test_parameter_types_of_no_kernel_are_not_found() -> None:
    with pytest.raises(NameNotFoundError):
        NameTable({}, ["_Z2ovPi", "_Z2ovPii"]).find("ov(float*)")


def test_first_of_several_names_is_shown_and_all_are_found() -> None:
    table = NameTable({"axpy<float>": AXPY_F, "axpy<real>": AXPY_F}, [AXPY_F])
    assert table.display == {AXPY_F: "axpy<float>"}
    assert table.find("axpy<real>") == AXPY_F


@pytest.mark.parametrize("bad", [0, None, [], b"axpy"])
def test_invalid_name_is_not_found(bad: Any) -> None:
    with raises(NameNotFoundError, "name-not-found", "name"):
        NameTable({}, [AXPY_F]).find(bad)
