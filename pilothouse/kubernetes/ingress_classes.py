# SPDX-License-Identifier: Apache-2.0
"""Which Ingresses are ours.

An IngressClass belongs to the controller that its ``spec.controller`` names; its own name means
nothing. An Ingress names a class by annotation or field; where both are there and differ, the
annotation counts, as the API's documentation has it, unless we are told otherwise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from pilothouse.kubernetes import ingress_objects


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How Ingresses are chosen."""

    controller: str = "pilothouse.dev/ingress"
    """``spec.controller`` of the classes that are ours."""
    class_name: str = "pilothouse"
    """An annotation may name this class even when no such IngressClass exists."""
    prefer_field: bool = False
    """Let the field win over the annotation, as ingress-nginx does."""
    take_classless: bool = False
    """Serve Ingresses that name no class, whatever the default class is."""


DEFAULT_RULES = Rules()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Classes:
    """All IngressClasses, as far as they decide anything."""

    ours: frozenset[str]
    foreign: frozenset[str]
    default_is_ours: bool


def sort_out(classes: Iterable[ingress_objects.IngressClass], rules: Rules) -> Classes:
    """Tell our classes from the others'.

    Of several default classes the newest counts, then the first by name, as in the API server.
    """
    known = sorted(classes, key=lambda each: (-each.head.created, each.name))
    ours = frozenset(each.name for each in known if each.controller == rules.controller)
    default = next((each.name for each in known if each.is_default), None)
    return Classes(
        ours=ours,
        foreign=frozenset(each.name for each in known) - ours,
        default_is_ours=default in ours,
    )


def is_ours(ingress: ingress_objects.Ingress, classes: Classes, rules: Rules) -> bool:
    """Tell whether an Ingress is ours to serve."""
    annotation = ingress.head.annotation(ingress_objects.CLASS_ANNOTATION) or ""
    field = ingress.class_name
    if annotation and not (rules.prefer_field and field):
        if annotation in classes.ours:
            return True
        return annotation == rules.class_name and annotation not in classes.foreign
    if field:
        return field in classes.ours
    return rules.take_classless or classes.default_is_ours


def disagreement(ingress: ingress_objects.Ingress, rules: Rules) -> str | None:
    """What to tell an Ingress whose annotation and field name two classes; None if they do not."""
    annotation = ingress.head.annotation(ingress_objects.CLASS_ANNOTATION) or ""
    field = ingress.class_name
    if not (annotation and field) or annotation == field:
        return None
    if rules.prefer_field:
        return f"the annotation {ingress_objects.CLASS_ANNOTATION} {annotation!r}: the field counts"
    return f"spec.ingressClassName {field!r}: the annotation counts"
