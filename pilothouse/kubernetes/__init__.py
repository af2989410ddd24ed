# SPDX-License-Identifier: Apache-2.0
"""Kubernetes manifests in, model and config kinds out. Pure; knows no API server."""
