# SPDX-License-Identifier: Apache-2.0
"""Messages, enums and their comments, out of descriptors with source information."""

import dataclasses
from collections.abc import Sequence

from google.protobuf import descriptor_pb2

# Numbers of the fields of FileDescriptorProto, DescriptorProto and EnumDescriptorProto, of which
# the path of a comment is made.
_FILE_MESSAGES, _FILE_ENUMS = 4, 5
_MESSAGE_FIELDS, _MESSAGE_NESTED, _MESSAGE_ENUMS, _MESSAGE_ONEOFS = 2, 3, 4, 8
_ENUM_VALUES = 2

_Path = tuple[int, ...]
_Texts = dict[_Path, str]


@dataclasses.dataclass(slots=True)
class Known:
    """What was found, by full name with a leading dot."""

    messages: dict[str, descriptor_pb2.DescriptorProto] = dataclasses.field(default_factory=dict)
    enums: dict[str, descriptor_pb2.EnumDescriptorProto] = dataclasses.field(default_factory=dict)
    map_values: dict[str, str] = dataclasses.field(default_factory=dict)
    """Entry type of a map to the type of its values; empty for text."""
    _comments: dict[tuple[str, str], str] = dataclasses.field(default_factory=dict)

    def comment(self, name: str, member: str = "") -> str:
        """The comment of a message or enum, or of a field, group or value in it; in one line."""
        return self._comments.get((name, member), "")

    def add_message(
        self, name: str, message: descriptor_pb2.DescriptorProto, path: _Path, texts: _Texts
    ) -> None:
        """Take a message, and all that is declared in it."""
        if message.options.map_entry:
            self.map_values[name] = message.field[1].type_name
            return
        self.messages[name] = message
        self._comments[name, ""] = texts.get(path, "")
        self._members(name, message.field, (*path, _MESSAGE_FIELDS), texts)
        self._members(name, message.oneof_decl, (*path, _MESSAGE_ONEOFS), texts)
        for index, nested in enumerate(message.nested_type):
            below = (*path, _MESSAGE_NESTED, index)
            self.add_message(f"{name}.{nested.name}", nested, below, texts)
        for index, enum in enumerate(message.enum_type):
            self.add_enum(f"{name}.{enum.name}", enum, (*path, _MESSAGE_ENUMS, index), texts)

    def add_enum(
        self, name: str, enum: descriptor_pb2.EnumDescriptorProto, path: _Path, texts: _Texts
    ) -> None:
        """Take an enum."""
        self.enums[name] = enum
        self._comments[name, ""] = texts.get(path, "")
        self._members(name, enum.value, (*path, _ENUM_VALUES), texts)

    def _members(
        self,
        name: str,
        members: Sequence[
            descriptor_pb2.FieldDescriptorProto
            | descriptor_pb2.OneofDescriptorProto
            | descriptor_pb2.EnumValueDescriptorProto
        ],
        path: _Path,
        texts: _Texts,
    ) -> None:
        for index, member in enumerate(members):
            self._comments[name, member.name] = texts.get((*path, index), "")


def read(found: descriptor_pb2.FileDescriptorSet) -> Known:
    """Everything in a set of files that were read with source information."""
    known = Known()
    for file in found.file:
        texts = {
            tuple(place.path): " ".join(place.leading_comments.split())
            for place in file.source_code_info.location
        }
        for index, message in enumerate(file.message_type):
            name = f".{file.package}.{message.name}"
            known.add_message(name, message, (_FILE_MESSAGES, index), texts)
        for index, enum in enumerate(file.enum_type):
            known.add_enum(f".{file.package}.{enum.name}", enum, (_FILE_ENUMS, index), texts)
    return known
