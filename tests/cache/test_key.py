"""Keys name every input, and two keys tell how they differ."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cujit.cache.key import Key, KeyDifference, Part, differences, make_key
from cujit.errors import OptionError
from raising import raises

TEXT = st.text(max_size=6)
PARTS = st.lists(
    st.builds(Part.text, TEXT, TEXT) | st.builds(Part.content, TEXT, TEXT) | st.builds(Part.content, TEXT, st.binary()),
    max_size=4,
)


@given(PARTS, PARTS, TEXT, TEXT)
def test_two_keys_are_equal_only_if_kind_and_parts_are(a: list[Part], b: list[Part], kind: str, other: str) -> None:
    assert (make_key(kind, a) == make_key(other, b)) is (kind == other and a == b)


def test_key_changes_if_a_letter_moves_to_the_next_part() -> None:
    texts = [("ab", "c"), ("a", "bc"), ("abc", ""), ("", "abc")]
    keys = {make_key("k", [Part.text("x", a), Part.text("x", b)]) for a, b in texts}
    keys |= {make_key("k", [Part.text("xa", "b"), Part.text("x", "c")]), make_key("kx", [Part.text("abc", "")])}
    assert len(keys) == 6


def test_text_and_its_digest_give_different_keys() -> None:
    digest = hashlib.sha256(b"source").hexdigest()
    assert make_key("k", [Part.text("x", digest)]) != make_key("k", [Part.digest("x", digest, 6)])
    assert make_key("k", [Part.digest("x", digest, 6)]) != make_key("k", [Part.digest("x", digest, 7)])


def test_content_and_its_known_digest_are_the_same_part() -> None:
    assert Part.content("x", b"source") == Part.digest("x", hashlib.sha256(b"source").hexdigest(), 6)
    assert Part.content("x", "über") == Part.content("x", "über".encode())


def test_text_that_is_not_unicode_has_its_own_key() -> None:
    assert make_key("k", [Part.text("path", "\udcff")]) != make_key("k", [Part.text("path", "\udcfe")])
    assert Part.content("path", "\udcff") != Part.content("path", "\udcfe")


def test_digest_of_this_schema_is_fixed() -> None:
    key = make_key("nvrtc", [Part.text("name", "axpy.cu"), Part.content("source", "x" * 1000)])
    assert key.digest == "e88857d8d4b900e4b971417d09885c3dcbdcd3aed7d87b39cfccb5565631fca4"
    assert str(key) == key.digest


@pytest.mark.parametrize("digest", ["", "ab" * 31, "AB" * 32, "zz" * 32])
def test_invalid_digest_is_refused(digest: str) -> None:
    with raises(OptionError, "option", "Part.content"):
        Part.digest("x", digest, 1)
    with raises(OptionError, "option", "-1"):
        Part.digest("x", "ab" * 32, -1)


def test_key_returns_its_name_and_values() -> None:
    key = make_key("k", [Part.text("option", "-a"), Part.text("name", "n.cu"), Part.text("option", "-b")])
    assert (key.name, key.values("option"), key.values("none")) == ("n.cu", ("-a", "-b"), ())
    assert Key(key.digest, "other", ()) == key
    assert make_key("k", []).name == ""


def test_differences_name_changed_new_and_missing_inputs() -> None:
    old = [Part.text("arch", "sm_80"), Part.text("name", "n"), Part.text("option", "-a"), Part.text("option", "-b")]
    new = [Part.text("arch", "sm_90"), Part.text("name", "n"), Part.text("option", "-b"), Part.content("header", b"h")]
    found = differences(old, new)
    assert found == (
        KeyDifference("arch", old[0], new[0]),
        KeyDifference("option", old[2], None),
        KeyDifference("header", None, new[3]),
    )
    assert [str(d) for d in found] == [
        "arch: sm_80 -> sm_90",
        "gone option: -a",
        f"new header: {new[3].value[:12]}… (1 bytes)",
    ]


def test_other_order_under_a_label_is_a_difference() -> None:
    a, b = Part.text("option", "-a"), Part.text("option", "-b")
    assert differences([a, b], [b, a]) == (KeyDifference("option", a, b), KeyDifference("option", b, a))


@given(PARTS, PARTS)
def test_equal_parts_have_no_difference(a: list[Part], b: list[Part]) -> None:
    labels = {part.label for part in (*a, *b)}
    same = all([p for p in a if p.label == label] == [p for p in b if p.label == label] for label in labels)
    assert (differences(a, b) == ()) is same
