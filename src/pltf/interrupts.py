"""Deferred handling of Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Presses:
    """Presses of Ctrl-C that have not been handled yet."""

    def __init__(self, handler: Callable[..., Any] | None = None) -> None:
        self._handler = handler
        self._caught: list[Any] = []

    def catch(self, *came: Any) -> None:
        """Record a press."""
        self._caught.append(came)

    @property
    def pressed(self) -> bool:
        """Whether Ctrl-C was pressed."""
        return bool(self._caught)

    def deliver(self) -> None:
        """Handle a recorded press now: usually, raise KeyboardInterrupt."""
        if self._caught and self._handler is not None:
            self._handler(*self._caught.pop())


@contextmanager
def interrupts_wait() -> Iterator[Presses]:
    """Defer Ctrl-C until it is delivered explicitly.

    At any other point it could leave a lock closed forever, for example between acquiring it and entering the block
    that releases it.
    """
    handler = signal.getsignal(signal.SIGINT)
    here = threading.current_thread() is threading.main_thread()  # other threads cannot set a handler
    if not here or handler is None:  # a handler not set from Python cannot be restored
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
    """The first Ctrl-C only makes the yielded function return True; the second one is handled as usual.

    If another handler is installed, it is left in place.
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
