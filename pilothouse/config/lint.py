# SPDX-License-Identifier: Apache-2.0
"""Checks texts offline: all that can be said about config objects without a cluster."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from pilothouse.config import codec, conflicts, documents, objects, validation, violations
from pilothouse.model import keys

SOURCE = "lint"
"""``Config.source`` of what is checked."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was found."""

    configs: Mapping[keys.ObjectKey, objects.Config]
    """The objects that could be read, in key order."""
    problems: tuple[objects.Problem, ...]
    """What could not be read or is there twice, in the order of the texts."""
    violations: Mapping[keys.ObjectKey, tuple[violations.Violation, ...]]
    """The rules that objects break by themselves, in key order; nothing for an object without."""
    conflicts: Mapping[keys.ObjectKey, tuple[objects.Condition, ...]]
    """Valid objects that give way to another one of these, in key order: together they are never in
    force."""
    warnings: Mapping[keys.ObjectKey, tuple[objects.Condition, ...]]
    """Valid objects that nobody asks, in key order."""
    others: tuple[documents.RawDocument, ...]
    """Documents of other kinds, Kubernetes' own for example; not checked."""

    @property
    def ok(self) -> bool:
        """Whether there is nothing but warnings."""
        return not self.problems and not self.violations and not self.conflicts


def check(texts: Iterable[tuple[str, str]]) -> Report:
    """Read and validate every object.

    Args:
        texts: Location (a file's name) and YAML text of each; checked in order of location.
    """
    configs: dict[keys.ObjectKey, objects.Config] = {}
    problems: list[objects.Problem] = []
    others: list[documents.RawDocument] = []
    for location, text in sorted(texts):
        found, wrong = documents.load(text, location=location)
        problems += wrong
        for document in found:
            if not codec.is_ours(document):
                others.append(document)
                continue
            config, mistakes = codec.from_manifest(document, source=SOURCE)
            problems += mistakes
            if config is not None:
                problems += _add(configs, config)
    configs = dict(sorted(configs.items()))
    broken = {key: validation.validate(config) for key, config in configs.items()}
    valid = {key: config for key, config in configs.items() if not broken[key]}
    losers = conflicts.cross_check(valid)
    return Report(
        configs=configs,
        problems=tuple(problems),
        violations={key: found for key, found in broken.items() if found},
        conflicts={key: some for key, some in losers.items() if _conflicted(some)},
        warnings={key: some for key, some in losers.items() if not _conflicted(some)},
        others=tuple(others),
    )


def _conflicted(conditions: tuple[objects.Condition, ...]) -> bool:
    return any(one.reason == conflicts.CONFLICTED for one in conditions)


def _add(
    configs: dict[keys.ObjectKey, objects.Config], config: objects.Config
) -> tuple[objects.Problem, ...]:
    first = configs.setdefault(config.key, config)
    if first is config:
        return ()
    message = f"{config.key} is already at {first.location}"
    return (objects.Problem(location=config.location, message=message, key=config.key),)
