# SPDX-License-Identifier: Apache-2.0
"""An independent reader of Envoy's messages: envoy-data-plane, which shares no code with ours.

It is imported here, where the one warning that its import gives is kept from becoming an error.
"""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # pydantic's, of how it declares validators
    from envoy_data_plane.envoy.config.cluster import v3 as cluster
    from envoy_data_plane.envoy.config.endpoint import v3 as endpoint
    from envoy_data_plane.envoy.config.listener import v3 as listener
    from envoy_data_plane.envoy.config.route import v3 as route
    from envoy_data_plane.envoy.extensions.filters.http.fault import v3 as fault
    from envoy_data_plane.envoy.extensions.filters.network.http_connection_manager import (
        v3 as connection_manager,
    )
    from envoy_data_plane.envoy.extensions.transport_sockets.tls import v3 as tls

__all__ = ["cluster", "connection_manager", "endpoint", "fault", "listener", "route", "tls"]
