"""The page of the rules of advice: each in words, with the pairs of kernels that were timed on an H200."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

from cujit.profile.rules import RULES, AdviceRule

__all__ = ["advice_page"]

_ROOT = Path(__file__).parents[1]
_TIMES = _ROOT / "tests/goldens/advice-pairs-h200.json"

_HEAD = """\
# Advice rules

This page explains each rule that `cujit.profile.advice_for` and [`cujit profile`](profile.md#advice) apply.

Each rule has a table with the run times of kernels before and after the fix. We measured the times on an {gpu}
with {threads:,} threads. In the kernels, `T` is `threadIdx.x`, and `I` is the index of the thread in the grid. The
complete kernels are in `benchmarks/advice_pairs.py`. For the estimates that cujit prints with advice, see
[Estimated savings](profile.md#estimated-savings).
"""


def advice_page() -> str:
    """Write the page ``docs/advice.md``."""
    times = json.loads(_TIMES.read_text())
    pairs = {
        (each.rule, each.name): each for each in runpy.run_path(str(_ROOT / "benchmarks/advice_pairs.py"))["PAIRS"]
    }
    head = _HEAD.format(gpu=times["gpu"], threads=times["threads"])
    return head + "".join(_rule(name, rule, pairs[name, rule.example], times["pairs"]) for name, rule in RULES.items())


def _rule(name: str, rule: AdviceRule, pair: Any, times: list[dict[str, Any]]) -> str:
    rows = "".join(
        f"| {row['name']} | {1e3 * row['before_ms']:.3g} | {1e3 * row['after_ms']:.3g} "
        f"| {row['before_ms'] / row['after_ms']:.2f} |\n"
        for row in times
        if row["rule"] == name
    )
    return f"""
## {name}

**What it finds.** {rule.finds}

**Why it matters.** {rule.why}

**Example.** {rule.measured} Before:

```cuda
{pair.before}
```

After:

```cuda
{pair.after}
```

| kernel | before, µs | after, µs | gain |
|---|---|---|---|
{rows}
**Fix.** {rule.fix}

*Source: {rule.source.replace("*", "")}.*
"""
