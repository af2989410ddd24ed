# SPDX-License-Identifier: Apache-2.0
"""Links are followed the way Kubernetes and people make them, however often they are swapped."""

import pathlib
import shutil

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
    mount(volume, "..2026_01", {"a.yaml": folders.rule(), "b.yaml": folders.rule("details")})
    path = volume
    if depth == "linked":
        path = tmp_path / "mesh"
        path.mkdir()
        (path / "config").symlink_to("../volume")
    watched = folders.Watched(path, poll_interval=30)
    async with folders.running(watched.folder):
        assert list(watched.configs) == [folders.DETAILS, folders.REVIEWS]
        for second in (2, 3, 4):
            files = {
                "a.yaml": folders.rule(timeout=f"{second}s"),
                "b.yaml": folders.rule("details"),
            }
            mount(volume, f"..2026_0{second}", files)
            await eventually(lambda second=second: watched.timeout() == second)
        mount(volume, "..2026_09", {"b.yaml": folders.rule("details")})
        await eventually(lambda: list(watched.configs) == [folders.DETAILS])
        assert watched.configs[folders.DETAILS].meta.generation == 1
        await eventually(lambda: not watched.problems)


async def test_links_lead_anywhere(tmp_path, mesh, watched):
    """A chain of links into other folders is watched at each of its steps."""
    for version in ("v1", "v2"):
        (tmp_path / "releases" / version).mkdir(parents=True)
        (tmp_path / "releases" / version / "rule.yaml").write_text(
            folders.rule(timeout=f"{version[1]}s")
        )
    (tmp_path / "releases" / "current").symlink_to("v1")
    (tmp_path / "hop").symlink_to(tmp_path / "releases" / "current")
    (mesh / "a.yaml").symlink_to("../hop/rule.yaml")
    async with folders.running(watched.folder):
        assert watched.timeout() == 1
        folders.swap_link(tmp_path / "releases" / "current", "v2")
        await eventually(lambda: watched.timeout() == 2)
        (tmp_path / "releases" / "v2" / "rule.yaml").write_text(folders.rule(timeout="5s"))
        await eventually(lambda: watched.timeout() == 5)


async def test_the_folder_itself_may_be_a_link(tmp_path):
    """Pointing the folder's own name elsewhere is one change."""
    for version in ("v1", "v2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "a.yaml").write_text(folders.rule(timeout=f"{version[1]}s"))
    (tmp_path / "mesh").symlink_to("v1")
    watched = folders.Watched(tmp_path / "mesh", poll_interval=30)
    async with folders.running(watched.folder):
        folders.swap_link(tmp_path / "mesh", "v2")
        await eventually(lambda: watched.timeout() == 2)


async def test_links_in_a_circle_end(mesh, watched):
    """A folder that is linked into itself is read once."""
    (mesh / "sub").mkdir()
    (mesh / "sub" / "up").symlink_to("..")
    (mesh / "self.yaml").symlink_to("self.yaml")
    (mesh / "a.yaml").write_text(folders.rule())
    async with folders.running(watched.folder):
        assert list(watched.configs) == [folders.REVIEWS]
        assert len(watched.problems) == 1


async def test_a_link_to_nowhere_keeps_what_it_led_to(tmp_path, mesh, watched):
    """A dangling link is a problem, and heals when its target comes back."""
    (tmp_path / "rule.yaml").write_text(folders.rule())
    (mesh / "a.yaml").symlink_to(tmp_path / "rule.yaml")
    async with folders.running(watched.folder):
        (tmp_path / "rule.yaml").unlink()
        await eventually(lambda: watched.problems)
        assert watched.problems == ["is a link to a file that does not exist"]
        assert watched.timeout() == 1
        (tmp_path / "rule.yaml").write_text(folders.rule(timeout="2s"))
        await eventually(lambda: watched.timeout() == 2 and not watched.problems)
