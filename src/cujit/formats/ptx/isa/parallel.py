"""The instructions of control flow, of synchronisation and communication, of matrices, and the rest.

Source: PTX ISA manual 9.1, sections 9.7.12, 9.7.13, 9.7.17 and 9.7.20. ``table.py`` says
how far they were checked.
"""

from __future__ import annotations

from cujit.formats.ptx.isa.matrix import MATRIX
from cujit.formats.ptx.isa.sets import Forms

_CONTROL = (
    Forms("9.7.12.3", "1.0", 10, "bra {.uni}"),
    Forms("9.7.12.4", "5.1", 30, "brx .idx {.uni}"),
    Forms("9.7.12.5", "1.0", 10, "call {.uni}"),
    Forms("9.7.12.6", "1.0", 10, "ret {.uni}"),
    Forms("9.7.12.7", "1.0", 10, "exit"),
)
_ATOM = "atom {.relaxed|acquire|release|acq_rel} {.SCOPE} {.ORDEREDSPACE} {.HINT}"
_RED = "red {.relaxed|release} {.SCOPE} {.ORDEREDSPACE} {.HINT}"
_RED_ASYNC = "red .async .relaxed .cluster {.shared::cluster} .mbarrier::complete_tx::bytes"
_LOCAL = "{.shared|shared::cta}"
_SEVERAL = "{.shared::cluster} .multicast::cluster::32b"


def _ordered(form: str, order: str, space: str = "{.SHARED}") -> tuple[str, ...]:
    """The forms of a barrier's operation: without an order, and with one and its scope."""
    return f"{form} {space} .b64", f"{form} .{order} .cta|cluster {space} .b64"


_SYNCHRONISE = (
    Forms("9.7.13.1", "1.0", 10, "bar .sync"),
    Forms("9.7.13.1", "2.0", 20, "bar .arrive", "bar .red .popc .u32", "bar .red .and|or .pred"),
    Forms("9.7.13.1", "7.8", 20, "bar .cta .sync|arrive", "bar .cta .red .popc .u32", "bar .cta .red .and|or .pred"),
    Forms("9.7.13.1", "5.1", 30, "barrier .sync|arrive {.aligned}"),
    Forms("9.7.13.1", "5.1", 30, "barrier .red .popc {.aligned} .u32", "barrier .red .and|or {.aligned} .pred"),
    Forms("9.7.13.1", "7.8", 30, "barrier .cta .sync|arrive {.aligned}"),
    Forms("9.7.13.1", "7.8", 30, "barrier .cta .red .popc {.aligned} .u32"),
    Forms("9.7.13.1", "7.8", 30, "barrier .cta .red .and|or {.aligned} .pred"),
    Forms("9.7.13.2", "5.1", 30, "bar .warp .sync"),
    Forms(
        "9.7.13.3",
        "7.8",
        90,
        "barrier .cluster .arrive {.release|relaxed} {.aligned}",
        "barrier .cluster .wait {.acquire} {.aligned}",
    ),
    Forms("9.7.13.4", "1.4", 10, "membar .cta|gl"),
    Forms("9.7.13.4", "2.0", 20, "membar .sys"),
    Forms("9.7.13.4", "7.5", 60, "membar .proxy .alias"),
    Forms("9.7.13.4", "5.1", 70, "fence {.sc|acq_rel} .SCOPE"),
    Forms("9.7.13.4", "5.1", 70, "fence .acquire|release .SCOPE"),
    Forms("9.7.13.4", "8.0", 90, "fence .mbarrier_init .release .cluster"),
    Forms(
        "9.7.13.4",
        "8.6",
        90,
        "fence .acquire .sync_restrict::shared::cluster .cluster",
        "fence .release .sync_restrict::shared::cta .cluster",
    ),
    Forms(
        "9.7.13.4",
        "7.5",
        70,
        "fence .proxy .alias|async",
        "fence .proxy .async .global|shared::cta|shared::cluster",
        "fence .proxy .tensormap::generic .acquire|release .SCOPE",
        "fence .proxy .async::generic .acquire .sync_restrict::shared::cluster .cluster",
        "fence .proxy .async::generic .release .sync_restrict::shared::cta .cluster",
    ),
    Forms("9.7.13.4", "9.4", 90, "fence .proxy .alias .acquire|release .sys"),
    Forms("9.7.13.4", "9.3", 100, "fence .proxy .fabric::generic .alias .acquire|release .sys"),
    Forms("9.7.13.4", "9.5", 90, "fence .alias .sync_restrict::read .release .sys"),
    Forms(
        "9.7.13.5", "1.1", 11, f"{_ATOM} .and|or|xor .b32", f"{_ATOM} .add|min|max .u32|s32", f"{_ATOM} .inc|dec .u32"
    ),
    Forms("9.7.13.5", "1.1", 11, f"{_ATOM} .cas|exch .b32"),
    Forms("9.7.13.5", "1.2", 12, f"{_ATOM} .cas|exch .b64", f"{_ATOM} .add .u64"),
    Forms("9.7.13.5", "2.0", 20, f"{_ATOM} .add .f32"),
    Forms("9.7.13.5", "3.1", 32, f"{_ATOM} .and|or|xor .b64", f"{_ATOM} .min|max .u64|s64"),
    Forms("9.7.13.5", "5.0", 60, f"{_ATOM} .add .f64"),
    Forms("9.7.13.5", "6.3", 70, f"{_ATOM} .cas .b16"),
    Forms("9.7.13.5", "8.3", 90, f"{_ATOM} .cas|exch .b128"),
    Forms("9.7.13.5", "6.2", 60, f"{_ATOM} .add .noftz .f16x2"),
    Forms("9.7.13.5", "6.3", 70, f"{_ATOM} .add .noftz .f16"),
    Forms("9.7.13.5", "7.8", 90, f"{_ATOM} .add .noftz .bf16|bf16x2"),
    Forms("9.7.13.5", "8.1", 90, f"{_ATOM} .add .v2|v4 .f32", f"{_ATOM} .add|min|max .noftz .v2|v4|v8 .HALF"),
    Forms("9.7.13.5", "9.4", 90, f"{_ATOM} .add .noftz {{.v2|v4}} .f32"),
    Forms("9.7.13.6", "9.4", 90, f"{_RED} .add .noftz {{.v2|v4}} .f32"),
    Forms("9.7.13.6", "1.2", 11, f"{_RED} .and|or|xor .b32", f"{_RED} .add|min|max .u32|s32", f"{_RED} .inc|dec .u32"),
    Forms("9.7.13.6", "1.2", 12, f"{_RED} .add .u64"),
    Forms("9.7.13.6", "2.0", 20, f"{_RED} .add .f32"),
    Forms("9.7.13.6", "3.1", 32, f"{_RED} .and|or|xor .b64", f"{_RED} .min|max .u64|s64"),
    Forms("9.7.13.6", "5.0", 60, f"{_RED} .add .f64"),
    Forms("9.7.13.6", "6.2", 60, f"{_RED} .add .noftz .f16x2"),
    Forms("9.7.13.6", "6.3", 70, f"{_RED} .add .noftz .f16"),
    Forms("9.7.13.6", "7.8", 90, f"{_RED} .add .noftz .bf16|bf16x2"),
    Forms("9.7.13.6", "8.1", 90, f"{_RED} .add .v2|v4 .f32", f"{_RED} .add|min|max .noftz .v2|v4|v8 .HALF"),
    Forms(
        "9.7.13.7",
        "8.1",
        90,
        f"{_RED_ASYNC} .add|min|max .u32|s32",
        f"{_RED_ASYNC} .inc|dec .u32",
        f"{_RED_ASYNC} .and|or|xor .b32",
        f"{_RED_ASYNC} .add .u64",
        *(
            f"red .async {order} {{.global}} {what}"
            for order in (".release .gpu|sys", ".mmio .release .sys")
            for what in (".add .u32|s32|u64|s64", ".min|max .u32|s32", ".inc|dec .u32", ".and|or|xor .b32")
        ),
    ),
    Forms("9.7.13.7", "8.1", 90, f"{_RED_ASYNC} .add .s64"),
    Forms("9.7.13.8", "1.2", 12, "vote .all|any|uni .pred"),
    Forms("9.7.13.8", "2.0", 20, "vote .ballot .b32"),
    Forms("9.7.13.9", "5.1", 30, "vote .sync .all|any|uni .pred", "vote .sync .ballot .b32"),
    Forms("9.7.13.10", "5.1", 70, "match .any|all .sync .b32|b64"),
    Forms("9.7.13.11", "6.2", 30, "activemask .b32"),
    Forms("9.7.13.12", "7.0", 80, "redux .sync .add|min|max .INT32", "redux .sync .and|or|xor .b32"),
    Forms("9.7.13.12", "8.6", 100, "redux .sync .min|max {.abs} {.NaN} .f32"),
    Forms("9.7.13.13", "7.8", 90, "griddepcontrol .launch_dependents|wait"),
    Forms("9.7.13.14", "8.0", 90, "elect .sync"),
    Forms("9.7.13.15", "7.0", 80, f"mbarrier .init|inval {_LOCAL} .b64"),
    Forms(
        "9.7.13.15",
        "9.3",
        90,
        f"mbarrier .init|check_layout .layout::v0|layout::v1 {_LOCAL} .b64",
        "mbarrier .pending_count .layout::v0 .b64",
        *_ordered("mbarrier .test_wait|try_wait {.parity} .phase_type::primary", "acquire|relaxed", _LOCAL),
        *_ordered("mbarrier .test_wait|try_wait .parity .phase_type::conditional", "acquire|relaxed", _LOCAL),
    ),
    Forms(
        "9.7.13.15",
        "9.4",
        "107f",
        *_ordered("mbarrier .arrive|arrive_drop {.expect_tx}", "release|relaxed", _SEVERAL),
        *_ordered("mbarrier .expect_tx|complete_tx", "relaxed", _SEVERAL),
    ),
    Forms("9.7.13.15", "8.0", 90, *_ordered("mbarrier .arrive|arrive_drop .expect_tx", "release|relaxed")),
    Forms("9.7.13.15", "8.0", 90, *_ordered("mbarrier .expect_tx|complete_tx", "relaxed")),
    Forms(
        "9.7.13.15",
        "7.0",
        80,
        *_ordered("mbarrier .arrive|arrive_drop", "release|relaxed"),
        f"mbarrier .arrive|arrive_drop .noComplete {_LOCAL} .b64",
        f"mbarrier .arrive|arrive_drop .noComplete .release .cta {_LOCAL} .b64",
        "mbarrier .pending_count .b64",
        *_ordered("mbarrier .test_wait {.parity}", "acquire|relaxed", _LOCAL),
    ),
    Forms("9.7.13.15", "7.8", 90, *_ordered("mbarrier .try_wait {.parity}", "acquire|relaxed", _LOCAL)),
    Forms(
        "9.7.13",
        "8.6",
        100,
        "clusterlaunchcontrol .try_cancel .async {.shared::cta} .mbarrier::complete_tx::bytes "
        "{.multicast::cluster::all} .b128",
        "clusterlaunchcontrol .query_cancel .is_canceled .pred .b128",
        "clusterlaunchcontrol .query_cancel .get_first_ctaid .v4 .b32 .b128",
        "clusterlaunchcontrol .query_cancel .get_first_ctaid::x|get_first_ctaid::y|get_first_ctaid::z .b32 .b128",
    ),
)
_REST = (
    Forms("9.7.17.1", "7.3", 52, "stacksave .u32|u64"),
    Forms("9.7.17.2", "7.3", 52, "stackrestore .u32|u64"),
    Forms("9.7.17.3", "7.3", 52, "alloca .u32|u64"),
    Forms("9.7.20.1", "1.0", 11, "brkpt"),
    Forms("9.7.20.2", "6.2", 70, "nanosleep .u32"),
    Forms("9.7.20.3", "1.4", 10, "pmevent {.mask}"),
    Forms("9.7.20", "9.5", "107f", "trace .mark"),  # no manual has it yet; ptxas 13.5 does
    Forms("9.7.20.4", "1.0", 10, "trap"),
    Forms("9.7.20.5", "8.0", 90, "setmaxnreg .inc|dec .sync .aligned .u32"),
)

PARALLEL: tuple[Forms, ...] = (*_CONTROL, *_SYNCHRONISE, *MATRIX, *_REST)
"""Every form of the sections above."""
