"""The errors of Kafka's protocol: one class per error code.

    OttlaError                        base of all errors that ottla raises
    └── KafkaError                    has an error code of the protocol: code, name, retriable
        ├── RetriableError            the same request may succeed later
        │   └── StaleMetadataError    ... after a metadata refresh
        ├── AuthenticationError       the broker rejected the credentials
        ├── AuthorizationError        the user may not do this
        ├── InvalidConfig
        │   └── ConfigError           an invalid name or value of one of ottla's configuration tables
        └── (all other codes)

A class has the name of Kafka's constant (``UNKNOWN_TOPIC_ID`` is `UnknownTopicId`). Its docstring is the default
message. To add a code, add a class.
"""

from __future__ import annotations

import re
from typing import ClassVar


class OttlaError(Exception):
    """The base of all errors that ottla raises."""


class KafkaError(OttlaError):
    """An error with an error code of Kafka's protocol.

    >>> str(OffsetOutOfRange("offset 7 is before the log start offset 10"))
    'offset 7 is before the log start offset 10'
    >>> str(MemberIdRequired())
    'The member must join again with the member id from this response.'
    """

    code: ClassVar[int] = -1
    name: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    retriable: ClassVar[bool] = False
    default_message: ClassVar[str] = ""
    remedy: str | None = None
    """For an error in a transaction: "retry", "abort" or "stop"."""

    def __init_subclass__(cls, code: int | None = None) -> None:
        super().__init_subclass__()
        if code is None:
            return
        cls.code = code
        cls.name = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).upper()
        cls.default_message = cls.__doc__ or cls.name
        _BY_CODE[code] = cls

    def __init__(self, message: str = "") -> None:
        super().__init__(message or self.default_message or self.name)


_BY_CODE: dict[int, type[KafkaError]] = {}


def error_class(code: int) -> type[KafkaError]:
    """Return the class of a code. An unknown code gives `UnknownServerError`.

    >>> error_class(3).name
    'UNKNOWN_TOPIC_OR_PARTITION'
    """
    if code == 0:
        raise ValueError("code 0 means no error: there is no class for it")
    return _BY_CODE.get(code, UnknownServerError)


def error_name(code: int) -> str:
    """Return Kafka's name of a code.

    >>> error_name(0), error_name(87), error_name(9999)
    ('NONE', 'INVALID_RECORD', 'UNKNOWN_ERROR_CODE_9999')
    """
    if code == 0:
        return "NONE"
    return _BY_CODE[code].name if code in _BY_CODE else f"UNKNOWN_ERROR_CODE_{code}"


class RetriableError(KafkaError):
    """The same request may succeed later."""

    retriable = True


class StaleMetadataError(RetriableError):
    """The same request may succeed after a metadata refresh."""


class AuthenticationError(KafkaError):
    """The broker rejected the credentials."""


class AuthorizationError(KafkaError):
    """The user may not do this."""


class UnknownServerError(KafkaError, code=-1):
    """The broker had an unexpected error. See its log."""


class OffsetOutOfRange(KafkaError, code=1):
    """The offset is before the log start offset or after the log end offset."""


class CorruptMessage(RetriableError, code=2):
    """The record batch is damaged: checksum, size or layout is wrong, or a compacted topic got a null key."""


class UnknownTopicOrPartition(StaleMetadataError, code=3):
    """This broker has no such topic or partition."""


class InvalidFetchSize(KafkaError, code=4):
    """The fetch size is not valid."""


class LeaderNotAvailable(StaleMetadataError, code=5):
    """The partition has no leader at the moment. Retry soon."""


class NotLeaderOrFollower(StaleMetadataError, code=6):
    """This broker is not the leader of the partition, or has no replica of it."""


class RequestTimedOut(RetriableError, code=7):
    """The request did not finish within its time limit."""


class BrokerNotAvailable(KafkaError, code=8):
    """The required broker is not reachable."""


class ReplicaNotAvailable(StaleMetadataError, code=9):
    """The broker has no usable replica of the partition."""


class MessageTooLarge(KafkaError, code=10):
    """The record batch is larger than the topic's max.message.bytes."""


class StaleControllerEpoch(KafkaError, code=11):
    """The request is from a controller that has been replaced."""


class OffsetMetadataTooLarge(KafkaError, code=12):
    """The metadata of the committed offset is longer than offset.metadata.max.bytes."""


class NetworkException(StaleMetadataError, code=13):
    """The connection was lost before the response."""


class CoordinatorLoadInProgress(RetriableError, code=14):
    """The coordinator is still loading its state. Retry soon."""


class CoordinatorNotAvailable(RetriableError, code=15):
    """The coordinator of this group or transaction is not available at the moment. Retry soon."""


class NotCoordinator(RetriableError, code=16):
    """This broker is not the coordinator of the group or transaction."""


class InvalidTopicException(KafkaError, code=17):
    """The topic name is not valid, or the topic cannot be used this way."""


class RecordListTooLarge(KafkaError, code=18):
    """The record batch does not fit into one segment of the log (see segment.bytes)."""


class NotEnoughReplicas(RetriableError, code=19):
    """Nothing was written: fewer replicas are in sync than min.insync.replicas."""


class NotEnoughReplicasAfterAppend(RetriableError, code=20):
    """The records were written, but too few replicas were in sync to confirm them."""


class InvalidRequiredAcks(KafkaError, code=21):
    """acks must be 0, 1 or -1 (all)."""


class IllegalGeneration(KafkaError, code=22):
    """The member's generation is not the current generation of the group."""


class InconsistentGroupProtocol(KafkaError, code=23):
    """The member has no assignment protocol in common with the other members, or has none."""


class InvalidGroupId(KafkaError, code=24):
    """The group id is not valid."""


class UnknownMemberId(KafkaError, code=25):
    """The group has no member with this id. The member must join again."""


class InvalidSessionTimeout(KafkaError, code=26):
    """The session timeout is outside the limits of the broker."""


class RebalanceInProgress(KafkaError, code=27):
    """The group is rebalancing. The member must join again."""


class InvalidCommitOffsetSize(KafkaError, code=28):
    """The commit is too large to store."""


class TopicAuthorizationFailed(AuthorizationError, code=29):
    """The user may not do this with the topic. `ottla acls explain` shows which permission is missing."""


class GroupAuthorizationFailed(AuthorizationError, code=30):
    """The user may not use the group. `ottla acls explain` shows which permission is missing."""


class ClusterAuthorizationFailed(AuthorizationError, code=31):
    """The user may not do this on the cluster. `ottla acls explain` shows which permission is missing."""


class InvalidTimestamp(KafkaError, code=32):
    """The timestamp of a record differs from the broker's clock by more than the topic allows."""


class UnsupportedSaslMechanism(AuthenticationError, code=33):
    """The broker does not support this SASL mechanism."""


class IllegalSaslState(AuthenticationError, code=34):
    """The request does not fit the current step of the SASL exchange."""


class UnsupportedVersion(KafkaError, code=35):
    """The broker does not support this version of the API."""


class TopicAlreadyExists(KafkaError, code=36):
    """A topic with this name already exists."""


class InvalidPartitions(KafkaError, code=37):
    """The number of partitions is not valid."""


class InvalidReplicationFactor(KafkaError, code=38):
    """The replication factor is below 1 or above the number of brokers."""


class InvalidReplicaAssignment(KafkaError, code=39):
    """The replica assignment is not valid."""


class InvalidConfig(KafkaError, code=40):
    """A configuration name or value is not valid."""


class ConfigError(InvalidConfig):
    """A configuration name or value is not valid. The message says what would be."""


class NotController(RetriableError, code=41):
    """Another broker is the controller of the cluster."""


class InvalidRequest(KafkaError, code=42):
    """The request contradicts itself or the protocol."""


class UnsupportedForMessageFormat(KafkaError, code=43):
    """The message format does not support this. Only format 2 is supported."""


class PolicyViolation(KafkaError, code=44):
    """A policy of the broker forbids this request."""


class OutOfOrderSequenceNumber(KafkaError, code=45):
    """The sequence number does not follow the last one of the producer: a batch is missing."""


class DuplicateSequenceNumber(KafkaError, code=46):
    """The producer repeated a batch that is too old to deduplicate."""


class InvalidProducerEpoch(KafkaError, code=47):
    """The producer's epoch is older than the current epoch of its producer id."""


class InvalidTxnState(KafkaError, code=48):
    """The transaction is not in a state that allows this."""


class InvalidProducerIdMapping(KafkaError, code=49):
    """The producer id does not belong to this transactional id."""


class InvalidTransactionTimeout(KafkaError, code=50):
    """The transaction timeout is longer than the broker's transaction.max.timeout.ms."""


class ConcurrentTransactions(RetriableError, code=51):
    """Another operation of the same transaction is still in progress."""


class TransactionCoordinatorFenced(KafkaError, code=52):
    """The transaction marker is from a coordinator that has been replaced."""


class TransactionalIdAuthorizationFailed(AuthorizationError, code=53):
    """The user may not use the transactional id. `ottla acls explain` shows which permission is missing."""


class SecurityDisabled(KafkaError, code=54):
    """The broker does not have the security feature that the request needs."""


class OperationNotAttempted(KafkaError, code=55):
    """The operation was skipped because another one of the same request failed."""


class KafkaStorageError(StaleMetadataError, code=56):
    """The broker could not read or write the files of the partition."""


class LogDirNotFound(KafkaError, code=57):
    """The broker has no such log directory."""


class SaslAuthenticationFailed(AuthenticationError, code=58):
    """SASL authentication failed: the broker rejected the credentials."""


class UnknownProducerId(KafkaError, code=59):
    """The broker has no state of this producer id. Its records may have been deleted."""


class ReassignmentInProgress(KafkaError, code=60):
    """The partition is being moved to other brokers."""


class DelegationTokenAuthDisabled(KafkaError, code=61):
    """Delegation tokens are not enabled on the broker."""


class DelegationTokenNotFound(KafkaError, code=62):
    """The delegation token does not exist."""


class DelegationTokenOwnerMismatch(KafkaError, code=63):
    """The delegation token belongs to another user."""


class DelegationTokenRequestNotAllowed(KafkaError, code=64):
    """Delegation tokens cannot be managed over this kind of connection."""


class DelegationTokenAuthorizationFailed(AuthorizationError, code=65):
    """The user may not use the delegation token."""


class DelegationTokenExpired(KafkaError, code=66):
    """The delegation token has expired."""


class InvalidPrincipalType(KafkaError, code=67):
    """The type of principal is not supported."""


class NonEmptyGroup(KafkaError, code=68):
    """The group still has members."""


class GroupIdNotFound(KafkaError, code=69):
    """There is no group with this id."""


class FetchSessionIdNotFound(RetriableError, code=70):
    """The fetch session does not exist. Start a new one with a full fetch."""


class InvalidFetchSessionEpoch(RetriableError, code=71):
    """The epoch of the request is not the epoch of the fetch session."""


class ListenerNotFound(StaleMetadataError, code=72):
    """The leader of the partition has no listener with the name of this connection's listener."""


class TopicDeletionDisabled(KafkaError, code=73):
    """Topics cannot be deleted because delete.topic.enable is false."""


class FencedLeaderEpoch(StaleMetadataError, code=74):
    """The leader epoch of the request is older than the current one."""


class UnknownLeaderEpoch(RetriableError, code=75):
    """The leader epoch of the request is newer than the one that this broker knows."""


class UnsupportedCompressionType(KafkaError, code=76):
    """This version of the request does not support the compression type of the data."""


class StaleBrokerEpoch(KafkaError, code=77):
    """The broker has registered again since this epoch."""


class OffsetNotAvailable(RetriableError, code=78):
    """The new leader does not know its high watermark yet. Retry soon."""


class MemberIdRequired(KafkaError, code=79):
    """The member must join again with the member id from this response."""


class PreferredLeaderNotAvailable(StaleMetadataError, code=80):
    """The preferred leader of the partition is not available."""


class GroupMaxSizeReached(KafkaError, code=81):
    """The group is full."""


class FencedInstanceId(KafkaError, code=82):
    """Another member has taken over this group.instance.id."""


class EligibleLeadersNotAvailable(StaleMetadataError, code=83):
    """No replica that could become leader is available."""


class ElectionNotNeeded(StaleMetadataError, code=84):
    """The partition already has the leader that the election would choose."""


class NoReassignmentInProgress(KafkaError, code=85):
    """The partition is not being moved."""


class GroupSubscribedToTopic(KafkaError, code=86):
    """The group's offsets of a topic cannot be deleted while its members are subscribed to it."""


class InvalidRecord(KafkaError, code=87):
    """The broker's validation rejected a record."""


class UnstableOffsetCommit(RetriableError, code=88):
    """An open transaction has pending offsets of the group. Retry soon."""


class ThrottlingQuotaExceeded(RetriableError, code=89):
    """A quota is exceeded. Retry after the throttle time."""


class ProducerFenced(KafkaError, code=90):
    """A newer producer with the same transactional id has taken over."""


class ResourceNotFound(KafkaError, code=91):
    """The resource of the request does not exist."""


class DuplicateResource(KafkaError, code=92):
    """The request has the same resource twice."""


class UnacceptableCredential(KafkaError, code=93):
    """The new credential does not meet the rules for credentials."""


class InconsistentVoterSet(KafkaError, code=94):
    """The sender or receiver is not one of the expected voters."""


class InvalidUpdateVersion(KafkaError, code=95):
    """The version of the update is not valid."""


class FeatureUpdateFailed(KafkaError, code=96):
    """The features of the cluster could not be updated."""


class PrincipalDeserializationFailure(KafkaError, code=97):
    """The principal of a forwarded request could not be read."""


class SnapshotNotFound(KafkaError, code=98):
    """There is no such snapshot."""


class PositionOutOfRange(KafkaError, code=99):
    """The position is outside the snapshot."""


class UnknownTopicId(StaleMetadataError, code=100):
    """This broker has no topic with this id."""


class DuplicateBrokerRegistration(KafkaError, code=101):
    """Another broker uses this broker id."""


class BrokerIdNotRegistered(KafkaError, code=102):
    """No broker is registered with this id."""


class InconsistentTopicId(StaleMetadataError, code=103):
    """The topic id of the request is not the topic's id. The topic may have been recreated."""


class InconsistentClusterId(KafkaError, code=104):
    """The request is for another cluster."""


class TransactionalIdNotFound(KafkaError, code=105):
    """The transactional id does not exist."""


class FetchSessionTopicIdError(RetriableError, code=106):
    """The fetch session mixes requests with topic names and requests with topic ids."""


class IneligibleReplica(KafkaError, code=107):
    """A replica of the proposed in-sync set is not eligible."""


class NewLeaderElected(KafkaError, code=108):
    """The update of the partition made another replica its leader."""


class OffsetMovedToTieredStorage(KafkaError, code=109):
    """The offset has moved to remote storage."""


class FencedMemberEpoch(KafkaError, code=110):
    """The member is fenced. It must give up its partitions and join again."""


class UnreleasedInstanceId(KafkaError, code=111):
    """Another member still uses this group.instance.id. It must leave first."""


class UnsupportedAssignor(KafkaError, code=112):
    """The group does not support this assignor."""


class StaleMemberEpoch(KafkaError, code=113):
    """The member's epoch is old. The next heartbeat returns the new one."""


class MismatchedEndpointType(KafkaError, code=114):
    """The request went to the wrong type of endpoint."""


class UnsupportedEndpointType(KafkaError, code=115):
    """This type of endpoint is not supported."""


class UnknownControllerId(KafkaError, code=116):
    """There is no controller with this id."""


class UnknownSubscriptionId(KafkaError, code=117):
    """The telemetry subscription is unknown or out of date."""


class TelemetryTooLarge(KafkaError, code=118):
    """The telemetry is larger than the broker accepts."""


class InvalidRegistration(KafkaError, code=119):
    """The controller rejected the registration of the broker."""


class TransactionAbortable(KafkaError, code=120):
    """The transaction failed. Abort it, then the producer can continue."""


class InvalidRecordState(KafkaError, code=121):
    """The record cannot be acknowledged in its current state."""


class ShareSessionNotFound(RetriableError, code=122):
    """The share session does not exist. Start a new one."""


class InvalidShareSessionEpoch(RetriableError, code=123):
    """The epoch of the request is not the epoch of the share session."""


class FencedStateEpoch(KafkaError, code=124):
    """The epoch of the request is not the epoch of the share group's state."""


class InvalidVoterKey(KafkaError, code=125):
    """The voter key is not the key of the replica that received the request."""


class DuplicateVoter(KafkaError, code=126):
    """The voter is already in the set of voters."""


class VoterNotFound(KafkaError, code=127):
    """The voter is not in the set of voters."""


class InvalidRegularExpression(KafkaError, code=128):
    """The regular expression cannot be parsed."""


class RebootstrapRequired(KafkaError, code=129):
    """The client's metadata is too old. It must contact its bootstrap servers again."""


class StreamsInvalidTopology(KafkaError, code=130):
    """The topology is not valid."""


class StreamsInvalidTopologyEpoch(KafkaError, code=131):
    """The epoch of the topology is not valid."""


class StreamsTopologyFenced(KafkaError, code=132):
    """The topology has been replaced by one with a newer epoch."""


class ShareSessionLimitReached(RetriableError, code=133):
    """The broker has reached its limit of share sessions."""
