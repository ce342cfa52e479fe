"""JSON lines between the judge and the process of a kernel, or the nursery of such processes."""

from __future__ import annotations

import os

from .protocol import Message, ProtocolError, decode, encode

MOST_BYTES = 1 << 24  # of a line; a kernel's process must not fill the memory of the judge


class Channel:
    """Two descriptors, or one socket for both ways. Not for several threads."""

    def __init__(self, reader: int, writer: int) -> None:
        self.reader, self.writer = reader, writer
        self._rest = b""

    def send(self, message: Message) -> None:
        """Send. Raises OSError when the other side is gone."""
        left = memoryview(encode(message))
        while left:
            left = left[os.write(self.writer, left) :]

    def receive(self) -> Message | None:
        """The next message; None at the end. Raises ProtocolError for what is no message, or too long."""
        pieces = [self._rest]
        size = len(self._rest)
        while b"\n" not in pieces[-1]:
            try:
                block = os.read(self.reader, 1 << 16)
            except ConnectionResetError:
                block = b""
            if not block:
                return None
            pieces.append(block)
            size += len(block)
            if size > MOST_BYTES:
                raise ProtocolError(f"a line of more than {MOST_BYTES} bytes")
        line, _, self._rest = b"".join(pieces).partition(b"\n")
        return decode(line)

    def close(self) -> None:
        """Close both ways."""
        for descriptor in {self.reader, self.writer}:
            os.close(descriptor)
