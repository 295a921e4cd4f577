#!/bin/sh
# Check a broker with Apache Kafka's own Java clients: run_java.sh HOST:PORT
# With a topic they write and read while brokers of a cluster die: run_java.sh HOST:PORT,… TOPIC
# Needs Java 17 or newer and Maven, which fetches the clients on first use.
# With a file of cases it connects with every protocol and mechanism: run_java.sh --cases FILE
set -eu
if [ $# -lt 1 ] || [ $# -gt 2 ]; then echo "usage: $0 HOST:PORT [TOPIC]" >&2; exit 2; fi
for tool in java mvn; do
    command -v "$tool" >/dev/null || { echo "$0: needs $tool on the PATH (Java 17 or newer, Maven)" >&2; exit 2; }
done
cd "$(dirname "$0")/java"
mvn -B -q compile dependency:build-classpath -Dmdep.outputFile=target/classpath
exec java -Dorg.slf4j.simpleLogger.defaultLogLevel=error -cp "target/classes:$(cat target/classpath)" compat.Main "$@"
