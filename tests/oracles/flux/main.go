// Asks Flux's own code what it would apply of a repository.
//
// Reads a question a line from standard input, in JSON, and answers each with a line: the objects that the named
// Kustomizations apply, and those that these apply in turn.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log"
	stdmaps "maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"
	generator "github.com/fluxcd/pkg/kustomize"
	"github.com/fluxcd/pkg/sourceignore"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// question is a repository by the texts of its files, the Kustomizations and ConfigMaps that a person has applied, and
// the patterns of the source.
type question struct {
	Files          map[string]string `json:"files"`
	Kustomizations []map[string]any  `json:"kustomizations"`
	Maps           []map[string]any  `json:"maps"`
	Ignore         *string           `json:"ignore"`
}

// answer has the objects by the Kustomizations that apply them, and what Flux has to say against others.
type answer struct {
	Objects map[string][]map[string]any `json:"objects"`
	Errors  map[string]string           `json:"errors"`
}

func main() {
	in, out := json.NewDecoder(bufio.NewReader(os.Stdin)), json.NewEncoder(os.Stdout)
	for {
		var asked question
		if err := in.Decode(&asked); err == io.EOF {
			return
		} else if err != nil {
			log.Fatal(err)
		}
		if err := out.Encode(applied(asked)); err != nil {
			log.Fatal(err)
		}
	}
}

// built is the outcome of one build.
type built struct {
	objects []map[string]any
	err     error
}

// rounds is how often Flux compares the cluster with the repository: each may apply what the next reads.
const rounds = 4

// applied applies everything as often as it takes until nothing changes.
func applied(asked question) answer {
	artifact, err := archived(asked)
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(artifact)
	var found answer
	var before []byte
	known := map[string]built{}
	for range rounds {
		found = once(asked, found, artifact, known)
		now, err := json.Marshal(found)
		if err != nil {
			log.Fatal(err)
		}
		if bytes.Equal(now, before) {
			break
		}
		before = now
	}
	return found
}

// once applies each Kustomization that is in the cluster after the round before, or that another one has just applied.
// A build takes long, so those of the rounds before are known by all that they are made of.
func once(asked question, before answer, artifact string, known map[string]built) answer {
	found := answer{Objects: map[string][]map[string]any{}, Errors: map[string]string{}}
	maps := cluster{}
	for _, each := range asked.Maps {
		maps.add(each)
	}
	for _, objects := range before.Objects {
		for _, each := range objects {
			maps.add(each)
		}
	}
	waiting := append([]map[string]any{}, asked.Kustomizations...)
	for len(waiting) > 0 {
		own := unstructured.Unstructured{Object: waiting[0]}
		waiting = waiting[1:]
		name := own.GetNamespace() + "/" + own.GetName()
		if _, done := found.Objects[name]; done {
			continue
		}
		of, err := json.Marshal([]any{own.Object, maps.list()})
		if err != nil {
			log.Fatal(err)
		}
		made, there := known[string(of)]
		if !there {
			made.objects, made.err = build(own, maps, artifact)
			known[string(of)] = made
		}
		found.Objects[name] = made.objects
		if made.err != nil {
			found.Errors[name] = made.err.Error()
			continue
		}
		for _, each := range made.objects {
			if schema.FromAPIVersionAndKind(fmt.Sprint(each["apiVersion"]), fmt.Sprint(each["kind"])).GroupKind() == kustomization {
				waiting = append(waiting, each)
			}
		}
	}
	return found
}

var kustomization = schema.GroupKind{Group: "kustomize.toolkit.fluxcd.io", Kind: "Kustomization"}

// archived writes the files that the artifact of a source has, as source-controller's gitrepository_controller.go and
// fluxcd/pkg artifact/storage/archive.go choose them.
func archived(asked question) (string, error) {
	checkout, err := written(asked.Files)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(checkout)
	domain := strings.Split(checkout, string(filepath.Separator))
	patterns, err := sourceignore.LoadIgnorePatterns(checkout, domain)
	if err != nil {
		return "", err
	}
	if asked.Ignore != nil {
		patterns = append(patterns, sourceignore.ReadPatterns(strings.NewReader(*asked.Ignore), domain)...)
	}
	matcher := sourceignore.NewDefaultMatcher(patterns, domain)
	if len(patterns) > 0 {
		matcher = sourceignore.NewMatcher(append(sourceignore.VCSPatterns(domain), patterns...))
	}
	kept := map[string]string{}
	err = filepath.WalkDir(checkout, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		left := matcher.Match(strings.Split(path, string(filepath.Separator)), entry.IsDir())
		if entry.Type().IsRegular() && !left {
			name, err := filepath.Rel(checkout, path)
			kept[name] = asked.Files[name]
			return err
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return written(kept)
}

func written(files map[string]string) (string, error) {
	folder, err := os.MkdirTemp("", "flux-")
	if err != nil {
		return "", err
	}
	if folder, err = filepath.EvalSymlinks(folder); err != nil {
		return "", err
	}
	for name, text := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return "", err
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return "", err
		}
	}
	return folder, nil
}

// build returns the objects that a Kustomization applies, as kustomize-controller's kustomization_controller.go makes
// them, in a copy of the artifact of its own.
func build(own unstructured.Unstructured, maps client.Reader, artifact string) ([]map[string]any, error) {
	work, err := os.MkdirTemp("", "flux-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	if work, err = filepath.EvalSymlinks(work); err != nil {
		return nil, err
	}
	if err := os.CopyFS(work, os.DirFS(artifact)); err != nil {
		return nil, err
	}
	path, _, err := unstructured.NestedString(own.Object, "spec", "path")
	if err != nil {
		return nil, err
	}
	folder, err := securejoin.SecureJoin(work, path)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(folder); err != nil {
		return nil, fmt.Errorf("kustomization path not found: %w", err)
	}
	if _, err := generator.NewGenerator(work, own).WriteFile(folder); err != nil {
		return nil, err
	}
	made, err := generator.SecureBuild(work, folder, false)
	if err != nil {
		return nil, err
	}
	_, substitutes, err := unstructured.NestedMap(own.Object, "spec", "postBuild")
	if err != nil {
		return nil, err
	}
	for _, each := range made.Resources() {
		if each.GetName() == "" || each.GetKind() == "" || each.GetApiVersion() == "" {
			return nil, fmt.Errorf("an object without a name, a kind or a version")
		}
		if !substitutes {
			continue
		}
		filled, err := generator.SubstituteVariables(context.Background(), reading{Reader: maps}, own, each)
		if err != nil {
			return nil, err
		}
		if filled != nil {
			if _, err := made.Replace(each); err != nil {
				return nil, err
			}
		}
	}
	text, err := made.AsYaml()
	if err != nil {
		return nil, err
	}
	// As fluxcd/pkg ssa/utils/utils.go reads them.
	decoder, objects := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 2048), []map[string]any{}
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(object); err == io.EOF {
			return objects, nil
		} else if err != nil {
			return nil, err
		}
		objects = append(objects, object.Object)
	}
}

// cluster has the ConfigMaps that exist, by their namespaces and names.
type cluster map[client.ObjectKey]corev1.ConfigMap

func (maps cluster) add(object map[string]any) {
	var found corev1.ConfigMap
	if object["kind"] != "ConfigMap" || object["apiVersion"] != "v1" {
		return
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &found); err == nil {
		maps[client.ObjectKeyFromObject(&found)] = found
	}
}

// list returns the ConfigMaps in the order of their names.
func (maps cluster) list() []corev1.ConfigMap {
	found := slices.Collect(stdmaps.Values(maps))
	slices.SortFunc(found, func(one, other corev1.ConfigMap) int {
		return strings.Compare(one.Namespace+"/"+one.Name, other.Namespace+"/"+other.Name)
	})
	return found
}

// Get returns a ConfigMap. There is no Secret.
func (maps cluster) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	own, ok := into.(*corev1.ConfigMap)
	found, there := maps[key]
	if !ok || !there {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "objects"}, key.Name)
	}
	*own = found
	return nil
}

// List is never asked.
func (maps cluster) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return fmt.Errorf("nobody lists")
}

// reading is a client that only reads.
type reading struct {
	client.Client
	client.Reader
}

// Get reads, and does not write.
func (own reading) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	return own.Reader.Get(ctx, key, into, options...)
}

// List reads, and does not write.
func (own reading) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	return own.Reader.List(ctx, into, options...)
}
