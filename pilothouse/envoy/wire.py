# SPDX-License-Identifier: Apache-2.0
"""What every translator of this room uses: encoding, durations, and where Envoy gets the rest."""

from __future__ import annotations

from typing import Final

from google.protobuf import any_pb2, duration_pb2, message

from pilothouse.api.envoy.config.core.v3 import address_pb2, config_source_pb2

DEFAULT_TIMEOUT_SECONDS: Final = 15

# One value for all: Envoy takes a changed config source for another provider, and asks anew. The
# timeout is Envoy's own default, written down because everything else of a proxy's start waits for
# it: a resource that never comes must not stop a proxy for good.
ADS: Final = config_source_pb2.ConfigSource(
    ads=config_source_pb2.AggregatedConfigSource(),
    resource_api_version=config_source_pb2.V3,
    initial_fetch_timeout=duration_pb2.Duration(seconds=DEFAULT_TIMEOUT_SECONDS),
)
"""From the stream that the resource itself came on."""


def encode(value: message.Message) -> bytes:
    """The bytes of a message; equal messages have equal bytes."""
    return value.SerializeToString(deterministic=True)


def packed(value: message.Message) -> any_pb2.Any:
    """A message of an extension, as Envoy finds it: by its type URL."""
    return any_pb2.Any(
        type_url=f"type.googleapis.com/{value.DESCRIPTOR.full_name}", value=encode(value)
    )


def duration(milliseconds: int) -> duration_pb2.Duration:
    """A duration of so many milliseconds; 0 is a duration too, not an unset one."""
    seconds, rest = divmod(milliseconds, 1000)
    return duration_pb2.Duration(seconds=seconds, nanos=rest * 1_000_000)


def address(host: str, port: int) -> address_pb2.Address:
    """A TCP address."""
    return address_pb2.Address(
        socket_address=address_pb2.SocketAddress(address=host, port_value=port)
    )
