# SPDX-License-Identifier: Apache-2.0
"""Prometheus' text format, as its own parser reads it."""

from prometheus_client import parser

from pilothouse.adapters.rpc import exposition


def test_prometheus_reads_what_is_written():
    """Names, types, help, labels and values come back, odd characters included."""
    odd = 'a"b\\c\nd'
    text = exposition.text(
        [
            exposition.Metric(name="x_total", kind="counter", help="One\nline.", values={"": 3}),
            exposition.Metric(
                name="y", kind="gauge", help="G.", label="kind", values={odd: 1.5, "b": 2}
            ),
        ]
    )
    counter, gauge = parser.text_string_to_metric_families(text)
    assert (counter.type, counter.documentation) == ("counter", "One\nline.")
    assert [(one.name, one.labels, one.value) for one in counter.samples] == [("x_total", {}, 3)]
    assert [(one.labels, one.value) for one in gauge.samples] == [
        ({"kind": odd}, 1.5),
        ({"kind": "b"}, 2),
    ]


def test_large_numbers_are_not_rounded():
    """A counter that grows beyond six digits still says each step."""
    metric = exposition.Metric(name="x", kind="gauge", help="X.", values={"": 12_345_678})
    (family,) = parser.text_string_to_metric_families(exposition.text([metric]))
    assert family.samples[0].value == 12_345_678
