# SPDX-License-Identifier: Apache-2.0
"""What the project is built and checked with. Never shipped in a wheel."""
