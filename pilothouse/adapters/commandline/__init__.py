# SPDX-License-Identifier: Apache-2.0
"""Settings of a program: its flags and its ``PILOTHOUSE_*`` variables, which are the same.

A program declares them once, as a pydantic-settings class with a docstring under every field; this
room makes the command line of it: ``--help`` from the docstrings, ``--version``, and errors that
name the flag and the variable.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pydantic
import pydantic_settings

_S = TypeVar("_S", bound=pydantic_settings.BaseSettings)

CONFIG = pydantic_settings.SettingsConfigDict(
    env_prefix="PILOTHOUSE_",
    frozen=True,
    extra="ignore",
    cli_kebab_case=True,
    cli_implicit_flags=True,
    cli_hide_none_type=True,
    cli_avoid_json=True,
    use_attribute_docstrings=True,
)
"""The ``model_config`` of every settings class."""


class UsageError(Exception):
    """The settings cannot be read; the text names each one that is wrong, a line for each."""


def read(
    settings: type[_S],
    arguments: Sequence[str],
    *,
    program: str,
    epilog: str = "",
    versions: Callable[[], str],
) -> _S:
    """Read the settings from flags and environment; a flag wins over its variable.

    Args:
        settings: the class; its docstring is what ``--help`` begins with.
        arguments: the command line without the program's name.
        program: the program's name.
        epilog: what ``--help`` ends with, for example examples.
        versions: gives what ``--version`` prints.

    Raises:
        UsageError: one or more settings are wrong.
        SystemExit: after ``--help`` and ``--version``.
    """
    parser = argparse.ArgumentParser(
        prog=program,
        description=settings.__doc__,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    # Read by hand: as a setting it would also be a variable, and images set PILOTHOUSE_VERSION.
    parser.add_argument(
        "--version",
        action=_version_action(versions),
        nargs=0,
        help="print versions and end",
    )
    source: pydantic_settings.CliSettingsSource[argparse.ArgumentParser]
    source = pydantic_settings.CliSettingsSource(
        settings, root_parser=parser, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    try:
        return pydantic_settings.CliApp.run(
            settings, cli_args=list(arguments), cli_settings_source=source
        )
    except pydantic.ValidationError as error:
        lines = (_problem(one["loc"], one["msg"]) for one in error.errors())
        raise UsageError("\n".join(lines)) from error


def _version_action(versions: Callable[[], str]) -> type[argparse.Action]:
    class Print(argparse.Action):
        def __call__(self, *_arguments: Any, **_keywords: Any) -> None:
            print(versions())  # noqa: T201  this is its output
            raise SystemExit(0)

    return Print


def _problem(location: tuple[int | str, ...], text: str) -> str:
    text = text.removeprefix("Value error, ")
    if not location:
        return text
    name = str(location[0])
    flag, variable = f"--{name.replace('_', '-')}", f"PILOTHOUSE_{name.upper()}"
    if text == "Field required":
        return f"{flag} is required (or {variable})"
    return f"{flag} (or {variable}): {text}"
