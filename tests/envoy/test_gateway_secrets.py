# SPDX-License-Identifier: Apache-2.0
"""Secrets of a folder on their way to a gateway's listener: certificates, and who signs others."""

from __future__ import annotations

import base64
import contextlib
import ssl
import tempfile

import pytest

from pilothouse.config import schema
from pilothouse.model import keys, proxy
from tests.support import authorities, certificates, fleet, http_clients, waiting

pytestmark = pytest.mark.envoy
PORT = 18_443
GATEWAY = (
    f"apiVersion: {schema.API_VERSION}\nkind: MeshGateway\nmetadata: {{name: edge}}\n"
    f"spec: {{selector: {{app: edge}}, listeners: [{{name: tls, port: {PORT}, protocol: HTTPS,"
    " tls: {certificates: [{secret: shop}],"
    " clientValidation: {caCertificates: [{secret: ca}]}}}]}\n"
)
RULE = (
    f"apiVersion: {schema.API_VERSION}\nkind: RouteRule\nmetadata: {{name: all}}\n"
    "spec: {parents: [{gateway: edge}], http: [{directResponse: {status: 418}}]}\n"
)


def secret(name: str, kind: str, **data: str) -> str:
    """A Secret; `ca_crt` is `ca.crt`."""
    shown = ", ".join(
        f"{key.replace('_', '.')}: {base64.b64encode(value.encode()).decode()}"
        for key, value in data.items()
    )
    return (
        f"apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\ntype: {kind}\n"
        f"data: {{{shown}}}\n"
    )


async def let_in(one: fleet.Proxy, pair: certificates.Pair) -> bool:
    """Whether a client that shows a certificate gets an answer."""
    context = http_clients.anyone()
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(pair.certificate + pair.private_key)
        file.flush()
        context.load_cert_chain(file.name)
    with contextlib.suppress(OSError, ssl.SSLError):
        answer = await http_clients.http1(one.address, PORT, "a", tls=context)
        return answer.status == 418
    return False


async def test_authorities_come_change_and_go() -> None:
    """Without the authority nobody is let in; with it whom it signed; what it revokes is refused;
    and when it is gone, nobody again."""
    shop, ours = certificates.make("a"), authorities.authority("ours")
    good, bad = ours.sign("good"), ours.sign("bad")
    pair = secret("shop", "kubernetes.io/tls", tls_crt=shop.certificate, tls_key=shop.private_key)
    async with contextlib.AsyncExitStack() as stack:
        enter = stack.enter_async_context
        files = {"gateway.yaml": GATEWAY, "rule.yaml": RULE, "shop.yaml": pair}
        mesh = await enter(fleet.fleet(files))
        await mesh.start()
        proxies = await enter(mesh.envoys(proxy.Role.GATEWAY, labels=keys.labels(app="edge")))
        await mesh.settled()

        async def seen(*wanted: certificates.Pair) -> bool:
            found = [[pair for pair in (good, bad) if await let_in(one, pair)] for one in proxies]
            return found == [[*wanted]] * len(proxies)

        assert await seen()
        for data, wanted in (
            ({"ca_crt": ours.certificate}, (good, bad)),
            ({"ca_crt": ours.certificate, "ca_crl": ours.revoke(bad)}, (good,)),
        ):
            await mesh.apply({"ca.yaml": secret("ca", "Opaque", **data)})
            await waiting.eventually(
                lambda wanted=wanted: seen(*wanted), what=f"{len(wanted)} let in"
            )
        await mesh.apply({"ca.yaml": None})
        await waiting.eventually(seen, what="nobody is let in")
