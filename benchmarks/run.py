"""Every benchmark, in one run: ``make bench``."""

from __future__ import annotations

import cache_store
import checks
import closure
import compile_time
import cpu
import emulator_calls
import emulator_launch
import headers
import kept
import launch
import profile_cost
import ranks
import warm_process

import cache


def main() -> None:
    """Print each table as it grows."""
    for benchmark in (
        cpu,
        checks,
        profile_cost,
        compile_time,
        kept,
        launch,
        emulator_calls,
        emulator_launch,
        cache_store,
        closure,
        headers,
        cache,
        ranks,
        warm_process,
    ):
        for line in benchmark.run():
            print(line, flush=True)


if __name__ == "__main__":
    main()
