"""Users read their own names of keys."""

import pytest

from bytescheduler._session.names import KeyNames, check_name
from bytescheduler.errors import UsageError


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


def test_a_name_that_cannot_be_encoded_is_shown_escaped() -> None:
    with pytest.raises(UsageError) as refused:
        check_name("caf\udce9 \u00e9")
    assert str(refused.value) == (
        r"the name 'caf\udce9 \xe9' has a character that UTF-8 lacks, '\udce9'; give another name"
    )
    for name in ("café", "", None, 3):
        check_name(name)
