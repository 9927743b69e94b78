"""Ctrl-C at a moment of our choosing."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Presses:
    """Ctrl-C as it was pressed, and not yet heard."""

    def __init__(self, handler: Callable[..., Any] | None = None) -> None:
        self._handler = handler
        self._caught: list[Any] = []

    def catch(self, *came: Any) -> None:
        """Remember a press."""
        self._caught.append(came)

    @property
    def pressed(self) -> bool:
        """Whether there was one."""
        return bool(self._caught)

    def deliver(self) -> None:
        """Do now what the press was for, if there was one: as a rule, raise KeyboardInterrupt."""
        if self._caught and self._handler is not None:
            self._handler(*self._caught.pop())


@contextmanager
def interrupts_wait() -> Iterator[Presses]:
    """Have a Ctrl-C wait until it is asked for.

    Anywhere else it might leave a lock closed for ever, for example between taking it and entering the block that gives
    it back.
    """
    handler = signal.getsignal(signal.SIGINT)
    here = threading.current_thread() is threading.main_thread()  # others are not interrupted, and may not set this
    if not here or handler is None:  # one that was not set from Python cannot be set again
        yield Presses()
        return
    presses = Presses(handler if callable(handler) else None)
    signal.signal(signal.SIGINT, presses.catch)
    try:
        yield presses
    finally:
        signal.signal(signal.SIGINT, handler)
    presses.deliver()


@contextmanager
def first_interrupt_waits() -> Iterator[Callable[[], bool]]:
    """Have the first Ctrl-C do nothing but answer True to the function that this gives; the second one is heard.

    Whoever has set another handler wants to hear of it himself.
    """
    here = threading.current_thread() is threading.main_thread()
    if not here or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield lambda: False
        return
    presses = Presses()

    def press(*came: Any) -> None:
        if presses.pressed:
            signal.default_int_handler(*came)
        presses.catch(*came)

    signal.signal(signal.SIGINT, press)
    try:
        yield lambda: presses.pressed
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
