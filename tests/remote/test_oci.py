"""Packs in a registry of containers: Debian's ``docker-registry``, read back by skopeo, and tampered with."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import socket
import subprocess
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import cujit
from cache.samples import artifact_of, key_of
from cujit.cache.cache import Cache
from cujit.cache.pack import open_verified, write_pack
from cujit.cache.remote.signing import Signer
from cujit.cache.settings import CacheSettings
from cujit.errors import (
    CacheRefusedError,
    CacheWarning,
    FileError,
    FormatError,
    MissingError,
    OptionError,
    RemoteError,
)
from cujit.remote import oci as module
from cujit.remote import pull_pack, push_pack
from pages import shell
from raising import raises
from remote.registries import Registry, registry
from remote.serving import Farm, farm_in

__all__ = ["registry"]


@pytest.fixture
def farm(tmp_path: Path) -> Farm:
    return farm_in(tmp_path)


def packed(path: Path, *numbers: int) -> Path:
    cache = Cache(path.with_suffix(".cache"))
    for n in numbers:
        cache.keep(key_of(n), artifact_of(n))
    write_pack(path, cache.stores)
    return path


def _without_signers(path: Path) -> bytes:
    """Return a pack as it was pushed: the head of a pulled one also names up to three keys."""
    data = path.read_bytes()
    return data[:72] + bytes(96) + data[168:]


def _has(pack: Path, n: int, trust: Path | None) -> bool:
    """Return whether a process with these variables finds a kernel in a pack."""
    variables = {"CUJIT_CACHE_ROOTS": str(pack), **({"CUJIT_TRUST": str(trust)} if trust else {})}
    cache = Cache.of(CacheSettings.from_environment(variables))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CacheWarning)
        return cache.find(key_of(n), is_read=True) is not None


def test_pack_is_pulled_and_answers(registry: Registry, farm: Farm, tmp_path: Path) -> None:
    pack = packed(tmp_path / "kernels.pack", 1, 2)
    pushed = push_pack(f"{registry.url}:v1", pack, farm.signer)
    pulled = pull_pack(pushed.reference, tmp_path / "here.pack", farm.trust)
    assert (_without_signers(pulled.path), pulled.pack_bytes) == (pack.read_bytes(), pushed.pack_bytes)
    assert pulled.signer == "farm"
    found = Cache(None, read_only=[pulled.path]).find(key_of(2), is_read=True)
    assert found is not None
    assert found[0].data == artifact_of(2).data
    assert push_pack(f"{registry.url}:v1", pack, farm.signer).pack_bytes == pushed.pack_bytes


def test_skopeo_reads_pushed_packs(registry: Registry, farm: Farm, tmp_path: Path) -> None:
    if shutil.which("skopeo") is None:
        pytest.skip("skopeo is not installed")
    pack = packed(tmp_path / "kernels.pack", 1)
    push_pack(f"{registry.url}:skopeo", pack, farm.signer)
    source = f"docker://127.0.0.1:{registry.port}/team/kernels:skopeo"
    copied = tmp_path / "copied"
    subprocess.run(
        ["skopeo", "--insecure-policy", "copy", "--src-tls-verify=false", source, f"dir:{copied}"], check=True
    )
    manifest = json.loads((copied / "manifest.json").read_bytes())
    layer, _ = manifest["layers"]
    assert layer["annotations"] == {"org.opencontainers.image.title": "kernels.pack"}
    assert (copied / layer["digest"].partition(":")[2]).read_bytes() == pack.read_bytes()
    assert json.loads((copied / manifest["config"]["digest"].partition(":")[2]).read_bytes())["records"] == 1


Tamper = Callable[[Registry, dict[str, Any]], None]


def _flip(registry: Registry, manifest: dict[str, Any]) -> None:
    path = registry.blob(manifest["layers"][0]["digest"])
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def _truncate(registry: Registry, manifest: dict[str, Any]) -> None:
    path = registry.blob(manifest["layers"][0]["digest"])
    os.truncate(path, path.stat().st_size - 8)


def _lengthen(registry: Registry, manifest: dict[str, Any]) -> None:
    with registry.blob(manifest["layers"][0]["digest"]).open("ab") as file:
        file.write(b"more")


@pytest.mark.parametrize("tamper", [_flip, _truncate, _lengthen])
def test_unsigned_layer_is_refused(tamper: Tamper, registry: Registry, farm: Farm, tmp_path: Path) -> None:
    pack = packed(tmp_path / "kernels.pack", 3, time.time_ns())
    push_pack(f"{registry.url}:bad", pack, farm.signer)
    tamper(registry, json.loads(registry.manifest("bad")))
    output = tmp_path / "here.pack"
    output.write_bytes(b"what was there")
    os.utime(output, (0, 0))
    with pytest.raises((FormatError, RemoteError)):
        pull_pack(f"{registry.url}:bad", output, farm.trust)
    assert output.read_bytes() == b"what was there"


def _signature(manifest: dict[str, Any], **changes: object) -> None:
    declared = {**json.loads(manifest["annotations"][module.SIGNATURE]), **changes}
    manifest["annotations"][module.SIGNATURE] = json.dumps(declared)


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest.pop("annotations"),
        lambda manifest: manifest["annotations"].update({module.SIGNATURE: "{}"}),
        lambda manifest: manifest["annotations"].update({module.SIGNATURE: "[" * 100_000}),
        lambda manifest: _signature(manifest, scope="release"),
        lambda manifest: _signature(manifest, scope="ü"),
        lambda manifest: _signature(manifest, signer="0" * 64),
        lambda manifest: _signature(manifest, signed_s=2**40),
        lambda manifest: _signature(manifest, signed_s=-1),
        lambda manifest: _signature(manifest, not_after_s=2**40),
        lambda manifest: _signature(manifest, not_after_s=1),
        lambda manifest: _signature(manifest, ed25519="AAAA"),
        lambda manifest: manifest["layers"].append(manifest["layers"][0]),
        lambda manifest: manifest["layers"][0].update(size=manifest["layers"][0]["size"] - 1),
        lambda manifest: manifest["layers"][0].update(mediaType="application/octet-stream"),
        lambda manifest: manifest["layers"][0].update(digest=manifest["config"]["digest"]),
    ],
)
def test_unsigned_manifest_is_refused(
    change: Callable[[dict[str, Any]], None], registry: Registry, farm: Farm, tmp_path: Path
) -> None:
    push_pack(f"{registry.url}:signed", packed(tmp_path / "kernels.pack", 4), farm.signer)
    manifest = json.loads(registry.manifest("signed"))
    change(manifest)
    registry.manifest("changed", json.dumps(manifest).encode())
    with raises(FormatError, "format"):
        pull_pack(f"{registry.url}:changed", tmp_path / "here.pack", farm.trust)
    assert not (tmp_path / "here.pack").exists()


def _envelope(registry: Registry, tag: str) -> dict[str, Any]:
    attested = json.loads(registry.manifest(tag))["layers"][1]
    envelope: dict[str, Any] = json.loads(registry.blob(attested["digest"]).read_bytes())
    return envelope


def _changed(content: str, **changes: object) -> str:
    return base64.b64encode(json.dumps({**json.loads(base64.b64decode(content)), **changes}).encode()).decode()


@pytest.mark.parametrize(
    "change",
    [
        lambda envelope: envelope.update(payload=_changed(envelope["payload"], predicate={})),
        lambda envelope: envelope.update(payload=_changed(envelope["payload"], subject=[])),
        lambda envelope: envelope.update(payload="AAAA"),
        lambda envelope: envelope.update(payloadType="text/plain"),
        lambda envelope: envelope.update(signatures=[]),
        lambda envelope: envelope["signatures"][0].update(sig=base64.b64encode(bytes(64)).decode()),
        lambda envelope: envelope["signatures"][0].update(sig="AAAA"),
        lambda envelope: envelope.pop("payload"),
    ],
)
def test_changed_attestation_is_refused(
    change: Callable[[dict[str, Any]], None], registry: Registry, farm: Farm, tmp_path: Path
) -> None:
    push_pack(f"{registry.url}:attested", packed(tmp_path / "kernels.pack", 15), farm.signer)
    manifest, envelope = json.loads(registry.manifest("attested")), _envelope(registry, "attested")
    change(envelope)
    manifest["layers"][1] = registry.upload(json.dumps(envelope).encode())
    registry.manifest("attested", json.dumps(manifest).encode())
    with raises(FormatError, "format", "attestation"):
        pull_pack(f"{registry.url}:attested", tmp_path / "here.pack", farm.trust)
    assert not (tmp_path / "here.pack").exists()


def _resigned(envelope: dict[str, Any], signer: Signer, **changes: object) -> bytes:
    """Change a statement, and sign it correctly."""
    payload = base64.b64decode(_changed(envelope["payload"], **changes))
    kind = envelope["payloadType"].encode()
    signed = signer.sign(b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload))
    signatures = [{"keyid": signer.id, "sig": base64.b64encode(signed).decode()}]
    return json.dumps({**envelope, "payload": base64.b64encode(payload).decode(), "signatures": signatures}).encode()


def test_missing_or_foreign_attestation_is_refused(registry: Registry, farm: Farm, tmp_path: Path) -> None:
    pack = packed(tmp_path / "kernels.pack", 16)
    push_pack(f"{registry.url}:other", packed(tmp_path / "other.pack", 17), farm.signer)
    push_pack(f"{registry.url}:foreign", pack, farm.signer)
    manifest, envelope = json.loads(registry.manifest("foreign")), _envelope(registry, "foreign")
    mine, damaged = manifest["layers"][1], b"[" * 100_000
    stranger = farm_in(tmp_path, "stranger").signer
    kinds = {"_type": "https://in-toto.io/Statement/v0.1"}, {"predicateType": "https://slsa.dev/provenance/v1"}
    others = [
        json.loads(registry.manifest("other"))["layers"][1],  # of another pack, signed by the same key
        *(registry.upload(_resigned(envelope, farm.signer, **kind)) for kind in kinds),
        registry.upload(_resigned(envelope, stranger)),
        registry.upload(damaged),
        {**mine, "mediaType": "application/json"},
        {**mine, "size": 0},
        {**mine, "size": 1 << 40},
        {**mine, "digest": manifest["layers"][0]["digest"], "size": manifest["layers"][0]["size"]},
    ]
    for layers in ([manifest["layers"][0]], *([manifest["layers"][0], other] for other in others)):
        registry.manifest("foreign", json.dumps({**manifest, "layers": layers}).encode())
        with raises(FormatError, "format"):
            pull_pack(f"{registry.url}:foreign", tmp_path / "here.pack", farm.trust)
    assert not (tmp_path / "here.pack").exists()
    registry.manifest("foreign", json.dumps({**manifest, "layers": [manifest["layers"][0], mine]}).encode())
    assert pull_pack(f"{registry.url}:foreign", tmp_path / "here.pack", farm.trust).signer == "farm"


def test_bill_of_materials_lists_images_compilers_and_headers(registry: Registry, farm: Farm, tmp_path: Path) -> None:
    (tmp_path / "scale.h").write_text("#define SCALE 3\n")
    cache = Cache(tmp_path / "cache")
    code = '#include "scale.h"\n#include <cuda_fp16.h>\nextern "C" __global__ void k(int *x) { *x = SCALE; }'
    image = cujit.compile(code, arch="sm_90", to="ptx", include=[tmp_path], cache=cache)
    write_pack(tmp_path / "kernels.pack", cache.stores)
    push_pack(f"{registry.url}:bill", tmp_path / "kernels.pack", farm.signer)
    bom = tmp_path / "bom.json"
    shell(f"cujit pack pull {registry.url}:bill -o {tmp_path / 'here.pack'} --trust {farm.trust} --bom {bom}")
    bill = json.loads(bom.read_text())
    digest = hashlib.sha256((tmp_path / "kernels.pack").read_bytes()).hexdigest()
    assert bill["metadata"]["component"]["hashes"] == [{"alg": "SHA-256", "content": digest}]
    hashes = {one["name"]: one["hashes"][0]["content"] for one in bill["components"] if "hashes" in one}
    assert hashes[image.name] == hashlib.sha256(image.data).hexdigest()
    header = hashlib.sha256((tmp_path / "scale.h").read_bytes()).hexdigest()
    assert header in hashes.values()
    assert any(name.startswith("toolkit") for name in hashes)
    assert {(one["name"], one["version"]) for one in bill["components"] if "version" in one} == {
        tuple(image.tool.rsplit(" ", 1))
    }
    (entry,) = open_verified(tmp_path / "kernels.pack").entries()
    (made,) = (one for one in bill["components"] if one["bom-ref"] == f"key:{entry.digest}")
    properties = {one["name"]: one["value"] for one in made["properties"]}
    assert (properties["cujit:kernel"], properties["cujit:kind"]) == ("k", "ptx")
    refs = {one["bom-ref"] for one in bill["components"]}
    depended = {one["ref"]: set(one["dependsOn"]) for one in bill["dependencies"]}
    assert depended[made["bom-ref"]] == refs - {made["bom-ref"]}
    assert depended["pack"] == {made["bom-ref"]}


def test_replayed_manifest_is_refused(registry: Registry, farm: Farm, tmp_path: Path) -> None:
    output = tmp_path / "here.pack"
    pushed = push_pack(f"{registry.url}:one", packed(tmp_path / "one.pack", 5), farm.signer)
    old = registry.manifest("one")
    registry.manifest("two", old)
    with raises(FormatError, "format", "two"):
        pull_pack(f"{registry.url}:two", output, farm.trust)
    time.sleep(2.1)  # signatures say the second
    push_pack(f"{registry.url}:one", packed(tmp_path / "other.pack", 6), farm.signer)
    pull_pack(f"{registry.url}:one", output, farm.trust)
    newest = output.read_bytes()
    registry.manifest("one", old)
    with raises(CacheRefusedError, "cache-refused", "one"):
        pull_pack(f"{registry.url}:one", output, farm.trust)
    assert output.read_bytes() == newest
    output.unlink()
    assert pull_pack(pushed.reference, output, farm.trust).pack_bytes == pushed.pack_bytes
    wrong = f"{registry.url}:one@sha256:{'0' * 64}"
    with pytest.raises((FormatError, RemoteError)):
        pull_pack(wrong, output, farm.trust)


def test_revoked_key_and_other_scope_are_refused(registry: Registry, farm: Farm, tmp_path: Path) -> None:
    pack, output = packed(tmp_path / "kernels.pack", 7), tmp_path / "here.pack"
    push_pack(f"{registry.url}:key", pack, farm.signer)
    with raises(FormatError, "format", "cujit trusts only"):
        pull_pack(f"{registry.url}:key", output, farm_in(tmp_path, "stranger").trust)
    _revoke(farm.trust)
    with raises(FormatError, "format", "revoked"):
        pull_pack(f"{registry.url}:key", output, farm.trust)
    keys = json.loads(farm.trust.read_text())
    keys["keys"][0].update(revoked=False, scopes=["release"])
    farm.trust.write_text(json.dumps(keys))
    with raises(FormatError, "format", "main"):
        pull_pack(f"{registry.url}:key", output, farm.trust)
    assert not output.exists()


def _revoke(trust: Path) -> None:
    keys = json.loads(trust.read_text())
    keys["keys"][0]["revoked"] = True
    trust.write_text(json.dumps(keys))


def test_pulled_pack_is_unused_after_its_key_is_revoked(registry: Registry, farm: Farm, tmp_path: Path) -> None:
    here = tmp_path / "here.pack"
    push_pack(f"{registry.url}:later", packed(tmp_path / "kernels.pack", 12), farm.signer)
    pull_pack(f"{registry.url}:later", here, farm.trust)
    merged = tmp_path / "merged.pack"
    shell(f"cujit pack merge {packed(tmp_path / 'own.pack', 13)} {here} -o {merged}")
    push_pack(f"{registry.url}:again", merged, (other := farm_in(tmp_path, "other")).signer)
    pull_pack(f"{registry.url}:again", tmp_path / "again.pack", other.trust)
    for pack in (here, merged):
        assert _has(pack, 12, farm.trust)
        assert not _has(pack, 12, other.trust)  # which lists another key
        assert not _has(pack, 12, tmp_path / "no such file")
        assert _has(pack, 12, None)
    assert not _has(tmp_path / "again.pack", 12, other.trust)  # for farm made what other signed
    _revoke(farm.trust)
    for pack in (here, merged):
        assert not _has(pack, 12, farm.trust)
    with pytest.warns(CacheWarning, match=farm.signer.id[:12]):
        Cache(None, read_only=[here], trust=farm.trust).find(key_of(12))
    assert _has(tmp_path / "own.pack", 13, farm.trust)


def test_pack_names_three_signers_at_most(registry: Registry, tmp_path: Path) -> None:
    pack = packed(tmp_path / "kernels.pack", 14)
    for n in range(3):
        one = farm_in(tmp_path, f"farm{n}")
        push_pack(f"{registry.url}:three", pack, one.signer)
        pack.unlink()  # which is newer than the signature
        pull_pack(f"{registry.url}:three", pack, one.trust)
    assert len(open_verified(pack).signers()) == 3
    push_pack(f"{registry.url}:three", pack, one.signer)
    with raises(FormatError, "format", "4 keys"):
        push_pack(f"{registry.url}:four", pack, farm_in(tmp_path, "farm3").signer)


def test_damaged_pack_is_not_pushed(registry: Registry, farm: Farm, tmp_path: Path) -> None:
    pack = packed(tmp_path / "kernels.pack", 8)
    data = bytearray(pack.read_bytes())
    data[-1] ^= 1
    pack.write_bytes(data)
    with pytest.raises((FormatError, CacheRefusedError)):
        push_pack(f"{registry.url}:damaged", pack, farm.signer)
    with raises(RemoteError, "remote", "404"):
        pull_pack(f"{registry.url}:damaged", tmp_path / "here.pack", farm.trust)


def test_command_pushes_and_pulls(
    registry: Registry, farm: Farm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUJIT_TRUST", str(farm.trust))
    pack, here = packed(tmp_path / "kernels.pack", 9), tmp_path / "here.pack"
    pushed = json.loads(shell(f"cujit pack push {pack} {registry.url}:cli --key {tmp_path / 'farm.key'} --json"))
    assert pushed["reference"].startswith(f"{registry.url}:cli@sha256:")
    pulled = json.loads(shell(f"cujit pack pull {pushed['reference']} -o {here} --json"))
    assert pulled["path"] == str(here)
    assert _without_signers(here) == pack.read_bytes()
    assert "signed by farm" in shell(f"cujit pack pull {registry.url}:cli -o {here}")


@pytest.mark.parametrize(
    "url", ["", "oci://", "oci://host", "oci://host/name", "https://host/name:tag", "oci://host/:t", 3]
)
def test_reference_without_a_tag_is_refused(url: Any, farm: Farm, tmp_path: Path) -> None:
    pytest.importorskip("oras")
    with raises(OptionError, "option"):
        pull_pack(url, tmp_path / "here.pack", farm.trust)


def test_unreachable_registry_fails_quickly(farm: Farm, tmp_path: Path) -> None:
    pytest.importorskip("oras")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    begin = time.monotonic()
    with raises(RemoteError, "remote"):
        pull_pack(f"oci://127.0.0.1:{port}/team/kernels:v1", tmp_path / "here.pack", farm.trust)
    assert time.monotonic() - begin < 15


def test_missing_oras_is_reported_with_an_install_command(
    farm: Farm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "oras.provider", None)
    with raises(MissingError, "missing") as caught:
        pull_pack("oci://host/name:tag", tmp_path / "here.pack", farm.trust)
    assert "cujit[oci]" in str(caught.value.help)


def test_expired_signature_is_refused(
    registry: Registry, farm: Farm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signer = Signer(farm.signer.seed, "main", 1)
    push_pack(f"{registry.url}:day", packed(tmp_path / "kernels.pack", 10), signer)
    later = time.time() + 86500
    monkeypatch.setattr(time, "time", lambda: later)
    with raises(FormatError, "format", "expired"):
        pull_pack(f"{registry.url}:day", tmp_path / "here.pack", farm.trust)


def test_unwritable_file_is_named(registry: Registry, farm: Farm, tmp_path: Path) -> None:
    push_pack(f"{registry.url}:write", packed(tmp_path / "kernels.pack", 11), farm.signer)
    with raises(FileError, "file"):
        pull_pack(f"{registry.url}:write", tmp_path / "no" / "here.pack", farm.trust)
