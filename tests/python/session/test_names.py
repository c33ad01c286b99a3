"""Users read their own names of keys."""

from bytescheduler._session.names import KeyNames


def test_users_read_their_own_names() -> None:
    names = KeyNames()
    names.add(12345, "fc1_weight")
    names.add(7, 70000)  # an integer under another number
    names.add(9, 9)
    assert names.in_text("push key=12345 round=3: no response") == (
        "push key='fc1_weight' round=3: no response"
    )
    assert names.in_text("key 12345 and key 7 and key 8 and key 9") == (
        "key 'fc1_weight' and key 70000 and key 8 and key 9"
    )
    assert names.in_text("monkey=12345, 12345") == "monkey=12345, 12345"
