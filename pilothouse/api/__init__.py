# SPDX-License-Identifier: Apache-2.0
"""Protobuf messages: ours from protos/, Envoy's made at build time. Generated below here."""
