# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: real servers as processes of their own, clients beside them on the same machine."""

import os

# Before gRPC is loaded: its C part tells of every connection that a stopped server closes.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
