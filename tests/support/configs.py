# SPDX-License-Identifier: Apache-2.0
"""Config objects for tests: from YAML, and out of thin air for hypothesis."""

from __future__ import annotations

import base64
import textwrap
from typing import Any

from google.protobuf import descriptor
from google.protobuf import message as protobuf
from hypothesis import strategies

from pilothouse.config import codec, documents, objects, reading, scalars, schema
from pilothouse.model import keys

SOURCE = "test"


def read_all(text: str, *, derived: bool = False) -> dict[keys.ObjectKey, objects.Config]:
    """The objects of a YAML text, by key, in the order of the text; fails if there is a problem."""
    found, problems = documents.load(textwrap.dedent(text), location="test.yaml")
    assert not problems, problems
    configs = {}
    for document in found:
        config, mistakes = codec.from_manifest(document, source=SOURCE, derived=derived)
        assert config is not None, mistakes
        configs[config.key] = config
    return configs


def read(text: str, *, derived: bool = False) -> objects.Config:
    """The only object of a YAML text."""
    (config,) = read_all(text, derived=derived).values()
    return config


def with_spec(kind: str, spec: str, *, name: str = "a", metadata: str = "") -> objects.Config:
    """An object of a kind in the namespace ``default`` with this spec, in YAML."""
    return read(
        f"apiVersion: {schema.API_VERSION}\n"
        f"kind: {kind}\n"
        f"metadata: {{name: {name}, {metadata}}}\n"
        f"spec:\n{textwrap.indent(textwrap.dedent(spec), '  ')}\n"
    )


_TEXT = strategies.text(max_size=12)
_INTEGERS = {
    descriptor.FieldDescriptor.TYPE_SINT32: strategies.integers(-(2**31), 2**31 - 1),
    descriptor.FieldDescriptor.TYPE_UINT32: strategies.integers(0, 2**32 - 1),
    descriptor.FieldDescriptor.TYPE_INT64: strategies.integers(-(2**63), 2**63 - 1),
}


def messages(whole: type[protobuf.Message]) -> strategies.SearchStrategy[Any]:
    """Any message of a type whose values YAML can say; they need not make sense together."""
    return _mappings(whole.DESCRIPTOR).map(lambda mapping: _filled(whole, mapping))


def _filled(whole: type[protobuf.Message], mapping: dict[str, Any]) -> protobuf.Message:
    message = whole()
    assert reading.read(message, mapping, path="") == ()
    return message


def _mappings(message: Any) -> strategies.SearchStrategy[dict[str, Any]]:
    choices: dict[str, list[str]] = {}
    optional = {}
    for name, field in reading.fields_of(message).items():
        optional[name] = _values(field)
        if field.containing_oneof is not None and len(field.containing_oneof.fields) > 1:
            choices.setdefault(field.containing_oneof.name, []).append(name)
    return strategies.fixed_dictionaries({}, optional=optional).map(
        lambda mapping: _one_of_each(mapping, choices)
    )


def _one_of_each(mapping: dict[str, Any], choices: dict[str, list[str]]) -> dict[str, Any]:
    for names in choices.values():
        for name in [name for name in names if name in mapping][1:]:
            del mapping[name]
    return mapping


def _values(field: Any) -> strategies.SearchStrategy[Any]:
    if reading.is_map(field):
        values = _single(field.message_type.fields_by_name["value"])
        return strategies.dictionaries(_TEXT, values, max_size=3)
    if field.is_repeated:
        return strategies.lists(_single(field), max_size=3)
    return _single(field)


def _single(field: Any) -> strategies.SearchStrategy[Any]:
    if field.enum_type is not None:
        return strategies.sampled_from(sorted(scalars.enum_words(field.enum_type)))
    if field.message_type is not None:
        if field.message_type.full_name == "google.protobuf.Duration":
            return strategies.integers(0, scalars.MAX_DURATION).map(scalars.format_duration)
        return _mappings(field.message_type)
    if field.type in _INTEGERS:
        return _INTEGERS[field.type]
    if field.type == descriptor.FieldDescriptor.TYPE_BOOL:
        return strategies.booleans()
    if field.type == descriptor.FieldDescriptor.TYPE_BYTES:
        return strategies.binary(max_size=12).map(lambda some: base64.b64encode(some).decode())
    if field.type == descriptor.FieldDescriptor.TYPE_DOUBLE:
        return strategies.floats(allow_nan=False, allow_infinity=False)
    return _TEXT
