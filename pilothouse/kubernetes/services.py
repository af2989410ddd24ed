# SPDX-License-Identifier: Apache-2.0
"""Services, EndpointSlices and Pods to what a registry knows."""

from __future__ import annotations

from collections.abc import Iterable

from pilothouse.config import documents, objects
from pilothouse.kubernetes import joining, records
from pilothouse.model import keys, services


def registry_state(
    manifests: Iterable[documents.RawDocument],
) -> tuple[services.RegistryState, tuple[objects.Problem, ...]]:
    """The state of a registry that knows these manifests and no others.

    Args:
        manifests: Any objects; only Services, EndpointSlices and Pods count. Of several with the
            same key the first counts, and the others are problems.

    Returns:
        The state, with ``synced`` set, and a problem for each violation, in the manifests' order.
    """
    found: dict[keys.ObjectKey, records.Record] = {}
    first: dict[keys.ObjectKey, str] = {}
    problems: list[objects.Problem] = []
    for document in manifests:
        record, wrong = records.read(document)
        problems += wrong
        if record is None:
            continue
        if record.key in found:
            message = f"is already defined in {first[record.key]}"
            problems.append(
                objects.Problem(location=document.location, message=message, key=record.key)
            )
            continue
        found[record.key] = record
        first[record.key] = document.location
    joined = joining.Join()
    joined.update(found)
    return joined.state, tuple(problems)
