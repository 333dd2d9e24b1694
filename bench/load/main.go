// A load generator for admission webhooks, and for the API server in front of them: HTTPS with kept HTTP/1.1
// connections, as kube-apiserver has them, one request in flight on each. Every reply is checked. Prints one JSON object for each URL.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

type report struct {
	Requests    int     `json:"requests"`
	Failures    int     `json:"failures"`
	Failure     string  `json:"failure,omitempty"`
	Connections int64   `json:"connections"`
	RPS         float64 `json:"rps"`
	P50         float64 `json:"p50_ms"`
	P90         float64 `json:"p90_ms"`
	P99         float64 `json:"p99_ms"`
	Max         float64 `json:"max_ms"`
}

type load struct {
	client   *http.Client
	urls     []string
	body     []byte
	status   int
	wanted   [][]byte
	unwanted []byte
	number   []byte
	sent     atomic.Int64
	opened   atomic.Int64
}

// What one connection saw.
type seen struct {
	latencies [][]time.Duration // by the URLs
	failures  int
	failure   string
}

// Puts a request's own number, of as many digits, wherever the placeholder stands.
func (l *load) numbered(text []byte, number int64) []byte {
	if len(l.number) == 0 {
		return text
	}
	return bytes.ReplaceAll(text, l.number, fmt.Appendf(nil, "%0*d", len(l.number), number))
}

func (l *load) send(url string) error {
	number := l.sent.Add(1)
	request, err := http.NewRequest(http.MethodPost, url, bytes.NewReader(l.numbered(l.body, number)))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, */*")
	reply, err := l.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = reply.Body.Close() }()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		return err
	}
	if reply.StatusCode != l.status {
		return fmt.Errorf("status %d: %.300s", reply.StatusCode, body)
	}
	for _, part := range l.wanted {
		if !bytes.Contains(body, l.numbered(part, number)) {
			return fmt.Errorf("reply lacks %.40s", part)
		}
	}
	if l.unwanted != nil && bytes.Contains(body, l.unwanted) {
		return fmt.Errorf("reply has %.40s", l.unwanted)
	}
	return nil
}

// The URLs take turns on each connection, so that other work of the machine slows all of them alike.
func (s *seen) send(l *load, turn int, start time.Time) {
	at := turn % len(l.urls)
	err := l.send(l.urls[at])
	s.latencies[at] = append(s.latencies[at], time.Since(start))
	if err != nil {
		s.failures++
		s.failure = err.Error()
	}
}

// Each connection sends its next request when it has the reply to the last.
func (l *load) closed(connections int, end time.Time) []seen {
	return l.together(connections, func(s *seen) {
		for turn, start := 0, time.Now(); start.Before(end); turn, start = turn+1, time.Now() {
			s.send(l, turn, start)
		}
	})
}

// Requests start at a fixed rate whatever the server does. One that finds no free connection waits, and its
// latency counts from when it should have started.
func (l *load) open(connections int, rate float64, end time.Time) []seen {
	due := make(chan time.Time, 1<<20)
	go func() {
		defer close(due)
		gap := time.Duration(float64(time.Second) / rate)
		for next := time.Now(); next.Before(end); next = next.Add(gap) {
			time.Sleep(time.Until(next))
			due <- next
		}
	}()
	return l.together(connections, func(s *seen) {
		turn := 0
		for start := range due {
			s.send(l, turn, start)
			turn++
		}
	})
}

func (l *load) together(connections int, work func(*seen)) []seen {
	all := make([]seen, connections)
	var group sync.WaitGroup
	for i := range all {
		group.Add(1)
		go func() {
			defer group.Done()
			all[i].latencies = make([][]time.Duration, len(l.urls))
			work(&all[i])
		}()
	}
	group.Wait()
	return all
}

func summary(all []seen, at int, took time.Duration) report {
	var r report
	var latencies []time.Duration
	for i := range all {
		latencies = append(latencies, all[i].latencies[at]...)
		r.Failures += all[i].failures
		if all[i].failure != "" {
			r.Failure = all[i].failure
		}
	}
	slices.Sort(latencies)
	r.Requests = len(latencies)
	if r.Requests == 0 {
		return r
	}
	percentile := func(percent int) float64 {
		index := max(0, (len(latencies)*percent+99)/100-1)
		return float64(latencies[index]) / float64(time.Millisecond)
	}
	r.RPS = float64(r.Requests) / took.Seconds()
	r.P50, r.P90, r.P99, r.Max = percentile(50), percentile(90), percentile(99), percentile(100)
	return r
}

func main() {
	url := flag.String("url", "", "where to POST")
	other := flag.String("other", "", "where to POST every second request; one more JSON object tells of these")
	ca := flag.String("ca", "", "CA certificate, PEM")
	cert := flag.String("cert", "", "client certificate, PEM; empty for none")
	key := flag.String("key", "", "its key, PEM")
	body := flag.String("body", "", "file with the AdmissionReview, or with the Pod to create")
	expect := flag.String("expect", "", "file with what every reply must have: of a review the patch, in base64, or any "+
		"if the file is empty; of a pod the node selector, in JSON. Without it replies must have none")
	number := flag.String("number", "", "placeholder in the body and in what is expected that becomes each request's "+
		"number, with as many digits; empty for none")
	connections := flag.Int("conns", 1, "connections")
	duration := flag.Duration("duration", 3*time.Second, "how long")
	rate := flag.Float64("rate", 0, "requests a second, whatever the replies do; 0: as fast as they come")
	flag.Parse()
	l := &load{urls: []string{*url}, number: []byte(*number)}
	if *other != "" {
		l.urls = append(l.urls, *other)
	}
	err := l.prepare(*body, *expect)
	if err == nil {
		err = l.connect(*ca, *cert, *key, *connections)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	start := time.Now()
	var all []seen
	if *rate > 0 {
		all = l.open(*connections, *rate, start.Add(*duration))
	} else {
		all = l.closed(*connections, start.Add(*duration))
	}
	took := time.Since(start)
	for at := range l.urls {
		r := summary(all, at, took)
		r.Connections = l.opened.Load()
		if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
			os.Exit(2)
		}
	}
}

// What is sent, and what of the replies. A pod should have a generateName: it is created again and again.
func (l *load) prepare(body, expect string) error {
	var err error
	if l.body, err = os.ReadFile(body); err != nil {
		return err
	}
	var sent struct {
		Kind    string `json:"kind"`
		Request struct {
			UID string `json:"uid"`
		} `json:"request"`
	}
	if err := json.Unmarshal(l.body, &sent); err != nil {
		return fmt.Errorf("%s: %w", body, err)
	}
	var field, quote string
	if sent.Kind == "AdmissionReview" {
		l.status, field, quote = http.StatusOK, `"patch"`, `"`
		l.wanted = [][]byte{[]byte(`"allowed":true`), []byte(`"uid":"` + sent.Request.UID + `"`)}
	} else {
		l.status, field = http.StatusCreated, `"nodeSelector"`
	}
	if expect == "" {
		l.unwanted = []byte(field)
		return nil
	}
	value, err := os.ReadFile(expect)
	if err != nil {
		return err
	}
	wanted := field + ":" + quote
	if value = bytes.TrimSpace(value); len(value) > 0 {
		wanted += string(value) + quote
	}
	l.wanted = append(l.wanted, []byte(wanted))
	return nil
}

func (l *load) connect(ca, cert, key string, connections int) error {
	pem, err := os.ReadFile(ca)
	if err != nil {
		return err
	}
	settings := &tls.Config{RootCAs: x509.NewCertPool(), NextProtos: []string{"http/1.1"}}
	if !settings.RootCAs.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s: no certificate", ca)
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return err
		}
		settings.Certificates = []tls.Certificate{pair}
	}
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second}
	l.client = &http.Client{
		Timeout: 10 * time.Second,
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				l.opened.Add(1)
				return dialer.DialContext(ctx, network, address)
			},
			TLSClientConfig:     settings,
			TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{},
			TLSHandshakeTimeout: 10 * time.Second,
			MaxConnsPerHost:     connections,
			MaxIdleConnsPerHost: connections,
			DisableCompression:  true, // replies this small are not compressed by any of the servers
		},
	}
	return nil
}
