# SPDX-License-Identifier: Apache-2.0
"""The rules of a MeshConfig. Expected: the comments of its proto."""

import pytest

from pilothouse.config import validation
from tests.support import meshes


def broken(spec: str) -> list[str]:
    """The violations of a spec, as ``FIELD: MESSAGE``."""
    (config,) = meshes.defaults(spec).values()
    return [str(one) for one in validation.validate(config)]


@pytest.mark.parametrize(
    "spec",
    [
        "{}",
        "{tracing: {address: collector.example}}",
        "{accessLog: {path: /dev/stdout}}",
        "{accessLog: {path: /var/log/a, format: JSON}, outboundPolicy: ALLOW_ANY}",
        "{retry: {attempts: 0}, outboundPolicy: REGISTRY_ONLY}",
        "{connectTimeout: 1ms, tcpKeepalive: {}}",
        "{tcpKeepalive: {probes: 127, time: 1s, interval: 32767s}}",
        "{retry: {attempts: 3, retryOn: [5xx], perTryTimeout: 1s, backOff: {base: 10ms}}}",
    ],
)
def test_what_the_comments_allow_breaks_nothing(spec: str):
    """Each as it stands."""
    assert broken(spec) == []


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("{tracing: {}}", "spec.tracing.address: is required"),
        ("{tracing: {address: a, port: 0}}", "spec.tracing.port: must be from 1"),
        ("{tracing: {address: a, samplingPercent: 101}}", "spec.tracing.samplingPercent: must be"),
        ("{accessLog: {}}", "spec.accessLog.path: is required"),
        ("{accessLog: {path: log}}", "spec.accessLog.path: must be an absolute path, is 'log'"),
        ("{connectTimeout: 0s}", "spec.connectTimeout: must be greater than 0s"),
        ("{tcpKeepalive: {probes: 0}}", "spec.tcpKeepalive.probes: must be from 1 to 127, is 0"),
        ("{tcpKeepalive: {time: 1500ms}}", "spec.tcpKeepalive.time: must be whole seconds"),
        ("{retry: {attempts: 11}}", "spec.retry.attempts: must be at most 10, is 11"),
        ("{retry: {retryOn: [never]}}", "spec.retry.retryOn[0]: must be one of"),
    ],
)
def test_each_rule_is_told_by_its_field(spec: str, expected: str):
    """One violation, which begins with the field."""
    (found,) = broken(spec)
    assert found.startswith(expected)
