# SPDX-License-Identifier: Apache-2.0
"""Golden cases: the resources of whole plans, as people can review them; and Envoy accepts each.

A case's plan is in tests/support/envoy_plans.py, its resources in tests/golden/envoy/CASE.
"""

import json
import tempfile
from pathlib import Path

import pytest
import yaml
from google.protobuf import json_format

from pilothouse.adapters import process
from pilothouse.envoy import translate, wire
from pilothouse.model import secrets
from pilothouse.xds import resources, types
from tests.support import certificates, envoy_plans, envoy_static, golden

FILES = {
    "clusters.yaml": types.CLUSTER,
    "endpoints.yaml": types.ENDPOINT,
    "listeners.yaml": types.LISTENER,
    "routes.yaml": types.ROUTE,
    "extensions.yaml": types.EXTENSION,
}


def held(*names: secrets.SecretKey) -> dict[secrets.SecretKey, secrets.TlsSecret]:
    made = certificates.make("shop.example.com")
    return {
        name: secrets.TlsSecret(
            key=name,
            certificate_chain=made.certificate.encode(),
            private_key=made.private_key.encode(),
            authorities=made.certificate.encode(),
        )
        for name in names
    }


@pytest.fixture(scope="module", params=sorted(envoy_plans.CASES))
def case(request: pytest.FixtureRequest) -> tuple[str, resources.Snapshot]:
    proxy = envoy_plans.CASES[request.param]
    both = held(envoy_plans.SHOP_TLS, envoy_plans.API_TLS)
    return request.param, translate.Translator().snapshot(proxy, both)


def text(snapshot: resources.Snapshot, kind: types.ResourceType) -> str:
    """The resources of a type as YAML, with what they refer to and come from."""
    shown = [
        {
            "resource": json.loads(
                json_format.MessageToJson(message, preserving_proto_field_name=True)
            ),
            "references": [
                f"{url.rpartition('.')[2]} {name}" for url, name in sorted(held.references)
            ],
            "origins": [str(origin) for origin in held.origins],
        }
        for held, message in zip(
            snapshot.resources(kind.type_url).values(),
            envoy_static.messages(snapshot, kind),
            strict=True,
        )
    ]
    return yaml.safe_dump_all(shown, sort_keys=True, width=100) if shown else "# none\n"


@pytest.mark.golden
@pytest.mark.parametrize("file", FILES)
def test_the_resources_are_those_that_were_reviewed(
    case: tuple[str, resources.Snapshot], file: str
):
    """Each resource, what it refers to and what it comes from."""
    name, snapshot = case
    folder = golden.ROOT / "envoy" / name
    golden.check(folder, file, text(snapshot, FILES[file]))


def test_every_reference_leads_somewhere(case: tuple[str, resources.Snapshot]):
    """A snapshot is whole: what a resource needs is there."""
    assert case[1].missing_references() == ()


@pytest.mark.envoy
async def test_envoy_accepts_it(case: tuple[str, resources.Snapshot]):
    """Envoy itself checks every golden snapshot as it would at a start."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "envoy.pb"
        made = envoy_static.bootstrap(case[1], admin=Path(folder) / "admin")
        config.write_bytes(wire.encode(made))
        await process.validate(config, envoy=process.find_envoy())


def test_every_case_has_its_folder():
    """No folder is left of a case that is gone."""
    assert [path.name for path in golden.cases("envoy")] == sorted(envoy_plans.CASES)
