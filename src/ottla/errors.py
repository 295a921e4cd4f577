"""The errors of Kafka's protocol, one class a code, and what they share.

    OttlaError                        everything that ottla raises on purpose
    └── KafkaError                    has a code of the protocol: code, name, retriable
        ├── RetriableError            the same request may succeed later
        │   └── StaleMetadataError    ... once the metadata of the cluster has been fetched again
        ├── AuthenticationError       who you are was not accepted
        ├── AuthorizationError        what you want is not allowed
        ├── InvalidConfig
        │   └── ConfigError           a configuration name or value of ottla's own tables
        └── (all other codes)

A class is named after Kafka's constant (``UNKNOWN_TOPIC_ID`` is `UnknownTopicId`), and its docstring is the
message that an error has when nobody gave it a better one. A new code is a new class below.
"""

from __future__ import annotations

import re
from typing import ClassVar


class OttlaError(Exception):
    """The root of everything that ottla raises on purpose."""


class KafkaError(OttlaError):
    """An error that has a code in Kafka's protocol.

    >>> str(OffsetOutOfRange("offset 7 is before the log start offset 10"))
    'offset 7 is before the log start offset 10'
    >>> str(MemberIdRequired())
    'The member has to join again with the member id that it was just given.'
    """

    code: ClassVar[int] = -1
    name: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    retriable: ClassVar[bool] = False
    default_message: ClassVar[str] = ""
    remedy: str | None = None
    """Of an error in a transaction: "retry", "abort" or "stop". The message says how."""

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
    """The class of a code; `UnknownServerError` for a code that this version does not know.

    >>> error_class(3).name
    'UNKNOWN_TOPIC_OR_PARTITION'
    """
    if code == 0:
        raise ValueError("code 0 means no error: there is no class for it")
    return _BY_CODE.get(code, UnknownServerError)


def error_name(code: int) -> str:
    """Kafka's name of a code, for people to read.

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
    """The same request may succeed once the metadata of the cluster has been fetched again."""


class AuthenticationError(KafkaError):
    """Who you are was not accepted."""


class AuthorizationError(KafkaError):
    """What you want is not allowed."""


class UnknownServerError(KafkaError, code=-1):
    """The broker failed in a way that it did not foresee; its own log says more."""


class OffsetOutOfRange(KafkaError, code=1):
    """The log has no such offset: it lies before the log start offset or after the log end."""


class CorruptMessage(RetriableError, code=2):
    """The record batch is damaged: checksum, size or layout is wrong, or a compacted topic got a null key."""


class UnknownTopicOrPartition(StaleMetadataError, code=3):
    """This broker has no such topic or partition."""


class InvalidFetchSize(KafkaError, code=4):
    """The number of bytes asked for is not a valid fetch size."""


class LeaderNotAvailable(StaleMetadataError, code=5):
    """The partition has no leader at the moment; ask again shortly."""


class NotLeaderOrFollower(StaleMetadataError, code=6):
    """This broker does not lead the partition, or holds no replica of it."""


class RequestTimedOut(RetriableError, code=7):
    """The request was not finished within its time limit."""


class BrokerNotAvailable(KafkaError, code=8):
    """The broker that is needed cannot be reached."""


class ReplicaNotAvailable(StaleMetadataError, code=9):
    """The broker has no usable replica of the partition."""


class MessageTooLarge(KafkaError, code=10):
    """The record batch is larger than max.message.bytes of the topic allows."""


class StaleControllerEpoch(KafkaError, code=11):
    """The request comes from a controller that has been replaced."""


class OffsetMetadataTooLarge(KafkaError, code=12):
    """The text stored with the committed offset is too long."""


class NetworkException(StaleMetadataError, code=13):
    """The connection was lost before the answer came."""


class CoordinatorLoadInProgress(RetriableError, code=14):
    """The coordinator is still loading its state; ask again shortly."""


class CoordinatorNotAvailable(RetriableError, code=15):
    """There is no coordinator to answer for this group or transaction at the moment."""


class NotCoordinator(RetriableError, code=16):
    """Another broker coordinates this group or transaction."""


class InvalidTopicException(KafkaError, code=17):
    """The topic name is not valid, or the topic may not be used this way."""


class RecordListTooLarge(KafkaError, code=18):
    """The record batch does not fit into one segment of the log (see segment.bytes)."""


class NotEnoughReplicas(RetriableError, code=19):
    """Nothing was written: fewer replicas are in sync than min.insync.replicas asks for."""


class NotEnoughReplicasAfterAppend(RetriableError, code=20):
    """The records were written, but too few replicas were in sync to confirm them."""


class InvalidRequiredAcks(KafkaError, code=21):
    """acks must be 0, 1 or -1 (all)."""


class IllegalGeneration(KafkaError, code=22):
    """The member speaks of another generation of the group than the present one."""


class InconsistentGroupProtocol(KafkaError, code=23):
    """The member shares no assignment protocol with the other members, or named none."""


class InvalidGroupId(KafkaError, code=24):
    """The group id is not valid."""


class UnknownMemberId(KafkaError, code=25):
    """The group has no member with this id; it has to join again."""


class InvalidSessionTimeout(KafkaError, code=26):
    """The session timeout lies outside what the broker allows."""


class RebalanceInProgress(KafkaError, code=27):
    """The group is rebalancing; the member has to join again."""


class InvalidCommitOffsetSize(KafkaError, code=28):
    """The commit is too large to be stored."""


class TopicAuthorizationFailed(AuthorizationError, code=29):
    """This user is not allowed to do this with the topic."""


class GroupAuthorizationFailed(AuthorizationError, code=30):
    """This user is not allowed to use the group."""


class ClusterAuthorizationFailed(AuthorizationError, code=31):
    """This user is not allowed to do this on the cluster."""


class InvalidTimestamp(KafkaError, code=32):
    """The timestamp of a record is further from the broker's time than the topic allows."""


class UnsupportedSaslMechanism(AuthenticationError, code=33):
    """The broker does not offer this SASL mechanism."""


class IllegalSaslState(AuthenticationError, code=34):
    """The request does not fit the present step of the SASL exchange."""


class UnsupportedVersion(KafkaError, code=35):
    """The broker does not speak this version of the API."""


class TopicAlreadyExists(KafkaError, code=36):
    """A topic with this name exists already."""


class InvalidPartitions(KafkaError, code=37):
    """The number of partitions is not valid."""


class InvalidReplicationFactor(KafkaError, code=38):
    """The replication factor is below 1, or there are fewer brokers than replicas."""


class InvalidReplicaAssignment(KafkaError, code=39):
    """The given placement of replicas is not valid."""


class InvalidConfig(KafkaError, code=40):
    """A configuration name or value is not valid."""


class ConfigError(InvalidConfig):
    """A configuration name or value is not valid; the message names it and says what would be."""


class NotController(RetriableError, code=41):
    """Another broker is the controller of the cluster."""


class InvalidRequest(KafkaError, code=42):
    """The request contradicts itself or the protocol."""


class UnsupportedForMessageFormat(KafkaError, code=43):
    """The message format in use cannot do this; only format 2 is supported."""


class PolicyViolation(KafkaError, code=44):
    """A policy of the broker forbids this request."""


class OutOfOrderSequenceNumber(KafkaError, code=45):
    """A sequence number does not follow the last one of its producer: a batch is missing."""


class DuplicateSequenceNumber(KafkaError, code=46):
    """The producer sent a batch again that was written too long ago to be matched."""


class InvalidProducerEpoch(KafkaError, code=47):
    """The producer uses an older epoch than one already seen for its producer id."""


class InvalidTxnState(KafkaError, code=48):
    """The transaction is not in a state that allows this."""


class InvalidProducerIdMapping(KafkaError, code=49):
    """The producer id does not belong to this transactional id."""


class InvalidTransactionTimeout(KafkaError, code=50):
    """The transaction timeout is longer than transaction.max.timeout.ms of the broker."""


class ConcurrentTransactions(RetriableError, code=51):
    """Another operation of the same transaction is still under way."""


class TransactionCoordinatorFenced(KafkaError, code=52):
    """The transaction marker comes from a coordinator that has been replaced."""


class TransactionalIdAuthorizationFailed(AuthorizationError, code=53):
    """This user is not allowed to use the transactional id."""


class SecurityDisabled(KafkaError, code=54):
    """The broker runs without the security features that the request needs."""


class OperationNotAttempted(KafkaError, code=55):
    """The operation was left out because another one of the same request failed."""


class KafkaStorageError(StaleMetadataError, code=56):
    """The broker could not read or write the files of the partition."""


class LogDirNotFound(KafkaError, code=57):
    """The broker has no such log directory."""


class SaslAuthenticationFailed(AuthenticationError, code=58):
    """The credentials were refused."""


class UnknownProducerId(KafkaError, code=59):
    """The broker remembers nothing of this producer id; its records may have been deleted."""


class ReassignmentInProgress(KafkaError, code=60):
    """The partition is being moved to other brokers."""


class DelegationTokenAuthDisabled(KafkaError, code=61):
    """Delegation tokens are not enabled on the broker."""


class DelegationTokenNotFound(KafkaError, code=62):
    """The broker knows no such delegation token."""


class DelegationTokenOwnerMismatch(KafkaError, code=63):
    """The delegation token belongs to somebody else."""


class DelegationTokenRequestNotAllowed(KafkaError, code=64):
    """Delegation tokens cannot be managed over this kind of connection."""


class DelegationTokenAuthorizationFailed(AuthorizationError, code=65):
    """This user is not allowed to use the delegation token."""


class DelegationTokenExpired(KafkaError, code=66):
    """The delegation token has expired."""


class InvalidPrincipalType(KafkaError, code=67):
    """The kind of principal is not supported."""


class NonEmptyGroup(KafkaError, code=68):
    """The group still has members."""


class GroupIdNotFound(KafkaError, code=69):
    """There is no group with this id."""


class FetchSessionIdNotFound(RetriableError, code=70):
    """The fetch session is gone; start a new one with a full fetch."""


class InvalidFetchSessionEpoch(RetriableError, code=71):
    """The fetch session is at another epoch than the request says."""


class ListenerNotFound(StaleMetadataError, code=72):
    """The leader of the partition has no listener of the name that was used here."""


class TopicDeletionDisabled(KafkaError, code=73):
    """Topics cannot be deleted: delete.topic.enable is false."""


class FencedLeaderEpoch(StaleMetadataError, code=74):
    """The request names an older leader epoch than the present one."""


class UnknownLeaderEpoch(RetriableError, code=75):
    """The request names a leader epoch that this broker has not heard of yet."""


class UnsupportedCompressionType(KafkaError, code=76):
    """The data is compressed in a way that this version of the request cannot carry."""


class StaleBrokerEpoch(KafkaError, code=77):
    """The broker has registered anew since this epoch."""


class OffsetNotAvailable(RetriableError, code=78):
    """A new leader does not know its high watermark yet; ask again shortly."""


class MemberIdRequired(KafkaError, code=79):
    """The member has to join again with the member id that it was just given."""


class PreferredLeaderNotAvailable(StaleMetadataError, code=80):
    """The preferred leader of the partition is not available."""


class GroupMaxSizeReached(KafkaError, code=81):
    """The group is full."""


class FencedInstanceId(KafkaError, code=82):
    """Another member has taken over this group.instance.id."""


class EligibleLeadersNotAvailable(StaleMetadataError, code=83):
    """No replica that could become leader is available."""


class ElectionNotNeeded(StaleMetadataError, code=84):
    """The partition has the leader that the election would choose."""


class NoReassignmentInProgress(KafkaError, code=85):
    """The partition is not being moved."""


class GroupSubscribedToTopic(KafkaError, code=86):
    """The group's offsets of a topic cannot be deleted while its members are subscribed to it."""


class InvalidRecord(KafkaError, code=87):
    """A record was refused by the checks of the broker."""


class UnstableOffsetCommit(RetriableError, code=88):
    """An open transaction still holds offsets of the group."""


class ThrottlingQuotaExceeded(RetriableError, code=89):
    """A quota is used up; try again after the given pause."""


class ProducerFenced(KafkaError, code=90):
    """A newer producer with the same transactional id has taken over."""


class ResourceNotFound(KafkaError, code=91):
    """The request names something that does not exist."""


class DuplicateResource(KafkaError, code=92):
    """The request names the same thing twice."""


class UnacceptableCredential(KafkaError, code=93):
    """The new credential does not meet the rules for credentials."""


class InconsistentVoterSet(KafkaError, code=94):
    """Sender or receiver is not one of the expected voters."""


class InvalidUpdateVersion(KafkaError, code=95):
    """The version of the update is not valid."""


class FeatureUpdateFailed(KafkaError, code=96):
    """The features of the cluster could not be updated."""


class PrincipalDeserializationFailure(KafkaError, code=97):
    """The principal of a forwarded request could not be read."""


class SnapshotNotFound(KafkaError, code=98):
    """There is no such snapshot."""


class PositionOutOfRange(KafkaError, code=99):
    """The position lies outside the snapshot."""


class UnknownTopicId(StaleMetadataError, code=100):
    """This broker has no topic with this id."""


class DuplicateBrokerRegistration(KafkaError, code=101):
    """Another broker uses this broker id."""


class BrokerIdNotRegistered(KafkaError, code=102):
    """No broker is registered with this id."""


class InconsistentTopicId(StaleMetadataError, code=103):
    """The topic has another id than the request says: it may have been created anew."""


class InconsistentClusterId(KafkaError, code=104):
    """The request is meant for another cluster."""


class TransactionalIdNotFound(KafkaError, code=105):
    """There is no such transactional id."""


class FetchSessionTopicIdError(RetriableError, code=106):
    """The fetch session mixes requests with topic names and requests with topic ids."""


class IneligibleReplica(KafkaError, code=107):
    """A replica in the proposed in-sync set may not be part of it."""


class NewLeaderElected(KafkaError, code=108):
    """The partition was updated, and another replica became its leader by it."""


class OffsetMovedToTieredStorage(KafkaError, code=109):
    """The offset is now held in remote storage."""


class FencedMemberEpoch(KafkaError, code=110):
    """The member is fenced: it has to give up its partitions and join again."""


class UnreleasedInstanceId(KafkaError, code=111):
    """Another member still uses this instance id; it has to leave first."""


class UnsupportedAssignor(KafkaError, code=112):
    """The group does not support this assignor."""


class StaleMemberEpoch(KafkaError, code=113):
    """The member uses an old epoch; it learns the new one with its next heartbeat."""


class MismatchedEndpointType(KafkaError, code=114):
    """The request went to the wrong kind of endpoint."""


class UnsupportedEndpointType(KafkaError, code=115):
    """This kind of endpoint is not supported."""


class UnknownControllerId(KafkaError, code=116):
    """There is no controller with this id."""


class UnknownSubscriptionId(KafkaError, code=117):
    """The telemetry subscription is unknown or out of date."""


class TelemetryTooLarge(KafkaError, code=118):
    """The telemetry is larger than the broker accepts."""


class InvalidRegistration(KafkaError, code=119):
    """The registration of the broker was refused by the controller."""


class TransactionAbortable(KafkaError, code=120):
    """The transaction failed and has to be aborted; the producer can go on after that."""


class InvalidRecordState(KafkaError, code=121):
    """The record is not in a state in which it can be acknowledged."""


class ShareSessionNotFound(RetriableError, code=122):
    """The share session is gone; start a new one."""


class InvalidShareSessionEpoch(RetriableError, code=123):
    """The share session is at another epoch than the request says."""


class FencedStateEpoch(KafkaError, code=124):
    """The state of the share group is at another epoch than the request says."""


class InvalidVoterKey(KafkaError, code=125):
    """The voter key is not that of the replica that got the request."""


class DuplicateVoter(KafkaError, code=126):
    """The voter belongs to the set of voters already."""


class VoterNotFound(KafkaError, code=127):
    """The voter does not belong to the set of voters."""


class InvalidRegularExpression(KafkaError, code=128):
    """The regular expression cannot be parsed."""


class RebootstrapRequired(KafkaError, code=129):
    """The client's view of the cluster is too old; it has to start from its bootstrap servers again."""


class StreamsInvalidTopology(KafkaError, code=130):
    """The topology is not valid."""


class StreamsInvalidTopologyEpoch(KafkaError, code=131):
    """The epoch of the topology is not valid."""


class StreamsTopologyFenced(KafkaError, code=132):
    """The topology has been replaced by one of a later epoch."""


class ShareSessionLimitReached(RetriableError, code=133):
    """The broker has no room for another share session."""
