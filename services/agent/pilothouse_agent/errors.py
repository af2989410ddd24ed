# SPDX-License-Identifier: Apache-2.0
"""What the agent gives up for."""


class AgentError(Exception):
    """The agent cannot start or go on; the text says why and names the setting to change."""
