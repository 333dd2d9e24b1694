// Asks kubectl's own reader what `kubectl create -f` would send to an API server for a file.
//
// Reads a question a line from standard input, in JSON: the bytes of some files, in base64. Answers each line with the
// objects of each file, and what kubectl has to say against it.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"log"
	"os"

	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/resource"
)

// read is what kubectl makes of a file.
type read struct {
	Objects []runtime.Object `json:"objects"`
	Error   string           `json:"error"`
}

func main() {
	in, out := json.NewDecoder(bufio.NewReader(os.Stdin)), json.NewEncoder(os.Stdout)
	for {
		var files [][]byte
		if err := in.Decode(&files); err == io.EOF {
			return
		} else if err != nil {
			log.Fatal(err)
		}
		answers := []read{}
		for _, file := range files {
			answers = append(answers, answer(file))
		}
		if err := out.Encode(answers); err != nil {
			log.Fatal(err)
		}
	}
}

// answer reads a file as `kubectl create -f` does, without a server that it could ask for the resource of a kind.
func answer(file []byte) read {
	found := read{Objects: []runtime.Object{}}
	// As resource.FileVisitor opens a file.
	opened := transform.NewReader(bytes.NewReader(file), unicode.BOMOverride(unicode.UTF8.NewDecoder()))
	err := resource.NewLocalBuilder().
		Unstructured().
		ContinueOnError().
		Stream(opened, "file").
		Flatten().
		Do().
		Visit(func(info *resource.Info, err error) error {
			if err != nil {
				return err
			}
			// Without a version there is no path at an API server, and the answer is 404.
			if info.Object.GetObjectKind().GroupVersionKind().Version != "" {
				found.Objects = append(found.Objects, info.Object)
			}
			return nil
		})
	if err != nil {
		found.Error = err.Error()
	}
	return found
}
