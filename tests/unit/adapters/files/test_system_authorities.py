# SPDX-License-Identifier: Apache-2.0
"""The authorities of this machine's system, beside other secrets."""

import pathlib
from collections.abc import Callable, Mapping

import pytest

from pilothouse.adapters.files import system_authorities
from pilothouse.model import changes, secrets
from tests.support import certificates

ONE, TWO = certificates.make("one").certificate, certificates.make("two").certificate
KEY = secrets.SecretKey("default", "other")


class Others:
    """A source with one secret."""

    name = "others"

    def __init__(self) -> None:
        self.told: list[Callable[[changes.Change], None]] = []

    def secrets(self) -> Mapping[secrets.SecretKey, secrets.TlsSecret]:
        return {KEY: secrets.TlsSecret(key=KEY, authorities=b"others")}

    def subscribe(self, notify: Callable[[changes.Change], None]) -> Callable[[], None]:
        self.told.append(notify)
        return lambda: self.told.remove(notify)


def test_what_nobody_could_read_is_left_out(tmp_path: pathlib.Path):
    """Else a proxy would refuse all for the sake of one; nor does text in between count."""
    broken = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"
    path = tmp_path / "bundle.pem"
    path.write_text(f"# One\n{ONE}\n# Broken\n{broken}# Two\n{TWO}")
    assert system_authorities.read(path).decode() == ONE + TWO


def test_the_first_place_that_is_there_counts(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    """When no file is named; on a machine without any there are no authorities."""
    places = (tmp_path / "none", tmp_path / "first", tmp_path / "second")
    monkeypatch.setattr(system_authorities, "PLACES", places)
    assert system_authorities.read(None) == b""
    places[2].write_text(TWO)
    assert system_authorities.read(None).decode() == TWO
    places[1].write_text(ONE)
    assert system_authorities.read(None).decode() == ONE


def test_a_file_that_is_named_must_be_there(tmp_path: pathlib.Path):
    """It is no good to trust nobody, or somebody else, instead."""
    with pytest.raises(FileNotFoundError):
        system_authorities.read(tmp_path / "none")


def test_they_are_one_more_secret():
    """In key order; without any the other source is as it was. Changes are those of the other."""
    others = Others()
    both = system_authorities.WithSystem(others, b"system").secrets()
    assert list(both) == sorted(both) == [secrets.SYSTEM, KEY]
    assert both[secrets.SYSTEM].uses == {secrets.AuthorityKey(secrets.SYSTEM)}
    without = system_authorities.WithSystem(others, b"")
    assert list(without.secrets()) == [KEY]
    end = without.subscribe(lambda _: None)
    assert len(others.told) == 1
    end()
    assert others.told == []
