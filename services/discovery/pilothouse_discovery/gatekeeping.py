# SPDX-License-Identifier: Apache-2.0
"""Which objects must not come into force, because of what would be published for them.

The gate says what is wrong with a resource; which of the objects behind it is to blame is found as
it is found on a proxy that refuses (`rollout.trials`), only that the gate itself answers here. An
object that is held is built without, as a whole; what nobody can be blamed for is left out of what
is published, and told to the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pilothouse.config import admission
from pilothouse.envoy.gate import findings
from pilothouse.model import keys
from pilothouse.rollout import attribution, trials

Faults = frozenset[findings.Fault]
Try = Callable[[frozenset[keys.ObjectKey]], Faults]
"""What the gate finds when these objects are held."""


def suspects(
    faults: Faults, *, before: attribution.InForce, now: attribution.InForce
) -> frozenset[keys.ObjectKey]:
    """The objects that may be to blame for what the gate found.

    Those that changed since the last build; when none did, somebody came who needs an object that
    nobody needed before, so it may be any.
    """
    origins = {key for fault in faults for key in fault.origins if key in now}
    return frozenset(key for key in origins if before.get(key) != now[key]) or frozenset(origins)


def blame(
    faults: Faults, *, before: attribution.InForce, now: attribution.InForce, attempt: Try
) -> tuple[admission.Refusal, ...]:
    """Find the objects that are to blame.

    Args:
        faults: What the gate found with all objects as they are.
        before: What was in force in the last build.
        now: What would be in force.
        attempt: Builds with some objects held, and has the gate look again.

    Returns:
        A refusal for each, in key order; none if the faults stay whoever is held.
    """
    trial = trials.begin(suspects(faults, before=before, now=now))
    wrong = _resources(faults)
    while not trial.done:
        trial = trial.answer(accepted=wrong.isdisjoint(_resources(attempt(trial.held))))
    return tuple(
        admission.Refusal.of(
            now[key],
            reason=admission.NOT_PUBLISHABLE,
            message=_words(fault for fault in faults if key in fault.origins),
        )
        for key in sorted(trial.culprits)
    )


def _resources(faults: Faults) -> frozenset[tuple[str, str]]:
    return frozenset((fault.type_url, fault.name) for fault in faults)


def _words(faults: Iterable[findings.Fault]) -> str:
    """What is wrong, once for each resource and field."""
    return "; ".join(dict.fromkeys(str(fault) for fault in sorted(faults)))
