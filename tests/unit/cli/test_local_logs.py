# SPDX-License-Identifier: Apache-2.0
"""Logs of services as people read them."""

import json

from pilothouse.cli.local import logs


def test_a_json_line_becomes_its_level_its_event_and_what_it_is_about():
    line = json.dumps(
        {
            "event": "envoy ended",
            "level": "error",
            "code": 137,
            "hint": "killed",
            "timestamp": "2026-11-30T17:33:36Z",
            "service": "pilothouse-agent",
            "node": "sidecar~127.40.1.1~a.b~c",
            "logger": "pilothouse_agent.app",
        }
    )
    assert logs.readable(line) == ["error: envoy ended code=137 hint=killed"]


def test_a_traceback_gets_its_lines_back():
    line = json.dumps(
        {"event": "failed", "level": "error", "exception": "Traceback:\n  x\nKeyError"}
    )

    assert logs.readable(line) == ["error: failed", "Traceback:", "  x", "KeyError"]


def test_what_is_no_log_line_of_ours_stays_as_it_is():
    for line in ("plain words", "{broken", '["a", "list"]', '{"no": "event"}', ""):
        assert logs.readable(line) == [line]


def test_the_end_of_a_log_is_indented_and_as_long_as_asked():
    assert logs.tail("a\nb\nc", lines=2) == "    b\n    c"
    assert logs.tail("") == "    (its log is empty)"
