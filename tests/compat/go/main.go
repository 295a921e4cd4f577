// Checks a broker with franz-go. Argument: host:port. Prints a line for each check; the exit code is 1 if one failed.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A suite runs checks against one cluster and makes topics for them.
type suite struct {
	servers string
	admin   *kadm.Client
	topics  []string
	passed  int
	failed  []string
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "--cases" {
		os.Exit(secured(os.Args[2]))
	}
	if len(os.Args) == 3 {
		os.Exit((&failover{servers: os.Args[1], topic: os.Args[2]}).run())
	}
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: compat HOST:PORT [TOPIC]")
		os.Exit(2)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(os.Args[1]))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	s := &suite{servers: os.Args[1], admin: kadm.NewClient(client)}
	s.adminChecks()
	s.recordChecks()
	os.Exit(s.finish())
}

func (s *suite) check(name string, body func(ctx context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := body(ctx); err != nil {
		s.failed = append(s.failed, name)
		fmt.Printf("FAIL %s: %v\n", name, err)
		return
	}
	s.passed++
	fmt.Println("PASS", name)
}

func (s *suite) finish() int {
	if s.admin != nil {
		if _, err := s.admin.DeleteTopics(context.Background(), s.topics...); err != nil {
			fmt.Println("topics not deleted:", err)
		}
		s.admin.Close()
	}
	fmt.Printf("%d passed, %d failed %v\n", s.passed, len(s.failed), s.failed)
	if len(s.failed) > 0 {
		return 1
	}
	return 0
}

// create makes a topic with a name of its own and waits until its partitions have leaders.
func (s *suite) create(ctx context.Context, partitions int32, configs map[string]string) (string, error) {
	name := fmt.Sprintf("go-%d-%d", time.Now().UnixNano(), len(s.topics))
	values := make(map[string]*string, len(configs))
	for key, value := range configs {
		values[key] = kadm.StringPtr(value)
	}
	if _, err := s.admin.CreateTopic(ctx, partitions, 1, values, name); err != nil {
		return "", fmt.Errorf("create %s: %w", name, err)
	}
	s.topics = append(s.topics, name)
	for {
		found, err := s.admin.ListEndOffsets(ctx, name)
		if err == nil && found.Error() == nil && len(found[name]) == int(partitions) {
			return name, nil
		}
		select {
		case <-ctx.Done():
			return "", fmt.Errorf("no leaders for %s: %v %v", name, err, found.Error())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func equal[T comparable](what string, expected, found T) error {
	if expected != found {
		return fmt.Errorf("%s: expected %v, found %v", what, expected, found)
	}
	return nil
}

// first gives the first of the errors that is one.
func first(errors ...error) error {
	for _, err := range errors {
		if err != nil {
			return err
		}
	}
	return nil
}
