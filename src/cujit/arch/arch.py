"""Architectures: their names, variants, and compatibility. No other module spells the prefix ``sm_``."""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterable

from cujit.errors import ArchError, alike, spell
from cujit.values import NamedTuple, dataclass, later
from cujit.values.typed import TYPE_CHECKING

if TYPE_CHECKING:
    import re
else:
    re = later("re")  # start-up: few calls need it


class ArchKind(enum.Enum):
    """Kind of architecture, by prefix: real (``sm_``), virtual (``compute_``), or link-time (``lto_``).

    Example::

        assert cujit.Arch.parse("lto_90").kind is cujit.arch.ArchKind.LTO
    """

    REAL = "sm"
    VIRTUAL = "compute"
    LTO = "lto"


class ArchRow(NamedTuple):
    """An architecture that NVIDIA's compilers support or supported.

    ``first`` and ``last`` are the first and the last CUDA toolkit that compile for it, as ``(major, minor)``. ``last``
    is None if toolkits still support it. ``a_since`` and ``f_since`` are the first toolkits with the
    architecture-specific and the family-specific variant, or None. ``ptx`` is the first version of the PTX ISA with
    this target.
    """

    number: int
    ptx: tuple[int, int]
    first: tuple[int, int]
    last: tuple[int, int] | None = None
    a_since: tuple[int, int] | None = None
    f_since: tuple[int, int] | None = None

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The suffixes of the variants, starting with the empty suffix."""
        return ("", *("a" * (self.a_since is not None)), *("f" * (self.f_since is not None)))


# Source: PTX ISA manual 9.1, "PTX Release History" (targets per ISA version) and the CUDA release notes
# (architectures removed in 13.0: everything below 7.5, and 10.1 renamed to 11.0). 13.4's list was read
# from nvrtcGetSupportedArchs of NVRTC 13.4.92.
_ROWS = (
    ArchRow(50, (4, 0), (6, 0), (12, 9)),
    ArchRow(52, (4, 1), (6, 5), (12, 9)),
    ArchRow(53, (4, 2), (7, 0), (12, 9)),
    ArchRow(60, (5, 0), (8, 0), (12, 9)),
    ArchRow(61, (5, 0), (8, 0), (12, 9)),
    ArchRow(62, (5, 0), (8, 0), (12, 9)),
    ArchRow(70, (6, 0), (9, 0), (12, 9)),
    ArchRow(72, (6, 1), (9, 1), (12, 9)),
    ArchRow(75, (6, 3), (10, 0)),
    ArchRow(80, (7, 0), (11, 0)),
    ArchRow(86, (7, 1), (11, 1)),
    ArchRow(87, (7, 4), (11, 4)),
    ArchRow(88, (9, 0), (13, 0)),
    ArchRow(89, (7, 8), (11, 8)),
    ArchRow(90, (7, 8), (11, 8), a_since=(12, 0)),
    ArchRow(100, (8, 6), (12, 8), a_since=(12, 8), f_since=(12, 9)),
    ArchRow(101, (8, 6), (12, 8), (12, 9), a_since=(12, 8), f_since=(12, 9)),
    ArchRow(103, (8, 8), (12, 9), a_since=(12, 9), f_since=(12, 9)),
    ArchRow(107, (9, 4), (13, 4), a_since=(13, 4), f_since=(13, 4)),
    ArchRow(110, (9, 0), (13, 0), a_since=(13, 0), f_since=(13, 0)),
    ArchRow(120, (8, 7), (12, 8), a_since=(12, 8), f_since=(12, 9)),
    ArchRow(121, (8, 8), (12, 9), a_since=(12, 9), f_since=(12, 9)),
)
KNOWN_ARCHES: dict[int, ArchRow] = {row.number: row for row in _ROWS}

# Systems on a chip, whose machine code and that of other GPUs do not run on each other: Jetson TX1, TX2, Xavier,
# Orin, and Thor under both of its numbers. Source: NVIDIA's list "CUDA GPU Compute Capability". 88 is on no such list;
# it is taken for one, so that its machine code is made for it alone.
_TEGRA = frozenset({53, 62, 72, 87, 88, 101, 110})

_NAME = r"(sm|compute|lto)_([1-9][0-9]{1,2})([af]?)"  # compiled when it is first used: start-up


@functools.total_ordering
@dataclass(frozen=True, repr=False)
class Arch:
    """A GPU architecture, such as ``sm_90a``, ``compute_75``, or ``lto_120f``.

    ``number`` is ten times the compute capability (90, 103, 120). ``suffix`` is ``""``, ``"a"`` (this architecture
    only), or ``"f"`` (this family only). Architectures are ordered by number, suffix, and kind. To create an Arch from
    a string, call ``Arch.parse``, which rejects names that no toolkit supports.

    Example::

        arch = cujit.Arch.parse("sm_90a")
        assert (arch.number, arch.suffix, str(arch.virtual)) == (90, "a", "compute_90a")
    """

    kind: ArchKind
    number: int
    suffix: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.kind, ArchKind):
            raise ArchError(
                f"unknown architecture prefix: {spell(self.kind)}", help="to parse a name, write Arch.parse('sm_90')"
            )
        if not isinstance(self.number, int) or isinstance(self.number, bool) or not isinstance(self.suffix, str):
            raise ArchError(
                f"an Arch consists of an int and a suffix, not {spell(self.number)} and {spell(self.suffix)}",
                help="to parse a name, write Arch.parse('sm_90a')",
            )
        if self.number < 10 or self.suffix not in ("", "a", "f"):
            raise ArchError(f"there is no architecture {self.number}{self.suffix}", help=_HELP)

    @classmethod
    def parse(cls, name: str | Arch) -> Arch:
        """Parse an architecture name, such as ``sm_90a``, ``compute_75``, or ``lto_100f``.

        Args:
            name: name of an architecture. ``parse`` returns an Arch unchanged.

        Raises:
            ArchError: the name is malformed, or no toolkit supports the architecture. The message contains the closest
                valid names.

        Example::

            assert cujit.Arch.parse("compute_80").is_virtual
        """
        if isinstance(name, Arch):
            return name
        if not isinstance(name, str):
            raise ArchError(
                f"expected the name of an architecture, such as 'sm_90', not {type(name).__name__} {spell(name)}",
                help=_HELP,
            )
        return _parsed(name)

    @classmethod
    def of_capability(cls, major: int, minor: int) -> Arch:
        """Return the real architecture of a device with compute capability ``major.minor``.

        Args:
            major: major version of the compute capability.
            minor: minor version of the compute capability.

        Example::

            assert str(cujit.Arch.of_capability(9, 0)) == "sm_90"
        """
        return cls(ArchKind.REAL, 10 * major + minor)

    def __str__(self) -> str:
        return f"{self.kind.value}_{self.number}{self.suffix}"

    def __repr__(self) -> str:
        return f"Arch({str(self)!r})"

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, Arch):
            return NotImplemented
        return self._order < other._order

    @property
    def _order(self) -> tuple[int, str, str]:
        return (self.number, self.suffix, self.kind.value)

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability as ``(major, minor)``."""
        return divmod(self.number, 10)

    @property
    def is_real(self) -> bool:
        """Whether a build for this architecture produces SASS (a cubin)."""
        return self.kind is ArchKind.REAL

    @property
    def is_virtual(self) -> bool:
        """Whether a build for this architecture produces PTX."""
        return self.kind is ArchKind.VIRTUAL

    @property
    def is_lto(self) -> bool:
        """Whether a build for this architecture produces LTO-IR."""
        return self.kind is ArchKind.LTO

    @property
    def real(self) -> Arch:
        """The same architecture as ``sm_…``."""
        return Arch(ArchKind.REAL, self.number, self.suffix)

    @property
    def virtual(self) -> Arch:
        """The same architecture as ``compute_…``."""
        return Arch(ArchKind.VIRTUAL, self.number, self.suffix)

    @property
    def lto(self) -> Arch:
        """The same architecture as ``lto_…``."""
        return Arch(ArchKind.LTO, self.number, self.suffix)

    def specific(self, release: tuple[int, int]) -> Arch:
        """Return the architecture-specific variant (``sm_90a``), or the architecture itself if it has no such variant.

        Args:
            release: version of the CUDA toolkit that compiles the code, as ``(major, minor)``.

        Example::

            assert str(cujit.Arch.parse("sm_90").specific((13, 0))) == "sm_90a"
        """
        row = KNOWN_ARCHES.get(self.number)
        if row is None or row.a_since is None or release < row.a_since:
            return self
        return Arch(self.kind, self.number, "a")

    def runs_on(self, device: Arch) -> bool:
        """Return whether code built for this architecture runs on ``device`` (a real architecture).

        SASS runs on GPUs with the same major capability and the same or a higher minor capability. SASS for Tegra runs
        only on its own architecture, and Tegra runs no other SASS. PTX and linked LTO-IR also run on every later
        architecture. Code with the suffix ``a`` runs only on its own architecture. Code with the suffix ``f`` runs on
        GPUs with the same major capability and the same or a higher minor capability.

        Source: CUDA C++ Programming Guide, "Binary Compatibility" with its note on Tegra, "Compute Capability and
        Streaming Multiprocessor Versions", "Family-Specific" and "Architecture-Specific Features"; PTX ISA 9.1,
        ``.target``.

        Args:
            device: a real architecture.

        Raises:
            ArchError: ``device`` is not an Arch.

        Example::

            assert cujit.Arch.parse("sm_80").runs_on(cujit.Arch.parse("sm_86"))
        """
        if not isinstance(device, Arch):
            raise ArchError(
                f"runs_on expects an Arch, not {type(device).__name__} {spell(device)}", help="Arch.parse('sm_90')"
            )
        if self.is_real and self.number != device.number and not _TEGRA.isdisjoint((self.number, device.number)):
            return False
        if self.suffix == "a":
            return self.number == device.number
        same_major = self.capability[0] == device.capability[0]
        if self.is_real or self.suffix == "f":
            return same_major and self.number <= device.number
        return self.number <= device.number

    def served_by(self) -> tuple[Arch, ...]:
        """List the architectures whose code runs on this real architecture, best first.

        The order is: SASS for this architecture, SASS for its family, SASS for older architectures with the same major
        capability, and PTX.

        Example::

            assert [str(arch) for arch in cujit.Arch.parse("sm_90").served_by()][:2] == ["sm_90a", "sm_90"]
        """
        rows = [row for row in _ROWS if row.number <= self.number]  # no code for a newer one runs here
        kinds = ArchKind.REAL, ArchKind.VIRTUAL
        known = [Arch(kind, row.number, suffix) for kind in kinds for row in rows for suffix in row.suffixes]
        fitting = {arch for arch in (self, self.virtual, *known) if arch.runs_on(self)}

        def rank(arch: Arch) -> tuple[bool, bool, bool, int, int, str]:
            is_other = arch.number != self.number
            is_old = is_other and arch.suffix != "f"
            return arch.is_virtual, is_other, is_old, -arch.number, -len(arch.suffix), arch.suffix

        return tuple(sorted(fitting, key=rank))


_HELP = "names look like sm_90, sm_90a, compute_75, lto_120f"


@functools.cache
def known_names(kind: ArchKind) -> tuple[str, ...]:
    """Return the names of all architectures of a kind, oldest first."""
    names: list[str] = []
    for row in _ROWS:
        names += [f"{kind.value}_{row.number}{suffix}" for suffix in row.suffixes]
    return tuple(names)


@functools.lru_cache(maxsize=256)
def _parsed(name: str) -> Arch:
    for kind in ArchKind:
        if name in known_names(kind):
            number = name.removeprefix(f"{kind.value}_").rstrip("af")
            return Arch(kind, int(number), name.partition(number)[2])
    what = "unknown" if re.fullmatch(_NAME, name) else "malformed"
    raise ArchError(f"{what} architecture {spell(name)}", help=_suggest(name))


# What people write for one: 90, 9.0, sm90a, compute-75, cc 8.6.
_NUMBER = r"(?P<kind>compute|lto)?[^0-9]*(?P<major>[0-9]{1,2})\.?(?P<minor>[0-9])(?P<suffix>[af]?)"


def _suggest(name: str) -> str:
    if match := re.fullmatch(_NUMBER, name.strip().lower()):
        meant = f"{match['kind'] or 'sm'}_{match['major']}{match['minor']}{match['suffix']}"
        if any(meant in known_names(kind) for kind in ArchKind):
            return f"did you mean {meant}?"
    every: Iterable[str] = (n for kind in ArchKind for n in known_names(kind))
    near = alike(name.lower(), list(every))
    return f"did you mean {', '.join(near)}?" if near else _HELP
