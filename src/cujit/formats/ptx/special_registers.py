"""The special registers: values that the hardware provides to a thread.

Source: PTX ISA manual 9.1, chapter 10. ``isa/table.py`` describes how far they were checked.
"""

from __future__ import annotations

from cujit.values import dataclass

_XYZ = ("x", "y", "z", "w")


@dataclass(frozen=True)
class SpecialRegister:
    """One special register. If it has ``components``, ``type`` is the type of a component.

    ``ptx`` is the ISA version and ``sm`` the architecture that introduced it (10 means every one).
    """

    name: str
    type: str
    section: str
    ptx: tuple[int, int]
    sm: int = 10
    components: tuple[str, ...] = ()


_ROWS = (
    SpecialRegister("%tid", "u32", "10.1", (1, 0), components=_XYZ),
    SpecialRegister("%ntid", "u32", "10.2", (1, 0), components=_XYZ),
    SpecialRegister("%laneid", "u32", "10.3", (1, 3)),
    SpecialRegister("%warpid", "u32", "10.4", (1, 3)),
    SpecialRegister("%nwarpid", "u32", "10.5", (2, 0), 20),
    SpecialRegister("%ctaid", "u32", "10.6", (1, 0), components=_XYZ),
    SpecialRegister("%nctaid", "u32", "10.7", (1, 0), components=_XYZ),
    SpecialRegister("%smid", "u32", "10.8", (1, 3)),
    SpecialRegister("%nsmid", "u32", "10.9", (2, 0), 20),
    SpecialRegister("%gridid", "u64", "10.10", (1, 0)),
    SpecialRegister("%is_explicit_cluster", "pred", "10.11", (7, 8), 90),
    SpecialRegister("%clusterid", "u32", "10.12", (7, 8), 90, _XYZ),
    SpecialRegister("%nclusterid", "u32", "10.13", (7, 8), 90, _XYZ),
    SpecialRegister("%cluster_ctaid", "u32", "10.14", (7, 8), 90, _XYZ),
    SpecialRegister("%cluster_nctaid", "u32", "10.15", (7, 8), 90, _XYZ),
    SpecialRegister("%cluster_ctarank", "u32", "10.16", (7, 8), 90),
    SpecialRegister("%cluster_nctarank", "u32", "10.17", (7, 8), 90),
    SpecialRegister("%lanemask_eq", "u32", "10.18", (2, 0), 20),
    SpecialRegister("%lanemask_le", "u32", "10.19", (2, 0), 20),
    SpecialRegister("%lanemask_lt", "u32", "10.20", (2, 0), 20),
    SpecialRegister("%lanemask_ge", "u32", "10.21", (2, 0), 20),
    SpecialRegister("%lanemask_gt", "u32", "10.22", (2, 0), 20),
    SpecialRegister("%clock", "u32", "10.23", (1, 0)),
    SpecialRegister("%clock_hi", "u32", "10.23", (5, 0), 20),
    SpecialRegister("%clock64", "u64", "10.24", (2, 0), 20),
    *(SpecialRegister(f"%pm{n}", "u32", "10.25", (1, 3) if n < 4 else (3, 0), 10 if n < 4 else 20) for n in range(8)),
    *(SpecialRegister(f"%pm{n}_64", "u64", "10.26", (4, 0), 50) for n in range(8)),
    *(SpecialRegister(f"%envreg{n}", "b32", "10.27", (2, 1)) for n in range(32)),
    SpecialRegister("%globaltimer", "u64", "10.28", (3, 1), 30),
    SpecialRegister("%globaltimer_lo", "u32", "10.28", (3, 1), 30),
    SpecialRegister("%globaltimer_hi", "u32", "10.28", (3, 1), 30),
    SpecialRegister("%reserved_smem_offset_begin", "b32", "10.29", (7, 6), 80),
    SpecialRegister("%reserved_smem_offset_end", "b32", "10.29", (7, 6), 80),
    SpecialRegister("%reserved_smem_offset_cap", "b32", "10.29", (7, 6), 80),
    SpecialRegister("%reserved_smem_offset_0", "b32", "10.29", (7, 6), 80),
    SpecialRegister("%reserved_smem_offset_1", "b32", "10.29", (7, 6), 80),
    SpecialRegister("%total_smem_size", "u32", "10.30", (4, 1), 20),
    SpecialRegister("%aggr_smem_size", "u32", "10.31", (8, 1), 90),
    SpecialRegister("%dynamic_smem_size", "u32", "10.32", (4, 1), 20),
    SpecialRegister("%current_graph_exec", "u64", "10.33", (8, 0), 50),
    SpecialRegister("%perctamemoryoffset", "u64", "10", (9, 4), 80),
    SpecialRegister("%perctamemorysize", "u32", "10", (9, 4), 80),
    SpecialRegister("%locality_domain_id", "u32", "10", (9, 5), 100),
    SpecialRegister("%locality_domain_supplemental_sm", "u32", "10", (9, 5), 100),
)
SPECIAL_REGISTERS: dict[str, SpecialRegister] = {row.name: row for row in _ROWS}
"""Every special register by its name, without component."""
