# SPDX-License-Identifier: Apache-2.0
"""Config objects between programs, and that no form of them loses anything."""

from typing import Any

import pytest
from hypothesis import given, strategies

from pilothouse.api.config.v1alpha1 import mesh_gateway_pb2, metadata_pb2
from pilothouse.config import codec, documents, objects, scalars, schema
from pilothouse.model import keys
from tests.support import configs

_NAMES = strategies.text(min_size=1, max_size=8)
_LABELS = strategies.dictionaries(strategies.text(max_size=5), strategies.text(max_size=5)).map(
    keys.labels
)
_METAS = strategies.builds(
    objects.Meta,
    key=strategies.builds(
        keys.ObjectKey,
        kind=strategies.sampled_from(sorted(schema.KINDS)),
        namespace=_NAMES,
        name=_NAMES,
    ),
    generation=strategies.integers(1, 2**63 - 1),
    created=strategies.integers(0, (scalars.MAX_TIME + 1) * scalars.NANOSECONDS - 1),
    labels=_LABELS,
    annotations=_LABELS,
    origins=strategies.sets(
        strategies.builds(keys.ObjectKey, kind=_NAMES, namespace=_NAMES, name=_NAMES), max_size=2
    ).map(lambda origins: tuple(sorted(origins))),
    resource_version=strategies.text(max_size=5),
)


def _config(meta: objects.Meta, spec: Any) -> objects.Config:
    return objects.Config(meta=meta, spec=spec, digest=codec.digest_of(spec), source="test")


_CONFIGS = _METAS.flatmap(
    lambda meta: configs.messages(schema.KINDS[meta.key.kind].spec).map(
        lambda spec: _config(meta, spec)
    )
)


@given(_CONFIGS)
def test_any_object_is_read_from_its_dump_as_it_was(config: objects.Config):
    """Every field of every kind has a YAML form, and it loses nothing."""
    (document,), problems = documents.load(codec.dump(config), location="f.yaml")
    read, wrong = codec.from_manifest(document, source="test", derived=True)
    assert (problems, wrong) == ((), ())
    assert read is not None
    assert (read.meta, read.spec, read.digest) == (config.meta, config.spec, config.digest)


@given(_CONFIGS)
def test_any_object_is_decoded_as_it_was(config: objects.Config):
    """Metadata and origins too; and equal objects have equal bytes."""
    type_url, name, body = codec.encode(config)
    decoded = codec.decode(type_url, body, source="test")
    assert (decoded.meta, decoded.spec, decoded) == (config.meta, config.spec, config)
    assert name == str(config.key)
    assert codec.encode(decoded).body == body


def _gateway(**metadata: object) -> Any:
    return mesh_gateway_pb2.MeshGateway(
        metadata=metadata_pb2.ObjectMeta(**{"name": "a", **metadata}),  # type: ignore[arg-type]
        spec=mesh_gateway_pb2.MeshGatewaySpec(listeners=[mesh_gateway_pb2.Listener(name="b")]),
    )


GATEWAY = schema.KINDS["MeshGateway"].type_url


def test_a_newer_object_is_refused_and_never_trimmed():
    """Each field number and enum value that has no name here is told with its place."""
    whole = _gateway()
    whole.spec.listeners[0].protocol = 7
    whole.spec.listeners[0].MergeFromString(b"\xf8\x07\x01")  # field 127
    whole.metadata.MergeFromString(b"\xf8\x07\x01")
    body = whole.SerializeToString() + b"\xf0\x07\x01"  # field 126
    with pytest.raises(codec.CodecError) as raised:
        codec.decode(GATEWAY, body, source="test")
    assert str(raised.value) == (
        "MeshGateway/default/a is newer than this program:"
        " the object: unknown field number 126;"
        " metadata: unknown field number 127;"
        " spec.listeners[0]: unknown field number 127;"
        " spec.listeners[0].protocol: unknown value 7"
    )


def test_the_status_in_a_body_is_not_read():
    """Not even when it is newer than this program."""
    whole = _gateway()
    whole.status.observed_generation = 3
    whole.status.MergeFromString(b"\xf8\x07\x01")
    assert codec.decode(GATEWAY, whole.SerializeToString(), source="test").key.name == "a"


@pytest.mark.parametrize(
    ("type_url", "body", "message"),
    [
        ("type.googleapis.com/foo.Bar", b"", "is no type of config object"),
        (GATEWAY, b"\xff\xff", "2 bytes that are no MeshGateway"),
        (GATEWAY, b"", "a MeshGateway without metadata.name"),
        (
            GATEWAY,
            _gateway(creation_timestamp={"seconds": -1}).SerializeToString(),
            "creationTimestamp is before 1970",
        ),
        (
            GATEWAY,
            _gateway(creation_timestamp={"nanos": 10**9}).SerializeToString(),
            "creationTimestamp is before 1970",
        ),
    ],
)
def test_bytes_that_are_no_object_are_a_codec_error(type_url: str, body: bytes, message: str):
    """The message says what is wrong with them."""
    with pytest.raises(codec.CodecError, match=message):
        codec.decode(type_url, body, source="test")
