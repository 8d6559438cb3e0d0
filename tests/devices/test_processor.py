"""What machine code is made for: LLVM is asked once a machine, and again if anything that decides it changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cujit.cache.process import default_cache
from cujit.devices import jit
from processes import printed


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Count how often LLVM is asked, with a cache of this test's own."""
    jit.processor()  # the answer of this process, to compare with
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path))
    asked: list[str] = []
    ask = jit._processor

    def counted() -> jit.Processor:
        asked.append("LLVM")
        return ask()

    monkeypatch.setattr(jit, "_processor", counted)
    yield asked
    default_cache().forget()


def test_llvm_is_queried_about_the_processor_once(asked: list[str]) -> None:
    first, second = jit.processor.__wrapped__(), jit.processor.__wrapped__()
    assert first == second == jit.processor()
    assert asked == ["LLVM"]


@pytest.mark.parametrize("what", [b"", b"x86_64", b"a\nb\nc\nd\ne", b"\xff\n" * 9])
def test_damaged_hint_is_computed_again(asked: list[str], what: bytes) -> None:
    name, hints = jit._hint_of_processor(), default_cache().hints
    assert hints is not None
    hints.put(name, what)
    assert jit.processor.__wrapped__() == jit.processor()
    assert asked == ["LLVM"]
    assert jit.processor.__wrapped__() == jit.processor()
    assert asked == ["LLVM"]


def test_llvm_is_queried_if_the_hint_has_no_name(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "find_spec", lambda _name: None)
    assert jit._hint_of_processor() == ""
    for _ in range(2):
        assert jit.processor.__wrapped__() == jit.processor()
    assert len(asked) == 2


def test_other_process_finds_the_same() -> None:
    text = "from cujit.devices.jit import processor, _hint_of_processor as hint; print(*processor(), hint(), sep='|')"
    assert printed(text).strip() == "|".join((*jit.processor(), jit._hint_of_processor()))
