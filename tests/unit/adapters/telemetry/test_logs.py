# SPDX-License-Identifier: Apache-2.0
"""Logs: one JSON object a line on stderr, whoever made the record."""

import json
import logging
import subprocess
import sys
import warnings
from collections.abc import Iterator

import pytest
import structlog

from pilothouse.adapters import telemetry


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def lines(capsys: pytest.CaptureFixture[str]):
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_our_records_and_those_of_the_standard_library_are_json_with_the_service(
    capsys: pytest.CaptureFixture[str],
):
    telemetry.configure_logging("discovery", "info")
    structlog.contextvars.bind_contextvars(node="n1")
    structlog.get_logger("ours").info("listener added", port=80)
    logging.getLogger("theirs").warning("took %d s", 3)

    ours, theirs = lines(capsys)
    assert (ours["event"], ours["port"], ours["level"]) == ("listener added", 80, "info")
    assert (ours["service"], ours["node"], ours["logger"]) == ("discovery", "n1", "ours")
    assert (theirs["event"], theirs["level"], theirs["service"]) == (
        "took 3 s",
        "warning",
        "discovery",
    )
    assert theirs["node"] == "n1"


def test_a_record_below_the_level_is_not_written(capsys: pytest.CaptureFixture[str]):
    telemetry.configure_logging("agent", "warning")
    structlog.get_logger().info("hidden")
    logging.getLogger("theirs").info("hidden")
    assert lines(capsys) == []


def test_an_exception_stays_one_line(capsys: pytest.CaptureFixture[str]):
    telemetry.configure_logging("agent", "info")
    try:
        int("bad port")
    except ValueError:
        structlog.get_logger().exception("failed")
    (record,) = lines(capsys)
    assert "ValueError: invalid literal" in record["exception"]


def test_a_second_configuration_replaces_the_first(capsys: pytest.CaptureFixture[str]):
    telemetry.configure_logging("agent", "info")
    telemetry.configure_logging("agent", "info")
    structlog.get_logger().info("once")
    assert len(lines(capsys)) == 1


def test_console_is_for_people(capsys: pytest.CaptureFixture[str]):
    telemetry.configure_logging("agent", "info", format="console")
    structlog.get_logger().info("listener added", port=80)
    assert "listener added" in capsys.readouterr().err


def test_a_level_nobody_knows_is_refused():
    with pytest.raises(ValueError, match="loud"):
        telemetry.configure_logging("agent", "loud")


def test_warnings_are_records(capsys: pytest.CaptureFixture[str]):
    telemetry.configure_logging("agent", "info")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=False)
        logging.captureWarnings(capture=True)
        warnings.warn("old", DeprecationWarning, stacklevel=1)
    assert "DeprecationWarning: old" in lines(capsys)[0]["event"]


def test_a_record_made_inside_a_span_names_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    telemetry.configure_logging("agent", "info")
    tracing = telemetry.tracer_provider("agent", "1")
    with tracing.span("push") as span:
        structlog.get_logger().info("inside")
        expected = f"{span.get_span_context().trace_id:032x}"
    assert lines(capsys)[0]["trace_id"] == expected


def test_tracing_that_is_off_loads_no_exporter():
    code = (
        "import sys; from pilothouse.adapters import telemetry;"
        "t = telemetry.tracer_provider('x', '1');"
        "telemetry.client_interceptors(t); telemetry.server_interceptors(t);"
        "bad = [m for m in sys.modules if m.startswith(('opentelemetry.exporter',"
        " 'opentelemetry.instrumentation'))]; sys.exit(str(bad) if bad else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env={}
    )
    assert (done.returncode, done.stderr) == (0, "")
