# SPDX-License-Identifier: Apache-2.0
"""The kinds of config object: schema, defaults, validation, YAML, stores' port. Pure."""
