"""GPUs by the name that people and drivers call them: architecture and number of multiprocessors."""

from __future__ import annotations

import enum
import re

from cujit.arch import Arch, ArchKind
from cujit.errors import ArchError, alike, spell
from cujit.errors.hints import Hint
from cujit.forks import once
from cujit.values import dataclass


class Mark(enum.Enum):
    """The source of a product's number of SMs."""

    DEVICE = "as a device says"
    """Read in a published output of deviceQuery or of a profiler, or measured here."""
    MAKER = "NVIDIA's figures"
    """From the multiprocessors or CUDA cores that NVIDIA publishes for the product; not checked on one."""
    USER = "given"


@dataclass(frozen=True)
class Product:
    """A GPU model: its name, real architecture, and number of SMs. The number is None if only the architecture is
    known.

    Example::

        print(cujit.occupancy.of(cubin, on="H200").product)
    """

    name: str
    arch: Arch
    processors: int | None
    mark: Mark

    def __str__(self) -> str:
        return f"{self.name} ({self.arch})" if self.name != str(self.arch) else self.name


_DEVICE = (
    (60, {"P100": 56}),
    (75, {"T4": 40, "RTX 2080 Ti": 68}),
    (80, {"A100": 108}),
    (86, {"A10": 72, "RTX A4000": 48, "RTX 3050 Ti Laptop": 20, "RTX 3080": 68, "RTX 3090": 82}),
    (87, {"Jetson AGX Orin 64GB": 16}),
    (89, {"L4": 58, "L40S": 142, "RTX 4050 Laptop": 20, "RTX 4090 Laptop": 76, "RTX 4090": 128}),
    (90, {"H100 SXM": 132, "H100 PCIe": 114, "H200": 132, "GH200": 132}),
    (103, {"B300": 148}),
    (110, {"Thor": 20}),
    (120, {"RTX 5090": 170}),
    (121, {"GB10": 48}),
)
_MAKER = (
    (61, {"GTX 1080 Ti": 28}),
    (70, {"V100": 80}),
    (72, {"Jetson AGX Xavier": 8}),
    (75, {"RTX 2060": 30, "RTX 2070": 36, "RTX 2080": 46, "RTX 2080 SUPER": 48, "TITAN RTX": 72, "RTX 8000": 72}),
    (80, {"A30": 56}),
    (86, {"A2": 10, "A40": 84, "RTX A5000": 64, "RTX A6000": 84, "RTX 3060": 28, "RTX 3060 Ti": 38}),
    (86, {"RTX 3070": 46, "RTX 3070 Ti": 48, "RTX 3080 12GB": 70, "RTX 3080 Ti": 80, "RTX 3090 Ti": 84}),
    (87, {"Jetson AGX Orin 32GB": 14, "Jetson Orin NX 16GB": 8, "Jetson Orin Nano 8GB": 8}),
    (89, {"L40": 142, "RTX 6000 Ada": 142, "RTX 4060": 24, "RTX 4060 Ti": 34, "RTX 4070": 46, "RTX 4070 SUPER": 56}),
    (89, {"RTX 4070 Ti": 60, "RTX 4070 Ti SUPER": 66, "RTX 4080": 76, "RTX 4080 SUPER": 80}),
    (90, {"H100 NVL": 132}),
    (100, {"B200": 148, "GB200": 148}),
    (120, {"RTX 5060": 30, "RTX 5060 Ti": 36, "RTX 5070": 48, "RTX 5070 Ti": 70, "RTX 5080": 84}),
    (120, {"RTX PRO 6000 Blackwell": 188}),
)


def _rows() -> tuple[Product, ...]:
    marked = [(_DEVICE, Mark.DEVICE), (_MAKER, Mark.MAKER)]
    rows = [
        Product(name, Arch(ArchKind.REAL, number), processors, mark)
        for table, mark in marked
        for number, names in table
        for name, processors in names.items()
    ]
    return tuple(sorted(rows, key=lambda p: (p.arch, p.name)))


PRODUCTS: tuple[Product, ...] = _rows()

# Other names of the same thing, as drivers, shops and people write them.
_ALIASES = {
    "H100": "H100 SXM",
    "H200 SXM": "H200",
    "H200 NVL": "H200",
    "A100 SXM": "A100",
    "A100 PCIe": "A100",
    "V100 SXM": "V100",
    "V100 PCIe": "V100",
    "P100 PCIe": "P100",
    "P100 SXM": "P100",
    "B300 SXM": "B300",
    "B300 SXM AC": "B300",
    "DGX Spark": "GB10",
    "Jetson Thor": "Thor",
    "Jetson AGX Thor": "Thor",
    "AGX Orin 64GB": "Jetson AGX Orin 64GB",
    "AGX Orin 32GB": "Jetson AGX Orin 32GB",
    "Orin NX 16GB": "Jetson Orin NX 16GB",
    "Orin Nano 8GB": "Jetson Orin Nano 8GB",
    "A6000": "RTX A6000",
    "A5000": "RTX A5000",
    "A4000": "RTX A4000",
    "RTX 6000 Ada Generation": "RTX 6000 Ada",
    "RTX PRO 6000": "RTX PRO 6000 Blackwell",
    "RTX PRO 6000 Blackwell Workstation Edition": "RTX PRO 6000 Blackwell",
    "RTX PRO 6000 Blackwell Server Edition": "RTX PRO 6000 Blackwell",
    "RTX PRO 6000 Blackwell Max-Q Workstation Edition": "RTX PRO 6000 Blackwell",
}
_NOISE = frozenset({"nvidia", "geforce", "tesla", "quadro", "gpu", "graphics"})
_WORD = re.compile(r"[a-z]+|[0-9]+")
# What drivers append to the name of a server's GPU: memory and its kind. A desktop GPU's memory can tell two apart.
_SERVER = re.compile(r"\b(?:[abhvp]|gb|gh)\d{2,3}\b")
_MEMORY = re.compile(r"\b\d+ ?gb\b|\bhbm\d*e?\b")
_SOCKET = re.compile(r"\bsxm\d\b")


def _key(name: str) -> str:
    """Write a name so that case, spaces, hyphens and the words that all names share do not matter."""
    text = re.sub(r"[^a-z0-9]+", " ", name.lower())
    if _SERVER.search(text):
        text = _SOCKET.sub("sxm", _MEMORY.sub(" ", text))
    return "".join(word for word in _WORD.findall(text) if word not in _NOISE)


@once
def _by_key() -> dict[str, Product]:
    by_name = {p.name: p for p in PRODUCTS}
    named = by_name | {alias: by_name[name] for alias, name in _ALIASES.items()}
    return {_key(name): product for name, product in named.items()}


def find_product(name: str) -> Product:
    """Return the GPU with a name (``H200``, ``rtx 5090``) or an architecture (``sm_90``).

    Full names such as ``NVIDIA A100-SXM4-80GB`` are accepted.

    Raises:
        ArchError: no GPU has this name. The message lists the nearest names.
    """
    if not isinstance(name, str):
        raise ArchError(f"the name of a GPU must be a str, not {type(name).__name__} {spell(name)}", help=_HELP)
    found = _by_key().get(_key(name))
    if found is not None:
        return found
    if name.startswith(("sm_", "compute_", "lto_")):
        return product_of_arch(Arch.parse(name).real)
    raise ArchError(f"the table has no entry for the GPU {spell(name)}", help=_nearest(name) + _HELP)


def product_of_arch(arch: Arch, processors: int | None = None) -> Product:
    """Return a GPU of which only the architecture is known, and perhaps the number of SMs.

    Raises:
        ArchError: ``processors`` is below 1.
    """
    if processors is not None and processors < 1:
        raise ArchError(
            f"processors is {processors}, expected at least 1",
            help="remove processors if you don't know the number of SMs",
        )
    return Product(str(arch.real), arch.real, processors, Mark.USER)


_HELP = Hint(
    "for other GPUs, pass the architecture and the number of SMs: on='sm_90', processors=132",
    shell="for other GPUs, pass the architecture and the number of SMs: --on sm_90, --processors 132",
)


def _nearest(name: str) -> str:
    names = {_key(p.name): p.name for p in PRODUCTS}
    wanted = _key(name)
    close = alike(wanted, list(names), least=0.5)
    near = list(dict.fromkeys([key for key in names if wanted and wanted in key] + close))[:3]
    return f"did you mean {', '.join(names[key] for key in near)}? " if near else ""
