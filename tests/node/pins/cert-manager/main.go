// The three programs of cert-manager, chosen by the one argument that is no flag. Their own main packages are modules
// whose names are not their places, which Go cannot fetch. Of the issuers those are here that sign without asking
// anybody. The controller and the cainjector keep to the defaults of their flags, but that they elect no leader: there is
// one of each.
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	core "k8s.io/api/core/v1"
	apiext "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubernetes "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	apireg "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	server "github.com/cert-manager/cert-manager/internal/webhook"
	certmanager "github.com/cert-manager/cert-manager/pkg/client/clientset/versioned/scheme"
	"github.com/cert-manager/cert-manager/pkg/controller"
	injector "github.com/cert-manager/cert-manager/pkg/controller/cainjector"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	_ "github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	_ "github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned"
	"github.com/cert-manager/cert-manager/pkg/util"
	"github.com/cert-manager/cert-manager/pkg/webhook/options"
)

func main() {
	ctrl.SetLogger(klog.Background())
	programs := map[string]func(context.Context) error{
		"controller": control, "cainjector": inject, "webhook": serve,
	}
	chosen := slices.IndexFunc(os.Args[1:], func(each string) bool { return !strings.HasPrefix(each, "-") })
	if err := programs[os.Args[1+chosen]](ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func control(ctx context.Context) error {
	given := controller.ContextOptions{
		IssuerOptions: controller.IssuerOptions{ClusterResourceNamespace: os.Getenv("POD_NAMESPACE")},
		CertificateOptions: controller.CertificateOptions{
			CertificateRequestMinimumBackoffDuration: time.Hour,
			CertificateRequestMaximumBackoffDuration: 32 * time.Hour,
		},
		SchedulerOptions: controller.SchedulerOptions{MaxConcurrentChallenges: 60},
	}
	made, err := controller.NewContextFactory(ctx, given)
	if err != nil {
		return err
	}
	shared, err := made.Build()
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	for name, construct := range controller.Known() {
		built, err := construct(made)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		running.Go(func() {
			if err := built.Run(5, ctx); err != nil {
				klog.ErrorS(err, "controller ended", "name", name)
				os.Exit(1)
			}
		})
	}
	shared.SharedInformerFactory.Start(ctx.Done())
	shared.KubeSharedInformerFactory.Start(ctx.Done())
	shared.HTTP01ResourceMetadataInformersFactory.Start(ctx.Done())
	running.Wait()
	return nil
}

func inject(ctx context.Context) error {
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		kubernetes.AddToScheme, certmanager.AddToScheme, apiext.AddToScheme, apireg.AddToScheme,
	} {
		if err := add(known); err != nil {
			return err
		}
	}
	// The cainjector applies under the first word of its user agent, and without one the API server refuses it.
	manager, err := ctrl.NewManager(util.RestConfigWithUserAgent(ctrl.GetConfigOrDie(), "cainjector"), ctrl.Options{
		Scheme:  known,
		Cache:   cache.Options{ReaderFailOnMissingInformer: true},
		Client:  client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&core.Secret{}}}},
		Metrics: metrics.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	err = injector.RegisterAllInjectors(ctx, manager, injector.SetupOptions{
		EnableCertificatesDataSource: true,
		EnabledReconcilersFor: map[string]bool{
			injector.MutatingWebhookConfigurationName:   true,
			injector.ValidatingWebhookConfigurationName: true,
			injector.APIServiceName:                     true,
			injector.CustomResourceDefinitionName:       true,
		},
	})
	if err != nil {
		return err
	}
	return manager.Start(ctx)
}

func serve(ctx context.Context) error {
	given, err := options.NewWebhookConfiguration()
	if err != nil {
		return err
	}
	flags := pflag.NewFlagSet(os.Args[0], pflag.ContinueOnError)
	options.AddConfigFlags(flags, given)
	if err := flags.Parse(os.Args[1:]); err != nil {
		return err
	}
	made, err := server.NewCertManagerWebhookServer(klog.Background(), *given)
	if err != nil {
		return err
	}
	return made.Run(ctx)
}
