"""The data of the image-classification examples: whole sets, shards, and damaged files."""

import gzip
import importlib.util
import pathlib
import re
import struct
import sys
from typing import Any, Dict, Tuple

import numpy as np
import pytest
from inline_snapshot import snapshot
from sentences import masked

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES = {
    "train-images-idx3-ubyte": (20, 28, 28),
    "train-labels-idx1-ubyte": (20,),
    "t10k-images-idx3-ubyte": (7, 28, 28),
    "t10k-labels-idx1-ubyte": (7,),
}


def _load_module() -> Any:  # noqa: ANN401 - a module
    path = ROOT / "example" / "image-classification" / "common" / "data.py"
    spec = importlib.util.spec_from_file_location("example_data", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["example_data"] = module
    spec.loader.exec_module(module)
    return module


data = _load_module()


def idx(content: np.ndarray) -> bytes:
    header = struct.pack(f">BBBB{content.ndim}I", 0, 0, 8, content.ndim, *content.shape)
    return header + content.tobytes()


def arrays() -> Dict[str, np.ndarray]:
    random = np.random.RandomState(1)
    return {
        name: random.randint(0, 10 if len(shape) == 1 else 256, shape).astype(np.uint8)
        for name, shape in NAMES.items()
    }


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    for name, content in arrays().items():
        (tmp_path / name).write_bytes(idx(content))
    return tmp_path


def refusal(folder: pathlib.Path) -> str:
    with pytest.raises(data.DataError) as caught:
        data.load(str(folder))
    return str(caught.value)


def images_and_labels(samples: int) -> Tuple[np.ndarray, np.ndarray]:
    labels = np.arange(samples, dtype=np.float32)
    return labels.reshape(-1, 1, 1, 1), labels


# -- the digits that scikit-learn ships -----------------------------------------------------------


def test_digits_are_there_without_a_download() -> None:
    digits = data.load()
    assert digits.train_images.shape == (1500, 1, 8, 8)
    assert digits.val_images.shape == (297, 1, 8, 8)
    assert digits.train_labels.shape == (1500,)
    assert digits.val_labels.shape == (297,)
    for part in digits:
        assert part.dtype == np.float32
    for images in (digits.train_images, digits.val_images):
        assert (images.min(), images.max()) == (0.0, 1.0)
    for labels in (digits.train_labels, digits.val_labels):
        assert set(labels) == set(range(10))


def test_digits_are_the_same_every_time() -> None:
    for first, second in zip(data.load(), data.load()):
        np.testing.assert_array_equal(first, second)


def test_without_scikit_learn_the_error_names_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(data.DataError) as caught:
        data.load()
    assert str(caught.value) == snapshot(
        "the default data set comes with scikit-learn: pip install scikit-learn, "
        "or pass --data-dir with MNIST's idx files"
    )


# -- shards ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("samples", "workers"), [(10, 1), (10, 2), (11, 2), (13, 4), (3, 3)])
def test_shards_are_equally_long_and_share_nothing(samples: int, workers: int) -> None:
    images, labels = images_and_labels(samples)
    whole = data.Dataset(images, labels, images, labels)
    seen = []
    for rank in range(workers):
        mine, mine_labels = data.shard(whole, rank, workers)
        assert len(mine) == len(mine_labels) == samples // workers
        np.testing.assert_array_equal(mine.ravel(), mine_labels)
        seen += mine_labels.tolist()
    assert len(seen) == len(set(seen)) == samples // workers * workers


def test_too_few_samples_leave_empty_shards() -> None:
    images, labels = images_and_labels(2)
    assert len(data.shard(data.Dataset(images, labels, images, labels), 0, 3)[1]) == 0


# -- idx files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
def test_idx_files_are_read_plain_and_packed(folder: pathlib.Path, packed: bool) -> None:
    if packed:
        for name in NAMES:
            plain = folder / name
            (folder / f"{name}.gz").write_bytes(gzip.compress(plain.read_bytes()))
            plain.unlink()
    loaded = data.load(str(folder))
    for got, (name, want) in zip(loaded, arrays().items()):
        assert got.dtype == np.float32
        if "images" in name:
            np.testing.assert_array_equal(got, want[:, None].astype(np.float32) / 255.0)
        else:
            np.testing.assert_array_equal(got, want)


def test_a_missing_file_is_named(folder: pathlib.Path) -> None:
    (folder / "t10k-labels-idx1-ubyte").unlink()
    assert masked(refusal(folder), FOLDER=folder) == snapshot(
        "FOLDER has neither t10k-labels-idx1-ubyte nor t10k-labels-idx1-ubyte.gz; put MNIST's "
        "four idx files there, or leave out --data-dir to use scikit-learn's digits"
    )


def test_a_missing_folder_is_named(tmp_path: pathlib.Path) -> None:
    assert f"{tmp_path / 'no'} has neither train-images-idx3-ubyte" in refusal(tmp_path / "no")


@pytest.mark.parametrize(("change", "bytes_left"), [(-5, 20 * 784 - 5), (3, 20 * 784 + 3)])
def test_a_file_of_the_wrong_length_is_damaged(
    folder: pathlib.Path, change: int, bytes_left: int
) -> None:
    path = folder / "train-images-idx3-ubyte"
    content = path.read_bytes()
    path.write_bytes(content[:change] if change < 0 else content + b"x" * change)
    assert masked(refusal(folder), FILE=path, BYTES=bytes_left) == snapshot(
        "FILE: BYTES bytes of data, the header promises 15680; the file is damaged, fetch it again"
    )


@pytest.mark.parametrize(
    "content",
    [b"", b"\0\0\x08\x03", b"<html>not found</html>", idx(np.zeros((20, 28), np.uint8))],
)
def test_a_file_that_is_no_idx_file_is_refused(folder: pathlib.Path, content: bytes) -> None:
    path = folder / "train-images-idx3-ubyte"
    path.write_bytes(content)
    assert masked(refusal(folder), FILE=path) == snapshot(
        "FILE: not an idx file of 3 dimension(s) of bytes; fetch it again"
    )


def test_a_header_with_huge_numbers_is_refused(folder: pathlib.Path) -> None:
    path = folder / "train-images-idx3-ubyte"
    # 2^64 bytes: none at all, for who counts in 64 bits.
    path.write_bytes(struct.pack(">BBBBIII", 0, 0, 8, 3, 2**31, 2**31, 4))
    assert f"0 bytes of data, the header promises {2**64}" in refusal(folder)


@pytest.mark.parametrize("damage", ["cut", "flipped", "not packed"])
def test_a_damaged_gz_file_is_named(folder: pathlib.Path, damage: str) -> None:
    plain = folder / "train-images-idx3-ubyte"
    packed = bytearray(gzip.compress(plain.read_bytes()))
    if damage == "cut":
        packed = packed[: len(packed) // 2]
    elif damage == "flipped":
        packed[20:2000] = bytes(byte ^ 0xFF for byte in packed[20:2000])
    else:
        packed = bytearray(b"plain text")
    plain.unlink()
    path = folder / "train-images-idx3-ubyte.gz"
    path.write_bytes(packed)
    text = re.escape(str(path)) + r": cannot be read \(.+\); fetch it again"
    assert re.fullmatch(text, refusal(folder))


def test_images_and_labels_that_do_not_belong_together_are_refused(folder: pathlib.Path) -> None:
    (folder / "train-labels-idx1-ubyte").write_bytes(idx(np.zeros(19, np.uint8)))
    assert masked(refusal(folder), FOLDER=folder) == snapshot(
        "FOLDER: train-images-idx3-ubyte has 20 images but train-labels-idx1-ubyte has 19 labels; "
        "the files do not belong together"
    )


def test_a_label_that_is_no_digit_is_refused(folder: pathlib.Path) -> None:
    (folder / "t10k-labels-idx1-ubyte").write_bytes(idx(np.full(7, 10, np.uint8)))
    assert masked(refusal(folder), FOLDER=folder) == snapshot(
        "FOLDER: t10k-labels-idx1-ubyte has a label 10, want 0 to 9; fetch it again"
    )
