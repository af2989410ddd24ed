# SPDX-License-Identifier: Apache-2.0
"""Whether a client held something before its stream is known for the life of the stream."""

import pytest

from tests.support import xds_peer
from tests.support.xds_peer import CDS, LDS


@pytest.mark.parametrize("variant", ["sotw", "delta"])
def test_a_claim_is_remembered_by_type(variant: str):
    """Of a type that it claims nothing of, and of one that it never asked for, it held nothing."""
    peer = xds_peer.connect(variant)
    peer.ask(CDS, held={"a": "1"} if variant == "delta" else {"": "1"})
    peer.ask(LDS)
    stream = peer.stream
    assert (stream.claimed(CDS), stream.claimed(LDS), stream.claimed(xds_peer.RDS)) == (
        True,
        False,
        False,
    )
    peer.stream.update(xds_peer.resources.Snapshot.EMPTY)
    while peer.stream.poll() is not None:
        pass
    assert stream.claimed(CDS)
