"""Worker processes: results come back, a killed process is named, and none outlives its parent."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT

from gnmt.study.workers import run_jobs

SLEEPER = """
import os, sys, time
sys.path.insert(0, {root!r})
from gnmt.study.workers import run_jobs
if __name__ == "__main__":
    for _ in run_jobs(time.sleep, [(600,), (600,)], workers=2):
        pass
"""


def test_results_come_with_their_positions():
    assert dict(run_jobs(divmod, [(7, 2), (9, 4)], workers=2, threads=1)) == {0: (3, 1), 1: (2, 1)}


def test_a_killed_process_is_named_in_one_line():
    with pytest.raises(OSError, match="a worker process was killed"):
        list(run_jobs(os._exit, [(1,)]))


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_its_parent(tmp_path, number):
    script = tmp_path / "sleeper.py"
    script.write_text(SLEEPER.format(root=str(ROOT)))
    with subprocess.Popen([sys.executable, script], stderr=subprocess.DEVNULL, start_new_session=True) as parent:
        wait_until(lambda: sum(map(has_started, children(parent.pid))) == 2)
        started = children(parent.pid)
        parent.send_signal(number)
        parent.wait(timeout=60)
    wait_until(lambda: not any(map(is_running, started)))


def children(parent):
    return Path(f"/proc/{parent}/task/{parent}/children").read_text().split()


def has_started(pid):
    """Whether a worker has started its thread that watches the parent."""
    return (
        b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
        and len(list(Path(f"/proc/{pid}/task").iterdir())) > 1
    )


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition, seconds=100):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.2)
