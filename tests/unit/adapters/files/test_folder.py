# SPDX-License-Identifier: Apache-2.0
"""A folder of real files: every kind of change is seen, and nothing good is lost by a bad one."""

import asyncio
import os
import pathlib
import shutil
import time

import pytest

from pilothouse.adapters.files import configs, folder, registry
from pilothouse.model import keys, services
from tests.support import folders
from tests.support.waiting import eventually

REVIEWS = keys.ObjectKey("RouteRule", "default", "reviews")
DETAILS = keys.ObjectKey("RouteRule", "default", "details")


def rule(name="reviews", timeout="1s", metadata=""):
    return f"""
apiVersion: pilothouse.dev/v1alpha1
kind: RouteRule
metadata: {{name: {name}{metadata}}}
spec:
  parents: [{{service: {name}}}]
  http: [{{destinations: [{{service: {name}}}], timeout: {timeout}}}]
"""


def service(name="web", port=80):
    return f"""
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec: {{ports: [{{port: {port}}}], clusterIP: None}}
"""


class Watched:
    """A folder with a store and a registry, and what its subscribers heard."""

    def __init__(self, path, **options):
        self.spans = []
        self.folder = folder.Folder(path, on_change=self._on_change, **options)
        self.store = configs.FileConfigStore(self.folder)
        self.registry = registry.FileRegistry(self.folder)
        self.changes = []
        self.registry_changes = []
        self.store.subscribe(self.changes.append)
        self.registry.subscribe(self.registry_changes.append)

    def _on_change(self, changed):
        self.spans.append(changed)
        return f"trace-{len(self.spans)}"

    @property
    def configs(self):
        return self.store.current().configs

    @property
    def problems(self):
        return [each.message for each in self.store.current().problems]

    def timeout(self, key=REVIEWS):
        config = self.configs.get(key)
        return config.spec.http[0].timeout.seconds if config else None


@pytest.fixture
def watched(tmp_path):
    return Watched(tmp_path / "mesh", poll_interval=30)  # a poll must not be what helps


@pytest.fixture
def mesh(tmp_path):
    path = tmp_path / "mesh"
    path.mkdir()
    return path


async def test_everything_is_read_before_anything_is_synced(mesh, watched):
    """synced() returns when config and registry are there; until then both say unsynced."""
    (mesh / "a.yaml").write_text(rule())
    (mesh / "sub").mkdir()
    (mesh / "sub" / "b.yml").write_text(f"{rule('details')}---{service()}")
    (mesh / "c.json").write_text('{"apiVersion": "apps/v1", "kind": "Deployment"}')
    assert not watched.store.current().synced
    assert not watched.registry.current().synced
    async with folders.running(watched.folder):
        assert watched.store.current().synced
        assert list(watched.configs) == [DETAILS, REVIEWS]
        assert list(watched.registry.current().services) == [keys.ServiceKey("default", "web")]
        assert watched.folder.ignored == 1
        assert watched.problems == []
        assert watched.configs[REVIEWS].meta.generation == 1
        assert watched.configs[REVIEWS].location == f"{mesh}/a.yaml:1"
        assert [each.keys for each in watched.changes] == [(DETAILS, REVIEWS)]


async def test_a_change_is_told_once_with_its_trace(mesh, watched):
    """One change makes one span; store and registry tell of it only what is theirs."""
    (mesh / "a.yaml").write_text(rule() + "---" + service())
    async with folders.running(watched.folder):
        folders.replace(mesh / "a.yaml", rule(timeout="2s") + "---" + service())
        await eventually(lambda: watched.timeout() == 2)
        assert watched.configs[REVIEWS].meta.generation == 2
        assert [(each.source, each.keys, each.traceparent) for each in watched.changes] == [
            ("files", (REVIEWS,), "trace-1"),
            ("files", (REVIEWS,), "trace-2"),
        ]
        assert len(watched.registry_changes) == 1
        assert watched.spans == [(REVIEWS, keys.ObjectKey("Service", "default", "web")), (REVIEWS,)]


@pytest.mark.parametrize("way", ["in place", "by rename", "by delete"])
async def test_ways_to_change_a_file(mesh, watched, way):
    """Written in place, renamed over, or deleted and written anew as some editors do."""
    path = mesh / "a.yaml"
    path.write_text(rule())
    async with folders.running(watched.folder):
        match way:
            case "in place":
                path.write_text(rule(timeout="2s"))
            case "by rename":
                folders.replace(path, rule(timeout="2s"))
            case "by delete":
                path.rename(mesh / "a.yaml~")
                path.write_text(rule(timeout="2s"))
        await eventually(lambda: watched.timeout() == 2)
        assert watched.configs[REVIEWS].meta.generation == 2


async def test_files_come_and_go(mesh, watched):
    """A new file adds its objects, a deleted one takes them away; new subfolders count."""
    (mesh / "a.yaml").write_text(rule())
    async with folders.running(watched.folder):
        (mesh / "deep" / "er").mkdir(parents=True)
        (mesh / "deep" / "er" / "b.yaml").write_text(rule("details"))
        await eventually(lambda: DETAILS in watched.configs)
        (mesh / "deep" / "er" / "b.yaml").write_text(rule("details", "2s"))
        await eventually(lambda: watched.timeout(DETAILS) == 2)
        (mesh / "a.yaml").unlink()
        await eventually(lambda: list(watched.configs) == [DETAILS])
        shutil.rmtree(mesh / "deep")
        await eventually(lambda: not watched.configs)
        assert watched.problems == []


async def test_a_moved_object_is_the_same_object(mesh, watched):
    """Moving an object to another file changes nothing; nobody is told."""
    (mesh / "a.yaml").write_text(rule())
    async with folders.running(watched.folder):
        (mesh / "a.yaml").rename(mesh / "b.yaml")
        await eventually(lambda: watched.configs[REVIEWS].location.endswith("b.yaml:1"))
        assert watched.configs[REVIEWS].meta.generation == 1
        assert len(watched.changes) == 1


async def test_touch_and_comments_change_nothing(mesh, watched):
    """Equal content is no change, and equal objects are none either."""
    (mesh / "a.yaml").write_text(rule())
    (mesh / "b.yaml").write_text(rule("details"))
    async with folders.running(watched.folder):
        os.utime(mesh / "a.yaml")
        folders.replace(mesh / "a.yaml", "# a comment\n" + rule())
        (mesh / "b.yaml").write_text(rule("details", "2s"))  # what we can wait for
        await eventually(lambda: watched.timeout(DETAILS) == 2)
        assert [each.keys for each in watched.changes[1:]] == [(DETAILS,)]
        assert watched.configs[REVIEWS].meta.generation == 1


def mount(volume: pathlib.Path, name: str, files: dict[str, str]):
    """What the kubelet does with a ConfigMap volume, once more on each update."""
    data = volume / name
    data.mkdir(parents=True)
    for file, text in files.items():
        (data / file).write_text(text)
    folders.swap_link(volume / "..data", name)
    for file in files:
        if not (volume / file).is_symlink():
            (volume / file).symlink_to(f"..data/{file}")
    for link in volume.glob("*.yaml"):
        if link.name not in files:
            link.unlink()
    for old in volume.glob("..2*"):
        if old.name != name:
            shutil.rmtree(old)


@pytest.mark.parametrize("depth", ["mounted", "linked"])
async def test_config_map_volumes_rotate(tmp_path, depth):
    """Every swap of ..data is seen, not the first one only; also through a link to the volume."""
    volume = tmp_path / "volume"
    mount(volume, "..2026_01", {"a.yaml": rule(), "b.yaml": rule("details")})
    path = volume
    if depth == "linked":
        path = tmp_path / "mesh"
        path.mkdir()
        (path / "config").symlink_to("../volume")
    watched = Watched(path, poll_interval=30)
    async with folders.running(watched.folder):
        assert list(watched.configs) == [DETAILS, REVIEWS]
        for second in (2, 3, 4):
            files = {"a.yaml": rule(timeout=f"{second}s"), "b.yaml": rule("details")}
            mount(volume, f"..2026_0{second}", files)
            await eventually(lambda second=second: watched.timeout() == second)
        mount(volume, "..2026_09", {"b.yaml": rule("details")})
        await eventually(lambda: list(watched.configs) == [DETAILS])
        assert watched.configs[DETAILS].meta.generation == 1
        await eventually(lambda: not watched.problems)


async def test_links_lead_anywhere(tmp_path, mesh, watched):
    """A chain of links into other folders is watched at each of its steps."""
    for version in ("v1", "v2"):
        (tmp_path / "releases" / version).mkdir(parents=True)
        (tmp_path / "releases" / version / "rule.yaml").write_text(rule(timeout=f"{version[1]}s"))
    (tmp_path / "releases" / "current").symlink_to("v1")
    (tmp_path / "hop").symlink_to(tmp_path / "releases" / "current")
    (mesh / "a.yaml").symlink_to("../hop/rule.yaml")
    async with folders.running(watched.folder):
        assert watched.timeout() == 1
        folders.swap_link(tmp_path / "releases" / "current", "v2")
        await eventually(lambda: watched.timeout() == 2)
        (tmp_path / "releases" / "v2" / "rule.yaml").write_text(rule(timeout="5s"))
        await eventually(lambda: watched.timeout() == 5)


async def test_the_folder_itself_may_be_a_link(tmp_path):
    """Pointing the folder's own name elsewhere is one change."""
    for version in ("v1", "v2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "a.yaml").write_text(rule(timeout=f"{version[1]}s"))
    (tmp_path / "mesh").symlink_to("v1")
    watched = Watched(tmp_path / "mesh", poll_interval=30)
    async with folders.running(watched.folder):
        folders.swap_link(tmp_path / "mesh", "v2")
        await eventually(lambda: watched.timeout() == 2)


async def test_links_in_a_circle_end(mesh, watched):
    """A folder that is linked into itself is read once."""
    (mesh / "sub").mkdir()
    (mesh / "sub" / "up").symlink_to("..")
    (mesh / "self.yaml").symlink_to("self.yaml")
    (mesh / "a.yaml").write_text(rule())
    async with folders.running(watched.folder):
        assert list(watched.configs) == [REVIEWS]
        assert len(watched.problems) == 1


async def test_a_broken_file_keeps_what_it_held(mesh, watched):
    """Until it is repaired, its objects stay as they were; the problem says where it is broken."""
    path = mesh / "a.yaml"
    path.write_text(rule())
    (mesh / "b.yaml").write_text(rule("details"))
    async with folders.running(watched.folder):
        folders.replace(path, rule(timeout="2s") + "  oops: [")
        (mesh / "b.yaml").write_text(rule("details", "2s"))
        await eventually(lambda: watched.problems and watched.timeout(DETAILS) == 2)
        assert watched.timeout() == 1
        (problem,) = watched.store.current().problems
        assert problem.location == f"{path}:1"
        assert "line" in problem.message
        assert watched.folder.problems == (problem,)
        folders.replace(path, rule(timeout="3s"))
        await eventually(lambda: watched.timeout() == 3)
        assert watched.problems == []


async def test_a_broken_document_costs_itself_only(mesh, watched):
    """Of a file with two documents the sound one changes, the broken one stays as it was."""
    path = mesh / "a.yaml"
    path.write_text(f"{rule()}---{rule('details')}")
    async with folders.running(watched.folder):
        folders.replace(path, f"{rule(timeout='[')}---{rule('details', '2s')}")
        await eventually(lambda: watched.timeout(DETAILS) == 2)
        assert watched.timeout() == 1
        assert len(watched.problems) == 1


async def test_a_wrong_field_keeps_the_last_good_object(mesh, watched):
    """The problem names file, document, object and field; repairing it counts one generation."""
    path = mesh / "a.yaml"
    path.write_text(f"{rule('details')}---{rule()}")
    async with folders.running(watched.folder):
        folders.replace(path, f"{rule('details', '2s')}---{rule(timeout='soon')}")
        await eventually(lambda: watched.timeout(DETAILS) == 2)
        assert watched.timeout() == 1
        (problem,) = watched.store.current().problems
        assert problem.location == f"{path}:2"
        assert problem.key == REVIEWS
        assert "spec.http[0].timeout" in problem.message
        folders.replace(path, f"{rule('details', '2s')}---{rule(timeout='3s')}")
        await eventually(lambda: watched.timeout() == 3)
        assert watched.configs[REVIEWS].meta.generation == 2
        assert watched.problems == []


async def test_a_broken_service_keeps_the_last_good_one(mesh, watched):
    """The registry too serves what was good; the store shows the registry's problem."""
    (mesh / "a.yaml").write_text(service())
    async with folders.running(watched.folder):
        folders.replace(mesh / "a.yaml", service(port=0))
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
    (mesh / "a.yaml").write_text(rule())
    (mesh / "b.yaml").write_text(rule("details"))
    async with folders.running(watched.folder):
        (mesh / "a.yaml").unlink()
        if content is None:
            os.mkfifo(mesh / "a.yaml")
        else:
            (mesh / "a.yaml").write_bytes(content)
        await eventually(lambda: message in watched.problems)
        assert DETAILS in watched.configs


async def test_a_link_to_nowhere_keeps_what_it_led_to(tmp_path, mesh, watched):
    """A dangling link is a problem, and heals when its target comes back."""
    (tmp_path / "rule.yaml").write_text(rule())
    (mesh / "a.yaml").symlink_to(tmp_path / "rule.yaml")
    async with folders.running(watched.folder):
        (tmp_path / "rule.yaml").unlink()
        await eventually(lambda: watched.problems)
        assert watched.problems == ["is a link to a file that does not exist"]
        assert watched.timeout() == 1
        (tmp_path / "rule.yaml").write_text(rule(timeout="2s"))
        await eventually(lambda: watched.timeout() == 2 and not watched.problems)


async def test_a_vanished_folder_keeps_everything_and_says_so(tmp_path, mesh, watched):
    """Objects go when their files go, not when the folder does; it may come back."""
    (mesh / "a.yaml").write_text(rule())
    async with folders.running(watched.folder):
        mesh.rename(tmp_path / "away")
        await eventually(lambda: watched.problems)
        assert watched.problems == ["the folder does not exist; what it held last stays in force"]
        assert watched.timeout() == 1
        assert watched.store.current().synced
        (tmp_path / "away" / "a.yaml").write_text(rule(timeout="2s"))
        (tmp_path / "away").rename(mesh)
        await eventually(lambda: watched.timeout() == 2)
        assert watched.problems == []
        folders.replace(mesh / "a.yaml", rule(timeout="3s"))
        await eventually(lambda: watched.timeout() == 3)


async def test_a_folder_that_does_not_exist_yet_is_not_synced(tmp_path):
    """Absent is not empty: nothing is synced until the folder can be read."""
    watched = Watched(tmp_path / "a" / "b", poll_interval=30)
    async with folders.running(watched.folder, synced=False):
        await eventually(lambda: watched.folder.problems)
        assert watched.folder.problems[0].message == "the folder does not exist"
        assert not watched.store.current().synced
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "b").mkdir()
        (tmp_path / "a" / "b" / "x.yaml").write_text(rule())
        async with asyncio.timeout(10):
            await watched.folder.synced()
        await eventually(lambda: watched.timeout() == 1)
        assert watched.folder.problems == ()


async def test_the_same_object_in_two_files(mesh, watched):
    """The first by path counts, the problem names both; when the first goes the other counts."""
    (mesh / "b.yaml").write_text(rule(timeout="2s"))
    async with folders.running(watched.folder):
        (mesh / "a.yaml").write_text(rule(timeout="1s"))
        await eventually(lambda: watched.timeout() == 1)
        (problem,) = watched.store.current().problems
        assert problem.key == REVIEWS
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
    (mesh / "z.yaml").write_text(rule())
    async with folders.running(watched.folder):
        assert list(watched.configs) == [REVIEWS]
        assert watched.problems == []


async def test_generations_of_the_file_count_when_it_has_them(mesh, watched):
    """metadata.generation is taken as it is."""
    (mesh / "a.yaml").write_text(rule(metadata=", generation: 7"))
    async with folders.running(watched.folder):
        assert watched.configs[REVIEWS].meta.generation == 7


async def test_generations_go_on_after_a_deletion(mesh, watched):
    """An object that was away for a moment does not start over."""
    (mesh / "a.yaml").write_text(rule())
    async with folders.running(watched.folder):
        (mesh / "a.yaml").unlink()
        await eventually(lambda: not watched.configs)
        (mesh / "a.yaml").write_text(rule(timeout="2s"))
        await eventually(lambda: watched.timeout() == 2)
        assert watched.configs[REVIEWS].meta.generation == 2


async def test_unknown_kinds_of_ours_are_problems(mesh, watched):
    """A misspelt kind is told of; it is no object."""
    (mesh / "a.yaml").write_text(rule().replace("RouteRule", "RouteRul"))
    async with folders.running(watched.folder):
        assert not watched.configs
        assert len(watched.problems) == 1
        assert "RouteRul" in watched.problems[0]


async def test_polling_finds_what_no_event_told(mesh, monkeypatch):
    """Where the system gives no events, the poll sees every change."""

    def refuse(*_):
        raise OSError("no more watches")

    monkeypatch.setattr("watchfiles._rust_notify.RustNotify", refuse)
    watched = Watched(mesh, poll_interval=0.05)
    (mesh / "a.yaml").write_text(rule())
    async with folders.running(watched.folder):
        folders.replace(mesh / "a.yaml", rule(timeout="2s"))
        await eventually(lambda: watched.timeout() == 2)


async def test_several_folders_on_one_loop(tmp_path):
    """Folders do not wait for each other, however many there are."""
    many = []
    for number in range(8):
        path = tmp_path / str(number)
        path.mkdir()
        (path / "a.yaml").write_text(rule())
        many.append(Watched(path, poll_interval=30))
    async with folders.running(*(each.folder for each in many)):
        for number in reversed(range(8)):
            folders.replace(tmp_path / str(number) / "a.yaml", rule(timeout="2s"))
        await eventually(lambda: all(each.timeout() == 2 for each in many))


async def test_only_the_changed_file_is_parsed(mesh, watched, monkeypatch):
    """One file changed is one file read and parsed."""
    for number in range(20):
        (mesh / f"{number:02}.yaml").write_text(rule(f"r{number}"))
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
        folders.replace(mesh / "07.yaml", rule("r7", "2s"))
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
    (mesh / "a.yaml").write_text(rule())
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
    other = service("db").replace("name: db", "name: db, namespace: depot")
    (mesh / "a.yaml").write_text(service())
    (mesh / "b.yaml").write_text(other)
    async with folders.running(watched.folder):
        before = watched.registry.current().services
        folders.replace(mesh / "a.yaml", service(port=81))
        await eventually(lambda: len(watched.registry_changes) == 2)
        after = watched.registry.current().services
        assert after[keys.ServiceKey("depot", "db")] is before[keys.ServiceKey("depot", "db")]
        assert after[keys.ServiceKey("default", "web")].port(81)


async def test_latency_is_measured(mesh, watched, record_property):
    """From the rename to the subscriber: reported, never asserted."""
    (mesh / "a.yaml").write_text(rule())
    async with folders.running(watched.folder):
        waits = []
        for second in range(2, 12):
            heard = asyncio.Event()
            end = watched.store.subscribe(lambda _, heard=heard: heard.set())
            begin = time.perf_counter()
            folders.replace(mesh / "a.yaml", rule(timeout=f"{second}s"))
            async with asyncio.timeout(10):
                await heard.wait()
            waits.append((time.perf_counter() - begin) * 1000)
            end()
        record_property("latency_ms", [round(each, 1) for each in sorted(waits)])
        print("latency in ms:", [round(each, 1) for each in sorted(waits)])  # noqa: T201


def test_registry_state_is_a_value():
    """Equal registries are equal: an unsynced one is not an empty one."""
    assert services.RegistryState() != services.RegistryState(synced=True)
