#!/bin/sh
# The first process of the namespaces that bed.py makes: their mounts and addresses, then the command.
set -eu
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs -o mode=755 cgroup /sys/fs/cgroup
# The hierarchies that the machine has as version 1, and no more: another one would be taken from version 2.
while IFS=: read -r _ controllers _; do
	[ -n "$controllers" ] || continue
	case $controllers in name=*) options=none,$controllers ;; *) options=$controllers ;; esac
	mkdir -p "/sys/fs/cgroup/${controllers#name=}"
	mount -t cgroup -o "$options" cgroup "/sys/fs/cgroup/${controllers#name=}"
done </proc/self/cgroup

# Devices of our own: a privileged pod gets all there are, and the machine's disks are none of them.
mount -t tmpfs -o mode=755 dev /mnt
device() { mknod -m 666 "/mnt/$1" c "$2" "$3"; }
device null 1 3
device zero 1 5
device full 1 7
device random 1 8
device urandom 1 9
device kmsg 1 11
device tty 5 0
for card in nvidiactl nvidia0 nvidia1; do device "$card" 1 5; done # two cards that read as zeros
mkdir /mnt/nvidia-caps-imex-channels
for beyond in nvidia-nvswitchctl nvidia-nvswitch0 nvidia-caps-imex-channels/channel0; do device "$beyond" 1 5; done
mkdir /mnt/pts /mnt/shm /mnt/mqueue
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts /mnt/pts
mount -t tmpfs shm /mnt/shm
mount -t mqueue mqueue /mnt/mqueue
ln -s pts/ptmx /mnt/ptmx
ln -s /proc/self/fd /mnt/fd
ln -s /proc/self/fd/0 /mnt/stdin
ln -s /proc/self/fd/1 /mnt/stdout
ln -s /proc/self/fd/2 /mnt/stderr
mount --move /mnt /dev
for folder in /run /var/lib /var/log; do mount -t tmpfs -o mode=755 tmpfs "$folder"; done
mount --make-rshared /

# A kubelet sets these for the whole machine, unless it finds them set already.
mkdir /run/tunables
for setting in vm.overcommit_memory=1 vm.panic_on_oom=0 kernel.panic=10 kernel.panic_on_oops=1 \
	kernel.keys.root_maxkeys=1000000 kernel.keys.root_maxbytes=25000000; do
	name=${setting%=*}
	echo "${setting#*=}" >"/run/tunables/$name"
	mount --bind -o ro "/run/tunables/$name" "/proc/sys/$(echo "$name" | tr . /)"
done

hostname bed
ip link set lo up
ip link add node0 type veth peer name beyond # a kernel may have no dummy devices
ip link set beyond up
ip address add 10.99.0.1/24 dev node0
ip link set node0 up
ip route add default dev node0 # an address of a Service needs some route before it is rewritten
echo 1 >/proc/sys/net/ipv4/ip_forward
"$@" # not by exec: the first process also reaps
