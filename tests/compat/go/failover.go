package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	failoverPartitions  = 3
	failoverOutstanding = 200
	failoverPatience    = time.Minute
)

// failover writes and reads while brokers die, and prints what happens: SENT, ACK and READ with partition, offset and
// value, and FAIL with a reason. The caller judges. Standard input ends the writing.
type failover struct {
	servers, topic string
	out            sync.Mutex
	sent, answered atomic.Int64
	done           atomic.Bool
}

func (f *failover) run() int {
	var reading sync.WaitGroup
	reading.Add(1)
	go func() {
		defer reading.Done()
		f.read()
	}()
	f.write()
	f.done.Store(true)
	reading.Wait()
	return 0
}

func (f *failover) write() {
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(f.servers, ",")...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		f.say("FAIL", 0, -1, err.Error())
		return
	}
	defer client.Close()
	var stop atomic.Bool
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
		stop.Store(true)
	}()
	ctx := context.Background()
	for !stop.Load() {
		number := f.sent.Load()
		value := fmt.Sprintf("go-%d", number)
		partition := int32(number % failoverPartitions)
		f.say("SENT", partition, -1, value)
		f.sent.Add(1)
		record := &kgo.Record{Topic: f.topic, Partition: partition, Value: []byte(value)}
		client.Produce(ctx, record, func(written *kgo.Record, err error) {
			f.answered.Add(1)
			if err != nil {
				f.say("FAIL", partition, -1, value+" "+err.Error())
			} else {
				f.say("ACK", written.Partition, written.Offset, value)
			}
		})
		for f.sent.Load()-f.answered.Load() > failoverOutstanding {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Millisecond)
	}
	if err := client.Flush(ctx); err != nil {
		f.say("FAIL", 0, -1, err.Error())
	}
}

func (f *failover) read() {
	offsets := make(map[int32]kgo.Offset, failoverPartitions)
	for number := range int32(failoverPartitions) {
		offsets[number] = kgo.NewOffset().At(0)
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(f.servers, ",")...),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{f.topic: offsets}),
	)
	if err != nil {
		f.say("FAIL", 0, -1, err.Error())
		return
	}
	defer client.Close()
	var count int64
	var deadline time.Time
	for !f.done.Load() || count < f.sent.Load() {
		if f.done.Load() && deadline.IsZero() {
			deadline = time.Now().Add(failoverPatience)
		}
		if !deadline.IsZero() && time.Now().After(deadline) {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		client.PollFetches(ctx).EachRecord(func(record *kgo.Record) {
			f.say("READ", record.Partition, record.Offset, string(record.Value))
			count++
		})
		cancel()
	}
}

func (f *failover) say(what string, partition int32, offset int64, text string) {
	f.out.Lock()
	defer f.out.Unlock()
	fmt.Println(what, partition, offset, text)
}
