"""The error messages of the kernels, shared by the compiled and the pure version."""

LENGTH = "its length is out of bounds"
NUMBER_CUT = "it ends inside a number"
NUMBER_32 = "a number has more than 32 bits"
NUMBER_64 = "a number has more than 64 bits"
OFFSET_DELTA = "its offset delta is out of order or greater than the last of the batch"
TIMESTAMP = "its timestamp is out of range"
KEY_LENGTH = "its key length is out of bounds"
VALUE_LENGTH = "its value length is out of bounds"
HEADER_COUNT = "its header count is out of bounds"
HEADER_KEY_LENGTH = "a header key length is out of bounds"
HEADER_VALUE_LENGTH = "a header value length is out of bounds"
SIZE = "its length is not the length of its parts"
SIZE_REFUSAL = "it is larger than 2 GiB"
COLUMN_OFFSETS = "its offsets are outside the column's data"
HEADER_KEY_NULL = "a header has no key"
NOT_PACKED = "these bytes are not packed commits"


def too_many(there: int, count: int) -> str:
    return f"{there} bytes cannot hold {count} records"


def of_record(index: int, count: int, problem: str) -> str:
    return f"record {index} of {count}: {problem}"


def left_over(there: int, count: int) -> str:
    return f"{there} bytes follow the last of {count} records"


def refusal(index: int, problem: str) -> str:
    """Why a record cannot be encoded."""
    return f"record {index}: {problem}"


def offset_refusal(offset: int, base_offset: int) -> str:
    return f"offset {offset} is out of order in a batch with base offset {base_offset}"


def timestamp_refusal(timestamp: int) -> str:
    return f"timestamp {timestamp} is out of range"


def header_key_refusal(given: object) -> str:
    return f"a header key must be str, not {type(given).__name__}"


def range_refusal(start: int, end: int, there: int) -> str:
    return f"the range {start} to {end} is not in a buffer of {there} bytes"


def type_refusal(part: str, given: object) -> str:
    return f"{part} must be bytes or None, not {type(given).__name__}"


def column_refusal(there: int, needed: int) -> str:
    return f"a column is too short: it has {there} of {needed}"


def row_refusal(row: int, rows: int) -> str:
    return f"row {row} does not exist: there are {rows} rows"


def partitions_refusal(count: int) -> str:
    return f"cannot distribute rows to {count} partitions"


def partition_refusal(partition: int, count: int) -> str:
    return f"partition {partition} does not exist: the topic has {count} partitions"


def habit_refusal(on_delivery: object) -> str:
    """What to write instead of a keyword of confluent-kafka (`on_delivery`) or kafka-python (`timestamp_ms`)."""
    if on_delivery is not None:
        return "send has no on_delivery: write callback=f, which is called as f(metadata, error), not as f(err, msg)"
    return "send has no timestamp_ms: write timestamp=, which is in milliseconds too"
