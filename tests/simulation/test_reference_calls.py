# SPDX-License-Identifier: Apache-2.0
"""What objects document and what gRPC applications without a proxy are told say the same of calls.

See `test_reference.py` for the idea; here the one reader knows docs/reference/grpc.md, the other
what gRPC clients do with their resources.
"""

from __future__ import annotations

import pytest

from tests.support import reference_calls as calls
from tests.support import reference_planned as planned
from tests.support import reference_worlds as worlds


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_what_is_documented_is_what_applications_are_told(first: int) -> None:
    """Route, shares, statuses, timeouts, retries and faults."""
    taken = 0
    for seed in range(first, first + 20):
        world, asked = worlds.case(seed, requests=24, rules=1 + seed % 5)
        told = planned.Planned(world)
        for number, (client, request) in enumerate(asked):
            if client.port is None:
                call = calls.call(request, number)
                said = calls.documented(world, client, call)
                made = calls.Application(told, client).fate(call)
                assert said == made, (seed, client, call)
                taken += said is not None and said.route.startswith("RouteRule/")
    assert taken > 20, "calls meet rules"
