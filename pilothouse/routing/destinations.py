# SPDX-License-Identifier: Apache-2.0
"""What destinations lead to, by the name of a service: also where that name is an alias."""

from __future__ import annotations

from collections.abc import Mapping

from pilothouse.model import keys
from pilothouse.model import services as registry
from pilothouse.routing import hosts, parsed, rules


def targets(
    services: Mapping[keys.ServiceKey, registry.Service],
    externals: Mapping[keys.ServiceKey, parsed.External],
    aliases: hosts.Aliases,
) -> Mapping[keys.ServiceKey, rules.Target]:
    """What there is by each name of a service.

    An alias of a service or an external service is these, so all that is said of them holds. One
    that stands for itself in the end stays what it is, and leads nowhere.
    """
    if not aliases.of and not aliases.outside:
        return services
    found: dict[keys.ServiceKey, rules.Target] = dict(services)
    for ref, names in aliases.of.items():
        target = externals.get(ref.key) if ref.external else services.get(ref.key)
        found |= dict.fromkeys(names, target)
    for key in aliases.outside:
        found[key] = rules.Outside(key=key, ports=hosts.outside_ports(services[key]))
    return found
