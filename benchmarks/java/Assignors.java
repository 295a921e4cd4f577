import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractStickyAssignor;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Kafka's own sticky assignors on the groups of benchmarks/assignors.py, which starts this and reads its lines.
 *
 * java -cp JARS Assignors.java ASSIGNOR KIND TOPICS PARTITIONS MEMBERS REPEATS
 */
public class Assignors {
    static String kind;
    static int topics, partitions, members;

    public static void main(String[] args) {
        boolean cooperative = args[0].equals("cooperative-sticky");
        kind = args[1];
        topics = Integer.parseInt(args[2]);
        partitions = Integer.parseInt(args[3]);
        members = Integer.parseInt(args[4]);
        int repeats = Integer.parseInt(args[5]);
        Map<String, List<PartitionInfo>> perTopic = new HashMap<>();
        for (int topic = 0; topic < topics; topic++) {
            List<PartitionInfo> infos = new ArrayList<>();
            for (int number = 0; number < partitions; number++)
                infos.add(new PartitionInfo(topic(topic), number, Node.noNode(), null, null));
            perTopic.put(topic(topic), infos);
        }
        Map<String, List<TopicPartition>> had = new HashMap<>();
        Map<String, List<TopicPartition>> first = run("first", cooperative, perTopic, members, had, repeats);
        run("again", cooperative, perTopic, members, first, repeats);
        run("one leaves", cooperative, perTopic, members - 1, first, repeats);
        run("one joins", cooperative, perTopic, members + 1, first, repeats);
    }

    static Map<String, List<TopicPartition>> run(
            String round, boolean cooperative, Map<String, List<PartitionInfo>> perTopic, int count,
            Map<String, List<TopicPartition>> had, int repeats) {
        double best = Double.MAX_VALUE;
        Map<String, List<TopicPartition>> result = null;
        for (int repeat = 0; repeat < repeats; repeat++) {
            Map<String, Subscription> subscriptions = subscriptions(count, had, cooperative);
            AbstractStickyAssignor assignor = cooperative ? new CooperativeStickyAssignor() : new StickyAssignor();
            long began = System.nanoTime();
            result = assignor.assignPartitions(perTopic, subscriptions);
            best = Math.min(best, (System.nanoTime() - began) / 1e9);
        }
        int least = Integer.MAX_VALUE, most = 0, moves = 0;
        for (Map.Entry<String, List<TopicPartition>> each : result.entrySet()) {
            least = Math.min(least, each.getValue().size());
            most = Math.max(most, each.getValue().size());
            Set<TopicPartition> kept = new HashSet<>(each.getValue());
            for (TopicPartition partition : had.getOrDefault(each.getKey(), List.of()))
                if (!kept.contains(partition)) moves++;
        }
        System.out.printf("{\"round\": \"%s\", \"seconds\": %.4f, \"least\": %d, \"most\": %d, \"moves\": %d}%n",
            round, best, least, most, moves);
        System.out.flush();
        return result;
    }

    static Map<String, Subscription> subscriptions(
            int count, Map<String, List<TopicPartition>> had, boolean cooperative) {
        List<String> all = new ArrayList<>();
        for (int topic = 0; topic < topics; topic++) all.add(topic(topic));
        Map<String, Subscription> subscriptions = new HashMap<>();
        for (int member = 0; member < count; member++) {
            List<TopicPartition> owned = had.getOrDefault(member(member), List.of());
            List<String> wanted = wanted(member, all);
            ByteBuffer userData = cooperative || owned.isEmpty() ? null : userData(owned);
            subscriptions.put(member(member), new Subscription(
                wanted, userData, cooperative ? owned : List.of(), 1, Optional.empty()));
        }
        return subscriptions;
    }

    static List<String> wanted(int member, List<String> all) {
        if (kind.equals("equal") || kind.equals("one differs") && member > 0) return all;
        if (kind.equals("one differs")) return all.subList(0, 1);
        List<String> half = new ArrayList<>();
        for (int topic = 0; topic < topics; topic++)
            if ((member + topic) % 2 == 0) half.add(all.get(topic));
        half.addAll(all.subList(0, 1).stream().filter(topic -> !half.contains(topic)).toList());
        return half;
    }

    static ByteBuffer userData(List<TopicPartition> owned) {
        Map<String, List<Integer>> byTopic = new TreeMap<>();
        for (TopicPartition each : owned)
            byTopic.computeIfAbsent(each.topic(), topic -> new ArrayList<>()).add(each.partition());
        int size = 8;
        for (Map.Entry<String, List<Integer>> each : byTopic.entrySet())
            size += 6 + each.getKey().length() + 4 * each.getValue().size();
        ByteBuffer data = ByteBuffer.allocate(size);
        data.putInt(byTopic.size());
        byTopic.forEach((topic, numbers) -> {
            data.putShort((short) topic.length());
            data.put(topic.getBytes(StandardCharsets.UTF_8));
            data.putInt(numbers.size());
            numbers.forEach(data::putInt);
        });
        data.putInt(1);
        data.flip();
        return data;
    }

    static String topic(int number) {
        return String.format("topic-%05d", number);
    }

    static String member(int number) {
        return String.format("member-%05d", number);
    }
}
