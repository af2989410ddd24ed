# SPDX-License-Identifier: Apache-2.0
"""The agent: runs beside every proxy, starts it, relays its configuration, and says how it is."""
