# SPDX-License-Identifier: Apache-2.0
"""The gate has nothing against what validation lets through: objects with any odd values."""

from __future__ import annotations

import pytest

from pilothouse.envoy import translate
from pilothouse.envoy.gate import gate
from pilothouse.routing import planner
from tests.support import nasty_worlds as worlds


@pytest.mark.parametrize("seed", range(8))
def test_what_validation_lets_through_passes(seed: int) -> None:
    """For sidecars, gateways and gRPC applications; and every reference leads somewhere."""
    mesh, looked = planner.Planner().update(worlds.assembled(seed).state), gate.Gate()
    for client in (worlds.SIDECAR, worlds.APPLICATION, worlds.GATEWAY):
        snapshot = translate.Translator().snapshot(worlds.planned(mesh, client), {})
        report = looked.report(snapshot, grpc=client is worlds.APPLICATION)
        assert [str(fault) for fault in report.all] == []
