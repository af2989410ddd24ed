# SPDX-License-Identifier: Apache-2.0
"""Changes of headers, by a route or for one of its destinations.

Envoy makes the changes of a destination before those of its route, whatever it is told to do with
more specific ones. So a route whose destinations change something leaves its changes to them.
"""

from __future__ import annotations

import dataclasses
from typing import Final

from google.protobuf.internal import containers

from pilothouse.api.envoy.config.core.v3 import base_pb2
from pilothouse.api.envoy.config.route.v3 import route_components_pb2
from pilothouse.routing import plan, treatment

_Option = base_pb2.HeaderValueOption
_SET: Final = _Option.OVERWRITE_IF_EXISTS_OR_ADD
_ADD: Final = _Option.APPEND_IF_EXISTS_OR_ADD
_Options = containers.RepeatedCompositeFieldContainer[_Option]


def pushed_down(route: plan.Route) -> plan.Route:
    """The route, with its changes at its destinations if these have their own."""
    action, of = route.action, route.treatment
    if not isinstance(action, plan.Forward) or not any(map(changed, action.clusters)):
        return route
    shares = tuple(
        dataclasses.replace(
            share,
            request_headers=_merged(of.request_headers, share.request_headers),
            response_headers=_merged(of.response_headers, share.response_headers),
        )
        for share in action.clusters
    )
    left = dataclasses.replace(
        of, request_headers=treatment.UNCHANGED, response_headers=treatment.UNCHANGED
    )
    return dataclasses.replace(
        route, action=dataclasses.replace(action, clusters=shares), treatment=left
    )


def _merged(
    first: treatment.HeaderChanges, then: treatment.HeaderChanges
) -> treatment.HeaderChanges:
    """What two changes do, one after the other."""
    lost = {*then.remove, *(name for name, _ in then.set)}
    return treatment.HeaderChanges(
        remove=tuple(sorted({*first.remove, *then.remove})),
        set=(*(pair for pair in first.set if pair[0] not in lost), *then.set),
        add=(*(pair for pair in first.add if pair[0] not in lost), *then.add),
    )


def changed(by: plan.WeightedCluster) -> bool:
    """Whether a destination changes anything."""
    none = treatment.UNCHANGED
    if by.request_headers is none and by.response_headers is none:
        return False  # as nearly all; a look is cheaper than a comparison
    return by.request_headers != none or by.response_headers != none


def fill(
    made: route_components_pb2.Route | route_components_pb2.WeightedCluster.ClusterWeight,
    by: plan.WeightedCluster | treatment.Treatment,
) -> None:
    """The changes of a route or of one of its destinations."""
    made.request_headers_to_remove.extend(by.request_headers.remove)
    made.response_headers_to_remove.extend(by.response_headers.remove)
    _fill_values(made.request_headers_to_add, by.request_headers)
    _fill_values(made.response_headers_to_add, by.response_headers)


def _fill_values(made: _Options, changes: treatment.HeaderChanges) -> None:
    for action, pairs in ((_SET, changes.set), (_ADD, changes.add)):
        for name, value in pairs:
            option = made.add(append_action=action, keep_empty_value=True)
            option.header.key = name
            option.header.value = value.replace("%", "%%")  # else Envoy fills variables in
