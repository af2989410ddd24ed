# SPDX-License-Identifier: Apache-2.0
"""Puts the mesh's access log into whatever serves requests and connections."""

from __future__ import annotations

import dataclasses

from pilothouse.routing import plan, routes


def logged(layer: plan.Layer, log: plan.AccessLog | None) -> plan.Layer:
    """The layer with the log; the same one when there is none, or nothing to log."""
    if log is None or not (layer.listeners or layer.tcp_forwards):
        return layer
    return dataclasses.replace(
        layer,
        listeners=tuple(_listener(one, log) for one in layer.listeners),
        tcp_forwards=tuple(
            dataclasses.replace(
                one, access_log=log, origins=routes.merge_origins(one.origins, log.origins)
            )
            for one in layer.tcp_forwards
        ),
    )


def _listener(listener: plan.Listener, log: plan.AccessLog) -> plan.Listener:
    return dataclasses.replace(
        listener,
        chains=tuple(_chain(chain, log) for chain in listener.chains),
        origins=routes.merge_origins(listener.origins, log.origins),
    )


def _chain(chain: plan.Chain, log: plan.AccessLog) -> plan.Chain:
    match chain.serves:
        case plan.Tcp():  # its forward has the log
            return chain
        case plan.Http() | plan.Udp() as serves:
            return dataclasses.replace(chain, serves=dataclasses.replace(serves, access_log=log))
