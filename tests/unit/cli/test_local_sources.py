# SPDX-License-Identifier: Apache-2.0
"""The folder of a mesh on one machine, read and read again."""

import asyncio
from pathlib import Path

import pytest

from pilothouse.cli.local import errors, sources

SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: %s}\n"


def _names(source: sources.Source) -> list[str]:
    return [one.name[1] for one in source.manifests]


def test_a_folder_that_is_not_there_is_told(tmp_path: Path):
    with pytest.raises(errors.MeshError, match="nowhere: no such folder"):
        sources.Source(tmp_path / "nowhere")


def test_files_are_read_by_path_and_hidden_ones_are_not(tmp_path: Path):
    (tmp_path / "b.yaml").write_text(SERVICE % "b")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "c.yml").write_text(SERVICE % "c")
    (tmp_path / "a.json").write_text('{"kind": "Service", "metadata": {"name": "a"}}')
    for passed_over in (".hidden.yaml", "README.md", "d.yaml~"):
        (tmp_path / passed_over).write_text(SERVICE % "x")

    source = sources.Source(tmp_path)

    assert _names(source) == ["a", "b", "c"]


async def test_a_change_is_seen_and_a_half_written_file_takes_nothing_away(tmp_path: Path):
    file = tmp_path / "a.yaml"
    file.write_text(SERVICE % "a")
    source = sources.Source(tmp_path)
    async with asyncio.timeout(60):
        sources.replace(file, (SERVICE % "b") + "---\nkind: [Serv")
        await source.changed()
        assert set(_names(source)) == {"a", "b"}
        sources.replace(file, SERVICE % "b")
        await source.changed()
        assert _names(source) == ["b"]
        sources.replace(tmp_path / "new.yaml", SERVICE % "c")
        await source.changed()
        assert _names(source) == ["b", "c"]
        file.unlink()
        await source.changed()
        assert _names(source) == ["c"]


def test_messages_name_the_folder_as_its_user_does_and_the_file_of_an_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "a.yaml").write_text(SERVICE % "a")
    monkeypatch.chdir(tmp_path)
    source = sources.Source(Path("shop"))
    config = source.link(tmp_path / "config")

    assert source.in_users_words(f"{config}/user/a.yaml:1: broken") == "shop/a.yaml:1: broken"
    said = "Service/default/a: Accepted: no"
    assert source.in_users_words(said) == f"shop/a.yaml:1: {said}"
    assert source.in_users_words("Service/default/b: no") == "Service/default/b: no"
