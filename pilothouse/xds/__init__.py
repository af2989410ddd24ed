# SPDX-License-Identifier: Apache-2.0
"""The xDS protocol, sans-I/O: what to send when, for state of the world and delta, as server and as client."""
