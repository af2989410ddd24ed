# SPDX-License-Identifier: Apache-2.0
"""An object that the gate or a proxy refused stays as it was until it changes."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, strategies

from pilothouse.api.config.v1alpha1 import external_service_pb2
from pilothouse.config import admission, codec, objects
from pilothouse.model import keys

EMPTY = admission.AcceptedSet()
WORDS = "sidecar~1: no such thing"


def external(name: str, generation: int, *, created: int = 0) -> objects.Config:
    """A right ExternalService; each generation says something else."""
    spec = external_service_pb2.ExternalServiceSpec(
        hosts=[f"{name}{generation}.com"],
        ports=[external_service_pb2.ExternalPort(number=443)],
    )
    key = keys.ObjectKey(kind="ExternalService", namespace="default", name=name)
    return codec.make(key, spec, source="test", generation=generation, created=created)


def refusal(config: objects.Config) -> admission.Refusal:
    return admission.Refusal.of(config, reason=admission.REFUSED_BY_PROXY, message=WORDS)


class History:
    """One build after another."""

    def __init__(self) -> None:
        self.outcome = admission.Admission(accepted=EMPTY, conditions={})

    def build(
        self,
        *observed: objects.Config,
        refused: Sequence[objects.Config] = (),
        proven: Sequence[objects.Config] = (),
        problems: Sequence[objects.Problem] = (),
    ) -> dict[str, int]:
        """Names and generations in force afterwards."""
        self.outcome = admission.admit(
            self.outcome.accepted,
            {one.key: one for one in observed},
            refusals=[refusal(one) for one in refused],
            proven=[one.key for one in proven],
            problems=problems,
        )
        configs = self.outcome.accepted.configs
        return {key.name: config.meta.generation for key, config in configs.items()}

    def told(self, name: str) -> str:
        (found,) = (
            condition for key, (condition,) in self.outcome.conditions.items() if key.name == name
        )
        return f"{found.status} {found.reason}: {found.message}"


A1, A2, A3, A4 = (external("a", number) for number in (1, 2, 3, 4))
B1, B2 = external("b", 1), external("b", 2)


def test_what_is_refused_goes_back_to_what_it_was() -> None:
    """As a whole object; its neighbour has its change; and so it stays."""
    history = History()
    history.build(A1, B1)
    assert history.build(A2, B2) == {"a": 2, "b": 2}
    assert history.build(A2, B2, refused=[A2]) == {"a": 1, "b": 2}
    assert history.build(A2, B2) == {"a": 1, "b": 2}
    assert history.told("a") == f"False RefusedByProxy: {WORDS}; generation 1 stays in force"
    assert history.told("b") == "True Accepted: "


def test_what_never_was_in_force_is_left_out() -> None:
    """As if it did not exist."""
    history = History()
    history.build(A1, B1)
    assert history.build(A1, B1, refused=[A1]) == {"b": 1}
    assert history.told("a") == f"False RefusedByProxy: {WORDS}; it is not in force"


def test_a_change_of_the_object_ends_the_refusal() -> None:
    """Also a change back to what was in force."""
    history = History()
    history.build(A1)
    history.build(A2)
    history.build(A2, refused=[A2])
    assert history.build(A3) == {"a": 3}
    assert history.told("a") == "True Accepted: "
    assert history.outcome.accepted.refusals == {}
    history.build(A3, refused=[A3])
    assert history.build(A1) == {"a": 1}


def test_a_refusal_of_what_the_object_no_longer_says_is_too_late() -> None:
    """It was about another content."""
    history = History()
    history.build(A1)
    history.build(A2)
    assert history.build(A3, refused=[A2]) == {"a": 3}


def test_it_goes_back_to_what_a_proxy_ran() -> None:
    """Not to a generation that nobody has run yet, which may be as bad."""
    history = History()
    history.build(A1)
    history.build(A2, proven=[A1])
    history.build(A3)
    assert history.build(A3, refused=[A3]) == {"a": 1}


def test_what_some_proxy_runs_is_what_it_goes_back_to() -> None:
    """However many generations there were before."""
    history = History()
    history.build(A1)
    history.build(A2)
    history.build(A3, proven=[A2])
    assert history.build(A3, refused=[A3]) == {"a": 2}
    # Once it is known to run, nothing older is kept.
    history.build(A4)
    history.build(A4, proven=[A4])
    assert history.outcome.accepted.fallbacks == {}


def test_another_object_of_the_same_name_has_a_chance_of_its_own() -> None:
    """And nothing to go back to."""
    history = History()
    history.build(A1)
    history.build(A2, refused=[A2])
    again = external("a", 2, created=7)
    assert history.build(again) == {"a": 2}
    assert history.build(again, refused=[again]) == {}


def test_a_text_that_cannot_be_read_does_not_end_a_refusal() -> None:
    """When it can be read again, and says the same, it is refused still."""
    history = History()
    history.build(A1)
    history.build(A2)
    history.build(A2, refused=[A2])
    broken = objects.Problem(location="f:1", message="is not YAML", key=A2.key)
    assert history.build(problems=[broken]) == {"a": 1}
    assert history.build(A2) == {"a": 1}


def test_what_is_deleted_is_gone_with_its_refusal() -> None:
    """Nothing is remembered of it."""
    history = History()
    history.build(A1)
    history.build(A2)
    history.build(A2, refused=[A2])
    assert history.build() == {}
    assert history.outcome.accepted == EMPTY


_STEP = strategies.tuples(strategies.integers(1, 3), strategies.booleans(), strategies.booleans())


@given(strategies.lists(_STEP, min_size=1, max_size=8))
def test_refused_content_is_never_in_force(steps: list[tuple[int, bool, bool]]) -> None:
    """Whatever happens before and after; and what is told is about what is in force."""
    history = History()
    for generation, refused, proven in steps:
        one = external("a", generation)
        in_force = history.build(
            one, refused=[one] if refused else (), proven=[one] if proven else ()
        )
        standing = history.outcome.accepted.refusals.get(one.key)
        current = history.outcome.accepted.configs.get(one.key)
        assert standing is None or not standing.concerns(current)
        if refused:
            assert in_force.get("a") != generation
        kept = f"generation {in_force['a']} stays in force" if in_force else "it is not in force"
        assert history.told("a").endswith(kept) or standing is None
        again = history.outcome
        history.build(one)
        assert history.outcome.accepted.configs == again.accepted.configs
