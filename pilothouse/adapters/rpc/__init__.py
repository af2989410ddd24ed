# SPDX-License-Identifier: Apache-2.0
"""gRPC and HTTP on the wire: xDS streams, config sources, and what every server program needs.

Rules: the protocol's logic is `pilothouse.xds`, which does no I/O; here bytes move between it and
`grpc.aio`, tasks wait and deadlines run. Tracing comes in as a parameter, never by import.
"""
