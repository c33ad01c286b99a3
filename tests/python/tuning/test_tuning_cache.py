"""The file that remembers, also when it is none."""

import json
import os
import pathlib
from typing import Dict

import pytest
from inline_snapshot import snapshot
from sentences import masked

from bytescheduler._tuning.cache import Cache, CacheError, Place, default_path
from bytescheduler._tuning.points import Point

PLACE = Place(161, 138_000_000, 2, 2, "10.0.0.1")
POINT = Point(256 << 10, 1 << 20)


@pytest.fixture
def cache(tmp_path: pathlib.Path) -> Cache:
    return Cache(tmp_path / "below" / "tuning.json")


def test_remembers_each_model_and_cluster(cache: Cache) -> None:
    assert cache.find(PLACE) is None
    cache.keep(PLACE, POINT, 0.5)
    cache.keep(PLACE._replace(workers=3), Point(65536, 131072), 0.25)
    assert cache.find(PLACE) == (POINT, 0.5)
    assert cache.find(PLACE._replace(workers=3)) == (Point(65536, 131072), 0.25)
    for other in ("tensors", "model_bytes", "servers"):
        assert cache.find(PLACE._replace(**{other: 7})) is None
    assert cache.find(PLACE._replace(root="10.0.0.2")) is None
    cache.keep(PLACE, Point(32768, 32768), 0.4)
    assert cache.find(PLACE) == (Point(32768, 32768), 0.4)


def test_knows_on_which_other_cluster_a_model_was(cache: Cache) -> None:
    assert cache.other_cluster(PLACE) is None
    cache.keep(PLACE._replace(tensors=PLACE.tensors + 1, workers=3), POINT, 0.5)
    assert cache.other_cluster(PLACE) is None
    there = PLACE._replace(workers=4)
    cache.keep(there, POINT, 0.5)
    assert cache.other_cluster(PLACE) == f"4 workers, {PLACE.servers} servers, {PLACE.root}"
    cache.keep(PLACE, POINT, 0.5)
    assert cache.other_cluster(PLACE) is None


def test_keeps_the_newest_of_very_many(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bytescheduler._tuning.cache._MOST_RESULTS", 2)
    for workers in (1, 2, 3):
        cache.keep(PLACE._replace(workers=workers), POINT, 0.5)
    cache.keep(PLACE._replace(workers=2), POINT, 0.4)
    cache.keep(PLACE._replace(workers=4), POINT, 0.5)
    found = [workers for workers in range(5) if cache.find(PLACE._replace(workers=workers))]
    assert found == [2, 4]


def of(**changed: object) -> str:
    row: Dict[str, object] = {"partition": 65536, "credit": 65536, "step_s": 0.5}
    row.update(changed)
    whole = {"kind": "bytescheduler tuning", "version": 1, "results": {"somewhere": row}}
    return json.dumps(whole)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not a file of tuning results; remove it"),
        ("[1, 2]", "is not a file of tuning results"),
        ('{"kind": "bytescheduler tuning", "version": 1, "resu', "is not a file of tuning results"),
        ("[" * 100_000, "is not a file of tuning results"),
        ('{"kind": "bytescheduler tuning", "version": 2}', "is of another version"),
        ('{"kind": "bytescheduler tuning", "version": 1}', "has results that make no sense"),
        (of(partition=12), "has results that make no sense"),
        (of(partition=65536.5), "has results that make no sense"),
        (of(credit=0), "has results that make no sense"),
        (of(step_s=float("nan")), "has results that make no sense"),
        (of(step_s=10**400), "has results that make no sense"),
        (of(step_s="fast"), "has results that make no sense"),
    ],
)
def test_a_file_that_is_not_ours_is_left_alone(tmp_path: pathlib.Path, text: str, why: str) -> None:
    path = tmp_path / "tuning.json"
    path.write_text(text)
    cache = Cache(path)
    with pytest.raises(CacheError, match=f"^{path} {why}"):
        cache.find(PLACE)
    with pytest.raises(CacheError, match=why):
        cache.keep(PLACE, POINT, 0.5)
    assert path.read_text() == text


def test_a_good_row_is_kept_beside_new_rows(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "tuning.json"
    path.write_text(of())
    cache = Cache(path)
    cache.keep(PLACE, POINT, 0.5)
    assert sorted(json.loads(path.read_text())["results"]) == sorted(["somewhere", PLACE.text()])


def test_a_place_where_nothing_can_be_written_is_an_error(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    cache = Cache(tmp_path / "file" / "tuning.json")
    with pytest.raises(CacheError, match="Not a directory"):
        cache.keep(PLACE, POINT, 0.5)
    full = Cache(pathlib.Path("/dev/full/tuning.json"))
    with pytest.raises(CacheError, match="/dev/full/tuning.json: "):
        full.keep(PLACE, POINT, 0.5)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    cache: Cache, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.keep(PLACE, POINT, 0.5)

    def no_space(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", no_space)
        with pytest.raises(CacheError, match="No space left") as raised:
            cache.keep(PLACE._replace(workers=9), POINT, 0.5)
        assert masked(str(raised.value), FOLDER=tmp_path) == snapshot(
            "FOLDER/below/tuning.json: No space left on device; nothing is remembered"
        )
    assert cache.find(PLACE) == (POINT, 0.5)
    assert os.listdir(tmp_path / "below") == ["tuning.json"]


def test_is_in_the_cache_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_path() == pathlib.Path("/somewhere/bytescheduler/tuning.json")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # which the specification says to ignore
    monkeypatch.setenv("HOME", "/home/me")
    assert default_path() == pathlib.Path("/home/me/.cache/bytescheduler/tuning.json")
