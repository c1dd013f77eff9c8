"""Strangers who are complained of without end do not fill a log."""

import io
import logging
import threading
import time

from headwater.sparing_log import LINES, SparingHandler
from headwater.terminal_text import LONGEST_LINE, PrintableFormatter


def _log(window_s: float) -> tuple[logging.Logger, SparingHandler, io.StringIO]:
    stream = io.StringIO()
    handler = SparingHandler(stream, window_s=window_s)
    handler.setFormatter(PrintableFormatter("%(levelname)s %(message)s"))
    log = logging.Logger("sparing")
    log.addHandler(handler)
    return log, handler, stream


def _complain(log: logging.Logger, times: int) -> None:
    for number in range(times):
        log.warning("closed the connection of %s", number)


def test_a_few_lines_of_a_kind_and_then_their_number() -> None:
    log, handler, stream = _log(window_s=600)
    _complain(log, 50_000)
    log.error("something else")
    lines = stream.getvalue().splitlines()
    assert lines == [*[f"WARNING closed the connection of {number}" for number in range(LINES)], "ERROR something else"]
    handler.close()
    assert stream.getvalue().splitlines()[len(lines) :] == [
        f"WARNING {50_000 - LINES} more lines like the ones before were left out,"
        " the last: closed the connection of 49999"
    ]


def test_the_number_is_told_when_nothing_follows_and_then_lines_are_written_again() -> None:
    log, _, stream = _log(window_s=0.3)
    _complain(log, LINES + 7)
    until = time.monotonic() + 10
    while "7 more lines" not in stream.getvalue():
        assert time.monotonic() < until
        time.sleep(0.01)
    time.sleep(0.05)
    _complain(log, 1)
    sums, again = stream.getvalue().splitlines()[LINES:]
    assert sums.endswith(f"the last: closed the connection of {LINES + 6}")
    assert again == "WARNING closed the connection of 0"


def test_threads_that_complain_at_once_lose_no_line() -> None:
    log, handler, stream = _log(window_s=600)
    threads = [threading.Thread(target=_complain, args=(log, 2_000)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    handler.close()
    lines = stream.getvalue().splitlines()
    assert len(lines) == LINES + 1
    assert f"{8_000 - LINES} more lines" in lines[-1]


def test_a_line_has_a_largest_length() -> None:
    log, _, stream = _log(window_s=600)
    log.warning("no such topic: %s", "\x1b" * 1_000_000)
    (line,) = stream.getvalue().splitlines()
    assert len(line) < LONGEST_LINE + 100
    assert line.endswith("... (4000015 characters)")
