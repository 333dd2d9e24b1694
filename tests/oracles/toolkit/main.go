// Asks NVIDIA's container toolkit what it would hand out to containers: its own code reads each.
//
// Reads a container a line from standard input, in JSON, and answers each with a line: what it would be given.
package main

import (
	"bufio"
	"encoding/json"
	"io"
	"log"
	"os"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/NVIDIA/nvidia-container-toolkit/internal/config/image"
	"github.com/NVIDIA/nvidia-container-toolkit/internal/logger"
)

// container is one as the runtime sees it, and how its node is set up.
type container struct {
	Env                []string          `json:"env"`
	Mounts             []specs.Mount     `json:"mounts"`
	Annotations        map[string]string `json:"annotations"`
	Bounding           []string          `json:"bounding"`
	AcceptMounts       bool              `json:"acceptMounts"`
	AcceptEnv          bool              `json:"acceptEnv"`
	AnnotationPrefixes []string          `json:"annotationPrefixes"`
}

// given is what a container gets: Devices as they were asked for, and what comes only beside devices.
type given struct {
	Devices []string `json:"devices"`
	Imex    []string `json:"imex"`
	Gated   []string `json:"gated"`
}

func main() {
	in, out := json.NewDecoder(bufio.NewReader(os.Stdin)), json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	for {
		var asked container
		if err := in.Decode(&asked); err == io.EOF {
			return
		} else if err != nil {
			log.Fatal(err)
		}
		answer, err := handOut(asked)
		if err != nil {
			log.Fatal(err)
		}
		if err := out.Encode(answer); err != nil {
			log.Fatal(err)
		}
	}
}

// handOut goes the runtime's way (internal/runtime/runtime_factory.go) up to where it needs a GPU.
func handOut(asked container) (given, error) {
	spec := &specs.Spec{
		Annotations: asked.Annotations,
		Mounts:      asked.Mounts,
		Process: &specs.Process{
			Env:          asked.Env,
			Capabilities: &specs.LinuxCapabilities{Bounding: asked.Bounding},
		},
	}
	cuda, err := image.NewCUDAImageFromSpec(
		spec,
		image.WithLogger(&logger.NullLogger{}),
		image.WithAcceptDeviceListAsVolumeMounts(asked.AcceptMounts),
		image.WithAcceptEnvvarUnprivileged(asked.AcceptEnv),
		image.WithAnnotationsPrefixes(asked.AnnotationPrefixes...),
	)
	if err != nil {
		return given{}, err
	}
	answer := given{Devices: cuda.VisibleDevices(), Imex: []string{}, Gated: []string{}}
	if len(answer.Devices) == 0 { // no modification is made then
		answer.Devices = []string{}
		return answer, nil
	}
	answer.Imex = append(answer.Imex, cuda.ImexChannelRequests()...)
	// What internal/modifier/cdi.go keeps to itself: gatedDevices, migCapsDevices.
	for _, name := range []string{"NVIDIA_GDS", "NVIDIA_MOFED", "NVIDIA_GDRCOPY", "NVIDIA_NVSWITCH"} {
		if cuda.Getenv(name) == "enabled" {
			answer.Gated = append(answer.Gated, name)
		}
	}
	for _, name := range []string{image.EnvVarNvidiaMigConfigDevices, image.EnvVarNvidiaMigMonitorDevices} {
		if cuda.IsPrivileged() && strings.EqualFold(cuda.Getenv(name), "all") {
			answer.Gated = append(answer.Gated, name)
		}
	}
	return answer, nil
}
