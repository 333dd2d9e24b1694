// The yardstick: a mutating webhook as one would write it in Go with nothing but the standard library, for the
// pods of this benchmark. It has no policy, no facts and no rules: what they come to is written into it.
package main

import (
	"encoding/json"
	"flag"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"time"
)

const (
	trustAnnotation = "slicewarden.dev/trust"
	resource        = "nvidia.com/gpu"
	sharingLabel    = "nvidia.com/gpu.sharing-strategy"
	sharing         = "time-slicing"
	maxBody         = 7 << 20
)

var (
	trustedNamespaces = map[string]bool{"vision": true}
	blind             = []envVar{{"NVIDIA_VISIBLE_DEVICES", "void"}}
	environment       = []envVar{
		{"PYTORCH_ALLOC_CONF", "per_process_memory_fraction:0.211"},
		{"TF_FORCE_GPU_ALLOW_GROWTH", "true"},
		{"XLA_PYTHON_CLIENT_MEM_FRACTION", "0.211"},
		{"XLA_CLIENT_MEM_FRACTION", ""},
		{"XLA_PYTHON_CLIENT_PREALLOCATE", "false"},
		{"CUPY_GPU_MEMORY_LIMIT", "21.1%"},
		{"FLAGS_gpu_memory_limit_mb", "3251"},
		{"NVIDIA_NVSWITCH", ""},
		{"NVIDIA_IMEX_CHANNELS", ""},
	}
	record = `{"pool":"shared","fraction":"0.211","mib":3251,` +
		`"uncapped":["pytorch before 2.10","tensorflow"]}`
	poolToleration = toleration{"slicewarden.dev/pool", "Equal", "shared", "NoSchedule"}
)

type review struct {
	Kind       string    `json:"kind"`
	APIVersion string    `json:"apiVersion"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

type request struct {
	UID  string `json:"uid"`
	Kind struct {
		Group   string `json:"group"`
		Version string `json:"version"`
		Kind    string `json:"kind"`
	} `json:"kind"`
	SubResource string `json:"subResource"`
	Namespace   string `json:"namespace"`
	Operation   string `json:"operation"`
	Object      pod    `json:"object"`
}

type response struct {
	UID       string `json:"uid"`
	Allowed   bool   `json:"allowed"`
	PatchType string `json:"patchType,omitempty"`
	Patch     []byte `json:"patch,omitempty"`
}

type pod struct {
	Metadata struct {
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		NodeSelector map[string]string `json:"nodeSelector"`
		Tolerations  []toleration      `json:"tolerations"`
		Containers   []container       `json:"containers"`
	} `json:"spec"`
}

type container struct {
	Name      string   `json:"name"`
	Env       []envVar `json:"env"`
	Resources struct {
		Limits   map[string]string `json:"limits"`
		Requests map[string]string `json:"requests"`
	} `json:"resources"`
}

type envVar struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

type toleration struct {
	Key      string `json:"key"`
	Operator string `json:"operator"`
	Value    string `json:"value"`
	Effect   string `json:"effect"`
}

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

func patch(r *request) []operation {
	p := &r.Object
	trusted := p.Metadata.Annotations[trustAnnotation] == "trusted" && trustedNamespaces[r.Namespace]
	if r.Operation != "CREATE" || r.Kind.Kind != "Pod" || r.SubResource != "" || !trusted {
		return nil
	}
	asks := 0
	var operations, blinding []operation
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		path := "/spec/containers/" + strconv.Itoa(i) + "/env"
		n, err := strconv.Atoi(c.Resources.Limits[resource])
		if err != nil || n < 1 {
			blinding = append(blinding, variables(c, path, blind)...)
			continue
		}
		asks += n
		operations = append(operations, variables(c, path, environment)...)
	}
	if asks != 1 {
		return nil
	}
	if operations != nil {
		operations = append(operations, operation{"add", "/metadata/annotations/slicewarden.dev~1memory-caps", record})
	}
	operations = append(operations, blinding...)
	return append(operations, steering(p)...)
}

func variables(c *container, path string, all []envVar) []operation {
	var missing []envVar
	for _, wanted := range all {
		found := false
		for i := range c.Env {
			found = found || c.Env[i].Name == wanted.Name
		}
		if !found {
			missing = append(missing, wanted)
		}
	}
	if c.Env == nil && missing != nil {
		return []operation{{"add", path, missing}}
	}
	operations := make([]operation, 0, len(missing))
	for _, each := range missing {
		operations = append(operations, operation{"add", path + "/-", each})
	}
	return operations
}

func steering(p *pod) []operation {
	var operations []operation
	if p.Spec.NodeSelector == nil {
		operations = append(operations, operation{"add", "/spec/nodeSelector", map[string]string{sharingLabel: sharing}})
	} else if p.Spec.NodeSelector[sharingLabel] == "" {
		operations = append(operations, operation{"add", "/spec/nodeSelector/nvidia.com~1gpu.sharing-strategy", sharing})
	}
	for _, own := range p.Spec.Tolerations {
		if own == poolToleration {
			return operations
		}
	}
	if p.Spec.Tolerations == nil {
		return append(operations, operation{"add", "/spec/tolerations", []toleration{poolToleration}})
	}
	return append(operations, operation{"add", "/spec/tolerations/-", poolToleration})
}

func mutate(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/json" {
		http.Error(w, "POST an AdmissionReview", http.StatusBadRequest)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "unreadable body", http.StatusBadRequest)
		return
	}
	var asked review
	if err := json.Unmarshal(body, &asked); err != nil || asked.Request == nil || asked.Kind != "AdmissionReview" {
		http.Error(w, "not an AdmissionReview", http.StatusBadRequest)
		return
	}
	answer := &response{UID: asked.Request.UID, Allowed: true}
	if operations := patch(asked.Request); len(operations) > 0 {
		answer.PatchType = "JSONPatch"
		if answer.Patch, err = json.Marshal(operations); err != nil {
			http.Error(w, "internal error", http.StatusInternalServerError)
			return
		}
	}
	out, err := json.Marshal(review{Kind: asked.Kind, APIVersion: asked.APIVersion, Response: answer})
	if err != nil {
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(out)
}

func main() {
	listen := flag.String("listen", "127.0.0.1:8443", "host:port")
	cert := flag.String("tls-cert", "", "certificate, PEM")
	key := flag.String("tls-key", "", "private key, PEM")
	flag.Parse()
	mux := http.NewServeMux()
	mux.HandleFunc("/mutate", mutate)
	mux.HandleFunc("/validate", mutate) // a pod that has its patch gets no other, and is allowed
	server := &http.Server{
		Addr:              *listen,
		Handler:           mux,
		ReadHeaderTimeout: 5 * time.Second,
		ErrorLog:          log.New(io.Discard, "", 0),
		Protocols:         new(http.Protocols),
	}
	server.Protocols.SetHTTP1(true) // as kube-apiserver speaks to webhooks
	if err := server.ListenAndServeTLS(*cert, *key); err != nil {
		_, _ = io.WriteString(os.Stderr, err.Error()+"\n")
		os.Exit(1)
	}
}
