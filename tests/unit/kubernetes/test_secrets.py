# SPDX-License-Identifier: Apache-2.0
"""TLS secrets are used when a proxy can use them, and refused with a reason when not."""

import base64

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from pilothouse.config import documents
from pilothouse.kubernetes import secrets
from pilothouse.model import secrets as model
from tests.support import authorities, certificates

ONE = certificates.make("shop.example.com")
OTHER = certificates.make("other.example.com")


def encoded(text):
    return base64.b64encode(text.encode()).decode()


def secret(certificate=ONE.certificate, private_key=ONE.private_key, **changes):
    manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "shop-tls", "namespace": "shop"},
        "type": "kubernetes.io/tls",
        "data": {"tls.crt": encoded(certificate), "tls.key": encoded(private_key)},
        **changes,
    }
    return documents.RawDocument(location="secret.yaml:1", manifest=manifest, line=1)


def test_a_pair_is_read_from_data():
    """data holds base64, which may be folded."""
    document = secret()
    document.manifest["data"]["tls.crt"] = base64.encodebytes(ONE.certificate.encode()).decode()
    found, problems = secrets.read(document)
    assert problems == ()
    assert found == model.TlsSecret(
        key=model.SecretKey("shop", "shop-tls"),
        certificate_chain=ONE.certificate.encode(),
        private_key=ONE.private_key.encode(),
    )


def test_string_data_wins_over_data():
    """As in the API: stringData is what was written last."""
    plain = {"tls.crt": OTHER.certificate, "tls.key": OTHER.private_key}
    found, problems = secrets.read(secret(stringData=plain))
    assert problems == ()
    assert found is not None
    assert found.certificate_chain == OTHER.certificate.encode()


def test_a_chain_begins_with_the_leaf():
    """More certificates may follow the leaf; before it they are a mistake of their own."""
    found, _ = secrets.read(secret(ONE.certificate + OTHER.certificate))
    assert found is not None
    found, problems = secrets.read(secret(OTHER.certificate + ONE.certificate))
    assert found is None
    assert [each.message for each in problems] == [
        "data[tls.crt]: the certificate of the key must come first"
    ]


def test_an_expired_certificate_is_served():
    """Clients are told by the certificate itself; taking the host away would help nobody."""
    old = certificates.make("shop.example.com", expired=True)
    found, problems = secrets.read(secret(old.certificate, old.private_key))
    assert found is not None
    assert problems == ()


@pytest.mark.parametrize(
    "key", [rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP384R1())]
)
def test_keys_that_envoy_takes(key):
    """RSA from 2048 bits, and ECDSA."""
    pair = certificates.make("shop.example.com", key=key)
    assert secrets.read(secret(pair.certificate, pair.private_key))[1] == ()


def weak():
    short = rsa.generate_private_key(65537, 1024)  # noqa: S505  weak is the point
    return certificates.make("a.example.com", key=short)


def edwards():
    return certificates.make("a.example.com", key=ed25519.Ed25519PrivateKey.generate())


def locked():
    key = ec.generate_private_key(ec.SECP256R1())
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"x"),
    )
    return pem.decode()


KIND = "data[tls.key]: must be RSA of at least 2048 bits, or ECDSA on a NIST curve"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            secret(private_key=OTHER.private_key),
            "data[tls.key]: is not the key of the certificate",
        ),
        (secret(certificate="no"), "data[tls.crt]: must be PEM certificates"),
        (secret(private_key="no"), "data[tls.key]: must be a private key in PEM"),
        (secret(private_key=locked()), "data[tls.key]: must not be encrypted"),
        (secret(*weak()), KIND),
        (secret(*edwards()), KIND),
        (secret(data={"tls.crt": encoded(ONE.certificate)}), "data[tls.key]: is required"),
        (
            secret(data={"tls.crt": "%", "tls.key": encoded(ONE.private_key)}),
            "data[tls.crt]: must be base64",
        ),
        (
            secret(stringData={"tls.key": 4711}),
            "stringData[tls.key]: must be a string",
        ),
        (secret(data=["x"]), "data: must be a mapping, is a list"),
    ],
)
def test_a_broken_secret_is_a_problem(document, message):
    """The problem names object and field, and tells nothing of what the secret holds."""
    found, problems = secrets.read(document)
    assert found is None
    assert message in [each.message for each in problems]
    assert all(str(each.key) == "Secret/shop/shop-tls" for each in problems)
    assert "4711" not in str(problems)


def test_other_secrets_are_nobody_s_business():
    """Only kubernetes.io/tls is read."""
    assert secrets.read(secret(type="Opaque", data={"a": 1})) == (None, ())
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    document = documents.RawDocument(location="a:1", manifest=config_map, line=1)
    assert secrets.read(document) == (None, ())


def trusting(*, paired: bool = False, **data: str) -> documents.RawDocument:
    """A secret with these data, `ca_crt` and `ca_crl`, with a pair beside them or Opaque."""
    held = {name.replace("_", "."): encoded(value) for name, value in data.items()}
    if paired:
        return secret(data={**secret().manifest["data"], **held})
    return secret(type="Opaque", data=held)


@pytest.mark.parametrize("paired", [True, False])
def test_authorities_are_read(*, paired: bool):
    """Beside a pair or alone, with what they revoked; what is there and empty is not there."""
    signer = authorities.authority("signer")
    revoked = signer.revoke(signer.sign("a"))
    found, problems = secrets.read(
        trusting(paired=paired, ca_crt=signer.certificate, ca_crl=revoked)
    )
    assert problems == ()
    assert found is not None
    assert (found.authorities.decode(), found.revocations.decode()) == (signer.certificate, revoked)
    assert bool(found.certificate_chain) is paired
    assert "BEGIN" not in repr(found)
    empty, problems = secrets.read(trusting(paired=paired, ca_crt="", ca_crl=""))
    assert problems == ()
    assert (empty is not None) is paired


def test_several_lists_of_revocations_are_read():
    """One for each authority, in one text."""
    signers = [authorities.authority(name) for name in "ab"]
    lists = "".join(signer.revoke() for signer in signers)
    certificates_ = "".join(signer.certificate for signer in signers)
    found, _ = secrets.read(trusting(ca_crt=certificates_, ca_crl=lists))
    assert found is not None
    assert found.revocations.decode() == lists


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"ca_crt": "4711"}, "data[ca.crt]: must be PEM certificates"),
        (
            {"ca_crt": ONE.certificate, "ca_crl": "4711"},
            "data[ca.crl]: must be PEM lists of revoked certificates",
        ),
        (
            {
                "ca_crt": ONE.certificate,
                "ca_crl": "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----",
            },
            "data[ca.crl]: must be PEM lists of revoked certificates",
        ),
    ],
)
def test_broken_authorities_are_a_problem(*, paired: bool, data: dict[str, str], message: str):
    """The whole secret is not used: it would let in more than is meant, or nobody."""
    found, problems = secrets.read(trusting(paired=paired, **data))
    assert found is None
    assert [each.message for each in problems] == [message]


def test_a_secret_prints_no_content():
    """repr shows the key alone."""
    found, _ = secrets.read(secret())
    assert "BEGIN" not in repr(found)
