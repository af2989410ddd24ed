# SPDX-License-Identifier: Apache-2.0
"""Which chain a connection gets: one question after the other, and the first yes decides.

Server names are compared in lower case, as Envoy's inspector hands them over.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Final

from google.protobuf import message as messages
from google.protobuf import wrappers_pb2

from pilothouse.api.envoy.extensions.matching.common_inputs.network.v3 import network_inputs_pb2
from pilothouse.api.envoy.extensions.matching.input_matchers.ip.v3 import ip_pb2
from pilothouse.api.xds.core.v3 import extension_pb2
from pilothouse.api.xds.type.matcher.v3 import matcher_pb2
from pilothouse.envoy import wire
from pilothouse.routing import accepting, plan

_Predicate = matcher_pb2.Matcher.MatcherList.Predicate


def _input(config: messages.Message) -> extension_pb2.TypedExtensionConfig:
    name = config.DESCRIPTOR.name
    return extension_pb2.TypedExtensionConfig(name=name, typed_config=wire.packed(config))


_SERVER_NAME: Final = _input(network_inputs_pb2.ServerNameInput())
_TRANSPORT: Final = _input(network_inputs_pb2.TransportProtocolInput())
_DESTINATION: Final = _input(network_inputs_pb2.DestinationIPInput())
_SOURCE: Final = _input(network_inputs_pb2.SourceIPInput())
_TLS: Final = "tls"
"""What Envoy's inspector calls a connection that begins with a TLS handshake."""


def inspects(choices: Iterable[plan.Choice]) -> bool:
    """True when the first bytes of a connection must be known to choose."""
    return any(
        one.match.server_names or one.match.unnamed or one.match.tls is not None for one in choices
    )


def matcher(choices: Sequence[plan.Choice]) -> matcher_pb2.Matcher:
    """The questions in order; a connection that none takes is closed."""
    made = matcher_pb2.Matcher()
    for choice in choices:
        conditions = _conditions(choice.match)
        action = _action(choice.chain)
        if not conditions:  # takes all that is left
            made.on_no_match.action.CopyFrom(action)
            break
        question = made.matcher_list.matchers.add()
        question.predicate.CopyFrom(_all(conditions))
        question.on_match.action.CopyFrom(action)
    return made


def _action(chain: str) -> extension_pb2.TypedExtensionConfig:
    named = wire.packed(wrappers_pb2.StringValue(value=chain))
    return extension_pb2.TypedExtensionConfig(name="chain", typed_config=named)


def _conditions(match: accepting.ChainMatch) -> list[matcher_pb2.Matcher.MatcherList.Predicate]:
    found = []
    if match.server_names:
        found.append(_any(map(_server_name, match.server_names)))
    if match.unnamed:
        named = _Predicate()
        named.single_predicate.input.CopyFrom(_SERVER_NAME)
        named.single_predicate.value_match.safe_regex.regex = ".+"
        named.single_predicate.value_match.safe_regex.google_re2.SetInParent()
        found.append(_Predicate(not_matcher=named))
    if match.destinations:
        found.append(_networks(_DESTINATION, match.destinations))
    if match.sources:
        found.append(_networks(_SOURCE, match.sources))
    if match.tls is not None:
        is_tls = _Predicate()
        is_tls.single_predicate.input.CopyFrom(_TRANSPORT)
        is_tls.single_predicate.value_match.exact = _TLS
        found.append(is_tls if match.tls else _Predicate(not_matcher=is_tls))
    return found


def _server_name(name: str) -> matcher_pb2.Matcher.MatcherList.Predicate:
    made = _Predicate()
    made.single_predicate.input.CopyFrom(_SERVER_NAME)
    if name.startswith("*."):
        made.single_predicate.value_match.suffix = name[1:]
    else:
        made.single_predicate.value_match.exact = name
    return made


def _networks(
    of: extension_pb2.TypedExtensionConfig, networks: Iterable[str]
) -> matcher_pb2.Matcher.MatcherList.Predicate:
    config = ip_pb2.Ip(stat_prefix="chains")
    for written in networks:
        network = ipaddress.ip_network(written)
        made = config.cidr_ranges.add(address_prefix=str(network.network_address))
        made.prefix_len.value = network.prefixlen
    predicate = _Predicate()
    predicate.single_predicate.input.CopyFrom(of)
    predicate.single_predicate.custom_match.name = "envoy.matching.matchers.ip"
    predicate.single_predicate.custom_match.typed_config.CopyFrom(wire.packed(config))
    return predicate


def _all(
    predicates: Sequence[matcher_pb2.Matcher.MatcherList.Predicate],
) -> matcher_pb2.Matcher.MatcherList.Predicate:
    if len(predicates) == 1:  # Envoy wants at least two in a list
        return predicates[0]
    return _Predicate(and_matcher=_Predicate.PredicateList(predicate=predicates))


def _any(
    predicates: Iterable[matcher_pb2.Matcher.MatcherList.Predicate],
) -> matcher_pb2.Matcher.MatcherList.Predicate:
    several = tuple(predicates)
    if len(several) == 1:
        return several[0]
    return _Predicate(or_matcher=_Predicate.PredicateList(predicate=several))
