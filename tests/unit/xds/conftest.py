# SPDX-License-Identifier: Apache-2.0
"""What is said of one type holds on an aggregated stream and on a stream of its own (P4).

The tests of these modules run both ways, but for those that are about several types at once.
"""

import pytest

from tests.support import xds_peer, xds_separate

BOTH_WAYS = (
    *("test_answers", "test_subscriptions", "test_contents", "test_reconnect", "test_errors"),
    *("test_limits", "test_status", "test_streams"),
)
WAYS = ("aggregated", "separate")


def pytest_configure(config):
    config.addinivalue_line("markers", "aggregated: about several types on one stream")


def pytest_generate_tests(metafunc):
    if metafunc.module.__name__.rpartition(".")[2] in BOTH_WAYS:
        alone = metafunc.definition.get_closest_marker("aggregated")
        metafunc.parametrize("way", WAYS[:1] if alone else WAYS, indirect=True)


@pytest.fixture(autouse=True)
def way(request, monkeypatch):
    """How `xds_peer.connect` connects."""
    chosen = getattr(request, "param", WAYS[0])
    if chosen == "separate":
        monkeypatch.setattr(xds_peer, "connect", xds_separate.connect)
    return chosen
