package compat;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes and reads while brokers die, and prints what happens: SENT, ACK and READ with partition, offset and value, and
 * FAIL with a reason. The caller judges. Standard input ends the writing.
 */
final class Failover {
    private static final int PARTITIONS = 3;
    private static final int OUTSTANDING = 200;
    private static final long PATIENCE_MS = 60_000;
    private final String servers;
    private final String topic;
    private final AtomicInteger acknowledged = new AtomicInteger();
    private volatile int sent;
    private volatile boolean isDone;

    Failover(String servers, String topic) {
        this.servers = servers;
        this.topic = topic;
    }

    int run() throws Exception {
        Thread reader = new Thread(this::read);
        reader.start();
        write();
        isDone = true;
        reader.join();
        return 0;
    }

    private void write() throws Exception {
        Map<String, Object> config =
                Map.of("bootstrap.servers", servers, "acks", "all", "delivery.timeout.ms", (int) PATIENCE_MS * 2);
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            while (System.in.available() == 0) {
                int partition = sent % PARTITIONS;
                String value = "java-" + sent;
                say("SENT", partition, -1, value);
                sent++;
                producer.send(
                        new ProducerRecord<>(topic, partition, null, value.getBytes(StandardCharsets.UTF_8)),
                        (metadata, problem) -> {
                            acknowledged.incrementAndGet();
                            if (problem == null) {
                                say("ACK", metadata.partition(), metadata.offset(), value);
                            } else {
                                say("FAIL", partition, -1, value + " " + problem);
                            }
                        });
                while (sent - acknowledged.get() > OUTSTANDING) {
                    Thread.sleep(1);
                }
                Thread.sleep(1);
            }
        }
    }

    private void read() {
        Map<String, Object> config = Map.of("bootstrap.servers", servers, "auto.offset.reset", "none");
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> places = new ArrayList<>();
            for (int partition = 0; partition < PARTITIONS; partition++) {
                places.add(new TopicPartition(topic, partition));
            }
            consumer.assign(places);
            places.forEach(place -> consumer.seek(place, 0));
            int count = 0;
            long deadline = Long.MAX_VALUE;
            while (!(isDone && count >= sent) && System.currentTimeMillis() < deadline) {
                if (isDone && deadline == Long.MAX_VALUE) {
                    deadline = System.currentTimeMillis() + PATIENCE_MS;
                }
                for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(100))) {
                    say("READ", each.partition(), each.offset(), new String(each.value(), StandardCharsets.UTF_8));
                    count++;
                }
            }
        } catch (RuntimeException problem) {
            say("FAIL", 0, -1, "consumer " + problem);
        }
    }

    private static synchronized void say(String what, int partition, long offset, String text) {
        System.out.println(what + " " + partition + " " + offset + " " + text);
    }
}
