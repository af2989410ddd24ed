# SPDX-License-Identifier: Apache-2.0
"""What is spoken on a service port.

First ``appProtocol`` (IANA names, and those that Kubernetes defines in KEP-3726), then the port's
name up to the first dash, then plain TCP. UDP follows from ``protocol`` alone.
"""

from __future__ import annotations

from pilothouse.model import services

_WORDS = {
    "http": services.AppProtocol.HTTP,
    "ws": services.AppProtocol.HTTP,  # a WebSocket begins as HTTP/1.1
    "http2": services.AppProtocol.HTTP2,
    "h2c": services.AppProtocol.HTTP2,
    "grpc": services.AppProtocol.GRPC,
    "https": services.AppProtocol.TLS,
    "wss": services.AppProtocol.TLS,
    "tls": services.AppProtocol.TLS,
    "tcp": services.AppProtocol.TCP,
}
_PREFIX = "kubernetes.io/"


def of_port(*, transport: str, app_protocol: str, name: str) -> services.AppProtocol:
    """The protocol of a port.

    Args:
        transport: ``protocol`` of the port: ``TCP`` or ``UDP``.
        app_protocol: ``appProtocol``; one that we do not know is spoken over TCP, whatever the name
            says.
        name: Name of the port.
    """
    if transport == "UDP":
        return services.AppProtocol.UDP
    if app_protocol:
        word = app_protocol.lower().removeprefix(_PREFIX)
    else:
        # grpc-web is what browsers speak to a translator: HTTP, not gRPC.
        word = "http" if name.lower().startswith("grpc-web") else name.lower().partition("-")[0]
    return _WORDS.get(word, services.AppProtocol.TCP)
