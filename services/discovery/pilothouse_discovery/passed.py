# SPDX-License-Identifier: Apache-2.0
"""The services beside xDS: what one process answers for all."""

from __future__ import annotations

from typing import Final

from pilothouse.api.registry.v1alpha1 import registry_service_pb2
from pilothouse.api.status.v1alpha1 import status_service_pb2
from pilothouse_discovery import client_status, load_reports

STATUS: Final = status_service_pb2.DESCRIPTOR.services_by_name["StatusService"].full_name
REGISTRY: Final = registry_service_pb2.DESCRIPTOR.services_by_name["RegistryService"].full_name
SERVICES: Final = (STATUS, REGISTRY, client_status.SERVICE, load_reports.SERVICE)
"""Their full names."""
