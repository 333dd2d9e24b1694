// Asks NVIDIA's device plugin what it makes of configurations: its own code reads and checks each.
//
// Reads a configuration a line from standard input, in base64, and answers each with a line: a JSON string of the
// error on which the plugin would not start, empty when there is none.
package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	spec "github.com/NVIDIA/k8s-device-plugin/api/config/v1"
	cli "github.com/urfave/cli/v2"
	"k8s.io/klog/v2"
)

// The flags that the plugin gives defaults to, and MPS_ROOT as the Helm chart and the GPU Operator set it
// (k8s-device-plugin cmd/nvidia-device-plugin/main.go).
func flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "mig-strategy", Value: spec.MigStrategyNone},
		&cli.BoolFlag{Name: "fail-on-init-error", Value: true},
		&cli.StringFlag{Name: "driver-root", Aliases: []string{"nvidia-driver-root"}, Value: "/"},
		&cli.StringFlag{Name: "dev-root", Aliases: []string{"nvidia-dev-root"}},
		&cli.BoolFlag{Name: "pass-device-specs"},
		&cli.StringSliceFlag{
			Name:  "device-list-strategy",
			Value: cli.NewStringSlice(spec.DeviceListStrategyEnvVar),
		},
		&cli.StringFlag{Name: "device-id-strategy", Value: spec.DeviceIDStrategyUUID},
		&cli.BoolFlag{Name: "gdrcopy-enabled"},
		&cli.BoolFlag{Name: "gds-enabled"},
		&cli.BoolFlag{Name: "mofed-enabled"},
		&cli.StringFlag{Name: "cdi-annotation-prefix", Value: spec.DefaultCDIAnnotationPrefix},
		&cli.StringFlag{
			Name:    "nvidia-cdi-hook-path",
			Aliases: []string{"nvidia-ctk-path"},
			Value:   spec.DefaultNvidiaCTKPath,
		},
		&cli.StringFlag{
			Name:    "driver-root-ctr-path",
			Aliases: []string{"container-driver-root"},
			Value:   spec.DefaultContainerDriverRoot,
		},
		&cli.StringFlag{Name: "mps-root"},
		&cli.StringFlag{Name: "device-discovery-strategy", Value: "auto"},
		&cli.IntSliceFlag{Name: "imex-channel-ids"},
		&cli.BoolFlag{Name: "imex-required"},
		&cli.StringFlag{Name: "config-file"},
	}
}

func main() {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	folder, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	file := filepath.Join(folder, "config.yaml")
	out := bufio.NewWriter(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		text, err := base64.StdEncoding.DecodeString(lines.Text())
		if err != nil {
			log.Fatal(err)
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			log.Fatal(err)
		}
		answer := ""
		if err := start(file); err != nil {
			answer = err.Error()
		}
		line, err := json.Marshal(answer)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Fprintf(out, "%s\n", line)
		if err := out.Flush(); err != nil {
			log.Fatal(err)
		}
	}
	if err := lines.Err(); err != nil {
		log.Fatal(err)
	}
}

// start goes the plugin's way up to where it needs a GPU.
func start(file string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	set := flag.NewFlagSet("plugin", flag.ContinueOnError)
	all := flags()
	for _, each := range all {
		if err := each.Apply(set); err != nil {
			return err
		}
	}
	if err := set.Parse([]string{"--config-file", file, "--mps-root", "/run/nvidia/mps"}); err != nil {
		return err
	}
	config, err := spec.NewConfig(cli.NewContext(cli.NewApp(), set, nil), all)
	if err != nil {
		return fmt.Errorf("unable to finalize config: %w", err)
	}
	config.Flags.GFD = nil
	spec.DisableResourceNamingInConfig(config)
	if err := validateFlags(config); err != nil {
		return fmt.Errorf("unable to validate flags: %w", err)
	}
	if _, err := json.Marshal(config); err != nil {
		return fmt.Errorf("failed to marshal config to JSON: %w", err)
	}
	return nil
}

// validateFlags makes the plugin's checks, which its package main keeps to itself, on a node with NVML.
func validateFlags(config *spec.Config) error {
	if _, err := spec.NewDeviceListStrategies(*config.Flags.Plugin.DeviceListStrategy); err != nil {
		return fmt.Errorf("invalid --device-list-strategy option: %w", err)
	}
	if id := *config.Flags.Plugin.DeviceIDStrategy; id != spec.DeviceIDStrategyUUID && id != spec.DeviceIDStrategyIndex {
		return fmt.Errorf("invalid --device-id-strategy option: %v", id)
	}
	if config.Sharing.SharingStrategy() == spec.SharingStrategyMPS {
		if *config.Flags.MigStrategy == spec.MigStrategyMixed {
			return fmt.Errorf("using --mig-strategy=mixed is not supported with MPS")
		}
		if config.Flags.MpsRoot == nil || *config.Flags.MpsRoot == "" {
			return fmt.Errorf("using MPS requires --mps-root to be specified")
		}
	}
	switch strategy := *config.Flags.DeviceDiscoveryStrategy; strategy {
	case "auto", "nvml", "tegra":
	default:
		return fmt.Errorf("invalid --device-discovery-strategy option %v", strategy)
	}
	switch strategy := *config.Flags.MigStrategy; strategy {
	case spec.MigStrategyNone, spec.MigStrategySingle, spec.MigStrategyMixed:
	default:
		return fmt.Errorf("unknown MIG strategy: %v", strategy)
	}
	if err := spec.AssertChannelIDsValid(config.Imex.ChannelIDs); err != nil {
		return fmt.Errorf("invalid IMEX channel IDs: %w", err)
	}
	return nil
}
