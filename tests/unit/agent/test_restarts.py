# SPDX-License-Identifier: Apache-2.0
"""The budget of restarts."""

import pytest

from pilothouse_agent import restarts


def test_ten_restarts_at_doubling_distances_and_then_none():
    budget = restarts.RestartBudget()
    delays = [budget.next_delay(0) for _ in range(11)]
    assert delays[:4] == [0.2, 0.4, 0.8, 1.6]
    assert delays[9] == pytest.approx(102.4)
    assert delays[10] is None


def test_only_a_change_of_configuration_fills_it_again():
    budget = restarts.RestartBudget()
    for _ in range(10):
        budget.next_delay(3)
    assert budget.next_delay(3) is None
    assert budget.next_delay(4) == 0.2
    assert budget.next_delay(4) == 0.4
