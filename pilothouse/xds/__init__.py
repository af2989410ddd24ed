# SPDX-License-Identifier: Apache-2.0
"""The xDS protocol, sans-I/O: what to send when, in both variants, as server and as client."""
