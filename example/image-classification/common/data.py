"""Real images without a download: scikit-learn's digits, or MNIST's idx files from a folder."""

import gzip
import math
import os
import struct
import zlib
from typing import NamedTuple, Optional, Tuple

import numpy as np

_IDX_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "val": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}


class DataError(Exception):
    """The data is not there or is damaged; the message says what to do."""


class Dataset(NamedTuple):
    """Images as float32 (n, 1, height, width) in [0, 1], labels as float32 (n,)."""

    train_images: np.ndarray
    train_labels: np.ndarray
    val_images: np.ndarray
    val_labels: np.ndarray


def load(data_dir: Optional[str] = None) -> Dataset:
    """Read MNIST from `data_dir`, or the digits set that scikit-learn ships if it is None.

    Raises
    ------
    DataError
        A file is missing or damaged.
    """
    return _load_mnist(data_dir) if data_dir else _load_digits()


def shard(data: Dataset, rank: int, num_workers: int) -> Tuple[np.ndarray, np.ndarray]:
    """Return this worker's part of the training set.

    Every worker gets equally many samples, so that all run equally many batches; what does not
    divide is left out.
    """
    per_worker = len(data.train_labels) // num_workers
    mine = slice(rank, per_worker * num_workers, num_workers)
    return data.train_images[mine], data.train_labels[mine]


def _load_digits() -> Dataset:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise DataError(
            "the default data set comes with scikit-learn: pip install scikit-learn, "
            "or pass --data-dir with MNIST's idx files"
        ) from error
    images, labels = load_digits(return_X_y=True)
    images = (images.reshape(-1, 1, 8, 8) / 16.0).astype(np.float32)
    order = np.random.RandomState(0).permutation(len(labels))  # noqa: NPY002 - the same everywhere
    images, labels = images[order], labels[order].astype(np.float32)
    split = len(labels) - 297
    return Dataset(images[:split], labels[:split], images[split:], labels[split:])


def _load_mnist(data_dir: str) -> Dataset:
    parts = []
    for image_file, label_file in _IDX_FILES.values():
        images = _read_idx(data_dir, image_file, 3)
        labels = _read_idx(data_dir, label_file, 1)
        if len(images) != len(labels):
            raise DataError(
                f"{data_dir}: {image_file} has {len(images)} images but {label_file} has "
                f"{len(labels)} labels; the files do not belong together"
            )
        if labels.max(initial=0) > 9:
            raise DataError(
                f"{data_dir}: {label_file} has a label {labels.max()}, want 0 to 9; fetch it again"
            )
        parts += [images[:, None].astype(np.float32) / 255.0, labels.astype(np.float32)]
    return Dataset(*parts)


def _read_idx(data_dir: str, name: str, dims: int) -> np.ndarray:
    for path, opener in (
        (os.path.join(data_dir, name), open),
        (os.path.join(data_dir, name + ".gz"), gzip.open),
    ):
        if os.path.exists(path):
            try:
                with opener(path, "rb") as file:
                    content = file.read()
            except (OSError, EOFError, zlib.error) as error:
                raise DataError(f"{path}: cannot be read ({error}); fetch it again") from error
            return _parse_idx(path, content, dims)
    raise DataError(
        f"{data_dir} has neither {name} nor {name}.gz; put MNIST's four idx files there, or leave "
        "out --data-dir to use scikit-learn's digits"
    )


def _parse_idx(path: str, content: bytes, dims: int) -> np.ndarray:
    header = 4 + 4 * dims
    if len(content) < header or content[:4] != bytes([0, 0, 8, dims]):
        raise DataError(f"{path}: not an idx file of {dims} dimension(s) of bytes; fetch it again")
    shape = struct.unpack(f">{dims}I", content[4:header])
    expected = math.prod(shape)  # in Python's integers: a damaged header may hold anything
    if len(content) - header != expected:
        raise DataError(
            f"{path}: {len(content) - header} bytes of data, the header promises {expected}; "
            "the file is damaged, fetch it again"
        )
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape)
