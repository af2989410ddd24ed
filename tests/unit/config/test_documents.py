# SPDX-License-Identifier: Apache-2.0
"""YAML text to raw documents."""

import textwrap

import pytest
from hypothesis import given, strategies

from pilothouse.config import documents


def load(text: str):
    return documents.load(textwrap.dedent(text), location="f.yaml")


def value_of(text: str):
    found, problems = documents.load(f"value: {text}\n", location="f.yaml")
    assert problems == ()
    return found[0].manifest["value"]


def test_documents_with_content_are_numbered_and_know_their_line():
    """A comment, an empty document and a null are no documents."""
    found, problems = load(
        """\
        # a licence
        ---
        kind: A
        ---
        # nothing
        ---
        ---

        kind: B
        ...
        --- # said on the separator
        kind: C
        """
    )
    assert problems == ()
    assert [(one.location, one.line, one.kind) for one in found] == [
        ("f.yaml:1", 3, "A"),
        ("f.yaml:2", 9, "B"),
        ("f.yaml:3", 12, "C"),
    ]


def test_a_document_that_cannot_be_parsed_spoils_no_other():
    """Its problem names file, document and line, and why."""
    found, problems = load(
        """\
        kind: A
        ---
        kind: B
        broken: [1,
        ---
        kind: C
        """
    )
    assert [one.kind for one in found] == ["A", "C"]
    (problem,) = problems
    assert problem.location == "f.yaml:2"
    assert problem.message.startswith("line ")


def test_a_key_that_is_there_twice_refuses_the_document_and_is_named():
    """All of them, at any depth."""
    found, problems = load(
        """\
        kind: A
        spec:
          port: 1
          port: 2
          more: {x: 1, x: 1}
        """
    )
    assert found == ()
    assert problems[0].message == (
        "line 5: keys that are already there: 'x' (line 5), 'port' (line 4)"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", True),
        ("False", False),
        ("yes", "yes"),
        ("off", "off"),
        ("y", "y"),
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z"),
        ("2026-01-31", "2026-01-31"),
        ("12:30:45", "12:30:45"),
        ("=", "="),
        ("1.10", 1.1),
        ("1e3", 1000.0),
        ("0644", 0o644),
        ("0o17", 0o17),
        ("0x1F", 31),
        ("0b101", 5),
        ("-7", -7),
        ("1_000", 1000),
        ("08", 8),
        ("_1", "_1"),
        ("1.2.3", "1.2.3"),
        ("'8080'", "8080"),
        ('"true"', "true"),
        ("!!str 8080", "8080"),
        ("!!int '8080'", 8080),
        ("!!float 1", 1.0),
        ("~", None),
        ("null", None),
        ("", None),
        ("500ms", "500ms"),
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("-", [None]),
    ],
)
def test_a_plain_word_means_what_kubectl_takes_it_for(text: str, expected: object):
    """Only true and false are booleans, and nothing becomes a date."""
    value = value_of(text) if text != "-" else value_of("[~]")
    assert value == expected
    assert type(value) is type(expected)


def test_a_key_is_its_text():
    """Kubernetes' maps have text for keys, whatever a value of that text would be."""
    found, _ = load("{on: 1, 8080: 2, 'q': 3, true: 4}")
    assert dict(found[0].manifest) == {"on": 1, "8080": 2, "q": 3, "true": 4}


def test_a_list_is_replaced_by_its_items():
    """Each has a place and a line of its own, and one that is no mapping is a problem."""
    found, problems = load(
        """\
        apiVersion: v1
        kind: List
        items:
        - kind: A
        - text
        - kind: B
        """
    )
    assert [(one.location, one.line, one.kind) for one in found] == [
        ("f.yaml:1[0]", 4, "A"),
        ("f.yaml:1[2]", 6, "B"),
    ]
    assert [one.location for one in problems] == ["f.yaml:1[1]"]


def test_anchors_and_merges_work():
    """What is written out wins over what is merged."""
    found, problems = load(
        """\
        base: &base {a: 1, b: 2}
        same: *base
        more:
          <<: *base
          b: 3
        both: {<<: [*base, {a: 9, c: 4}]}
        """
    )
    assert problems == ()
    manifest = found[0].manifest
    assert manifest["same"] == {"a": 1, "b": 2}
    assert manifest["more"] == {"a": 1, "b": 3}
    assert manifest["both"] == {"a": 1, "b": 2, "c": 4}


def _bomb() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (_bomb(), "aliases stand for more than 100000 values"),
        ("a: &a [*a]", "lies within what it names"),
        ("a: *b", "names no anchor before it"),
        ("a: " + "[" * 200 + "]" * 200, "nested deeper than 100 levels"),
        ("a: " + "[" * 100_000, "nest"),
        ("a: !!python/object/apply:os.getcwd []", "the tag"),
        ("a: !!timestamp 2026-01-01", "the tag"),
        ("a: !secret x", "the tag"),
        ("a: !!int x", "the tag"),
        ("[a, b]", "a document must be a mapping, is a list"),
        ("just text", "a document must be a mapping, is the text 'just text'"),
        ("? [a]\n: b", "a key must be a word"),
        ("? {a: b}\n: b", "a key must be a word"),
        ("a: &x b\n*x : c", "a key must be a word"),
        ("<<: 5", "<< must name a mapping"),
        ("a: \x00", "line "),
        ("a: '\ud800'", "is not YAML"),
        ("apiVersion: v1\nkind: List\nitems: 5", "items: must be a list"),
    ],
)
def test_what_is_refused_is_a_problem_and_never_an_exception(text: str, reason: str):
    """Bounds hold, tags make no objects, and the problem says why."""
    found, problems = documents.load(text, location="f.yaml")
    assert found == ()
    (problem,) = problems
    assert reason in problem.message
    assert problem.location == "f.yaml:1"


def test_a_text_that_is_too_long_is_not_read(monkeypatch: pytest.MonkeyPatch):
    """And one with too many documents is read up to the limit."""
    monkeypatch.setattr(documents, "MAX_DOCUMENTS", 2)
    found, problems = documents.load("---\na: 1\n" * 3, location="f.yaml")
    assert len(found) == 2
    assert "more than 2 documents" in problems[0].message
    monkeypatch.setattr(documents, "MAX_CHARACTERS", 5)
    found, problems = documents.load("a: 1234", location="f.yaml")
    assert found == ()
    assert "longer than 5 characters" in problems[0].message


def test_json_windows_lines_byte_order_mark_and_directives_are_fine():
    """All of them occur in files that people have."""
    text = (
        "\ufeff%YAML 1.1\r\n---\r\n"
        '{"kind": "A",\r\n\t"spec": {"a": [1, "b"]}}\r\n'
        "---\r\nkind: B\r\n"
    )
    found, problems = documents.load(text, location="f.yaml")
    assert problems == ()
    assert [one.kind for one in found] == ["A", "B"]
    assert found[0].manifest["spec"] == {"a": [1, "b"]}


_SCALARS = (
    strategies.none()
    | strategies.booleans()
    | strategies.integers()
    | strategies.floats(allow_nan=False, allow_infinity=False)
    | strategies.text()
)
_MANIFESTS = strategies.dictionaries(
    strategies.text(),
    strategies.recursive(
        _SCALARS,
        lambda inner: (
            strategies.lists(inner, max_size=4)
            | strategies.dictionaries(strategies.text(), inner, max_size=4)
        ),
        max_leaves=12,
    ),
    min_size=1,
    max_size=4,
)


@given(_MANIFESTS)
def test_what_is_dumped_is_loaded_as_it_was(manifest: dict[str, object]):
    """Text that looks like something else keeps being text."""
    found, problems = documents.load(documents.dump(manifest), location="f.yaml")
    assert problems == ()
    assert found[0].manifest == manifest


@given(strategies.text())
def test_no_text_raises(text: str):
    """Whatever a file has in it, its author gets problems and the service lives."""
    documents.load(text, location="f.yaml")
