# SPDX-License-Identifier: Apache-2.0
"""The server's half of a config source: a set of objects, kept with everybody who reads it.

Until the first set is published, subscribers wait: "nothing known yet" is never sent as "nothing".
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Iterable, Mapping

import structlog

from pilothouse.adapters.rpc import streams, trace_metadata
from pilothouse.config import codec, objects
from pilothouse.model import keys
from pilothouse.xds import resources, types
from pilothouse.xds import streams as xds_streams

_LOG = structlog.get_logger(__name__)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """One reader."""

    node: str
    """Its node id."""
    peer: str
    """Its address."""
    in_sync: bool
    """True when it has acknowledged everything that it asked for."""
    errors: Mapping[str, str]
    """Its words, by type URL, where it refused the newest response."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What a set changed in the one before."""

    changed: tuple[keys.ObjectKey, ...] = ()
    """New or different, sorted."""
    removed: tuple[keys.ObjectKey, ...] = ()
    """Gone, sorted."""

    def __bool__(self) -> bool:
        """True when anything changed."""
        return bool(self.changed or self.removed)


class ConfigPublisher:
    """Implements `streams.StreamHost`."""

    def __init__(self) -> None:
        self._held: dict[keys.ObjectKey, tuple[objects.Config, resources.Resource]] = {}
        self._snapshot: resources.Snapshot | None = None
        self._sessions: dict[streams.Session, None] = {}
        self._first = asyncio.Event()
        self.refusals = 0
        """Responses that subscribers refused so far."""
        self.responses = 0
        """Responses written so far."""
        self.resources_sent = 0
        """Resources in them."""

    @property
    def published(self) -> bool:
        """True once there is a set to serve."""
        return self._snapshot is not None

    async def first(self) -> None:
        """Return when there is a set to serve."""
        await self._first.wait()

    @property
    def configs(self) -> tuple[objects.Config, ...]:
        """The present set, in key order."""
        return tuple(config for config, _ in self._held.values())

    @property
    def subscribers(self) -> tuple[Subscriber, ...]:
        """The connected readers, in the order in which they came."""
        return tuple(
            Subscriber(
                node=session.node.id,
                peer=session.peer,
                in_sync=session.stream.in_sync,
                errors={each.type_url: each.error for each in session.stream.types() if each.error},
            )
            for session in self._sessions
        )

    def publish(self, configs: Iterable[objects.Config], *, traceparent: str = "") -> Difference:
        """Make `configs` the set that everybody shall hold, and say what that changes.

        Args:
            configs: all objects, in any order; two of one key are a ValueError.
            traceparent: the W3C trace context that goes with what is new, different or gone. The
                rest keeps its own, and a new trace alone sends nothing.
        """
        given = sorted(configs, key=lambda config: config.key)
        now = {config.key: self._resource(config, traceparent) for config in given}
        if len(now) != len(given):
            twice = sorted({str(a.key) for a, b in itertools.pairwise(given) if a.key == b.key})
            raise ValueError(f"published twice: {', '.join(twice)}")
        before, self._held = self._held, now
        difference = Difference(
            changed=tuple(
                key
                for key, (_, made) in now.items()
                if key not in before or before[key][1].version != made.version
            ),
            removed=tuple(key for key in before if key not in now),
        )
        self._first.set()
        if difference or self._snapshot is None:
            layer = resources.Layer.of(made for _, made in now.values())
            self._snapshot = resources.Snapshot.of([layer])
            for session in self._sessions:
                session.push(self._snapshot, traceparent=traceparent)
        return difference

    def _resource(
        self, config: objects.Config, traceparent: str
    ) -> tuple[objects.Config, resources.Resource]:
        """The resource of a config; the one there is, if it still says the same."""
        held = self._held.get(config.key)
        if held is not None and held[0] is config:
            return held
        type_url, name, body = codec.encode(config)
        if held is not None and held[1].body == body:
            return config, held[1]
        made = resources.Resource.of(
            type_url,
            name,
            body,
            origins=(config.key,),
            metadata=trace_metadata.encode(traceparent),
        )
        return config, made

    def opened(self, session: streams.Session) -> None:
        """A reader has come."""
        self._sessions[session] = None
        _LOG.info("subscriber connected", node=session.node.id, peer=session.peer)
        if self._snapshot is not None:
            session.push(self._snapshot)

    def events(self, session: streams.Session, events: tuple[xds_streams.Event, ...]) -> None:
        """A reader has answered."""
        for event in events:
            if isinstance(event, xds_streams.Nacked):
                self.refusals += 1
                _LOG.warning(
                    "subscriber refused",
                    node=session.node.id,
                    type=types.of(event.type_url).short,
                    reason=event.message,
                )

    def sent(self, session: streams.Session, response: xds_streams.Response) -> None:
        """A response is out."""
        self.responses += 1
        self.resources_sent += response.resources
        _LOG.debug(
            "response sent",
            node=session.node.id,
            type=types.of(response.type_url).short,
            resources=response.resources,
            removed=response.removed,
        )

    def closed(self, session: streams.Session) -> None:
        """A reader has gone."""
        self._sessions.pop(session, None)
        _LOG.info("subscriber gone", node=session.node.id)
