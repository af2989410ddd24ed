# SPDX-License-Identifier: Apache-2.0
"""The HTTP filters of listeners, and what a route says to them.

Every listener that routes by rules has every filter that a rule may need, switched off; a route
that needs one switches it on for itself. So a rule that is the first to need a filter changes
routes only: a change of a listener would close its connections (docs/adr/0030).
"""

from __future__ import annotations

import base64
from typing import Final

from google.protobuf import message, wrappers_pb2

from pilothouse.api.envoy.config.core.v3 import base_pb2
from pilothouse.api.envoy.config.route.v3 import route_components_pb2
from pilothouse.api.envoy.extensions.compression.gzip.compressor.v3 import gzip_pb2
from pilothouse.api.envoy.extensions.filters.http.buffer.v3 import buffer_pb2
from pilothouse.api.envoy.extensions.filters.http.compressor.v3 import compressor_pb2
from pilothouse.api.envoy.extensions.filters.http.cors.v3 import cors_pb2
from pilothouse.api.envoy.extensions.filters.http.dynamic_forward_proxy.v3 import (
    dynamic_forward_proxy_pb2,
)
from pilothouse.api.envoy.extensions.filters.http.fault.v3 import fault_pb2
from pilothouse.api.envoy.extensions.filters.http.header_mutation.v3 import header_mutation_pb2
from pilothouse.api.envoy.extensions.filters.http.local_ratelimit.v3 import local_rate_limit_pb2
from pilothouse.api.envoy.extensions.filters.http.router.v3 import router_pb2
from pilothouse.api.envoy.extensions.filters.network.http_connection_manager.v3 import (
    http_connection_manager_pb2,
)
from pilothouse.api.envoy.type.v3 import percent_pb2
from pilothouse.envoy import addresses, matches, wire
from pilothouse.routing import header_tests, treatment

_Filter = http_connection_manager_pb2.HttpFilter

_GRPC: Final = header_tests.HeaderMatch(
    name="content-type", kind="prefix", value="application/grpc"
)

CORS: Final = "envoy.filters.http.cors"
RATE_LIMIT: Final = "envoy.filters.http.local_ratelimit"
COMPRESSOR: Final = "envoy.filters.http.compressor"
BUFFER: Final = "envoy.filters.http.buffer"
_SHORTEST: Final = 1_024
"""Bytes of an answer that is worth being compressed."""
_LIMITED: Final = "rules"  # of the names of the filter's statistics
FAULT: Final = "envoy.filters.http.fault"
ASKED: Final = "envoy.filters.http.dynamic_forward_proxy"


def _off(name: str, config: message.Message) -> _Filter:
    return _Filter(name=name, typed_config=wire.packed(config), disabled=True)


def _compressor() -> compressor_pb2.Compressor:
    made = compressor_pb2.Compressor()
    made.compressor_library.name = "gzip"
    made.compressor_library.typed_config.CopyFrom(wire.packed(gzip_pb2.Gzip()))
    made.response_direction_config.common_config.min_content_length.value = _SHORTEST
    return made


def _with_key() -> _Filter:
    config = header_mutation_pb2.HeaderMutation()
    option = config.mutations.request_mutations.add().append
    option.header.key = "sec-websocket-key"
    option.header.value = base64.b64encode(b"without meaning.").decode()
    option.append_action = base_pb2.HeaderValueOption.ADD_IF_ABSENT
    return _Filter(name="envoy.filters.http.header_mutation", typed_config=wire.packed(config))


ROUTER: Final = _Filter(
    name="envoy.filters.http.router", typed_config=wire.packed(router_pb2.Router())
)
_HEADS: Final = (
    _off(CORS, cors_pb2.Cors()),
    _off(RATE_LIMIT, local_rate_limit_pb2.LocalRateLimit(stat_prefix=_LIMITED)),
    _off(FAULT, fault_pb2.HTTPFault()),
)
_BODIES: Final = (
    _off(BUFFER, buffer_pb2.Buffer(max_request_bytes=wrappers_pb2.UInt32Value(value=1))),
)
_ASKED: Final = _off(
    ASKED, dynamic_forward_proxy_pb2.FilterConfig(dns_cache_config=addresses.CACHE)
)
BY_RULES: Final = (*_HEADS, *_BODIES, _ASKED, ROUTER)
"""Of listeners that route by rules."""
AT_EDGE: Final = (*_HEADS, *_BODIES, _off(COMPRESSOR, _compressor()), ROUTER)
"""The same at gateways."""
WEBSOCKETS: Final = (*_HEADS, _with_key(), _ASKED, ROUTER)
"""The same for WebSockets. Over HTTP/2 they come without a key (RFC 8441, section 5), and a server
of HTTP/1.1 wants one (RFC 6455, section 4.2.1), to which nobody looks at the answer."""
UPGRADED: Final = (*_HEADS, _ASKED, ROUTER)
"""The same for connections that are no longer HTTP, and have no body that ends."""


def fill(made: route_components_pb2.Route, wanted: treatment.Treatment) -> None:
    """What a route says to filters."""
    if wanted.cors is not None:
        _put(made, CORS, _cors(wanted.cors))
    if wanted.rate_limit is not None:
        _put(made, RATE_LIMIT, _rate_limit(wanted.rate_limit))
    if wanted.max_request_bytes is not None:
        body = buffer_pb2.BufferPerRoute()
        body.buffer.max_request_bytes.value = wanted.max_request_bytes
        _put(made, BUFFER, body)
    if wanted.compress:
        compressed = compressor_pb2.CompressorPerRoute()
        compressed.overrides.response_direction_config.SetInParent()
        _put(made, COMPRESSOR, compressed)
    if wanted.fault is not None:
        _put(made, FAULT, _fault(wanted.fault))


def find_address(made: route_components_pb2.Route) -> None:
    """Have the address of the host found that a request is for, before it is sent there."""
    _put(made, ASKED, dynamic_forward_proxy_pb2.PerRouteConfig())


def _put(made: route_components_pb2.Route, name: str, config: message.Message) -> None:
    made.typed_per_filter_config[name].CopyFrom(wire.packed(config))


def _cors(wanted: treatment.Cors) -> cors_pb2.CorsPolicy:
    made = cors_pb2.CorsPolicy(
        allow_methods=",".join(wanted.methods),
        allow_headers=",".join(wanted.headers),
        expose_headers=",".join(wanted.exposed),
        max_age="" if wanted.max_age_s is None else str(wanted.max_age_s),
    )
    made.allow_credentials.value = wanted.credentials
    made.forward_not_matching_preflights.value = wanted.forward_unmatched
    for origin in wanted.origins:
        matches.fill_string(made.allow_origin_string_match.add(), origin.kind, origin.value)
    return made


def _rate_limit(wanted: treatment.RateLimit) -> local_rate_limit_pb2.LocalRateLimit:
    made = local_rate_limit_pb2.LocalRateLimit(
        stat_prefix=_LIMITED, rate_limited_as_resource_exhausted=True
    )
    made.token_bucket.max_tokens = wanted.burst
    made.token_bucket.tokens_per_fill.value = wanted.requests
    made.token_bucket.fill_interval.CopyFrom(wire.duration(wanted.per_ms))
    for share in (made.filter_enabled, made.filter_enforced):
        share.default_value.CopyFrom(millionths(1_000_000))  # unset is none
    return made


def _fault(wanted: treatment.Fault) -> fault_pb2.HTTPFault:
    made = fault_pb2.HTTPFault()
    if wanted.delay_millionths:
        made.delay.fixed_delay.CopyFrom(wire.duration(wanted.delay_ms))
        made.delay.percentage.CopyFrom(millionths(wanted.delay_millionths))
    if wanted.abort_millionths:
        if wanted.abort_grpc:
            # Envoy would answer others with 200.
            matches.fill_header(made.headers.add(), _GRPC)
            made.abort.grpc_status = wanted.abort_grpc
        else:
            made.abort.http_status = wanted.abort_http
        made.abort.percentage.CopyFrom(millionths(wanted.abort_millionths))
    for header in wanted.headers:
        matches.fill_header(made.headers.add(), header)
    return made


def millionths(share: int) -> percent_pb2.FractionalPercent:
    """A share of a million."""
    return percent_pb2.FractionalPercent(
        numerator=share, denominator=percent_pb2.FractionalPercent.MILLION
    )
