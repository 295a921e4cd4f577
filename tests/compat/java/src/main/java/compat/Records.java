package compat;

import static compat.Checks.equal;
import static compat.Checks.isTrue;
import static compat.Checks.refused;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetOutOfRangeException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Producing and consuming by assignment. */
final class Records {
    private static final Duration DEADLINE = Duration.ofSeconds(30);
    private final String servers;
    private final Topics topics;

    Records(String servers, Topics topics) {
        this.servers = servers;
        this.topics = topics;
    }

    void run(Checks checks) {
        for (String compression : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            checks.check("produce and consume, " + compression, () -> roundTrip(compression));
        }
        for (String acks : List.of("0", "1", "all")) {
            checks.check("acks " + acks, () -> acknowledged(acks));
        }
        checks.check("idempotent stream over partitions", this::stream);
        checks.check("seek into a batch and ask for offsets by time", this::seek);
        checks.check("log append time", this::logAppendTime);
        checks.check("large message through a small fetch", this::largeMessage);
        checks.check("too large message is refused", this::tooLarge);
        checks.check("compacted topic refuses null keys", this::nullKey);
        checks.check("offset out of range", this::outOfRange);
        checks.check("long poll", this::longPoll);
    }

    KafkaProducer<byte[], byte[]> producer(Map<String, Object> config) {
        Map<String, Object> all = new HashMap<>(config);
        all.put("bootstrap.servers", servers);
        return new KafkaProducer<>(all, new ByteArraySerializer(), new ByteArraySerializer());
    }

    KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> config) {
        Map<String, Object> all = new HashMap<>(config);
        all.put("bootstrap.servers", servers);
        all.putIfAbsent("auto.offset.reset", "earliest");
        return new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static List<ConsumerRecord<byte[], byte[]>> take(KafkaConsumer<byte[], byte[]> consumer, int count) {
        List<ConsumerRecord<byte[], byte[]>> found = new ArrayList<>();
        long deadline = System.nanoTime() + DEADLINE.toNanos();
        while (found.size() < count) {
            isTrue(System.nanoTime() < deadline, count + " records in time, only " + found.size());
            consumer.poll(Duration.ofMillis(500)).forEach(found::add);
        }
        return found;
    }

    private void roundTrip(String compression) throws Exception {
        TopicPartition partition = topics.create(1, Map.of());
        byte[][][] sent = {{bytes("k"), bytes("v")}, {null, bytes("v")}, {bytes("k"), null}, {new byte[0], new byte[0]}};
        try (var producer = producer(Map.of("compression.type", compression, "linger.ms", 20))) {
            List<Future<RecordMetadata>> deliveries = new ArrayList<>();
            for (byte[][] record : sent) {
                var message = new ProducerRecord<>(partition.topic(), 0, record[0], record[1]);
                message.headers().add("h", bytes("1")).add("null", null);
                deliveries.add(producer.send(message));
            }
            for (int offset = 0; offset < sent.length; offset++) {
                equal((long) offset, deliveries.get(offset).get().offset());
            }
        }
        try (var consumer = consumer(Map.of())) {
            consumer.assign(List.of(partition));
            var found = take(consumer, sent.length);
            for (int index = 0; index < sent.length; index++) {
                isTrue(Arrays.equals(sent[index][0], found.get(index).key()), "key " + index);
                isTrue(Arrays.equals(sent[index][1], found.get(index).value()), "value " + index);
                equal("1", new String(found.get(index).headers().lastHeader("h").value(), StandardCharsets.UTF_8));
                equal(null, found.get(index).headers().lastHeader("null").value());
            }
        }
    }

    private void acknowledged(String acks) throws Exception {
        TopicPartition partition = topics.create(1, Map.of());
        try (var producer = producer(Map.of("acks", acks, "enable.idempotence", false));
                var consumer = consumer(Map.of())) {
            var delivered = producer.send(new ProducerRecord<>(partition.topic(), 0, null, bytes("v"))).get();
            equal(acks.equals("0") ? -1L : 0L, delivered.offset());
            consumer.assign(List.of(partition));
            equal(1, take(consumer, 1).size());
        }
    }

    private void stream() throws Exception {
        TopicPartition any = topics.create(3, Map.of());
        int each = 3_000;
        try (var producer = producer(Map.of("compression.type", "lz4", "batch.size", 2_000))) {
            for (int number = 0; number < 3 * each; number++) {
                producer.send(new ProducerRecord<>(any.topic(), number % 3, null, bytes(Integer.toString(number))));
            }
        }
        try (var consumer = consumer(Map.of("max.poll.records", 10_000))) {
            consumer.assign(List.of(0, 1, 2).stream().map(p -> new TopicPartition(any.topic(), p)).toList());
            int[] next = {0, 1, 2};
            for (var record : take(consumer, 3 * each)) {
                equal(Integer.toString(next[record.partition()]), new String(record.value(), StandardCharsets.UTF_8));
                next[record.partition()] += 3;
            }
        }
    }

    private void seek() throws Exception {
        TopicPartition partition = topics.create(1, Map.of());
        long start = System.currentTimeMillis() - 100_000;
        try (var producer = producer(Map.of("linger.ms", 200))) {
            for (int number = 0; number < 50; number++) {
                producer.send(new ProducerRecord<>(partition.topic(), 0, start + number * 1_000, null, bytes("v")));
            }
        }
        try (var consumer = consumer(Map.of())) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 33);
            equal(33L, take(consumer, 1).get(0).offset());
            equal(17L, consumer.offsetsForTimes(Map.of(partition, start + 16_500)).get(partition).offset());
            equal(null, consumer.offsetsForTimes(Map.of(partition, start + 60_000)).get(partition));
            equal(0L, consumer.beginningOffsets(List.of(partition)).get(partition));
            equal(50L, consumer.endOffsets(List.of(partition)).get(partition));
            consumer.seekToEnd(List.of(partition));
            equal(50L, consumer.position(partition));
        }
    }

    private void logAppendTime() throws Exception {
        TopicPartition partition = topics.create(1, Map.of("message.timestamp.type", "LogAppendTime"));
        long before = System.currentTimeMillis();
        try (var producer = producer(Map.of()); var consumer = consumer(Map.of())) {
            var delivered = producer.send(new ProducerRecord<>(partition.topic(), 0, 1_000L, null, bytes("v"))).get();
            isTrue(delivered.timestamp() >= before, "the broker's time is told to the producer");
            consumer.assign(List.of(partition));
            var found = take(consumer, 1).get(0);
            equal(TimestampType.LOG_APPEND_TIME, found.timestampType());
            equal(delivered.timestamp(), found.timestamp());
        }
    }

    private void largeMessage() throws Exception {
        TopicPartition partition = topics.create(1, Map.of("max.message.bytes", "4000000"));
        byte[] value = new byte[3_500_000];
        new Random(1).nextBytes(value);
        try (var producer = producer(Map.of("max.request.size", 4_000_000));
                var consumer = consumer(Map.of("max.partition.fetch.bytes", 1_000, "fetch.max.bytes", 1_000))) {
            producer.send(new ProducerRecord<>(partition.topic(), 0, null, value)).get();
            consumer.assign(List.of(partition));
            isTrue(Arrays.equals(value, take(consumer, 1).get(0).value()), "the message is whole");
        }
    }

    private void tooLarge() throws Exception {
        TopicPartition partition = topics.create(1, Map.of());
        try (var producer = producer(Map.of("max.request.size", 10_000_000))) {
            var record = new ProducerRecord<byte[], byte[]>(partition.topic(), 0, null, new byte[2_000_000]);
            refused(RecordTooLargeException.class, () -> producer.send(record).get());
            var small = new ProducerRecord<byte[], byte[]>(partition.topic(), 0, null, bytes("v"));
            equal(0L, producer.send(small).get().offset());
        }
    }

    private void nullKey() throws Exception {
        TopicPartition partition = topics.create(1, Map.of("cleanup.policy", "compact"));
        try (var producer = producer(Map.of())) {
            var record = new ProducerRecord<byte[], byte[]>(partition.topic(), 0, null, bytes("v"));
            refused(InvalidRecordException.class, () -> producer.send(record).get());
        }
    }

    private void outOfRange() throws Exception {
        TopicPartition partition = topics.create(1, Map.of());
        try (var consumer = consumer(Map.of("auto.offset.reset", "none"))) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 100);
            refused(OffsetOutOfRangeException.class, () -> take(consumer, 1));
        }
    }

    private void longPoll() throws Exception {
        TopicPartition partition = topics.create(1, Map.of());
        try (var producer = producer(Map.of());
                var consumer = consumer(Map.of("fetch.max.wait.ms", 20_000))) {
            consumer.assign(List.of(partition));
            for (int number = 0; number < 20; number++) {
                consumer.poll(Duration.ofMillis(20));
                long started = System.nanoTime();
                producer.send(new ProducerRecord<>(partition.topic(), 0, null, bytes("v"))).get();
                equal((long) number, take(consumer, 1).get(0).offset());
                isTrue(System.nanoTime() - started < 5_000_000_000L, "a waiting consumer gets the record at once");
            }
        }
    }
}
