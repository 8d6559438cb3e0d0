"""An attestation of a pack, read by the libraries of in-toto, of DSSE and of CycloneDX."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

import cujit
from cujit.cache.cache import Cache
from cujit.cache.pack import open_verified, write_pack
from cujit.remote.attestation import attestation_of
from remote.serving import farm_in

_CLIENTS = ("cyclonedx", "in_toto_attestation", "securesystemslib", "jsonschema", "cryptography")

pytestmark = pytest.mark.skipif(not all(map(find_spec, _CLIENTS)), reason=f"{', '.join(_CLIENTS)}: `make clients`")


def test_other_tools_verify_and_read_an_attestation(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator
    from google.protobuf import json_format
    from in_toto_attestation.v1 import statement, statement_pb2
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import VerificationError
    from securesystemslib.signer import SSlibKey

    cache = Cache(tmp_path / "cache")
    code = '#include <cuda_fp16.h>\nextern "C" __global__ void k(__half *x) { *x = 1; }'
    cujit.build(code, targets=["sm_80", "sm_90"], cache=cache)
    write_pack(tmp_path / "kernels.pack", cache.stores)
    farm = farm_in(tmp_path)
    written = attestation_of(open_verified(tmp_path / "kernels.pack"), "kernels.pack", "0" * 64, farm.signer)

    envelope = Envelope.from_dict(json.loads(written))
    public = Ed25519PublicKey.from_public_bytes(farm.signer.public)
    envelope.verify([SSlibKey.from_crypto(public, keyid=farm.signer.id)], 1)
    other = Ed25519PublicKey.from_public_bytes(farm_in(tmp_path, "other").signer.public)
    with pytest.raises(VerificationError):
        envelope.verify([SSlibKey.from_crypto(other, keyid=farm.signer.id)], 1)

    read = json_format.Parse(envelope.payload, statement_pb2.Statement())
    statement.Statement.copy_from_pb(read).validate()
    assert (read.subject[0].name, dict(read.subject[0].digest)) == ("kernels.pack", {"sha256": "0" * 64})

    bill = json.loads(envelope.payload)["predicate"]
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(json.dumps(bill)) is None
    assert validator.validate_str(json.dumps({**bill, "components": [{"name": "no type"}]})) is not None
