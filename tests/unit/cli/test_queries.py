# SPDX-License-Identifier: Apache-2.0
"""Verbs that ask discovery, when it is not there."""

import pytest
from typer import testing

from pilothouse.cli import app
from tests.support.agent import free_port


@pytest.mark.parametrize("verb", ["proxies", "get", "services"])
def test_without_discovery_a_verb_says_where_it_asked_and_how_to_ask_elsewhere(verb: str):
    """No traceback, and exit code 1: the answer could not be had."""
    address = f"127.0.0.1:{free_port()}"
    result = testing.CliRunner().invoke(app.app, [verb, "--discovery-address", address])

    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith(f"error: discovery at {address} does not answer: ")
    assert "--discovery-address" in result.stderr
