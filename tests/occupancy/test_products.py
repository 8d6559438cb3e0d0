from __future__ import annotations

import re

import pytest

from cujit.arch.multiprocessor import limits_of
from cujit.errors import ArchError
from cujit.occupancy.products import PRODUCTS, Mark, find_product, product_of_arch
from raising import raises


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


# Source: NVIDIA's pages and whitepapers of each product, "CUDA Cores".
_CORES = {
    "P100": 3584, "GTX 1080 Ti": 3584, "V100": 5120, "Jetson AGX Xavier": 512, "T4": 2560, "RTX 2060": 1920,
    "RTX 2070": 2304, "RTX 2080": 2944, "RTX 2080 SUPER": 3072, "RTX 2080 Ti": 4352, "TITAN RTX": 4608,
    "RTX 8000": 4608, "A30": 3584, "A100": 6912, "A2": 1280, "A10": 9216, "A40": 10752, "RTX A4000": 6144,
    "RTX A5000": 8192, "RTX A6000": 10752, "RTX 3050 Ti Laptop": 2560, "RTX 3060": 3584, "RTX 3060 Ti": 4864,
    "RTX 3070": 5888, "RTX 3070 Ti": 6144, "RTX 3080": 8704, "RTX 3080 12GB": 8960, "RTX 3080 Ti": 10240,
    "RTX 3090": 10496, "RTX 3090 Ti": 10752, "Jetson AGX Orin 32GB": 1792, "Jetson AGX Orin 64GB": 2048,
    "Jetson Orin NX 16GB": 1024, "Jetson Orin Nano 8GB": 1024, "L4": 7424, "L40": 18176, "L40S": 18176,
    "RTX 6000 Ada": 18176, "RTX 4050 Laptop": 2560, "RTX 4060": 3072, "RTX 4060 Ti": 4352, "RTX 4070": 5888,
    "RTX 4070 SUPER": 7168, "RTX 4070 Ti": 7680, "RTX 4070 Ti SUPER": 8448, "RTX 4080": 9728, "RTX 4080 SUPER": 10240,
    "RTX 4090": 16384, "RTX 4090 Laptop": 9728, "H100 SXM": 16896, "H100 PCIe": 14592, "H100 NVL": 16896,
    "H200": 16896, "GH200": 16896, "B200": 18944, "GB200": 18944, "B300": 18944, "Thor": 2560, "RTX 5060": 3840,
    "RTX 5060 Ti": 4608, "RTX 5070": 6144, "RTX 5070 Ti": 8960, "RTX 5080": 10752, "RTX 5090": 21760,
    "RTX PRO 6000 Blackwell": 24064, "GB10": 6144,
}  # fmt: skip
_CORES_OF_ONE = {60: 64, 70: 64, 72: 64, 75: 64, 80: 64}
_GENERATIONS = {
    60: "P100", 61: "GTX 1080 Ti", 70: "V100", 72: "Jetson AGX Xavier", 75: "T4|RTX 2.*|TITAN RTX|RTX 8000",
    80: "A30|A100", 86: r"A2|A10|A40|RTX A\d+|RTX 3.*", 87: "Jetson.* Orin .*", 89: r"L\d+S?|RTX 6000 Ada|RTX 4.*",
    90: "G?H.*", 100: "G?B200", 103: "B300", 110: "Thor", 120: "RTX 5.*|RTX PRO 6000 Blackwell", 121: "GB10",
}  # fmt: skip


def test_sms_and_architectures_match_advertised_cores() -> None:
    cores = {p.name: (p.processors or 0) * _CORES_OF_ONE.get(p.arch.number, 128) for p in PRODUCTS}
    assert cores == _CORES
    of_its_time = {p.name: re.fullmatch(_GENERATIONS[p.arch.number], p.name) is not None for p in PRODUCTS}
    assert [name for name, is_so in of_its_time.items() if not is_so] == []


def test_every_product_is_found_by_its_name_and_has_limits() -> None:
    for product in PRODUCTS:
        assert find_product(product.name) is product
        assert limits_of(product.arch)
        assert product.processors
        assert product.mark in (Mark.DEVICE, Mark.MAKER)
    assert len({p.name for p in PRODUCTS}) == len(PRODUCTS)


def test_architecture_is_a_gpu_of_unknown_size() -> None:
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
def test_unknown_name_suggests_the_nearest(name: str, help_has: str) -> None:
    with raises(ArchError, "arch", "GPU", name) as caught:
        find_product(name)
    assert help_has in (caught.value.help or "")


@pytest.mark.parametrize("name", ["RTX 4090 D", "RTX 3080 16GB", "Jetson AGX Orin", "H100 CNX"])
def test_similar_name_of_another_gpu_is_not_accepted(name: str) -> None:
    with pytest.raises(ArchError):
        find_product(name)


def test_malformed_architecture_is_reported() -> None:
    with raises(ArchError, "arch", "unknown", "sm_94"):
        find_product("sm_94")
    with raises(ArchError, "arch", "90", "processors=132"):
        find_product(90)  # type: ignore[arg-type]
