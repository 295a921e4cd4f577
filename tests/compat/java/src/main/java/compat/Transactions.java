package compat;

import static compat.Checks.equal;
import static compat.Checks.isTrue;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Transactions, by the second version of their protocol, which this client speaks where the broker offers it. */
final class Transactions {
    private static final Duration DEADLINE = Duration.ofSeconds(30);
    private final String servers;
    private final Topics topics;
    private final Records records;

    Transactions(String servers, Topics topics, Records records) {
        this.servers = servers;
        this.topics = topics;
        this.records = records;
    }

    void run(Checks checks) {
        checks.check("transactions are committed and aborted", this::commitAndAbort);
        checks.check("the epoch is raised with every transaction", this::epochs);
        checks.check("offsets move with the records", this::offsets);
        checks.check("a second producer fences the first", this::fencing);
        checks.check("a transaction is listed, described and aborted", this::tools);
    }

    private KafkaProducer<byte[], byte[]> producer(String id) {
        KafkaProducer<byte[], byte[]> producer = records.producer(Map.of("transactional.id", id));
        producer.initTransactions();
        return producer;
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, String value) {
        return new ProducerRecord<>(topic, 0, null, value.getBytes(StandardCharsets.UTF_8));
    }

    private static String id() {
        return "java-" + UUID.randomUUID();
    }

    private KafkaConsumer<byte[], byte[]> consumer(String group) {
        return new KafkaConsumer<>(
                Map.of(
                        "bootstrap.servers", servers,
                        "group.id", group,
                        "auto.offset.reset", "earliest",
                        "enable.auto.commit", "false",
                        "isolation.level", "read_committed"),
                new ByteArrayDeserializer(),
                new ByteArrayDeserializer());
    }

    /** What is committed in a topic, up to its end. */
    private List<String> committed(String topic) {
        TopicPartition place = new TopicPartition(topic, 0);
        List<String> found = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(id())) {
            consumer.assign(List.of(place));
            consumer.seekToBeginning(List.of(place));
            long end = consumer.endOffsets(List.of(place)).get(place);
            long deadline = System.nanoTime() + DEADLINE.toNanos();
            while (consumer.position(place) < end && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    found.add(new String(record.value(), StandardCharsets.UTF_8));
                }
            }
        }
        return found;
    }

    private void commitAndAbort() throws Exception {
        String topic = topics.create(1, Map.of()).topic();
        try (KafkaProducer<byte[], byte[]> producer = producer(id())) {
            for (int number = 0; number < 6; number++) {
                producer.beginTransaction();
                producer.send(record(topic, "v" + number)).get();
                if (number % 2 == 0) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
            }
            producer.beginTransaction();
            producer.commitTransaction();
            producer.beginTransaction();
            producer.abortTransaction();
        }
        equal(List.of("v0", "v2", "v4"), committed(topic));
    }

    private void epochs() throws Exception {
        String topic = topics.create(1, Map.of()).topic();
        String id = id();
        try (KafkaProducer<byte[], byte[]> producer = producer(id);
                Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            for (int number = 0; number < 3; number++) {
                producer.beginTransaction();
                producer.send(record(topic, "v")).get();
                producer.commitTransaction();
            }
            TransactionDescription found = admin.describeTransactions(List.of(id)).all().get().get(id);
            equal(3, found.producerEpoch());
        }
    }

    private void offsets() throws Exception {
        String source = topics.create(1, Map.of()).topic();
        String target = topics.create(1, Map.of()).topic();
        TopicPartition place = new TopicPartition(source, 0);
        try (KafkaProducer<byte[], byte[]> producer = producer(id());
                KafkaConsumer<byte[], byte[]> consumer = consumer(id())) {
            producer.beginTransaction();
            producer.send(record(source, "in"));
            producer.commitTransaction();
            consumer.subscribe(List.of(source));
            long deadline = System.nanoTime() + DEADLINE.toNanos();
            while (consumer.poll(Duration.ofMillis(200)).isEmpty() && System.nanoTime() < deadline) {}
            for (boolean commits : new boolean[] {false, true}) {
                producer.beginTransaction();
                producer.send(record(target, "out"));
                producer.sendOffsetsToTransaction(
                        Map.of(place, new OffsetAndMetadata(consumer.position(place))), consumer.groupMetadata());
                if (commits) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                    equal(null, consumer.committed(java.util.Set.of(place)).get(place));
                }
            }
            isTrue(consumer.committed(java.util.Set.of(place)).get(place).offset() >= 1, "the offset is committed");
        }
        equal(List.of("out"), committed(target));
    }

    private void fencing() throws Exception {
        String topic = topics.create(1, Map.of()).topic();
        String id = id();
        KafkaProducer<byte[], byte[]> first = producer(id);
        first.beginTransaction();
        first.send(record(topic, "left open")).get();
        try (KafkaProducer<byte[], byte[]> second = producer(id)) {
            boolean fenced = false;
            try {
                first.send(record(topic, "zombie"));
                first.commitTransaction();
            } catch (KafkaException problem) {
                fenced = true;
            }
            isTrue(fenced, "the first producer is fenced");
            second.beginTransaction();
            second.send(record(topic, "second"));
            second.commitTransaction();
        } finally {
            first.close(Duration.ZERO);
        }
        equal(List.of("second"), committed(topic));
    }

    private void tools() throws Exception {
        String topic = topics.create(1, Map.of()).topic();
        String id = id();
        TopicPartition place = new TopicPartition(topic, 0);
        KafkaProducer<byte[], byte[]> producer = producer(id);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            producer.beginTransaction();
            producer.send(record(topic, "open")).get();
            isTrue(
                    admin.listTransactions().all().get().stream().anyMatch(each -> each.transactionalId().equals(id)),
                    "the transaction is listed");
            equal("Ongoing", admin.describeTransactions(List.of(id)).all().get().get(id).state().toString());
            ProducerState state =
                    admin.describeProducers(List.of(place)).partitionResult(place).get().activeProducers().get(0);
            equal(0L, state.currentTransactionStartOffset().getAsLong());
            admin.abortTransaction(
                            new AbortTransactionSpec(
                                    place, state.producerId(), (short) state.producerEpoch(), 0))
                    .all()
                    .get();
        } finally {
            producer.close(Duration.ZERO);
        }
        equal(List.of(), committed(topic));
    }
}
