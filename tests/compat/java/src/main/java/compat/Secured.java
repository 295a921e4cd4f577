package compat;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.AuthenticationException;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Connects with every protocol and mechanism. Each line of the file is a case, with tabs between: a name, host:port, the
 * protocol, the mechanism, the user, the secret, the file of the authority, the file of the client's certificate, and
 * "accepted" or "refused".
 */
final class Secured {
    private static final String MODULES = "org.apache.kafka.common.security.";
    private final List<String> lines;

    Secured(String file) throws Exception {
        lines = Files.readAllLines(Path.of(file));
    }

    int run() {
        Checks checks = new Checks();
        for (String line : lines) {
            String[] fields = line.split("\t", -1);
            Map<String, Object> config = config(fields);
            checks.check(fields[0], () -> {
                if (fields[8].equals("accepted")) {
                    write(config, fields[0]);
                } else {
                    Checks.refused(AuthenticationException.class, () -> ask(config));
                }
            });
        }
        return checks.finish();
    }

    private static Map<String, Object> config(String[] fields) {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", fields[1]);
        config.put("security.protocol", fields[2]);
        if (!fields[3].isEmpty()) {
            config.put("sasl.mechanism", fields[3]);
            config.put("sasl.jaas.config", jaas(fields[3], fields[4], fields[5]));
        }
        if (fields[3].equals("OAUTHBEARER")) {
            config.put("sasl.login.callback.handler.class", Tokens.class.getName());
        }
        if (!fields[6].isEmpty()) {
            config.put("ssl.truststore.type", "PEM");
            config.put("ssl.truststore.location", fields[6]);
        }
        if (!fields[7].isEmpty()) {
            config.put("ssl.keystore.type", "PEM");
            config.put("ssl.keystore.location", fields[7]);
        }
        return config;
    }

    private static String jaas(String mechanism, String user, String secret) {
        if (mechanism.equals("OAUTHBEARER")) {
            return MODULES + "oauthbearer.OAuthBearerLoginModule required token=\"" + secret + "\";";
        }
        String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        return MODULES + module + " required username=\"" + user + "\" password=\"" + secret + "\";";
    }

    private static void ask(Map<String, Object> config) throws Exception {
        try (Admin admin = Admin.create(config)) {
            admin.describeCluster().clusterId().get(30, TimeUnit.SECONDS);
        }
    }

    private static void write(Map<String, Object> config, String value) throws Exception {
        ByteArraySerializer bytes = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config, bytes, bytes)) {
            producer.send(new ProducerRecord<>("secured", value.getBytes())).get(30, TimeUnit.SECONDS);
        }
    }
}
