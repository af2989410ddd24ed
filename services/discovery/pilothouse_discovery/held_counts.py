# SPDX-License-Identifier: Apache-2.0
"""What people are told of objects that are held for some proxies: pure.

The ledger sees what a proxy is to hold, and for one that refuses that is the object as it was, or
without it. So it is counted here that such a proxy does not run the object as it is.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping

from pilothouse.model import keys
from pilothouse.rollout import ledger
from pilothouse_discovery import clients, records

Concerned = Mapping[clients.Client, records.Record]
"""The clients that are searched, or have something held."""


def adjusted(
    concerned: Concerned, counts: Mapping[keys.ObjectKey, ledger.Counts]
) -> Mapping[keys.ObjectKey, ledger.Counts]:
    """The ledger's counts, put right."""
    refused: collections.Counter[keys.ObjectKey] = collections.Counter()
    missing: collections.Counter[keys.ObjectKey] = collections.Counter()
    absent: collections.Counter[keys.ObjectKey] = collections.Counter()
    for client, record in concerned.items():
        searched = record.search.trial.suspected if record.search else frozenset()
        for key in {*record.holds, *record.held, *searched}:
            missing[key] += 1
            refused[key] += key in record.holds
            absent[key] += not records.needs(client, key)
    found = dict(counts)
    for key, times in missing.items():
        known = found.get(key, ledger.Counts())
        found[key] = ledger.Counts(
            needed=known.needed + absent[key],
            acked=max(0, known.acked - (times - absent[key])),
            refused=known.refused + refused[key],
        )
    return found


def words(concerned: Concerned) -> Mapping[keys.ObjectKey, str]:
    """Of each object that is held for some proxy: the first that refuses it, and its words."""
    found: dict[keys.ObjectKey, str] = {}
    for client in sorted(concerned, key=lambda one: (one.name, one.id)):
        for key, hold in concerned[client].holds.items():
            found.setdefault(key, f"{client.name}: {hold.words}")
    return found
