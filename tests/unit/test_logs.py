import logging

import pytest

from tidemark.logs import logger


def test_a_log_line_says_what_it_is_about(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        logger("tidemark.test", stream="clicks", shift="20261115T0700").info("consumed", extra={"lines": 12})
    assert caplog.messages == ["consumed lines=12 stream=clicks shift=20261115T0700"]
