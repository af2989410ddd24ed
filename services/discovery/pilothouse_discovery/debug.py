# SPDX-License-Identifier: Apache-2.0
"""Debug pages: what discovery holds, as JSON.

Bodies of resources are never shown: some are secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pilothouse.rollout import waves
from pilothouse_discovery import clients, engine, progress, statuses


def pages(
    connected: clients.Clients, builder: engine.Engine, tracker: progress.Progress
) -> Mapping[str, Callable[[], Any]]:
    """Path to what answers it."""
    return {
        "/debug/clients": lambda: [_client(client) for client in connected],
        "/debug/objects": lambda: [_object(state) for state in tracker.states.values()],
        "/debug/problems": lambda: _problems(builder),
        "/debug/sources": lambda: _sources(builder),
        "/debug/waves": lambda: [_wave(wave) for wave in tracker.under_way],
    }


def _client(client: clients.Client) -> dict[str, Any]:
    return {
        "node": str(client.proxy.id),
        "stream": client.id,
        "inSync": client.in_sync,
        "waitingFor": list(client.waiting_for),
        "types": [
            {
                "type": one.type_url,
                "asked": {"everything": one.wildcard, "names": one.names},
                "resources": one.resources,
                "sent": one.sent_version,
                "acked": one.acked_version,
                "awaited": one.awaited,
                "refused": client.refusals.get(one.type_url, ""),
            }
            for one in client.session.stream.types()
        ],
    }


def _object(state: statuses.ObjectState) -> dict[str, Any]:
    return {
        "object": str(state.key),
        "source": state.source,
        "generation": state.generation,
        "origins": [str(key) for key in state.origins],
        "conditions": [
            {"type": c.type, "status": c.status, "reason": c.reason, "message": c.message}
            for c in state.conditions
        ],
        "needed": state.counts.needed,
        "acked": state.counts.acked,
        "refused": state.counts.refused,
    }


def _wave(wave: waves.Wave) -> dict[str, Any]:
    return {
        "number": wave.number,
        "waitingFor": sorted(wave.pending),
        "acked": wave.acked,
        "refused": [outcome.proxy for outcome in wave.refused],
    }


def _problems(builder: engine.Engine) -> list[dict[str, str]]:
    problems = builder.world.problems if builder.world is not None else ()
    return [{"location": one.location, "message": one.message} for one in problems]


def _sources(builder: engine.Engine) -> dict[str, Any]:
    if builder.world is None:
        return {"unsynced": ["everything"]}
    state = builder.world.state
    return {
        "unsynced": sorted(state.unsynced),
        "services": len(state.services),
        "workloads": len(state.workloads),
        "configs": len(state.configs),
    }
