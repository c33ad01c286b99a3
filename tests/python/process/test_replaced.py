"""Files that are replaced whole or not at all, and what is written to directly."""

import os
import pathlib
import resource
import stat
import threading
from typing import List

import pytest

from bytescheduler._process.replaced import replaced


def names(folder: pathlib.Path) -> List[str]:
    return sorted(path.name for path in folder.iterdir())


def put(path: "pathlib.Path | str", content: bytes) -> None:
    with replaced(path) as file:
        file.write(content)


def test_a_new_file_has_the_permissions_of_any_and_an_old_one_keeps_its_own(
    tmp_path: pathlib.Path,
) -> None:
    other, file = tmp_path / "other", tmp_path / "file"
    other.touch()
    put(file, b"new")
    assert (file.read_bytes(), file.stat().st_mode) == (b"new", other.stat().st_mode)
    file.chmod(0o640)
    put(file, b"newer")
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"newer", 0o640)
    assert names(tmp_path) == ["file", "other"]


def test_a_failed_write_keeps_the_old_file(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"old")

    def fail() -> None:
        with replaced(file) as to:
            to.write(b"half of it")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert (file.read_bytes(), names(tmp_path)) == (b"old", ["file"])


def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))  # Python ignores its signal
    try:
        with pytest.raises(OSError, match="File too large") as caught:
            put(file, b"x" * 101)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.filename == str(file)
    assert (file.read_bytes(), names(tmp_path)) == (b"old", ["file"])


def test_a_link_stays_and_its_file_is_replaced(tmp_path: pathlib.Path) -> None:
    link, file = tmp_path / "link", tmp_path / "folder" / "file"
    file.parent.mkdir()
    link.symlink_to(file)  # which is not there yet
    for content in (b"new", b"newer"):
        put(link, content)
        assert link.is_symlink()
        assert file.read_bytes() == content
    assert names(file.parent) == ["file"]


def test_pipes_and_devices_are_written_to(tmp_path: pathlib.Path) -> None:
    link, fifo = tmp_path / "full", tmp_path / "fifo"
    link.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device") as caught:
        put(link, b"new")
    assert caught.value.filename == str(link)
    os.mkfifo(fifo)
    thread = threading.Thread(target=put, args=(fifo, b"new"))
    thread.start()
    assert fifo.read_bytes() == b"new"
    thread.join()
    read_end, write_end = os.pipe()
    put(f"/dev/fd/{write_end}", b"new")
    assert os.read(read_end, 9) == b"new"
    os.close(read_end)
    os.close(write_end)
    assert names(tmp_path) == ["fifo", "full"]


@pytest.mark.parametrize("name", ["", "no/file", "folder", "new/"])
def test_a_path_that_cannot_be_a_file_is_named(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=r"No such file|Is a directory") as caught:
        put(name, b"new")
    assert caught.value.filename == name
    assert names(tmp_path) == ["folder"]


def test_a_working_directory_that_is_gone_is_no_folder(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(FileNotFoundError) as caught:
        put("new", b"new")
    assert caught.value.filename == "new"
