"""Our clients over real sockets, against our broker or, with OTTLA_COMPAT_BROKER=kafka, against Apache Kafka."""
