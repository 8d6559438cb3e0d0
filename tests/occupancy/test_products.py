from __future__ import annotations

import pytest

from cujit.errors import ArchError
from cujit.occupancy.multiprocessor import limits_of
from cujit.occupancy.products import PRODUCTS, Mark, find_product, product_of_arch


@pytest.mark.parametrize(
    ("name", "found", "arch", "processors"),
    [
        ("H200", "H200", "sm_90", 132),
        ("NVIDIA H200", "H200", "sm_90", 132),
        ("rtx 5090", "RTX 5090", "sm_120", 170),
        ("rtx5090", "RTX 5090", "sm_120", 170),
        ("NVIDIA GeForce RTX 5090", "RTX 5090", "sm_120", 170),
        ("NVIDIA H100 PCIe", "H100 PCIe", "sm_90", 114),
        ("NVIDIA H100 80GB HBM3", "H100 SXM", "sm_90", 132),
        ("H100-SXM5-80GB", "H100 SXM", "sm_90", 132),
        ("NVIDIA A100-SXM4-80GB", "A100", "sm_80", 108),
        ("NVIDIA A100 80GB PCIe", "A100", "sm_80", 108),
        ("Tesla T4", "T4", "sm_75", 40),
        ("Tesla V100-SXM2-16GB", "V100", "sm_70", 80),
        ("NVIDIA GH200 480GB", "GH200", "sm_90", 132),
        ("NVIDIA B300 SXM6 AC", "B300", "sm_103", 148),
        ("NVIDIA GB10", "GB10", "sm_121", 48),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada", "sm_89", 142),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX PRO 6000 Blackwell", "sm_120", 188),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", "RTX 4090 Laptop", "sm_89", 76),
        ("RTX 3080 12GB", "RTX 3080 12GB", "sm_86", 70),
        ("jetson agx orin 64gb", "Jetson AGX Orin 64GB", "sm_87", 16),
    ],
)
def test_names_of_people_and_drivers_are_found(name: str, found: str, arch: str, processors: int) -> None:
    product = find_product(name)
    assert (product.name, str(product.arch), product.processors) == (found, arch, processors)


def test_every_product_is_found_by_its_own_name_and_has_limits() -> None:
    for product in PRODUCTS:
        assert find_product(product.name) is product
        assert limits_of(product.arch)
        assert product.processors
        assert product.mark in (Mark.DEVICE, Mark.MAKER)
    assert len({p.name for p in PRODUCTS}) == len(PRODUCTS)


def test_an_architecture_is_a_gpu_of_unknown_size() -> None:
    assert find_product("sm_90a") == product_of_arch(find_product("compute_90a").arch)
    assert find_product("sm_90").processors is None
    assert str(find_product("sm_90")) == "sm_90"
    assert str(find_product("T4")) == "T4 (sm_75)"


@pytest.mark.parametrize(
    ("name", "help_has"),
    [
        ("RTX 5091", "did you mean RTX 5090"),
        ("2080", "RTX 2080"),
        ("H20", "H200"),
        ("Ada", "RTX 6000 Ada"),
        ("", "processors=132"),
    ],
)
def test_unknown_name_is_told_with_the_nearest(name: str, help_has: str) -> None:
    with pytest.raises(ArchError, match=f"no GPU '{name}'") as caught:
        find_product(name)
    assert help_has in (caught.value.help or "")


@pytest.mark.parametrize("name", ["RTX 4090 D", "RTX 3080 16GB", "Jetson AGX Orin", "H100 CNX"])
def test_a_near_name_of_another_gpu_is_not_taken(name: str) -> None:
    with pytest.raises(ArchError):
        find_product(name)


def test_malformed_architecture_is_told_as_one() -> None:
    with pytest.raises(ArchError, match="unknown architecture 'sm_94'"):
        find_product("sm_94")
    with pytest.raises(ArchError, match="not by int 90"):
        find_product(90)  # type: ignore[arg-type]
