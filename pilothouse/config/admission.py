# SPDX-License-Identifier: Apache-2.0
"""Which generation of each object is in force: a value, computed from the last one and the sources.

An object that is right, stands in no older one's way and was refused by nobody is in force as it
is. One that is not stays as it was when it last was, as a whole object, and says so; its neighbours
never notice.

Refusals come from the gate, which looks at what would be published, and from proxies. Each is about
one content of one object, so it ends when that object changes or goes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from pilothouse.config import conflicts, objects, status, validation, violations
from pilothouse.model import keys

INVALID_SPEC = "InvalidSpec"
"""The object breaks rules by itself."""
UNREADABLE = "Unreadable"
"""The object's text can no longer be read as an object."""
NOT_PUBLISHABLE = "NotPublishable"
"""What would be published for the object is not what clients accept."""
REFUSED_BY_PROXY = "RefusedByProxy"
"""Proxies refuse what was published for the object."""

T = TypeVar("T")
_IN_FORCE: tuple[objects.Condition, ...] = (
    objects.Condition(type=status.ACCEPTED, status=True, reason=status.ACCEPTED),
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What validation said of an object, kept so that it is asked once."""

    config: objects.Config
    violations: tuple[violations.Violation, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why an object cannot be in force with the content that it has."""

    key: keys.ObjectKey
    digest: bytes
    """Of the refused spec."""
    created: int
    """Of the refused object: another one of the same name has a chance of its own."""
    reason: str
    """``NOT_PUBLISHABLE`` or ``REFUSED_BY_PROXY``."""
    message: str
    """For people: which resource and field, or which proxy with what words."""

    @classmethod
    def of(cls, config: objects.Config, *, reason: str, message: str) -> Refusal:
        """The refusal of an object as it is now."""
        return cls(
            key=config.key,
            digest=config.digest,
            created=config.meta.created,
            reason=reason,
            message=message,
        )

    def concerns(self, config: objects.Config | None) -> bool:
        """Tell whether it is about this very content."""
        return (
            config is not None
            and config.digest == self.digest
            and config.meta.created == self.created
            and config.key == self.key
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedSet:
    """What is in force. Equal when that is equal."""

    configs: Mapping[keys.ObjectKey, objects.Config] = dataclasses.field(default_factory=dict)
    """In key order; each as it was when it was last accepted."""
    refusals: Mapping[keys.ObjectKey, Refusal] = dataclasses.field(default_factory=dict)
    """In key order; of objects whose present content is refused."""
    fallbacks: Mapping[keys.ObjectKey, objects.Config] = dataclasses.field(default_factory=dict)
    """In key order. What goes back in force when what is in force now is refused: the newest
    generation that some proxy ran, or the one before if none did yet. Not there for objects that
    had no other generation."""
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
    refusals: Iterable[Refusal] = (),
    proven: Collection[keys.ObjectKey] = (),
) -> Admission:
    """Decide what is in force from now on.

    Args:
        previous: What has been in force; an empty set at first.
        observed: All objects of all sources, in any order. What is not there any more goes.
        problems: Of the same sources. An object that is not observed because its text cannot be
            read is not gone: if it was in force, it stays.
        refusals: What the gate or proxies refused since; those before are in ``previous``.
        proven: Objects that some proxy runs as they have been in force.

    Returns:
        What is in force, and each object's ``Accepted`` condition. The order of the arguments'
        items has no influence.
    """
    verdicts = _verdicts(previous, observed)
    unreadable = _unreadable(problems, observed)
    standing = _standing(observed, (*previous.refusals.values(), *_sorted(refusals)))
    standing |= {key: one for key, one in previous.refusals.items() if key in unreadable}
    # Nearly all are right and in nobody's way: a change of one among thousands costs one pass.
    accepted = {
        key: verdict.config
        for key, verdict in verdicts.items()
        if not verdict.violations and key not in standing and key.kind not in conflicts.CLAIMING
    }
    conditions = dict.fromkeys(accepted, _IN_FORCE)
    claims = conflicts.Claims()
    candidates = [verdict.config for key, verdict in verdicts.items() if key not in accepted]
    candidates += [previous.configs[key] for key in unreadable if key in previous.configs]
    for config in conflicts.by_age(candidates):
        key, refusal = config.key, standing.get(config.key)
        refused = (
            _refusal(UNREADABLE, unreadable[key])
            if key in unreadable
            else _invalid(verdicts[key]) or _refused(refusal) or claims.objections(config)
        )
        in_force = _last(previous, config, claims, refusal=refusal) if refused else config
        if in_force is not None:
            claims.take(in_force)
            accepted[key] = in_force
        conditions[key] = _kept(refused, in_force) if refused else _IN_FORCE
    for key in unreadable.keys() - conditions.keys():
        conditions[key] = _kept(_refusal(UNREADABLE, unreadable[key]), None)
    configs: Mapping[keys.ObjectKey, objects.Config] = _in_order(accepted)
    if configs == previous.configs:
        configs = previous.configs  # so that identity tells that nothing changed
    return Admission(
        accepted=AcceptedSet(
            configs=configs,
            refusals=dict(sorted(standing.items())),
            fallbacks=_fallbacks(previous, configs, proven),
            verdicts=verdicts,
        ),
        conditions=_in_order(conditions),
    )


def _in_order(found: dict[keys.ObjectKey, T]) -> dict[keys.ObjectKey, T]:
    ordered = sorted(found)
    return found if ordered == [*found] else {key: found[key] for key in ordered}


def _sorted(refusals: Iterable[Refusal]) -> list[Refusal]:
    return sorted(refusals, key=lambda one: (one.key, one.reason, one.message))


def _standing(
    observed: Mapping[keys.ObjectKey, objects.Config], refusals: Iterable[Refusal]
) -> dict[keys.ObjectKey, Refusal]:
    """The refusals that are about what the objects say now; of two of one object the first."""
    found: dict[keys.ObjectKey, Refusal] = {}
    for refusal in refusals:
        if refusal.concerns(observed.get(refusal.key)):
            found.setdefault(refusal.key, refusal)
    return found


def _fallbacks(
    previous: AcceptedSet,
    accepted: Mapping[keys.ObjectKey, objects.Config],
    proven: Collection[keys.ObjectKey],
) -> dict[keys.ObjectKey, objects.Config]:
    """What each object goes back to if what it is now turns out to be refused."""
    found: dict[keys.ObjectKey, objects.Config] = {}
    known, fallbacks = previous.configs, previous.fallbacks
    if [*known] == [*accepted]:
        pairs = zip(accepted.items(), known.values(), strict=True)
        changed = {key for (key, config), before in pairs if before is not config}
    else:
        changed = {key for key, config in accepted.items() if known.get(key) is not config}
    for key in sorted(changed.union(fallbacks.keys() & accepted.keys())):
        config, before, older = accepted[key], known.get(key), fallbacks.get(key)
        same = before is not None and before.digest == config.digest
        if key in proven:
            fallback = None if same else before
        else:
            fallback = older if older is not None or same else before
        if fallback is not None and _may_replace(fallback, config):
            found[key] = fallback
    return found


def _may_replace(fallback: objects.Config, config: objects.Config) -> bool:
    """Tell whether it is another content of the same object."""
    same_object = fallback.meta.created == config.meta.created
    return same_object and fallback.digest != config.digest


def _verdicts(
    previous: AcceptedSet, observed: Mapping[keys.ObjectKey, objects.Config]
) -> dict[keys.ObjectKey, Verdict]:
    """What validation says of each object, in key order."""
    before = previous.verdicts
    if [*before] == [*observed]:
        pairs = zip(observed.items(), before.values(), strict=True)
        return {
            key: known if known.config is config else _judge(known, config)
            for (key, config), known in pairs
        }
    return {
        key: known
        if (known := before.get(key)) is not None and known.config is observed[key]
        else _judge(known, observed[key])
        for key in sorted(observed)
    }


def _judge(known: Verdict | None, config: objects.Config) -> Verdict:
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


def _refused(refusal: Refusal | None) -> tuple[objects.Condition, ...]:
    return () if refusal is None else _refusal(refusal.reason, refusal.message)


def _refusal(reason: str, message: str) -> tuple[objects.Condition, ...]:
    return (objects.Condition(type=status.ACCEPTED, status=False, reason=reason, message=message),)


def _last(
    previous: AcceptedSet,
    config: objects.Config,
    claims: conflicts.Claims,
    *,
    refusal: Refusal | None,
) -> objects.Config | None:
    """The object as it was last accepted, unless that too is in an older one's way by now."""
    last = previous.configs.get(config.key)
    if refusal is not None and refusal.concerns(last):
        last = previous.fallbacks.get(config.key)
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
