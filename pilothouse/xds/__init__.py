# SPDX-License-Identifier: Apache-2.0
"""The xDS protocol without I/O: requests in, responses out. Pure; knows no Envoy config."""
