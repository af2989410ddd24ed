# SPDX-License-Identifier: Apache-2.0
"""Whether a refusal gives rise to a search, and for whom."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from pilothouse.config import objects
from pilothouse.rollout import attribution, trials
from pilothouse.xds import differences
from pilothouse_discovery import clients, records

_LOG = structlog.get_logger(__name__)


def of(
    client: clients.Client,
    record: records.Record,
    type_url: str,
    words: str,
    *,
    known: Callable[[objects.Config], object],
) -> records.Search | None:
    """The search that a refusal gives rise to; None if there is nothing to search for.

    Args:
        client: Who refuses.
        record: What is known of it; that nobody is to blame is noted there.
        type_url: What it refuses.
        words: How.
        known: Gives something true for contents that somebody was found to refuse.
    """
    stream = client.session.stream
    target = stream.target
    if target is None or attribution.is_local(type_url, words):
        return None
    version = target.version(type_url)
    if record.tried.get(type_url) == version:
        return None
    acked = stream.acked(type_url)
    fresh = not acked.resources(type_url)
    before = {} if fresh else record.lagging.get(type_url, record.confirmed)
    changed = differences.diff(acked, target, type_url).changed
    told = attribution.without_local(words)
    found = attribution.suspects(changed, before=before, now=record.view, words=told)
    hints = [key for key in found.others if known(record.view[key])]
    named = tuple(sorted((*found.named, *hints)))
    others = tuple(key for key in found.others if key not in hints)
    if not found:
        record.tried[type_url] = version
        _LOG.warning("nobody to blame for a refusal", node=client.name, type=type_url, reason=words)
        return None
    # What it brought along works, and nobody knows what that is.
    begin = trials.begin_gently if fresh and stream.claimed(type_url) else trials.begin
    suspected = attribution.Suspects(named=named, others=others)
    return records.Search(
        type_url=type_url,
        version=version,
        words=told,
        group=(type_url, frozenset((one.name, one.version) for one in changed), suspected, begin),
        trial=begin(named, others),
        before=before,
        now=record.view,
        changed=changed,
    )
