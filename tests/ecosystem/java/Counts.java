import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Produced;

/** Counts words exactly once, through a repartition topic and a changelog: Counts BOOTSTRAP STATE_DIR. */
public class Counts {
    public static void main(String[] args) {
        var properties = new Properties();
        properties.put("application.id", "counts");
        properties.put("bootstrap.servers", args[0]);
        properties.put("state.dir", args[1]);
        properties.put("processing.guarantee", "exactly_once_v2");
        properties.put("commit.interval.ms", "100");
        properties.put("statestore.cache.max.bytes", "0"); // Each word gives a record.
        properties.put("num.stream.threads", "1");
        properties.put("consumer.auto.offset.reset", "earliest");
        properties.put("consumer.session.timeout.ms", "6000");
        properties.put("consumer.heartbeat.interval.ms", "1000");
        var words = Serdes.String();
        var builder = new StreamsBuilder();
        builder.stream("words", Consumed.with(words, words))
            .groupBy((key, word) -> word, Grouped.with(words, words))
            .count()
            .toStream()
            .mapValues(String::valueOf)
            .to("counts", Produced.with(words, words));
        var streams = new KafkaStreams(builder.build(), properties);
        streams.setStateListener((now, before) -> System.out.println("state " + now));
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
