# SPDX-License-Identifier: Apache-2.0
"""The table of kinds."""

from pilothouse.config import codec, schema, validation
from pilothouse.model import keys


def test_the_kinds_are_those_of_the_api():
    """With the plurals that users type, and the type URLs that peers send."""
    assert {name: kind.plural for name, kind in schema.KINDS.items()} == {
        "DestinationPolicy": "destinationpolicies",
        "ExternalService": "externalservices",
        "MeshConfig": "meshconfigs",
        "MeshGateway": "meshgateways",
        "RouteRule": "routerules",
    }
    url = "type.googleapis.com/pilothouse.api.config.v1alpha1.RouteRule"
    assert schema.KINDS["RouteRule"].type_url == url
    assert schema.by_type_url(url) is schema.KINDS["RouteRule"]
    assert schema.by_type_url("type.googleapis.com/envoy.config.route.v3.Route") is None


def test_every_kind_has_rules():
    """A kind that nothing validates cannot be added by mistake."""
    for kind in schema.KINDS.values():
        key = keys.ObjectKey(kind=kind.name, namespace="default", name="a")
        validation.validate(codec.make(key, kind.spec(), source="test"))
