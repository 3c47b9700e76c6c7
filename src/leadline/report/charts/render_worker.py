"""The drawing process: calls vl-convert for `leadline.report.charts.render`.

Requests come on stdin as pickled (function name, arguments), replies go to stdout as pickled (succeeded, result or
message). It ends when stdin is closed.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys

import vl_convert


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the parent decides
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # anything that a library prints must not mix with the replies
    while True:
        try:
            function, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            reply = (True, getattr(vl_convert, function)(**arguments))
        except ValueError as error:
            reply = (False, str(error))
        pickle.dump(reply, replies)
        replies.flush()


if __name__ == "__main__":
    main()
