# SPDX-License-Identifier: Apache-2.0
"""From the state of the mesh to a plan for each proxy. Pure; knows no Envoy."""
