# SPDX-License-Identifier: Apache-2.0
"""A whole mesh on one machine: its addresses, its programs, how they start and stop."""
