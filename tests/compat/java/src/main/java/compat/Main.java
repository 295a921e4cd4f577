package compat;

/** Checks a broker with Apache Kafka's own Java clients. Argument: host:port. */
public final class Main {
    private Main() {}

    public static void main(String[] arguments) {
        Checks checks = new Checks();
        try (Topics topics = new Topics(arguments[0])) {
            Records records = new Records(arguments[0], topics);
            topics.run(checks, records);
            records.run(checks);
            new Transactions(arguments[0], topics, records).run(checks);
        }
        System.exit(checks.finish());
    }
}
