# SPDX-License-Identifier: Apache-2.0
"""The ports' implementations, where I/O happens. Adapters do not know each other."""
