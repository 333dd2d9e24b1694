// The EKS pod-identity webhook's own handler, with one service account in its cache instead of a cluster's.
package main

import (
	"flag"
	"log"
	"math/rand"
	"net/http"

	"github.com/aws/amazon-eks-pod-identity-webhook/pkg/cache"
	"github.com/aws/amazon-eks-pod-identity-webhook/pkg/containercredentials"
	"github.com/aws/amazon-eks-pod-identity-webhook/pkg/handler"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8443", "host:port")
	cert := flag.String("tls-cert", "", "certificate, PEM")
	key := flag.String("tls-key", "", "private key, PEM")
	flag.Parse()
	accounts := cache.NewFakeServiceAccountCache()
	accounts.Add("default", "vision", "arn:aws:iam::111122223333:role/vision", "sts.amazonaws.com", true, 86400)
	modifier := handler.NewModifier(
		rand.New(rand.NewSource(1)),
		handler.WithServiceAccountCache(accounts),
		handler.WithContainerCredentialsConfig(&containercredentials.FakeConfig{}),
		handler.WithMountPath("/var/run/secrets/eks.amazonaws.com/serviceaccount"),
		handler.WithRegion("eu-central-1"),
	)
	mux := http.NewServeMux()
	mux.Handle("/mutate", handler.Apply(http.HandlerFunc(modifier.Handle), handler.InstrumentRoute(), handler.Logging()))
	log.Fatal(http.ListenAndServeTLS(*listen, *cert, *key, mux))
}
