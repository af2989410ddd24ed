# SPDX-License-Identifier: Apache-2.0
"""Patterns of hosts and server names: ``shop.example.com``, ``*.example.com``, ``*``."""

from __future__ import annotations


def intersect(one: str, other: str) -> str | None:
    """The pattern of what both mean, which is the more specific one; None when there is nothing.

    ``*.example.com`` stands for any number of labels, and not for ``example.com``.
    """
    if covers(one, other):
        return other
    return one if covers(other, one) else None


def covers(general: str, specific: str) -> bool:
    """Tell whether every host that ``specific`` means is one that ``general`` means."""
    if general in ("*", specific):
        return True
    return general.startswith("*.") and specific.endswith(general[1:])
