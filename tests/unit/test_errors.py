"""The error classes match Kafka's list of codes (from kio) and work for callers."""

import pickle

import pytest
from kio.schema.errors import ErrorCode

from ottla import errors
from ottla.errors import KafkaError, OttlaError, error_class, error_name

CODES = [code for code in ErrorCode if code is not ErrorCode.none]


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_every_code_of_kafka_has_its_class(code: ErrorCode) -> None:
    found = error_class(code.value)
    assert (found.code, found.name) == (code.value, code.name.upper())
    assert found.retriable == code.retriable
    assert found.__name__ == "".join(part.capitalize() for part in code.name.split("_"))
    assert getattr(errors, found.__name__) is found


def test_no_code_is_invented() -> None:
    codes = {found.code for found in vars(errors).values() if isinstance(found, type) and issubclass(found, KafkaError)}
    assert codes == {code.value for code in CODES}


def test_message_falls_back_on_a_sentence() -> None:
    assert str(errors.UnknownTopicId("no topic with id 7")) == "no topic with id 7"
    assert str(errors.UnknownTopicId()) == "This broker has no topic with this id."


def test_default_messages_are_sentences_and_tell_the_codes_apart() -> None:
    messages = [str(error_class(code.value)()) for code in CODES]
    assert len(set(messages)) == len(messages)
    assert all(message.endswith(".") for message in messages)


def test_a_code_from_a_newer_kafka_is_an_unknown_server_error() -> None:
    assert error_class(9999) is errors.UnknownServerError
    assert error_name(9999) == "UNKNOWN_ERROR_CODE_9999"


def test_zero_is_not_an_error() -> None:
    assert error_name(0) == "NONE"
    with pytest.raises(ValueError, match="no error"):
        error_class(0)


def test_errors_can_be_caught_by_family() -> None:
    assert issubclass(errors.NotLeaderOrFollower, errors.StaleMetadataError)
    assert issubclass(errors.StaleMetadataError, errors.RetriableError)
    assert issubclass(errors.TopicAuthorizationFailed, errors.AuthorizationError)
    assert issubclass(errors.SaslAuthenticationFailed, errors.AuthenticationError)
    assert issubclass(errors.ConfigError, errors.InvalidConfig)
    assert issubclass(KafkaError, OttlaError)
    assert errors.ConfigError.code == 40
    assert errors.ConfigError.name == "INVALID_CONFIG"


def test_an_error_survives_pickling() -> None:
    copy = pickle.loads(pickle.dumps(errors.OffsetOutOfRange("offset 7 is gone")))
    assert isinstance(copy, errors.OffsetOutOfRange)
    assert str(copy) == "offset 7 is gone"
