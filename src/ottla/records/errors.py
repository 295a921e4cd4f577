"""The errors of the record codec. They are not Kafka errors: callers convert them."""


class CorruptBatch(Exception):
    """The bytes at ``position`` are not a valid record batch."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(position, reason)
        self.position = position
        self.reason = reason

    def __str__(self) -> str:
        return f"corrupt record batch at position {self.position}: {self.reason}"


class DecompressionError(ValueError):
    """Compressed bytes are damaged, or decompress to more than the limit."""
