# SPDX-License-Identifier: Apache-2.0
"""Generated from protobuf files by `make gen`: do not edit."""
