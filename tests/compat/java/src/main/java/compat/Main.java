package compat;

/**
 * Checks a broker with Apache Kafka's own Java clients. Arguments: host:port, or host:port,… and a topic for Failover, or
 * --cases and a file for Secured.
 */
public final class Main {
    private Main() {}

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("--cases")) {
            System.exit(new Secured(arguments[1]).run());
        }
        if (arguments.length == 2) {
            System.exit(new Failover(arguments[0], arguments[1]).run());
        }
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
