# SPDX-License-Identifier: Apache-2.0
"""The gate: what is about to be published is looked at once, as the client will look at it."""
