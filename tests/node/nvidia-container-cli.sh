#!/bin/sh
# Stands in for nvidia-container-cli, which is C: gives a container the cards and the IMEX channels that NVIDIA's hook names.
# The hook calls it as the real one (cmd/nvidia-container-runtime-hook/main.go), before the container's root is changed.
set -eu
pid='' devices='' channels='' rootfs=''
for each; do
	case $each in
	--device=*) devices=${each#*=} ;;
	--imex-channel=*) channels=${each#*=} ;;
	--pid=*) pid=${each#*=} ;;
	*) rootfs=$each ;;
	esac
done
there() { nsenter --target="$pid" --mount "$@"; }
give() { there mknod -m 666 "$rootfs/dev/nvidia$1" c 1 5; }
for device in $(echo "$devices" | tr , ' '); do
	case $device in
	all) give 0 && give 1 ;;
	0 | GPU-*0) give 0 ;;
	1 | GPU-*1) give 1 ;;
	*) echo "no card is called $device" >&2 && exit 1 ;;
	esac
done
for channel in $(echo "$channels" | tr , ' '); do
	there mkdir -p "$rootfs/dev/nvidia-caps-imex-channels"
	give "-caps-imex-channels/channel$channel"
done
