# SPDX-License-Identifier: Apache-2.0
"""Durations, times and enums as YAML writes them."""

import pytest
from hypothesis import given, strategies

from pilothouse.api.config.v1alpha1 import destination_policy_pb2, mesh_gateway_pb2
from pilothouse.config import scalars


# Valid and invalid ones of Gateway API's GEP-2257.
@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0s", 0),
        ("0h", 0),
        ("1h", 3_600_000),
        ("30m", 1_800_000),
        ("10s", 10_000),
        ("500ms", 500),
        ("2h45m", 9_900_000),
        ("5s20m", 1_205_000),
        ("1h22m33s", 4_953_000),
        ("1h22m33s44ms", 4_953_044),
        ("10s10s10s", 30_000),
        ("99999h59m59s999ms", scalars.MAX_DURATION),
    ],
)
def test_a_duration_is_read_as_the_gateway_api_reads_it(text: str, milliseconds: int):
    """Parts in any order, each a whole number."""
    assert scalars.parse_duration(text) == milliseconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "s",
        "1d",
        "1h30m10s20ms50h",
        "999999h",
        "1.5h",
        "-15m",
        "+1s",
        "1 s",
        "1s ",
        "1S",
        "100us",
        "٣s",
        "99999h99999h",
    ],
)
def test_what_is_no_duration_says_how_one_is_written(text: str):
    """No sign, no fraction, at most four parts of five digits, no other units."""
    with pytest.raises(ValueError, match="must be"):
        scalars.parse_duration(text)


@given(strategies.integers(0, scalars.MAX_DURATION))
def test_a_formatted_duration_is_read_as_it_was(milliseconds: int):
    """Up to the longest there is."""
    assert scalars.parse_duration(scalars.format_duration(milliseconds)) == milliseconds


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2001-09-09T01:46:40Z", 1_000_000_000 * scalars.NANOSECONDS),
        ("2001-09-09t03:46:40.5+02:00", 1_000_000_000_500_000_000),
        ("2001-09-09T01:46:40.123456789Z", 1_000_000_000_123_456_789),
    ],
)
def test_a_time_is_read_as_in_rfc_3339(text: str, nanoseconds: int):
    """With its offset and its decimals."""
    assert scalars.parse_time(text) == nanoseconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2026-01-31",
        "2026-01-31T12:00:00",
        "2026-02-30T12:00:00Z",
        "2026-01-31T25:00:00Z",
        "2026-01-31 12:00:00Z",
        "1969-12-31T23:59:59Z",
        "1970-01-01T00:00:00+01:00",
    ],
)
def test_what_is_no_time_says_how_one_is_written(text: str):
    """A time needs an offset, and creation times begin in 1970."""
    with pytest.raises(ValueError, match="must"):
        scalars.parse_time(text)


@given(strategies.integers(0, (scalars.MAX_TIME + 1) * scalars.NANOSECONDS - 1))
def test_a_formatted_time_is_read_as_it_was(nanoseconds: int):
    """To the nanosecond."""
    assert scalars.parse_time(scalars.format_time(nanoseconds)) == nanoseconds


def test_the_words_of_an_enum_have_neither_prefix_nor_unspecified_value():
    """As the comments of the protos say."""
    policy = destination_policy_pb2.LoadBalancer.DESCRIPTOR.enum_types_by_name["Policy"]
    assert scalars.enum_words(policy) == {
        "LEAST_REQUEST": 1,
        "ROUND_ROBIN": 2,
        "RANDOM": 3,
        "RING_HASH": 4,
        "MAGLEV": 5,
    }
    protocol = mesh_gateway_pb2.Listener.DESCRIPTOR.enum_types_by_name["Protocol"]
    assert scalars.enum_words(protocol) == {"HTTP": 1, "HTTPS": 2, "TLS": 3, "TCP": 4, "UDP": 5}
    assert scalars.enum_word(protocol, 2) == "HTTPS"
    assert scalars.enum_word(protocol, 0) is None
    assert scalars.enum_word(protocol, 99) is None
