"""The errors of the byte layer. They are not Kafka errors: who calls decides what a client hears of them."""


class CorruptBatch(Exception):
    """The bytes at ``position`` are not a valid record batch."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(position, reason)
        self.position = position
        self.reason = reason

    def __str__(self) -> str:
        return f"corrupt record batch at position {self.position}: {self.reason}"


class DecompressionError(ValueError):
    """Compressed bytes are damaged, or would unpack to more than the limit."""
