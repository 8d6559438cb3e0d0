"""Options of the compiler as keywords, for type checkers; `tools/option_types.py` writes this file."""

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Literal, TypedDict

class OptionKeywords(TypedDict, total=False):
    """The rows of the option table; None counts as not given."""

    std: Literal["c++03", "c++11", "c++14", "c++17", "c++20", "c++23"] | None
    define: Mapping[str, str | int | None] | None
    undef: str | PathLike[str] | Sequence[str | PathLike[str]] | None
    include: str | PathLike[str] | Sequence[str | PathLike[str]] | None
    pre_include: str | PathLike[str] | Sequence[str | PathLike[str]] | None
    no_source_include: bool | None
    default_device: bool | None
    host_headers: Literal["stub"] | None
    host_code: Literal["skip"] | None
    dialect: Literal["nvcc"] | None
    restrict: bool | None
    int128: bool | None
    float128: bool | None
    builtin_move_forward: bool | None
    builtin_initializer_list: bool | None
    minimal: bool | None
    enable_tile: bool | None
    simt_only: bool | None
    default_tile: bool | None
    diagnose_implicit_tile_var: bool | None
    tile_preview: Literal["simt"] | None
    fmad: bool | None
    ftz: bool | None
    prec_div: bool | None
    prec_sqrt: bool | None
    use_fast_math: bool | None
    extra_device_vectorization: bool | None
    no_signed_zeros: bool | None
    associative_math: bool | None
    finite_math_only: bool | None
    opt_level: int | None
    ofast_compile: Literal["0", "min", "mid", "max"] | None
    maxrregcount: int | None
    rdc: bool | None
    dlto: bool | None
    gen_opt_lto: bool | None
    extensible_whole_program: bool | None
    split_compile: int | None
    split_compile_extended: int | None
    relocatable: bool | None
    jump_table_density: int | None
    device_stack_protector: bool | None
    discard_value_names: bool | None
    nvvm_latest: bool | None
    ptx_version_target: int | None
    modify_stack_limit: bool | None
    ptxas_options: str | PathLike[str] | Sequence[str | PathLike[str]] | None
    kernels_used: str | PathLike[str] | Sequence[str | PathLike[str]] | None
    variables_used: str | PathLike[str] | Sequence[str | PathLike[str]] | None
    optimize_unused_variables: bool | None
    debug: bool | None
    lineinfo: bool | None
    no_lineinfo_inlined_at: bool | None
    optimize_debug: bool | None
    disable_warnings: bool | None
    diag_suppress: int | Sequence[int] | None
    diag_warn: int | Sequence[int] | None
    diag_error: int | Sequence[int] | None
    display_error_number: bool | None
    warn_reorder: bool | None
    warn_conversion: bool | None
    warning_as_error: Literal["all-warnings", "conversion", "deprecated-declarations", "reorder"] | None
    max_errors: int | None
    brief_diagnostics: bool | None
    optimization_info: Literal["inline"] | None
    verbose: bool | None
    time: bool | None
    time_trace: str | None
    no_cache: bool | None
    random_seed: str | None
    syntax_only: bool | None
    pch: bool | None
    create_pch: str | None
    use_pch: str | None
    pch_dir: str | None
    instantiate_templates_in_pch: bool | None
    pch_messages: bool | None
    pch_verbose: bool | None

class Keywords(OptionKeywords, total=False):
    """The options and ``extra``: arguments that go to the tool as they are."""

    extra: Sequence[str]

class CallKeywords(Keywords, total=False):
    """The options, ``extra``, and the limits of one call (``WorkLimits``)."""

    timeout_s: float | None
    isolate: bool
    memory_mib: int | None
