"""Packs in registries of containers: a pack, its attestation, and a signature that is proved before they are read.

The manifest has two layers, which are the pack and its attestation, and annotations, one of which is the signature:
JSON with the scope, the signer, and two times. It is over the tag, the digest and the size of the pack, so that a pack
that was signed for one tag is refused under another one.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
import json
import os
import struct
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

from cujit.arch.support import install
from cujit.artifact.reading import file_errors
from cujit.artifact.writing import replacing, write_file
from cujit.cache.pack import HEAD_BYTES, name_signers, open_verified, signed_by, signers_in
from cujit.cache.remote.filling import SOCKET_S, patiently
from cujit.cache.remote.signing import Signer, TrustedKeys
from cujit.errors import CacheRefusedError, FormatError, MissingError, OptionError, RemoteError, spell
from cujit.remote.attestation import ENVELOPE_TYPE, attestation_of, proved_bill
from cujit.values import NamedTuple

MEDIA_TYPE = "application/vnd.cujit.pack.v1"
CONFIG_TYPE = "application/vnd.cujit.pack.config.v1+json"
SIGNATURE = "cujit.signature"

_SCHEME = "oci://"
_DOMAIN = b"cujit pack v1\0"  # a signature of this key for something else is none for a pack
_MOST_MANIFEST_BYTES = 1 << 20
_MOST_PACK_BYTES, _MOST_ATTESTATION_BYTES = 1 << 36, 1 << 28
_CHUNK_BYTES = 1 << 18
_LOCAL = ("localhost", "127.0.0.1", "[::1]")
_MANIFEST_TYPES = "application/vnd.oci.image.manifest.v1+json"


class PushedPack(NamedTuple):
    """A pack in a registry: the complete reference with the digest of its manifest, and the bytes of the pack."""

    reference: str
    pack_bytes: int


class PulledPack(NamedTuple):
    """A pulled pack: the path, the size in bytes, the signer, and the Unix time of the signature."""

    path: Path
    pack_bytes: int
    signer: str
    signed_s: int


@file_errors()
def push_pack(url: str, pack: Path, signer: Signer) -> PushedPack:
    """Sign a pack, push it to a registry under a tag, and return its reference.

    Args:
        url: ``oci://HOST/REPOSITORY:TAG``. The registry is asked by HTTPS, or by HTTP if it is on this machine.
        pack: the pack, of which every record is verified first.
        signer: the key, and the scope.

    Raises:
        FormatError: a record of the pack is damaged, or too many keys signed what is in it.
        MissingError: a package that it needs is not installed.
        OptionError: the URL names no tag in a registry.
        RemoteError: the registry doesn't answer, or refuses the pack.
    """
    with contextlib.closing(_PackTag.of(url)) as place:
        return _pushed(place, pack, signer)


def _pushed(place: _PackTag, pack: Path, signer: Signer) -> PushedPack:
    if place.digest:
        raise OptionError(f"{place.url}@{place.digest} names a digest, expected a tag", help=f"write {place.url}")
    opened = open_verified(pack)
    signed_by(*opened.signers(), signer.id)
    stats = opened.stats()
    with tempfile.TemporaryDirectory() as folder:  # in place: oras uploads files
        config, attestation = Path(folder, "config.json"), Path(folder, "attestation.json")
        about = {"records": stats.records, "bytes": stats.file_bytes}
        config.write_bytes(json.dumps(about).encode())  # in place: as above
        layer = place.layer(pack, MEDIA_TYPE)
        statement = attestation_of(opened, pack.name, _hex(layer["digest"]), signer)
        attestation.write_bytes(statement)  # in place: as above
        attested = place.layer(attestation, ENVELOPE_TYPE)
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST_TYPES,
            "config": place.layer(config, CONFIG_TYPE),
            "layers": [layer, attested],
            "annotations": {SIGNATURE: _signature(signer, place.tag, layer["digest"], layer["size"])},
        }
        for path, blob in ((pack, layer), (attestation, attested), (config, manifest["config"])):
            place.ask(functools.partial(place.client.upload_blob, str(path), place.container, blob))
        answer = place.ask(functools.partial(place.client.upload_manifest, manifest, place.container))
    digest = answer.headers.get("Docker-Content-Digest", "")
    return PushedPack(f"{place.url}@{digest}" if digest else place.url, stats.file_bytes)


@file_errors()
def pull_pack(url: str, output: Path, trust: Path, *, bom: Path | None = None) -> PulledPack:
    """Pull a pack from a registry, prove its signature, attestation and digest, and write it to a file.

    The file is replaced only by a whole pack that a trusted key signed for this tag, and never by one that was signed
    before the pack that is there. The head of the file names the key: ``Cache`` refuses the pack of a revoked key.

    Args:
        url: ``oci://HOST/REPOSITORY:TAG``, with ``@sha256:…`` to take only the manifest with this digest.
        output: the file to write.
        trust: the file of keys that are believed, as in ``CUJIT_TRUST``.
        bom: the file to write the attested bill of materials to, in CycloneDX's JSON.

    Raises:
        CacheRefusedError: others could have written to the file of keys, or the pack is older than the one there.
        FormatError: the pack is not signed by a trusted key, or not the one that was signed.
        FileError: the file can't be written.
        MissingError: a package that it needs is not installed.
        OptionError: the URL names no tag in a registry.
        RemoteError: the registry doesn't answer, or has no such pack.
    """
    keys = TrustedKeys.read(trust)
    with contextlib.closing(_PackTag.of(url)) as place:
        return _pulled(place, output, keys, bom)


def _pulled(place: _PackTag, output: Path, keys: TrustedKeys, bom: Path | None) -> PulledPack:
    layer = _SignedLayer.of(_manifest(place), place, keys)
    if output.exists() and output.stat().st_mtime > layer.signed_s + 1:
        raise CacheRefusedError(
            f"the pack at {place.url} was signed before {output} was written; cujit doesn't go back to an older pack",
            help=f"delete {output} to use the older pack",
        )
    attestation = b"".join(_pieces(place, *layer.attestation))
    bill = proved_bill(attestation, _hex(layer.digest), keys.keys[layer.signer_id])
    with replacing(output) as file, contextlib.closing(_pieces(place, layer.digest, layer.size)) as pieces:
        head = b""
        for piece in pieces:
            head += piece[: HEAD_BYTES - len(head)]
            file.write(piece)
        name_signers(file, signed_by(*signers_in(head), layer.signer_id))
        file.flush()
        os.utime(file.fileno(), (layer.signed_s, layer.signed_s))
    if bom is not None:
        write_file(bom, json.dumps(bill, indent=2))
    return PulledPack(output, layer.size, layer.signer, layer.signed_s)


class _SignedLayer(NamedTuple):
    """The pack that a manifest names, after its signature was proved; ``attestation`` is a digest and a size."""

    digest: str
    size: int
    signer: str
    signer_id: str
    signed_s: int
    attestation: tuple[str, int]

    @classmethod
    def of(cls, manifest: bytes, place: _PackTag, keys: TrustedKeys) -> _SignedLayer:
        """Read a manifest.

        Raises:
            FormatError: it is no manifest of a pack, or no trusted key signed it for this tag.
        """
        try:
            content = json.loads(manifest)
            layer, attested = content["layers"]
            digest, size = str(layer["digest"]), int(layer["size"])
            attestation, kinds = (str(attested["digest"]), int(attested["size"])), _media_types(layer, attested)
            declared = json.loads(content["annotations"][SIGNATURE])
            scope, signer, signed_s = str(declared["scope"]), str(declared["signer"]), int(declared["signed_s"])
            not_after_s, signature = int(declared["not_after_s"]), base64.b64decode(declared["ed25519"], validate=True)
            message = _message(scope, place.tag, digest, size, signed_s, not_after_s)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError, struct.error) as e:
            raise FormatError(
                f"{place.url} is not a signed pack: {e}", help="run cujit pack push to publish one"
            ) from e
        if kinds != (MEDIA_TYPE, ENVELOPE_TYPE) or not 0 < size <= _MOST_PACK_BYTES:
            raise FormatError(f"{place.url} has layers of types {spell(kinds)}, expected a pack and its attestation")
        if not 0 < attestation[1] <= _MOST_ATTESTATION_BYTES:
            raise FormatError(f"{place.url} has an attestation of {attestation[1]} bytes")
        try:
            key = keys.check(message, signature, signer, scope, not_after_s, now_s=time.time())
        except FormatError as e:
            raise FormatError(f"cujit refuses {place.url}: {e.message}") from e
        return cls(digest, size, key.name, key.id, signed_s, attestation)


class _PackTag:
    """A tag of a repository in a registry, and the client that requests it."""

    def __init__(self, url: str, client: Any, container: Any) -> None:
        self.url = url
        self.client = client
        self.container = container
        self.tag: str = container.tag
        self.digest: str = container.digest or ""

    @classmethod
    def of(cls, url: str) -> _PackTag:
        """Read a URL.

        Raises:
            MissingError: the package that speaks with registries is not installed.
            OptionError: it names no tag in a registry.
        """
        fault = OptionError(
            f"{spell(url)} is not the URL of a pack in a registry", help="write oci://HOST/REPOSITORY:TAG"
        )
        name = url.removeprefix(_SCHEME) if isinstance(url, str) else ""
        host, _, path = name.partition("/")
        repository, _, tag = path.partition("@")[0].rpartition(":")
        if not name or name == url or not all((host, repository, tag)) or not name.isprintable() or " " in name:
            raise fault
        library = _library()
        client = library.Registry(host, insecure=host.rpartition(":")[0] in _LOCAL or host in _LOCAL)
        client.session.request = functools.partial(client.session.request, timeout=SOCKET_S)
        # Without its decorator, which asks again for two minutes whatever went wrong: ``patiently`` asks again here.
        client.do_request = functools.partial(library.Registry.do_request.__wrapped__, client)
        container = client.get_container(path)
        client.auth.load_configs(container)
        return cls(f"{_SCHEME}{host}/{path.partition('@')[0]}", client, container)

    def close(self) -> None:
        """Close the connections."""
        self.client.session.close()

    @staticmethod
    def layer(path: Path, media_type: str) -> dict[str, Any]:
        """Return the description of a file for a manifest."""
        with open(path, "rb") as file:
            digest = _digest(file)
        layer = {"mediaType": media_type, "size": path.stat().st_size, "digest": f"sha256:{digest.hexdigest()}"}
        return {**layer, "annotations": {"org.opencontainers.image.title": path.name}}

    def ask(self, question: Callable[[], Any]) -> Any:
        """Ask the registry, a few times if it doesn't answer, and return its answer if that is good.

        Raises:
            RemoteError: it is not.
        """

        def once() -> Any:
            try:
                answer = question()
            except Exception as e:  # of a library underneath, which raises what it likes
                raise RemoteError(f"{self.url}: {type(e).__name__}: {e}"[:300]) from e
            if answer.status_code in (429, 500, 502, 503, 504):
                answer.close()
                raise RemoteError(f"{self.url}: status {answer.status_code}")
            return answer

        answer = patiently(once)
        if answer.status_code not in (200, 201, 202):
            answer.close()
            raise RemoteError(f"{self.url}: status {answer.status_code} {answer.reason}"[:200])
        return answer


def _library() -> Any:
    try:
        import oras.provider  # optional: of the extra "oci"
    except ImportError as e:
        raise MissingError(
            "oras is not installed; cujit needs it for container registries", help=f"run {install('oci')}"
        ) from e
    return oras.provider


def _digest(file: Any) -> Any:
    found = hashlib.sha256()
    while piece := file.read(_CHUNK_BYTES):
        found.update(piece)
    return found


def _manifest(place: _PackTag) -> bytes:
    """Return the manifest. If the URL has a digest, the manifest must match it."""
    address = f"{place.client.prefix}://{place.container.manifest_url()}"
    headers = {"Accept": _MANIFEST_TYPES}
    answer = place.ask(lambda: place.client.do_request(address, "GET", headers=headers, stream=True))
    with contextlib.closing(answer):
        content = b"".join(_content(answer, _MOST_MANIFEST_BYTES))
    if place.digest and place.digest != f"sha256:{hashlib.sha256(content).hexdigest()}":
        raise FormatError(f"{place.url} has a different manifest from {place.digest}")
    return content


def _pieces(place: _PackTag, digest: str, size: int) -> Generator[bytes, None, None]:
    """Download a layer.

    Raises:
        FormatError: it is not the one with this digest.
    """
    answer = place.ask(lambda: place.client.get_blob(place.container, digest, stream=True))
    found, came = hashlib.sha256(), 0
    with contextlib.closing(answer):
        for piece in _content(answer, size):
            found.update(piece)
            came += len(piece)
            yield piece
    if came < size:
        raise RemoteError(f"a layer of {place.url} is truncated: {came} of {size} bytes arrived")
    if digest != f"sha256:{found.hexdigest()}":
        raise FormatError(f"a layer of {place.url} is not the signed one: its SHA-256 doesn't match")


def _media_types(*layers: Any) -> tuple[Any, ...]:
    return tuple(layer["mediaType"] for layer in layers)


def _hex(digest: str) -> str:
    return digest.removeprefix("sha256:")


def _content(answer: Any, most_bytes: int) -> Iterator[bytes]:
    """Yield the stored bytes from a registry's response, up to a maximum size."""
    size = 0
    try:
        while piece := answer.raw.read(_CHUNK_BYTES, decode_content=False):
            size += len(piece)
            if size > most_bytes:
                raise FormatError(f"the registry sent more than {most_bytes} bytes")
            yield piece
    except FormatError:
        raise
    except Exception as e:  # of a library underneath, as above
        raise RemoteError(f"the registry stopped after {size} bytes: {e}"[:300]) from e


def _signature(signer: Signer, tag: str, digest: str, size: int) -> str:
    signed_s = int(time.time())
    not_after_s = signer.not_after_s(signed_s)
    signature = signer.sign(_message(signer.scope, tag, digest, size, signed_s, not_after_s))
    about = {"scope": signer.scope, "signer": signer.id, "signed_s": signed_s, "not_after_s": not_after_s}
    return json.dumps({**about, "ed25519": base64.b64encode(signature).decode()})


def _message(scope: str, tag: str, digest: str, size: int, signed_s: int, not_after_s: int) -> bytes:
    texts = b"".join(text.encode() + b"\0" for text in (scope, tag, digest))
    return _DOMAIN + texts + struct.pack("<QQQ", size, signed_s, not_after_s)
