# SPDX-License-Identifier: Apache-2.0
"""The generated modules are whole, typed, and leave other distributions alone."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import pilothouse.api
from pilothouse.api.envoy.config.cluster.v3 import cluster_pb2
from tools import envoy_modules

API = Path(pilothouse.api.__file__).parent


def test_every_module_imports():
    for path in sorted(API.rglob("*_pb2*.py")):
        parts = path.relative_to(API).with_suffix("").parts
        importlib.import_module(".".join(["pilothouse.api", *parts]))


def test_every_folder_is_a_package_so_that_import_linter_sees_it():
    folders = {path.parent for path in API.rglob("*.py")}
    assert [f for f in folders if not (f / "__init__.py").exists()] == []


def test_every_messages_module_has_its_types():
    modules = list(API.rglob("*_pb2*.py"))
    assert [m for m in modules if not m.with_suffix(".pyi").exists()] == []


@pytest.mark.parametrize("proto", envoy_modules.roots())
def test_wanted_file_is_there(proto):
    assert (API / proto.replace(".proto", "_pb2.py")).exists()


def test_messages_keep_envoys_own_type_urls():
    assert cluster_pb2.Cluster.DESCRIPTOR.full_name == "envoy.config.cluster.v3.Cluster"


def test_otlp_exporter_lives_beside_our_modules():
    # In a process of its own: xds-protos, were it installed, would break this import.
    program = (
        "import pilothouse.api.envoy.service.discovery.v3.discovery_pb2\n"
        "import opentelemetry.exporter.otlp.proto.grpc.trace_exporter\n"
    )
    subprocess.run([sys.executable, "-W", "error::ImportWarning", "-c", program], check=True)


def test_up_to_date_modules_are_not_made_again():
    assert envoy_modules.up_to_date()
    assert envoy_modules.ensure() is False
