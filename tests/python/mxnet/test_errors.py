"""Errors of the engine as MXNet users see them."""

import mxnet as mx
import pytest

from bytescheduler.errors import ConfigError, PeerLost
from bytescheduler.mxnet._errors import as_mxnet_errors, with_names


def test_users_read_their_own_names() -> None:
    names = {12345: "fc1_weight", 7: 70000}  # an integer under another number
    assert with_names("push key=12345 round=3: no answer", names) == (
        "push key='fc1_weight' round=3: no answer"
    )
    assert with_names("key 12345 and key 7 and key 8", names) == (
        "key 'fc1_weight' and key 70000 and key 8"
    )
    assert with_names("monkey=12345, 12345", names) == "monkey=12345, 12345"


def test_errors_of_the_engine_become_mxnet_errors_that_keep_their_cause() -> None:
    cause = PeerLost("lost server 0 (key 5)", 4)
    text = r"lost server 0 \(key 'w'\)"
    with pytest.raises(mx.base.MXNetError, match=text) as caught, as_mxnet_errors({5: "w"}):
        raise cause
    assert caught.value.__cause__ is cause


def test_a_wrong_setting_stays_what_it_is() -> None:
    with pytest.raises(ConfigError), as_mxnet_errors({}):
        raise ConfigError("want bytes", 1)
