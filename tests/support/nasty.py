# SPDX-License-Identifier: Apache-2.0
"""Config objects with values that are allowed, or nearly so, and that programs stumble over.

Every field of every message is filled from what fits its name; objects refer to a handful of names,
so that they meet. Fields that are added later are filled too.
"""

from __future__ import annotations

import random
import re
from typing import Any

from pilothouse.config import codec, documents, reading, scalars, schema, validation

SERVICES, EXTERNALS, GATEWAYS = ("svc0", "svc1", "gone"), ("ext0", "ext1"), ("gw0", "gw1")
NAMESPACES = ("default", "team")
_LONG = "x" * 20_000
_TEXTS = (
    *("a", "é", "日本", "a b", "a\tb", "%20", "%DOWNSTREAM%", "%%", "%REQ(x)%", "{a}", "*", _LONG),
    *("\u2028", "\x85", "\xa0", "a,b", '"', "\\", "$", "😀", " a ", "0", "null", "\ufeff"),
)
_BASE64 = ("", "AA==", "/w==", "AP+A", "YWJj" * 1_000)
_REGEXES = (
    *("a", "(?i)a", "a{1000}", "(a|b)*", r"\pN", r"\p{Greek}", "[[:alpha:]]", "(?P<n>a)", r"\C"),
    *(r"\bfoo\b", "(a*)*", "(a{10}){10}", r"\x{10FFFF}", r"\Qa.b\E", r"\z", "^a$", "(?s).", "a**"),
    *("(?U)a+", "[^a]", "é+", "x{0,1000}", "(?:)", "()", "|", "(?i:ß)", "/[a-z]{100}", "a" * 3000),
    *(
        "[a-zA-Z0-9_]{1,500}",
        r"\p{^L}",
        "(?m)^a$",
        r"\07",
        "(?=a)",
        "a++",
        "[]a]",
        r"\1",
        "(?<n>a)",
    ),
)
_PATHS = (
    *("/", "/a", "/a/", "//", "/a//", "/é", "/a b", "/a%20b", "/%", "/..", "/./a", "/a;b", "/*"),
    *("/{a}", "/{a=*}", "/" + "a" * 5000, "/ ", "/\t", "/a\\b", "/:x", "///", "/\xa0", "/**"),
)
_HEADERS = (
    *("a", "X-User", ":authority", ":method", ":path", ":scheme", ":Authority", "host", "cookie"),
    *(
        "content-length",
        "x_y",
        "~",
        "!#$%&'*+.^_`|~",
        "x" * 500,
        "connection",
        "te",
        "grpc-timeout",
    ),
)
_HOSTS = (
    *("a.example", "A.Example", "*.example", "*", "*.EXAMPLE", "b.a.example", "*.a.example", "x.1"),
    *("xn--bcher-kva.example", "a" * 63 + ".example", "localhost", "svc0", "svc0.default", "web"),
    *("svc0.default.svc", "svc0.default.svc.cluster.local", "svc1.team", "1.2.3.4.5", "0x7f.1"),
)
_ADDRESSES = ("127.0.0.1", "::1", "fe80::1", "::ffff:1.2.3.4", "0.0.0.0", "255.255.255.255", "::")
_NUMBERS = (0, 1, 2, 3, 10, 80, 81, 99, 100, 101, 301, 308, 443, 1000, 65_535, 2**31 - 1, 2**32 - 1)
_DURATIONS = ("0s", "1ms", "1s", "2s", "5m", "24h", "9999h")
_RETRY_ON = (
    "5xx",
    "reset",
    "retriable-status-codes",
    "retriable-headers",
    "unavailable",
    "nonsense",
)
_LABEL_KEYS = ("version", "app", "a.example/x", "x" * 63, "A_b.c")
_LABEL_VALUES = ("v1", "v2", "", "a" * 63, "A.b_c-d")
_POOLS: dict[str, tuple[str, ...]] = {
    "service": SERVICES,
    "externalService": EXTERNALS,
    "gateway": GATEWAYS,
    "namespace": NAMESPACES,
    "listener": ("l0", "l1"),
    "secret": ("good", "other", "missing"),
    "scheme": ("http", "https"),
    "method": ("GET", "POST", "CONNECT", "PRI", "A" * 100, "!", "*"),
    "retryOn": _RETRY_ON,
    "allowedNamespaces": ("*", "team"),
    "address": (*_HOSTS, *_ADDRESSES),
    "cipherSuites": ("AES128-SHA", "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-SHA", "none"),
    "publicKeyHashes": ("A" * 43 + "=", "B" * 42 + "A=", "none"),
    "destinationCidrs": (*_ADDRESSES, "10.0.0.0/8", "2001:db8::/32", "0.0.0.0/0", "::/0"),
    "sourceCidrs": (*_ADDRESSES, "127.0.0.0/8", "fe80::/10", "0.0.0.0/0", "::/0"),
    "regex": _REGEXES,
}
_NEEDED = {
    *("parents", "http", "destinations", "listeners", "ports", "selector", "name", "number"),
    *("hosts", "protocol", "port", "service"),
}
"""Fields without which an object is never right."""
_LIKELY = {"matches": 0.7, "path": 0.7}
_EDGE = {"app": "edge"}
_TRIES, _REPAIRS = 20, 40
_STEP = re.compile(r"([^.\[\]]+)|\[([^\]]*)\]")
"""A field, or what stands in brackets: the index of a list or the key of a map."""


def objects(chance: random.Random, *, rules: int = 30, policies: int = 15) -> list[dict[str, Any]]:
    """Manifests of every kind but MeshConfig, nearly all of them right by themselves."""
    wanted = [
        *(("RouteRule", f"rule{number}") for number in range(rules)),
        *(("DestinationPolicy", f"policy{number}") for number in range(policies)),
        *(("ExternalService", name) for name in EXTERNALS),
        *(("MeshGateway", name) for name in GATEWAYS),
    ]
    return [_right(chance, kind, name) for kind, name in wanted]


def _right(chance: random.Random, kind: str, name: str) -> dict[str, Any]:
    """One that validation lets through, by leaving out what it objects to; any, if none is."""
    made: dict[str, Any] = {}
    for _ in range(_TRIES):
        made = _manifest(chance, kind, name)
        for _ in range(_REPAIRS):
            wrong = _objections(made)
            if not wrong:
                return made
            if not _leave_out(made, wrong[0]):
                break
    return made


def _objections(manifest: dict[str, Any]) -> list[str]:
    """Paths of the fields that are wrong."""
    document = documents.RawDocument(location="nasty.yaml", manifest=manifest, line=1)
    config, problems = codec.from_manifest(document, source="nasty")
    if config is None:
        return [each.message.partition(": ")[0] for each in problems]
    return [each.field for each in validation.validate(config)]


def _leave_out(manifest: dict[str, Any], path: str) -> bool:
    """Remove what a path names, or what lacks it; False when only the whole is left."""
    at: Any = manifest
    parents: list[tuple[Any, Any]] = []
    for key, index in _STEP.findall(path):
        step: Any = int(index) if index.isdigit() and isinstance(at, list) else (key or index)
        try:
            inner = at[step]
        except (KeyError, IndexError, TypeError):
            break
        parents.append((at, step))
        at = inner
    if len(parents) < 2:
        return False
    holder, step = parents[-1]
    del holder[step]
    return True


def _manifest(chance: random.Random, kind: str, name: str) -> dict[str, Any]:
    namespace = chance.choice(NAMESPACES)
    spec = _message(chance, schema.KINDS[kind].spec.DESCRIPTOR)
    if kind == "MeshGateway":
        namespace = NAMESPACES[0]
        spec |= {"selector": _EDGE, "allowedNamespaces": ["*"]}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": schema.API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def _message(chance: random.Random, described: Any) -> dict[str, Any]:
    made: dict[str, Any] = {}
    choices: dict[str, list[str]] = {}
    fields = reading.fields_of(described)
    for name, field in fields.items():
        if field.containing_oneof is not None and len(field.containing_oneof.fields) > 1:
            choices.setdefault(field.containing_oneof.name, []).append(name)
    single = {name for names in choices.values() for name in names}
    wanted = {chance.choice(names) for names in choices.values()}
    for name, field in fields.items():
        # Few at a time, so that many objects keep what they have beside the others.
        likely = 1.0 if name in _NEEDED else _LIKELY.get(name, 0.25)
        if name in wanted or (name not in single and chance.random() < likely):
            made[name] = _values(chance, name, field)
    for answer in ("redirect", "directResponse"):
        if "destinations" in made and answer in made:
            del made["destinations"]
    return made


def _values(chance: random.Random, name: str, field: Any) -> Any:
    if reading.is_map(field):
        count = chance.randrange(3)
        if name in {"set", "add"}:
            return {chance.choice(_HEADERS): chance.choice(_TEXTS) for _ in range(count)}
        return {chance.choice(_LABEL_KEYS): chance.choice(_LABEL_VALUES) for _ in range(count)}
    if field.is_repeated:
        count = chance.randint(int(name in _NEEDED), 3)
        return [_single(chance, name, field) for _ in range(count)]
    return _single(chance, name, field)


def _single(chance: random.Random, name: str, field: Any) -> Any:
    if field.enum_type is not None:
        return chance.choice(sorted(scalars.enum_words(field.enum_type)))
    if field.message_type is not None:
        if field.message_type.full_name == "google.protobuf.Duration":
            return chance.choice(_DURATIONS)
        return _message(chance, field.message_type)
    if field.type == field.TYPE_BYTES:
        return chance.choice(_BASE64)
    match field.cpp_type:
        case field.CPPTYPE_BOOL:
            return chance.random() < 0.5
        case field.CPPTYPE_STRING:
            return chance.choice(_pool(name, field))
        case field.CPPTYPE_DOUBLE | field.CPPTYPE_FLOAT:
            return chance.choice((0.0, 1e-9, 0.5, 33.3, 100.0))
        case _:
            return chance.choice(_NUMBERS)


def _pool(name: str, field: Any) -> tuple[str, ...]:
    owner = field.containing_type.name.lower()
    if name in _POOLS:
        return _POOLS[name]
    if "host" in name.lower() or "sni" in name.lower():
        return _HOSTS
    if name == "name" and owner == "listener":
        return ("l0", "l1", "l2")
    if "path" in name.lower() or "path" in owner:
        return _PATHS
    if "header" in name.lower() or (name == "name" and "header" in owner):
        return _HEADERS
    return _TEXTS
