# SPDX-License-Identifier: Apache-2.0
"""Folders of manifests and rules for the server to read, and changes to them."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable

CHANGING = 0
"""The number of the service whose endpoints change; they have a file of their own."""
FIRST_ADDRESS = "10.1.0.0"
"""What of its endpoints changes, at first."""


def service(number: int) -> str:
    """A service with one HTTP port, as a manifest."""
    return (
        f"apiVersion: v1\nkind: Service\nmetadata: {{name: s{number}}}\n"
        "spec: {ports: [{name: http, port: 80}]}\n"
    )


def endpoint_slice(number: int, addresses: Iterable[str]) -> str:
    """The endpoints of that service."""
    endpoints = ", ".join(f"{{addresses: [{address}]}}" for address in addresses)
    return (
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n"
        f"metadata: {{name: s{number}, labels: {{kubernetes.io/service-name: s{number}}}}}\n"
        "addressType: IPv4\nports: [{name: http, port: 8080}]\n"
        f"endpoints: [{endpoints}]\n"
    )


def changing_slice(address: str) -> str:
    """The endpoints of the service that changes: one fixed address, and the one given."""
    return endpoint_slice(CHANGING, ["10.0.0.1", address])


def addresses(number: int, count: int) -> list[str]:
    """Distinct addresses for the endpoints of a service."""
    return [f"10.{32 + (number >> 8)}.{number & 255}.{1 + endpoint}" for endpoint in range(count)]


def write(folder: pathlib.Path, services: int, *, endpoints: int = 2) -> None:
    """A mesh: all services in one file, all endpoints but those that change in another."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = range(services)
    (folder / "services.yaml").write_text("---\n".join(service(n) for n in numbers))
    slices = [endpoint_slice(n, addresses(n, endpoints)) for n in numbers if n != CHANGING]
    (folder / "endpoints.yaml").write_text("---\n".join(slices))
    (folder / "changing.yaml").write_text(changing_slice(FIRST_ADDRESS))


def change_endpoint(folder: pathlib.Path, number: int) -> None:
    """Give the service that changes another address."""
    replace(folder / "changing.yaml", changing_slice(address(number)))


def address(number: int) -> str:
    """The address of that change."""
    return f"10.1.{1 + (number >> 8)}.{number & 255}"


def route_rule(
    name: str, parent: str, *, seconds: int = 5, path: str = "/", to: str = "s0", host: str = ""
) -> str:
    """A rule with one route; ``parent`` is YAML."""
    hosts = f"  hosts: [{host}]\n" if host else ""
    return (
        f"apiVersion: pilothouse.dev/v1alpha1\nkind: RouteRule\nmetadata: {{name: {name}}}\n"
        f"spec:\n  parents: [{parent}]\n{hosts}  http:\n"
        f"  - matches: [{{path: {{prefix: {path}}}}}]\n"
        f"    destinations: [{{service: {to}}}]\n    timeout: {seconds}s\n"
    )


def replace(path: pathlib.Path, text: str) -> None:
    """Swap a file in one step."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.rename(path)
