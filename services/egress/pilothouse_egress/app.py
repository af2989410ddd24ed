# SPDX-License-Identifier: Apache-2.0
"""The composition root of egress: makes the parts, runs them, and stops them in order."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import structlog

from pilothouse import buildinfo
from pilothouse.adapters import commandline, telemetry
from pilothouse.adapters.rpc import (
    config_source,
    derived_status,
    publisher,
    serving,
    source_service,
    web,
)
from pilothouse.model import changes
from pilothouse_egress import derive, settings

_LOG = structlog.get_logger(__name__)


def main(arguments: Sequence[str]) -> int:
    """Run egress; the exit code: 0 after a signal, 1 when it cannot start, 2 for wrong use."""
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
            await Egress(chosen, tracing).service.run(stop)
    finally:
        await tracing.shutdown()


class Egress:
    """One egress service."""

    def __init__(self, chosen: settings.Settings, tracing: telemetry.Telemetry) -> None:
        """Wire everything; nothing is opened before `service.run`."""
        self._gateway = chosen.gateway
        self._telemetry = tracing
        self._derived = derive.Derived(configs=(), conditions={})
        self._pending = source_service.Pending()
        self.discovery = config_source.ConfigStreamClient(
            "discovery",
            serving.Address.parse(chosen.discovery_address),
            node_id=chosen.node_id,
            kinds=("ExternalService",),
            statuses=True,
        )
        self.discovery.subscribe(self._pending.add)
        self.publisher = publisher.ConfigPublisher()
        self.service = source_service.SourceService(
            name="egress",
            publisher=self.publisher,
            upstream=self.discovery,
            loops={"derive": self._keep_deriving},
            ready=self._ready,
            debug={"/debug/externalservices": self._page},
            grpc_address=serving.Address.parse(chosen.grpc_address),
            http_address=serving.Address.parse(chosen.http_address),
            interceptors=telemetry.server_interceptors(tracing),
            grace=chosen.shutdown_grace,
        )

    async def _keep_deriving(self) -> None:
        while True:
            changed = await self._pending.take()
            # What is not known whole yet must not be published as the whole.
            if self.discovery.current().synced:
                self._derive(changed)

    def _derive(self, changed: Sequence[changes.Change]) -> None:
        traces = [change.traceparent for change in changed if change.traceparent]
        keys = sorted({str(key) for change in changed for key in change.keys})
        with self._telemetry.span(
            "egress.change",
            parent=traces[0] if traces else "",
            links=traces[1:],
            attributes={"pilothouse.objects": keys[:20]},
        ):
            with self._telemetry.span("egress.derive"):
                state = self.discovery.current()
                before, self._derived = (
                    self._derived,
                    derive.derive(state.configs.values(), self._gateway),
                )
            with self._telemetry.span("egress.publish") as span:
                difference = self.publisher.publish(
                    self._derived.configs, traceparent=telemetry.current_traceparent()
                )
                span.set_attribute("pilothouse.changed", len(difference.changed))
                span.set_attribute("pilothouse.removed", len(difference.removed))
            self._report(before, difference)

    def _report(self, before: derive.Derived, difference: publisher.Difference) -> None:
        if difference:
            _LOG.info(
                "published",
                changed=[str(key) for key in difference.changed],
                removed=[str(key) for key in difference.removed],
            )
        for key, conditions in self._derived.conditions.items():
            for condition in conditions:
                if not condition.status and conditions != before.conditions.get(key):
                    _LOG.warning(
                        "external service refused", object=str(key), reason=condition.message
                    )

    def _ready(self) -> Sequence[web.Check]:
        """Ready once discovery has been read; losing it later changes nothing in what is served."""
        synced = self.discovery.current().synced
        message = "" if self.discovery.connected else "not connected"
        if self.discovery.error:
            message += f": {self.discovery.error}"
        return (web.Check(name="discovery", ok=synced, message=message),)

    def _page(self) -> list[dict[str, Any]]:
        """How each ExternalService stands that goes through the gateway."""
        found = derived_status.trace_back(
            self._derived.conditions, self._derived.configs, self.discovery.statuses()
        )
        return [each.as_json() for each in found]
