"""``cujit.values.hashing`` gives the digests of ``hashlib``, and loads OpenSSL only for much data."""

from __future__ import annotations

import hashlib
import random
import sys

import pytest

from cujit.devices.launcher.library import library
from cujit.values import hashing
from cujit.values.imported import find_spec
from processes import printed

PIECES = [(), (b"",), (b"abc",), (b"ab", memoryview(b"c"), bytearray(b"d")), (bytes(300_000), b"x")]


@pytest.mark.parametrize("pieces", PIECES)
@pytest.mark.parametrize("own", [True, False])
def test_digests_match_the_standard_library(
    pieces: tuple[bytes, ...], own: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashing, "imported", lambda _: None)
    monkeypatch.setattr(hashing, "_native", None)
    monkeypatch.setattr(hashing, "_left", 1 << 30)
    if not own:
        monkeypatch.setattr(hashing, "_sha256", None)
    assert hashing.sha256(*pieces).hexdigest() == hashlib.sha256(b"".join(pieces)).hexdigest()


@pytest.mark.parametrize("size", [*range(0, 200, 7), 55, 56, 63, 64, 119, 120, 128, 4097])
def test_native_digests_match_the_standard_library(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    native = library().digest.call
    if native() is None:
        pytest.skip("this processor has no instructions for SHA-256")
    monkeypatch.setattr(hashing, "_native", native)
    data = random.Random(size).randbytes(size)
    cuts = (data[: size // 3], memoryview(data)[size // 3 : size // 2], bytearray(data[size // 2 :]))
    found, expected = hashing.sha256(*cuts), hashlib.sha256(data)
    assert isinstance(found, hashing.Digest)
    assert (found.digest(), found.hexdigest()) == (expected.digest(), expected.hexdigest())


def test_native_digests_reject_nonbuffers() -> None:
    native = library().digest.call
    if native() is not None:
        with pytest.raises(TypeError, match="bytes-like"):
            native(b"", "text")
        with pytest.raises(BufferError):
            native(memoryview(bytes(8))[::2])


def test_openssl_is_not_loaded_with_native_hashing() -> None:
    code = """
        import sys
        from cujit.devices.launcher.library import library
        from cujit.values.hashing import sha256
        native = library().digest.call
        for _ in range(300):
            sha256(bytes(1000))
        print(native() is None or "_hashlib" not in sys.modules)
        sha256(bytes(300_000))
        print("_hashlib" in sys.modules)
        """
    assert printed(code).split() == ["True", "True"]


def test_openssl_is_loaded_only_for_much_data() -> None:
    text = printed(
        """
        import sys
        from cujit.values.hashing import sha256
        for _ in range(100):
            little = sha256(bytes(1000))
        print("_hashlib" in sys.modules, type(little).__module__)
        much = sha256(bytes(100_000))
        print("_hashlib" in sys.modules, type(much).__module__)
        """
    )
    own = "_sha2" if sys.version_info >= (3, 12) else "_sha256"
    assert text.split() == ["False", own, "True", "_hashlib"]


def test_module_is_found_as_by_importlib(monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
        import importlib.util, sys
        from cujit.values.imported import find_spec
        for name in ("llvmlite", "numpy", "sys", "json", "nowhere"):
            found, same = find_spec(name), importlib.util.find_spec(name)
            print((found and (found.name, found.origin)) == (same and (same.name, same.origin)))
        print(repr(find_spec("llvmlite")) != repr(None), "llvmlite" in sys.modules)
        """
    assert printed(code).split() == ["True"] * 6 + ["False"]
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    assert find_spec("llvmlite") is None
