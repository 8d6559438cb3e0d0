"""What another result comes of is in the key: headers behind macros, and the working directory where it can be seen."""

from __future__ import annotations

from pathlib import Path

import pytest

import cujit
from cujit.toolchain.aliases import Aliases

KERNEL = 'extern "C" __global__ void k(int* p) { *p = VALUE; }\n'


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_header_included_by_a_macro_name_is_in_the_key(tmp_path: Path, depth: int) -> None:
    cache = cujit.Cache(tmp_path / "cache")
    include = tmp_path / "include"
    include.mkdir()
    for k in range(depth):
        (include / f"h{k}.h").write_text(
            f"#define NEXT{k} <h{k + 1}.h>\n#include NEXT{k}\n" if k % 2 else f'#include "h{k + 1}.h"\n'
        )
    source = f"#define FIRST <h0.h>\n#include FIRST\n{KERNEL}"
    for value in (11, 22):
        (include / f"h{depth}.h").write_text(f"#define VALUE {value}\n")
        again = cujit.Cache(tmp_path / "cache")
        for known in (cache, again):
            assert f", {value};" in cujit.compile(source, include=[include], cache=known).text


IN_HEADER = '#include <f.h>\nextern "C" __global__ void k(int* p) { *p = f(*p); }\n'


@pytest.mark.parametrize(
    ("text", "options", "are_named"),
    [
        (KERNEL.replace("VALUE", "1"), {"debug": True}, True),
        (IN_HEADER, {"include": ["include"], "debug": True}, True),
        (IN_HEADER, {"include": ["include"], "lineinfo": True}, True),
        (IN_HEADER, {"include": ["include"], "lineinfo": True}, False),
    ],
    ids=["debug", "debug with a header", "lineinfo with a header", "paths"],
)
def test_working_directory_is_in_the_key_only_if_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, options: dict[str, object], are_named: bool
) -> None:
    if not are_named:
        monkeypatch.setattr(Aliases, "_take", lambda *_: False)
    cache = cujit.Cache(tmp_path / "cache")
    results = []
    for name in ("one", "other"):
        place = tmp_path / name
        (place / "include").mkdir(parents=True)
        (place / "include" / "f.h").write_text("__device__ int f(int x) { return x * x + 3; }\n")
        monkeypatch.chdir(place)
        kept = cujit.compile(text, cache=cache, options=options)
        assert kept.data == cujit.compile(text, cache=False, options=options).data
        results.append(kept.data)
    assert (results[0] == results[1]) is are_named
