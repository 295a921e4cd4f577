package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// secured connects with every protocol and mechanism. Each line of the file is a case; Secured.java has the fields.
func secured(file string) int {
	content, err := os.ReadFile(file)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	s := &suite{}
	for _, line := range strings.Split(strings.TrimRight(string(content), "\n"), "\n") {
		fields := strings.Split(line, "\t")
		s.check(fields[0], func(ctx context.Context) error { return securedCase(ctx, fields) })
	}
	return s.finish()
}

func securedCase(ctx context.Context, fields []string) error {
	options := []kgo.Opt{kgo.SeedBrokers(fields[1]), kgo.DefaultProduceTopic("secured")}
	if strings.HasSuffix(fields[2], "SSL") {
		config, err := tlsConfig(fields[6], fields[7])
		if err != nil {
			return err
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	if fields[3] != "" {
		options = append(options, kgo.SASL(mechanism(fields[3], fields[4], fields[5])))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	if fields[8] == "accepted" {
		return client.ProduceSync(ctx, kgo.StringRecord(fields[0])).FirstErr()
	}
	short, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	err = client.Ping(short)
	if err == nil {
		return errors.New("it was not refused")
	}
	reason := strings.ToLower(err.Error())
	if fields[3] != "" && !strings.Contains(reason, "sasl") && !strings.Contains(reason, "oauth") {
		return fmt.Errorf("it was refused for another reason: %w", err)
	}
	return nil
}

func tlsConfig(authority, client string) (*tls.Config, error) {
	trusted, err := os.ReadFile(authority)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(trusted)
	config := &tls.Config{RootCAs: pool}
	if client != "" {
		own, err := tls.LoadX509KeyPair(client, client)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config, nil
}

func mechanism(name, user, secret string) sasl.Mechanism {
	switch name {
	case "PLAIN":
		return plain.Auth{User: user, Pass: secret}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: secret}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: secret}.AsSha512Mechanism()
	}
	return oauth.Auth{Token: secret}.AsMechanism()
}
