# SPDX-License-Identifier: Apache-2.0
"""How often, and after how long, a failed proxy is started again. No clock in here."""

from dataclasses import dataclass

ATTEMPTS = 10
FIRST_DELAY = 0.2


@dataclass(slots=True)
class RestartBudget:
    """Ten restarts, at distances of 0.2 s doubling.

    Only a change of the wanted configuration fills it up again: a proxy that runs for a while
    between two crashes is still one that crashes.
    """

    used: int = 0
    _seen: int = 0

    def next_delay(self, changes: int) -> float | None:
        """Seconds to wait before the next start; None when the budget is spent.

        `changes` counts changes of the wanted configuration since the agent began.
        """
        if changes != self._seen:
            self._seen = changes
            self.used = 0
        if self.used == ATTEMPTS:
            return None
        delay = FIRST_DELAY * 2.0**self.used
        self.used += 1
        return delay
