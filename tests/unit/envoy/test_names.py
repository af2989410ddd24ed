# SPDX-License-Identifier: Apache-2.0
"""The grammar of resource names: what the reference promises."""

import string

import hypothesis
import pytest
from hypothesis import strategies as st

from pilothouse.envoy import names
from pilothouse.model import keys, secrets
from pilothouse.routing import plan

REVIEWS = keys.ServiceKey(namespace="default", name="reviews")
# Punctuation of the grammar is what could confuse it, so it is drawn often.
TEXTS = st.text(st.sampled_from("ab.|,=:@~%/-_\x00é") | st.characters(codec="utf-8"), max_size=12)
SERVICES = st.builds(keys.ServiceKey, namespace=TEXTS, name=TEXTS)
CLUSTERS = st.builds(
    plan.ClusterKey,
    direction=st.sampled_from(plan.Direction),
    port=st.integers(0, 65535),
    service=st.none() | SERVICES,
    labels=st.dictionaries(TEXTS, TEXTS, max_size=3).map(keys.labels),
    external=st.booleans(),
    scope=TEXTS,
)


def outbound(port: int = 9080, **parts: object) -> plan.ClusterKey:
    return plan.ClusterKey(
        direction=plan.Direction.OUTBOUND, port=port, **{"service": REVIEWS, **parts}
    )


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (outbound(), "outbound|9080||reviews.default"),
        (
            outbound(labels=keys.labels(version="v2")),
            "outbound|9080|version=v2|reviews.default",
        ),
        (
            outbound(labels=keys.labels({"version": "v2", "app.kubernetes.io/name": "reviews"})),
            "outbound|9080|app.kubernetes.io/name=reviews,version=v2|reviews.default",
        ),
        (
            outbound(443, service=keys.ServiceKey("default", "github"), external=True),
            "outbound|443||external:github.default",
        ),
        (outbound(scope="shop"), "outbound|9080||reviews.default|from:shop"),
        (plan.ClusterKey(direction=plan.Direction.INBOUND, port=8080), "inbound|8080"),
        (
            outbound(service=keys.ServiceKey("a.b", "c.d"), labels=(("a,b=c", "d|e~é"),)),
            "outbound|9080|a%2Cb%3Dc=d%7Ce%7E%C3%A9|c.d.a%2Eb",
        ),
    ],
)
def test_the_names_of_the_reference(key: plan.ClusterKey, name: str):
    """The examples of the reference are the names given, and are read back."""
    assert names.cluster(key) == name
    assert names.parse_cluster(name) == key


@hypothesis.given(CLUSTERS)
def test_every_name_is_read_back_or_says_that_it_was_shortened(key: plan.ClusterKey):
    """A name holds the whole key, so that no two keys share one."""
    name = names.cluster(key)
    assert name.isascii()
    assert name.isprintable()
    assert len(name) <= names.MAX_LENGTH
    if "~" in name:
        with pytest.raises(ValueError, match="shortened"):
            names.parse_cluster(name)
    else:
        assert names.parse_cluster(name) == key


@hypothesis.given(CLUSTERS, CLUSTERS)
def test_two_keys_have_two_names(one: plan.ClusterKey, other: plan.ClusterKey):
    """Different keys have different names; this includes the shortened ones."""
    assert (names.cluster(one) == names.cluster(other)) == (one == other)


def test_a_long_name_is_shortened_but_still_says_what_it_is_about():
    """Long names keep their front; a difference far behind it still makes another name."""
    long = [outbound(labels=keys.labels(a="x" * 63, b="y" * 63, c="z" * 62 + c)) for c in "12"]
    first, second = map(names.cluster, long)
    assert len(first) == len(second) == names.MAX_LENGTH
    assert first.startswith("outbound|9080|a=xxx")
    assert first != second
    assert set(first.rpartition("~")[2]) <= set(string.hexdigits.lower())


@pytest.mark.parametrize(
    "name",
    [
        "",
        "inbound",
        "inbound|",
        "inbound|x",
        "inbound|-0",
        "inbound|080",
        "inbound|8080|",
        "sideways|80",
        "outbound|80||reviews",
        "outbound|80||reviews.default|shop",
        "outbound|80||reviews.default|from:",
        "outbound|80|version|reviews.default",
        "outbound|80||%72eviews.default",
        "outbound|80||%zz.default",
        "outbound|80||%ff.default",
        "outbound|80||reviews.default|from:shop|more",
        names.UNRESOLVED,
        "secret|default/shop-tls",
    ],
)
def test_what_is_no_cluster_name_is_refused(name: str):
    """There is one spelling of a name; everything else is an error that repeats it."""
    with pytest.raises(ValueError, match="is not the name of a cluster"):
        names.parse_cluster(name)


@hypothesis.given(st.builds(secrets.SecretKey, namespace=TEXTS, name=TEXTS))
def test_secrets_are_read_back(key: secrets.SecretKey):
    """The name of a certificate holds the secret's whole key."""
    assert names.parse_secret(names.secret(key)) == key


@pytest.mark.parametrize("name", ["", "secret|", "secret|a", "a/b", "secret|%61/b"])
def test_what_is_no_secret_name_is_refused(name: str):
    """Other names are an error that repeats them."""
    with pytest.raises(ValueError, match="is not the name of a secret"):
        names.parse_secret(name)


def test_the_secret_of_the_reference():
    """The example of the reference is the name given."""
    assert names.secret(secrets.SecretKey("default", "shop-tls")) == "secret|default/shop-tls"


def test_metrics_have_no_dots():
    """Envoy's tag rules take a cluster's name up to the first dot."""
    name = names.cluster(outbound(labels=keys.labels(version="v1.2")))
    assert names.stat(name) == "outbound|9080|version=v1/2|reviews/default"
