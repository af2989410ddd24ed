# SPDX-License-Identifier: Apache-2.0
"""A real gRPC server without a proxy: it asks discovery whether and how to serve (gRFC A36)."""

from __future__ import annotations

from pathlib import Path

from tests.support import fleet, grpc_application, waiting

TARGET = "xds:///app:80"
PORT = 50051


def _pod(address: str) -> str:
    return (
        "apiVersion: v1\nkind: Pod\nmetadata: {name: app-v1-0, labels: {app: app}}\n"
        f"spec: {{containers: [{{name: app, ports: [{{name: http, containerPort: {PORT}}}]}}]}}\n"
        f"status: {{podIP: {address}}}\n"
    )


async def test_a_server_serves_while_its_port_is_that_of_a_service(tmp_path: Path) -> None:
    """It begins when discovery knows the port, serves who dials the service, and ends with it."""
    async with fleet.fleet() as made:
        address = f"127.{made.block.number}.2.1"
        service = {"app.yaml": fleet.service("app"), "pod.yaml": _pod(address)}
        await made.apply({"app.yaml": service["app.yaml"]}, wait=False)
        await made.start()
        async with (
            grpc_application.application(
                made.grpc, tmp_path, name="server", address=address
            ) as server,
            grpc_application.application(made.grpc, tmp_path) as client,
        ):
            await server.serve(f"{address}:{PORT}", "app")
            outcome = await client.call(f"ipv4:{address}:{PORT}")
            assert outcome.failures[0].startswith("UNAVAILABLE"), "nobody knows the port yet"

            async def served() -> bool:
                outcome = await client.call(TARGET, 5)
                assert outcome == grpc_application.Outcome(replies={"app": 5})
                return True

            await made.apply(service, wait=False)
            await waiting.eventually(served, 45)
            for one in made.discovery.clients.proxies:
                assert one.refusals == {}

            async def refused() -> bool:
                outcome = await client.call(f"ipv4:{address}:{PORT}")
                return outcome.replies == {}

            await made.apply({"pod.yaml": None}, wait=False)
            await waiting.eventually(refused, 45)
