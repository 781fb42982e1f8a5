"""Folders that one process has for itself."""

import errno
import fcntl
import logging
import os

import pytest

from gnmt.errors import ConfigError
from gnmt.files import LOCK, locked


def test_a_folder_is_kept_from_others_until_it_is_left(tmp_path):
    with locked(tmp_path / "new"), pytest.raises(ConfigError, match="in use"), locked(tmp_path / "new"):
        pass
    with locked(tmp_path / "new"):
        assert (tmp_path / "new" / LOCK).is_file()


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_used_with_one_warning(tmp_path, monkeypatch, caplog, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with locked(tmp_path):
        pass
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert f"{tmp_path / LOCK} cannot be locked ({os.strerror(number)})" in record.getMessage()
