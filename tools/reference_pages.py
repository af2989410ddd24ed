# SPDX-License-Identifier: Apache-2.0
"""Makes `docs/reference/objects/*.md` of the comments in our protos: a page for each kind.

A page shows what a user writes: YAML names, the words of enums, durations. What the protos do not
say stands on no page, so the protos are where to improve them.
"""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from google.protobuf import descriptor_pb2

from tools import own_modules, proto_comments, protoc

PAGES = own_modules.ROOT / "docs" / "reference" / "objects"
KINDS = ("RouteRule", "DestinationPolicy", "MeshGateway", "ExternalService", "MeshConfig")

_PACKAGE = ".pilothouse.api.config.v1alpha1."
_NOTE = "<!-- Made from the comments in protos/ by `make gen`: do not edit. -->\n"
_Field = descriptor_pb2.FieldDescriptorProto
_WORDS = {
    ".google.protobuf.Duration": "duration",
    ".google.protobuf.Timestamp": "time",
    _Field.TYPE_STRING: "text",
    _Field.TYPE_BYTES: "base64 text",
    _Field.TYPE_BOOL: "true or false",
    _Field.TYPE_DOUBLE: "number",
    _Field.TYPE_FLOAT: "number",
}


def update() -> None:
    """Bring the checked-in pages up to date."""
    fresh = _pages()
    PAGES.mkdir(parents=True, exist_ok=True)
    for page in PAGES.glob("*.md"):
        if page.name not in fresh:
            page.unlink()
    for name, text in fresh.items():
        (PAGES / name).write_text(text)


def stale() -> list[str]:
    """The pages that are not what `update` would write now."""
    fresh = _pages()
    there = {page.name: page.read_text() for page in PAGES.glob("*.md")}
    return sorted(name for name in {*fresh, *there} if fresh.get(name) != there.get(name))


def _pages() -> dict[str, str]:
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch) / "all.binpb"
        flags = ["--include_source_info", "--include_imports", f"--descriptor_set_out={target}"]
        protos = sorted((own_modules.PROTOS / "pilothouse" / "api" / "config").rglob("*.proto"))
        protoc.run([f"-I{own_modules.PROTOS}", *flags, *map(str, protos)])
        found = descriptor_pb2.FileDescriptorSet.FromString(target.read_bytes())
    known = proto_comments.read(found)
    pages = {f"{_slug(kind)}.md": _page(kind, known) for kind in KINDS}
    return {**pages, "README.md": _contents(known)}


def _slug(kind: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", kind).lower()


def _contents(known: proto_comments.Known) -> str:
    rows = [
        f"| [{kind}]({_slug(kind)}.md) | {known.comment(_PACKAGE + kind)} |\n" for kind in KINDS
    ]
    return "".join(
        (
            _NOTE,
            "# Objects\n\n",
            "Every field of every kind, its limits and its default. All have `kind`, `metadata`\n",
            "as in Kubernetes, and `apiVersion: pilothouse.dev/v1alpha1`.\n\n",
            "| kind | says |\n|---|---|\n",
            *rows,
        )
    )


def _page(kind: str, known: proto_comments.Known) -> str:
    spec = f"{_PACKAGE}{kind}Spec"
    parts = [_NOTE, f"# {kind}\n\n{known.comment(_PACKAGE + kind)}\n"]
    for name in _reachable(spec, known):
        title = "spec" if name == spec else _short(name)
        if name in known.enums:
            parts.append(_enum(title, name, known))
        else:
            parts.append(_message(title, name, known))
    return "\n".join(parts)


def _reachable(spec: str, known: proto_comments.Known) -> Iterator[str]:
    """The messages and enums below a spec, in the order in which a reader meets them."""
    waiting, seen = [spec], {spec}
    while waiting:
        name = waiting.pop(0)
        yield name
        for field in known.messages[name].field if name in known.messages else ():
            below = known.map_values.get(field.type_name, field.type_name)
            if below.startswith(_PACKAGE) and below not in seen:
                seen.add(below)
                waiting.append(below)


def _message(title: str, name: str, known: proto_comments.Known) -> str:
    rows = []
    message = known.messages[name]
    for field in message.field:
        group = ""
        if field.HasField("oneof_index") and not field.proto3_optional:
            group = f"One of *{message.oneof_decl[field.oneof_index].name}*. "
        text = _cell(group + known.comment(name, field.name))
        rows.append(f"| `{field.json_name}` | {_type(field, known)} | {text} |\n")
    groups = [
        f"*{group.name}*: {known.comment(name, group.name)}\n\n"
        for index, group in enumerate(message.oneof_decl)
        if known.comment(name, group.name)
        and any(
            field.HasField("oneof_index")
            and field.oneof_index == index
            and not field.proto3_optional
            for field in message.field
        )
    ]
    comment = known.comment(name)
    head = f"## {title}\n\n{comment}\n\n" if title != "spec" else "## spec\n\n"
    return head + "".join(groups) + "| field | is | does |\n|---|---|---|\n" + "".join(rows)


def _enum(title: str, name: str, known: proto_comments.Known) -> str:
    enum = known.enums[name]
    prefix = enum.value[0].name.removesuffix("UNSPECIFIED")
    rows = [
        f"| `{value.name.removeprefix(prefix)}` | {_cell(known.comment(name, value.name))} |\n"
        for value in enum.value[1:]
    ]
    head = f"## {title}\n\n{known.comment(name)}\n\n"
    return head + "| word | means |\n|---|---|\n" + "".join(rows)


def _type(field: descriptor_pb2.FieldDescriptorProto, known: proto_comments.Known) -> str:
    one = _WORDS.get(field.type_name or field.type)
    if field.type_name in known.map_values:
        value = known.map_values[field.type_name]
        return f"map of text to {_link(value) if value else 'text'}"
    if one is None:
        one = _link(field.type_name) if field.type_name else "whole number"
    return f"list of {one}" if field.label == _Field.LABEL_REPEATED else one


def _link(name: str) -> str:
    short = _short(name)
    return f"[{short}](#{short.lower().replace('.', '')})" if name.startswith(_PACKAGE) else short


def _short(name: str) -> str:
    return name.removeprefix(_PACKAGE)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
