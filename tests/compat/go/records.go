package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func (s *suite) recordChecks() {
	for _, name := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		s.check("produce and consume, "+name, func(ctx context.Context) error {
			return s.roundTrip(ctx, kgo.ProducerBatchCompression(codecs[name]))
		})
	}
	s.check("acks 1", func(ctx context.Context) error {
		return s.roundTrip(ctx, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	})
	s.check("acks 0", func(ctx context.Context) error {
		return s.roundTrip(ctx, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	})
	s.check("idempotent stream over partitions", s.stream)
	s.check("large message through a small fetch", s.large)
	s.check("too large message is refused", s.tooLarge)
	s.check("compacted topic refuses null keys", s.nullKey)
	s.check("offset out of range goes back to the start", s.outOfRange)
	s.check("long poll", s.longPoll)
	s.check("a thousand partitions", s.thousand)
}

func (s *suite) client(options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(s.servers)}, options...)...)
}

// consumer reads partitions of a topic from an offset on.
func (s *suite) consumer(topic string, partitions int, from kgo.Offset, more ...kgo.Opt) (*kgo.Client, error) {
	assigned := make(map[int32]kgo.Offset, partitions)
	for number := range partitions {
		assigned[int32(number)] = from
	}
	consumed := kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: assigned})
	return s.client(append([]kgo.Opt{consumed}, more...)...)
}

func take(ctx context.Context, client *kgo.Client, count int) ([]*kgo.Record, error) {
	var found []*kgo.Record
	for len(found) < count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return found, fmt.Errorf("%d of %d records: %w", len(found), count, err)
		}
		if errors := fetches.Errors(); len(errors) > 0 {
			return found, fmt.Errorf("%d of %d records: %w", len(found), count, errors[0].Err)
		}
		found = append(found, fetches.Records()...)
	}
	return found, nil
}

func (s *suite) roundTrip(ctx context.Context, options ...kgo.Opt) error {
	topic, err := s.create(ctx, 1, nil)
	if err != nil {
		return err
	}
	producer, err := s.client(append(options, kgo.ProducerLinger(20*time.Millisecond))...)
	if err != nil {
		return err
	}
	defer producer.Close()
	when := time.Now().Add(-time.Minute).Truncate(time.Millisecond)
	headers := []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "nothing", Value: nil}}
	var sent []*kgo.Record
	for _, pair := range [][2][]byte{{[]byte("k"), []byte("v")}, {nil, []byte("v")}, {[]byte("k"), nil}, {{}, {}}} {
		record := &kgo.Record{Topic: topic, Key: pair[0], Value: pair[1], Headers: headers, Timestamp: when}
		sent = append(sent, record)
	}
	if err := producer.ProduceSync(ctx, sent...).FirstErr(); err != nil {
		return err
	}
	consumer, err := s.consumer(topic, 1, kgo.NewOffset().AtStart())
	if err != nil {
		return err
	}
	defer consumer.Close()
	found, err := take(ctx, consumer, len(sent))
	if err != nil {
		return err
	}
	for number, record := range found {
		if err := same(sent[number], record, int64(number)); err != nil {
			return err
		}
	}
	return nil
}

func same(sent, found *kgo.Record, offset int64) error {
	return first(
		equal("offset", offset, found.Offset),
		equal("key", true, bytes.Equal(sent.Key, found.Key) && (sent.Key == nil) == (found.Key == nil)),
		equal("value", true, bytes.Equal(sent.Value, found.Value) && (sent.Value == nil) == (found.Value == nil)),
		equal("timestamp", sent.Timestamp.UnixMilli(), found.Timestamp.UnixMilli()),
		equal("headers", 2, len(found.Headers)),
		equal("null header", true, found.Headers[1].Value == nil),
	)
}

func (s *suite) stream(ctx context.Context) error {
	topic, err := s.create(ctx, 3, nil)
	if err != nil {
		return err
	}
	producer, err := s.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchMaxBytes(2_000))
	if err != nil {
		return err
	}
	defer producer.Close()
	const each = 3_000
	for number := range 3 * each {
		value := fmt.Append(nil, number)
		producer.Produce(ctx, &kgo.Record{Topic: topic, Partition: int32(number % 3), Value: value}, nil)
	}
	if err := producer.Flush(ctx); err != nil {
		return err
	}
	consumer, err := s.consumer(topic, 3, kgo.NewOffset().AtStart())
	if err != nil {
		return err
	}
	defer consumer.Close()
	found, err := take(ctx, consumer, 3*each)
	if err != nil {
		return err
	}
	next := []int{0, 1, 2}
	for _, record := range found {
		if err := equal("value", fmt.Sprint(next[record.Partition]), string(record.Value)); err != nil {
			return err
		}
		next[record.Partition] += 3
	}
	return nil
}

func (s *suite) large(ctx context.Context) error {
	topic, err := s.create(ctx, 1, map[string]string{"max.message.bytes": "4000000"})
	if err != nil {
		return err
	}
	value := make([]byte, 3_500_000)
	if _, err := rand.Read(value); err != nil {
		return err
	}
	client, err := s.consumer(topic, 1, kgo.NewOffset().AtStart(), kgo.ProducerBatchMaxBytes(4_000_000),
		kgo.FetchMaxBytes(1_000), kgo.FetchMaxPartitionBytes(1_000))
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: value}).FirstErr(); err != nil {
		return err
	}
	found, err := take(ctx, client, 1)
	if err != nil {
		return err
	}
	return equal("the message is whole", true, bytes.Equal(value, found[0].Value))
}

func (s *suite) tooLarge(ctx context.Context) error {
	topic, err := s.create(ctx, 1, nil)
	if err != nil {
		return err
	}
	client, err := s.client(kgo.ProducerBatchMaxBytes(8_000_000), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return err
	}
	defer client.Close()
	err = client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: make([]byte, 2_000_000)}).FirstErr()
	return refused(kerr.MessageTooLarge, err)
}

func (s *suite) nullKey(ctx context.Context) error {
	topic, err := s.create(ctx, 1, map[string]string{"cleanup.policy": "compact"})
	if err != nil {
		return err
	}
	client, err := s.client()
	if err != nil {
		return err
	}
	defer client.Close()
	return refused(kerr.InvalidRecord, client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("v")}).FirstErr())
}

func (s *suite) outOfRange(ctx context.Context) error {
	topic, err := s.create(ctx, 1, nil)
	if err != nil {
		return err
	}
	if err := s.send(ctx, topic, 3, time.Now()); err != nil {
		return err
	}
	client, err := s.consumer(topic, 1, kgo.NewOffset().At(100), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer client.Close()
	found, err := take(ctx, client, 3)
	if err != nil {
		return err
	}
	return equal("first offset", 0, found[0].Offset)
}

func (s *suite) longPoll(ctx context.Context) error {
	topic, err := s.create(ctx, 1, nil)
	if err != nil {
		return err
	}
	client, err := s.consumer(topic, 1, kgo.NewOffset().AtStart(), kgo.FetchMaxWait(20*time.Second))
	if err != nil {
		return err
	}
	defer client.Close()
	for number := range 20 {
		started := time.Now()
		if err := client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("v")}).FirstErr(); err != nil {
			return err
		}
		found, err := take(ctx, client, 1)
		if err != nil {
			return err
		}
		atOnce := equal("a waiting consumer gets the record at once", true, time.Since(started) < 5*time.Second)
		if err := first(equal("offset", int64(number), found[0].Offset), atOnce); err != nil {
			return err
		}
	}
	return nil
}

func (s *suite) thousand(ctx context.Context) error {
	const partitions = 1_000
	topic, err := s.create(ctx, partitions, nil)
	if err != nil {
		return err
	}
	client, err := s.consumer(topic, partitions, kgo.NewOffset().AtStart(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(50*time.Millisecond))
	if err != nil {
		return err
	}
	defer client.Close()
	for number := range partitions {
		client.Produce(ctx, &kgo.Record{Topic: topic, Partition: int32(number), Value: []byte("v")}, nil)
	}
	if err := client.Flush(ctx); err != nil {
		return err
	}
	found, err := take(ctx, client, partitions)
	if err != nil {
		return err
	}
	seen := make(map[int32]bool)
	for _, record := range found {
		seen[record.Partition] = true
	}
	return equal("partitions seen", partitions, len(seen))
}
