# SPDX-License-Identifier: Apache-2.0
"""Which generation of each object is in force: a value, computed from the last one and the sources.

An object that is right and stands in no older one's way is in force as it is. One that is not stays
as it was when it last was, as a whole object, and says so; its neighbours never notice.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from pilothouse.config import conflicts, objects, status, validation, violations
from pilothouse.model import keys

INVALID_SPEC = "InvalidSpec"
"""The object breaks rules by itself."""
UNREADABLE = "Unreadable"
"""The object's text can no longer be read as an object."""

_IN_FORCE = (objects.Condition(type=status.ACCEPTED, status=True, reason=status.ACCEPTED),)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What validation said of an object, kept so that it is asked once."""

    config: objects.Config
    violations: tuple[violations.Violation, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedSet:
    """What is in force. Equal when that is equal."""

    configs: Mapping[keys.ObjectKey, objects.Config] = dataclasses.field(default_factory=dict)
    """In key order; each as it was when it was last accepted."""
    verdicts: Mapping[keys.ObjectKey, Verdict] = dataclasses.field(
        default_factory=dict, compare=False, repr=False
    )
    """Of the objects last observed. May be left out: they are then validated anew."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The outcome of looking at the sources again."""

    accepted: AcceptedSet
    conditions: Mapping[keys.ObjectKey, tuple[objects.Condition, ...]]
    """``Accepted`` of every object observed or kept, in key order."""


def admit(
    previous: AcceptedSet,
    observed: Mapping[keys.ObjectKey, objects.Config],
    *,
    problems: Iterable[objects.Problem] = (),
) -> Admission:
    """Decide what is in force from now on.

    Args:
        previous: What has been in force; an empty set at first.
        observed: All objects of all sources, in any order. What is not there any more goes.
        problems: Of the same sources. An object that is not observed because its text cannot be
            read is not gone: if it was in force, it stays.

    Returns:
        What is in force, and each object's ``Accepted`` condition. The order of the arguments'
        items has no influence.
    """
    verdicts = {key: _judge(previous, observed[key]) for key in sorted(observed)}
    unreadable = _unreadable(problems, observed)
    claims = conflicts.Claims()
    accepted: dict[keys.ObjectKey, objects.Config] = {}
    conditions: dict[keys.ObjectKey, tuple[objects.Condition, ...]] = {}
    candidates = [verdict.config for verdict in verdicts.values()]
    candidates += [previous.configs[key] for key in unreadable if key in previous.configs]
    for config in conflicts.by_age(candidates):
        key = config.key
        refused = (
            _refusal(UNREADABLE, unreadable[key])
            if key in unreadable
            else _invalid(verdicts[key]) or claims.objections(config)
        )
        in_force = config if not refused else _last(previous, config, claims)
        if in_force is not None:
            claims.take(in_force)
            accepted[key] = in_force
        conditions[key] = _kept(refused, in_force) if refused else _IN_FORCE
    for key in unreadable.keys() - conditions.keys():
        conditions[key] = _kept(_refusal(UNREADABLE, unreadable[key]), None)
    return Admission(
        accepted=AcceptedSet(configs=dict(sorted(accepted.items())), verdicts=verdicts),
        conditions=dict(sorted(conditions.items())),
    )


def _judge(previous: AcceptedSet, config: objects.Config) -> Verdict:
    known = previous.verdicts.get(config.key)
    if known is not None and known.config is config:
        return known
    # Equality of objects leaves labels and annotations out, which have rules too.
    if known is not None and known.config == config and known.config.meta == config.meta:
        return Verdict(config=config, violations=known.violations)
    return Verdict(config=config, violations=validation.validate(config))


def _unreadable(
    problems: Iterable[objects.Problem], observed: Mapping[keys.ObjectKey, objects.Config]
) -> dict[keys.ObjectKey, str]:
    """What is wrong with each object that is named by a problem and not observed."""
    found: dict[keys.ObjectKey, list[str]] = {}
    for problem in problems:
        if problem.key is not None and problem.key not in observed:
            found.setdefault(problem.key, []).append(f"{problem.location}: {problem.message}")
    return {key: "; ".join(sorted(found[key])) for key in sorted(found)}


def _invalid(verdict: Verdict) -> tuple[objects.Condition, ...]:
    if not verdict.violations:
        return ()
    return _refusal(INVALID_SPEC, "; ".join(map(str, verdict.violations)))


def _refusal(reason: str, message: str) -> tuple[objects.Condition, ...]:
    return (objects.Condition(type=status.ACCEPTED, status=False, reason=reason, message=message),)


def _last(
    previous: AcceptedSet, config: objects.Config, claims: conflicts.Claims
) -> objects.Config | None:
    """The object as it was last accepted, unless that too is in an older one's way by now."""
    last = previous.configs.get(config.key)
    if last is None or claims.objections(last):
        return None
    # Another creation time: an object of the same name was deleted, and this one never was right.
    return last if last.meta.created == config.meta.created else None


def _kept(
    refused: tuple[objects.Condition, ...], in_force: objects.Config | None
) -> tuple[objects.Condition, ...]:
    consequence = (
        "it is not in force"
        if in_force is None
        else f"generation {in_force.meta.generation} stays in force"
    )
    return tuple(
        dataclasses.replace(one, message=f"{one.message}; {consequence}") for one in refused
    )
