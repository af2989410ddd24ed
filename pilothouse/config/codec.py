# SPDX-License-Identifier: Apache-2.0
"""Config objects in and out: Kubernetes-shaped YAML for people, protobuf between programs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from google.protobuf import message as protobuf

from pilothouse.api.config.v1alpha1 import metadata_pb2
from pilothouse.api.status.v1alpha1 import status_pb2
from pilothouse.config import (
    documents,
    objects,
    reading,
    scalars,
    schema,
    status,
    validation,
    violations,
    writing,
)
from pilothouse.model import keys

DEFAULT_NAMESPACE = "default"

_TOP = ("apiVersion", "kind", "metadata", "spec", "status")
# What the Kubernetes API puts into metadata of its own accord, and we have no use for.
_FOREIGN_METADATA = frozenset(
    {
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "finalizers",
        "generateName",
        "managedFields",
        "ownerReferences",
        "selfLink",
    }
)


_PARENT = re.compile(r"(\.[^.\[]+|\[[^\]]*\])$")


class CodecError(Exception):
    """Bytes of a peer that are no config object of ours; the message says what is wrong."""


class Encoded(NamedTuple):
    """A config object as an xDS resource."""

    type_url: str
    resource_name: str
    """``KIND/NAMESPACE/NAME``."""
    body: bytes
    """The whole object without its status; equal objects have equal bytes."""


def is_ours(document: documents.RawDocument) -> bool:
    """Tell whether a document is meant to be one of our kinds, if only by its kind's name."""
    group = document.api_version.partition("/")[0]
    return group == schema.API_GROUP or (not group and document.kind in schema.KINDS)


def from_manifest(
    document: documents.RawDocument,
    *,
    source: str,
    generation: int = 1,
    derived: bool = False,
) -> tuple[objects.Config | None, tuple[objects.Problem, ...]]:
    """Read one of our kinds.

    Args:
        document: As `documents.load` gives it. Its ``status`` is not read.
        source: Name of the store that reads it.
        generation: Used when ``metadata.generation`` is not there: the store counts.
        derived: Allow ``metadata.origins``. They give rights that authored objects do not have.

    Returns:
        The object, or None and one problem for each mistake. Whether the values of an object that
        can be read make sense together is not looked at: see `pilothouse.config.validation`. Of one
        that cannot, the rest is looked at too, so that its author is told everything at once.
    """
    manifest = document.manifest
    kind = schema.KINDS.get(document.kind)
    if kind is None:
        hint = violations.suggestion(document.kind, schema.KINDS)
        reason = f"unknown kind {document.kind!r}{hint}" if document.kind else "kind: is required"
        return None, (objects.Problem(location=document.location, message=reason),)
    found = list(_check_top(manifest))
    metadata = metadata_pb2.ObjectMeta()
    found += reading.read(
        metadata,
        {} if manifest.get("metadata") is None else manifest["metadata"],
        path="metadata",
        ignored=_FOREIGN_METADATA,
    )
    if metadata.origins and not derived:
        message = "is set on derived objects only, by the source that derives them"
        found.append(violations.Violation(field="metadata.origins", message=message))
    spec = kind.spec()
    if manifest.get("spec") is not None:
        found += reading.read(spec, manifest["spec"], path="spec")
    key = _key(kind, metadata)
    if key is None and not any(one.field == "metadata.name" for one in found):
        found.append(violations.Violation(field="metadata.name", message="is required"))
    if key is not None and found:
        partial = _config(
            _meta(key, metadata, generation=generation),
            spec,
            source=source,
            location=document.location,
        )
        found += _elsewhere(validation.validate(partial), found)
    if key is None or found:
        return None, tuple(
            objects.Problem(location=document.location, message=str(one), key=key) for one in found
        )
    meta = _meta(key, metadata, generation=generation)
    return _config(meta, spec, source=source, location=document.location), ()


def _elsewhere(
    more: Iterable[violations.Violation], known: Iterable[violations.Violation]
) -> list[violations.Violation]:
    """Violations that have nothing to do with what could not be read: in no part that holds it."""
    parts = {_PARENT.sub("", one.field) for one in known}
    return [
        one
        for one in more
        if not any(_within(one.field, part) or _within(part, one.field) for part in parts)
    ]


def _within(field: str, part: str) -> bool:
    return field == part or field.startswith((f"{part}.", f"{part}["))


def _check_top(manifest: Mapping[str, Any]) -> list[violations.Violation]:
    found = [
        violations.Violation(
            field=str(name),
            message=f"unknown field{violations.suggestion(str(name), _TOP)}",
        )
        for name in manifest
        if name not in _TOP
    ]
    version = manifest.get("apiVersion")
    if version != schema.API_VERSION:
        is_now = "missing" if version is None else documents.describe(version)
        message = f"must be {schema.API_VERSION}, is {is_now}"
        found.append(violations.Violation(field="apiVersion", message=message))
    return found


def _key(kind: schema.Kind, metadata: metadata_pb2.ObjectMeta) -> keys.ObjectKey | None:
    if not metadata.name:
        return None
    return keys.ObjectKey(
        kind=kind.name,
        namespace=metadata.namespace or DEFAULT_NAMESPACE,
        name=metadata.name,
    )


def _meta(
    key: keys.ObjectKey, metadata: metadata_pb2.ObjectMeta, *, generation: int = 1
) -> objects.Meta:
    time = metadata.creation_timestamp
    return objects.Meta(
        key=key,
        generation=metadata.generation if metadata.generation > 0 else generation,
        created=time.seconds * scalars.NANOSECONDS + time.nanos,
        labels=keys.labels(dict(metadata.labels)),
        annotations=keys.labels(dict(metadata.annotations)),
        origins=tuple(sorted({status.key_of(one) for one in metadata.origins})),
        resource_version=metadata.resource_version,
    )


def _config(
    meta: objects.Meta, spec: protobuf.Message, *, source: str, location: str = ""
) -> objects.Config:
    return objects.Config(
        meta=meta, spec=spec, digest=digest_of(spec), source=source, location=location
    )


def digest_of(spec: protobuf.Message) -> bytes:
    """The identity of a spec: SHA-256 of its deterministic serialisation."""
    return hashlib.sha256(spec.SerializeToString(deterministic=True)).digest()


def make(
    key: keys.ObjectKey,
    spec: protobuf.Message,
    *,
    source: str,
    origins: tuple[keys.ObjectKey, ...] = (),
    created: int = 0,
    generation: int = 1,
    labels: keys.Labels = (),
    location: str = "",
) -> objects.Config:
    """A config object out of its parts.

    Args:
        key: Its kind must be one of ours.
        spec: The spec of that kind; not to be changed any more.
        source: Name of the store or config source that holds it.
        origins: What it was derived from, in any order.
        created: Nanoseconds since 1970; 0 when there is no creation time.
        generation: Counts changes of the spec.
        labels: Of the object itself.
        location: Where it was read.

    Raises:
        TypeError: the spec is not of the key's kind.
    """
    kind = schema.KINDS.get(key.kind)
    if kind is None or not isinstance(spec, kind.spec):
        raise TypeError(f"{type(spec).__name__} is no spec of {key.kind}")
    meta = objects.Meta(
        key=key,
        generation=generation,
        created=created,
        labels=labels,
        origins=tuple(sorted(set(origins))),
    )
    return _config(meta, spec, source=source, location=location)


def _metadata(meta: objects.Meta) -> metadata_pb2.ObjectMeta:
    metadata = metadata_pb2.ObjectMeta(
        name=meta.key.name,
        namespace=meta.key.namespace,
        labels=dict(meta.labels),
        annotations=dict(meta.annotations),
        generation=meta.generation,
        resource_version=meta.resource_version,
        origins=[status.reference(origin) for origin in meta.origins],
    )
    if meta.created:
        time = metadata.creation_timestamp
        time.seconds, time.nanos = divmod(meta.created, scalars.NANOSECONDS)
    return metadata


def to_manifest(
    config: objects.Config, *, status: status_pb2.Status | None = None
) -> dict[str, Any]:
    """The object as Kubernetes would show it; `from_manifest` reads it back as it was.

    Args:
        config: Of one of our kinds.
        status: Shown below the spec when given.
    """
    manifest: dict[str, Any] = {
        "apiVersion": schema.API_VERSION,
        "kind": config.key.kind,
        "metadata": writing.write(_metadata(config.meta)),
        "spec": writing.write(config.spec),
    }
    if status is not None:
        manifest["status"] = writing.write(status, zeros=True)
    return manifest


def dump(config: objects.Config, *, status: status_pb2.Status | None = None) -> str:
    """The object as a YAML document."""
    return documents.dump(to_manifest(config, status=status))


def encode(config: objects.Config) -> Encoded:
    """The object as a resource for other services, with its metadata and origins."""
    kind = schema.KINDS[config.key.kind]
    whole: Any = kind.message
    body = whole(metadata=_metadata(config.meta), spec=config.spec)
    return Encoded(
        type_url=kind.type_url,
        resource_name=str(config.key),
        body=body.SerializeToString(deterministic=True),
    )


def decode(type_url: str, body: bytes, *, source: str) -> objects.Config:
    """Read a resource of another service. Its status is not read.

    Args:
        type_url: Says which kind it is.
        body: The whole object.
        source: Name of the config source that it comes from.

    Raises:
        CodecError: no kind of ours has that type, the bytes are no such message, the name is
            missing, the creation time is no time, or the message holds what this build has no
            name for: a newer object is refused, never trimmed.
    """
    kind = schema.by_type_url(type_url)
    if kind is None:
        raise CodecError(f"{type_url!r} is no type of config object")
    whole: Any = kind.message()
    try:
        whole.ParseFromString(body)
    except protobuf.DecodeError as error:
        raise CodecError(f"{len(body)} bytes that are no {kind.name}: {error}") from error
    whole.ClearField("status")
    key = _key(kind, whole.metadata)
    if key is None:
        raise CodecError(f"a {kind.name} without metadata.name")
    time = whole.metadata.creation_timestamp
    if not 0 <= time.seconds <= scalars.MAX_TIME or not 0 <= time.nanos < scalars.NANOSECONDS:
        raise CodecError(f"{key}: metadata.creationTimestamp is before 1970 or after 9999")
    if newer := tuple(writing.unknown(whole)):
        raise CodecError(f"{key} is newer than this program: {'; '.join(newer)}")
    return _config(_meta(key, whole.metadata), whole.spec, source=source)
