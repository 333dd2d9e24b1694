// Asks kustomize how it reads a kustomization.
//
// Reads a question a line from standard input, in JSON: the bytes of some files, in base64. Answers each line with the
// kustomization of each file, or with what kustomize has to say against it.
package main

import (
	"bufio"
	"encoding/json"
	"io"
	"log"
	"os"
	"strings"

	"sigs.k8s.io/kustomize/api/types"
)

// read is what kustomize makes of a file.
type read struct {
	Kustomization *types.Kustomization `json:"kustomization"`
	Error         string               `json:"error"`
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

// answer reads a file as KustTarget.Load does (api/internal/target/kusttarget.go).
func answer(file []byte) read {
	var found types.Kustomization
	if err := found.Unmarshal(file); err != nil {
		return read{Error: err.Error()}
	}
	raw := found
	found.FixKustomization()
	if err := found.CheckEmpty(); err != nil {
		return read{Error: err.Error()}
	}
	if errs := found.EnforceFields(); len(errs) > 0 {
		return read{Error: strings.Join(errs, "\n")}
	}
	return read{Kustomization: &raw}
}
