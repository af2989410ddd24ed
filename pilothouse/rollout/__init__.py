# SPDX-License-Identifier: Apache-2.0
"""Which version is in force, who holds it, what a change has reached. Pure."""
