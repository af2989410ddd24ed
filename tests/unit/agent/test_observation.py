# SPDX-License-Identifier: Apache-2.0
"""What the agent concludes from the messages that pass."""

from typing import Any

import pytest
from google.rpc import status_pb2

from pilothouse.api.envoy.service.discovery.v3 import discovery_pb2
from pilothouse_agent import observation

CDS = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
LDS = "type.googleapis.com/envoy.config.listener.v3.Listener"


class Stream:
    """One stream of either variant, with an Envoy that answers as told."""

    def __init__(self, observer: observation.Observer, *, delta: bool) -> None:
        self._delta = delta
        self._observed = observer.stream(delta=delta)

    def response(self, type_url: str, nonce: str, *, version: str = "v1") -> None:
        message: Any
        if self._delta:
            message = discovery_pb2.DeltaDiscoveryResponse(
                type_url=type_url, nonce=nonce, system_version_info=version
            )
        else:
            message = discovery_pb2.DiscoveryResponse(
                type_url=type_url, nonce=nonce, version_info=version
            )
        self._observed.response(message.SerializeToString())

    def request(self, type_url: str, nonce: str = "", *, error: str = "") -> None:
        detail = status_pb2.Status(code=13, message=error) if error else None
        kind = (
            discovery_pb2.DeltaDiscoveryRequest if self._delta else discovery_pb2.DiscoveryRequest
        )
        message = kind(type_url=type_url, response_nonce=nonce, error_detail=detail)
        self._observed.request(message.SerializeToString())

    def garbage(self) -> None:
        self._observed.request(b"\xff\xff\xff")
        self._observed.response(b"\xff\xff\xff")


@pytest.fixture
def observer() -> observation.Observer:
    return observation.Observer()


@pytest.fixture(params=[True, False], ids=["delta", "sotw"])
def stream(observer: observation.Observer, request: pytest.FixtureRequest) -> Stream:
    return Stream(observer, delta=request.param)


def accept(stream: Stream, *types: str) -> None:
    for type_url in types:
        stream.request(type_url)
        stream.response(type_url, "n1")
        stream.request(type_url, "n1")


def test_both_required_types_are_missing_until_envoy_accepts_them(
    observer: observation.Observer, stream: Stream
):
    stream.request(CDS)
    assert observer.missing() == [
        "CDS: not received from discovery",
        "LDS: not received from discovery",
    ]
    stream.response(CDS, "n1")
    assert observer.missing()[0] == "CDS: sent to Envoy, which has not answered yet"
    stream.request(CDS, "n1")
    accept(stream, LDS)
    assert observer.missing() == []
    assert observer.types["CDS"].state is observation.State.ACCEPTED


def test_a_refusal_is_missing_with_envoys_words_and_stays_told_after_recovery(
    observer: observation.Observer, stream: Stream
):
    accept(stream, CDS)
    stream.response(LDS, "n1")
    stream.request(LDS, "n1", error="port  is\ntaken")
    assert observer.missing() == ["LDS: rejected by Envoy: port is taken"]
    stream.response(LDS, "n2", version="v2")
    stream.request(LDS, "n2")
    assert observer.missing() == []
    assert observer.types["LDS"].error == "port is taken"


def test_a_request_that_repeats_a_refused_nonce_accepts_nothing(
    observer: observation.Observer, stream: Stream
):
    stream.response(LDS, "n1")
    stream.request(LDS, "n1", error="bad")
    stream.request(LDS, "n1")
    assert observer.types["LDS"].state is observation.State.REJECTED
    assert observer.types["LDS"].accepted == 0


def test_a_nonce_of_another_stream_or_type_answers_nothing(
    observer: observation.Observer, stream: Stream
):
    stream.response(LDS, "n1")
    stream.request(CDS, "n1")
    stream.request(LDS, "n0")
    Stream(observer, delta=True).request(LDS, "n1")
    assert observer.types["LDS"].state is observation.State.SENT


def test_once_accepted_a_later_refusal_does_not_make_it_missing(
    observer: observation.Observer, stream: Stream
):
    accept(stream, CDS, LDS)
    stream.response(LDS, "n2", version="v2")
    stream.request(LDS, "n2", error="bad")
    assert observer.missing() == []


def test_a_new_envoy_process_has_accepted_nothing(observer: observation.Observer, stream: Stream):
    accept(stream, CDS, LDS)
    observer.proxy_started()
    assert len(observer.missing()) == 2
    assert observer.types["CDS"].accepted == 1


def test_only_another_version_of_the_same_type_is_a_change(
    observer: observation.Observer, stream: Stream
):
    accept(stream, CDS, LDS)
    assert observer.changes == 0
    accept(Stream(observer, delta=True), CDS, LDS)
    assert observer.changes == 0
    stream.response(CDS, "n2", version="v2")
    assert observer.changes == 1


def test_what_cannot_be_read_is_no_concern_of_ours(observer: observation.Observer, stream: Stream):
    stream.garbage()
    assert observer.types == {}


def test_a_type_without_a_short_name_is_called_by_its_own():
    assert observation.short_name("type.googleapis.com/a.b.C") == "a.b.C"
