package compat;

import static compat.Checks.equal;
import static compat.Checks.isTrue;
import static compat.Checks.refused;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/** The admin client; also makes the topics of the other checks. */
final class Topics implements AutoCloseable {
    private final Admin admin;
    private final List<String> created = new ArrayList<>();
    private Records records;

    Topics(String servers) {
        admin = Admin.create(Map.of("bootstrap.servers", servers));
    }

    @Override
    public void close() {
        admin.deleteTopics(created).topicNameValues().values().forEach(Topics::waitFor);
        admin.close();
    }

    private static void waitFor(java.util.concurrent.Future<?> future) {
        try {
            future.get();
        } catch (InterruptedException | ExecutionException gone) {
            System.out.println("not deleted: " + gone);
        }
    }

    /** A new topic; its first partition. */
    TopicPartition create(int partitions, Map<String, String> configs) throws Exception {
        String name = "java-" + UUID.randomUUID();
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1).configs(configs))).all().get();
        created.add(name);
        awaitLeaders(name, partitions);
        return new TopicPartition(name, 0);
    }

    private void awaitLeaders(String name, int partitions) throws Exception {
        long deadline = System.nanoTime() + 20_000_000_000L;
        while (true) {
            try {
                var found = admin.describeTopics(List.of(name)).allTopicNames().get().get(name).partitions();
                if (found.size() == partitions && found.stream().allMatch(p -> p.leader() != null)) {
                    return;
                }
            } catch (ExecutionException notYet) {
                isTrue(notYet.getCause() instanceof UnknownTopicOrPartitionException, notYet.toString());
            }
            isTrue(System.nanoTime() < deadline, "topic " + name + " has leaders");
            Thread.sleep(20);
        }
    }

    void run(Checks checks, Records through) {
        records = through;
        checks.check("describeCluster", this::cluster);
        checks.check("createTopics, describeTopics by name and id, deleteTopics by id", this::topics);
        checks.check("createTopics refuses", this::refusals);
        checks.check("createPartitions", this::partitions);
        checks.check("listOffsets", this::offsets);
        checks.check("describeConfigs, incrementalAlterConfigs", this::configs);
        checks.check("describeLogDirs", this::logDirs);
        checks.check("describeProducers", this::producers);
        checks.check("deleteRecords", this::deleteRecords);
        checks.check("a thousand partitions", this::thousand);
    }

    private void send(TopicPartition partition, int count, long firstTimestamp) throws Exception {
        try (var producer = records.producer(Map.of())) {
            for (int number = 0; number < count; number++) {
                byte[] value = Records.bytes(Integer.toString(number));
                Long when = firstTimestamp + number;
                producer.send(new ProducerRecord<>(partition.topic(), partition.partition(), when, null, value)).get();
            }
        }
    }

    private void cluster() throws Exception {
        var found = admin.describeCluster();
        isTrue(!found.clusterId().get().isEmpty(), "there is a cluster id");
        isTrue(found.nodes().get().contains(found.controller().get()), "the controller is one of the nodes");
        isTrue(!admin.describeFeatures().featureMetadata().get().toString().isEmpty(), "features are described");
    }

    private void topics() throws Exception {
        String name = create(2, Map.of("retention.ms", "1000000")).topic();
        isTrue(admin.listTopics().names().get().contains(name), "the topic is listed");
        var id = admin.describeTopics(List.of(name)).allTopicNames().get().get(name).topicId();
        var byId = admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get().get(id);
        equal(name, byId.name());
        admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get();
        created.remove(name);
        refused(UnknownTopicOrPartitionException.class, () -> admin.deleteTopics(List.of(name)).all().get());
    }

    private void refusals() throws Exception {
        String name = create(1, Map.of()).topic();
        refused(TopicExistsException.class, () -> make(new NewTopic(name, 1, (short) 1)));
        refused(InvalidTopicException.class, () -> make(new NewTopic("no good", 1, (short) 1)));
        refused(InvalidPartitionsException.class, () -> make(new NewTopic("java-bad", 0, (short) 1)));
        refused(InvalidReplicationFactorException.class, () -> make(new NewTopic("java-bad", 1, (short) 5)));
        var unknown = new NewTopic("java-bad", 1, (short) 1).configs(Map.of("no.such.config", "1"));
        refused(InvalidConfigurationException.class, () -> make(unknown));
    }

    private void make(NewTopic topic) throws Exception {
        admin.createTopics(List.of(topic)).all().get();
    }

    private void partitions() throws Exception {
        String name = create(1, Map.of()).topic();
        admin.createPartitions(Map.of(name, NewPartitions.increaseTo(3))).all().get();
        awaitLeaders(name, 3);
        refused(
                InvalidPartitionsException.class,
                () -> admin.createPartitions(Map.of(name, NewPartitions.increaseTo(2))).all().get());
    }

    private void offsets() throws Exception {
        TopicPartition partition = create(1, Map.of());
        long start = System.currentTimeMillis() - 50_000;
        send(partition, 5, start);
        equal(0L, offset(partition, OffsetSpec.earliest()).offset());
        equal(5L, offset(partition, OffsetSpec.latest()).offset());
        equal(2L, offset(partition, OffsetSpec.forTimestamp(start + 2)).offset());
        equal(4L, offset(partition, OffsetSpec.maxTimestamp()).offset());
        equal(start + 4, offset(partition, OffsetSpec.maxTimestamp()).timestamp());
        equal(0L, offset(partition, OffsetSpec.earliestLocal()).offset());
        equal(-1L, offset(partition, OffsetSpec.latestTiered()).offset());
    }

    private ListOffsetsResultInfo offset(TopicPartition partition, OffsetSpec spec) throws Exception {
        return admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get();
    }

    private void configs() throws Exception {
        var topic = new ConfigResource(ConfigResource.Type.TOPIC, create(1, Map.of()).topic());
        var changes = List.of(op("retention.ms", "123456", OpType.SET), op("cleanup.policy", "compact", OpType.APPEND));
        admin.incrementalAlterConfigs(Map.of(topic, changes)).all().get();
        var found = admin.describeConfigs(List.of(topic)).all().get().get(topic);
        equal("123456", found.get("retention.ms").value());
        equal(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, found.get("retention.ms").source());
        equal("delete,compact", found.get("cleanup.policy").value());
        equal(ConfigEntry.ConfigSource.DEFAULT_CONFIG, found.get("segment.bytes").source());
        var bad = List.of(op("retention.ms", "long", OpType.SET));
        refused(
                InvalidConfigurationException.class,
                () -> admin.incrementalAlterConfigs(Map.of(topic, bad)).all().get());
        String node = admin.describeCluster().controller().get().idString();
        var broker = new ConfigResource(ConfigResource.Type.BROKER, node);
        equal("1048588", admin.describeConfigs(List.of(broker)).all().get().get(broker).get("message.max.bytes").value());
    }

    private static AlterConfigOp op(String name, String value, OpType type) {
        return new AlterConfigOp(new ConfigEntry(name, value), type);
    }

    private void logDirs() throws Exception {
        TopicPartition partition = create(1, Map.of());
        send(partition, 3, System.currentTimeMillis());
        int node = admin.describeCluster().controller().get().id();
        var directories = admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node);
        long size = directories.values().stream()
                .flatMap(directory -> directory.replicaInfos().entrySet().stream())
                .filter(entry -> entry.getKey().equals(partition))
                .mapToLong(entry -> entry.getValue().size())
                .sum();
        isTrue(size > 100, "the size of the partition is told, not " + size);
    }

    private void producers() throws Exception {
        TopicPartition partition = create(1, Map.of());
        send(partition, 3, System.currentTimeMillis());
        var found = admin.describeProducers(Set.of(partition)).partitionResult(partition).get().activeProducers();
        equal(1, found.size());
        equal(2, found.get(0).lastSequence());
    }

    private void deleteRecords() throws Exception {
        TopicPartition partition = create(1, Map.of());
        send(partition, 5, System.currentTimeMillis());
        var deletion = admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(3)));
        equal(3L, deletion.lowWatermarks().get(partition).get().lowWatermark());
        equal(3L, offset(partition, OffsetSpec.earliest()).offset());
        refused(
                OffsetOutOfRangeException.class,
                () -> admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(9))).all().get());
        try (var consumer = records.consumer(Map.of())) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 0);
            equal(3L, Records.take(consumer, 2).get(0).offset());
        }
    }

    private void thousand() throws Exception {
        String name = create(1_000, Map.of()).topic();
        try (var producer = records.producer(Map.of("linger.ms", 50));
                var consumer = records.consumer(Map.of("max.poll.records", 2_000))) {
            List<TopicPartition> all = new ArrayList<>();
            for (int number = 0; number < 1_000; number++) {
                all.add(new TopicPartition(name, number));
                producer.send(new ProducerRecord<>(name, number, null, Records.bytes("v")));
            }
            producer.flush();
            consumer.assign(all);
            equal(1_000L, Records.take(consumer, 1_000).stream().map(r -> r.partition()).distinct().count());
        }
    }
}
