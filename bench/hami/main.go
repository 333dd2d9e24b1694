// HAMi's webhook as its scheduler serves it, with the devices that it knows by default and no cluster.
package main

import (
	"flag"
	"log"
	"net/http"

	"github.com/Project-HAMi/HAMi/pkg/scheduler/config"
	"github.com/Project-HAMi/HAMi/pkg/scheduler/routes"
	"github.com/julienschmidt/httprouter"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8443", "host:port")
	cert := flag.String("tls-cert", "", "certificate, PEM")
	key := flag.String("tls-key", "", "private key, PEM")
	flag.Parse()
	config.SchedulerName = "hami-scheduler"
	config.ForceOverwriteDefaultScheduler = true
	config.InitDefaultDevices()
	router := httprouter.New()
	router.POST("/mutate", routes.WebHookRoute())
	log.Fatal(http.ListenAndServeTLS(*listen, *cert, *key, router))
}
