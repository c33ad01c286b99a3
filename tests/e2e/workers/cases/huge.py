"""A worker with one array of more than 2 GiB, of which each partition says where it belongs."""

import mxnet as mx

from bytescheduler.mxnet import ScheduledKVS

ELEMENTS = 2**29 + 1000  # of float32
PARTITION = 2**24  # elements of 64 MiB
MARKS = [*range(0, ELEMENTS, PARTITION), ELEMENTS - 1]


def mark(array: mx.nd.NDArray, step: int) -> None:
    array[:] = step
    for index, position in enumerate(MARKS):
        array[position : position + 1] = 10 * step + index


def check(array: mx.nd.NDArray, step: int, times: int = 1) -> None:
    for index, position in enumerate(MARKS):
        part = array[max(position - 2, 0) : position + 3].asnumpy().tolist()
        want = [float(times * step)] * len(part)
        want[min(position, 2)] = float(times * (10 * step + index))
        assert part == want, f"element {position}: {part}"


def main() -> None:
    kvs = ScheduledKVS()
    array = mx.nd.empty((ELEMENTS,))
    mark(array, 5)
    kvs.init("huge", array)
    array[:] = 0
    kvs.pull("huge", out=array)
    check(array, 5)
    mark(array, 7)
    kvs.pushpull("huge", array)
    check(array, 7, kvs.num_workers)
    print("well done")


if __name__ == "__main__":
    main()
