"""What can be wrong with the bytes of a record, in words; both twins of the hot loops say it with these."""

LENGTH = "its length is out of bounds"
NUMBER_CUT = "it ends inside of a number"
NUMBER_32 = "a number has more than 32 bits"
NUMBER_64 = "a number has more than 64 bits"
OFFSET_DELTA = "its offset delta is out of order or beyond the last of the batch"
TIMESTAMP = "its timestamp is out of range"
KEY_LENGTH = "its key length is out of bounds"
VALUE_LENGTH = "its value length is out of bounds"
HEADER_COUNT = "its header count is out of bounds"
HEADER_KEY_LENGTH = "a header key length is out of bounds"
HEADER_VALUE_LENGTH = "a header value length is out of bounds"
SIZE = "its length is not that of its parts"
SIZE_REFUSAL = "it has more than 2 GiB"
COLUMN_OFFSETS = "its offsets lie outside of the column's data"
HEADER_KEY_NULL = "a header has no key"
NOT_PACKED = "these bytes are no packed commits"


def too_many(there: int, count: int) -> str:
    return f"{there} bytes cannot hold {count} records"


def of_record(index: int, count: int, problem: str) -> str:
    return f"record {index} of {count}: {problem}"


def left_over(there: int, count: int) -> str:
    return f"{there} bytes are left behind the last of {count} records"


def refusal(index: int, problem: str) -> str:
    """Why a record cannot be encoded."""
    return f"record {index}: {problem}"


def offset_refusal(offset: int, base_offset: int) -> str:
    return f"offset {offset} does not follow in a batch with base offset {base_offset}"


def timestamp_refusal(timestamp: int) -> str:
    return f"timestamp {timestamp} is out of range"


def header_key_refusal(given: object) -> str:
    return f"a header key must be str, not {type(given).__name__}"


def range_refusal(start: int, end: int, there: int) -> str:
    return f"no range {start} to {end} in a buffer of {there} bytes"


def type_refusal(part: str, given: object) -> str:
    return f"{part} must be bytes or None, not {type(given).__name__}"


def column_refusal(there: int, needed: int) -> str:
    return f"a column is too short: {needed} are needed, {there} are there"


def row_refusal(row: int, rows: int) -> str:
    return f"no row {row} among {rows}"


def partitions_refusal(count: int) -> str:
    return f"rows cannot be shared out to {count} partitions"


def partition_refusal(partition: int, count: int) -> str:
    return f"there is no partition {partition}, the topic has {count}"
