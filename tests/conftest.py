# SPDX-License-Identifier: Apache-2.0
"""What every test has: options, and hypothesis without a clock."""

import asyncio
import os

import hypothesis
import pytest

# A slow machine is no failure; a failing example is printed so that it can be pasted. CI judges a
# change by the same examples each time; new ones are found on developers' machines.
hypothesis.settings.register_profile(
    "pilothouse", deadline=None, print_blob=True, derandomize="CI" in os.environ
)
hypothesis.settings.load_profile("pilothouse")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-golden",
        action="store_true",
        help="write the expected files of golden tests anew, for a person to review",
    )


def pytest_configure(config: pytest.Config) -> None:
    # Else pytest-asyncio asks for "the old loop", gets a new one made for it, and never closes it:
    # a ResourceWarning, so a failure, in whichever test the collector happens to run.
    asyncio.set_event_loop(None)
    if config.getoption("--rewrite-golden") and "CI" in os.environ:
        raise pytest.UsageError("CI compares golden files, it never rewrites them")
    if config.getoption("--rewrite-golden"):
        os.environ["PILOTHOUSE_REWRITE_GOLDEN"] = "1"  # read by tests/support/golden.py
