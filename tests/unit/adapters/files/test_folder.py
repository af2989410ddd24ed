# SPDX-License-Identifier: Apache-2.0
"""A folder of real files: every kind of change is seen, once, and told to whom it concerns."""

import asyncio
import os
import shutil

import pytest

from pilothouse.adapters.files import configs, folder
from pilothouse.model import keys
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


async def test_everything_is_read_before_anything_is_synced(mesh, watched):
    """synced() returns when config and registry are there; until then both say unsynced."""
    (mesh / "a.yaml").write_text(folders.rule())
    (mesh / "sub").mkdir()
    (mesh / "sub" / "b.yml").write_text(f"{folders.rule('details')}---{folders.service()}")
    (mesh / "c.json").write_text('{"apiVersion": "apps/v1", "kind": "Deployment"}')
    assert not watched.store.current().synced
    assert not watched.registry.current().synced
    async with folders.running(watched.folder):
        assert watched.store.current().synced
        assert list(watched.configs) == [folders.DETAILS, folders.REVIEWS]
        assert list(watched.registry.current().services) == [keys.ServiceKey("default", "web")]
        assert watched.folder.ignored == 1
        assert watched.problems == []
        assert watched.configs[folders.REVIEWS].meta.generation == 1
        assert watched.configs[folders.REVIEWS].location == f"{mesh}/a.yaml:1"
        assert [each.keys for each in watched.changes] == [(folders.DETAILS, folders.REVIEWS)]


async def test_a_change_is_told_once_with_its_trace(mesh, watched):
    """One change makes one span; store and registry tell of it only what is theirs."""
    (mesh / "a.yaml").write_text(folders.rule() + "---" + folders.service())
    async with folders.running(watched.folder):
        folders.replace(mesh / "a.yaml", folders.rule(timeout="2s") + "---" + folders.service())
        await eventually(lambda: watched.timeout() == 2)
        assert watched.configs[folders.REVIEWS].meta.generation == 2
        assert [(each.source, each.keys, each.traceparent) for each in watched.changes] == [
            ("files", (folders.REVIEWS,), "trace-1"),
            ("files", (folders.REVIEWS,), "trace-2"),
        ]
        assert len(watched.registry_changes) == 1
        assert watched.spans == [
            (folders.REVIEWS, keys.ObjectKey("Service", "default", "web")),
            (folders.REVIEWS,),
        ]


@pytest.mark.parametrize("way", ["in place", "by rename", "by delete"])
async def test_ways_to_change_a_file(mesh, watched, way):
    """Written in place, renamed over, or deleted and written anew as some editors do."""
    path = mesh / "a.yaml"
    path.write_text(folders.rule())
    async with folders.running(watched.folder):
        match way:
            case "in place":
                path.write_text(folders.rule(timeout="2s"))
            case "by rename":
                folders.replace(path, folders.rule(timeout="2s"))
            case "by delete":
                path.rename(mesh / "a.yaml~")
                path.write_text(folders.rule(timeout="2s"))
        await eventually(lambda: watched.timeout() == 2)
        assert watched.configs[folders.REVIEWS].meta.generation == 2


async def test_files_come_and_go(mesh, watched):
    """A new file adds its objects, a deleted one takes them away; new subfolders count."""
    (mesh / "a.yaml").write_text(folders.rule())
    async with folders.running(watched.folder):
        (mesh / "deep" / "er").mkdir(parents=True)
        (mesh / "deep" / "er" / "b.yaml").write_text(folders.rule("details"))
        await eventually(lambda: folders.DETAILS in watched.configs)
        (mesh / "deep" / "er" / "b.yaml").write_text(folders.rule("details", "2s"))
        await eventually(lambda: watched.timeout(folders.DETAILS) == 2)
        (mesh / "a.yaml").unlink()
        await eventually(lambda: list(watched.configs) == [folders.DETAILS])
        shutil.rmtree(mesh / "deep")
        await eventually(lambda: not watched.configs)
        assert watched.problems == []


async def test_a_moved_object_is_the_same_object(mesh, watched):
    """Moving an object to another file changes nothing; nobody is told."""
    (mesh / "a.yaml").write_text(folders.rule())
    async with folders.running(watched.folder):
        (mesh / "a.yaml").rename(mesh / "b.yaml")
        await eventually(lambda: watched.configs[folders.REVIEWS].location.endswith("b.yaml:1"))
        assert watched.configs[folders.REVIEWS].meta.generation == 1
        assert len(watched.changes) == 1


async def test_touch_and_comments_change_nothing(mesh, watched):
    """Equal content is no change, and equal objects are none either."""
    (mesh / "a.yaml").write_text(folders.rule())
    (mesh / "b.yaml").write_text(folders.rule("details"))
    async with folders.running(watched.folder):
        os.utime(mesh / "a.yaml")
        folders.replace(mesh / "a.yaml", "# a comment\n" + folders.rule())
        (mesh / "b.yaml").write_text(folders.rule("details", "2s"))  # what we can wait for
        await eventually(lambda: watched.timeout(folders.DETAILS) == 2)
        assert [each.keys for each in watched.changes[1:]] == [(folders.DETAILS,)]
        assert watched.configs[folders.REVIEWS].meta.generation == 1


async def test_generations_of_the_file_count_when_it_has_them(mesh, watched):
    """metadata.generation is taken as it is."""
    (mesh / "a.yaml").write_text(folders.rule(metadata=", generation: 7"))
    async with folders.running(watched.folder):
        assert watched.configs[folders.REVIEWS].meta.generation == 7


async def test_generations_go_on_after_a_deletion(mesh, watched):
    """An object that was away for a moment does not start over."""
    (mesh / "a.yaml").write_text(folders.rule())
    async with folders.running(watched.folder):
        (mesh / "a.yaml").unlink()
        await eventually(lambda: not watched.configs)
        (mesh / "a.yaml").write_text(folders.rule(timeout="2s"))
        await eventually(lambda: watched.timeout() == 2)
        assert watched.configs[folders.REVIEWS].meta.generation == 2


async def test_several_folders_on_one_loop(tmp_path):
    """Folders do not wait for each other, however many there are."""
    many = []
    for number in range(8):
        path = tmp_path / str(number)
        path.mkdir()
        (path / "a.yaml").write_text(folders.rule())
        many.append(folders.Watched(path, poll_interval=30))
    async with folders.running(*(each.folder for each in many)):
        for number in reversed(range(8)):
            folders.replace(tmp_path / str(number) / "a.yaml", folders.rule(timeout="2s"))
        await eventually(lambda: all(each.timeout() == 2 for each in many))


async def test_only_the_changed_file_is_parsed(mesh, watched, monkeypatch):
    """One file changed is one file read and parsed."""
    for number in range(20):
        (mesh / f"{number:02}.yaml").write_text(folders.rule(f"r{number}"))
    async with folders.running(watched.folder):
        # Files just written are looked at once more; from then on they are known.
        await eventually(lambda: watched.folder._content.settled)
        parsed = []
        real = folder.content.documents.load

        def load(text, *, location):
            parsed.append(location)
            return real(text, location=location)

        monkeypatch.setattr(folder.content.documents, "load", load)
        before = dict(watched.configs)
        folders.replace(mesh / "07.yaml", folders.rule("r7", "2s"))
        key = keys.ObjectKey("RouteRule", "default", "r7")
        await eventually(lambda: watched.timeout(key) == 2)
        assert parsed == [f"{mesh}/07.yaml"]
        same = [each for each in before if watched.configs[each] is before[each]]
        assert len(same) == 19


async def test_an_ended_subscription_is_quiet(mesh, watched):
    """The answer of subscribe ends it; twice is once."""
    heard = []
    end = watched.store.subscribe(heard.append)
    end()
    end()
    (mesh / "a.yaml").write_text(folders.rule())
    async with folders.running(watched.folder):
        assert heard == []
        assert watched.changes


async def test_views_come_before_running(mesh, watched):
    """A view made too late would never be filled: that is refused."""
    async with folders.running(watched.folder):
        with pytest.raises(RuntimeError, match="make its views before"):
            configs.FileConfigStore(watched.folder)
        with pytest.raises(RuntimeError, match="running already"):
            await watched.folder.run()


async def test_only_the_touched_namespace_is_joined_anew(mesh, watched):
    """Endpoints of other namespaces are the very same values after a change."""
    other = folders.service("db").replace("name: db", "name: db, namespace: depot")
    (mesh / "a.yaml").write_text(folders.service())
    (mesh / "b.yaml").write_text(other)
    async with folders.running(watched.folder):
        before = watched.registry.current().services
        folders.replace(mesh / "a.yaml", folders.service(port=81))
        await eventually(lambda: len(watched.registry_changes) == 2)
        after = watched.registry.current().services
        assert after[keys.ServiceKey("depot", "db")] is before[keys.ServiceKey("depot", "db")]
        assert after[keys.ServiceKey("default", "web")].port(81)


async def test_every_swap_of_a_file_is_heard(mesh, watched):
    """Also when one comes right after another was told."""
    (mesh / "a.yaml").write_text(folders.rule())
    async with folders.running(watched.folder):
        for second in range(2, 12):
            heard = asyncio.Event()
            end = watched.store.subscribe(lambda _, heard=heard: heard.set())
            folders.replace(mesh / "a.yaml", folders.rule(timeout=f"{second}s"))
            async with asyncio.timeout(60):
                await heard.wait()
            end()


async def test_a_second_look_at_a_young_file_builds_nothing(mesh, watched, monkeypatch):
    """A file that was just written is read once more: equal content is put together once."""
    (mesh / "a.yaml").write_text(folders.rule() + "---" + folders.service())
    built = []
    for view in (watched.store, watched.registry):
        real = view._build

        def build(values, changed, real=real):
            built.append(tuple(changed))
            return real(values, changed)

        monkeypatch.setattr(view, "_build", build)
    async with folders.running(watched.folder):
        assert len(built) == 2
        await eventually(lambda: watched.folder._content.settled)
        assert len(built) == 2
        folders.replace(mesh / "a.yaml", folders.rule(timeout="2s") + "---" + folders.service())
        await eventually(lambda: watched.timeout() == 2)
        await eventually(lambda: watched.folder._content.settled)
        # The service was read anew and is equal.
        assert built[2:] == [(folders.REVIEWS,), ()]
