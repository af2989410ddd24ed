# SPDX-License-Identifier: Apache-2.0
"""What goes wrong with a mesh on one machine."""


class MeshError(Exception):
    """The mesh could not be started, or a part of it ended; the message is for the user."""
