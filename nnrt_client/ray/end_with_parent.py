"""Program that executes a command, and lets Linux end the command with SIGTERM when the parent ends.

The parent is the thread that started this program. The command ends even if the parent was killed.

python end_with_parent.py PARENT COMMAND ARGUMENT...
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1

if __name__ == "__main__":
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
    if os.getppid() == parent:  # Else the parent ended before the kernel could signal it.
        os.execv(command[0], command)  # noqa: S606
