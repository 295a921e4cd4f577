// Prints the golden bytes of records.txt with Kafka's own classes. By hand, with the jars of Kafka 4.2 on the class path:
//   java -cp 'kafka-group-coordinator.jar:kafka-clients.jar:kafka-server-common.jar:kafka-coordinator-common.jar:…' GoldenRecords.java
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.List;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.coordinator.group.generated.*;

public class GoldenRecords {
    static final Uuid ORDERS = new Uuid(0x0123456789abcdefL, 0x8899aabbccddeeffL);

    static byte[] bytes(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }

    static void show(String name, short type, ApiMessage key, int version, ApiMessage value) {
        ByteBuffer k = MessageUtil.toVersionPrefixedByteBuffer((short) 0, key);
        k.putShort(0, type);
        String v = value == null ? "-" : HexFormat.of().formatHex(bytes(MessageUtil.toVersionPrefixedByteBuffer((short) version, value)));
        System.out.println(name + " " + HexFormat.of().formatHex(bytes(k)) + " " + v);
    }

    public static void main(String[] args) {
        show("legacy_offset", (short) 0, new LegacyOffsetCommitKey().setGroup("g").setTopic("orders").setPartition(7), 0,
            new LegacyOffsetCommitValue().setOffset(42).setMetadata("note").setCommitTimestamp(1700000000000L));
        OffsetCommitKey offset = new OffsetCommitKey().setGroup("billing").setTopic("orders").setPartition(7);
        OffsetCommitValue committed = new OffsetCommitValue().setOffset(42).setLeaderEpoch(3).setMetadata("note")
            .setCommitTimestamp(1700000000000L).setExpireTimestamp(1700000099999L);
        for (int version = 0; version < 4; version++)
            show("offset_v" + version, (short) 1, offset, version, committed);
        show("offset_v4", (short) 1, offset, 4, committed);
        show("offset_v4_topic_id", (short) 1, offset, 4, committed.duplicate().setTopicId(ORDERS));
        show("offset_tombstone", (short) 1, offset, 0, null);
        GroupMetadataKey group = new GroupMetadataKey().setGroup("billing");
        GroupMetadataValue stable = new GroupMetadataValue().setProtocolType("consumer").setGeneration(5).setProtocol("range")
            .setLeader("m-1").setCurrentStateTimestamp(1700000000000L).setMembers(List.of(
                new GroupMetadataValue.MemberMetadata().setMemberId("m-1").setGroupInstanceId("i-1").setClientId("c").setClientHost("/127.0.0.1")
                    .setRebalanceTimeout(300000).setSessionTimeout(45000).setSubscription(new byte[] {1, 2}).setAssignment(new byte[] {3}),
                new GroupMetadataValue.MemberMetadata().setMemberId("m-2").setClientId("c").setClientHost("/127.0.0.1")
                    .setRebalanceTimeout(300000).setSessionTimeout(45000).setSubscription(new byte[0]).setAssignment(new byte[0])));
        for (int version = 0; version <= 4; version++)
            show("group_v" + version, (short) 2, group, version, stable);
        show("group_empty", (short) 2, group, 3, new GroupMetadataValue().setProtocolType("").setGeneration(0).setProtocol(null)
            .setLeader(null).setCurrentStateTimestamp(-1).setMembers(List.of()));
        show("consumer_group", (short) 3, new ConsumerGroupMetadataKey().setGroupId("billing"), 0,
            new ConsumerGroupMetadataValue().setEpoch(10).setMetadataHash(-123456789012345L));
        show("consumer_group_no_hash", (short) 3, new ConsumerGroupMetadataKey().setGroupId("billing"), 0,
            new ConsumerGroupMetadataValue().setEpoch(10));
        show("partition_metadata", (short) 4, new ConsumerGroupPartitionMetadataKey().setGroupId("billing"), 0,
            new ConsumerGroupPartitionMetadataValue().setTopics(List.of(
                new ConsumerGroupPartitionMetadataValue.TopicMetadata().setTopicId(ORDERS).setTopicName("orders").setNumPartitions(6)
                    .setPartitionMetadata(List.of(new ConsumerGroupPartitionMetadataValue.PartitionMetadata().setPartition(0).setRacks(List.of("a", "b")))))));
        ConsumerGroupMemberMetadataValue member = new ConsumerGroupMemberMetadataValue().setInstanceId("i-1").setRackId(null)
            .setClientId("c").setClientHost("/127.0.0.1").setSubscribedTopicNames(List.of("orders", "payments"))
            .setSubscribedTopicRegex("pay.*").setRebalanceTimeoutMs(300000).setServerAssignor("uniform");
        ConsumerGroupMemberMetadataKey memberKey = new ConsumerGroupMemberMetadataKey().setGroupId("billing").setMemberId("m-1");
        // As the broker writes it: null is said, since a value that is left out is an empty one.
        show("consumer_member", (short) 5, memberKey, 0, member.duplicate().setClassicMemberMetadata(null));
        show("consumer_member_classic", (short) 5, memberKey, 0, member.duplicate().setClassicMemberMetadata(
            new ConsumerGroupMemberMetadataValue.ClassicMemberMetadata().setSessionTimeoutMs(45000).setSupportedProtocols(List.of(
                new ConsumerGroupMemberMetadataValue.ClassicProtocol().setName("range").setMetadata(new byte[] {1, 2, 3})))));
        show("target_metadata", (short) 6, new ConsumerGroupTargetAssignmentMetadataKey().setGroupId("billing"), 0,
            new ConsumerGroupTargetAssignmentMetadataValue().setAssignmentEpoch(10));
        show("target_member", (short) 7, new ConsumerGroupTargetAssignmentMemberKey().setGroupId("billing").setMemberId("m-1"), 0,
            new ConsumerGroupTargetAssignmentMemberValue().setTopicPartitions(List.of(
                new ConsumerGroupTargetAssignmentMemberValue.TopicPartition().setTopicId(ORDERS).setPartitions(List.of(0, 2, 5)))));
        show("current_assignment", (short) 8, new ConsumerGroupCurrentMemberAssignmentKey().setGroupId("billing").setMemberId("m-1"), 0,
            new ConsumerGroupCurrentMemberAssignmentValue().setMemberEpoch(10).setPreviousMemberEpoch(9).setState((byte) 1)
                .setAssignedPartitions(List.of(new ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions().setTopicId(ORDERS).setPartitions(List.of(0, 2))))
                .setPartitionsPendingRevocation(List.of(new ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions().setTopicId(ORDERS).setPartitions(List.of(5)))));
        show("regular_expression", (short) 16, new ConsumerGroupRegularExpressionKey().setGroupId("billing").setRegularExpression("pay.*"), 0,
            new ConsumerGroupRegularExpressionValue().setTopics(List.of("payments", "payouts")).setVersion(17).setTimestamp(1700000000000L));
    }
}
