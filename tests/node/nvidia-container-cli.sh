#!/bin/sh
# Stands in for nvidia-container-cli, which is C: gives a container those of the two cards that NVIDIA's hook names.
# The hook calls it as the real one (cmd/nvidia-container-runtime-hook/main.go), before the container's root is changed.
set -eu
pid='' devices='' rootfs=''
for each; do
	case $each in
	--device=*) devices=${each#*=} ;;
	--pid=*) pid=${each#*=} ;;
	*) rootfs=$each ;;
	esac
done
give() { nsenter --target="$pid" --mount mknod -m 666 "$rootfs/dev/nvidia$1" c 1 5; }
for device in $(echo "$devices" | tr , ' '); do
	case $device in
	all) give 0 && give 1 ;;
	0 | GPU-*0) give 0 ;;
	1 | GPU-*1) give 1 ;;
	*) echo "no card is called $device" >&2 && exit 1 ;;
	esac
done
