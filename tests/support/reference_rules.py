# SPDX-License-Identifier: Apache-2.0
"""Routes of RouteRules out of thin air, as manifests: of few words, so that they meet requests.

They are made from a given source of randomness, so that a pool of them is the same each time.
Times are long: a busy machine is no reason for a timeout.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

Made = dict[str, Any]

PATHS = ("/", "/a", "/a/", "/a/b", "/ab", "/A")
_EXPRESSIONS = ("/a.*", "/[ab]+", "(?i)/a/b", ".*", "/a")
_TEMPLATES = ("/{x}", "/a/{x}", "/a/**", "/*/b", "/{x}/{y}", "/a/{y=**}")
_WORDS = ("1", "12", "one", "One")
_CASED = ("exact", "prefix", "suffix", "contains", "stringPrefix")
_PLACES: tuple[Made, ...] = (
    {"service": "reviews", "namespace": "default"},
    {"service": "reviews", "namespace": "default", "labels": {"version": "v1"}},
    {"service": "reviews", "namespace": "default", "labels": {"version": "v2"}},
    {"service": "reviews", "namespace": "default", "labels": {"version": "v3"}},
    {"service": "reviews"},
    {"service": "ratings", "namespace": "default"},
    {"service": "ratings", "namespace": "default", "port": 80},
    {"service": "cart", "namespace": "shop"},
    {"service": "cart", "namespace": "shop", "port": 5432},
    {"service": "cart", "namespace": "shop", "port": 81},
    {"service": "alias", "namespace": "default"},
    {"service": "missing"},
    {"externalService": "api", "namespace": "default"},
    {"externalService": "bank", "namespace": "default"},
)


class Source:
    """Makes parts of routes."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def pick(self, choices: Sequence[Any]) -> Any:
        """One of several."""
        return self._random.choice(choices)

    def rarely(self, made: Callable[[], Any], *, one_of: int = 5) -> Any:
        """Something once in a while, else None."""
        return made() if self._random.randrange(one_of) == 0 else None

    def http_route(self, *, itself: bool) -> Made:
        """A route for HTTP; with ``itself`` it may go to the parent."""
        fates: tuple[Callable[[], Made], ...] = (
            *(self._forward,) * 5,
            *(self._redirected, self._answered),
        )
        made: Made = self.pick((*fates, self._to_parent) if itself else fates)()
        made["responseHeaders"] = self.rarely(self._changes)
        made["fault"] = self.rarely(self._fault, one_of=8)
        made["cors"] = self.rarely(lambda: {"allowOrigins": [{"exact": "https://a.com"}]})
        made["name"] = self.rarely(lambda: "named")
        return _without_none(made)

    def grpc_route(self) -> Made:
        """A route for gRPC."""
        matches = [
            _without_none(
                {
                    "service": self.pick((None, "shop.Cart", "shop.Cart", "shop")),
                    "method": self.pick((None, None, "Add", "Get")),
                    "headers": self.rarely(self._headers),
                }
            )
            for _ in range(self.pick((0, 1, 1, 2)))
        ]
        return _without_none({"destinations": self._destinations(), "matches": matches or None})

    def matches(self, path: Callable[[], Made]) -> list[Made] | None:
        """Some matches, or None."""
        return [self._match(path) for _ in range(self.pick((0, 1, 1, 1, 2)))] or None

    def _match(self, path: Callable[[], Made]) -> Made:
        return _without_none(
            {
                "path": self.pick((path, path, lambda: None))(),
                "method": self.rarely(lambda: self.pick(("GET", "POST", "OPTIONS")), one_of=6),
                "headers": self.rarely(self._headers, one_of=4),
                "queryParameters": self.rarely(self._parameters, one_of=8),
                "cookies": self.rarely(self._cookies, one_of=8),
                "scheme": self.rarely(lambda: self.pick(("http", "https")), one_of=10),
                "authority": self.rarely(self._authority, one_of=10),
                "port": self.rarely(lambda: self.pick((80, 8080, 9080)), one_of=12),
            }
        )

    def _test(self, **tests: Sequence[Any]) -> Made:
        name = self.pick(sorted(tests))
        made = {name: self.pick(tests[name])}
        if name in _CASED and self._random.randrange(4) == 0:
            made["ignoreCase"] = True
        return made

    def any_path(self) -> Made:
        """A test of the path."""
        return self._test(
            exact=PATHS,
            prefix=PATHS,
            stringPrefix=PATHS,
            regex=_EXPRESSIONS,
            template=_TEMPLATES,
        )

    def _a_prefix(self) -> Made:
        return self._test(prefix=PATHS, stringPrefix=PATHS)

    def _a_template(self) -> Made:
        return {"template": self.pick(("/{x}", "/a/{x=**}", "/{x}/b"))}

    def _headers(self) -> list[Made]:
        return [self.header() for _ in range(self.pick((1, 1, 2)))]

    def header(self) -> Made:
        """A test of a header."""
        ranges = ({"min": 1}, {"max": 11}, {"min": 2, "max": 12})
        made = self._test(
            exact=_WORDS,
            prefix=_WORDS,
            suffix=_WORDS,
            contains=_WORDS,
            regex=("[0-9]+", "one|1", ".*", "(?i)one"),
            range=ranges,
            present=(True, False),
        )
        if "present" not in made and self._random.randrange(3) == 0:
            made["invert"] = True
        return {"name": self.pick(("x-a", "X-B")), **made}

    def _parameters(self) -> list[Made]:
        test = self._test(
            exact=_WORDS, prefix=_WORDS, regex=("[0-9]*", "one"), present=(True, False)
        )
        test.pop("ignoreCase", None)
        return [{"name": self.pick("pq"), **test}]

    def _cookies(self) -> list[Made]:
        test = self._test(exact=_WORDS, prefix=_WORDS, present=(True, False))
        test.pop("ignoreCase", None)
        return [{"name": "c", **test}]

    def _authority(self) -> Made:
        test = self._test(
            exact=("a.com", "reviews", "Reviews.default"),
            prefix=("b.", "reviews", "R"),
            suffix=(".a.com", ".default", "S"),
            regex=("[^.]+", "b[.]a[.].*"),
        )
        test.pop("ignoreCase", None)
        return test

    def _changes(self) -> Made:
        return {
            self.pick(("set", "add")): self.pick(({"X-A": "new"}, {"x-b": "50% new"})),
            **self.pick(({}, {"remove": ["x-a"]}, {"remove": ["X-B"]})),
        }

    def _destinations(self) -> list[Made]:
        found = [
            _without_none(
                {
                    **self.pick(_PLACES),
                    "weight": self.rarely(lambda: self.pick((0, 2, 3)), one_of=3),
                    "requestHeaders": self.rarely(self._changes),
                    "responseHeaders": self.rarely(self._changes),
                }
            )
            for _ in range(self.pick((1, 1, 2, 3)))
        ]
        if not any(each.get("weight", 1) for each in found):
            found[0]["weight"] = 1
        return found

    def _forward(self) -> Made:
        return {**self._to_parent(), "destinations": self._destinations()}

    def _to_parent(self) -> Made:
        rewrite = self.rarely(self._rewrite, one_of=2) or {}
        path = self.any_path
        if "prefix" in rewrite:
            path = self._a_prefix
        matches = self.matches(path)
        if "template" in rewrite:
            matches = [{**each, "path": self._a_template()} for each in matches or [{}]]
        return {
            "matches": matches,
            "rewrite": rewrite or None,
            "mirrors": self.rarely(self._mirrors),
            "timeout": self.rarely(lambda: self.pick(("50s", "25500ms", "1h"))),
            "retry": self.rarely(self._retry),
            "requestHeaders": self.rarely(self._changes),
            "maxRequestBytes": self.rarely(lambda: 1000, one_of=12),
        }

    def _rewrite(self) -> Made:
        path = self.pick(
            (
                {"prefix": self.pick(("/", "/new", "/new/"))},
                {"prefix": self.pick(("/", "/new", "/new/"))},
                {"full": "/whole"},
                {"regex": {"pattern": "a(b?)", "substitution": r"x\1"}},
                {"template": "/t/{x}/u"},
                {"host": "other.org"},
            )
        )
        return {**path, **(self.rarely(lambda: {"host": "other.org:81"}) or {})}

    def _mirrors(self) -> list[Made]:
        share = self.rarely(lambda: self.pick((0.5, 50, 0)), one_of=2)
        return [_without_none({"destination": self.pick(_PLACES), "percent": share})]

    def _retry(self) -> Made:
        return _without_none(
            {
                "attempts": self.rarely(lambda: self.pick((0, 1, 5)), one_of=2),
                "retryOn": self.rarely(lambda: self.pick((["5xx"], ["reset", "unavailable"]))),
                "statusCodes": self.rarely(lambda: self.pick(([409], [503, 429]))),
                "perTryTimeout": self.rarely(lambda: "25s"),
                "previousHosts": self.rarely(lambda: True),
            }
        )

    def _fault(self) -> Made:
        abort = {"httpStatus": self.pick((418, 503))}
        share = self.rarely(lambda: {"percent": self.pick((0.25, 10, 100))}, one_of=2) or {}
        return _without_none(
            {
                "abort": {**abort, **share},
                "delay": self.rarely(lambda: {"duration": "5ms", "percent": 1.5}, one_of=2),
                "headers": self.rarely(self._headers, one_of=2),
            }
        )

    def _redirected(self) -> Made:
        redirect = _without_none(
            {
                "scheme": self.rarely(lambda: self.pick(("http", "https")), one_of=2),
                "host": self.rarely(lambda: "moved.org"),
                "port": self.rarely(lambda: self.pick((80, 443, 8080))),
                "code": self.rarely(lambda: self.pick((301, 303, 307, 308))),
                "stripQuery": self.rarely(lambda: True),
            }
        )
        paths: tuple[Made, ...] = ({"path": "/there"}, {"prefix": "/"}, {"prefix": "/new"})
        free = {"scheme", "host", "port"} & set(redirect)
        redirect.update(self.pick((*paths, {}) if free else paths))
        path = self._a_prefix if "prefix" in redirect else self.any_path
        return {"matches": self.matches(path), "redirect": redirect}

    def _answered(self) -> Made:
        answer = self.pick(({"status": 200, "body": "answer"}, {"status": 404}))
        return {"matches": self.matches(self.any_path), "directResponse": answer}


def _without_none(made: Made) -> Made:
    return {name: value for name, value in made.items() if value is not None}


def pool(make: Callable[[Source], Any], count: int) -> list[Any]:
    """So many of something, the same each time, the simplest first."""
    return sorted((make(Source(seed)) for seed in range(count)), key=lambda each: len(repr(each)))
