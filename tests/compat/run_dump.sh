#!/bin/sh
# Read every segment, index and producer snapshot of a data directory with Kafka's own DumpLogSegments, and fail on
# anything it complains of: run_dump.sh DATA_DIR
# The broker must be stopped. Needs Java 17 or newer; the jars come with `benchmarks.apache_kafka`, which fetches them with
# Maven on first use. PYTHON names the interpreter for that (default: python3).
set -eu
if [ $# -ne 1 ] || [ ! -d "$1" ]; then echo "usage: $0 DATA_DIR" >&2; exit 2; fi
data=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."
command -v java >/dev/null || { echo "$0: needs java on the PATH (17 or newer)" >&2; exit 2; }
jars=$("${PYTHON:-python3}" -c 'from benchmarks.apache_kafka import class_path; print(class_path())')
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# What the tool says of damage; records and file names are left out of the search, they may contain any word.
problems='isvalid: false|invalid bytes at the end|Mismatches in|timestamp mismatch|out of order|Index offset:|Exception'

# dump LABEL ENDING OPTION...: the tool over all files with this ending; each of them must have been read.
dump() {
    label=$1 ending=$2
    shift 2
    find "$data" -mindepth 2 -maxdepth 2 -name "*.$ending" ! -path '*-delete/*' | sort > "$scratch/files"
    count=$(wc -l < "$scratch/files")
    if [ "$count" -eq 0 ]; then echo "none $label"; return; fi
    split -l 200 "$scratch/files" "$scratch/part."
    : > "$scratch/output"
    for part in "$scratch"/part.*; do
        files=$(paste -sd, "$part")
        java -cp "$jars" kafka.tools.DumpLogSegments --files "$files" "$@" >> "$scratch/output" 2>&1 ||
            { tail -n 20 "$scratch/output"; echo "FAIL $label: the tool ended with an error"; exit 1; }
    done
    rm -f "$scratch"/part.*
    if grep -vE '^(Dumping|\|) ' "$scratch/output" | grep -E "$problems" > "$scratch/complaints"; then
        head -n 20 "$scratch/complaints"
        echo "FAIL $label"
        exit 1
    fi
    case $* in
        *sanity*) seen=$(grep -cE ' (passed sanity check|is empty)\.$' "$scratch/output") || true ;;
        *) seen=$(grep -c '^Dumping ' "$scratch/output") || true ;;
    esac
    if [ "$seen" -ne "$count" ]; then echo "FAIL $label: $seen of $count files were read"; exit 1; fi
    echo "PASS $label: $count files, $(wc -l < "$scratch/output") lines"
}

dump "batches" log
dump "records" log --deep-iteration
groups=$(find "$data" -path '*/__consumer_offsets-*' -name '*.log' ! -path '*-delete/*' | sort | paste -sd, -)
if [ -n "$groups" ]; then
    java -cp "$jars" kafka.tools.DumpLogSegments --files "$groups" --offsets-decoder > "$scratch/output" 2>&1
    if grep 'Unknown record type' "$scratch/output"; then echo "FAIL records of groups"; exit 1; fi
    echo "PASS records of groups"
fi
dump "offset indexes are sane" index --index-sanity-check
dump "offset indexes fit their segments" index --verify-index-only
dump "offset index entries" index
dump "time indexes are sane" timeindex --index-sanity-check
dump "time indexes fit their segments" timeindex --verify-index-only
dump "time index entries" timeindex
dump "producer snapshots" snapshot
dump "transaction indexes" txnindex
