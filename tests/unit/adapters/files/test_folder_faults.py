# SPDX-License-Identifier: Apache-2.0
"""Nothing good is lost by something bad."""

import asyncio
import os

import pytest

from tests.support import folders
from tests.support.waiting import eventually


@pytest.fixture
def mesh(tmp_path):
    path = tmp_path / "mesh"
    path.mkdir()
    return path


@pytest.fixture
def watched(tmp_path):
    return folders.Watched(tmp_path / "mesh", poll_interval=30)  # a poll must not be what helps


async def test_a_broken_file_keeps_what_it_held(mesh, watched):
    """Until it is repaired, its objects stay as they were; the problem says where it is broken."""
    path = mesh / "a.yaml"
    path.write_text(folders.rule())
    (mesh / "b.yaml").write_text(folders.rule("details"))
    async with folders.running(watched.folder):
        folders.replace(path, folders.rule(timeout="2s") + "  oops: [")
        (mesh / "b.yaml").write_text(folders.rule("details", "2s"))
        await eventually(lambda: watched.problems and watched.timeout(folders.DETAILS) == 2)
        assert watched.timeout() == 1
        (problem,) = watched.store.current().problems
        assert problem.location == f"{path}:1"
        assert "line" in problem.message
        assert watched.folder.problems == (problem,)
        folders.replace(path, folders.rule(timeout="3s"))
        await eventually(lambda: watched.timeout() == 3)
        assert watched.problems == []


async def test_a_broken_document_costs_itself_only(mesh, watched):
    """Of a file with two documents the sound one changes, the broken one stays as it was."""
    path = mesh / "a.yaml"
    path.write_text(f"{folders.rule()}---{folders.rule('details')}")
    async with folders.running(watched.folder):
        folders.replace(path, f"{folders.rule(timeout='[')}---{folders.rule('details', '2s')}")
        await eventually(lambda: watched.timeout(folders.DETAILS) == 2)
        assert watched.timeout() == 1
        assert len(watched.problems) == 1


async def test_a_wrong_field_keeps_the_last_good_object(mesh, watched):
    """The problem names file, document, object and field; repairing it counts one generation."""
    path = mesh / "a.yaml"
    path.write_text(f"{folders.rule('details')}---{folders.rule()}")
    async with folders.running(watched.folder):
        folders.replace(path, f"{folders.rule('details', '2s')}---{folders.rule(timeout='soon')}")
        await eventually(lambda: watched.timeout(folders.DETAILS) == 2)
        assert watched.timeout() == 1
        (problem,) = watched.store.current().problems
        assert problem.location == f"{path}:2"
        assert problem.key == folders.REVIEWS
        assert "spec.http[0].timeout" in problem.message
        folders.replace(path, f"{folders.rule('details', '2s')}---{folders.rule(timeout='3s')}")
        await eventually(lambda: watched.timeout() == 3)
        assert watched.configs[folders.REVIEWS].meta.generation == 2
        assert watched.problems == []


async def test_a_broken_service_keeps_the_last_good_one(mesh, watched):
    """The registry too serves what was good; the store shows the registry's problem."""
    (mesh / "a.yaml").write_text(folders.service())
    async with folders.running(watched.folder):
        folders.replace(mesh / "a.yaml", folders.service(port=0))
        await eventually(lambda: watched.problems)
        assert watched.problems == ["spec.ports[0].port: must be 1 to 65535, is 0"]
        (known,) = watched.registry.current().services.values()
        assert known.ports[0].number == 80
        assert len(watched.registry_changes) == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"\xff\xfe", "is not UTF-8 at byte 0"), (None, "is not a regular file")],
)
async def test_unreadable_files_are_problems(mesh, watched, content, message):
    """What was read of them before stays; other files are read."""
    (mesh / "a.yaml").write_text(folders.rule())
    (mesh / "b.yaml").write_text(folders.rule("details"))
    async with folders.running(watched.folder):
        (mesh / "a.yaml").unlink()
        if content is None:
            os.mkfifo(mesh / "a.yaml")
        else:
            (mesh / "a.yaml").write_bytes(content)
        await eventually(lambda: message in watched.problems)
        assert folders.DETAILS in watched.configs


async def test_a_vanished_folder_keeps_everything_and_says_so(tmp_path, mesh, watched):
    """Objects go when their files go, not when the folder does; it may come back."""
    (mesh / "a.yaml").write_text(folders.rule())
    async with folders.running(watched.folder):
        mesh.rename(tmp_path / "away")
        await eventually(lambda: watched.problems)
        assert watched.problems == ["the folder does not exist; what it held last stays in force"]
        assert watched.timeout() == 1
        assert watched.store.current().synced
        (tmp_path / "away" / "a.yaml").write_text(folders.rule(timeout="2s"))
        (tmp_path / "away").rename(mesh)
        await eventually(lambda: watched.timeout() == 2)
        assert watched.problems == []
        folders.replace(mesh / "a.yaml", folders.rule(timeout="3s"))
        await eventually(lambda: watched.timeout() == 3)


async def test_a_folder_that_does_not_exist_yet_is_not_synced(tmp_path):
    """Absent is not empty: nothing is synced until the folder can be read."""
    watched = folders.Watched(tmp_path / "a" / "b", poll_interval=30)
    async with folders.running(watched.folder, synced=False):
        await eventually(lambda: watched.folder.problems)
        assert watched.folder.problems[0].message == "the folder does not exist"
        assert not watched.store.current().synced
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "b").mkdir()
        (tmp_path / "a" / "b" / "x.yaml").write_text(folders.rule())
        async with asyncio.timeout(60):
            await watched.folder.synced()
        await eventually(lambda: watched.timeout() == 1)
        assert watched.folder.problems == ()


async def test_the_same_object_in_two_files(mesh, watched):
    """The first by path counts, the problem names both; when the first goes the other counts."""
    (mesh / "b.yaml").write_text(folders.rule(timeout="2s"))
    async with folders.running(watched.folder):
        (mesh / "a.yaml").write_text(folders.rule(timeout="1s"))
        await eventually(lambda: watched.timeout() == 1)
        (problem,) = watched.store.current().problems
        assert problem.key == folders.REVIEWS
        assert problem.message == f"is in {mesh}/b.yaml:1 and in {mesh}/a.yaml:1, which counts"
        (mesh / "a.yaml").unlink()
        await eventually(lambda: watched.timeout() == 2)
        assert watched.problems == []


@pytest.mark.parametrize(
    "name", [".hidden.yaml", "a.yaml~", ".a.yaml.swp", "4913", "#a.yaml#", ".git/a.yaml", "README"]
)
async def test_other_files_are_passed_over(mesh, watched, name):
    """Dotfiles, editors' files and everything without a known suffix mean nothing."""
    (mesh / name).parent.mkdir(exist_ok=True)
    (mesh / name).write_text("{")
    (mesh / "z.yaml").write_text(folders.rule())
    async with folders.running(watched.folder):
        assert list(watched.configs) == [folders.REVIEWS]
        assert watched.problems == []


async def test_unknown_kinds_of_ours_are_problems(mesh, watched):
    """A misspelt kind is told of; it is no object."""
    (mesh / "a.yaml").write_text(folders.rule().replace("RouteRule", "RouteRul"))
    async with folders.running(watched.folder):
        assert not watched.configs
        assert len(watched.problems) == 1
        assert "RouteRul" in watched.problems[0]


async def test_polling_finds_what_no_event_told(mesh, monkeypatch):
    """Where the system gives no events, the poll sees every change."""

    def refuse(*_):
        raise OSError("no more watches")

    monkeypatch.setattr("watchfiles._rust_notify.RustNotify", refuse)
    watched = folders.Watched(mesh, poll_interval=0.05)
    (mesh / "a.yaml").write_text(folders.rule())
    async with folders.running(watched.folder):
        folders.replace(mesh / "a.yaml", folders.rule(timeout="2s"))
        await eventually(lambda: watched.timeout() == 2)
