# SPDX-License-Identifier: Apache-2.0
"""Waves end with the last answer."""

from pilothouse.rollout import waves


def _outcome(proxy: str, at: int, **more: object) -> waves.ProxyOutcome:
    return waves.ProxyOutcome(proxy=proxy, at=at, **more)  # type: ignore[arg-type]


def test_a_wave_ends_with_its_last_answer() -> None:
    """It lasts from the push to the last answer, and names the slowest proxies first."""
    book = waves.WaveBook()
    book.open(["a", "b"], at=100)

    assert book.settle("a", _outcome("a", 150)) == ()
    (done,) = book.settle("b", _outcome("b", 180))

    assert (done.started, done.ended, done.acked) == (100, 180, 2)
    assert [one.proxy for one in done.slowest] == ["b", "a"]
    assert book.under_way() == ()


def test_a_newer_snapshot_answers_for_older_waves() -> None:
    """A stream that is in sync has answered every wave that waited for it."""
    book = waves.WaveBook()
    book.open(["a", "b"], at=1)
    book.open(["a"], at=2)

    (second,) = book.settle("a", _outcome("a", 3))
    (first,) = book.settle("b", _outcome("b", 4))

    assert (first.number, second.number) == (1, 2)


def test_who_refuses_or_goes_is_counted_apart() -> None:
    """Neither a refusal nor an ended stream is an acknowledgement, and neither holds a wave."""
    book = waves.WaveBook()
    book.open(["a", "b"], at=1)
    book.settle("a", _outcome("a", 2, refused="bad route"))

    (done,) = book.settle("b", _outcome("b", 3, gone=True))

    assert done.acked == 0
    assert [one.refused for one in done.refused] == ["bad route"]


def test_a_wave_to_nobody_is_done() -> None:
    """A change that reaches no proxy waits for none."""
    book = waves.WaveBook()

    assert book.open([], at=7).done
    assert book.under_way() == ()


def test_a_stream_nobody_waits_for_finishes_nothing() -> None:
    """An acknowledgement outside every wave is no news."""
    assert waves.WaveBook().settle("a", _outcome("a", 1)) == ()
