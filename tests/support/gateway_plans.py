# SPDX-License-Identifier: Apache-2.0
"""The golden plan of a gateway with every kind of chain."""

from pilothouse.model import keys, secrets, services
from pilothouse.routing import accepting, plan

SHOP_TLS = secrets.SecretKey("default", "shop-tls")
GATEWAY = keys.ObjectKey("MeshGateway", "default", "edge")
RULE = keys.ObjectKey("RouteRule", "default", "lines")
ADDRESS = "127.0.0.1"


def _key(name: str, *, udp: bool = False) -> plan.ClusterKey:
    return plan.ClusterKey(
        direction=plan.Direction.OUTBOUND,
        port=9000,
        service=keys.ServiceKey("default", name),
        udp=udp,
    )


def _listener(port: int, *chains: plan.Chain, **parts: object) -> plan.Listener:
    name = f"gateway|{port}/udp" if parts.get("transport") == "udp" else f"gateway|{port}"
    return plan.Listener(
        name=name,
        direction=plan.Direction.INBOUND,
        address=ADDRESS,
        port=port,
        chains=chains,
        origins=(GATEWAY,),
        **parts,  # type: ignore[arg-type]
    )


def _choice(chain: str, **match: object) -> plan.Choice:
    return plan.Choice(match=accepting.ChainMatch(**match), chain=chain)  # type: ignore[arg-type]


def _forward(
    name: str, *shares: tuple[str | None, int], idle_timeout_ms: int = 5_000
) -> plan.TcpForward:
    clusters = tuple(
        plan.WeightedCluster(cluster=None if to is None else _key(to), weight=weight)
        for to, weight in shares
    )
    return plan.TcpForward(
        name=name, clusters=clusters, origins=(RULE,), idle_timeout_ms=idle_timeout_ms
    )


def chains() -> plan.ProxyPlan:
    """TLS passed through, terminated, and with certificates of clients; TCP, UDP, HTTP/3."""
    web = plan.Http(route_configuration="web", edge=True, strip_port=True)
    tls = accepting.ServerTls(certificates=(SHOP_TLS,), alpn=("h2", "http/1.1"))
    clients = accepting.ClientCertificates(
        authority=SHOP_TLS,
        required=False,
        subject_alt_names=("a.example", "spiffe://a/b"),
        public_key_hashes=("A" * 43 + "=",),
    )
    strict = accepting.ServerTls(
        certificates=(SHOP_TLS,),
        clients=clients,
        min_version="1.1",
        max_version="1.2",
        ciphers=("ECDHE-ECDSA-AES128-GCM-SHA256",),
    )
    secure = _listener(
        443,
        plan.Chain(name="gateway|443|closed", serves=web, tls=_with(strict, authority="none")),
        plan.Chain(name="gateway|443|passed", serves=plan.Tcp(forward="passed")),
        plan.Chain(name="gateway|443|taken", serves=plan.Tcp(forward="taken"), tls=strict),
        plan.Chain(name="gateway|443|web", serves=web, tls=tls),
        choices=(
            _choice("gateway|443|passed", server_names=("a.example", "b.example")),
            _choice("gateway|443|closed", server_names=("c.example",)),
            _choice("gateway|443|taken", server_names=("*.example",), sources=("10.0.0.0/8",)),
            _choice("gateway|443|web", unnamed=True, tls=True),
            _choice("gateway|443|web", destinations=("2001:db8::1/128",), tls=False),
            _choice("gateway|443|passed"),
        ),
        client_address=accepting.ClientAddress(trusted_hops=2, proxy_protocol=True),
    )
    layer = plan.Layer(
        clusters=(
            plan.Cluster(key=_key("one")),
            plan.Cluster(key=_key("packets", udp=True)),
            plan.Cluster(key=_key("two")),
        ),
        endpoints=tuple(
            plan.ClusterEndpoints(
                key=key,
                localities=(
                    plan.LocalityEndpoints(
                        locality=services.Locality(),
                        addresses=(plan.Address(host=ADDRESS, port=9000),),
                    ),
                ),
            )
            for key in (_key("one"), _key("packets", udp=True), _key("two"))
        ),
        route_configurations=(plan.RouteConfiguration(name="web", virtual_hosts=()),),
        listeners=(
            secure,
            _listener(8443, plan.Chain(name="gateway|8443|web", serves=web, tls=tls), http3=True),
            _listener(
                8443, plan.Chain(name="gateway|8443/udp", serves=web, tls=tls), transport="udp"
            ),
            _listener(
                53,
                plan.Chain(
                    name="gateway|53/udp", serves=plan.Udp(cluster=_key("packets", udp=True))
                ),
                transport="udp",
            ),
        ),
        tcp_forwards=(
            _forward("passed", ("one", 1), idle_timeout_ms=0),
            _forward("taken", ("one", 3), ("two", 1), (None, 1)),
        ),
        certificates=(SHOP_TLS,),
        authorities=(SHOP_TLS,),
    )
    return plan.ProxyPlan(layers=(layer,))


def _with(tls: accepting.ServerTls, *, authority: str) -> accepting.ServerTls:
    """The same with an authority that does not exist."""
    absent = accepting.ClientCertificates(authority=secrets.SecretKey("default", authority))
    return accepting.ServerTls(certificates=tls.certificates, clients=absent)
