#!/bin/sh
# Check a broker with franz-go: run_go.sh HOST:PORT
# With a topic it writes and reads while brokers of a cluster die: run_go.sh HOST:PORT,… TOPIC
# Needs Go 1.26 or newer, which fetches the module on first use.
# With a file of cases it connects with every protocol and mechanism: run_go.sh --cases FILE
set -eu
if [ $# -lt 1 ] || [ $# -gt 2 ]; then echo "usage: $0 HOST:PORT [TOPIC]" >&2; exit 2; fi
command -v go >/dev/null || { echo "$0: needs go on the PATH (1.26 or newer)" >&2; exit 2; }
cd "$(dirname "$0")/go"
exec go run . "$@"
