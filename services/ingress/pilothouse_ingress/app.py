# SPDX-License-Identifier: Apache-2.0
"""The composition root of ingress: makes the parts, runs them, and stops them in order."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import structlog

from pilothouse import buildinfo
from pilothouse.adapters import commandline, telemetry
from pilothouse.adapters.files import folder, manifests
from pilothouse.adapters.rpc import (
    config_source,
    derived_status,
    publisher,
    serving,
    source_service,
    web,
)
from pilothouse.kubernetes import ingress
from pilothouse.model import changes, keys
from pilothouse_ingress import programmed, settings

_LOG = structlog.get_logger(__name__)


def main(arguments: Sequence[str]) -> int:
    """Run ingress; the exit code: 0 after a signal, 1 when it cannot start, 2 for wrong use."""
    try:
        chosen = settings.read(arguments)
    except commandline.UsageError as error:
        print(error, file=sys.stderr)  # noqa: T201 - wrong use is for the terminal, not for a log
        return 2
    telemetry.configure_logging(settings.PROGRAM, chosen.log_level, format=chosen.log_format)
    return serving.run_program(lambda: _run(chosen))


async def _run(chosen: settings.Settings) -> None:
    tracing = telemetry.tracer_provider(settings.PROGRAM, buildinfo.version())
    try:
        with serving.stop_signals() as stop:
            await Ingress(chosen, tracing).service.run(stop)
    finally:
        await tracing.shutdown()


class Ingress:
    """One ingress service."""

    def __init__(self, chosen: settings.Settings, tracing: telemetry.Telemetry) -> None:
        """Wire everything; nothing is opened before `service.run`."""
        self._conversion = chosen.conversion
        self._telemetry = tracing
        self._output = ingress.IngressOutput(configs=(), conditions={})
        self._herald = programmed.Herald()
        self._pending = source_service.Pending()
        self.folder = folder.Folder(chosen.config, on_change=self._file_change)
        self.manifests = manifests.FileManifests(self.folder)
        self.manifests.subscribe(self._pending.add)
        self.discovery = config_source.ConfigStreamClient(
            "discovery",
            serving.Address.parse(chosen.discovery_address),
            node_id=chosen.node_id,
            kinds=(),
            statuses=True,
        )
        self.discovery.on_status(lambda _: self._herald.tell(self.ingresses()))
        self.publisher = publisher.ConfigPublisher()
        self.service = source_service.SourceService(
            name="ingress",
            publisher=self.publisher,
            upstream=self.discovery,
            loops={"folder": self.folder.run, "convert": self._keep_converting},
            ready=self._ready,
            debug={"/debug/ingresses": self._page, "/debug/problems": self._problems},
            grpc_address=serving.Address.parse(chosen.grpc_address),
            http_address=serving.Address.parse(chosen.http_address),
            interceptors=telemetry.server_interceptors(tracing),
            grace=chosen.shutdown_grace,
        )

    def ingresses(self) -> tuple[derived_status.OriginStatus, ...]:
        """How each Ingress of ours stands, in key order."""
        return derived_status.trace_back(
            self._output.conditions, self._output.configs, self.discovery.statuses()
        )

    def _file_change(self, changed: tuple[keys.ObjectKey, ...]) -> str:
        """A change in the folder begins a trace."""
        attributes = {"pilothouse.objects": [str(key) for key in changed[:20]]}
        with self._telemetry.span("ingress.change", parent="", attributes=attributes):
            return telemetry.current_traceparent()

    async def _keep_converting(self) -> None:
        while True:
            changed = await self._pending.take()
            # What is not known whole yet must not be published as the whole.
            if self.manifests.current().synced:
                await self._convert(changed)

    async def _convert(self, changed: Sequence[changes.Change]) -> None:
        traces = [change.traceparent for change in changed if change.traceparent]
        parent, links = (traces[0] if traces else ""), traces[1:]
        before = self._output
        with self._telemetry.span("ingress.convert", parent=parent, links=links):
            state = self.manifests.current().with_settings(self._conversion)
            # Thousands of Ingresses take their time, and streams shall not wait for it.
            self._output = await asyncio.to_thread(ingress.convert, state)
        with self._telemetry.span("ingress.publish", parent=parent, links=links) as span:
            difference = self.publisher.publish(
                self._output.configs, traceparent=telemetry.current_traceparent()
            )
            span.set_attribute("pilothouse.changed", len(difference.changed))
            span.set_attribute("pilothouse.removed", len(difference.removed))
        self._report(before, difference)
        self._herald.tell(self.ingresses())

    def _report(self, before: ingress.IngressOutput, difference: publisher.Difference) -> None:
        if difference:
            _LOG.info(
                "published",
                ingresses=len(self._output.conditions),
                changed=[str(key) for key in difference.changed],
                removed=[str(key) for key in difference.removed],
            )
        for key, conditions in self._output.conditions.items():
            new = set(conditions) - set(before.conditions.get(key, ()))
            for condition in sorted(new, key=lambda one: one.type):
                # Accepted and ResolvedRefs are news when False, warnings when True.
                if condition.message:
                    _LOG.warning(
                        "ingress has a problem",
                        object=str(key),
                        condition=condition.type,
                        reason=condition.message,
                    )

    def _ready(self) -> Sequence[web.Check]:
        """Ready once the folder has been read.

        Discovery need not be there: it reads from here when it comes.
        """
        synced = self.manifests.current().synced
        message = "" if synced else f"{self.folder.path} has not been read yet"
        return (web.Check(name="folder", ok=synced, message=message),)

    def _page(self) -> list[dict[str, Any]]:
        """How each Ingress stands."""
        return [each.as_json() for each in self.ingresses()]

    def _problems(self) -> list[dict[str, Any]]:
        """What is wrong in the folder."""
        return [
            {
                "location": each.location,
                "object": str(each.key) if each.key else None,
                "message": each.message,
            }
            for each in self.folder.problems
        ]
