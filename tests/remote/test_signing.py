"""Nothing is believed but what a key signed that this machine's file believes, for that scope, key, record and time."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cache.samples import artifact_of, key_of
from cujit.arch import Arch
from cujit.artifact import Artifact, ImageKind
from cujit.cache.cache import Cache
from cujit.cache.key import Key, Part, make_key
from cujit.cache.provenance import Outcome
from cujit.cache.record import decode, encode
from cujit.cache.remote.signing import HEAD_BYTES, Signer, TrustedKeys, keygen
from cujit.cache.remote.tier import fetch, object_name
from cujit.errors import CacheRefusedError, CacheWarning, FileError, FormatError, OptionError, RemoteError
from raising import raises
from remote.serving import Farm, Server, farm_in

_DAY_S = 86400
_MUTANTS = int(os.environ.get("CUJIT_FORGERIES", "4000"))


class Table:
    """Objects in memory."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = files

    def get(self, name: str) -> Generator[bytes, None, None]:
        if name not in self.files:
            raise FileNotFoundError(name)
        for at in range(0, len(self.files[name]), 4096):
            yield self.files[name][at : at + 4096]

    def put(self, name: str, data: bytes, *, replace: bool = False) -> bool:
        raise NotImplementedError

    def after_fork(self) -> None:
        raise NotImplementedError


def fetched(farm: Farm, content: bytes, key: Key | None = None) -> Artifact:
    digest = (key or key_of(0)).digest
    entry = fetch(Table({object_name(digest): content}), TrustedKeys.read(farm.trust), digest).record
    assert entry is not None
    return entry.artifact


def record_of(n: int, *, work: str = "nvrtc") -> bytes:
    return encode(key_of(n, work=work), artifact_of(n), make_ms=1.0, made_s=1)


def signed(signer: Signer, key: Key, record: bytes, **kwargs: Any) -> bytes:
    return signer.head(key.digest, record, **kwargs) + record


def test_signed_record_is_trusted(farm: Farm) -> None:
    assert fetched(farm, farm.content(0)).data == artifact_of(0).data


def test_signature_is_ed25519_over_a_domain_and_all_fields(farm: Farm) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    head, record = farm.content(0)[:HEAD_BYTES], farm.content(0)[HEAD_BYTES:]
    message = b"cujit record v1\0main\0" + bytes.fromhex(key_of(0).digest) + head[64:96] + head[24:32] + head[16:24]
    Ed25519PublicKey.from_public_bytes(farm.signer.public).verify(head[-64:], message)
    assert hashlib.sha256(record).digest() == head[64:96]


def rewritten(content: bytes, at: int, data: bytes) -> bytes:
    return content[:at] + data + content[at + len(data) :]


def forgeries(farm: Farm, other: Farm) -> dict[str, tuple[bytes, str]]:
    """Name what must not be believed, and as what it is refused."""
    key, record = key_of(0), record_of(0)
    good, signer = farm.content(0), farm.signer
    now = time.time()
    parts = make_key("nvrtc", [Part.text("name", "another")])
    false_parts = encode(replace_digest(parts, key.digest), artifact_of(0), make_ms=1.0, made_s=1)
    host = Artifact(ImageKind.OBJECT, b"\x7fELF\x02\x01\x01" + bytes(11) + b"\x3e\0" + bytes(60), Arch.parse("sm_90"))
    native = encode(key, host, make_ms=1.0, made_s=1)
    larger = signed(signer, key, record)
    return {
        "nothing": (b"", "truncated"),
        "a part of a head": (good[:100], "truncated"),
        "a head alone, of a record without end": (
            rewritten(good[:HEAD_BYTES], 24, (1 << 60).to_bytes(8, "little")), "signature"),
        "a claim of 1 GiB": (rewritten(good, 24, (1 << 30).to_bytes(8, "little")), "farm"),
        "a page": (b"<html>" + bytes(1000), "begins"),
        "unsigned": (record, "begins"),
        "another version": (rewritten(good, 8, b"\2"), "begins"),
        "a signature of zeros": (rewritten(good, HEAD_BYTES - 64, bytes(64)), "farm"),
        "an unknown key": (signed(other.signer, key, record), other.signer.id[:16]),
        "an unknown key under the id of ours": (
            rewritten(signed(other.signer, key, record), 32, bytes.fromhex(signer.id)), "farm"),
        "a scope that it may not sign for": (
            signed(replace(signer, scope="pr/7"), key, record), "pr/7"),
        "a scope written over": (
            rewritten(signed(replace(signer, scope="pr/7"), key, record), 96, b"main"), "farm"),
        "expired": (signed(signer, key, record, now_s=now - 366 * _DAY_S), "expired"),
        "expired, and the time written over": (
            rewritten(signed(signer, key, record, now_s=now - 366 * _DAY_S), 16, int(now + 9e6).to_bytes(8, "little")),
            "farm"),
        "the entry of another key": (farm.content(1), "farm"),
        "a head with another record": (rewritten(good, HEAD_BYTES + 700, b"another"), "SHA-256"),
        "a record of another key, signed for this": (signed(signer, key, record_of(1)), "record"),
        "a record of another version": (signed(signer, key, rewritten(record, 8, b"\7")), "at byte 8"),
        "a damaged record, signed": (signed(signer, key, rewritten(record, 500, b"\xff\xfe\xfd")), "SHA-256"),
        "parts that do not give the key": (signed(signer, key, false_parts), "parts"),
        "machine code of a host": (signed(signer, key, native), "object"),
        "more than was signed": (larger + b"x", "longer"),
        "no record": (signed(signer, key, b"x" * 200), "record"),
    }  # fmt: skip


def replace_digest(key: Key, digest: str) -> Key:
    return Key(digest, key.kind, key.parts)


def test_forged_swapped_or_old_record_is_refused_with_a_reason(farm: Farm, tmp_path: Path) -> None:
    other = farm_in(tmp_path, "other")
    for name, (content, why) in forgeries(farm, other).items():
        with raises(FormatError, "format", why):
            pytest.fail(f"believed: {name}, {fetched(farm, content)}")


def test_signed_module_of_a_version_is_refused(farm: Farm) -> None:
    key = key_of(0, work="module")
    with raises(FormatError, "format", "fatbin"):
        fetched(farm, signed(farm.signer, key, record_of(0, work="module")), key)


def test_truncation_after_verification_is_not_forgery(farm: Farm) -> None:
    with raises(RemoteError, "remote", "100"):
        fetched(farm, farm.content(0)[: HEAD_BYTES + 100])


def test_download_time_limit_grows_with_received_bytes(farm: Farm) -> None:
    content, came = farm.content(0, size=10_000), list[int]()
    table = Table({object_name(key_of(0).digest): content})
    fetch(table, TrustedKeys.read(farm.trust), key_of(0).digest, may_go_on=came.append)
    assert came == [4096, 8192, len(content)]
    forged = Table({object_name(key_of(0).digest): b"x" * 100_000})
    with pytest.raises(FormatError):
        fetch(forged, TrustedKeys.read(farm.trust), key_of(0).digest, may_go_on=lambda _: pytest.fail("it goes on"))


@pytest.mark.parametrize(
    "row", [{"revoked": True}, {"until": "2026-01-31"}, {"scopes": []}, {"scopes": ["mai", "main2"]}]
)
def test_revoked_expired_or_wrongly_scoped_key_is_not_trusted(row: dict[str, object], farm: Farm) -> None:
    write(farm.trust, **row)
    with raises(FormatError, "format", "farm"):
        fetched(farm, farm.content(0))


def test_key_is_trusted_through_its_last_day_in_every_time_zone(farm: Farm) -> None:
    write(farm.trust, until="2026-01-31")
    keys = TrustedKeys.read(farm.trust)
    end = 1769904000  # 2026-02-01 00:00 UTC
    head = farm.signer.head(key_of(0).digest, record_of(0), now_s=end - _DAY_S)
    assert keys.prove(head, key_of(0).digest, now_s=end - 1).signer == farm.signer.id
    with raises(FormatError, "format"):
        keys.prove(head, key_of(0).digest, now_s=end + 1)


def test_clock_off_by_a_day_affects_only_the_last_day(farm: Farm) -> None:
    keys, signer = TrustedKeys.read(farm.trust), replace(farm.signer, valid_days=2)
    now = 1_800_000_000
    head = signer.head(key_of(0).digest, record_of(0), now_s=now)
    for there_s in (now - _DAY_S, now + _DAY_S, now + 2 * _DAY_S):
        assert keys.prove(head, key_of(0).digest, now_s=there_s).signer == farm.signer.id
    with raises(FormatError, "format", "expired"):
        keys.prove(head, key_of(0).digest, now_s=now + 3 * _DAY_S)


def write(path: Path, **row: object) -> None:
    listed = json.loads(path.read_text())
    listed["keys"][0].update(row)
    path.write_text(json.dumps(listed))


def test_every_change_of_a_signed_entry_is_refused(farm: Farm) -> None:
    """Bits, bytes, runs, parts of others and lengths; ``CUJIT_FORGERIES`` says how many (``make store``: a million)."""
    keys, digest = TrustedKeys.read(farm.trust), key_of(0).digest
    seed = random.SystemRandom().randrange(1 << 32) if _MUTANTS > 10_000 else 16
    draw = random.Random(seed)
    entries = [farm.content(n) for n in range(4)]
    good = entries[0]
    for bit in range(8 * HEAD_BYTES):
        refuse(keys, digest, rewritten(good, bit // 8, bytes([good[bit // 8] ^ 1 << bit % 8])), f"bit {bit}")
    for number in range(_MUTANTS):
        mutant = mutated(draw, good, draw.choice(entries))
        if mutant != good:
            refuse(keys, digest, mutant, f"seed {seed}, number {number}")


def mutated(draw: random.Random, good: bytes, other: bytes) -> bytes:
    """Change an entry; half of the changes are in its head."""
    at = draw.randrange(HEAD_BYTES if draw.random() < 0.5 else len(good))
    size = draw.choice((1, 1, 1, 4, 8, 32, 64, 300))
    how = draw.randrange(6)
    if how == 0:
        return rewritten(good, at, bytes([good[at] ^ 1 << draw.randrange(8)]))
    if how == 1:
        return rewritten(good, at, draw.randbytes(min(size, len(good) - at)))
    if how == 2:
        return rewritten(good, at, other[at : at + size])
    if how == 3:
        return good[:at] + good[at + size :]
    if how == 4:
        return good[:at] + draw.randbytes(size) + good[at:]
    return good[:at] + other[at:]


def refuse(keys: TrustedKeys, digest: str, content: bytes, what: str) -> None:
    try:
        fetch(Table({object_name(digest): content}), keys, digest)
    except (FormatError, RemoteError):
        return
    pytest.fail(f"believed: {what}")


# In the cache


def test_refused_record_is_rebuilt_counted_and_reported_once(
    server: Server, farm: Farm, cache_of: Callable[..., Cache]
) -> None:
    server.files |= farm.files(*range(3))
    for n in range(3):
        name = object_name(key_of(n).digest)
        server.files[name] = rewritten(server.files[name], HEAD_BYTES - 9, b"forged")
    cache = cache_of()
    with pytest.warns(
        CacheWarning, match=r"cujit refuses an entry of the shared cache .*: the signature names farm, but"
    ) as said:
        assert [got(cache, n) for n in range(4)] == 4 * [Outcome.MADE]
    assert len(said) == 1
    assert (cache.counters.remote_refused, cache.counters.remote_failures, cache.counters.misses) == (3, 0, 4)
    assert len(server.asked) == 4  # with the third it is left alone


def got(cache: Cache, n: int) -> Outcome:
    return cache.get_or_make(key_of(n), lambda: artifact_of(n))[1].outcome


def entries_of(root: Path) -> set[str]:
    return {path.parent.name + path.name for path in (root / "e").glob("*/*")}


@pytest.mark.parametrize("how", ["revoked", "taken out"])
@pytest.mark.parametrize("has_store", [True, False])
def test_entries_of_a_distrusted_signer_are_removed(
    how: str, has_store: bool, server: Server, farm: Farm, cache_of: Callable[..., Cache], tmp_path: Path
) -> None:
    other = farm_in(tmp_path, "other")
    both = {"keys": [json.loads(one.trust.read_text())["keys"][0] for one in (farm, other)]}
    farm.trust.write_text(json.dumps(both))
    server.files |= {**farm.files(0), object_name(key_of(1).digest): other.content(1)}
    cache = cache_of()
    assert [got(cache, n) for n in range(3)] == [Outcome.REMOTE, Outcome.REMOTE, Outcome.MADE]
    root, digests = tmp_path / "root", [key_of(n).digest for n in range(3)]
    assert entries_of(root) == set(digests)
    assert sorted(path.name for path in (root / "signers").iterdir()) == sorted([farm.signer.id, other.signer.id])
    if how == "revoked":
        both["keys"][1]["revoked"] = True
    else:
        del both["keys"][1]
    farm.trust.write_text(json.dumps(both))
    later = cache_of() if has_store else Cache(root, trust=farm.trust)
    assert later.find(key_of(1)) is None
    assert entries_of(root) == {digests[0], digests[2]}
    assert later.find(key_of(0)) is not None
    assert later.find(key_of(2)) is not None


def test_later_entries_of_another_process_are_removed_too(
    server: Server, farm: Farm, cache_of: Callable[..., Cache], tmp_path: Path
) -> None:
    other = farm_in(tmp_path, "other")
    server.files |= {**farm.files(0), object_name(key_of(1).digest): other.content(1)}
    assert got(cache_of(), 0) is Outcome.REMOTE
    assert cache_of().find(key_of(0)) is not None  # and all is as it should be
    believing = cache_of(trust=other.trust)
    assert believing.find(key_of(0)) is None  # of whom that one believes nothing
    assert got(believing, 1) is Outcome.REMOTE
    assert entries_of(tmp_path / "root") == {key_of(1).digest}
    assert cache_of().find(key_of(1)) is None
    assert entries_of(tmp_path / "root") == set()


def test_unchanged_keys_cause_no_scan(
    server: Server, farm: Farm, cache_of: Callable[..., Cache], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files |= farm.files(0)
    got(cache_of(), 0)
    assert cache_of().find(key_of(0)) is not None
    monkeypatch.setattr(TrustedKeys, "read", lambda _: pytest.fail("it was read"))
    assert cache_of().find(key_of(0)) is not None


@pytest.mark.parametrize(("text", "why"), [(None, "No such file"), ("{", "doesn't contain a list of keys")])
def test_missing_or_invalid_key_file_evicts_nothing(
    text: str | None, why: str, server: Server, farm: Farm, cache_of: Callable[..., Cache], tmp_path: Path
) -> None:
    server.files |= farm.files(0)
    got(cache_of(), 0)
    farm.trust.unlink()
    if text is not None:
        farm.trust.write_text(text)
    cache = Cache(tmp_path / "root", trust=farm.trust)
    with pytest.warns(CacheWarning, match=why):
        assert all(cache.find(key_of(0)) is not None for _ in range(3))
    assert cache.counters.failures == 1  # for it is looked for once


def test_entries_not_in_the_ledger_remain(
    server: Server, farm: Farm, cache_of: Callable[..., Cache], tmp_path: Path
) -> None:
    server.files |= farm.files(0)
    got(cache_of(), 0)
    strange = tmp_path / "root" / "signers" / "notes.txt"
    strange.write_text(key_of(0).digest)
    assert cache_of().find(key_of(0)) is not None
    assert strange.exists()
    ledger = strange.with_name(farm.signer.id)
    ledger.chmod(0o666)
    write(farm.trust, revoked=True)
    with pytest.warns(CacheWarning, match="writable by everyone"):
        assert cache_of().find(key_of(0)) is not None


def test_truncated_ledger_line_affects_no_other(
    server: Server, farm: Farm, cache_of: Callable[..., Cache], tmp_path: Path
) -> None:
    server.files |= farm.files(0, 1)
    got(cache_of(), 0)
    with (tmp_path / "root" / "signers" / farm.signer.id).open("ab") as file:
        file.write(b"\n0123")
    got(cache_of(), 1)
    write(farm.trust, revoked=True)
    assert cache_of().find(key_of(0)) is None
    assert entries_of(tmp_path / "root") == set()


# Files of keys


def test_private_key_file_is_private_and_never_overwritten(tmp_path: Path) -> None:
    private = tmp_path / "farm.key"
    farm_in(tmp_path)
    assert private.stat().st_mode & 0o777 == 0o600
    before = private.read_bytes()
    with raises(FileError, "file", "File exists"):
        keygen(private, name="x", scope="main")
    assert private.read_bytes() == before
    private.chmod(0o640)
    with raises(CacheRefusedError, "cache-refused", "farm.key"):
        Signer.read(private, scope="main")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not there")
def test_keys_are_interchangeable_with_openssl(farm: Farm, tmp_path: Path) -> None:
    private = tmp_path / "farm.key"
    der = subprocess.run(
        ["openssl", "pkey", "-in", private, "-pubout", "-outform", "DER"], capture_output=True, check=True
    ).stdout
    assert der[-32:] == farm.signer.public
    theirs = tmp_path / "theirs.key"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", theirs], check=True)
    theirs.chmod(0o600)
    assert len(Signer.read(theirs, scope="main").public) == 32


@pytest.mark.parametrize("text", ["", "x", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "\0\xff"])
def test_invalid_private_key_file_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "k").write_text(text)
    (tmp_path / "k").chmod(0o600)
    with raises(FormatError, "format", "private"):
        Signer.read(tmp_path / "k", scope="main")


@pytest.mark.parametrize("scope", ["", "Main", "a b", "/a", "a\0", "x" * 65, 7, None])
def test_invalid_scope_is_refused(scope: str, farm: Farm, tmp_path: Path) -> None:
    with raises(OptionError, "option", "release/2"):
        Signer.read(tmp_path / "farm.key", scope=scope)
    write(farm.trust, scopes=[scope])
    with raises(FormatError, "format", "release/2"):
        TrustedKeys.read(farm.trust)


@pytest.mark.parametrize("days", [0, -1, 1.5, True, 10**9])
def test_invalid_days_are_refused(days: int, farm: Farm, tmp_path: Path) -> None:
    assert farm.signer.valid_days == 365
    assert {Signer.read(tmp_path / "farm.key", scope="main", valid_days=n).valid_days for n in (1, 36_500)} == {
        1,
        36_500,
    }
    with raises(OptionError, "option", "days"):
        Signer.read(tmp_path / "farm.key", scope="main", valid_days=days)


@pytest.mark.parametrize(
    "row",
    [
        {"revokd": True},
        {"revoked": "yes"},
        {"scopes": "main"},
        {"ed25519": "AAAA"},
        {"ed25519": "not base64!"},
        {"ed25519": 7},
        {"until": "tomorrow"},
        {"until": 7},
    ],
)
def test_row_with_an_unknown_word_trusts_no_key(row: dict[str, object], farm: Farm) -> None:
    write(farm.trust, **row)
    with raises(FormatError, "format", "keys"):
        TrustedKeys.read(farm.trust)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"keys": 1}', '{"keys": [1]}', "[" * 100_000, '{"keys": [{}]}', "\udcff"]
)
def test_file_without_keys_trusts_no_key(text: str, farm: Farm) -> None:
    farm.trust.write_bytes(text.encode("utf-8", "surrogateescape"))
    with raises(FormatError, "format", "keys"):
        TrustedKeys.read(farm.trust)


def test_duplicate_key_trusts_no_key(farm: Farm) -> None:
    rows = json.loads(farm.trust.read_text())["keys"]
    farm.trust.write_text(json.dumps({"keys": [{**rows[0], "revoked": True}, *rows]}))
    with raises(FormatError, "format", "twice"):
        TrustedKeys.read(farm.trust)


def test_key_file_writable_by_others_is_refused(farm: Farm, tmp_path: Path) -> None:
    link = tmp_path / "link.json"
    link.symlink_to(farm.trust)
    assert TrustedKeys.read(link).keys
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    inside = open_to_all / "keys.json"
    inside.write_bytes(farm.trust.read_bytes())
    link.unlink()
    link.symlink_to(inside)
    for path in (inside, link):
        with raises(CacheRefusedError, "cache-refused", "everyone"):
            TrustedKeys.read(path)
    farm.trust.chmod(0o622)
    with raises(CacheRefusedError, "cache-refused", "writable"):
        TrustedKeys.read(farm.trust)
    with raises(FileError, "file", "No such file or directory"):
        TrustedKeys.read(tmp_path / "gone")


def test_file_printed_by_keygen_is_readable(farm: Farm) -> None:
    (row,) = json.loads(farm.trust.read_text())["keys"]
    assert base64.b64decode(row["ed25519"]) == farm.signer.public
    assert set(TrustedKeys.read(farm.trust).keys) == {farm.signer.id}
    assert decode(farm.content(0)[HEAD_BYTES:], key_of(0).digest).artifact == artifact_of(0)
