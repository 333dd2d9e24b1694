// Asks Kubernetes what it makes of texts that tenants write: which nodes a pod may run on, and how much a quantity is.
//
// Reads a question a line from standard input, in JSON, and answers each with a line.
package main

import (
	"bufio"
	"encoding/json"
	"io"
	"log"
	"os"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

// question is about a pod and a node, or about a text that is a number or a quantity to Kubernetes.
type question struct {
	Pod      *corev1.Pod   `json:"pod"`
	Nodes    []corev1.Node `json:"nodes"`
	Number   *string       `json:"number"`
	Quantity *string       `json:"quantity"`
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
		if err := out.Encode(answer(asked)); err != nil {
			log.Fatal(err)
		}
	}
}

// answer is whether each node matches, as the scheduler's filter has it, or a number in digits, null where it is none.
func answer(asked question) any {
	if asked.Number != nil {
		if number, err := strconv.ParseInt(*asked.Number, 10, 64); err == nil {
			return strconv.FormatInt(number, 10)
		}
		return nil
	}
	if asked.Quantity != nil {
		if quantity, err := resource.ParseQuantity(*asked.Quantity); err == nil {
			return quantity.AsDec().String()
		}
		return nil
	}
	affinity, matches := nodeaffinity.GetRequiredNodeAffinity(asked.Pod), []bool{}
	for i := range asked.Nodes {
		match, _ := affinity.Match(&asked.Nodes[i])
		matches = append(matches, match)
	}
	return matches
}
