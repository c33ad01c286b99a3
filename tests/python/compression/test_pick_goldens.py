"""The golden codes of topk and randomk are the model's; a golden case by hand."""

import numpy as np
from pick_goldens import HEADER, header
from pick_model import Coder, Method, Place, drawn, picks


def test_the_header_is_the_models() -> None:
    assert HEADER.read_text() == header()


def test_the_model_sends_the_largest_and_keeps_the_rest() -> None:
    coder = Coder(Method("topk", 0.5), 4, keeps=True)
    codes, values = coder.code(np.array([1, -3, 3, 2], np.float32), Place(7, 1))
    assert codes == np.array([1, 2], np.uint16).tobytes() + np.array([-3, 3], "f4").tobytes()
    assert values.tolist() == [0, -3, 3, 0]
    assert coder.residual.tolist() == [1, 0, 0, 2]


def test_the_model_draws_each_element_at_most_once() -> None:
    for count in (1, 2, 9, 65535):
        assert len(set(drawn(3, Place(7, 1), count, count))) == count


def test_a_whole_k_is_that_of_the_largest_partition_of_byteps() -> None:
    assert [picks(10, count, 1_024_000) for count in (65536, 65537, 9)] == [1, 1, 1]
    assert picks(1024, 65536, 2_048_000) == 65
    assert (picks(5, 20, 20), picks(9, 5, 5)) == (5, 5)
