# SPDX-License-Identifier: Apache-2.0
"""Our judgement of regular expressions is Envoy's."""

import json
from pathlib import Path

import pytest

from pilothouse.adapters import process
from tests.support import patterns

pytestmark = pytest.mark.envoy

_MANAGER = (
    "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3"
    ".HttpConnectionManager"
)
_ROUTER = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"


def _write(path: Path, regexes: list[str]) -> Path:
    """A bootstrap whose routes match by these expressions; Envoy reads JSON as YAML."""
    routes = [
        {"match": {"safe_regex": {"regex": regex}}, "direct_response": {"status": 200}}
        for regex in regexes
    ]
    manager = {
        "@type": _MANAGER,
        "stat_prefix": "test",
        "route_config": {"virtual_hosts": [{"name": "v", "domains": ["*"], "routes": routes}]},
        "http_filters": [{"name": "router", "typed_config": {"@type": _ROUTER}}],
    }
    listener = {
        "name": "l",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
        "filter_chains": [{"filters": [{"name": "manager", "typed_config": manager}]}],
    }
    # What is tested is the grammar, so programs may be as large as RE2 makes them.
    runtime = {"name": "l", "static_layer": {"re2.max_program_size.error_level": 2**31}}
    bootstrap = {
        "static_resources": {"listeners": [listener]},
        "layered_runtime": {"layers": [runtime]},
    }
    path.write_text(json.dumps(bootstrap))
    return path


async def test_envoy_takes_every_expression_that_we_take(tmp_path: Path):
    """All of them in one configuration."""
    regexes = [regex for regex in patterns.GOOD if regex]
    bootstrap = _write(tmp_path / "bootstrap.yaml", regexes)
    await process.validate(bootstrap, envoy=process.find_envoy())


@pytest.mark.parametrize("regex", patterns.BAD)
async def test_envoy_refuses_every_expression_that_we_refuse(regex: str, tmp_path: Path):
    """Each in a configuration of its own, which Envoy refuses because of it."""
    bootstrap = _write(tmp_path / "bootstrap.yaml", [regex])
    with pytest.raises(process.BootstrapInvalidError):
        await process.validate(bootstrap, envoy=process.find_envoy())
