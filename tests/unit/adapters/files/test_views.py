# SPDX-License-Identifier: Apache-2.0
"""Secrets and Ingress manifests of a folder."""

import base64

import pytest
import yaml

from pilothouse.adapters.files import folder, manifests, secrets
from pilothouse.kubernetes import ingress
from pilothouse.model import keys
from pilothouse.model import secrets as model
from tests.support import certificates, folders, ingresses
from tests.support.waiting import eventually

CERT = model.SecretKey("default", "cert")


def secret(pair, private_key=None):
    data = {"tls.crt": pair.certificate, "tls.key": private_key or pair.private_key}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": {"name": "cert"},
            "data": {name: base64.b64encode(text.encode()).decode() for name, text in data.items()},
        }
    )


@pytest.fixture
def source(tmp_path):
    return folder.Folder(tmp_path, poll_interval=30)


async def test_secrets_are_swapped_as_pairs(tmp_path, source):
    """A new certificate with an old key is refused, and the last good pair stays."""
    view = secrets.FileSecrets(source)
    changes = []
    view.subscribe(changes.append)
    assert view.secrets() == {}
    one, two = certificates.make("a.example.com"), certificates.make("a.example.com")
    (tmp_path / "cert.yaml").write_text(secret(one))
    async with folders.running(source):
        assert view.secrets()[CERT].private_key == one.private_key.encode()
        folders.replace(tmp_path / "cert.yaml", secret(two, one.private_key))
        await eventually(lambda: source.problems)
        assert source.problems[0].message == "data[tls.key]: is not the key of the certificate"
        assert view.problems == source.problems
        assert view.secrets()[CERT].certificate_chain == one.certificate.encode()
        folders.replace(tmp_path / "cert.yaml", secret(two))
        await eventually(lambda: view.secrets()[CERT].private_key == two.private_key.encode())
        assert source.problems == ()
        folders.replace(tmp_path / "cert.yaml", secret(two).replace("kubernetes.io/tls", "Opaque"))
        await eventually(lambda: not view.secrets())
        folders.replace(tmp_path / "cert.yaml", secret(two))
        await eventually(view.secrets)
        (tmp_path / "cert.yaml").unlink()
        await eventually(lambda: not view.secrets())
        key = keys.ObjectKey("Secret", "default", "cert")
        assert [each.keys for each in changes] == [(key,)] * 5


async def test_manifests_are_what_ingress_needs(tmp_path, source):
    """Ingresses, classes, services and keys of secrets; a broken Ingress stays as it was."""
    view = manifests.FileManifests(source)
    assert view.current() == ingress.Manifests()
    path = tmp_path / "ingress.yaml"
    pair = certificates.make("example.com")
    (tmp_path / "others.yaml").write_text(
        "---\n".join((ingresses.OURS, ingresses.service("a"), secret(pair)))
    )
    path.write_text(ingresses.make("x", ingresses.SIMPLE, tls=ingresses.TLS))
    async with folders.running(source):
        state = view.current()
        assert state.synced
        assert [str(each.key) for each in state.ingresses] == ["Ingress/default/x"]
        assert [each.name for each in state.classes] == ["mine"]
        assert list(state.services) == [keys.ServiceKey("default", "a")]
        assert state.secrets == {CERT}
        output = ingress.convert(state.with_settings(ingress.Settings()))
        assert ingresses.listeners(output)["https"] == [("default", "cert")]
        folders.replace(path, ingresses.make("x"))
        await eventually(lambda: source.problems)
        assert view.current() == state
        assert source.problems[0].location == f"{path}:1"
        assert source.problems[0].key == keys.ObjectKey("Ingress", "default", "x")


async def test_the_content_of_secrets_is_no_news_for_ingress(tmp_path, source):
    """A renewed certificate changes no manifest state: its key is the same."""
    view = manifests.FileManifests(source)
    store = secrets.FileSecrets(source)
    heard = []
    view.subscribe(heard.append)
    (tmp_path / "cert.yaml").write_text(secret(certificates.make("a.example.com")))
    async with folders.running(source):
        assert len(heard) == 1
        new = certificates.make("a.example.com")
        folders.replace(tmp_path / "cert.yaml", secret(new))
        await eventually(lambda: store.secrets()[CERT].private_key == new.private_key.encode())
        assert len(heard) == 1
