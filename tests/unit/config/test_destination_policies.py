# SPDX-License-Identifier: Apache-2.0
"""The rules of a DestinationPolicy's sections: what is refused, and by which field."""

import json

import pytest

from pilothouse.config import validation
from tests.support import configs

BEGIN, END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
CA = f"{BEGIN}\nMAA=\n{END}\n"  # an empty sequence in DER
KEY = "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n"


def broken(spec: str) -> list[str]:
    config = configs.with_spec("DestinationPolicy", f"{{service: a, {spec}}}")
    return [str(one) for one in validation.validate(config)]


@pytest.mark.parametrize(
    "spec",
    [
        "loadBalancer: {}",
        "loadBalancer: {minHealthyPercent: 0}",
        "loadBalancer: {minHealthyPercent: 100}",
        (
            "loadBalancer: {policy: RING_HASH, ringMinSize: 8388608, hashBy: [{header: X-User},"
            " {header: ':path'}, {queryParameter: q}, {sourceIp: true}, {cookie: {name: c}},"
            " {cookie: {name: c, ttl: 0s, path: /}}]}"
        ),
        "loadBalancer: {policy: MAGLEV, maglevTableSize: 5000011, hashBy: [{sourceIp: true}]}",
        "loadBalancer: {warmup: {duration: 1ms, minPercent: 100, aggression: 0.5}}",
        "loadBalancer: {policy: ROUND_ROBIN, warmup: {duration: 1h}}",
        "locality: {}",
        "circuitBreaker: {retryBudget: {}}",
        "circuitBreaker: {maxRequests: 0, retryBudget: {percent: 0, minConcurrency: 0}}",
        "circuitBreaker: {retryBudget: {percent: 100}}",
        "ports: [{port: 1, loadBalancer: {}, tls: {mode: DISABLE}}, {port: 65535}]",
        "tls: {mode: DISABLE}",
        "tls: {sni: a.example, insecureSkipVerify: true}",
        (
            "tls: {sni: a.example, subjectAltNames: [b.example, 192.0.2.1,"
            f" 'spiffe://a/b'], caCertificates: {json.dumps(CA + CA)}}}"
        ),
        "tls: {mode: MUTUAL, sni: a.b, clientCertificate: a.b, insecureSkipVerify: true}",
        "locality: {failover: {}}",
        "locality: {failover: {regions: [{from: eu-1, to: us_1.a}, {from: us, to: eu-1}]}}",
        (
            "locality: {distribution: {shares: [{from: '*', to: {eu: 0, eu/a: 1000}},"
            " {from: eu/a/b, to: {'*': 1}}]}}"
        ),
        "outlierDetection: {}",
        "outlierDetection: {consecutive5xx: 0}",
        (
            "outlierDetection: {consecutive5xx: 1, consecutiveGatewayErrors: 2,"
            " consecutiveLocalOriginFailures: 3, interval: 1ms, baseEjectionTime: 1s,"
            " maxEjectionTime: 1s, maxEjectionPercent: 1}"
        ),
        "outlierDetection: {baseEjectionTime: 1h}",
        "healthCheck: {}",
        "connectionPool: {}",
        "connectionPool: {idleTimeout: 0s}",
        (
            "connectionPool: {httpVersion: HTTP2, maxRequestsPerConnection: 1, maxDuration: 1ms,"
            " maxConcurrentStreams: 2147483647, tcpKeepalive: {probes: 127, time: 1s,"
            " interval: 32767s}, http2Keepalive: {interval: 1ms}}"
        ),
        "connectionPool: {httpVersion: CLIENT, tcpKeepalive: {}}",
        "healthCheck: {tcp: {}}",
        "healthCheck: {grpc: {}}",
        (
            "healthCheck: {grpc: {service: a.B}, timeout: 1ms, interval: 1ms,"
            " unhealthyThreshold: 1, healthyThreshold: 1}"
        ),
        "healthCheck: {http: {path: '/a?b=c', host: a.b, statuses: [{first: 100, last: 599}]}}",
        "healthCheck: {http: {path: /, host: 192.0.2.1, statuses: [{first: 200, last: 200}]}}",
    ],
)
def test_what_is_right_is_accepted(spec: str):
    """The ends of every range, and sections that say nothing."""
    assert broken(spec) == []


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            "loadBalancer: {minHealthyPercent: 101}",
            ["spec.loadBalancer.minHealthyPercent: must be from 0 to 100, is 101"],
        ),
        (
            "loadBalancer: {policy: RING_HASH, maglevTableSize: 7}",
            [
                (
                    "spec.loadBalancer.hashBy: at least one is required when the policy is"
                    " RING_HASH or MAGLEV"
                ),
                "spec.loadBalancer.maglevTableSize: must not be set unless the policy is MAGLEV",
            ],
        ),
        (
            "loadBalancer: {hashBy: [{sourceIp: true}], ringMinSize: 0}",
            [
                (
                    "spec.loadBalancer.hashBy: must not be set unless the policy is RING_HASH or"
                    " MAGLEV"
                ),
                "spec.loadBalancer.ringMinSize: must not be set unless the policy is RING_HASH",
                "spec.loadBalancer.ringMinSize: must be from 1 to 8388608, is 0",
            ],
        ),
        (
            (
                "loadBalancer: {policy: MAGLEV, maglevTableSize: 9, hashBy: [{}, {header: ':x'},"
                " {header: ''}, {queryParameter: ''}, {sourceIp: false}, {cookie: {}},"
                " {cookie: {name: 'a b', ttl: 1ms, path: a}}]}"
            ),
            [
                (
                    "spec.loadBalancer.hashBy[0]: one of header, cookie, queryParameter, sourceIp"
                    " is required"
                ),
                (
                    "spec.loadBalancer.hashBy[1].header: must be one of :authority, :method, :path,"
                    " :scheme when it begins with :, is ':x'"
                ),
                "spec.loadBalancer.hashBy[2].header: is required",
                "spec.loadBalancer.hashBy[3].queryParameter: is required",
                "spec.loadBalancer.hashBy[4].sourceIp: must be true",
                "spec.loadBalancer.hashBy[5].cookie.name: is required",
                "spec.loadBalancer.hashBy[6].cookie.name: must be the name of a cookie, is 'a b'",
                "spec.loadBalancer.hashBy[6].cookie.ttl: must be whole seconds",
                "spec.loadBalancer.hashBy[6].cookie.path: must begin with /, is 'a'",
                (
                    "spec.loadBalancer.maglevTableSize: must be a prime number of at most 5000011,"
                    " is 9"
                ),
            ],
        ),
        (
            "loadBalancer: {warmup: {minPercent: 0, aggression: 0}}",
            [
                "spec.loadBalancer.warmup.duration: is required",
                "spec.loadBalancer.warmup.minPercent: must be from 1 to 100, is 0",
                "spec.loadBalancer.warmup.aggression: must be greater than 0, is 0",
            ],
        ),
        (
            "loadBalancer: {policy: RANDOM, warmup: {duration: 0s, aggression: -1}}",
            [
                (
                    "spec.loadBalancer.warmup: must not be set unless the policy is LEAST_REQUEST"
                    " or ROUND_ROBIN"
                ),
                "spec.loadBalancer.warmup.duration: must be greater than 0s",
                "spec.loadBalancer.warmup.aggression: must be greater than 0, is -1",
            ],
        ),
        (
            (
                "locality: {failover: {regions: [{}, {from: eu, to: eu}, {from: eu, to: a/b},"
                " {from: '*', to: us}]}}"
            ),
            [
                "spec.locality.failover.regions[0].from: is required",
                "spec.locality.failover.regions[0].to: is required",
                "spec.locality.failover.regions[1].to: must be another region than from",
                (
                    "spec.locality.failover.regions[2].from: the region eu is taken by"
                    " spec.locality.failover.regions[1].from"
                ),
                ("spec.locality.failover.regions[2].to: must be the name of a region, is 'a/b'"),
                "spec.locality.failover.regions[3].from: must be the name of a region, is '*'",
            ],
        ),
        (
            "locality: {distribution: {}}",
            ["spec.locality.distribution.shares: must have 1 to 100 entries, has 0"],
        ),
        (
            (
                "locality: {distribution: {shares: [{}, {from: a/b/c/d, to: {eu: 0}},"
                " {from: a, to: {'*/b': 1001, eu/: 1}}, {from: a, to: {a: 1}}]}}"
            ),
            [
                "spec.locality.distribution.shares[0].from: is required",
                "spec.locality.distribution.shares[0].to: must have 1 to 100 entries, has 0",
                (
                    "spec.locality.distribution.shares[1].from: must be REGION, REGION/ZONE,"
                    " REGION/ZONE/SUB-ZONE or *, is 'a/b/c/d'"
                ),
                "spec.locality.distribution.shares[1].to: must have a weight greater than 0",
                (
                    "spec.locality.distribution.shares[2].to[*/b]: must be REGION, REGION/ZONE,"
                    " REGION/ZONE/SUB-ZONE or *, is '*/b'"
                ),
                "spec.locality.distribution.shares[2].to[*/b]: must be at most 1000, is 1001",
                (
                    "spec.locality.distribution.shares[2].to[eu/]: must be REGION, REGION/ZONE,"
                    " REGION/ZONE/SUB-ZONE or *, is 'eu/'"
                ),
                (
                    "spec.locality.distribution.shares[3].from: the place a is taken by"
                    " spec.locality.distribution.shares[2].from"
                ),
            ],
        ),
        (
            "tls: {mode: DISABLE, sni: a.example, insecureSkipVerify: true}",
            [
                "spec.tls.sni: must not be set when the mode is DISABLE",
                "spec.tls.insecureSkipVerify: must not be set when the mode is DISABLE",
            ],
        ),
        (
            "tls: {mode: MUTUAL}",
            [
                "spec.tls.sni: is required",
                "spec.tls.caCertificates: is required",
                "spec.tls.clientCertificate: is required",
            ],
        ),
        (
            (
                "tls: {sni: 192.0.2.1, subjectAltNames: ['*.a', ''], clientCertificate: a,"
                " insecureSkipVerify: true}"
            ),
            [
                "spec.tls.sni: must be a host name, is the IP address '192.0.2.1'",
                (
                    "spec.tls.subjectAltNames[0]: must be a host name such as shop.example.com,"
                    " is '*.a'"
                ),
                "spec.tls.subjectAltNames[1]: is required",
                "spec.tls.clientCertificate: must not be set unless the mode is MUTUAL",
                "spec.tls.insecureSkipVerify: must not be set together with subjectAltNames",
            ],
        ),
        *(
            (
                f"tls: {{sni: a.example, caCertificates: {json.dumps(text)}}}",
                [f"spec.tls.caCertificates: must be PEM certificates{wrong}"],
            )
            for text, wrong in (
                ("text", ", and nothing else"),
                (CA + KEY, ", and nothing else"),
                (CA.replace("MAA=", "M=A="), ": one of them is not base64"),
                (f"{BEGIN}\nAAAA\n{END}", ": one of them is no certificate"),
            )
        ),
        (
            (
                "ports: [{}, {port: 65536, connectTimeout: 0s}, {port: 1, tls: {sni: a.b},"
                " loadBalancer: {minHealthyPercent: 101}}, {port: 1, healthCheck: {http: {}}}]"
            ),
            [
                "spec.ports[0].port: is required: a number from 1 to 65535",
                "spec.ports[1].port: must be from 1 to 65535, is 65536",
                "spec.ports[1].connectTimeout: must be greater than 0s",
                "spec.ports[2].loadBalancer.minHealthyPercent: must be from 0 to 100, is 101",
                "spec.ports[2].tls.caCertificates: is required",
                "spec.ports[3].port: the port 1 is taken by spec.ports[2].port",
                "spec.ports[3].healthCheck.http.path: is required",
            ],
        ),
        (
            "circuitBreaker: {maxRetries: 0, retryBudget: {percent: 100.5}}",
            [
                "spec.circuitBreaker.retryBudget: must not be set together with maxRetries",
                "spec.circuitBreaker.retryBudget.percent: must be from 0 to 100, is 100.5",
            ],
        ),
        (
            "circuitBreaker: {retryBudget: {percent: -1}}",
            ["spec.circuitBreaker.retryBudget.percent: must be from 0 to 100, is -1"],
        ),
        (
            "outlierDetection: {interval: 0s, baseEjectionTime: 0s, maxEjectionTime: 0s}",
            [
                "spec.outlierDetection.interval: must be greater than 0s",
                "spec.outlierDetection.baseEjectionTime: must be greater than 0s",
                "spec.outlierDetection.maxEjectionTime: must be greater than 0s",
            ],
        ),
        (
            "outlierDetection: {baseEjectionTime: 2s, maxEjectionTime: 1s}",
            ["spec.outlierDetection.maxEjectionTime: must not be shorter than baseEjectionTime"],
        ),
        (
            "outlierDetection: {maxEjectionTime: 29s}",
            [
                (
                    "spec.outlierDetection.maxEjectionTime: must not be shorter than"
                    " baseEjectionTime, which is 30s when unset"
                )
            ],
        ),
        (
            "outlierDetection: {maxEjectionPercent: 0}",
            ["spec.outlierDetection.maxEjectionPercent: must be from 1 to 100, is 0"],
        ),
        (
            "outlierDetection: {maxEjectionPercent: 101}",
            ["spec.outlierDetection.maxEjectionPercent: must be from 1 to 100, is 101"],
        ),
        (
            (
                "healthCheck: {tcp: {}, timeout: 0s, interval: 0s, idleInterval: 0s,"
                " unhealthyThreshold: 0, healthyThreshold: 0}"
            ),
            [
                "spec.healthCheck.timeout: must be greater than 0s",
                "spec.healthCheck.interval: must be greater than 0s",
                "spec.healthCheck.idleInterval: must be greater than 0s",
                "spec.healthCheck.unhealthyThreshold: must be at least 1, is 0",
                "spec.healthCheck.healthyThreshold: must be at least 1, is 0",
            ],
        ),
        (
            (
                "connectionPool: {maxRequestsPerConnection: 0, maxDuration: 0s,"
                " maxConcurrentStreams: 0, tcpKeepalive: {probes: 0, time: 1500ms, interval: 0s},"
                " http2Keepalive: {timeout: 0s}}"
            ),
            [
                "spec.connectionPool.maxRequestsPerConnection: must be at least 1, is 0",
                "spec.connectionPool.maxDuration: must be greater than 0s",
                "spec.connectionPool.maxConcurrentStreams: must be from 1 to 2147483647, is 0",
                "spec.connectionPool.tcpKeepalive.probes: must be from 1 to 127, is 0",
                "spec.connectionPool.tcpKeepalive.time: must be whole seconds, from 1s to 32767s",
                (
                    "spec.connectionPool.tcpKeepalive.interval: must be whole seconds, from 1s to"
                    " 32767s"
                ),
                "spec.connectionPool.http2Keepalive.interval: is required",
                "spec.connectionPool.http2Keepalive.timeout: must be greater than 0s",
            ],
        ),
        ("healthCheck: {http: {}}", ["spec.healthCheck.http.path: is required"]),
        (
            "healthCheck: {http: {path: '/#'}}",
            ["spec.healthCheck.http.path: must have no fragment, is '/#'"],
        ),
        (
            "healthCheck: {http: {path: a, host: 'a b'}}",
            [
                "spec.healthCheck.http.path: must begin with /, is 'a'",
                (
                    "spec.healthCheck.http.host: must be a host name such as shop.example.com,"
                    " is 'a b'"
                ),
            ],
        ),
        (
            (
                "healthCheck: {http: {path: /, statuses: [{}, {first: 99}, {first: 300, last: 299},"
                " {first: 600, last: 600}]}}"
            ),
            [
                "spec.healthCheck.http.statuses[0].first: is required: a number from 100 to 599",
                "spec.healthCheck.http.statuses[1].first: must be from 100 to 599, is 99",
                "spec.healthCheck.http.statuses[2].last: must be from 300 to 599, is 299",
                "spec.healthCheck.http.statuses[3].first: must be from 100 to 599, is 600",
                "spec.healthCheck.http.statuses[3].last: must be from 600 to 599, is 600",
            ],
        ),
        (
            'healthCheck: {grpc: {service: "a\\n"}}',
            ["spec.healthCheck.grpc.service: must have no control characters, is 'a\\n'"],
        ),
    ],
)
def test_what_is_wrong_is_told_by_its_field(spec: str, expected: list[str]):
    """All of it at once."""
    assert broken(spec) == expected
