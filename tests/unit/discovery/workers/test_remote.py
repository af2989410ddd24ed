# SPDX-License-Identifier: Apache-2.0
"""What a parent believes of a stream that it does not have."""

from __future__ import annotations

import grpc

from pilothouse.api.envoy.config.core.v3 import base_pb2
from pilothouse.xds import resources
from pilothouse_discovery.workers import remote

URL = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
ONE, OTHER = resources.Snapshot(()), resources.Snapshot(())


def session(told: list[object]) -> remote.RemoteSession:
    """A session that notes what its worker is to be told."""
    return remote.RemoteSession(
        1,
        node=base_pb2.Node(id="a"),
        peer="p",
        push=lambda one, trace: told.append((one.stream.target, trace)),
        end=lambda one: told.append(one.ending),
    )


def at(target: resources.Snapshot, *, refusal: str | None = None) -> remote.Position:
    """A client that has answered all of a target."""
    place = remote.Place(acked=target, refusal=refusal, claimed=False)
    return remote.Position(
        target=target, arrived=True, idle=True, in_sync=refusal is None, places={URL: place}
    )


def test_a_new_target_is_unanswered_until_the_worker_tells_of_it() -> None:
    """What is told of the one before does not count."""
    told: list[object] = []
    one = session(told)
    assert one.stream.idle
    one.push(ONE, traceparent="t")
    assert (one.stream.idle, one.stream.in_sync) == (False, False)
    one.stream.stand(at(ONE))
    assert (one.stream.idle, one.stream.in_sync) == (True, True)
    assert one.stream.current is ONE
    assert one.stream.acked(URL) is ONE
    one.push(ONE)
    assert (one.stream.idle, one.stream.in_sync) == (True, True)
    one.push(OTHER)
    assert (one.stream.idle, one.stream.in_sync) == (False, False)
    assert one.stream.current is not OTHER
    assert one.stream.acked(URL) is ONE
    assert told == [(ONE, "t"), (OTHER, "")]


def test_a_refusal_is_told_in_the_client_s_words() -> None:
    """It is no acknowledgement, and nothing more is awaited."""
    one = session([])
    one.push(ONE)
    one.stream.stand(at(ONE, refusal="no"))
    assert one.stream.refusals == {URL: "no"}
    assert one.stream.idle
    assert not one.stream.in_sync
    assert one.stream.subscribed == (URL,)
    assert one.stream.acked("another") is resources.Snapshot.EMPTY


def test_the_first_end_counts() -> None:
    """As with a stream of this process."""
    told: list[object] = []
    one = session(told)
    one.end(grpc.StatusCode.UNAVAILABLE, "later")
    one.end(grpc.StatusCode.INTERNAL, "mistake")
    assert one.ending == (grpc.StatusCode.UNAVAILABLE, "later")
    assert told == [one.ending]


def test_targets_are_kept_while_a_worker_may_build_on_them() -> None:
    """From the one that it told of last."""
    one = session([])
    one.tell(1, ONE)
    one.tell(2, OTHER)
    assert one.told_of(1) is ONE
    assert one.told_of(2) is OTHER
    assert one.sent == [(2, OTHER)]
    assert one.told_of(1) is None


def test_a_client_that_never_answers_keeps_few_targets() -> None:
    """However many follow; the newest is among them."""
    one = session([])
    for number in range(1, 100):
        one.tell(number, resources.Snapshot(()))
    one.tell(100, OTHER)
    assert len(one.sent) == remote.KEPT
    assert one.told_of(1) is None
    assert one.told_of(100) is OTHER
    assert one.told_of(None) is None
