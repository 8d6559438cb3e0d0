"""Attestations of packs: the contents of a pack, the compilers and headers that built it, and the signer.

An attestation is an in-toto statement in a DSSE envelope. Its subject is the pack by its SHA-256. Its predicate is a
CycloneDX bill of materials: a component for each image, compiler, and header, with their digests.

Source: in-toto Attestation Framework 1.0, DSSE 1.0.2, CycloneDX 1.6.
"""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

from cujit.cache.key import Part, is_digest
from cujit.cache.pack import Pack
from cujit.cache.record import EntryRecord
from cujit.cache.remote.signing import Signer, TrustedKey
from cujit.errors import FormatError, spell
from cujit.version import __version__

ENVELOPE_TYPE = "application/vnd.dsse.envelope.v1+json"

_PAYLOAD_TYPE = "application/vnd.in-toto+json"
_STATEMENT = "https://in-toto.io/Statement/v1"
_PREDICATE = "https://cyclonedx.org/bom"
_INCLUDE = "include "


def attestation_of(pack: Pack, name: str, sha256: str, signer: Signer) -> bytes:
    """Return the signed attestation of a pack's contents. ``sha256`` is the digest of the pack's file in hex.

    Raises:
        CacheRefusedError, OSError: as ``Pack.is_there``.
        MissingError: the package that signs is not installed.
    """
    statement = {
        "_type": _STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": sha256}}],
        "predicateType": _PREDICATE,
        "predicate": _bill(pack, name, sha256),
    }
    payload = json.dumps(statement, separators=(",", ":")).encode("ascii")
    signature = {"keyid": signer.id, "sig": _base64(signer.sign(_signed_bytes(_PAYLOAD_TYPE, payload)))}
    envelope = {"payload": _base64(payload), "payloadType": _PAYLOAD_TYPE, "signatures": [signature]}
    return json.dumps(envelope).encode("ascii")


def proved_bill(envelope: bytes, sha256: str, key: TrustedKey) -> dict[str, Any]:
    """Prove that a key signed an attestation of the pack with this SHA-256, and return its bill of materials.

    Raises:
        FormatError: the attestation is damaged, of another pack, or signed by another key.
    """
    try:
        content = json.loads(envelope)
        payload, kind = base64.b64decode(content["payload"], validate=True), str(content["payloadType"])
        signatures = [base64.b64decode(one["sig"], validate=True) for one in content["signatures"]]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as e:
        raise FormatError(f"the attestation of the pack is damaged: {e}") from e
    message = _signed_bytes(kind, payload)
    if kind != _PAYLOAD_TYPE or not any(key.verifies(message, signature) for signature in signatures):
        raise FormatError(f"{key.name} signed the pack, but didn't sign its attestation")
    try:
        statement = json.loads(payload)
        kinds = statement["_type"], statement["predicateType"]
        subjects = [subject["digest"]["sha256"] for subject in statement["subject"]]
        bill: dict[str, Any] = statement["predicate"]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as e:
        raise FormatError(f"cujit expected a statement in the attestation of the pack: {e}") from e
    if kinds != (_STATEMENT, _PREDICATE):
        raise FormatError(f"the attestation of the pack is of type {spell(kinds[1])}, expected {_PREDICATE}")
    if subjects != [sha256]:
        raise FormatError("the attestation is for another pack: its SHA-256 doesn't match")
    return bill


def _signed_bytes(kind: str, payload: bytes) -> bytes:
    """Return the bytes that the signature of an envelope covers."""
    name = kind.encode()
    return b"DSSEv1 %d %s %d %s" % (len(name), name, len(payload), payload)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bill(pack: Pack, name: str, sha256: str) -> dict[str, Any]:
    components: dict[str, dict[str, Any]] = {}
    dependencies: dict[str, list[str]] = {}
    for entry in pack.entries():
        record = pack.get(entry.digest).record
        if record is not None:
            image, made_with = _image(record)
            components |= {component["bom-ref"]: component for component in (*made_with, image)}
            dependencies[image["bom-ref"]] = sorted({component["bom-ref"] for component in made_with})
    dependencies["pack"] = sorted(dependencies)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "tools": {"components": [{"type": "application", "name": "cujit", "version": __version__}]},
            "component": {"type": "file", "bom-ref": "pack", "name": name, **_hashed(sha256)},
        },
        "components": list(components.values()),
        "dependencies": [{"ref": ref, "dependsOn": others} for ref, others in dependencies.items()],
    }


def _image(record: EntryRecord) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Describe an image, and the tool and the headers that it was made with."""
    artifact = record.artifact
    about = [("key", record.digest), ("kind", artifact.kind.value), ("arch", str(artifact.arch or ""))]
    about += [("kernel", name) for name in artifact.names]
    made_with = [_tool(artifact.tool)] if artifact.tool else []
    for part in record.key().parts:
        header = _header(part)
        if header is not None:
            made_with.append(header)
        else:
            about.append((f"input {part.label}", part.value if part.size is None else f"sha256:{part.value}"))
    image = {
        "type": "file",
        "bom-ref": f"key:{record.digest}",
        "name": artifact.name or record.work,
        **_hashed(hashlib.sha256(artifact.data).hexdigest()),
        "properties": [{"name": f"cujit:{label}", "value": value} for label, value in about],
    }
    return image, made_with


def _tool(tool: str) -> dict[str, Any]:
    name, _, version = tool.rpartition(" ")
    return {"type": "application", "bom-ref": f"tool:{tool}", "name": name or version, "version": version}


def _header(part: Part) -> dict[str, Any] | None:
    """Describe a header of the user, or the listing of all headers of a directory of the toolkit."""
    name, digest = part.label.removeprefix(_INCLUDE), part.value.partition(" ")[0]
    if name == part.label or not is_digest(digest):
        return None
    return {"type": "file", "bom-ref": f"header:{name}:{digest}", "name": name, **_hashed(digest)}


def _hashed(sha256: str) -> dict[str, Any]:
    return {"hashes": [{"alg": "SHA-256", "content": sha256}]}
