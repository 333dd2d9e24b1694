// Asks Argo CD's own code what it makes of an Application or ApplicationSet.
//
// Reads a question a line from standard input, in JSON, and answers each with a line: the Applications, and the objects
// that each deploys.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/argoproj/argo-cd/v3/applicationset/controllers/template"
	"github.com/argoproj/argo-cd/v3/applicationset/generators"
	"github.com/argoproj/argo-cd/v3/applicationset/utils"
	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/reposerver/apiclient"
	"github.com/argoproj/argo-cd/v3/reposerver/cache"
	"github.com/argoproj/argo-cd/v3/reposerver/metrics"
	"github.com/argoproj/argo-cd/v3/reposerver/repository"
	"github.com/argoproj/argo-cd/v3/util/argo"
	cacheutil "github.com/argoproj/argo-cd/v3/util/cache"
	"github.com/argoproj/argo-cd/v3/util/git"
)

// question is an object, and the address of a Git repository on this machine for each address in it.
type question struct {
	Object   json.RawMessage   `json:"object"`
	Places   map[string]string `json:"places"`
	Globbing bool              `json:"globbing"`
}

// application is one that Argo CD makes, with the objects that it deploys, and why it does not deploy others.
type application struct {
	Object  v1alpha1.Application `json:"object"`
	Objects []map[string]any     `json:"objects"`
	Errors  []string             `json:"errors"`
}

type answer struct {
	Applications []application `json:"applications"`
	Error        string        `json:"error"`
}

func main() {
	logrus.SetOutput(io.Discard)
	root, err := os.MkdirTemp("", "argo-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(root)
	// What verifies signatures in Argo CD's image (hack/git-verify-wrapper.sh); nothing is signed here.
	if err := os.WriteFile(filepath.Join(root, "git-verify-wrapper.sh"), []byte("#!/bin/sh\n"), 0o700); err != nil {
		log.Fatal(err)
	}
	if err := os.Setenv("PATH", root+":"+os.Getenv("PATH")); err != nil {
		log.Fatal(err)
	}
	known := cache.NewCache(cacheutil.NewCache(cacheutil.NewInMemoryCache(time.Hour)), time.Hour, time.Hour, time.Minute)
	constants := repository.RepoServerInitConstants{MaxCombinedDirectoryManifestsSize: resource.MustParse("10M")}
	service := repository.NewService(metrics.NewMetricsServer(), known, constants, git.NoopCredsStore{}, root)
	in, out := json.NewDecoder(bufio.NewReader(os.Stdin)), json.NewEncoder(os.Stdout)
	for {
		var asked question
		if err := in.Decode(&asked); err == io.EOF {
			return
		} else if err != nil {
			log.Fatal(err)
		}
		if err := out.Encode(made(server{service, asked}, asked.Object)); err != nil {
			log.Fatal(err)
		}
	}
}

func made(own server, object []byte) answer {
	var found answer
	var kind struct{ Kind string }
	if err := json.Unmarshal(object, &kind); err != nil {
		log.Fatal(err)
	}
	var some []v1alpha1.Application
	if kind.Kind == "ApplicationSet" {
		var set v1alpha1.ApplicationSet
		if err := json.Unmarshal(object, &set); err != nil {
			return answer{Error: err.Error()}
		}
		cluster, known := project(set), own.generators(set.Namespace)
		entry := logrus.NewEntry(logrus.StandardLogger())
		made, err := generated(entry, set, known, cluster)
		if some = made; err != nil {
			found.Error = err.Error()
		}
	} else {
		var one v1alpha1.Application
		if err := json.Unmarshal(object, &one); err != nil {
			return answer{Error: err.Error()}
		}
		some = append(some, one)
	}
	for _, each := range some {
		found.Applications = append(found.Applications, own.deployed(each))
	}
	return found
}

// server answers as the repo server does.
type server struct {
	*repository.Service
	asked question
}

// generated returns the Applications of a set. Argo CD panics if a matrix has `values` twice for templates of Go.
func generated(entry *logrus.Entry, set v1alpha1.ApplicationSet, known map[string]generators.Generator,
	cluster client.Client) (some []v1alpha1.Application, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("panic: %v", reason)
		}
	}()
	some, _, err = template.GenerateApplications(entry, set, known, &utils.Render{}, cluster)
	return some, err
}

// project returns a cluster with the project of a set.
func project(set v1alpha1.ApplicationSet) client.Client {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		log.Fatal(err)
	}
	one := &v1alpha1.AppProject{}
	one.Name, one.Namespace = set.Spec.Template.Spec.Project, set.Namespace
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(one).Build()
}

// generators returns those that read neither a cluster nor a service.
func (own server) generators(namespace string) map[string]generators.Generator {
	found := map[string]generators.Generator{
		"List": generators.NewListGenerator(), "Git": generators.NewGitGenerator(own, namespace),
	}
	for range 2 { // those of a matrix may be nested once, as in generators.GetGenerators
		inner := maps.Clone(found)
		found["Matrix"], found["Merge"] = generators.NewMatrixGenerator(inner), generators.NewMergeGenerator(inner)
	}
	return found
}

func (own server) repository(_ context.Context, url, _ string) (*v1alpha1.Repository, error) {
	place, there := own.asked.Places[url]
	if !there {
		return nil, fmt.Errorf("no repository %s", url)
	}
	return &v1alpha1.Repository{Repo: place}, nil
}

// deployed returns what an Application deploys, as controller/state.go asks for it (GetRepoObjs).
func (own server) deployed(one v1alpha1.Application) application {
	found, ctx := application{Object: one}, context.Background()
	spec := argo.NormalizeApplicationSpec(&one.Spec)
	sources := spec.GetSources()
	references, err := argo.GetRefSources(ctx, sources, spec.Project, own.repository, nil)
	if err != nil {
		found.Errors = append(found.Errors, err.Error())
		return found
	}
	for _, source := range sources {
		err := own.manifests(ctx, &found, one, source, references)
		if err != nil { // then Argo CD deploys none of them
			found.Objects, found.Errors = nil, append(found.Errors, err.Error())
			return found
		}
	}
	return found
}

func (own server) manifests(ctx context.Context, found *application, one v1alpha1.Application,
	source v1alpha1.ApplicationSource, references v1alpha1.RefTargetRevisionMapping) error {
	repo, err := own.repository(ctx, source.RepoURL, "")
	if err != nil {
		return err
	}
	source.RepoURL = repo.Repo
	namespace := one.Spec.Destination.Namespace
	response, err := own.GenerateManifest(ctx, &apiclient.ManifestRequest{
		Repo: repo, Revision: source.TargetRevision, NoCache: true, AppName: one.InstanceName("argocd"),
		AppLabelKey: "app.kubernetes.io/instance", Namespace: namespace, ApplicationSource: &source,
		KustomizeOptions: &v1alpha1.KustomizeOptions{}, KubeVersion: "1.36.0", HasMultipleSources: one.Spec.HasMultipleSources(),
		RefSources: references, ProjectName: "default", ProjectSourceRepos: []string{"*"},
		TrackingMethod: string(v1alpha1.TrackingMethodAnnotation),
	})
	if err != nil {
		return err
	}
	for _, text := range response.Manifests {
		object := map[string]any{}
		if err := json.Unmarshal([]byte(text), &object); err != nil {
			return err
		}
		found.Objects = append(found.Objects, object)
	}
	return nil
}

// GetFiles returns the files that a pattern of a generator names.
func (own server) GetFiles(ctx context.Context, url, revision, _, pattern string, _ bool,
	_ *v1alpha1.SourceIntegrity) (map[string][]byte, error) {
	repo, err := own.repository(ctx, url, "")
	if err != nil {
		return nil, err
	}
	response, err := own.GetGitFiles(ctx, &apiclient.GitFilesRequest{
		Repo: repo, Revision: revision, Path: pattern, NewGitFileGlobbingEnabled: own.asked.Globbing,
	})
	return response.GetMap(), err
}

// GetDirectories returns the folders of a repository.
func (own server) GetDirectories(ctx context.Context, url, revision, _ string, _ bool,
	_ *v1alpha1.SourceIntegrity) ([]string, error) {
	repo, err := own.repository(ctx, url, "")
	if err != nil {
		return nil, err
	}
	response, err := own.GetGitDirectories(ctx, &apiclient.GitDirectoriesRequest{Repo: repo, Revision: revision})
	return response.GetPaths(), err
}

// GetOciFiles finds none.
func (own server) GetOciFiles(context.Context, string, string, string, string, bool) (map[string][]byte, error) {
	return nil, nil
}

// GetOciDirectories finds none.
func (own server) GetOciDirectories(context.Context, string, string, string, bool) ([]string, error) {
	return nil, nil
}
