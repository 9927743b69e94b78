"""Watch which files a command opens, in Python or in libraries, with seccomp notifications of Linux."""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import select
import socket
import struct
import sys
import threading
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[1]
# What any command may read: Python, packages and their compiled code, and system information.
SYSTEM = ("/usr/lib", "/lib", "/etc/ld.so.cache", "/proc", "/sys")
PROGRAMS = tuple(Path(one).resolve() for one in (sys.prefix, sys.base_prefix, ROOT / "src", *SYSTEM))

_SECCOMP, _OPENS = {"x86_64": (317, (2, 257, 437)), "aarch64": (277, (56, 437))}.get(platform.machine(), (0, ()))
_OPEN, _OPENAT2 = 2, 437  # system calls with other argument positions
_NO_NEW_PRIVILEGES, _FILTER, _LISTENER = 38, 1, 8
_RECEIVE, _SEND, _CONTINUE = 0xC0502100, 0xC0182101, 1
_CALL, _ANSWER = struct.Struct("QIIiIQ6Q"), struct.Struct("QqiI")
_ALLOW, _ASK = 0x7FFF0000, 0x7FC00000


class Openings:
    """The files that a child process opens for reading."""

    def __init__(self) -> None:
        self._here, self._there = socket.socketpair()
        self._thread = threading.Thread(target=self._listen)
        self._paths: set[Path] = set()

    def watch(self) -> None:
        """Start, in the parent."""
        self._there.close()
        self._thread.start()

    def tell(self) -> None:
        """Start, in the child: from here on it waits for permission to open a file."""
        self._here.close()
        with suppress(OSError):
            listener = _asked()
            socket.send_fds(self._there, [b"!"], [listener])
            os.close(listener)
        self._there.close()

    def fault(self, *named: Path) -> str:
        """The files read other than programs and the named files; "" if none. The process has ended."""
        self._thread.join()
        known = {path.resolve() for path in named}
        written = {path.parent for path in known}
        others = {one for one in self._paths - known if one.suffix != ".part" or one.parent not in written}
        read = sorted(str(one) for one in others if not any(map(one.is_relative_to, PROGRAMS)))
        return f"read {', '.join(read)}" if read else ""

    def _listen(self) -> None:
        with self._here:
            _, listeners, *_ = socket.recv_fds(self._here, 1, 1)
        for listener in listeners:
            poll = select.poll()
            poll.register(listener, select.POLLIN)
            while not any(event & select.POLLHUP for _, event in poll.poll()):
                with suppress(OSError):  # the process that asked has been killed
                    self._answer(listener)
            os.close(listener)

    def _answer(self, listener: int) -> None:
        asked = bytearray(_CALL.size)
        fcntl.ioctl(listener, _RECEIVE, asked)
        number, process, _, call, _, _, *arguments = _CALL.unpack(asked)
        try:
            self._note(process, call, arguments)
        finally:
            fcntl.ioctl(listener, _SEND, _ANSWER.pack(number, 0, 0, _CONTINUE))

    def _note(self, process: int, call: int, arguments: list[int]) -> None:
        folder, name, flags = (0, *arguments[:2]) if call == _OPEN else arguments[:3]
        with open(f"/proc/{process}/mem", "rb", buffering=0) as memory:
            memory.seek(name)
            path = Path(os.fsdecode(memory.read(4096).split(b"\0", 1)[0]))
            if call == _OPENAT2:
                memory.seek(flags)
                flags = int.from_bytes(memory.read(8), sys.byteorder)
        if flags & (os.O_WRONLY | os.O_EXCL | os.O_DIRECTORY):  # written, or listed
            return
        of_process = call == _OPEN or folder & 0xFFFFFFFF == 0xFFFFFF9C  # AT_FDCWD
        where = Path(f"/proc/{process}", "cwd" if of_process else f"fd/{folder}")
        self._paths.add((where.readlink() / path).resolve())


def _asked() -> int:
    """Ask the parent before this process opens a file; returns the descriptor of the notifications."""
    if not _OPENS:
        raise OSError
    count = len(_OPENS)
    steps = [(0x20, 0, 0, 0), *((0x15, count - at, 0, number) for at, number in enumerate(_OPENS))]
    program = b"".join(struct.pack("HBBI", *step) for step in (*steps, (0x06, 0, 0, _ALLOW), (0x06, 0, 0, _ASK)))
    held = ctypes.create_string_buffer(program)
    filter = ctypes.create_string_buffer(struct.pack("HP", count + 3, ctypes.addressof(held)))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    listener: int = libc.syscall(_SECCOMP, _FILTER, _LISTENER, filter)
    if listener < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return listener
