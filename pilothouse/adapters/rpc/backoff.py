# SPDX-License-Identifier: Apache-2.0
"""How long to wait before the next try: longer each time, and never in step with others."""

import random
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Backoff:
    """Exponential, with jitter: each wait is between half of its step and the whole step."""

    initial: float = 0.2
    """The first step, in seconds."""
    maximum: float = 1.0
    """The longest step, in seconds. Short, since few services call each other, a try costs next to
    nothing, and proxies wait for what comes of it."""
    dice: random.Random = field(default_factory=random.Random)
    _step: float = field(default=0.0, init=False)

    def next(self) -> float:
        """Seconds to wait now; the step doubles for the next time."""
        self._step = min(self._step * 2 or self.initial, self.maximum)
        return self.dice.uniform(self._step / 2, self._step)

    def reset(self) -> None:
        """Begin anew: the last try was a success."""
        self._step = 0.0
