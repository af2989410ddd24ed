# SPDX-License-Identifier: Apache-2.0
"""The mesh as we see it: services, ports, endpoints, proxies. Pure."""
