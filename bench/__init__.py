# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: real servers as processes of their own, clients beside them on the same machine."""
