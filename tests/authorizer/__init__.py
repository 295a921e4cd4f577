"""The authorizer beside a slow reference and beside Apache Kafka's."""
