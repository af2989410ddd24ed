# SPDX-License-Identifier: Apache-2.0
"""The rules of how a listener serves TLS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pilothouse.api.config.v1alpha1 import mesh_gateway_pb2
from pilothouse.config import checks, objects, syntax, tls

_Tls = mesh_gateway_pb2.ListenerTls
_AGES: Mapping[int, tuple[int, str]] = {
    _Tls.VERSION_TLS_1_0: (0, "TLS_1_0"),
    _Tls.VERSION_TLS_1_1: (1, "TLS_1_1"),
    _Tls.VERSION_TLS_1_2: (2, "TLS_1_2"),
    _Tls.VERSION_TLS_1_3: (3, "TLS_1_3"),
}
_DEFAULT = _Tls.VERSION_TLS_1_2


def check(
    where: str,
    section: mesh_gateway_pb2.ListenerTls,
    protocol: int,
    meta: objects.Meta,
) -> checks.Found:
    """Every rule that the section breaks, in the order of its fields.

    Args:
        where: Its path.
        section: What to check.
        protocol: That of the listener.
        meta: Of the gateway: only a derived one may name secrets of another namespace.
    """
    if section.mode == _Tls.MODE_PASSTHROUGH:
        yield from _passthrough(where, section, protocol)
        return
    if not section.certificates:
        yield from checks.broken(f"{where}.certificates", "at least one is required")
    yield from _secrets(f"{where}.certificates", section.certificates, meta)
    if section.HasField("client_validation"):
        at = f"{where}.clientValidation"
        yield from _clients(at, section.client_validation, meta)
    yield from _versions(where, section)


def before_1_3(section: mesh_gateway_pb2.ListenerTls) -> bool:
    """Tell whether TLS 1.3 is not spoken."""
    newest = _AGES.get(section.max_version)
    return newest is not None and newest < _AGES[_Tls.VERSION_TLS_1_3]


def _passthrough(where: str, section: mesh_gateway_pb2.ListenerTls, protocol: int) -> checks.Found:
    if protocol != mesh_gateway_pb2.Listener.PROTOCOL_TLS:
        text = "must not be PASSTHROUGH unless the protocol is TLS"
        yield from checks.broken(f"{where}.mode", text)
    for field, _ in section.ListFields():
        if field.name != "mode":
            needless = "must not be set when the mode is PASSTHROUGH"
            yield from checks.broken(f"{where}.{field.json_name}", needless)


def _secrets(
    where: str, references: Sequence[mesh_gateway_pb2.SecretReference], meta: objects.Meta
) -> checks.Found:
    for index, secret in enumerate(references):
        at = f"{where}[{index}]"
        yield from checks.required(f"{at}.secret", secret.secret, syntax.subdomain)
        yield from checks.optional(f"{at}.namespace", secret.namespace, syntax.label)
        own = secret.namespace in ("", meta.key.namespace)
        if not own and not meta.origins:
            message = f"must be the gateway's own, {meta.key.namespace}, is {secret.namespace!r}"
            yield from checks.broken(f"{at}.namespace", message)


def _clients(
    where: str, section: mesh_gateway_pb2.ClientValidation, meta: objects.Meta
) -> checks.Found:
    at = f"{where}.caCertificates"
    if len(section.ca_certificates) != 1:
        text = f"must have exactly one entry, has {len(section.ca_certificates)}"
        yield from checks.broken(at, text)
    yield from _secrets(at, section.ca_certificates, meta)
    seen: dict[object, str] = {}
    for index, name in enumerate(section.subject_alt_names):
        place = f"{where}.subjectAltNames[{index}]"
        yield from checks.required(place, name, tls.alt_name)
        yield from checks.unique(seen, place, name, what="name")
    yield from tls.hashes(f"{where}.publicKeyHashes", section.public_key_hashes, tls.key_hash)
    at = f"{where}.certificateHashes"
    yield from tls.hashes(at, section.certificate_hashes, tls.certificate_hash)


def _versions(where: str, section: mesh_gateway_pb2.ListenerTls) -> checks.Found:
    oldest, name = _AGES.get(section.min_version, _AGES[_DEFAULT])
    newest = _AGES.get(section.max_version)
    if newest is not None and newest[0] < oldest:
        yield from checks.broken(f"{where}.maxVersion", f"must not be older than {name}")
    if section.cipher_suites and section.min_version == _Tls.VERSION_TLS_1_3:
        fixed = "must not be set when minVersion is TLS_1_3, whose suites are fixed"
        yield from checks.broken(f"{where}.cipherSuites", fixed)
    yield from tls.cipher_suites(f"{where}.cipherSuites", section.cipher_suites)
