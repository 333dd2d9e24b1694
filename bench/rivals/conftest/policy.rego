package main

deny contains message if {
	input.kind == "Pod"
	some container in input.spec.containers
	to_number(container.resources.limits["nvidia.com/gpu.shared"]) > 1
	message := sprintf("%s: ask for at most 1 of nvidia.com/gpu.shared", [input.metadata.name])
}
