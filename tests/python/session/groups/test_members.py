"""The ranks of a process group, and the keys of its exchanges."""

from bytescheduler._session.groups.members import Members


def test_ranks_of_a_group_have_workers_of_the_job() -> None:
    members = Members("a", "token", (1, 4, 5), 2)
    assert members.size == 3
    assert members.all == (0, 1, 2)
    assert members.without(1) == (0, 2)
    assert members.on_job((2, 0)) == (5, 1)


def test_keys_differ_by_group_number_and_slot() -> None:
    first, second = (Members("a", name, (0, 1), 0) for name in ("token 0", "token 1"))
    keys = {
        members.key(number, slot)
        for members in (first, second)
        for number in range(20)
        for slot in ((), (0, 1), (1, 0), (-1, 0, 1, 0))
    }
    assert len(keys) == 2 * 20 * 4
    assert all(0 <= key < 2**64 for key in keys)


def test_keys_are_alike_on_all_ranks_of_a_group() -> None:
    here, there = Members("a", "token", (0, 1), 0), Members("b", "token", (5, 6), 1)
    assert here.key(3, (0, 1)) == there.key(3, (0, 1))
