# SPDX-License-Identifier: Apache-2.0
"""What a parent and its workers say arrives as it was said."""

from __future__ import annotations

import marshal

import pytest

from pilothouse_discovery.workers import messages

SAID: list[messages.Message] = [
    messages.Hello(messages.VERSION, "127.0.0.1:15010", "unix-abstract:x", 30.0, 5.0, (1.5, 2)),
    messages.Serving(),
    messages.Resource(7, "t", "näme", "v", b"\x00\xff", (("u", "other"),), b""),
    messages.Layer(8, 0, (("t", "gone"),), (7,)),
    messages.Snapshot(9, (8, 0)),
    messages.Target((1, 2), 9, "00-a-b-01"),
    messages.Moved(
        clients=(1, 2),
        target=9,
        arrived=True,
        idle=False,
        in_sync=False,
        places=(("t", 9, None, True),),
        refused=(("t", "n", "no"),),
    ),
    messages.Closed(1, "UNAVAILABLE", "over"),
    messages.Drop((7,), (8,), (9,)),
]


def test_a_frame_is_its_length_and_then_its_messages() -> None:
    """Fields and kinds are the same at the other end, in the same order."""
    frame = messages.encode(SAID)
    header, body = frame[: messages.HEADER], frame[messages.HEADER :]
    assert messages.length(header) == int.from_bytes(header, "big") == len(body)
    decoded = messages.decode(body)
    assert decoded == SAID
    assert [type(one) for one in decoded] == [type(one) for one in SAID]


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"garbage",
        marshal.dumps([("Unheard", 1)]),
        marshal.dumps([("Target", 1)]),
        marshal.dumps([("Target", 1, 2, "", 4)]),
        marshal.dumps(5),
        marshal.dumps([()]),
    ],
)
def test_anything_else_is_refused(frame: bytes) -> None:
    """Another program, or another version of this one."""
    with pytest.raises(ValueError, match="not a frame"):
        messages.decode(frame)
