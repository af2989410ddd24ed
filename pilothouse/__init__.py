# SPDX-License-Identifier: Apache-2.0
"""Pilothouse steers a fleet of Envoys: the library that its services share."""
