# SPDX-License-Identifier: Apache-2.0
"""Several processes that serve streams, and one that builds for them all (docs/adr/0050).

The parent reads the sources, builds, knows every client and answers whatever is asked about them. A
worker has the streams of the clients that happened to reach it: it gets finished resources from the
parent, moves its clients to their targets, and tells how far they are.
"""
