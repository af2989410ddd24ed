# SPDX-License-Identifier: Apache-2.0
"""What is worth telling of how Ingresses stand: that one came to be programmed, or ceased to be."""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from pilothouse.adapters.rpc import derived_status
from pilothouse.config import status
from pilothouse.model import keys

_LOG = structlog.get_logger(__name__)


class Herald:
    """Logs one line for each Ingress whenever its state changes, and none else."""

    def __init__(self) -> None:
        self._told: dict[keys.ObjectKey, str] = {}

    def tell(self, states: Iterable[derived_status.OriginStatus]) -> None:
        """Look at all Ingresses, and log those that are not as they were."""
        now = {state.key: (state, _summary(state)) for state in states}
        for key, (state, summary) in now.items():
            before = self._told.get(key, "")
            if summary == before:
                continue
            if summary == _PROGRAMMED:
                proxies = max((each.needed for each in state.derived), default=0)
                _LOG.info("ingress programmed", object=str(key), proxies=proxies)
            elif summary:
                _LOG.warning("ingress not programmed", object=str(key), reason=summary)
            elif before == _PROGRAMMED:
                _LOG.info("ingress changing", object=str(key))
        self._told = {key: summary for key, (_, summary) in now.items()}


_PROGRAMMED = "programmed"


def _summary(state: derived_status.OriginStatus) -> str:
    """`_PROGRAMMED`, why it is not and will not be by itself, or "" while it is on its way."""
    if state.programmed:
        return _PROGRAMMED
    refused = [each for each in state.derived if each.refused]
    if refused:
        return "; ".join(f"{each.key}: refused by {each.refused} proxies" for each in refused)
    wrong = [
        f"{one.reason}: {one.message}"
        for one in state.conditions
        if one.type == status.ACCEPTED and not one.status
    ]
    return "; ".join(wrong)
