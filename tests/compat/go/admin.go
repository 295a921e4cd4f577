package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func (s *suite) adminChecks() {
	s.check("metadata and api versions", s.cluster)
	s.check("create, list and delete topics", s.lifecycle)
	s.check("bad topics are refused", s.refusals)
	s.check("partitions are added", s.partitions)
	s.check("offsets: start, end, by time, maximum timestamp, leader epoch", s.offsets)
	s.check("configs are described and altered", s.configs)
	s.check("log directories", s.logDirs)
	s.check("producers", s.producers)
	s.check("records are deleted", s.deleteRecords)
}

func (s *suite) cluster(ctx context.Context) error {
	metadata, err := s.admin.BrokerMetadata(ctx)
	if err != nil {
		return err
	}
	versions, err := s.admin.ApiVersions(ctx)
	if err != nil {
		return err
	}
	for _, broker := range versions {
		if broker.Err != nil {
			return broker.Err
		}
	}
	return first(
		equal("nodes", 1, len(metadata.Brokers)),
		equal("the controller is one of them", metadata.Controller, metadata.Brokers[0].NodeID),
		equal("there is a cluster id", true, metadata.Cluster != ""),
	)
}

func (s *suite) lifecycle(ctx context.Context) error {
	name, err := s.create(ctx, 3, map[string]string{"retention.ms": "1000000"})
	if err != nil {
		return err
	}
	topics, err := s.admin.ListTopics(ctx, name)
	if err != nil {
		return err
	}
	if err := equal("partitions", 3, len(topics[name].Partitions)); err != nil {
		return err
	}
	if _, err := s.admin.DeleteTopic(ctx, name); err != nil {
		return err
	}
	_, err = s.admin.DeleteTopic(ctx, name)
	return refused(kerr.UnknownTopicOrPartition, err)
}

func refused(expected *kerr.Error, err error) error {
	if !errors.Is(err, expected) {
		return fmt.Errorf("expected %v, found %v", expected, err)
	}
	return nil
}

func (s *suite) refusals(ctx context.Context) error {
	name, err := s.create(ctx, 1, nil)
	if err != nil {
		return err
	}
	_, exists := s.admin.CreateTopic(ctx, 1, 1, nil, name)
	_, badName := s.admin.CreateTopic(ctx, 1, 1, nil, "no good")
	_, badReplicas := s.admin.CreateTopic(ctx, 1, 5, nil, "go-bad")
	_, badPartitions := s.admin.CreateTopic(ctx, 0, 1, nil, "go-bad")
	_, badConfig := s.admin.CreateTopic(ctx, 1, 1, map[string]*string{"nothing": kadm.StringPtr("1")}, "go-bad")
	return first(
		refused(kerr.TopicAlreadyExists, exists),
		refused(kerr.InvalidTopicException, badName),
		refused(kerr.InvalidReplicationFactor, badReplicas),
		refused(kerr.InvalidPartitions, badPartitions),
		refused(kerr.InvalidConfig, badConfig),
	)
}

func (s *suite) partitions(ctx context.Context) error {
	name, err := s.create(ctx, 1, nil)
	if err != nil {
		return err
	}
	grown, err := s.admin.UpdatePartitions(ctx, 4, name)
	if err := first(err, grown.Error()); err != nil {
		return err
	}
	fewer, err := s.admin.UpdatePartitions(ctx, 2, name)
	if err == nil {
		err = fewer.Error()
	}
	return refused(kerr.InvalidPartitions, err)
}

func (s *suite) send(ctx context.Context, topic string, count int, start time.Time) error {
	client, err := s.client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer client.Close()
	for number := range count {
		record := &kgo.Record{Topic: topic, Value: fmt.Append(nil, number)}
		record.Timestamp = start.Add(time.Duration(number) * time.Second)
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}

func (s *suite) offsets(ctx context.Context) error {
	name, err := s.create(ctx, 1, nil)
	if err != nil {
		return err
	}
	start := time.Now().Add(-time.Hour).Truncate(time.Second)
	if err := s.send(ctx, name, 5, start); err != nil {
		return err
	}
	lowest, err1 := s.admin.ListStartOffsets(ctx, name)
	end, err2 := s.admin.ListEndOffsets(ctx, name)
	newest, err3 := s.admin.ListMaxTimestampOffsets(ctx, name)
	after, err4 := s.admin.ListOffsetsAfterMilli(ctx, start.Add(1500*time.Millisecond).UnixMilli(), name)
	if err := first(err1, err2, err3, err4); err != nil {
		return err
	}
	return first(
		equal("start", 0, lowest[name][0].Offset),
		equal("end", 5, end[name][0].Offset),
		equal("maximum timestamp", 4, newest[name][0].Offset),
		equal("by time", 2, after[name][0].Offset),
		s.epochEnd(ctx, name, end[name][0].LeaderEpoch),
	)
}

func (s *suite) epochEnd(ctx context.Context, topic string, epoch int32) error {
	request := kadm.OffsetForLeaderEpochRequest{}
	request.Add(topic, 0, epoch)
	found, err := s.admin.OffsetForLeaderEpoch(ctx, request)
	if err != nil {
		return err
	}
	return first(found[topic][0].Err, equal("end of the leader epoch", 5, found[topic][0].EndOffset))
}

func (s *suite) configs(ctx context.Context) error {
	name, err := s.create(ctx, 1, nil)
	if err != nil {
		return err
	}
	changes := []kadm.AlterConfig{
		{Op: kadm.SetConfig, Name: "retention.ms", Value: kadm.StringPtr("123456")},
		{Op: kadm.AppendConfig, Name: "cleanup.policy", Value: kadm.StringPtr("compact")},
	}
	altered, err := s.admin.AlterTopicConfigs(ctx, changes, name)
	if err != nil {
		return err
	}
	if err := altered[0].Err; err != nil {
		return err
	}
	bad := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: kadm.StringPtr("long")}}
	notAltered, err := s.admin.AlterTopicConfigs(ctx, bad, name)
	if err != nil {
		return err
	}
	found, err := s.admin.DescribeTopicConfigs(ctx, name)
	if err != nil {
		return err
	}
	values := make(map[string]string)
	for _, config := range found[0].Configs {
		values[config.Key] = config.MaybeValue()
	}
	return first(
		refused(kerr.InvalidConfig, notAltered[0].Err),
		equal("retention.ms", "123456", values["retention.ms"]),
		equal("cleanup.policy", "delete,compact", values["cleanup.policy"]),
		equal("max.message.bytes", "1048588", values["max.message.bytes"]),
	)
}

func (s *suite) logDirs(ctx context.Context) error {
	name, err := s.create(ctx, 1, nil)
	if err != nil {
		return err
	}
	if err := s.send(ctx, name, 3, time.Now()); err != nil {
		return err
	}
	set := make(kadm.TopicsSet)
	set.Add(name, 0)
	found, err := s.admin.DescribeAllLogDirs(ctx, set)
	if err != nil {
		return err
	}
	var size int64
	for _, directories := range found {
		size += directories.Size()
	}
	return equal("the size of the partition is told", true, size > 100)
}

func (s *suite) producers(ctx context.Context) error {
	name, err := s.create(ctx, 1, nil)
	if err != nil {
		return err
	}
	if err := s.send(ctx, name, 3, time.Now()); err != nil {
		return err
	}
	set := make(kadm.TopicsSet)
	set.Add(name, 0)
	found, err := s.admin.DescribeProducers(ctx, set)
	if err != nil {
		return err
	}
	partition := found[name].Partitions[0]
	if err := first(partition.Err, equal("producers", 1, len(partition.ActiveProducers))); err != nil {
		return err
	}
	for _, producer := range partition.ActiveProducers {
		return equal("last sequence", 2, producer.LastSequence)
	}
	return nil
}

func (s *suite) deleteRecords(ctx context.Context) error {
	name, err := s.create(ctx, 1, nil)
	if err != nil {
		return err
	}
	if err := s.send(ctx, name, 5, time.Now()); err != nil {
		return err
	}
	before := make(kadm.Offsets)
	before.AddOffset(name, 0, 3, -1)
	deleted, err := s.admin.DeleteRecords(ctx, before)
	if err := first(err, deleted.Error()); err != nil {
		return err
	}
	lowest, err := s.admin.ListStartOffsets(ctx, name)
	if err != nil {
		return err
	}
	beyond := make(kadm.Offsets)
	beyond.AddOffset(name, 0, 9, -1)
	notDeleted, err := s.admin.DeleteRecords(ctx, beyond)
	if err == nil {
		err = notDeleted.Error()
	}
	return first(equal("log start offset", 3, lowest[name][0].Offset), refused(kerr.OffsetOutOfRange, err))
}
