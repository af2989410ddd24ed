# SPDX-License-Identifier: Apache-2.0
"""Who speaks for an object, as files come, change and go."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import strategies

from pilothouse.adapters.files import claims, content
from pilothouse.config import documents
from pilothouse.model import keys


def named(name: str, location: str) -> content.Object:
    """A document that names an object, or none when the name is empty."""
    return content.Object(
        document=documents.RawDocument(location=location, manifest={}, line=1),
        key=keys.ObjectKey("Service", "default", name) if name else None,
        kubernetes="Service",
    )


def file(path: str, *names: str) -> content.File:
    """A file with documents of these names."""
    found = tuple(named(name, f"{path}:{place}") for place, name in enumerate(names, start=1))
    return content.File(path=path, found=found)


FILES = strategies.dictionaries(
    strategies.sampled_from(["a.yaml", "b.yaml", "c/d.yaml"]),
    strategies.lists(strategies.sampled_from(["x", "y", "z", ""]), max_size=4),
)


@hypothesis.given(strategies.lists(FILES, max_size=6))
def test_the_first_by_path_and_place_speaks(moments: list[dict[str, list[str]]]) -> None:
    """At each moment, whatever was before; the others are problems, and news add up."""
    known = claims.Claims()
    heard: dict[keys.ObjectKey, content.Object] = {}
    for moment in moments:
        files = {path: file(path, *names) for path, names in sorted(moment.items())}
        news = known.update(files)
        for key, found in news.changed.items():
            heard.pop(key, None)
            if found is not None:
                heard[key] = found
        everything = [one for each in files.values() for one in each.found]
        first: dict[keys.ObjectKey, content.Object] = {}
        late = [
            one.document.location
            for one in everything
            if one.key is not None and first.setdefault(one.key, one) is not one
        ]
        assert heard == first
        assert all(heard[key] is one for key, one in first.items())
        assert sorted(problem.location for problem in known.problems()) == sorted(late)
        assert news.nameless == tuple(one for one in everything if one.key is None)


def test_a_file_that_holds_the_same_is_no_news() -> None:
    """What was read once more and found equal is not gone through."""
    known = claims.Claims()
    one, other = file("a.yaml", "x"), file("b.yaml", "y")
    assert len(known.update({"a.yaml": one, "b.yaml": other}).changed) == 2
    again = content.File(path="b.yaml", found=other.found, settled=False)
    assert known.update({"a.yaml": one, "b.yaml": again}).changed == {}


@pytest.mark.parametrize("gone", ["a.yaml", "b.yaml"])
def test_a_dispute_ends_when_one_of_two_goes(gone: str) -> None:
    """The one that is left speaks, and is told of only if the other spoke before."""
    known = claims.Claims()
    files = {"a.yaml": file("a.yaml", "x"), "b.yaml": file("b.yaml", "x")}
    known.update(files)
    (problem,) = known.problems()
    assert (problem.location, problem.key) == ("b.yaml:1", files["a.yaml"].found[0].key)
    left = {path: one for path, one in files.items() if path != gone}
    news = known.update(left)
    assert list(news.changed.values()) == ([left["b.yaml"].found[0]] if gone == "a.yaml" else [])
    assert known.problems() == ()
