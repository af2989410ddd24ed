# SPDX-License-Identifier: Apache-2.0
"""From a proxy's plan to Envoy's resources. Pure."""
